//! T4 in one process: while nodes are made, verified and found, somebody exchanges what stands on their way.
//!
//! Nine cases, after those of libpathrs. Each runs at least [`ROUNDS`] times, and on until the two met; a hook that
//! resolves a path and then uses it runs against the same attackers, and must be caught.
#![allow(clippy::disallowed_macros, reason = "how many rounds, and what came of them, belongs into the log")]

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with, statat, symlink, unlinkat};
use rustix::process::umask;

use super::*;

const ROUNDS: u64 = 20_000;
/// A busy machine lets the two meet rarely; then it takes more rounds, up to this time.
const PATIENCE: Duration = Duration::from_secs(40);
const NUMBER: DeviceNumber = DeviceNumber { major: 195, minor: 1 };
/// What stands on the way of every node: `/dev/caps`.
const WAY: &str = "caps";

/// A case: what is made in the folder, and which two names in it are exchanged.
struct Case {
    name: &'static str,
    /// Where the link `root/dev/x` (or `root/x`) points to, if there is one.
    link: Option<(&'static str, &'static str)>,
    exchange: (&'static str, &'static str),
    /// Folders in which nothing may appear; a node that would pass for ours lies in each.
    watched: &'static [&'static str],
    /// Folders that are the container's own: what is made there is taken away after each round.
    own: &'static [&'static str],
    /// Whether `/dev` is opened for each node, and not once.
    reopened: bool,
    /// Whether some lookups have to fail.
    refuses: bool,
}

const IN_DEV: Case = Case {
    name: "",
    link: None,
    exchange: ("root/dev/caps", "root/dev/x"),
    watched: &["outside", "root/other", "root/other/caps"],
    own: &["root/dev/caps"],
    reopened: false,
    refuses: true,
};

/// A process in a mount namespace of its own, for a hook looks into nothing else.
struct Process(Child);

impl Process {
    fn start() -> (Self, Target) {
        let mut unshare = Command::new("unshare");
        let child = unshare.args(["--mount", "sleep", "600"]).stdin(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            match Target::open(child.id()) {
                Ok(target) => return (Self(child), target),
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// What came of the rounds.
#[derive(Default)]
struct Tally {
    rounds: u64,
    made: u64,
    refused: BTreeMap<String, u64>,
    escaped: u64,
    exchanges: u64,
    took: Duration,
}

impl Tally {
    fn print(&self, who: &str, case: &Case) {
        eprintln!(
            "T4 {who}, {}: {} rounds, {} made, refused {:?}, {} exchanges, {:.1} s, {} ESCAPES",
            case.name,
            self.rounds,
            self.made,
            self.refused,
            self.exchanges,
            self.took.as_secs_f64(),
            self.escaped
        );
    }

    fn met(&self, case: &Case) -> bool {
        self.made >= 20 && (!case.refuses || self.refused.values().sum::<u64>() >= 20) && self.exchanges >= 1000
    }
}

fn make_ground(folder: &Path, case: &Case) {
    for name in ["root", "root/dev", "root/dev/caps", "root/other", "root/other/caps", "outside", "decoy", "decoy/dev"]
    {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    for name in ["decoy/dev/caps", "outside/caps", "root/dev/other"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    std::fs::write(folder.join("root/dev/file"), "").unwrap();
    if let Some((at, to)) = case.link {
        symlink(to.replace("FOLDER", &folder.display().to_string()), folder.join(at)).unwrap();
    }
    for watched in case.watched {
        // Whoever is led there would find a node that looks right.
        let bait = folder.join(watched).join("bait");
        mknodat(CWD, &bait, FileType::CharacterDevice, Mode::RUSR, makedev(NUMBER.major, NUMBER.minor)).unwrap();
    }
}

fn handle_of(path: &Path) -> OwnedFd {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// Runs `one`, which makes a node of a name in `/dev/caps` or says why not, until the attacker was met or it escaped.
/// What `prepare` gives is from before the attack.
fn rounds<P>(
    case: &Case,
    until_escape: bool,
    prepare: impl FnOnce(&Path) -> P,
    one: impl Fn(&Path, &P, &str) -> Result<Outcome, String>,
) -> Tally {
    let ground = tempfile::tempdir().unwrap();
    let folder = ground.path();
    make_ground(folder, case);
    let handles = |names: &[&str]| names.iter().map(|name| handle_of(&folder.join(name))).collect::<Vec<_>>();
    let (watched, own, at) = (handles(case.watched), handles(case.own), handle_of(folder));
    let prepared = prepare(folder);
    let (done, exchanges) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut tally = Tally::default();
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if renameat_with(&at, case.exchange.0, &at, case.exchange.1, RenameFlags::EXCHANGE).is_ok() {
                    exchanges.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        // No assertion in here: the other thread would run for ever.
        while start.elapsed() < PATIENCE {
            tally.rounds += 1;
            match one(folder, &prepared, "made") {
                Ok(_) => tally.made += 1,
                Err(reason) => *tally.refused.entry(reason).or_default() += 1,
            }
            // In the container's own folders none was left by the round before.
            if one(folder, &prepared, "bait") == Ok(Outcome::Verified) {
                tally.escaped += 1;
            }
            for folder in &watched {
                let is_there = |name: &str| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
                if unlinkat(folder, "made", AtFlags::empty()).is_ok() || is_there("new") {
                    tally.escaped += 1;
                }
            }
            for (folder, name) in own.iter().flat_map(|folder| [(folder, "made"), (folder, "bait")]) {
                let _absent = unlinkat(folder, name, AtFlags::empty());
            }
            tally.exchanges = exchanges.load(Ordering::Relaxed);
            let enough = tally.escaped > 0 || (!until_escape && tally.met(case));
            if enough && (until_escape || tally.rounds >= ROUNDS) {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    tally.took = start.elapsed();
    tally
}

/// The hook's own steps.
#[track_caller]
fn withstands(case: &Case) {
    let (_process, target) = Process::start();
    // As the hook does: a node that got another mode than planned is refused.
    umask(Mode::empty());
    let open = |folder: &Path| -> Result<Dev<'_>, RootfsError> {
        let mut dev = Dev::open(&folder.join("root"), &target)?;
        // Which mount a real `/dev` is on is the matter of other tests.
        dev.reason_not_to_create = OnceCell::from(None);
        Ok(dev)
    };
    let ensure = |dev: &Dev<'_>, name: &str| {
        dev.ensure(&DeviceNode { path: format!("/dev/{WAY}/{name}"), number: NUMBER }, None)
    };
    let tally = rounds(case, false, open, |folder, opened, name| {
        let outcome = match opened {
            Ok(dev) if !case.reopened => ensure(dev, name),
            _ => open(folder).and_then(|dev| ensure(&dev, name)),
        };
        outcome.map_err(|error| match error {
            RootfsError::NoFolder(_) => "a link or no folder".to_owned(),
            RootfsError::System { source, .. } => source.to_string(),
            other => other.to_string(),
        })
    });
    tally.print("cudaview", case);
    assert_eq!(tally.escaped, 0, "{}: outside the root, or through a link", case.name);
    assert!(tally.rounds >= ROUNDS && tally.met(case), "{}: the two did not meet", case.name);
}

/// The same attacker catches a hook that resolves the path, looks at the result, and then uses the path.
#[track_caller]
fn catches_the_naive(case: &Case) {
    let tally = rounds(
        case,
        true,
        |_| (),
        |folder, (), name| {
            let root = folder.join("root");
            let way = root.join("dev").join(WAY);
            let resolved = std::fs::canonicalize(&way).map_err(|error| error.kind().to_string())?;
            if !resolved.starts_with(&root) {
                return Err("outside".to_owned());
            }
            let device = makedev(NUMBER.major, NUMBER.minor);
            match mknodat(CWD, way.join(name), FileType::CharacterDevice, Mode::RUSR, device) {
                Ok(()) => Ok(Outcome::Created),
                Err(Errno::EXIST) => Ok(Outcome::Verified),
                Err(errno) => Err(errno.to_string()),
            }
        },
    );
    tally.print("a naive hook", case);
    assert!(tally.escaped > 0, "{}: this test would not see an escape", case.name);
}

const RELATIVE: Case = Case { name: "relative link out", link: Some(("root/dev/x", "../../outside")), ..IN_DEV };
const ABSOLUTE: Case = Case { name: "absolute link out", link: Some(("root/dev/x", "FOLDER/outside")), ..IN_DEV };
const ROOT_MOVES: Case = Case {
    name: "the root moves",
    exchange: ("root", "decoy"),
    watched: &["decoy", "decoy/dev", "decoy/dev/caps"],
    refuses: false,
    ..IN_DEV
};

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_folder_and_a_link() {
    let watched = &["outside", "root/other", "root/dev/other"];
    withstands(&Case { name: "folder and link", link: Some(("root/dev/x", "other")), watched, ..IN_DEV });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn dev_itself_and_a_link() {
    let exchange = ("root/dev", "root/x");
    let case = Case { name: "/dev and link", link: Some(("root/x", "other")), exchange, reopened: true, ..IN_DEV };
    withstands(&case);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_folder_and_a_file() {
    withstands(&Case { name: "folder and file", exchange: ("root/dev/caps", "root/dev/file"), ..IN_DEV });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_folder_and_a_link_to_nothing() {
    let watched = &["outside", "root/dev", "root/other"];
    withstands(&Case { name: "bad link, ENOENT", link: Some(("root/dev/x", "new")), watched, ..IN_DEV });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_folder_and_a_link_below_a_file() {
    withstands(&Case { name: "bad link, ENOTDIR", link: Some(("root/dev/x", "file/new")), ..IN_DEV });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_folder_and_a_relative_link_out_of_the_root() {
    withstands(&RELATIVE);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_folder_and_an_absolute_link_out_of_the_root() {
    withstands(&ABSOLUTE);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn the_root_moves() {
    withstands(&ROOT_MOVES);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_folder_moves_out_of_the_root() {
    let exchange = ("root/dev/caps", "outside/caps");
    let own = &["root/dev/caps", "outside/caps"];
    withstands(&Case { name: "a folder moves out", exchange, own, refuses: false, ..IN_DEV });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_naive_hook_is_caught() {
    for case in [RELATIVE, ABSOLUTE, ROOT_MOVES] {
        catches_the_naive(&case);
    }
}
