//! What a person at a terminal sees, in four variants: 80 and 120 columns, without colours and with them.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The colours, as they stand in the snapshots.
const COLOURS: [(&str, &str); 7] = [
    ("\u{1b}[0m", "</>"),
    ("\u{1b}[1m", "<bold>"),
    ("\u{1b}[2m", "<dim>"),
    ("\u{1b}[31m", "<red>"),
    ("\u{1b}[32m", "<green>"),
    ("\u{1b}[33m", "<yellow>"),
    ("\u{1b}[36m", "<cyan>"),
];

/// What a command shows on terminals, and on each how it ends; in a pipe it must say the same without colours.
///
/// `make` makes it anew each time, and `clean` takes out what differs from run to run.
#[track_caller]
pub(super) fn screens(typed: &str, make: impl Fn() -> Command, clean: impl Fn(&str) -> String) -> String {
    let mut codes = Vec::new();
    let variants = variants(|columns, colour| {
        let mut command = make();
        if !colour {
            command.env("NO_COLOR", "1");
        }
        let (code, seen) = on_terminal(command, columns);
        codes.push(code);
        if !colour {
            let (code, piped) = in_pipe(make(), columns);
            assert_eq!((code, clean(&piped)), (codes[0], clean(&seen)), "in a pipe");
        }
        clean(&seen)
    });
    assert_eq!(codes, vec![codes[0]; codes.len()], "{typed}");
    format!("$ {typed}\nexit {}\n{variants}", codes[0])
}

/// The four variants of a report, which must differ in nothing but what they are to differ in.
#[track_caller]
pub(super) fn variants(mut show: impl FnMut(u16, bool) -> String) -> String {
    let mut out = String::new();
    for columns in [80, 120] {
        let (plain, coloured) = (show(columns, false), readable(&show(columns, true)));
        assert!(!plain.contains('\u{1b}'), "colours where none are wanted: {plain:?}");
        for line in plain.lines() {
            assert!(line.chars().count() <= columns.into(), "more than {columns} columns: {line}");
        }
        let stripped = COLOURS.iter().fold(coloured.clone(), |text, (_, name)| text.replace(name, ""));
        assert_eq!(stripped, plain, "something is told by colour alone");
        write!(out, "\n===== {columns} columns =====\n{plain}").unwrap();
        write!(out, "\n===== {columns} columns, in colour =====\n{coloured}").unwrap();
    }
    out
}

/// Colours by their names.
#[track_caller]
fn readable(text: &str) -> String {
    let text = COLOURS.iter().fold(text.to_owned(), |text, (code, name)| text.replace(code, name));
    assert!(!text.contains('\u{1b}'), "a colour without a name: {text:?}");
    text
}

/// Exit code, and everything that reaches a terminal of so many columns.
#[track_caller]
fn on_terminal(mut command: Command, columns: u16) -> (i32, String) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs: OwnedFd =
        rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    tcsetwinsize(&theirs, Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    command.stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    // It holds descriptors of the terminal, which ends with the last of them.
    drop(command);
    let mut seen = Vec::new();
    let ended = File::from(ours).read_to_end(&mut seen);
    assert_eq!(ended.unwrap_err().raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    let code = child.wait().unwrap().code().unwrap();
    // A terminal ends its lines so.
    (code, String::from_utf8(seen).unwrap().replace("\r\n", "\n"))
}

/// The same of a pipe, for which only the environment can say how wide it is.
#[track_caller]
fn in_pipe(mut command: Command, columns: u16) -> (i32, String) {
    let (mut ours, theirs) = std::io::pipe().unwrap();
    command.env("COLUMNS", columns.to_string()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut seen = String::new();
    ours.read_to_string(&mut seen).unwrap();
    (child.wait().unwrap().code().unwrap(), seen)
}
