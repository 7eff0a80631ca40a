//! What the host's administrator is told to type, through a shell.
//!
//! The programs of the host are stand-ins that know their options and refuse others: a misspelt word, an option that
//! there is none of and a path that the shell takes apart end with another code than 0.
//! `cudaview` is the real one.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::text;
use crate::world::command::write_program;

use super::{Row, is_of, table};

/// A program, and the argument lines that it takes, as patterns of a shell.
const PROGRAMS: [(&str, &str); 15] = [
    ("nvidia-modprobe", "'-u -c0'|'-c'[0-9]"),
    ("nvidia-smi", "-L|'-i '[0-9]*' -mig 0'|'-pm 1'"),
    ("nvidia-ctk", "'cdi generate --output=/'*.yaml"),
    ("setsebool", "'-P container_use_devices=true'"),
    ("journalctl", "'-k -g NVRM'"),
    // The units are those of Docker's and containerd's packages.
    ("systemctl", "'restart docker'|'reload docker'|'start docker'|'restart containerd'|'restart crio'"),
    ("reboot", "''"),
    ("chown", "'root /'*"),
    ("chmod", "'go-w /'*|'a+r /'*"),
    ("ls", "'-l /'*|'-ld /'*"),
    ("rm", "'/dev/nvidia'*"),
    ("mkdir", "'-p /usr/share/cudaview/precreate'"),
    ("mv", "'/usr/share/containers/oci/hooks.d/'*' /usr/share/cudaview/precreate/'*"),
    ("docker", "'ps --all'|'compose config'|'compose -f compose.yaml up'|'info'"),
    ("podman", "'ps --all'"),
];

/// Each writes what it was called with, an argument a line, and says what it answers with.
fn stand_ins(folder: &Path) {
    for (name, taken) in PROGRAMS {
        let script = format!(
            "#!/bin/sh\nfor word in {name} \"$@\"; do printf '%s\\n' \"$word\" >>\"$ASKED\"; done\n\
             case \"$*\" in {taken}) ;; *) echo \"{name} $*: not taken\" >&2; exit 64 ;; esac\n"
        );
        write_program(&folder.join(name), script.as_bytes());
    }
    write_program(&folder.join("sudo"), b"#!/bin/sh\nexec \"$@\"\n");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cudaview"), folder.join("cudaview")).expect("a link");
}

/// Ends as the shell ends, with what was said and what the stand-ins were asked.
fn typed(folder: &Path, command: &str) -> (Option<i32>, String, String) {
    let asked = folder.join("asked");
    fs::write(&asked, "").expect("written");
    let mut shell = Command::new("/bin/sh");
    // Flags of a container are `explain`'s too, and it reads whole commands.
    let command = match command.split(' ').next() {
        Some("--gpus" | "--device" | "-e") => format!("cudaview explain --inventory FILE --gpus all {command}"),
        Some("docker") if command.starts_with("docker run ") => {
            format!("cudaview explain --inventory FILE -- {command}")
        }
        _ => command
            .replace("cudaview explain -- ", "cudaview explain --inventory FILE -- ")
            .replace("cudaview explain --gpus '", "cudaview explain --inventory FILE --gpus '"),
    };
    shell.args(["-eu", "-c", &command]).env_clear().env("PATH", folder).env("ASKED", &asked);
    let (code, _, stderr) = text(&shell.current_dir(folder).output().expect("a shell"));
    (code, stderr, fs::read_to_string(asked).expect("text"))
}

#[test]
fn what_is_typed_on_a_host_is_what_its_programs_take() {
    let folder = tempfile::tempdir().expect("a folder");
    stand_ins(folder.path());
    let inventory = crate::command::data("inventories/a100x4.json");
    fs::copy(inventory, folder.path().join("FILE")).expect("copied");
    fs::write(folder.path().join("compose.yaml"), "services: {}\n").expect("written");
    fs::create_dir_all(folder.path().join("usr/bin")).expect("a folder");
    fs::write(folder.path().join("Dockerfile"), "FROM scratch\n").expect("written");
    let mut ran = 0;
    for Row { text, example, commands, .. } in table().iter().filter(|row| row.by == "shell") {
        assert!(is_of(text, example), "{text}: {example}");
        for command in commands {
            assert!(example.contains(command.as_str()), "{example:?} does not say {command:?}");
            let (code, stderr, asked) = typed(folder.path(), command);
            let ours = command.contains("cudaview ");
            // What is asked about this very host is answered as it is: `doctor` finds something, there is no GPU, no
            // such container and no trail.
            let of_this_host = ["doctor", "inventory", "explain --container", "log", "ps", "lint"];
            let may_fail = of_this_host.iter().any(|verb| command.contains(&format!("cudaview {verb}")));
            assert!(
                code == Some(0) || (may_fail && matches!(code, Some(1 | 3 | 5 | 6))),
                "{command}: {code:?} {stderr}"
            );
            let is_shells =
                command.starts_with("unset ") || command.starts_with('-') || command.starts_with("docker run");
            assert!(ours || is_shells || !asked.is_empty(), "{command} asked nobody");
            ran += 1;
        }
    }
    assert!(ran >= 25, "{ran}");
}

#[test]
fn a_stand_in_refuses_what_its_program_does_not_know() {
    let folder = tempfile::tempdir().expect("a folder");
    stand_ins(folder.path());
    for wrong in ["sudo nvidia-modprobe -u -x0", "systemctl restart dockerd", "sudo nvidia-smi --mig 0", "reboot now"] {
        let (code, stderr, _) = typed(folder.path(), wrong);
        assert_eq!(code, Some(64), "{wrong}: {stderr}");
    }
    let (code, stderr, _) = typed(folder.path(), "--gpus device=1,3");
    assert_eq!(code, Some(2), "{stderr}");
    let (code, _, asked) = typed(folder.path(), "sudo chown root '/etc/my file'");
    assert_eq!((code, asked.as_str()), (Some(0), "chown\nroot\n/etc/my file\n"));
}
