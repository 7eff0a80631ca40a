//! One regression test for each public weakness of this field, named after it.
//!
//! Where what was attacked does not exist here (libraries out of an image, ldconfig), the test shows from outside that
//! an image which has the bait is not read: the recorded system calls of the hook name nothing of it.

mod others;
mod runtimes;
mod toolkit;

use crate::world::Stage;
use crate::world::stage::Hooked;

const GPU1: &str = "/dev/nvidia1=195:1";
const CAP2: &str = "/dev/nvidia-caps/nvidia-cap2=236:2";

/// Runs the hook in an image with a bait, which must not keep it from its work.
#[track_caller]
fn past_a_bait(script: &str) -> (Stage, Hooked) {
    let stage = Stage::new(script);
    let hooked = stage.traced(&[GPU1, CAP2]);
    assert_eq!(hooked.ran.code, 0, "{}", hooked.ran);
    let made = stage.inside("cd $R/dev; find . -type c | sort | xargs stat -c '%n %t:%T'");
    assert_eq!(made, "./nvidia-caps/nvidia-cap2 ec:2\n./nvidia1 c3:1\n");
    stage.nothing_outside();
    (stage, hooked)
}

/// Fails the test if a recorded call names any of these words.
#[track_caller]
fn names_none(hooked: &Hooked, words: &[&str]) {
    // What is read was opened before the join: the lists of mounts, which name everything that there is.
    let inside: Vec<&str> = hooked.calls_inside().lines().filter(|line| !line.contains(" read(")).collect();
    for word in words {
        assert!(!inside.iter().any(|line| line.contains(word)), "{word:?}: {inside:#?}");
    }
    // Nothing is opened but as a handle, nothing listed, nothing read or started.
    for line in inside {
        let is_open = line.contains("openat2(") || line.contains("open(") || line.contains("openat(");
        assert!(!is_open || line.contains("O_PATH"), "{line}");
        for call in ["getdents", "execve", "readlink", "symlink", "clone", "fork", "connect(", "memfd"] {
            assert!(!line.contains(call), "{line}");
        }
    }
}
