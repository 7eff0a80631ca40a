//! The OCI state on a hook's standard input, beside a plain reading of it; and the record in a hook's arguments.
#![no_main]

use cudaview::record::Record;
use cudaview::sys::state::parse;
use cudaview_fuzz::tree::{self, Tree};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // In members that are not looked at, texts may be no UTF-8; and a list of the values in their order is a state too.
    if let (Ok(state), Some(tree)) = (parse(data), tree::read(String::from_utf8_lossy(data).as_bytes()))
        && matches!(tree, Tree::Object(_))
    {
        let text = |name: &str| tree.get(name).and_then(Tree::text);
        let read: Vec<&String> = tree.members().iter().map(|(name, _)| name).collect();
        for name in ["id", "pid", "bundle", "root"] {
            assert!(read.iter().filter(|there| **there == name).count() <= 1, "{name} is there twice");
        }
        assert_eq!(text("id"), Some(&*state.id));
        assert_eq!(text("bundle").unwrap_or_default(), state.bundle);
        assert_eq!(text("root"), state.root.as_deref());
        assert_eq!(tree.get("pid"), Some(&Tree::Number(state.pid.to_string())));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(record) = Record::parse(text) {
        let again = serde_json::to_string(&record).expect("plain data");
        assert_eq!(Record::parse(&again).as_ref(), Some(&record), "a record survives its own text");
        let part = record.inventory();
        let all = part.all_devices();
        for uuids in [record.kept(), record.openable()] {
            assert!(cudaview::record::devices(&part, uuids).iter().all(|device| all.contains(device)));
        }
    }
});
