//! What is left behind by two hundred containers: nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{GPUS_1_3, Host, paths};
use crate::world::A100X4;
use crate::world::dockerd::IMAGE;
use crate::world::mounts::mounts_below;

/// Containers before the first look: what is loaded, opened or made once and kept is there then.
const WARM_UP: usize = 12;
const CONTAINERS: usize = 200;
const LANES: usize = 4;

/// Descriptors that a daemon may have more than before. Docker 26.1 keeps up to ten connections of clients that have
/// ended; of each kind of container there are 33, so that one descriptor for each of a kind is too many.
const SPARE_DESCRIPTORS: usize = 16;

/// What there is at one time.
#[derive(Debug, PartialEq, Eq)]
struct Inventory {
    mounts: BTreeSet<PathBuf>,
    /// Everything below the daemon's folders for what runs; layers and containers; files for a moment; our own.
    files: BTreeSet<PathBuf>,
    /// Whose command line, program or cgroup is of this daemon or of this installation.
    processes: BTreeSet<String>,
    /// Cgroups of this daemon's containers.
    cgroups: BTreeSet<PathBuf>,
    /// Docker's own list.
    containers: Vec<String>,
}

impl Inventory {
    fn take(host: &Host, ids: &BTreeSet<String>) -> Inventory {
        let folder = host.docker.path();
        let mut files = BTreeSet::new();
        for part in ["exec", "tmp", "data/containers", "data/tmp", "data/runtimes"] {
            tree(&folder.join(part), usize::MAX, &mut files);
        }
        // Docker removes the files of its network namespaces once a minute. What is mounted on one is a mount.
        files.retain(|file| !file.starts_with(folder.join("exec/netns")));
        // The content of layers is the images'.
        tree(&folder.join("data/overlay2"), 1, &mut files);
        tree(&host.install.prefix(), usize::MAX, &mut files);
        tree(&host.install.dev_root(), usize::MAX, &mut files);
        // Neither is there anything of ours where programs keep their state.
        let ours = |path: &PathBuf| path.to_string_lossy().contains("cudaview");
        let mut state = BTreeSet::new();
        for part in ["/run", "/var/lib", "/var/tmp", "/dev/shm", "/tmp"] {
            tree(Path::new(part), 1, &mut state);
        }
        files.extend(state.into_iter().filter(ours));
        Inventory {
            mounts: mounts_below(folder).into_iter().chain(mounts_below(&host.install.prefix())).collect(),
            files,
            processes: processes(host, ids),
            cgroups: cgroups(ids),
            containers: host.containers(),
        }
    }
}

/// The paths below a folder down to this depth.
fn tree(folder: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) {
    // Whatever vanishes meanwhile is not there.
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && depth > 1 {
            tree(&entry.path(), depth - 1, found);
        }
        found.insert(entry.path());
    }
}

/// The processes, as command lines, that belong to the daemon, to the installation or to one of these containers.
fn processes(host: &Host, ids: &BTreeSet<String>) -> BTreeSet<String> {
    let (folder, prefix) = (host.docker.path().to_str().unwrap(), host.install.prefix());
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let text = |name: &str| String::from_utf8_lossy(&read(name)).replace('\0', " ");
        let (line, cgroup) = (text("cmdline"), text("cgroup"));
        let program = fs::read_link(entry.path().join("exe")).unwrap_or_default();
        if line.contains(folder) || program.starts_with(&prefix) || ids.iter().any(|id| cgroup.contains(id)) {
            found.insert(format!("{} {line}", entry.file_name().display()));
        }
    }
    found
}

/// The cgroups named by these containers, in every hierarchy.
fn cgroups(ids: &BTreeSet<String>) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    tree(Path::new("/sys/fs/cgroup"), 4, &mut all);
    all.retain(|path| path.file_name().is_some_and(|name| ids.contains(&*name.to_string_lossy())));
    all
}

/// What the descriptors of the daemon and of its containerd refer to.
fn descriptors(host: &Host) -> [Vec<PathBuf>; 2] {
    let daemon = host.docker.pid();
    let config = host.docker.path().join("exec/containerd/containerd.toml");
    let is_containerd = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).split('\0').any(|word| Path::new(word) == config)
    };
    let numbers = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let containerd =
        numbers.into_iter().filter(|pid| *pid != daemon).find(is_containerd).expect("a managed containerd");
    [daemon, containerd].map(|pid| {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(Result::ok);
        entries.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
    })
}

/// One container from its making to its end; what kind it is goes by its number.
fn one(host: &Host, number: usize) {
    let name = format!("c{number}");
    let wish = [&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat();
    let remove = || drop(host.docker.docker(&["rm", "--force", &name]).ok());
    match number % 6 {
        0 => assert_eq!(host.count(IMAGE, &wish).cuda, host.uuids_of(&[3, 1])),
        1 => {
            let flags = ["--runtime", "cudaview", "--gpus", "1", "-e", "CUDA_VISIBLE_DEVICES=1"];
            host.docker.run(&flags, IMAGE, &["true"]).failed_with(125);
        }
        2 => {
            host.up(&name, IMAGE, &wish);
            assert_eq!(host.docker.exec_count(&[], &name).cuda, host.uuids_of(&[3, 1]));
            let ran = host.docker.exec(&["-e", "CUDA_VISIBLE_DEVICES=2"], &name, &["true"]);
            assert!(ran.code != 0, "{ran}");
            remove();
        }
        3 => {
            host.up(&name, "health", &wish);
            assert_eq!(host.docker.health_count(&name).cuda, host.uuids_of(&[3, 1]));
            remove();
        }
        // Narrowed, ended with an error, and started again before it is removed.
        4 => {
            let head = ["create", "--name", &name, "--network", "none", "--runtime", "cudaview"];
            let more = ["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=2", IMAGE, "sh", "-c", "gpu-count; exit 7"];
            host.docker.docker(&[&head[..], &more].concat()).ok();
            for _ in 0..2 {
                host.docker.docker(&["start", "--attach", &name]).failed_with(7);
            }
            remove();
        }
        _ => assert_eq!(host.count(IMAGE, &[]).nodes, paths(&[])),
    }
}

/// Makes these containers in a few lanes at once.
fn run(host: &Host, numbers: std::ops::Range<usize>) {
    let next = AtomicUsize::new(numbers.start);
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= numbers.end {
                        return;
                    }
                    one(host, number);
                }
            });
        }
    });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_two_hundred_containers_leave_nothing_behind() {
    let host = Host::new("");
    host.docker.import(A100X4, "health", &["HEALTHCHECK --interval=1s --timeout=10s CMD gpu-count --json"]);
    // Docker forgets containers; our audit trail does not.
    let ids = || -> BTreeSet<String> {
        host.install.audit_records().iter().filter_map(|record| Some(record["id"].as_str()?.to_owned())).collect()
    };
    run(&host, 0..WARM_UP);
    let settled = settle(&host, &ids(), None);
    let (before, descriptors_before) = (settled, descriptors(&host));
    assert!(before.processes.len() >= 2, "the daemon and its containerd: {before:?}");
    assert!(before.cgroups.is_empty() && before.containers.is_empty() && !before.files.is_empty(), "{before:?}");

    run(&host, WARM_UP..WARM_UP + CONTAINERS);
    // Of six kinds of containers one has nothing to do with GPUs and is not in the trail; one is made twice.
    let made = ids().len();
    assert!(made * 6 >= (WARM_UP + CONTAINERS) * 5 - 6, "{made} in the audit trail");
    let after = settle(&host, &ids(), Some(&before));
    assert_eq!(before.mounts, after.mounts);
    assert_eq!(before.processes, after.processes);
    assert_eq!(before.cgroups, after.cgroups);
    assert_eq!(before.containers, after.containers);
    let new: Vec<&PathBuf> = after.files.difference(&before.files).collect();
    assert!(new.is_empty(), "left behind: {new:?}");

    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let now = descriptors(&host);
        let count = |both: &[Vec<PathBuf>; 2]| both.each_ref().map(Vec::len);
        let counts = (count(&descriptors_before), count(&now));
        if counts.1.iter().zip(counts.0).all(|(now, before)| *now <= before + SPARE_DESCRIPTORS) {
            println!("descriptors of dockerd and containerd: {:?} before, {:?} after", counts.0, counts.1);
            return;
        }
        assert!(Instant::now() < end, "descriptors: {descriptors_before:?} before\n{now:?} after");
        sleep(Duration::from_millis(200));
    }
}

/// What there is once the engine has taken away what it takes away a moment later: what is like `goal`, or what no
/// longer changes.
fn settle(host: &Host, ids: &BTreeSet<String>, goal: Option<&Inventory>) -> Inventory {
    let end = Instant::now() + Duration::from_secs(20);
    let mut last = Inventory::take(host, ids);
    loop {
        sleep(Duration::from_secs(1));
        let now = Inventory::take(host, ids);
        let is_done = match goal {
            Some(goal) => now == *goal,
            None => now == last,
        };
        if is_done || Instant::now() > end {
            return now;
        }
        last = now;
    }
}
