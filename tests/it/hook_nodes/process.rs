//! The hook by itself: its arguments, its state, its streams.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::bundle::texts;
use super::{GPU1, HOOK};

/// Starts the hook by hand, with arguments that would do for a container.
fn hook(arguments: &[&str]) -> Child {
    let mut command = Command::new(HOOK);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn hook_with_state(state: &str) -> (Option<i32>, String) {
    let mut child = hook(&["createRuntime", "--root=/nonexistent", "--node", GPU1]);
    child.stdin.take().unwrap().write_all(state.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (out, err) = texts(&output);
    assert_eq!(out, "");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.starts_with("cudaview-hook: "), "{err}");
    (output.status.code(), err)
}

/// T31.
#[test]
fn a_state_without_a_usable_process_is_refused() {
    let state = |pid: &str| format!("{{\"id\":\"c\",\"bundle\":\"/\",\"pid\":{pid},\"annotations\":{{}}}}");
    for pid in ["0", "1"] {
        let (code, error) = hook_with_state(&state(pid));
        assert!(code == Some(4) && error.contains("wrong stage"), "{code:?} {error}");
    }
    for pid in ["-1", "2147483648", "4294967303", "99999999999999999999", "\"7\"", "null"] {
        let (code, error) = hook_with_state(&state(pid));
        assert_eq!(code, Some(4), "{pid}: {error}");
    }
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (code, error) = hook_with_state(&state(&ended.id().to_string()));
    assert!(code == Some(1) && error.contains("ESRCH"), "{code:?} {error}");
    // A process of the host, such as this test: whatever would be done there would be done to the host.
    let (code, error) = hook_with_state(&state(&std::process::id().to_string()));
    assert!(code == Some(4) && error.contains("no mount namespace of its own"), "{code:?} {error}");
}

/// T29, R36.
#[test]
fn a_state_is_read_to_its_end_and_no_further_than_its_limit() {
    let padding = "x".repeat(200_000);
    let (code, error) = hook_with_state(&format!("{{\"annotations\":{{\"a\":{padding:?}}},\"id\":\"c\",\"pid\":1}}"));
    assert!(code == Some(4) && error.contains("wrong stage"), "{code:?} {error}");
    for bad in ["", "{", "[]", "{}", "\u{feff}{\"id\":\"c\",\"pid\":7}"] {
        assert_eq!(hook_with_state(bad).0, Some(4), "{bad:?}");
    }
    let mut child = hook(&["createRuntime", "--root=/nonexistent", "--node", GPU1]);
    let mut stdin = child.stdin.take().unwrap();
    let block = vec![b' '; 1 << 20];
    // Twice what it takes. It gives up on the way, so that the last writes may fail.
    let mut blocks = std::iter::repeat_n(&block, 8);
    let _given_up = blocks.try_for_each(|block| stdin.write_all(block));
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(texts(&output).1.contains("longer than"));
}

/// T30, R36.
#[test]
fn a_state_that_never_ends_ends_the_hook_in_time() {
    let start = Instant::now();
    let mut child = hook(&["createRuntime", "--root=/nonexistent", "--node", GPU1]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"id\":\"c\",\"pid\":7}").unwrap();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    assert_eq!(output.status.code(), Some(4));
    assert!(texts(&output).1.contains("not closed in time"));
    assert!(start.elapsed() < Duration::from_secs(9), "took {:?}", start.elapsed());
}

/// T38.
#[test]
fn arguments_and_closed_streams() {
    let code = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, HOOK]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.status().unwrap().code()
    };
    for usage in
        ["", "bogus", "createContainer", "createRuntime --bogus", "createRuntime --root=x", "--node=/dev/a=1:2"]
    {
        assert_eq!(code(&format!("exec \"$0\" {usage}")), Some(2), "{usage:?}");
    }
    assert_eq!(code("exec \"$0\" createRuntime"), Some(4));
    assert_eq!(code("exec \"$0\" createRuntime <&-"), Some(4));
    assert_eq!(code("exec \"$0\" bogus 2>&- >&-"), Some(2));
    assert_eq!(code("exec \"$0\" bogus 2>/dev/full"), Some(2));
    assert_eq!(code("exec \"$0\" --help >/dev/full"), Some(0));
    assert_eq!(code("(sleep 0.2; \"$0\" bogus; echo $? >&2) 2>&1 >/dev/null | grep -qx 2"), Some(0));
    assert_eq!(code("{ sleep 0.2; \"$0\" --help; test $? = 0 || exit 9; } | true"), Some(0));
    let version = Command::new(HOOK).arg("--version").output().unwrap();
    assert_eq!(texts(&version), (concat!("cudaview-hook ", env!("CARGO_PKG_VERSION"), "\n").to_owned(), String::new()));
}
