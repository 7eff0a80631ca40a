//! The cache, and the program that is asked where it does not hold.

use super::*;

const TWO: [(&str, u32, &str); 2] = [NOT_YET, ("0000:17:00.0", 0, "GPU-a")];
const NOT_YET: (&str, u32, &str) = UNINITIALISED[0];
const BOTH: &str = r#"{"schemaVersion":1,"driverVersion":"550.54.15","source":"nvml","gpus":[
    {"index":0,"minor":1,"uuid":"GPU-b","pciBusId":"00000000:07:00.0"},
    {"index":1,"minor":0,"uuid":"GPU-a","pciBusId":"00000000:17:00.0"}]}"#;

/// A host whose cache holds.
fn cached() -> Host {
    let host = Host::new(&TWO);
    host.helper(&format!("cat <<'END'\n{BOTH}\nEND"));
    assert_eq!(refresh(&host.places()).expect("refreshed").source, "nvml");
    host.helper("exit 1");
    let inventory = host.load().expect("cached");
    assert_eq!((inventory.source.as_str(), inventory.gpus.len()), ("cache", 2));
    host
}

#[track_caller]
fn is_not_used(host: &Host, why: &str) {
    let error = host.load().expect_err(why);
    assert!(matches!(error, LoadError::Helper { .. }), "{why}: {error}");
}

#[test]
fn the_cache_holds_for_the_same_host_only() {
    let after = |change: &dyn Fn(&Host), why: &str| {
        let host = cached();
        change(&host);
        is_not_used(&host, why);
        // A refresh that fails leaves no stale one either.
        assert!(refresh(&host.places()).is_err());
        is_not_used(&host, why);
        host.helper(&format!("cat <<'END'\n{BOTH}\nEND"));
        drop(refresh(&host.places()));
    };
    let information = |address: &str| format!("proc/driver/nvidia/gpus/{address}/information");
    after(&|host| host.remove("proc/driver/nvidia/gpus/0000:17:00.0"), "a GPU was lost");
    after(&|host| host.remove(&information("0000:17:00.0")), "a GPU is being lost");
    after(&|host| host.write(&information("0000:17:00.0"), ""), "nobody knows which GPU this is");
    after(&|host| host.add(("0001:07:00.0", 2, "GPU-c")), "a GPU was added");
    after(&|host| host.add(("0000:17:00.0", 2, "GPU-a")), "a minor changed");
    after(&|host| host.add(("0000:17:00.0", 0, "GPU-c")), "another GPU is in the slot");
    after(
        &|host| {
            host.add(("0000:17:00.0", 1, "GPU-a"));
            host.add(("0000:07:00.0", 0, NOT_YET.2));
        },
        "two minors were exchanged",
    );
    after(
        &|host| host.write("proc/driver/nvidia/version", &VERSION.replace("550.54.15", "570.86.15")),
        "another driver",
    );
    after(&|host| host.remove("proc/driver/nvidia/version"), "nobody knows which driver");
    after(&|host| host.write("proc/sys/kernel/random/boot_id", "another\n"), "another boot");
    after(&|host| host.remove("proc/sys/kernel/random/boot_id"), "nobody knows which boot");
    after(&|host| host.write("proc/driver/nvidia/capabilities/gpu1/mig/gi1/access", ""), "MIG devices were made");
    after(&|host| host.write("dev/nvidia1", ""), "a node was made");
    after(&|host| host.remove("proc/driver/nvidia"), "the driver is gone");
}

#[test]
fn a_cache_that_others_could_have_written_is_not_used() {
    let mode = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
    let host = cached();
    let path = host.places().cache;
    let folder = path.parent().expect("a folder");
    let of = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((of(&path), of(folder)), (0o644, 0o755));
    for (which, wrong, right) in
        [(path.as_path(), 0o666, 0o644), (&path, 0o664, 0o644), (folder, 0o777, 0o755), (folder, 0o775, 0o755)]
    {
        mode(which, wrong);
        is_not_used(&host, &format!("{which:?} has mode {wrong:o}"));
        mode(which, right);
        host.load().expect("cached");
    }
    let elsewhere = host.folder.path().join("elsewhere.json");
    fs::rename(&path, &elsewhere).expect("moved");
    std::os::unix::fs::symlink(&elsewhere, &path).expect("a link");
    is_not_used(&host, "a link");
    // Nor is one written where others can put things in its place.
    host.helper(&format!("cat <<'END'\n{BOTH}\nEND"));
    mode(folder, 0o777);
    assert!(matches!(refresh(&host.places()), Err(LoadError::Cache { .. })));
}

#[test]
fn garbage_in_the_cache_is_not_used() {
    let host = cached();
    let path = host.places().cache;
    let good = fs::read_to_string(&path).expect("a cache");
    let put = |text: &str| fs::write(&path, text).expect("written");
    for length in [0, 1, good.len() / 2, good.len() - 1] {
        put(&good[..length]);
        is_not_used(&host, &format!("cut at {length}"));
    }
    for (from, to) in [
        ("\"schemaVersion\":1", "\"schemaVersion\":2"),
        ("GPU-a", "GPU-\\u0000"),
        ("GPU-a", "GPU-b"),
        ("\"minor\":0", "\"minor\":1"),
        ("\"minor\":0", "\"minor\":7"),
        ("00000000:17:00.0\",\"name\"", "00000000:18:00.0\",\"name\""),
        ("\"bootId\"", "\"more\":1,\"bootId\""),
        ("\"mig\":[]", "\"mig\":[{\"uuid\":\"MIG-1\",\"gi\":1,\"ci\":0}]"),
    ] {
        assert!(good.contains(from), "{from} is not in {good}");
        put(&good.replace(from, to));
        is_not_used(&host, &format!("{from} -> {to}"));
    }
    put(&" ".repeat(usize::try_from(LIMIT).expect("it fits") + 1));
    is_not_used(&host, "too large");
    put(&good);
    host.load().expect("cached");
}

/// What the driver's answer is kept for is what it was asked of: a host that changes meanwhile has no cache.
#[test]
fn a_host_that_changes_while_nvml_is_asked() {
    let host = Host::new(&TWO);
    let gpus = host.folder.path().join("proc/driver/nvidia/gpus");
    let answer = format!("cat <<'END'\n{BOTH}\nEND");
    host.helper(&format!(
        "mv '{0}/0000:17:00.0' '{0}/0000:18:00.0'\nsed -i s/:17:/:18:/ '{0}'/*/information\n{answer}",
        gpus.display()
    ));
    refresh(&host.places()).expect("an answer");
    assert!(!host.places().cache.exists());
    // It names a GPU that procfs does not.
    host.helper(&answer);
    assert!(matches!(refresh(&host.places()), Err(LoadError::Cache { .. })));
    assert!(!host.places().cache.exists());
}

/// Where root asks, NVML is asked once.
#[test]
fn what_nvml_answered_is_kept() {
    let host = Host::new(&TWO);
    let asked = host.folder.path().join("asked");
    // It makes nodes, as NVML does for root.
    let nodes = host.folder.path().join("dev");
    host.helper(&format!(
        "echo x >>'{}'\nmkdir -p '{1}'\ntouch '{1}/nvidia0' '{1}/nvidia1'\ncat <<'END'\n{BOTH}\nEND",
        asked.display(),
        nodes.display()
    ));
    let load = |keeps| load_from(&Config::built_in(), None, &Places { keeps, ..host.places() });
    let source = |keeps| load(keeps).expect("an inventory").source;
    assert_eq!(
        [source(false), source(false), source(true), source(true), source(false)],
        ["nvml", "nvml", "nvml", "cache", "cache"]
    );
    assert_eq!(fs::read_to_string(&asked).expect("it was asked"), "x\nx\nx\n");
    // That it cannot be kept is no reason to refuse the answer.
    host.remove("run/inventory.json");
    host.write("run/inventory.json/in-the-way", "");
    assert_eq!(source(true), "nvml");
}

#[test]
fn the_helper_says_why_and_may_not_hang() {
    let host = Host::new(&UNINITIALISED);
    let message = |host: &Host| {
        let begin = std::time::Instant::now();
        let error = host.load().expect_err("no inventory");
        assert!(begin.elapsed() < std::time::Duration::from_secs(8));
        let text = error.to_string();
        let why = "the driver gives no UUID yet to the GPU at 00000000:07:00.0";
        assert_eq!(text, format!("failed to list the GPUs of this host ({why})"));
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert_eq!(source.lines().count(), 1, "{source}");
        (source, error.hint())
    };
    let check = |script: &str, expected: &str, hint: &str| {
        host.helper(script);
        let (text, found) = message(&host);
        assert_eq!(text, expected, "{script}");
        assert!(found.contains(hint), "{script}: {found}");
    };
    let (text, hint) = message(&host);
    assert!(text.starts_with("failed to start") && hint.contains("install cudaview-nvml"), "{text} {hint}");
    let persistence = "persistence mode";
    check("echo 'cudaview-nvml: failed to load NVML' >&2; exit 5", "cudaview-nvml: failed to load NVML", persistence);
    check("echo hello", "failed to read the answer of cudaview-nvml", persistence);
    check("exec sleep 60", "cudaview-nvml gave no answer within 5 seconds", persistence);
    check("kill -SEGV $$", "cudaview-nvml: signal: 11 (SIGSEGV)", persistence);
    let mismatch = "failed to start NVML: a driver/library version mismatch has occurred";
    check(&format!("echo '{mismatch}' >&2; exit 5"), &format!("cudaview-nvml: {mismatch}"), "restart the host");
}
