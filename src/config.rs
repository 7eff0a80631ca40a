//! The configuration file: TOML text in, values out. A key that is not known is an error.

use serde::Deserialize;

/// Everything that `/etc/cudaview/config.toml` can say. `packaging/config.toml` comments each key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default = "Config::built_in")]
pub struct Config {
    /// An inventory file that replaces discovery.
    pub inventory: Option<String>,
    /// Where the host's `/dev` is found: `/` means `/dev`.
    pub dev_root: String,
    /// Low-level runtimes to try in order: absolute, or names looked up in the system's directories.
    pub low_level_runtime: Vec<String>,
    /// Who injects devices.
    pub inject: Inject,
    /// Folders of CDI specifications; a later one's devices replace an earlier one's.
    pub cdi_spec_dirs: Vec<String>,
    /// Whether decisions are carried out.
    pub mode: Mode,
    /// Whether a container gets `CUDAVIEW_HOST_GPUS`.
    pub trace: bool,
    /// Where audit records go: `auto`, `journal`, `off`, or an absolute path.
    pub audit: String,
    /// How `CUDA_VISIBLE_DEVICES` is reconciled.
    pub reconcile: Reconcile,
    /// What may be granted.
    pub grant: GrantPolicy,
    /// What is never granted.
    pub limit: Limit,
    /// The createRuntime hook.
    pub hook: Hook,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }
    };
}

words! {
    /// `inject`
    Inject {
        /// The first of the others that fits.
        Auto,
        /// The engine has put the nodes into the spec; only narrow.
        Engine,
        /// NVIDIA's hook or runtime does it after us.
        Nvidia,
        /// We do it.
        Native,
    }
}
words! {
    /// `mode`
    Mode {
        /// Decide and do.
        Enforce,
        /// Decide, write the audit record, change nothing.
        Observe,
    }
}
words! {
    /// `[reconcile] image_default`
    ImageDefault {
        /// An image's `CUDA_VISIBLE_DEVICES` gives way to an explicit selection.
        Yield,
        /// It narrows the selection like a user's value.
        Narrow,
    }
}
words! {
    /// `[reconcile] when_unset`
    WhenUnset {
        /// `CUDA_VISIBLE_DEVICES` is set to the granted GPUs.
        Set,
        /// It stays unset where that shows the same GPUs.
        Leave,
    }
}
words! {
    /// `[reconcile] on_no_match`
    OnNoMatch {
        /// The container is not started.
        Refuse,
        /// It sees every granted GPU.
        Grant,
        /// It sees none: `CUDA_VISIBLE_DEVICES=-1`.
        Hide,
    }
}
words! {
    /// `[reconcile] device_order`
    OrderPolicy {
        /// `CUDA_DEVICE_ORDER=PCI_BUS_ID` where it is unset.
        Pci,
        /// It is left alone.
        Leave,
    }
}
words! {
    /// `[grant] image_request`
    ImageRequest {
        /// Refuse where this runtime was named for the container, else ignore.
        Auto,
        /// An image's request is ignored.
        Ignore,
        /// A container whose image asks for GPUs, and nobody else, is refused.
        Refuse,
        /// An image gets what it asks for, as with NVIDIA's toolkit.
        Honour,
    }
}
words! {
    /// `[grant] unknown_request`
    UnknownRequest {
        /// A request of unknown origin counts as the image's.
        Image,
        /// It counts as the user's.
        User,
    }
}
words! {
    /// `[hook] on_unfixable_env`
    OnUnfixableEnv {
        /// Say so and go on.
        Warn,
        /// Refuse the container.
        Refuse,
    }
}

/// `[reconcile]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default = "Reconcile::built_in")]
pub struct Reconcile {
    /// What an image's own value is worth.
    pub image_default: ImageDefault,
    /// What happens to an unset variable.
    pub when_unset: WhenUnset,
    /// Whether GPUs outside the view lose their nodes.
    pub narrow: bool,
    /// What happens when a value names none of the granted GPUs.
    pub on_no_match: OnNoMatch,
    /// What happens to an unset `CUDA_DEVICE_ORDER`.
    pub device_order: OrderPolicy,
}

/// `[grant] base`: what every container of this runtime is granted when nobody asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Base {
    /// `"none"` or `"all"`.
    Word(BaseWord),
    /// Host indices, UUIDs, MIG devices.
    Devices(Vec<String>),
}

words! {
    /// The words of `[grant] base`.
    BaseWord {
        /// Nothing.
        None,
        /// Every GPU.
        All,
    }
}

/// `[grant]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default = "GrantPolicy::built_in")]
pub struct GrantPolicy {
    /// What is granted when nobody asked.
    pub base: Base,
    /// What a request of the image is worth.
    pub image_request: ImageRequest,
    /// What a request of unknown origin counts as.
    pub unknown_request: UnknownRequest,
    /// Whether mounts under `/var/run/nvidia-container-devices` are a request.
    pub volume_mounts: bool,
    /// Driver capabilities that an image or user may choose from.
    pub capabilities: Vec<String>,
}

/// `[limit]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default = "Limit::built_in")]
pub struct Limit {
    /// Devices that no container gets.
    pub never: Vec<String>,
    /// The most GPUs or MIG devices that one container gets; the first ones stay.
    pub max_devices: Option<u32>,
}

/// `[hook]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default = "Hook::built_in")]
pub struct Hook {
    /// What the hook does, alone, about an environment that it cannot rewrite.
    pub on_unfixable_env: OnUnfixableEnv,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidConfig {
    /// Not TOML, a wrong value, or a key that is not known.
    #[error("{0}")]
    Toml(String),
    /// A path that has to be absolute.
    #[error("{key} = {value:?} is not an absolute path")]
    Relative {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// No low-level runtime at all.
    #[error("low_level_runtime is an empty list")]
    NoRuntime,
}

impl Config {
    /// What holds without a file.
    pub fn built_in() -> Self {
        Self {
            inventory: None,
            dev_root: "/".to_owned(),
            low_level_runtime: vec!["runc".to_owned(), "crun".to_owned()],
            inject: Inject::Auto,
            cdi_spec_dirs: ["/etc/cdi", "/var/run/cdi"].map(str::to_owned).to_vec(),
            mode: Mode::Enforce,
            trace: true,
            audit: "auto".to_owned(),
            reconcile: Reconcile::built_in(),
            grant: GrantPolicy::built_in(),
            limit: Limit::built_in(),
            hook: Hook::built_in(),
        }
    }

    /// Reads a configuration.
    ///
    /// # Errors
    /// [`InvalidConfig`] with line and column for what is not TOML, not a known key, or not a possible value.
    pub fn parse(text: &str) -> Result<Self, InvalidConfig> {
        let config: Self = toml::from_str(text).map_err(|error| InvalidConfig::Toml(one_line(text, &error)))?;
        let absolute = |key, value: &str| {
            if value.starts_with('/') { Ok(()) } else { Err(InvalidConfig::Relative { key, value: value.to_owned() }) }
        };
        absolute("dev_root", &config.dev_root)?;
        if let Some(file) = &config.inventory {
            absolute("inventory", file)?;
        }
        if !matches!(config.audit.as_str(), "auto" | "journal" | "off") {
            absolute("audit", &config.audit)?;
        }
        for runtime in config.low_level_runtime.iter().filter(|runtime| runtime.contains('/')) {
            absolute("low_level_runtime", runtime)?;
        }
        for folder in &config.cdi_spec_dirs {
            absolute("cdi_spec_dirs", folder)?;
        }
        if config.low_level_runtime.is_empty() {
            return Err(InvalidConfig::NoRuntime);
        }
        Ok(config)
    }
}

/// The TOML reader's many-line message, as one line that says where.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let message = error.message().replace('\n', " ");
    line.map_or_else(|| message.clone(), |line| format!("line {line}: {message}"))
}

impl Reconcile {
    fn built_in() -> Self {
        Self {
            image_default: ImageDefault::Yield,
            when_unset: WhenUnset::Set,
            narrow: true,
            on_no_match: OnNoMatch::Refuse,
            device_order: OrderPolicy::Pci,
        }
    }
}

impl GrantPolicy {
    fn built_in() -> Self {
        let capabilities = ["compute", "utility", "video", "graphics", "display", "ngx", "compat32"];
        Self {
            base: Base::Word(BaseWord::None),
            image_request: ImageRequest::Auto,
            unknown_request: UnknownRequest::Image,
            volume_mounts: true,
            capabilities: capabilities.map(str::to_owned).to_vec(),
        }
    }

    /// Whether a container that nobody asked GPUs for may still get some.
    pub fn grants_unasked(&self) -> bool {
        match &self.base {
            Base::Word(word) => *word == BaseWord::All,
            Base::Devices(devices) => !devices.is_empty(),
        }
    }
}

impl Limit {
    fn built_in() -> Self {
        Self { never: Vec::new(), max_devices: None }
    }
}

impl Hook {
    fn built_in() -> Self {
        Self { on_unfixable_env: OnUnfixableEnv::Warn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(Config::parse("").expect("defaults"), Config::built_in());
        let narrow = Config::parse("[reconcile]\nimage_default = \"narrow\"\n").expect("one key");
        assert_eq!(narrow.reconcile.image_default, ImageDefault::Narrow);
        assert!(narrow.reconcile.narrow);
    }

    #[test]
    fn mistakes_say_where() {
        let text = |text| Config::parse(text).expect_err("a mistake").to_string();
        assert!(text("trace = true\nnarow = true\n").starts_with("line 2: unknown field `narow`"));
        assert!(text("[reconcile]\nnarrow = 1\n").starts_with("line 2: "));
        assert_eq!(text("dev_root = \"x\""), "dev_root = \"x\" is not an absolute path");
        assert_eq!(text("low_level_runtime = []"), "low_level_runtime is an empty list");
        assert_eq!(text("low_level_runtime = [\"./runc\"]"), "low_level_runtime = \"./runc\" is not an absolute path");
    }

    #[test]
    fn base_is_a_word_or_a_list() {
        let base = |text| Config::parse(text).map(|config| config.grant.base);
        assert_eq!(base("[grant]\nbase = \"all\"").expect("word"), Base::Word(BaseWord::All));
        assert_eq!(base("[grant]\nbase = [\"1\"]").expect("list"), Base::Devices(vec!["1".to_owned()]));
        assert!(base("[grant]\nbase = \"some\"").is_err());
    }
}
