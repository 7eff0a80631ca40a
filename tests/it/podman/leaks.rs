//! Many containers, made and removed: nothing of them is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use super::{BOTH, Expected, GPUS_1_3, Host};
use crate::world::command::run;
use crate::world::count::Count;
use crate::world::podman::IMAGE;

/// How many containers, and how many at a time.
const CONTAINERS: usize = 200;
const AT_A_TIME: usize = 4;

/// Folders in which runtimes and hooks might leave something; the test's own in its namespace.
const STATE: [&str; 3] = ["/run/crun", "/run/runc", "/run/cudaview"];

/// What there is of a test's podman on the machine.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    /// Everything below the folders of podman, of cudaview and of the runtimes.
    files: BTreeSet<PathBuf>,
    /// The mounts in podman's namespace.
    mounts: Vec<String>,
    /// Processes in that namespace and in those made in it, by their command lines, with what they have open.
    processes: BTreeSet<(String, Vec<String>)>,
    /// Cgroups below the one of these containers.
    cgroups: BTreeSet<PathBuf>,
}

impl Left {
    fn now(host: &Host) -> Left {
        let root = PathBuf::from(format!("/proc/{}/root", host.podman.holder()));
        let mut files = BTreeSet::new();
        for folder in [host.podman.path(), host.install.prefix().parent().unwrap()] {
            below(folder, &mut files);
        }
        for folder in STATE.iter().chain(&["/tmp", "/var/tmp"]) {
            below(&root.join(folder.trim_start_matches('/')), &mut files);
        }
        let table = fs::read_to_string(root.parent().unwrap().join("mountinfo")).unwrap();
        // Identifiers and order change when anything is mounted meanwhile; the points and what is on them do not.
        let mut mounts: Vec<String> =
            table.lines().map(|line| line.splitn(4, ' ').last().unwrap().to_owned()).collect();
        mounts.sort_unstable();
        let mut cgroups = BTreeSet::new();
        for controller in fs::read_dir("/sys/fs/cgroup").unwrap() {
            below(&controller.unwrap().path().join(cgroup().trim_start_matches('/')), &mut cgroups);
        }
        below(&Path::new("/sys/fs/cgroup").join(cgroup().trim_start_matches('/')), &mut cgroups);
        cgroups.retain(|path| path.is_dir());
        Left { files, mounts, processes: processes(host), cgroups }
    }
}

/// The cgroup of this test's containers.
fn cgroup() -> String {
    format!("{}/leaks", crate::world::cgroup())
}

fn below(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            below(&path, found);
        }
        found.insert(path);
    }
}

/// Processes whose mount namespace has a mount of this test's: podman's namespace, and those of its containers.
fn processes(host: &Host) -> BTreeSet<(String, Vec<String>)> {
    let mark = format!("/{}/", host.podman.path().file_name().unwrap().display());
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let folder = entry.unwrap().path();
        // What has ended meanwhile has nothing to read.
        let Ok(mounts) = fs::read_to_string(folder.join("mountinfo")) else { continue };
        let is_process = folder.file_name().unwrap().to_str().unwrap().parse::<u32>().is_ok();
        if !is_process || !mounts.contains(&mark) {
            continue;
        }
        let command = fs::read(folder.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let descriptors = fs::read_dir(folder.join("fd")).into_iter().flatten();
        let target = |path: PathBuf| {
            Some(format!("{} -> {}", path.file_name()?.display(), fs::read_link(&path).ok()?.display()))
        };
        let mut descriptors: Vec<String> = descriptors.filter_map(|fd| target(fd.ok()?.path())).collect();
        descriptors.sort_unstable();
        found.insert((command, descriptors));
    }
    found
}

/// One container of the four kinds, from its beginning to its end.
#[track_caller]
fn one(host: &Host, number: usize, kind: usize) {
    let parent = ["--cgroup-parent", &cgroup()].map(str::to_owned);
    let parent = parent.each_ref().map(String::as_str);
    let podman = |args: &[&str]| host.podman.podman(args);
    let run = |flags: &[&str], args: &[&str]| podman(&[&["run", "--rm"], &parent[..], flags, &[IMAGE], args].concat());
    match kind {
        0 => {
            let flags = [&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3"]].concat();
            let count = Count::of(run(&flags, &crate::world::count::COUNT));
            host.compare(&count, &Expected { view: &[3], nodes: &[3], value: "0" }, "one of many");
        }
        1 => {
            let ran = run(&[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=2"]].concat(), &["true"]).failed_with(126);
            assert!(ran.stderr.contains("names none of the granted GPUs"), "{ran}");
        }
        2 => {
            let name = format!("many-{number}");
            let first = ["run", "--detach", "--stop-timeout", "0", "--name", &name, "-e", "CUDA_VISIBLE_DEVICES=3,1"];
            podman(&[&first[..], &parent, &GPUS_1_3, &[IMAGE, "sleep", "1000"]].concat()).ok();
            let count = host.podman.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=1"], &name);
            host.compare(&count, &Expected { view: &[3], nodes: &[1, 3], value: "1" }, "exec in one of many");
            // podman 5 keeps what belongs to an `exec` that did not begin until its container goes, whatever the reason.
            if number.is_multiple_of(5) {
                host.podman.exec(&["-e", "CUDA_VISIBLE_DEVICES=2"], &name, &["true"]).failed_with(255);
            }
            podman(&["rm", "--force", "--time", "0", &name]).ok();
        }
        _ => {
            run(&[], &["true"]).ok();
        }
    }
}

/// Fails with what is in one of these only.
#[track_caller]
fn same<T: Ord + std::fmt::Debug>(after: &BTreeSet<T>, before: &BTreeSet<T>, what: &str) {
    let (more, less): (Vec<&T>, Vec<&T>) = (after.difference(before).collect(), before.difference(after).collect());
    assert!(more.is_empty() && less.is_empty(), "{what}: there are now {more:#?}, and no longer {less:#?}");
}

/// Waits until there are this many processes: podman ends what belongs to a container some time after its command.
#[track_caller]
fn wait_for(host: &Host, count: usize) {
    let end = Instant::now() + Duration::from_secs(20);
    while processes(host).len() != count {
        assert!(Instant::now() < end, "not {count}: {:#?}", processes(host));
        sleep(Duration::from_millis(50));
    }
}

/// Through both doors, so that both have the occasion.
#[track_caller]
fn many(config: &str) {
    let host = Host::new(BOTH, config);
    for folder in STATE {
        run(host.podman.command("mkdir").args(["-p", folder])).ok();
        run(host.podman.command("mount").args(["-t", "tmpfs", "none", folder])).ok();
    }
    // What the first of each kind makes for all that follow is no leak.
    (0..4).for_each(|kind| one(&host, kind, kind));
    // A container that lives on, and its conmon, are none the worse for the others.
    host.podman.up("lives", &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat(), IMAGE);
    host.podman.exec_count(&[], "lives");
    // What holds the namespace, the container's program, and its conmon.
    wait_for(&host, 3);
    let before = Left::now(&host);
    scope(|threads| {
        for thread in 0..AT_A_TIME {
            let host = &host;
            threads.spawn(move || {
                for number in (4..CONTAINERS).filter(|number| number % AT_A_TIME == thread) {
                    one(host, number, (number / AT_A_TIME + thread) % 4);
                    if number % 16 == 0 {
                        host.podman.exec_count(&[], "lives");
                    }
                }
            });
        }
    });
    wait_for(&host, 3);
    let after = Left::now(&host);
    same(&after.files, &before.files, "files");
    same(&after.cgroups, &before.cgroups, "cgroups");
    same(&after.processes, &before.processes, "processes and what they have open");
    assert_eq!(after.mounts, before.mounts, "mounts");
    host.podman.podman(&["rm", "--force", "--time", "0", "lives"]).ok();
    wait_for(&host, 1);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_two_hundred_containers_leave_nothing() {
    many("low_level_runtime = [\"crun\"]");
}
