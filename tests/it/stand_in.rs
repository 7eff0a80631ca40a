//! `cudaview install gpus-flag`: a link by the name of NVIDIA's hook, and what it does when it is run.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use cudaview::sys::stand_in::{Change, Place, StandInError};
use serde_json::json;
use tempfile::TempDir;

use crate::command::{cudaview, text};
use crate::world::command::{Ran, run, run_with_input, write_program};
use crate::world::require;

/// A system with cudaview's programs in `/usr/bin`.
struct System {
    folder: TempDir,
}

impl System {
    fn new() -> System {
        let system = System { folder: tempfile::tempdir().unwrap() };
        for folder in ["usr", "usr/bin", "usr/local", "usr/local/bin"] {
            system.make_folder(folder);
        }
        symlink("usr/bin", system.path("bin")).unwrap();
        system.add("usr/bin/cudaview-hook", &fs::read(env!("CARGO_BIN_EXE_cudaview-hook")).unwrap());
        system
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn make_folder(&self, name: &str) {
        fs::create_dir(self.path(name)).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(0o755)).unwrap();
    }

    fn add(&self, name: &str, program: &[u8]) {
        write_program(&self.path(name), program);
    }

    fn stand_in(&self) -> PathBuf {
        self.path("usr/bin/nvidia-container-runtime-hook")
    }

    fn look(&self) -> Place {
        Place::look(self.folder.path()).unwrap()
    }

    /// `cudaview COMMAND gpus-flag`: exit code, what it printed, what it complained about, the root as `ROOT`.
    fn cudaview(&self, command: &str, more: &[&str]) -> (Option<i32>, String, String) {
        let mut cudaview = cudaview();
        // Lines that are long enough for any root.
        cudaview.env("COLUMNS", "1000").args([command, "gpus-flag", "--root"]).arg(self.folder.path()).args(more);
        let (code, stdout, stderr) = text(&cudaview.output().unwrap());
        let root = self.folder.path().to_str().unwrap();
        (code, stdout.replace(root, "ROOT"), stderr.replace(root, "ROOT"))
    }

    /// Fails the test unless both commands are refused and nothing is changed.
    #[track_caller]
    fn refuses(&self, message: &str) {
        let before = self.files();
        let (code, stdout, stderr) = self.cudaview("install", &[]);
        assert_eq!((code, stdout.as_str()), (Some(3), ""), "{stderr}");
        assert!(stderr.starts_with(&format!("cudaview: {message}\nhint: ")), "{stderr}");
        assert_eq!(self.cudaview("install", &["--dry-run"]), (code, stdout, stderr));
        assert_eq!(self.files(), before);
    }

    /// The names in `/usr/bin`, with their inodes.
    fn files(&self) -> Vec<(String, u64)> {
        let entries = fs::read_dir(self.path("usr/bin")).unwrap().map(Result::unwrap);
        let mut files: Vec<_> = entries
            .map(|entry| {
                let inode = fs::symlink_metadata(entry.path()).unwrap().ino();
                (entry.file_name().into_string().unwrap(), inode)
            })
            .collect();
        files.sort();
        files
    }
}

#[test]
fn installed_twice_and_removed_twice() {
    let system = System::new();
    let before = system.files();
    insta::assert_snapshot!(system.cudaview("install", &["--dry-run"]).1, @r"
    + ROOT/usr/bin/nvidia-container-runtime-hook -> cudaview-hook
    then: systemctl restart docker
      Docker looks for this program once, when it starts: a reload is not enough.
      A restart stops running containers unless live-restore is set.

    Docker then takes --gpus, and cudaview's runtime gives the GPUs:
      docker run --runtime cudaview --gpus all IMAGE
    Under another runtime such a container does not start, and says why.
    Undo later: cudaview uninstall gpus-flag --root ROOT

    nothing was changed (--dry-run)
    ");
    assert_eq!(system.files(), before);

    let (code, stdout, stderr) = system.cudaview("install", &[]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.starts_with("+ ROOT/usr/bin/nvidia-container-runtime-hook -> cudaview-hook\n"), "{stdout}");
    assert_eq!(fs::read_link(system.stand_in()).unwrap(), Path::new("cudaview-hook"));
    let installed = system.files();
    assert_eq!(installed.len(), before.len() + 1);
    for more in [&[][..], &["--dry-run"]] {
        let (code, stdout, stderr) = system.cudaview("install", more);
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert!(stdout.lines().nth(1) == Some("nothing to do: it is there"), "{stdout}");
        assert!(stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{stdout}");
    }
    insta::assert_snapshot!(system.cudaview("uninstall", &["--dry-run"]).1, @r"
    - ROOT/usr/bin/nvidia-container-runtime-hook
    Docker refuses --gpus from now on, also for containers that were created with
    it. Until it is restarted it says that this program is not found.

    nothing was changed (--dry-run)
    ");
    assert_eq!(system.files(), installed);

    assert_eq!(system.cudaview("uninstall", &[]).0, Some(0));
    assert_eq!(system.files(), before);
    for more in [&[][..], &["--dry-run"]] {
        let (code, stdout, stderr) = system.cudaview("uninstall", more);
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert_eq!(stdout, "nothing to do: ROOT/usr/bin/nvidia-container-runtime-hook is not there\n");
    }
}

#[test]
fn other_programs_keep_their_names() {
    for name in ["usr/bin/nvidia-container-runtime-hook", "usr/local/bin/nvidia-container-runtime-hook"] {
        let system = System::new();
        system.add(name, b"#!/bin/sh\n");
        system.refuses(&format!("\"ROOT/{name}\" is there, and is not cudaview's"));
    }
    for name in ["usr/bin/nvidia-cdi-hook", "usr/local/bin/nvidia-cdi-hook", "usr/local/bin/amd-container-runtime"] {
        let system = System::new();
        system.add(name, b"#!/bin/sh\n");
        system.refuses(&format!("--gpus belongs to another program here: \"ROOT/{name}\""));
    }
    // Links, one of them to nowhere.
    for target in ["true", "nowhere"] {
        let system = System::new();
        symlink(target, system.stand_in()).unwrap();
        let message = "\"ROOT/usr/bin/nvidia-container-runtime-hook\" is there, and is not cudaview's";
        system.refuses(message);
        let (code, stdout, stderr) = system.cudaview("uninstall", &[]);
        assert_eq!((code, stdout.as_str()), (Some(3), ""), "{stderr}");
        assert_eq!(fs::read_link(system.stand_in()).unwrap(), Path::new(target));
    }
    // NVIDIA's other part came later: ours can still be removed.
    let system = System::new();
    assert_eq!(system.cudaview("install", &[]).0, Some(0));
    system.add("usr/bin/nvidia-cdi-hook", b"#!/bin/sh\n");
    assert_eq!(system.cudaview("uninstall", &[]).0, Some(0));
    assert!(!system.stand_in().is_symlink());
}

/// What was not there when we looked is there when we act.
#[test]
fn nothing_is_replaced_in_a_race() {
    let system = System::new();
    let place = system.look();
    place.check_free().unwrap();
    let target = place.target().unwrap();
    system.add("usr/bin/nvidia-container-runtime-hook", b"theirs");
    let before = system.files();
    assert!(matches!(place.install(&target), Err(StandInError::Foreign(_))));
    assert_eq!(system.files(), before);

    // Two of us at once.
    let system = System::new();
    let (first, second) = (system.look(), system.look());
    assert_eq!(first.install(&target).unwrap(), Change::Made);
    assert_eq!(second.install(&target).unwrap(), Change::None);

    // Ours was there when we looked.
    for act in [|place: &Place| place.install(Path::new("/elsewhere/cudaview-hook")), |place: &Place| place.uninstall()]
    {
        let system = System::new();
        assert_eq!(system.look().install(&target).unwrap(), Change::Made);
        let place = system.look();
        fs::remove_file(system.stand_in()).unwrap();
        system.add("usr/bin/nvidia-container-runtime-hook", b"theirs");
        let before = system.files();
        assert!(matches!(act(&place), Err(StandInError::Foreign(_))));
        assert_eq!(system.files(), before);
        assert_eq!(fs::read(system.stand_in()).unwrap(), b"theirs");
    }
}

#[test]
fn a_link_of_ours_that_leads_elsewhere_is_replaced() {
    let system = System::new();
    symlink("/usr/local/bin/cudaview-hook", system.stand_in()).unwrap();
    let place = system.look();
    assert_eq!(place.install(&place.target().unwrap()).unwrap(), Change::Replaced);
    assert_eq!(fs::read_link(system.stand_in()).unwrap(), Path::new("cudaview-hook"));
    assert_eq!(system.files().len(), 2, "{:?}", system.files());

    // Programs in another folder of that system, by the path that they have there.
    let system = System::new();
    fs::rename(system.path("usr/bin/cudaview-hook"), system.path("usr/local/bin/cudaview-hook")).unwrap();
    assert_eq!(system.cudaview("install", &[]).0, Some(0));
    assert_eq!(fs::read_link(system.stand_in()).unwrap(), Path::new("/usr/local/bin/cudaview-hook"));
}

#[test]
fn what_others_could_change_is_not_used() {
    let fails = |system: &System, message: &str| {
        let before = system.files();
        let (code, stdout, stderr) = system.cudaview("install", &[]);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
        assert!(stderr.starts_with(&format!("cudaview: {message}")), "{stderr}");
        assert_eq!(system.files(), before);
    };
    let system = System::new();
    fs::set_permissions(system.path("usr/bin/cudaview-hook"), Permissions::from_mode(0o775)).unwrap();
    let path = "\"ROOT/usr/bin/cudaview-hook\"";
    fails(&system, &format!("failed to link to cudaview-hook: {path} can be written by its group or by others\n"));
    fs::remove_file(system.path("usr/bin/cudaview-hook")).unwrap();
    fails(&system, &format!("cudaview-hook is not installed: {path} is missing\n"));

    for folder in ["", "usr", "usr/bin"] {
        let system = System::new();
        fs::set_permissions(system.path(folder), Permissions::from_mode(0o1777)).unwrap();
        fails(&system, "failed to use the folder of the link: \"ROOT");
    }
    let system = System::new();
    fs::rename(system.path("usr/bin"), system.path("usr/elsewhere")).unwrap();
    symlink("elsewhere", system.path("usr/bin")).unwrap();
    fails(&system, "failed to open the folder \"ROOT/usr/bin\": ");
}

/// Whoever may not write there is told so, and can see what would be done.
#[test]
fn without_root_there_is_a_reason() {
    let system = System::new();
    // Beside the program that is run, the hook is taken from there.
    system.add("usr/bin/cudaview", &fs::read(env!("CARGO_BIN_EXE_cudaview")).unwrap());
    fs::set_permissions(system.path(""), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(system.path("usr/bin"), Permissions::from_mode(0o555)).unwrap();
    let as_nobody = |command: &str, more: &[&str]| {
        let program = system.path("usr/bin/cudaview");
        let mut cudaview = if rustix::process::geteuid().is_root() {
            let mut setpriv = Command::new("setpriv");
            setpriv.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
            setpriv
        } else {
            Command::new(program)
        };
        cudaview.env("COLUMNS", "1000").args([command, "gpus-flag", "--root"]).arg(system.folder.path()).args(more);
        run(&mut cudaview)
    };
    let before = system.files();
    let path = system.stand_in();
    let ran = as_nobody("install", &[]).failed_with(1);
    let text = format!("cudaview: failed to make the link {path:?}: Permission denied (os error 13)\n");
    assert_eq!(ran.stderr, text + "hint: only root may do this: run it with sudo\n");
    as_nobody("install", &["--dry-run"]).ok();
    assert_eq!(system.files(), before);

    fs::set_permissions(system.path("usr/bin"), Permissions::from_mode(0o755)).unwrap();
    symlink("cudaview-hook", &path).unwrap();
    fs::set_permissions(system.path("usr/bin"), Permissions::from_mode(0o555)).unwrap();
    let ran = as_nobody("uninstall", &[]).failed_with(1);
    assert!(ran.stderr.ends_with("hint: only root may do this: run it with sudo\n"), "{ran}");
    assert!(path.is_symlink());
    fs::set_permissions(system.path("usr/bin"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_command_line_has_its_help_and_its_errors() {
    for command in ["install", "uninstall"] {
        let (code, help, stderr) = text(&cudaview().args(["help", command, "gpus-flag"]).output().unwrap());
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert!(help.contains("--dry-run") && help.lines().all(|line| line.chars().count() <= 80), "{help}");
        for wrong in [&[command][..], &[command, "rocket"], &[command, "gpus-flag", "more"]] {
            let (code, stdout, stderr) = text(&cudaview().args(wrong).output().unwrap());
            assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
            assert!(stderr.contains("\nhint: "), "{stderr}");
        }
    }
}

#[test]
fn whoever_runs_it_is_told_where_gpus_come_from() {
    let system = System::new();
    assert_eq!(system.cudaview("install", &[]).0, Some(0));
    let bundle = tempfile::tempdir().unwrap();
    let write = |env: &[&str]| {
        let config = json!({"ociVersion": "1.0.2", "process": {"env": env}});
        fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
    };
    let state = json!({"ociVersion": "1.0.2", "id": "a", "pid": 7, "bundle": bundle.path()}).to_string();
    let prestart = |state: &str| run_with_input(Command::new(system.stand_in()).arg("prestart"), state.as_bytes());
    let fails = |ran: Ran| {
        let ran = ran.failed_with(3);
        assert!(ran.stderr.lines().all(|line| line.chars().count() <= 80), "{ran}");
        insta::allow_duplicates! {
            insta::assert_snapshot!(ran.stderr, @r#"
            cudaview: --gpus without cudaview's runtime: the container would have no GPU
              hint: add --runtime cudaview, or make it Docker's default runtime
              (mode = "observe" and inject = "nvidia" of cudaview's config.toml do this too)
            "#);
        }
    };
    write(&["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=1,3"]);
    fails(prestart(&state));
    // What cannot be read may have asked.
    fails(prestart("{"));
    fs::write(bundle.path().join("config.json"), "{").unwrap();
    fails(prestart(&state));
    // `--gpus 0`, and what cudaview's runtime leaves where it gives nothing.
    let with = |value: &str| format!("NVIDIA_VISIBLE_DEVICES={value}");
    for nothing in [vec![with("all"), with("void")], vec![with("none")], vec![with("")], vec!["PATH=/bin".to_owned()]] {
        write(&nothing.iter().map(String::as_str).collect::<Vec<_>>());
        let ran = prestart(&state).ok();
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
    }

    let help = run(Command::new(system.stand_in()).arg("--help")).ok().stdout;
    assert!(help.starts_with("nvidia-container-runtime-hook: cudaview's stand-in"), "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    for arguments in [&[][..], &["poststop"], &["createRuntime"], &["prestart", "more"]] {
        run_with_input(Command::new(system.stand_in()).args(arguments), state.as_bytes()).failed_with(2);
    }
    // By its own name it is no stand-in.
    let ran = run(Command::new(system.path("usr/bin/cudaview-hook")).arg("prestart")).failed_with(2);
    assert!(ran.stderr.starts_with("cudaview-hook: unknown stage \"prestart\""), "{ran}");
}

/// NVIDIA's package has its hook by this name in this folder: it takes the name over, and does not write through the
/// link.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_debian_package_takes_the_name_over() {
    require(&["dpkg", "dpkg-deb"]);
    let system = System::new();
    assert_eq!(system.cudaview("install", &[]).0, Some(0));
    let ours = fs::read(system.path("usr/bin/cudaview-hook")).unwrap();

    let package = tempfile::tempdir().unwrap();
    let tree = package.path().join("tree");
    for folder in ["DEBIAN", "usr/bin"] {
        fs::create_dir_all(tree.join(folder)).unwrap();
    }
    for folder in ["", "DEBIAN", "usr", "usr/bin"] {
        fs::set_permissions(tree.join(folder), Permissions::from_mode(0o755)).unwrap();
    }
    let control = "Package: nvidia-container-toolkit\nVersion: 1\nArchitecture: all\n\
                   Maintainer: Nobody <nobody@example.org>\nDescription: a stand-in for the package\n";
    fs::write(tree.join("DEBIAN/control"), control).unwrap();
    write_program(&tree.join("usr/bin/nvidia-container-runtime-hook"), b"theirs");
    let file = package.path().join("package.deb");
    run(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(&tree).arg(&file)).ok();
    let dpkg = |arguments: &[&str]| {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", system.folder.path().display())).args(arguments);
        run(&mut command).ok()
    };
    for folder in ["var", "var/lib", "var/lib/dpkg", "var/lib/dpkg/updates", "var/lib/dpkg/info", "var/log"] {
        system.make_folder(folder);
    }
    for name in ["status", "available"] {
        fs::write(system.path("var/lib/dpkg").join(name), "").unwrap();
    }
    dpkg(&["--install", file.to_str().unwrap()]);
    assert_eq!(fs::read(system.stand_in()).unwrap(), b"theirs");
    assert!(!system.stand_in().is_symlink());
    assert_eq!(fs::read(system.path("usr/bin/cudaview-hook")).unwrap(), ours);
    let message = "\"ROOT/usr/bin/nvidia-container-runtime-hook\" is there, and is not cudaview's";
    system.refuses(message);
    assert_eq!(system.cudaview("uninstall", &[]).0, Some(3));
    dpkg(&["--remove", "nvidia-container-toolkit"]);
    assert_eq!(system.cudaview("install", &[]).0, Some(0));
}
