//! `cudaview install` and `uninstall` of engines, as programs, in a system of the test's own.

mod engines;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::command::{cudaview, text};
use crate::world::command::write_program;

/// A system with cudaview's runtime in `/usr/bin`.
struct System {
    folder: TempDir,
}

impl System {
    fn new() -> System {
        let system = System { folder: tempfile::tempdir().unwrap() };
        system.folder("usr/bin");
        write_program(&system.path("usr/bin/cudaview-runtime"), b"#!/bin/sh\n");
        system.folder("etc");
        system
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a folder that nobody else can change, whatever the umask.
    fn folder(&self, name: &str) {
        let mut folder = self.folder.path().to_owned();
        for part in Path::new(name) {
            folder.push(part);
            if !folder.exists() {
                fs::create_dir(&folder).unwrap();
                fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
            }
        }
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        self.folder(Path::new(name).parent().unwrap().to_str().unwrap());
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// `cudaview ...`: exit code, what it printed, what it complained about, the root as `ROOT`.
    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut cudaview = cudaview();
        // Lines that are long enough for any root.
        cudaview.env("COLUMNS", "1000").args(args).arg("--root").arg(self.folder.path());
        let (code, stdout, stderr) = text(&cudaview.output().unwrap());
        let root = self.folder.path().canonicalize().unwrap();
        let root = root.to_str().unwrap();
        (code, stdout.replace(root, "ROOT"), stderr.replace(root, "ROOT"))
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(args);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{args:?}: {stdout}");
        stdout
    }

    /// Every file below `/etc`, with its text.
    fn files(&self) -> Vec<(String, String)> {
        let (mut found, mut folders) = (Vec::new(), vec![self.path("etc")]);
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(self.folder.path()).unwrap().to_str().unwrap().to_owned();
                    found.push((name, fs::read_to_string(&path).unwrap_or_default()));
                }
            }
        }
        found.sort();
        found
    }
}

const NVIDIA: &str = "{\n    \"runtimes\": {\n        \"nvidia\": {\n            \"args\": [],\n            \"path\": \
                      \"nvidia-container-runtime\"\n        }\n    },\n    \"default-runtime\": \"nvidia\"\n}\n";

#[test]
fn docker_in_a_system_that_has_nvidias_toolkit() {
    let system = System::new();
    system.write("etc/docker/daemon.json", NVIDIA, 0o640);
    let before = system.files();
    insta::assert_snapshot!(system.ok(&["install", "docker", "--default-runtime", "--dry-run"]), @r#"
    ROOT/etc/docker/daemon.json (the runtime "nvidia" in it stays)
      - "default-runtime": "nvidia"
      + "runtimes": {"cudaview": {"path": "/usr/bin/cudaview-runtime"}}
      + "default-runtime": "cudaview"
      (as it was: ROOT/etc/docker/daemon.json.cudaview-backup)
      containers no longer go through NVIDIA's runtime; to keep it below cudaview,
      write into /etc/cudaview/config.toml
        low_level_runtime = ["/usr/bin/nvidia-container-runtime"]
    then: systemctl reload docker (running containers are not touched)
      --gpus without NVIDIA's toolkit needs more: cudaview install gpus-flag

    nothing was changed (--dry-run). Undo later: cudaview uninstall docker --root ROOT
    "#);
    assert_eq!(system.files(), before);
    system.ok(&["install", "docker", "--default-runtime"]);
    let installed = system.files();
    assert!(installed.iter().any(|(name, text)| name.ends_with(".cudaview-backup") && text == NVIDIA), "{installed:?}");
    for name in ["etc/docker/daemon.json", "etc/docker/daemon.json.cudaview-backup"] {
        assert_eq!(fs::metadata(system.path(name)).unwrap().mode() & 0o7777, 0o640, "{name}");
    }
    // A second time, and with less: what is the default stays it.
    for more in [&[][..], &["--default-runtime"], &["--dry-run"]] {
        let said = system.ok(&[&["install", "docker"], more].concat());
        assert!(said.contains("nothing to do: it says so already"), "{said}");
        assert_eq!(system.files(), installed);
    }
    let said = system.ok(&["uninstall", "docker", "--dry-run"]);
    assert!(said.contains("+ \"default-runtime\": \"nvidia\"") && said.contains("nothing was changed"), "{said}");
    assert_eq!(system.files(), installed);
    system.ok(&["uninstall", "docker"]);
    assert_eq!(system.files(), before);
    let said = system.ok(&["uninstall", "docker"]);
    assert_eq!(said, "nothing to do: ROOT/etc/docker/daemon.json has no cudaview in it\n");
}

#[test]
fn everything_where_nothing_is_configured_and_nothing_is_left() {
    let system = System::new();
    let whole = |engine: &str| {
        let said = system.ok(&["install", engine, "--default-runtime"]);
        assert!(said.contains("(new)"), "{said}");
        assert!(system.ok(&["install", engine]).contains("nothing to do"), "{engine}");
    };
    ["docker", "podman", "containerd", "crio"].into_iter().for_each(whole);
    let names: Vec<String> = system.files().into_iter().map(|(name, _)| name).collect();
    let expected = [
        "etc/containerd/config.toml",
        "etc/containers/containers.conf.d/50-cudaview.conf",
        "etc/crio/crio.conf.d/50-cudaview.conf",
        "etc/docker/daemon.json",
    ];
    assert_eq!(names, expected);
    assert_eq!(system.ok(&["uninstall", "--all", "--check"]), "no container depends on cudaview's runtime\n");
    let installed = system.files();
    system.ok(&["uninstall", "--all", "--dry-run"]);
    assert_eq!(system.files(), installed);
    system.ok(&["uninstall", "--all"]);
    assert_eq!(fs::read_dir(system.path("etc")).unwrap().count(), 0, "{:?}", system.files());
    assert_eq!(system.ok(&["uninstall", "--all"]), "nothing to do: no engine here knows cudaview\n");
}

#[test]
fn while_a_container_depends_on_it_it_stays() {
    let system = System::new();
    system.ok(&["install", "docker"]);
    let make = |id: &str, name: &str, runtime: &str| {
        let folder = format!("var/lib/docker/containers/{}", id.repeat(64));
        system.write(&format!("{folder}/hostconfig.json"), &format!("{{\"Runtime\":\"{runtime}\"}}"), 0o600);
        system.write(&format!("{folder}/config.v2.json"), &format!("{{\"Name\":\"/{name}\"}}"), 0o600);
    };
    make("a", "web", "runc");
    make("b", "trainer", "cudaview");
    make("c", "jup\\u001byter", "cudaview");
    let (code, stdout, stderr) = system.run(&["uninstall", "docker"]);
    assert_eq!((code, stdout.as_str()), (Some(3), ""), "{stderr}");
    let expected = "cudaview: 2 containers depend on cudaview's runtime: jup\\u{1b}yter, trainer\nhint: ";
    assert!(stderr.starts_with(expected), "{stderr}");
    assert_eq!(system.run(&["uninstall", "--all"]).0, Some(3));
    for engine in [&["uninstall", "docker", "--check"][..], &["uninstall", "--all", "--check"]] {
        let (code, stdout, stderr) = system.run(engine);
        assert_eq!((code, stderr.as_str()), (Some(1), ""));
        let lines: Vec<&str> = stdout.lines().collect();
        assert_eq!(lines[1], format!("docker\ttrainer\t{}", "b".repeat(64)));
        assert_eq!(lines.len(), 2, "{stdout}");
    }
    system.ok(&["uninstall", "docker", "--force"]);
    assert_eq!(system.files(), []);
}

/// Exit code 3, one line and a hint, and not a byte is changed.
#[track_caller]
fn refused(system: &System, args: &[&str], message: &str) {
    let before = system.files();
    let (code, stdout, stderr) = system.run(args);
    assert_eq!((code, stdout.as_str()), (Some(3), ""), "{stderr}");
    assert!(stderr.starts_with(&format!("cudaview: {message}")), "{stderr}");
    assert!(stderr.lines().count() <= 2, "{stderr}");
    assert_eq!(system.files(), before);
}

#[test]
fn what_is_not_understood_is_left_as_it_is() {
    let system = System::new();
    system.write("etc/docker/daemon.json", "{\"debug\": true,}", 0o644);
    refused(&system, &["install", "docker"], "\"ROOT/etc/docker/daemon.json\" is left as it is: it is no JSON: ");
    system.write("etc/docker/daemon.json", "{\"runtimes\": {\"cudaview\": {\"path\": \"/x\"}}}", 0o644);
    let other = "\"ROOT/etc/docker/daemon.json\" is left as it is: the runtime \"cudaview\" of this file is another";
    refused(&system, &["install", "docker"], other);
    fs::rename(system.path("etc/docker/daemon.json"), system.path("etc/docker/managed.json")).unwrap();
    symlink("managed.json", system.path("etc/docker/daemon.json")).unwrap();
    refused(&system, &["install", "docker"], "\"ROOT/etc/docker/daemon.json\" is a link to \"managed.json\"");
    system.write("etc/containerd/config.toml", "disabled_plugins = [\"cri\"]\n", 0o644);
    let disabled = "\"ROOT/etc/containerd/config.toml\" is left as it is: \"disabled_plugins\" has ";
    refused(&system, &["install", "containerd"], disabled);
    let part = "etc/containers/containers.conf.d/50-cudaview.conf";
    system.write(part, "[engine]\nevents_logger = \"file\"\n", 0o644);
    for command in ["install", "uninstall"] {
        let more = format!("\"ROOT/{part}\" is left as it is: it has more in it than cudaview's runtime");
        refused(&system, &[command, "podman"], &more);
    }
    system.write(part, "", 0o644);
    system.write("etc/containers/containers.conf.d/99-x.conf", "[engine]\nruntime = \"crun\"\n", 0o644);
    let later =
        format!("\"ROOT/{part}\" is left as it is: ROOT/etc/containers/containers.conf.d/99-x.conf is read after");
    refused(&system, &["install", "podman", "--default-runtime"], &later);
    system.ok(&["install", "podman"]);
}

#[test]
fn what_others_could_change_is_not_relied_upon() {
    let system = System::new();
    let fails = |message: &str| {
        let (code, _, stderr) = system.run(&["install", "docker"]);
        assert!(code == Some(1) && stderr.starts_with(&format!("cudaview: {message}")), "{stderr}");
        assert!(stderr.contains("\nhint: "), "{stderr}");
        assert_eq!(system.files(), []);
    };
    let mode = |name: &str, mode| fs::set_permissions(system.path(name), Permissions::from_mode(mode)).unwrap();
    mode("usr/bin/cudaview-runtime", 0o777);
    fails("failed to rely on cudaview-runtime: \"ROOT/usr/bin/cudaview-runtime\" can be written by its group or by");
    mode("usr/bin/cudaview-runtime", 0o755);
    mode("usr/bin", 0o775);
    fails("failed to rely on cudaview-runtime: \"ROOT/usr/bin\" can be written");
    mode("usr/bin", 0o755);
    mode("etc", 0o757);
    fails("failed to rely on the folder of the file: \"ROOT/etc\" can be written");
    mode("etc", 0o755);
    fs::remove_file(system.path("usr/bin/cudaview-runtime")).unwrap();
    fails("cudaview-runtime is not installed: \"ROOT/usr/bin/cudaview-runtime\" is missing");
}

#[test]
fn observing_keeps_the_comments_of_the_configuration() {
    let system = System::new();
    let packaged = include_str!("../../packaging/config.toml");
    system.write("etc/cudaview/config.toml", packaged, 0o644);
    let said = system.ok(&["install", "docker", "--observe"]);
    assert!(said.contains("ROOT/etc/cudaview/config.toml\n  + mode = \"observe\"\n"), "{said}");
    assert_eq!(system.read("etc/cudaview/config.toml"), format!("mode = \"observe\"\n{packaged}"));
    assert!(system.ok(&["install", "docker", "--observe"]).contains("config.toml\nnothing to do"));
}

#[test]
fn an_ordinary_user_tells_podman_for_themselves() {
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut cudaview = cudaview();
        cudaview.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME").args(args);
        text(&cudaview.output().unwrap())
    };
    let file = home.path().join(".config/containers/containers.conf.d/50-cudaview.conf");
    let (code, stdout, stderr) = run(&["install", "podman", "--user"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    let made: toml::Table = toml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let program = made["engine"]["runtimes"]["cudaview"][0].as_str().unwrap().to_owned();
    assert!(program.starts_with('/') && program.ends_with("/cudaview-runtime"), "{program}");
    assert!(stdout.contains("Undo later: cudaview uninstall podman --user\n"), "{stdout}");
    assert_eq!(run(&["install", "podman", "--user", "--root", "/"]).0, Some(2));
}
