//! The page of a finding: `cudaview explain CODE`.

use super::Style;
use super::style::Tone;
use crate::finding::Code;

macro_rules! pages {
    ($code:ident: $($variant:ident $file:literal,)*) => {
        match $code { $(Code::$variant => include_str!(concat!("../../docs/findings/", $file, ".md")),)* }
    };
}

/// The page, as text for a terminal.
pub fn page(code: Code, style: Style) -> String {
    let text = text(code);
    let mut out = String::new();
    // What one sees is not to be copied, but for the commands that show it.
    let (mut in_code, mut is_output, mut goes_on) = (false, false, false);
    for line in text.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if in_code {
            let is_command = !is_output || goes_on || line.starts_with("$ ");
            goes_on = is_command && line.ends_with('\\');
            let shown = if is_command { style.paint(Tone::Cyan, line) } else { line.to_owned() };
            out.push_str(format!("  {shown}").trim_end());
            out.push('\n');
        } else if let Some(heading) = line.strip_prefix("## ") {
            is_output = heading == "You see";
            out.push_str(&format!("{}\n", style.paint(Tone::Bold, heading)));
        } else if let Some(title) = line.strip_prefix("# ") {
            out.push_str(&format!("{}\n", style.paint(Tone::Bold, title)));
            for wrapped in style.wrap(0, code.meaning()) {
                out.push_str(&wrapped);
                out.push('\n');
            }
        } else {
            for wrapped in style.wrap(0, line) {
                out.push_str(&wrapped);
                out.push('\n');
            }
        }
    }
    out
}

/// The page as it stands in `docs/findings`.
fn text(code: Code) -> &'static str {
    pages! { code:
        OverrideMatchesNothing "override-matches-nothing",
        OverrideExceedsGrant "override-exceeds-grant",
        HostIndexOverride "host-index-override",
        AmbiguousIndex "ambiguous-index",
        DuplicateEntries "duplicate-entries",
        NotACudaValue "not-a-cuda-value",
        MalformedValue "malformed-value",
        DisabledByOverride "disabled-by-override",
        ImageDefaultYields "image-default-yields",
        ImageRequestIgnored "image-request-ignored",
        NothingGranted "nothing-granted",
        UnknownDevice "unknown-device",
        NoSelection "no-selection",
        RequestUnreadable "request-unreadable",
        OneMigDevice "one-mig-device",
        Withheld "withheld",
        CannotNarrow "cannot-narrow",
        CdiOutOfDate "cdi-out-of-date",
        DeviceOrderChanged "device-order-changed",
        DeviceOrderMixed "device-order-mixed",
        UnfixableEnv "unfixable-env",
        EnvCudaVisible "env-cuda-visible",
        EnvNvidiaVisible "env-nvidia-visible",
        UuidInImage "uuid-in-image",
        DefaultFailsOpen "default-fails-open",
        MisspeltVariable "misspelt-variable",
        EntryNamesNothing "entry-names-nothing",
        NvidiaValueUnreadable "nvidia-value-unreadable",
        DeviceOrderUnknown "device-order-unknown",
        DeviceOrderUnset "device-order-unset",
        SelectedTwice "selected-twice",
        SetInCommand "set-in-command",
        SetInRun "set-in-run",
        GpusUnquotedList "gpus-unquoted-list",
        GpusBareList "gpus-bare-list",
        GpusZero "gpus-zero",
        GpusCountAsIndex "gpus-count-as-index",
        GpusUnreadable "gpus-unreadable",
        FlagBehindImage "flag-behind-image",
        ComposeCountAndIds "compose-count-and-ids",
        ComposeGpusUnreadable "compose-gpus-unreadable",
        ComposeNoCount "compose-no-count",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_is_wider_than_the_terminal() {
        let style = Style { width: 80, colour: false };
        for code in Code::ALL {
            for line in page(*code, style).lines() {
                // A command cannot be broken.
                assert!(
                    line.chars().count() <= 80 || line.starts_with("  $") || line.starts_with("    docker "),
                    "{}: {line}",
                    code.name()
                );
            }
        }
    }

    #[test]
    fn every_page_has_its_name_as_title_and_says_what_to_do() {
        for code in Code::ALL {
            let text = text(*code);
            assert!(text.starts_with(&format!("# {}\n", code.name())), "{}", code.name());
            assert!(text.contains("```console") || text.contains("```toml"), "{}", code.name());
        }
    }
}
