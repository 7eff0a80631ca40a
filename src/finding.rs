//! Findings: what was noticed, how bad it is, and what to type instead.

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; the program gets what was asked for.
    Info,
    /// The program gets something else than somebody asked for.
    Warning,
    /// The container is refused.
    Error,
}

impl Severity {
    /// The lower-case tag that reports print.
    pub fn tag(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

macro_rules! codes {
    ($($variant:ident $name:literal $meaning:literal,)*) => {
        /// What was found. Each code has a page (`cudaview explain CODE`) and is stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Code {
            $(#[doc = $meaning] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The name that users see and type.
            pub fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            /// One sentence on what it means.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$variant => $meaning,)* }
            }
        }
    };
}

codes! {
    OverrideMatchesNothing "override-matches-nothing" "CUDA_VISIBLE_DEVICES names none of the granted GPUs",
    OverrideExceedsGrant "override-exceeds-grant" "CUDA_VISIBLE_DEVICES names GPUs that were not granted; they were left out",
    HostIndexOverride "host-index-override" "CUDA_VISIBLE_DEVICES holds host numbers; they were renumbered",
    AmbiguousIndex "ambiguous-index" "a number means one GPU on the host and another inside; the inside one was taken",
    DuplicateEntries "duplicate-entries" "CUDA_VISIBLE_DEVICES names a GPU twice, for which CUDA would show none; the repeat was dropped",
    NotACudaValue "not-a-cuda-value" "all is no value of CUDA_VISIBLE_DEVICES; CUDA would show no GPU",
    MalformedValue "malformed-value" "CUDA_VISIBLE_DEVICES holds quotes or trailing characters that CUDA ignores or trips over",
    DisabledByOverride "disabled-by-override" "CUDA_VISIBLE_DEVICES hides every GPU, and was left as it is",
    ImageDefaultYields "image-default-yields" "the image's own CUDA_VISIBLE_DEVICES gave way to what was typed",
    ImageRequestIgnored "image-request-ignored" "the image asks for GPUs; an image grants nothing",
    NothingGranted "nothing-granted" "CUDA_VISIBLE_DEVICES is set, but the container was given no GPU",
    UnknownDevice "unknown-device" "the selection names a GPU that this host does not have",
    NoSelection "no-selection" "this host has one device for all its GPUs (WSL2): a container gets all of them or none, and numbers stay as they are",
    RequestUnreadable "request-unreadable" "the engine's record of the GPU request must exist and cannot be read",
    Withheld "withheld" "granted GPUs that the value leaves out, or a limit withholds, lost their nodes, so that nvidia-smi and CUDA agree",
    CannotNarrow "cannot-narrow" "the container can open more GPUs than it was given",
    CdiOutOfDate "cdi-out-of-date" "the host's CDI specification does not know a granted GPU; the GPU works, and what only the specification has for it is missing",
    OneMigDevice "one-mig-device" "several devices are chosen, MIG devices among them, and the driver does not show all of them to one process",
    DeviceOrderChanged "device-order-changed" "with CUDA_DEVICE_ORDER=PCI_BUS_ID cuda:0 may be another card than before",
    DeviceOrderMixed "device-order-mixed" "models differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID, so nobody can say what an integer means",
    UnfixableEnv "unfixable-env" "CUDA_VISIBLE_DEVICES would have to be rewritten, and a createRuntime hook alone cannot do that",
    EnvCudaVisible "env-cuda-visible" "the image has CUDA_VISIBLE_DEVICES built in, and whoever runs it gets fewer GPUs than were asked for",
    EnvNvidiaVisible "env-nvidia-visible" "the image has NVIDIA_VISIBLE_DEVICES built in, and asks for GPUs by itself",
    UuidInImage "uuid-in-image" "the image names a GPU of one host by its UUID",
    DefaultFailsOpen "default-fails-open" "where a variable is not set, the default is every GPU",
    MisspeltVariable "misspelt-variable" "a variable is called almost like one that chooses GPUs, and nothing reads it",
    EntryNamesNothing "entry-names-nothing" "an entry of CUDA_VISIBLE_DEVICES names no device, and CUDA ends the list there",
    NvidiaValueUnreadable "nvidia-value-unreadable" "NVIDIA_VISIBLE_DEVICES holds what NVIDIA's toolkit cannot read",
    DeviceOrderUnknown "device-order-unknown" "CUDA_DEVICE_ORDER is neither PCI_BUS_ID nor FASTEST_FIRST",
    DeviceOrderUnset "device-order-unset" "a number chooses among all GPUs, and without CUDA_DEVICE_ORDER it need not be nvidia-smi's number",
    SelectedTwice "selected-twice" "GPUs are selected in two ways that say different things, and one of them counts",
    SetInCommand "set-in-command" "the container's command sets the variable itself, so that whoever starts it cannot",
    SetInRun "set-in-run" "a RUN sets the variable where the image's program does not see it",
    GpusUnquotedList "gpus-unquoted-list" "--gpus device=0,2 without inner quotes is a device and a count to Docker, which stops",
    GpusBareList "gpus-bare-list" "--gpus 0,2 is a count to Docker, which takes the last number and says nothing",
    GpusZero "gpus-zero" "a count of 0 gives no GPU; GPU 0 is asked for by its number",
    GpusCountAsIndex "gpus-count-as-index" "a count of GPUs was typed where the number of one was meant",
    GpusUnreadable "gpus-unreadable" "the engine cannot read the value of --gpus",
    FlagBehindImage "flag-behind-image" "a flag of the engine's stands behind the image and goes to the program",
    ComposeCountAndIds "compose-count-and-ids" "a Compose file gives a count and device ids, which exclude each other",
    ComposeGpusUnreadable "compose-gpus-unreadable" "Compose cannot read how the service asks for GPUs, and stops",
    ComposeNoCount "compose-no-count" "a Compose file reserves GPUs and does not say how many",
}

/// One thing that was noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub code: Code,
    /// How much it matters.
    pub severity: Severity,
    /// One sentence, lower case, no full stop.
    pub message: String,
    /// What to type instead, or an empty string.
    pub hint: String,
}

impl Finding {
    /// A finding; `hint` may be empty.
    pub fn new(code: Code, severity: Severity, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, severity, message: message.into(), hint: hint.into() }
    }
}

/// Somebody else's text, quoted and cut at 40 characters: safe for a terminal and for a log.
pub fn quoted(text: &str) -> String {
    const LIMIT: usize = 40;
    if text.chars().count() <= LIMIT {
        return format!("{text:?}");
    }
    let cut: String = text.chars().take(LIMIT).collect();
    format!("{:?}", cut + "…")
}

/// Somebody else's text in a line of ours: without what a terminal would act on, quotes left as they are.
pub fn printable(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        if matches!(letter, '"' | '\'' | '\\') {
            out.push(letter);
        } else {
            out.extend(letter.escape_debug());
        }
    }
    out
}

/// Whether a letter steers a terminal, or turns the direction of the text around it.
pub fn steers(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Somebody else's texts, each as [`quoted`]; of a long list its beginning.
pub fn quoted_list(texts: &[String]) -> String {
    const MOST: usize = 8;
    let shown: Vec<String> = texts.iter().take(MOST).map(|text| quoted(text)).collect();
    let shown = shown.join(", ");
    match texts.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
