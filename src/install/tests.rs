//! Files as people have them: what is added, what is refused, and that nothing else ever changes.

use super::*;
use serde_json::Value;

const PROGRAM: &str = "/usr/bin/cudaview-runtime";

fn wanted(default: bool) -> Wanted<'static> {
    Wanted { program: PROGRAM, default }
}

/// The files of a folder of the test data by their names, each with its text.
macro_rules! files {
    ($folder:literal: $($name:literal)*) => {
        [$(($name, include_str!(concat!("../../tests/data/install/", $folder, "/", $name)))),*]
    };
}

/// The text that a change makes of one.
fn after<'a>(old: &'a str, change: &'a Change) -> &'a str {
    match change {
        Change::None => old,
        Change::Write(new) => new,
        Change::Remove => "",
    }
}

/// What remains of a text when these pieces are taken out, each once and in this order; `None` where one is missing.
fn without_pieces(text: &str, pieces: &[&str]) -> Option<String> {
    let mut out = text.to_owned();
    for piece in pieces {
        let at = out.find(piece)?;
        out.replace_range(at..at + piece.len(), "");
    }
    Some(out)
}

mod docker {
    use super::*;
    use proptest::prelude::*;

    fn good() -> [(&'static str, &'static str); 12] {
        files!("docker": "plain.json" "nvidia-default.json" "tabs-kubeadm.json" "crlf.json" "one-line.json"
            "empty-object.json" "empty.json" "blank.json" "numbers.json" "empty-runtimes.json" "byte-order-mark.json"
            "installed.json")
    }

    /// What is added, in the order of the text.
    #[test]
    fn only_what_is_asked_for_is_added() {
        let runtimes = "\"runtimes\": {\"cudaview\": {\"path\": \"/usr/bin/cudaview-runtime\"}}";
        let runtime = "\"cudaview\": {\"path\": \"/usr/bin/cudaview-runtime\"}";
        let default = "\"default-runtime\": \"cudaview\"";
        let rows: [(&str, String, String); 9] = [
            ("plain.json", format!(",\n  {runtimes}"), format!(",\n  {default}")),
            ("tabs-kubeadm.json", format!(",\n\t\t{runtime}"), format!(",\n\t{default}")),
            ("crlf.json", format!(",\r\n  {runtimes}"), format!(",\r\n  {default}")),
            ("one-line.json", format!(", {runtimes}"), format!(", {default}")),
            ("numbers.json", format!(", {runtimes}"), format!(", {default}")),
            ("byte-order-mark.json", format!(",\n  {runtimes}"), format!(",\n  {default}")),
            ("empty-runtimes.json", runtime.to_owned(), format!(",\n  {default}")),
            ("installed.json", String::new(), format!(",\n  {default}")),
            ("nvidia-default.json", format!(",\n        {runtime}"), String::new()),
        ];
        for (name, added, default) in rows {
            let old = good().into_iter().find(|(found, _)| *found == name).unwrap().1;
            let made = daemon_json::install(Some(old), wanted(false)).unwrap();
            assert_eq!(without_pieces(after(old, &made), &[&added]).as_deref(), Some(old), "{name}: {made:?}");
            let made = daemon_json::install(Some(old), wanted(true)).unwrap();
            let new = after(old, &made)
                .replace("\"default-runtime\": \"cudaview\"\n}\n", "\"default-runtime\": \"nvidia\"\n}\n");
            let (new, default) = match name {
                // A value is replaced where it stands.
                "nvidia-default.json" => (new, String::new()),
                _ => (after(old, &made).to_owned(), default),
            };
            assert_eq!(without_pieces(&new, &[&added, &default]).as_deref(), Some(old), "{name}: {made:?}");
        }
    }

    #[test]
    fn a_file_that_is_missing_or_empty_is_made() {
        let whole = include_str!("../../hooks/docker/daemon.json");
        for text in [None, Some(""), Some("\n\n")] {
            assert_eq!(daemon_json::install(text, wanted(false)), Ok(Change::Write(whole.to_owned())));
        }
        let elsewhere = Wanted { program: "/opt/cudaview/bin/cudaview-runtime", default: true };
        let Ok(Change::Write(new)) = daemon_json::install(None, elsewhere) else { panic!("nothing is made") };
        let value: Value = serde_json::from_str(&new).unwrap();
        assert_eq!(value["runtimes"]["cudaview"]["path"], "/opt/cudaview/bin/cudaview-runtime");
        assert_eq!(value["default-runtime"], "cudaview");
    }

    #[test]
    fn what_was_there_keeps_its_value_and_its_place() {
        for (name, old) in good() {
            for default in [false, true] {
                let made = daemon_json::install(Some(old), wanted(default)).unwrap();
                let strip = |text: &str| -> Value {
                    let text = text.trim_start_matches('\u{feff}');
                    let mut value: Value = serde_json::from_str(text).unwrap_or(serde_json::json!({}));
                    let all = value.as_object_mut().unwrap();
                    if let Some(runtimes) = all.get_mut("runtimes").and_then(Value::as_object_mut) {
                        runtimes.shift_remove("cudaview");
                    }
                    if all.get("runtimes").is_some_and(|runtimes| runtimes == &serde_json::json!({})) {
                        all.shift_remove("runtimes");
                    }
                    all.shift_remove("default-runtime");
                    value
                };
                // As text, where the order of members counts and every digit of a number.
                let new = after(old, &made);
                assert_eq!(strip(new).to_string(), strip(old).to_string(), "{name}");
                assert_eq!(daemon_json::install(Some(new), wanted(default)), Ok(Change::None), "{name}: twice");
            }
        }
    }

    #[test]
    fn uninstall_gives_the_file_back_byte_by_byte() {
        for (name, old) in good().into_iter().filter(|(name, _)| *name != "installed.json") {
            for default in [false, true] {
                let made = daemon_json::install(Some(old), wanted(default)).unwrap();
                let back = daemon_json::uninstall(Some(after(old, &made)), Some(old)).unwrap();
                assert_eq!(back, Change::Write(old.to_owned()), "{name} {default}");
            }
            // One after the other, which is another text.
            let first = daemon_json::install(Some(old), wanted(false)).unwrap();
            let first = after(old, &first).to_owned();
            let second = daemon_json::install(Some(&first), wanted(true)).unwrap();
            let back = daemon_json::uninstall(Some(after(&first, &second)), Some(old)).unwrap();
            let is_blank = old.trim().is_empty();
            assert!(is_blank || back == Change::Write(old.to_owned()), "{name}: {back:?}");
        }
        for default in [false, true] {
            let made = daemon_json::install(None, wanted(default)).unwrap();
            assert_eq!(daemon_json::uninstall(Some(after("", &made)), None), Ok(Change::Remove));
        }
        assert_eq!(daemon_json::uninstall(None, None), Ok(Change::None));
        assert_eq!(daemon_json::uninstall(Some("{\"debug\": true}"), None), Ok(Change::None));
    }

    /// Any JSON: a few keys that mean something to Docker, and any text.
    fn json(depth: u32) -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(depth, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((".{0,6}", inner), 0..5).prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_a_file_says_it_says_afterwards(
            members in prop::collection::vec((".{0,6}", json(3)), 0..6),
            nvidia in any::<bool>(),
            pretty in any::<bool>(),
            default in any::<bool>(),
        ) {
            let mut all: serde_json::Map<String, Value> = members.into_iter().collect();
            if nvidia {
                all.insert("runtimes".to_owned(), serde_json::json!({"nvidia": {"path": "nvidia-container-runtime"}}));
            }
            let value = Value::Object(all);
            let old = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let made = daemon_json::install(Some(&old), wanted(default)).unwrap();
            let new = after(&old, &made).to_owned();
            let back = daemon_json::uninstall(Some(&new), Some(&old)).unwrap();
            prop_assert_eq!(back, Change::Write(old.clone()));
            // Without the copy of before, the same is left but for the spaces.
            let back = daemon_json::uninstall(Some(&format!("{new}\n")), None).unwrap();
            let left = after("{}", &back).to_owned();
            let left: Value = serde_json::from_str(if left.is_empty() { "{}" } else { &left }).unwrap();
            prop_assert_eq!(left.to_string(), value.to_string());
        }
    }

    #[test]
    fn what_was_changed_meanwhile_stays() {
        let old = "{\n  \"runtimes\": {\"nvidia\": {\"path\": \"n\"}},\n  \"default-runtime\": \"nvidia\"\n}\n";
        let made = daemon_json::install(Some(old), wanted(true)).unwrap();
        let edited = after(old, &made).replace("\n}\n", ",\n  \"debug\": true\n}\n");
        let back = daemon_json::uninstall(Some(&edited), Some(old)).unwrap();
        assert_eq!(after("", &back), old.replace("\n}\n", ",\n  \"debug\": true\n}\n"));
        // The default of before is gone from the list: it is not named again, dockerd would not start.
        let edited = after(old, &made).replace("\"nvidia\": {\"path\": \"n\"}, ", "");
        let back = daemon_json::uninstall(Some(&edited), Some(old)).unwrap();
        let value: Value = serde_json::from_str(after("", &back)).unwrap();
        assert_eq!(value, serde_json::json!({"runtimes": {}}), "{edited}");
        // Without a copy nobody knows what it was before.
        let value: Value = serde_json::from_str(after(
            "",
            &daemon_json::uninstall(Some("{\"debug\": 1, \"default-runtime\": \"cudaview\"}"), None).unwrap(),
        ))
        .unwrap();
        assert_eq!(value, serde_json::json!({"debug": 1}));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let files = files!("docker/refused": "trailing-comma.json" "comment.json" "repeated.json" "repeated-deep.json"
            "runtimes-list.json" "runtimes-null.json" "other-program.json" "list.json" "other-case.json"
            "default-number.json");
        let said: Vec<String> = files
            .into_iter()
            .map(|(name, text)| {
                let refusal = daemon_json::install(Some(text), wanted(false)).unwrap_err();
                assert!(!refusal.text.contains('\n') && refusal.text.starts_with(|c: char| !c.is_uppercase()));
                format!("{name}: {refusal}")
            })
            .collect();
        insta::assert_snapshot!(said.join("\n"), @r#"
        trailing-comma.json: it is no JSON: trailing comma at line 3 column 1
        comment.json: it is no JSON: key must be a string at line 2 column 3
        repeated.json: "debug" is there twice in one object
        repeated-deep.json: "tag" is there twice in one object
        runtimes-list.json: "runtimes" is no object
        runtimes-null.json: "runtimes" is no object
        other-program.json: the runtime "cudaview" of this file is another program: "/opt/cudaview"
        list.json: it is no JSON object
        other-case.json: "Runtimes" is in another case than "runtimes"
        default-number.json: "default-runtime" is no string
        "#);
    }
}

mod handlers {
    use super::*;

    fn good() -> [(&'static str, &'static str); 11] {
        files!("containerd": "debian-v2.toml" "nvidia-v2.toml" "no-default-v2.toml" "crlf-v2.toml" "tabs-v2.toml"
            "dotted-v2.toml" "v1.toml" "v3.toml" "empty.toml" "comments-only.toml" "imports-v2.toml")
    }

    /// The version of containerd that reads a file.
    fn daemon(name: &str) -> u32 {
        if name == "v3.toml" { 2 } else { 1 }
    }

    #[test]
    fn tables_are_added_and_nothing_else_changes() {
        for (name, old) in good() {
            let made = containerd::install(Some(old), daemon(name), wanted(false)).unwrap();
            assert!(after(old, &made).starts_with(old), "{name}: {made:?}");
            let with_default = containerd::install(Some(old), daemon(name), wanted(true)).unwrap();
            for (default, made) in [(false, made), (true, with_default)] {
                let new = after(old, &made);
                // Every line is as it was, but for the one that names the default.
                let mut lines = new.lines();
                for line in old.lines().filter(|line| !(default && line.contains("default_runtime_name"))) {
                    assert!(lines.any(|found| found == line), "{name}: {line:?} is lost or moved in {new}");
                }
                let ends = new.matches("\r\n").count();
                assert!(ends == 0 || ends == new.matches('\n').count(), "{name}: {new:?}");
                let table: toml::Table = toml::from_str(new).unwrap();
                let plugin = match name {
                    "v1.toml" => &table["plugins"]["cri"],
                    "v3.toml" => &table["plugins"]["io.containerd.cri.v1.runtime"],
                    _ => &table["plugins"]["io.containerd.grpc.v1.cri"],
                };
                let runtime = &plugin["containerd"]["runtimes"]["cudaview"];
                assert_eq!(runtime["options"]["BinaryName"].as_str(), Some(PROGRAM), "{name}");
                let named = plugin["containerd"].get("default_runtime_name").and_then(toml::Value::as_str);
                assert_eq!(named == Some("cudaview"), default, "{name}: {new}");
                let twice = containerd::install(Some(new), daemon(name), wanted(default));
                assert_eq!(twice, Ok(Change::None), "{name}: twice");
                let back = containerd::uninstall(Some(new), daemon(name), Some(old)).unwrap();
                assert_eq!(back, Change::Write(old.to_owned()), "{name}");
            }
        }
    }

    #[test]
    fn where_there_is_no_file_one_is_made_for_the_version() {
        for (daemon, version) in [(1, 2), (2, 3)] {
            let made = containerd::install(None, daemon, wanted(true)).unwrap();
            let table: toml::Table = toml::from_str(after("", &made)).unwrap();
            assert_eq!(table["version"].as_integer(), Some(version));
            assert_eq!(containerd::uninstall(Some(after("", &made)), daemon, None), Ok(Change::Remove));
        }
    }

    #[test]
    fn what_was_changed_meanwhile_stays() {
        let old = good()[1].1;
        let made = containerd::install(Some(old), 1, wanted(true)).unwrap();
        let edit = |text: &str| text.replace("pause:3.9", "pause:3.10") + "# more\n";
        let back = containerd::uninstall(Some(&edit(after(old, &made))), 1, Some(old)).unwrap();
        assert_eq!(after("", &back), edit(old));
        let changed =
            after(old, &made).replace("BinaryName = \"/usr/bin/c", "SystemdCgroup = true\nBinaryName = \"/usr/bin/c");
        let refusal = containerd::uninstall(Some(&changed), 1, Some(old)).unwrap_err();
        assert!(refusal.text.contains("not as cudaview wrote them"), "{refusal}");
    }

    #[test]
    fn a_file_of_its_own_where_the_main_one_takes_it_in() {
        let main = "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
        assert!(containerd::takes_drop_ins(Some(main)));
        for other in [None, Some("version = 3\n"), Some(good()[10].1)] {
            assert!(!containerd::takes_drop_ins(other), "{other:?}");
        }
        for default in [false, true] {
            let text = containerd::drop_in(main, wanted(default)).unwrap();
            assert_eq!((containerd::is_ours(&text), containerd::is_default(&text)), (true, default));
            assert!(!containerd::is_ours(&format!("{text}\n[debug]\nlevel = \"info\"\n")));
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let files = files!("containerd/refused": "docker-package.toml" "invalid.toml" "repeated.toml" "inline.toml"
            "version-9.toml" "other-program.toml");
        let said: Vec<String> = files
            .into_iter()
            .map(|(name, text)| format!("{name}: {}", containerd::install(Some(text), 1, wanted(false)).unwrap_err()))
            .collect();
        insta::assert_snapshot!(said.join("\n"), @r#"
        docker-package.toml: "disabled_plugins" has Kubernetes's part of containerd in it: nobody would read a runtime here
        invalid.toml: it is no TOML: unclosed table, expected `]`
        repeated.toml: it is no TOML: duplicate key
        inline.toml: this file cannot be changed without a risk to what else is in it
        version-9.toml: version 9 of the file is not one that this containerd and cudaview know
        other-program.toml: the runtime "cudaview" of this file has another BinaryName: ""
        "#);
        for text in [good()[6].1, "root = \"/x\"\n"] {
            let refusal = containerd::install(Some(text), 2, wanted(false)).unwrap_err();
            assert_eq!(refusal.text, "it has no \"version\"");
        }
    }
}

mod parts {
    use super::*;
    use dropin::{Other, Reader, is_default, is_ours, text};

    fn other(text: &'static str, is_later: bool) -> Other<'static> {
        Other { path: "/etc/containers/other.conf", text, is_later }
    }

    #[test]
    fn podmans_lists_keep_what_others_put_into_them() {
        let files = files!("podman": "missing.conf" "fedora.conf" "nvidia.conf" "nocgroup.conf" "crlf.conf" "hooks.conf"
            "network.conf" "default-earlier.conf" "listed.conf" "empty-list.conf");
        for (name, found) in files {
            for default in [false, true] {
                let new = text(Reader::Podman, &[other(found, false)], wanted(default)).unwrap();
                let (new, old): (toml::Table, toml::Table) =
                    (toml::from_str(&new).unwrap(), toml::from_str(found).unwrap());
                let engine = &new["engine"];
                assert_eq!(engine["runtimes"]["cudaview"][0].as_str(), Some(PROGRAM), "{name}");
                assert_eq!(engine.get("runtime").is_some(), default, "{name}");
                for list in ["runtime_supports_json", "runtime_supports_nocgroup"] {
                    let names = engine[list].as_array().unwrap();
                    let before = old.get("engine").and_then(|engine| engine.get(list)).and_then(toml::Value::as_array);
                    assert!(names.contains(&"cudaview".into()), "{name}: {names:?}");
                    assert!(before.into_iter().flatten().all(|one| names.contains(one)), "{name}: {names:?}");
                }
            }
        }
    }

    #[test]
    fn the_files_of_hooks_are_what_is_written() {
        let podman = text(Reader::Podman, &[], wanted(false)).unwrap();
        assert_eq!(podman, include_str!("../../hooks/podman/containers.conf"));
        let crio = text(Reader::Crio, &[], wanted(false)).unwrap();
        assert_eq!(crio, include_str!("../../hooks/crio/50-cudaview.conf"));
        for reader in [Reader::Podman, Reader::Crio] {
            for default in [false, true] {
                let new = text(reader, &[], wanted(default)).unwrap();
                assert_eq!((is_ours(reader, &new), is_default(reader, &new)), (true, default), "{new}");
            }
            assert!(!is_ours(reader, "[engine]\nevents_logger = \"file\"\n"));
        }
    }

    #[test]
    fn what_would_be_outdone_or_is_not_understood_is_refused() {
        let early = files!("podman/refused": "invalid.conf" "repeated.conf" "other-program.conf");
        let late = files!("podman/refused/later": "default.conf" "list.conf");
        let all = early.map(|file| (file, false)).into_iter().chain(late.map(|file| (file, true)));
        let said: Vec<String> = all
            .map(|((name, found), is_later)| {
                let refusal = text(Reader::Podman, &[other(found, is_later)], wanted(true)).unwrap_err();
                format!("{name}: {refusal}")
            })
            .collect();
        insta::assert_snapshot!(said.join("\n"), @r#"
        invalid.conf: /etc/containers/other.conf is no TOML: unclosed table, expected `]`
        repeated.conf: /etc/containers/other.conf is no TOML: duplicate key
        other-program.conf: /etc/containers/other.conf has a runtime "cudaview" already
        default.conf: /etc/containers/other.conf is read after cudaview's file, and names the default runtime
        list.conf: /etc/containers/other.conf is read after cudaview's file, and has runtime_supports_json without "cudaview"
        "#);
    }
}

#[test]
fn observing_is_one_line_of_our_own_configuration() {
    let check = |old: Option<&str>, new: &str| {
        assert_eq!(observe::install(old), Ok(Change::Write(new.to_owned())));
        assert_eq!(observe::install(Some(new)), Ok(Change::None));
    };
    check(None, "mode = \"observe\"\n");
    check(Some("# c\n[limit]\n"), "mode = \"observe\"\n# c\n[limit]\n");
    check(Some("mode   = 'enforce' # yet\r\n"), "mode   = \"observe\" # yet\r\n");
    check(Some("[x]\nmode = 1\n"), "mode = \"observe\"\n[x]\nmode = 1\n");
    let packaged = include_str!("../../packaging/config.toml");
    check(Some(packaged), &format!("mode = \"observe\"\n{packaged}"));
    assert!(observe::install(Some("mode = ")).is_err());
}

#[test]
fn a_path_that_needs_escapes_is_refused() {
    for program in ["relative", "/a\"b", "/a\\b", "/a'b", "/a\nb"] {
        let wanted = Wanted { program, default: false };
        assert!(daemon_json::install(None, wanted).is_err(), "{program:?}");
        assert!(containerd::install(None, 1, wanted).is_err(), "{program:?}");
        assert!(dropin::text(dropin::Reader::Podman, &[], wanted).is_err(), "{program:?}");
    }
}
