//! Files that are not what they should be. Each gets one clear message and the documented exit code, stays as it was,
//! and no container that asked for GPUs starts without them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, Untouched, gpu_spec, plain_spec};
use crate::world::command::{Ran, run};

const BAD_INPUT: i32 = 4;
const NO_INVENTORY: i32 = 5;
const CONFIGURATION: i32 = 6;

/// The message: on standard error, and once in the log in the form that Docker reads.
#[track_caller]
fn says(sandbox: &Sandbox, ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, code, "{ran}");
    assert_eq!(ran.stdout, "", "{ran}");
    let text = ran.stderr.strip_suffix('\n').unwrap_or_else(|| panic!("no line: {ran}"));
    assert!(text.starts_with("cudaview: "), "{ran}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= 2 && lines.iter().skip(1).all(|line| line.starts_with("  hint: ")), "{ran}");
    assert!(!lines[0].ends_with('.') && lines[0].len() < 400, "{ran}");
    for word in words {
        assert!(text.contains(word), "{word:?} is missing: {ran}");
    }
    // These make Docker change its exit code, or give advice of its own.
    for word in ["permission denied", "is a directory", "not a directory", "no such file", "executable file not found"]
    {
        assert!(!text.to_lowercase().contains(word), "{ran}");
    }
    let log = sandbox.log();
    let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 1, "{log}");
    assert_eq!((&records[0]["level"], &records[0]["msg"]), (&json!("error"), &json!(text)));
    let time = records[0]["time"].as_str().unwrap();
    assert!(time.len() >= 20 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
    assert_eq!(sandbox.started(), [""; 0], "the runtime must not be started");
}

/// `create` of a bundle with this `config.json` fails, and the file stays as it was.
#[track_caller]
fn rejects(content: impl AsRef<[u8]>, words: &[&str]) {
    let sandbox = Sandbox::new("");
    sandbox.write("bundle/config.json", content);
    fails(&sandbox, BAD_INPUT, &[&["config.json"], words].concat());
}

#[track_caller]
fn fails(sandbox: &Sandbox, code: i32, words: &[&str]) {
    let config = sandbox.path("bundle/config.json");
    let before = Untouched::of(&config);
    let ran = sandbox.create();
    says(sandbox, &ran, code, words);
    assert_eq!(Untouched::of(&config), before);
}

fn gpu_text() -> String {
    gpu_spec(&["NVIDIA_VISIBLE_DEVICES=all"]).to_string()
}

#[test]
fn a_configuration_that_is_no_json() {
    let text = gpu_text();
    rejects("NVIDIA_VISIBLE_DEVICES=all", &["failed to parse", "line 1 column 1"]);
    rejects(&text[..text.len() / 2], &["failed to parse", "EOF"]);
    rejects(&text[..text.len() - 1], &["failed to parse", "EOF"]);
    rejects(format!("{text}{text}"), &["failed to parse", "trailing characters"]);
    rejects(format!("\u{feff}{text}"), &["failed to parse"]);
    rejects(format!("{}{text}{}", "[".repeat(10_000), "]".repeat(10_000)), &["failed to parse", "recursion"]);
    let mut bytes = text.replace("HOSTNAME=box", "HOSTNAME=b?x").into_bytes();
    let place = bytes.iter().position(|byte| *byte == b'?').unwrap();
    bytes[place] = 0xff;
    rejects(bytes, &["failed to parse", "invalid unicode"]);
    rejects(text.replace("HOSTNAME=box", r"HOSTNAME=\ud800"), &["failed to parse"]);
}

#[test]
fn a_configuration_of_twenty_megabytes() {
    let large = |spec: &Value| {
        let text = spec.to_string();
        format!("{{\"annotations\":{{\"x\":\"{}\"}},{}", "x".repeat(20 << 20), &text[1..])
    };
    rejects(large(&gpu_spec(&[])), &["larger than 16 MiB"]);
    rejects(large(&plain_spec()), &["larger than 16 MiB"]);
}

#[test]
fn a_configuration_with_members_of_other_types() {
    let change = |pointer: &str, value: Value, words: &[&str]| {
        let mut spec = gpu_spec(&["NVIDIA_VISIBLE_DEVICES=all"]);
        *spec.pointer_mut(pointer).unwrap() = value;
        rejects(spec.to_string(), &[&["is no container configuration"], words].concat());
    };
    change("/process", json!("nvidia"), &["/process is not an object"]);
    change("/process/env", json!({"NVIDIA_VISIBLE_DEVICES": "all"}), &["/process/env is not"]);
    change("/process/env/0", json!(5), &["/process/env/0 is not"]);
    change("/process/env/1", json!("HOSTNAME"), &["/process/env/1", "\"HOSTNAME\"", "NAME=VALUE"]);
    change("/process/env/1", json!("=box"), &["/process/env/1", "NAME=VALUE"]);
    change("/process/env/1", json!("CUDA_VISIBLE_DEVICES"), &["\"CUDA_VISIBLE_DEVICES\"", "NAME=VALUE"]);
    change("/linux/devices", json!("all"), &["/linux/devices is not an array"]);
    change("/linux/resources/devices", json!([7]), &["/linux/resources/devices/0 is not an object"]);
    rejects("[\"nvidia\"]", &["is no container configuration"]);
}

#[test]
fn a_configuration_that_is_no_regular_file() {
    let sandbox = Sandbox::new("");
    sandbox.write("elsewhere.json", gpu_text());
    symlink(sandbox.path("elsewhere.json"), sandbox.path("bundle/config.json")).unwrap();
    fails(&sandbox, BAD_INPUT, &["config.json", "ELOOP"]);
    assert_eq!(fs::read_to_string(sandbox.path("elsewhere.json")).unwrap(), gpu_text());

    let sandbox = Sandbox::new("");
    fs::create_dir(sandbox.path("bundle/config.json")).unwrap();
    fails(&sandbox, BAD_INPUT, &["config.json", "not a regular file"]);

    let sandbox = Sandbox::new("");
    let fifo = sandbox.path("bundle/config.json");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    fails(&sandbox, BAD_INPUT, &["config.json", "not a regular file"]);
}

#[test]
fn an_inventory_that_cannot_be_used() {
    type Break = fn(&Path);
    let breaks: [(Break, &str); 7] = [
        (|file| fs::remove_file(file).unwrap(), "does not exist"),
        (|file| fs::remove_file(file).and_then(|()| fs::create_dir(file)).unwrap(), ""),
        (|file| fs::write(file, "").unwrap(), "EOF"),
        (|file| fs::write(file, "{\"schemaVersion\": 1, \"gpus\": [").unwrap(), "EOF"),
        (|file| fs::write(file, "{\"schemaVersion\": 99, \"gpus\": []}").unwrap(), ""),
        (|file| fs::write(file, b"\xff\xfe").unwrap(), ""),
        (|file| fs::set_permissions(file, Permissions::from_mode(0o666)).unwrap(), "can be written"),
    ];
    for (number, (break_it, word)) in breaks.into_iter().enumerate() {
        for config in ["", "[grant]\nbase = [\"1\"]\n"] {
            let sandbox = Sandbox::new(config);
            let spec = if config.is_empty() { gpu_spec(&[]) } else { plain_spec() };
            sandbox.write_spec(&spec);
            break_it(&sandbox.path("inventory.json"));
            eprintln!("case {number} {config:?}");
            fails(&sandbox, NO_INVENTORY, &["inventory", word, "hint: "]);
        }
        // Nobody asked: the image's word alone must not stop a container.
        let sandbox = Sandbox::new("");
        let mut spec = plain_spec();
        spec["process"]["env"] = json!(["NVIDIA_VISIBLE_DEVICES=all"]);
        sandbox.write_spec(&spec);
        break_it(&sandbox.path("inventory.json"));
        let ran = sandbox.create().ok();
        assert_eq!((ran.stderr.as_str(), sandbox.started().len(), sandbox.log().as_str()), ("", 1, ""));
        assert_eq!(sandbox.spec(), spec);
    }
}

#[test]
fn a_low_level_runtime_that_is_not_there() {
    let check = |config: &str, words: &[&str]| {
        let sandbox = Sandbox::new(config);
        sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1"]));
        fails(&sandbox, CONFIGURATION, &[words, &["low_level_runtime"]].concat());
    };
    check("low_level_runtime = [\"/no/such/runtime\", \"no-such-runtime\"]\n", &["/no/such/runtime, no-such-runtime"]);
    check("low_level_runtime = [\"/dev/null\", \"/usr\"]\n", &["/dev/null, /usr"]);
    // Never itself: not by name, by a link, nor by a copy.
    for place in ["runc", "cudaview-runtime"] {
        let sandbox = Sandbox::new("");
        let runtime = sandbox.path(place);
        if place == "runc" {
            symlink(sandbox.runtime(), &runtime).unwrap();
        } else {
            fs::copy(sandbox.runtime(), &runtime).unwrap();
        }
        let config = fs::read_to_string(sandbox.path("prefix/etc/cudaview/config.toml")).unwrap();
        let config = config.replace("/low-level'", &format!("/{place}'"));
        sandbox.write("prefix/etc/cudaview/config.toml", config);
        sandbox.write_spec(&gpu_spec(&[]));
        fails(&sandbox, CONFIGURATION, &["is cudaview-runtime itself", "low_level_runtime"]);
    }
}

/// The edit is undone, so that the next try starts from what the engine wrote.
#[test]
fn a_low_level_runtime_that_cannot_be_started() {
    let sandbox = Sandbox::new("");
    sandbox.write_runtime("\x7fELF and nothing else");
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]));
    let before = fs::read(sandbox.path("bundle/config.json")).unwrap();
    let ran = sandbox.create();
    says(&sandbox, &ran, 1, &["failed to execute", "low-level"]);
    assert_eq!(fs::read(sandbox.path("bundle/config.json")).unwrap(), before);
    assert_eq!(fs::read_dir(sandbox.path("bundle")).unwrap().count(), 1);
}

#[test]
fn our_own_configuration_that_is_wrong() {
    let check = |text: &[u8], words: &[&str]| {
        let sandbox = Sandbox::new("");
        sandbox.write("prefix/etc/cudaview/config.toml", text);
        sandbox.write_spec(&gpu_spec(&[]));
        fails(&sandbox, CONFIGURATION, words);
        // Also where no GPU is concerned: nobody knows what the operator wanted.
        fs::remove_file(sandbox.path("log/log.json")).unwrap();
        sandbox.write_spec(&plain_spec());
        fails(&sandbox, CONFIGURATION, words);
    };
    check(b"narow = true\n", &["line 1", "narow"]);
    check(b"[reconcile]\nnarrow = \"yes\"\n", &["line 2"]);
    check(b"dev_root = \"here\"\n", &["dev_root", "absolute"]);
    check(b"mode = \"enforce\n", &["line 1"]);
}

#[test]
fn a_hook_that_is_not_installed() {
    let sandbox = Sandbox::new("");
    fs::remove_file(sandbox.path("prefix/bin/cudaview-hook")).unwrap();
    sandbox.write_spec(&gpu_spec(&[]));
    fails(&sandbox, CONFIGURATION, &["cudaview-hook is not installed", "hint: "]);
}

/// A container that was created, so that its bundle holds our record.
fn created() -> Sandbox {
    let sandbox = Sandbox::new("");
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]));
    sandbox.create().ok();
    assert_eq!(sandbox.started().len(), 1);
    fs::remove_file(sandbox.path("low-level.started")).unwrap();
    // Where Docker has it.
    fs::remove_dir(sandbox.path("log")).unwrap();
    symlink(sandbox.path("bundle"), sandbox.path("log")).unwrap();
    sandbox
}

#[test]
fn a_process_file_that_cannot_be_used() {
    let check = |content: &[u8], words: &[&str]| {
        let sandbox = created();
        sandbox.write("process", content);
        let before = Untouched::of(&sandbox.path("process"));
        // Docker names that folder after the container.
        let ran = run(sandbox.command().args(["exec", "--process"]).arg(sandbox.path("process")).arg("log"));
        says(&sandbox, &ran, BAD_INPUT, words);
        assert_eq!(Untouched::of(&sandbox.path("process")), before);
    };
    check(b"{\"env\": [", &["process", "failed to parse", "EOF"]);
    check(b"{\"env\": [\"A=\xff\"]}", &["process", "failed to parse"]);
    check(b"{\"env\": [\"A\"]}", &["/env/0", "\"A\"", "NAME=VALUE"]);
    check(b"{\"env\": [1]}", &["/env/0"]);
    check(b"{\"env\": {}}", &["/env is not"]);
    let large = format!("{{\"args\":[\"{}\"]}}", "x".repeat(20 << 20));
    check(large.as_bytes(), &["process", "larger than 16 MiB"]);
}

#[test]
fn a_log_that_cannot_be_written_changes_nothing() {
    let sandbox = Sandbox::new("");
    fs::remove_dir(sandbox.path("log")).unwrap();
    sandbox.write("bundle/config.json", "{\"nvidia");
    let ran = sandbox.create().failed_with(BAD_INPUT);
    assert!(ran.stderr.starts_with("cudaview: failed to parse"), "{ran}");
}

/// The operator's trail must not decide whether a container starts.
#[test]
fn an_audit_trail_that_cannot_be_written_changes_nothing() {
    for place in ["/dev/full", "/dev/null/audit.jsonl"] {
        let sandbox = Sandbox::new(&format!("audit = \"{place}\"\n"));
        sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
        let ran = sandbox.create().ok();
        assert_eq!((ran.stderr.as_str(), sandbox.log().as_str(), sandbox.started().len()), ("", "", 1));
        assert!(sandbox.spec().to_string().contains("CUDA_VISIBLE_DEVICES=0"));
    }
}

/// Who only observes is not in the way, whatever is wrong.
#[test]
fn observing_lets_everything_pass() {
    let passes = |sandbox: &Sandbox| {
        let before = Untouched::of(&sandbox.path("bundle/config.json"));
        let ran = sandbox.create().ok();
        assert_eq!((ran.stderr.as_str(), sandbox.log().as_str(), sandbox.started().len()), ("", "", 1));
        assert_eq!(Untouched::of(&sandbox.path("bundle/config.json")), before);
    };
    let observing = || Sandbox::new("mode = \"observe\"\n");
    let sandbox = observing();
    sandbox.write("bundle/config.json", "{\"nvidia");
    passes(&sandbox);
    let sandbox = observing();
    sandbox.write_spec(&gpu_spec(&["A"]));
    passes(&sandbox);
    let sandbox = observing();
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
    fs::remove_file(sandbox.path("inventory.json")).unwrap();
    passes(&sandbox);
    let sandbox = observing();
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
    fs::remove_file(sandbox.path("prefix/bin/cudaview-hook")).unwrap();
    passes(&sandbox);
}

/// The wrapper keeps the inherited signals, and must not die of one that its own last words raise.
#[test]
fn a_standard_error_that_nobody_reads_changes_nothing() {
    let sandbox = Sandbox::new("");
    sandbox.write("bundle/config.json", "{\"nvidia");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = sandbox.command();
    command.args(["create", "--bundle"]).arg(sandbox.path("bundle")).arg("c1").stderr(writer);
    assert_eq!(command.status().unwrap().code(), Some(BAD_INPUT));
    assert_eq!(sandbox.log().lines().count(), 1);
}

/// runc's own log format, which engines that do not ask for JSON get.
#[test]
fn a_log_that_is_text() {
    let sandbox = Sandbox::new("");
    sandbox.write("bundle/config.json", "{\"nvidia");
    let mut command = std::process::Command::new(sandbox.runtime());
    command.arg("--log").arg(sandbox.path("log/log.json")).args(["create", "-b"]).arg(sandbox.path("bundle")).arg("c1");
    let ran = run(&mut command).failed_with(BAD_INPUT);
    let log = sandbox.log();
    let text = format!("{:?}", ran.stderr.trim_end());
    assert!(log.starts_with("time=\"") && log.contains(&format!("level=error msg={text}")), "{log}");
    assert_eq!(log.lines().count(), 1);
}
