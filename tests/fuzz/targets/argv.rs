//! The low-level runtime's command line, one word a line: what runc would start is what the wrapper looks at.
#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use cudaview::argv::{Command, option, parse};
use cudaview_fuzz::runc::{Started, started};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let words: Vec<OsString> =
        data.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec())).collect();
    let read = parse(&words);
    assert!(read.id.as_ref().is_none_or(|id| words.contains(id)), "the id is one of the words");

    let Some(words) = words.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<Vec<String>>>() else {
        return;
    };
    match started(&words) {
        Some(Started::Create { id, bundle }) => {
            let Command::Create { bundle: ours, config } = read.command else {
                panic!("runc starts a container, and we read {read:?}")
            };
            assert_eq!(ours.unwrap_or_default().to_str(), Some(&*bundle));
            assert_eq!(config, None, "runc has no such option");
            assert_eq!(read.id, Some(id.into()));
        }
        Some(Started::Exec { id, process }) => {
            let Command::Exec { process: ours } = read.command else {
                panic!("runc adds a process, and we read {read:?}")
            };
            assert_eq!(ours.unwrap_or_default().to_str(), Some(&*process));
            assert_eq!(read.id, Some(id.into()));
        }
        // `update` is read too, and is nothing that starts.
        Some(Started::Other) => assert!(matches!(read.command, Command::Other | Command::Update { .. })),
        None => {}
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = option(&words, "--gpus");
    assert!(found.is_none_or(|value| words.iter().any(|word| word.ends_with(value))));
});
