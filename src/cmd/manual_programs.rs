//! Manual pages of the programs that `clap` does not know (ADR 3), from what their `--help` prints and the table of
//! exit codes.

use crate::cmd::hook;
use crate::exit::Exit;
use crate::sys::nvml;

/// A program with a page in section 8.
pub(super) struct Program {
    /// Its name.
    pub(super) name: &'static str,
    /// What `--help` prints: `NAME: WHAT`, a usage, paragraphs.
    help: &'static str,
    /// More paragraphs.
    description: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// What else is to be known of its exit codes.
    exits: &'static str,
}

const CONFIGURATION: (&str, &str) =
    ("/etc/cudaview/config.toml", "the configuration; a file of root's alone, or absent");
const AUDIT: (&str, &str) = ("/var/log/cudaview/audit.jsonl", "the audit trail of a host without a journal");
const CACHE: (&str, &str) =
    ("/run/cudaview/inventory.json", "what NVML said of the GPUs; it can be deleted at any time");

/// `--help` is the low-level runtime's.
const RUNTIME_HELP: &str = "\
cudaview-runtime: an OCI runtime that makes GPU selection mean one thing

usage: cudaview-runtime [OPTION…] COMMAND [ARGUMENT…]

Takes the command line of runc or crun, and passes it on byte for byte. Before
create and run it edits the bundle's config.json, before exec the process file,
and before update the device rules that it is told, so that --gpus, CDI names,
NVIDIA_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES select the same GPUs. Then it
becomes the low-level runtime: --help, --version and every other command are
that one's, with its words and exit codes.
";

pub(super) const PROGRAMS: [Program; 3] = [
    Program {
        name: "cudaview-runtime",
        help: RUNTIME_HELP,
        description: "Engines call it; nobody types it. The low-level runtime is the first of low_level_runtime in the \
                      configuration that is there. Nothing is printed on success; what was decided is in the audit \
                      trail, and cudaview log shows it.",
        files: &[CONFIGURATION, CACHE, AUDIT],
        exits: "These are its own, before it becomes the low-level runtime; engines show theirs instead.",
    },
    Program {
        name: "cudaview-hook",
        help: hook::HELP,
        description: "Under the name nvidia-container-runtime-hook it is the stand-in that cudaview install gpus-flag \
                      sets up. A hook that works alone mounts what was granted; it cannot rewrite an environment.",
        files: &[CONFIGURATION, CACHE, AUDIT],
        exits: "Any code but 0 keeps the container from starting.",
    },
    Program {
        name: "cudaview-nvml",
        help: nvml::HELP,
        description: "It is the only program of cudaview that loads NVML, and is never started for a container whose \
                      GPUs are known otherwise.",
        files: &[CACHE],
        exits: "",
    },
];

/// The page in the language of man(7).
pub(super) fn page(program: &Program) -> String {
    let (first, rest) = program.help.split_once("\n\n").unwrap_or((program.help, ""));
    let (_, what) = first.split_once(": ").unwrap_or(("", first));
    let (usage, text) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let version = env!("CARGO_PKG_VERSION");
    let usage = usage.replacen("usage: ", "       ", 1);
    let usage: Vec<&str> = usage.lines().map(|line| line.strip_prefix("       ").unwrap_or(line)).collect();
    let paragraphs = text.trim_end().split("\n\n").chain([program.description]).map(|paragraph| {
        let (before, after) = if paragraph.starts_with(' ') { (".nf\n", "\n.fi") } else { ("", "") };
        format!(".PP\n{before}{}{after}\n", escape(paragraph))
    });
    [
        format!(".TH {} 8 \"\" \"cudaview {version}\"\n", program.name),
        format!(".SH NAME\n{} \\- {}\n", escape(program.name), escape(what)),
        format!(".SH SYNOPSIS\n.nf\n{}\n.fi\n", escape(&usage.join("\n"))),
        format!(".SH DESCRIPTION\n{}", paragraphs.collect::<String>()),
        files(program.files),
        exit_status(program.exits),
        see_also(program.name),
    ]
    .concat()
}

/// What `cudaview(1)` has beside what `clap` knows.
pub(super) fn behind_cudaview() -> String {
    let more = "explain ends with 0 whatever it explains; lint and doctor end with 1 when they found something.";
    files(&[CONFIGURATION, CACHE, AUDIT]) + &exit_status(more) + &see_also("cudaview")
}

fn files(files: &[(&str, &str)]) -> String {
    let rows = files.iter().map(|(path, what)| format!(".TP\n.I {}\n{}\n", escape(path), escape(what)));
    format!(".SH FILES\n{}", rows.collect::<String>())
}

fn exit_status(more: &str) -> String {
    let rows = Exit::TABLE.iter().map(|(exit, what)| format!(".TP\n.B {}\n{}\n", exit.code(), escape(what)));
    let more = if more.is_empty() { String::new() } else { format!(".PP\n{}\n", escape(more)) };
    format!(".SH EXIT STATUS\n{}{more}", rows.collect::<String>())
}

fn see_also(name: &str) -> String {
    let pages = [("cudaview", 1), ("cudaview-hook", 8), ("cudaview-nvml", 8), ("cudaview-runtime", 8)];
    let others = pages.iter().filter(|(other, _)| *other != name);
    let list: Vec<String> = others.map(|(other, section)| format!("\\fB{}\\fR({section})", escape(other))).collect();
    format!(".SH SEE ALSO\n{}\n", list.join(", "))
}

/// Text as roff takes it: no hyphen becomes a dash, and no line a request.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('…', "...");
    let lines =
        text.lines().map(|line| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() });
    lines.collect::<Vec<_>>().join("\n")
}
