//! NVIDIA's runtime as the low-level runtime, in each of its modes.

use serde_json::{Value, json};

use super::{ANYBODY, BUILT_IN, Host, MODES, asked_for, count, in_mode, not_asked, paths};
use crate::world::{A100X4, Access, CUDA_ERROR_NO_DEVICE, uuids};

const NVD: &str = "NVIDIA_VISIBLE_DEVICES";

/// What comes of a list under NVIDIA's runtime alone: GPUs, or an error with this in it.
#[track_caller]
fn plain(host: &Host, mode: &str, list: &str, expected: Result<&[usize], &str>) {
    host.toolkit.configure(in_mode(mode));
    let bundle = host.plain(&["gpu-count", "--json"], &[&format!("{NVD}={list}")]);
    match expected {
        Ok(gpus) => {
            let seen = count(&bundle);
            assert_eq!((seen.cuda, seen.nodes), (host.uuids_of(gpus), paths(gpus)), "{mode} {list}");
        }
        Err(text) => {
            let ran = bundle.create().failed_with(1);
            let said = format!("{}{}", ran.stderr, bundle.log());
            assert!(said.contains(text), "{mode} {list}: {said}");
        }
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_nvidia_runtime_gives_what_is_named() {
    let host = Host::new(BUILT_IN, "");
    for mode in MODES {
        plain(&host, mode, "1,3", Ok(&[1, 3]));
        plain(&host, mode, "all", Ok(&[0, 1, 2, 3]));
        plain(&host, mode, &uuids(A100X4)[2], Ok(&[2]));
        plain(&host, mode, "void", Ok(&[]));
        plain(&host, mode, "1,void", Ok(&[]));
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_nvidia_runtime_has_traps() {
    let host = Host::new(BUILT_IN, "");
    // A name that is repeated: no GPU, and not a word.
    plain(&host, "auto", "1,1", Ok(&[]));
    plain(&host, "jit-cdi", "1,3,1", Ok(&[]));
    plain(&host, "cdi", "1,1", Err("unresolvable CDI devices nvidia.com/gpu=none"));
    plain(&host, "legacy", "1,1", Ok(&[1]));
    // Names that CUDA and nvidia-smi take.
    for mode in MODES {
        plain(&host, mode, "GPU-a21", Err(if mode == "legacy" { "unknown device" } else { "GPU-a21" }));
    }
    plain(&host, "auto", "0000:27:00.0", Err("identifier is not a valid UUID or index"));
    plain(&host, "cdi", "0000:27:00.0", Err("unresolvable"));
    plain(&host, "legacy", "0000:27:00.0", Ok(&[2]));
    plain(&host, "auto", "ALL", Err("identifier is not a valid UUID or index"));
    plain(&host, "legacy", "ALL", Ok(&[0, 1, 2, 3]));
    plain(&host, "auto", "none", Ok(&[]));
    plain(&host, "cdi", "none", Err("unresolvable CDI devices nvidia.com/gpu=none"));
    plain(&host, "auto", "9", Err("unknown device: 9"));
}

/// The bug that all of this is about, behind NVIDIA's runtime.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_nvidia_runtime_leaves_host_numbers_in_the_variable() {
    let host = Host::new(BUILT_IN, "");
    for mode in MODES {
        host.toolkit.configure(in_mode(mode));
        let env = |value: &str| [format!("{NVD}=1,3"), format!("CUDA_VISIBLE_DEVICES={value}")];
        let seen = |value: &str| {
            let env = env(value);
            host.count_plain(&env.each_ref().map(String::as_str)).0
        };
        assert_eq!(seen("1,3").cuda, host.uuids_of(&[3]), "{mode}: one GPU of two");
        assert_eq!(seen("3").cuda_error, CUDA_ERROR_NO_DEVICE, "{mode}: none");
        let env = env("1,3");
        let bundle = host.plain(&["sleep", "1000"], &env.each_ref().map(String::as_str));
        bundle.up();
        assert_eq!(bundle.exec_count(&[]).cuda, host.uuids_of(&[3]), "{mode}: in exec too");
    }
}

/// Lists that anybody may write, and what the program then sees.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn nvidia_runtime_is_asked_for_whole_uuids() {
    let host = Host::new(BUILT_IN, ANYBODY);
    for mode in MODES {
        host.toolkit.configure(in_mode(mode));
        let first = [("1,1", &[1][..]), ("3,1,3", &[1, 3]), ("GPU-a21", &[2]), ("0000:27:00.0", &[2])];
        let more = [("all", &[0, 1, 2, 3][..]), (" 2,,", &[2]), ("nvidia.com/gpu=1,nvidia.com/gpu=3", &[1, 3])];
        let more = if mode == "auto" { &more[..] } else { &[] };
        for (list, gpus) in first.iter().chain(more) {
            let (seen, record) = host.count(&[&format!("{NVD}={list}")]);
            let expected = host.uuids_of(gpus);
            assert_eq!((&seen.cuda, &seen.nvml), (&expected, &expected), "{mode} {list}: {seen:?}");
            assert_eq!(seen.nodes, paths(gpus), "{mode} {list}");
            asked_for(&record, &expected);
        }
    }
}

/// What the variables come to, and that the rest is gone, for the first process and for others.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn nvidia_runtime_gives_what_was_reconciled() {
    let host = Host::new(BUILT_IN, "[grant]\nbase = [\"1\", \"3\"]\n");
    for mode in MODES {
        host.toolkit.configure(in_mode(mode));
        for (env, view, kept, value) in [
            (&[][..], &[1, 3][..], &[1, 3][..], "0,1"),
            (&["NVIDIA_VISIBLE_DEVICES=all"], &[1, 3], &[1, 3], "0,1"),
            (&["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=0"], &[1, 3], &[1, 3], "0,1"),
            (&["NVIDIA_VISIBLE_DEVICES=none"], &[1, 3], &[1, 3], "0,1"),
            (&["NVIDIA_VISIBLE_DEVICES=void"], &[1, 3], &[1, 3], "0,1"),
            (&["CUDA_VERSION=10.2"], &[1, 3], &[1, 3], "0,1"),
            (&["CUDA_VISIBLE_DEVICES=1,3"], &[1, 3], &[1, 3], "0,1"),
            (&["CUDA_VISIBLE_DEVICES=3,1", "NVIDIA_VISIBLE_DEVICES=all"], &[3, 1], &[1, 3], "1,0"),
            (&["CUDA_VISIBLE_DEVICES=3", "NVIDIA_VISIBLE_DEVICES=all"], &[3], &[3], "0"),
            (&["CUDA_VISIBLE_DEVICES=-1", "NVIDIA_VISIBLE_DEVICES=all"], &[], &[1, 3], "-1"),
        ] {
            let (seen, record) = host.count(env);
            let context = format!("{mode} {env:?}: {seen:?}");
            assert_eq!(seen.cuda, host.uuids_of(view), "{context}");
            assert_eq!((&seen.nvml, &seen.nodes), (&host.uuids_of(kept), &paths(kept)), "{context}");
            assert_eq!(seen.env["CUDA_VISIBLE_DEVICES"], value, "{context}");
            asked_for(&record, &host.uuids_of(kept));
        }

        let bundle = host.bundle(&["sleep", "1000"], &["CUDA_VISIBLE_DEVICES=3,1", "NVIDIA_VISIBLE_DEVICES=all"]);
        bundle.up();
        asked_for(&host.toolkit.take_record(), &host.uuids_of(&[1, 3]));
        let seen = bundle.exec_count(&[]);
        assert_eq!((&seen.cuda, &seen.nodes), (&host.uuids_of(&[3, 1]), &paths(&[1, 3])), "{mode}");
        assert_eq!(seen.env[NVD], host.uuids_of(&[1, 3]).join(","), "{mode}: and not the image's");
        assert_eq!(bundle.exec_count(&["CUDA_VISIBLE_DEVICES=1"]).cuda, host.uuids_of(&[3]), "{mode}");
        assert_eq!(bundle.exec_count(&["CUDA_VISIBLE_DEVICES=3"]).cuda, host.uuids_of(&[3]), "{mode}");
        bundle.exec(&["true"], &["CUDA_VISIBLE_DEVICES=2"]).failed_with(3);
        assert_eq!(bundle.try_mknod(0), Access::Blocked, "{mode}");
        assert_eq!(bundle.try_mknod(1), Access::Openable, "{mode}");
    }
}

/// `cudaview-runtime` alone says what an image gets; NVIDIA's runtime would give it what it asks for.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn nvidia_runtime_gives_nothing_where_nothing_was_granted() {
    let host = Host::new(BUILT_IN, "");
    for mode in MODES {
        host.toolkit.configure(in_mode(mode));
        for env in [
            &["NVIDIA_VISIBLE_DEVICES=all"][..],
            &["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=all"],
            &["CUDA_VERSION=10.2"],
        ] {
            let (seen, _) = host.count_plain(env);
            assert_eq!(seen.cuda, host.uuids, "{mode} {env:?}: every GPU for an image that asks");
            let (seen, record) = host.count(env);
            assert!(seen.nodes.is_empty() && seen.cuda.is_empty(), "{mode} {env:?}: {seen:?}");
            not_asked(&record);
            assert_eq!(
                (&record[0]["asked"], &record[0]["entries"]),
                (&Value::Null, &json!(["void"])),
                "{mode} {env:?}"
            );
            super::untouched(&record[0]);
        }
        let (_, record) = host.count(&[]);
        assert_eq!((&record[0]["asked"], &record[0]["entries"]), (&Value::Null, &json!([])), "nobody asked");
    }
}

/// Two devices on GPU 0, named by their own UUIDs.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn nvidia_runtime_is_asked_for_mig_devices_by_uuid() {
    const MIG: &str = "a100mig4.json";
    const FIRST: &str = "MIG-0100c0de-0000-5000-8000-000000000010";
    const SECOND: &str = "MIG-0101c0de-0000-5000-8000-000000000011";
    let host = Host::with_gpus(MIG, BUILT_IN, ANYBODY);
    for mode in MODES {
        host.toolkit.configure(in_mode(mode));
        for (list, given) in [
            ("0:1", &[SECOND][..]),
            (SECOND, &[SECOND]),
            ("MIG-GPU-a0400000-0001-4000-8000-000000001111/2/0", &[SECOND]),
            ("0", &[FIRST, SECOND]),
        ] {
            let (seen, record) = host.count(&[&format!("{NVD}={list}")]);
            assert_eq!(seen.nodes, paths(&[0]), "{mode} {list}");
            let given: Vec<String> = given.iter().map(|uuid| (*uuid).to_owned()).collect();
            asked_for(&record, &given);
        }
        let (seen, record) = host.count(&[&format!("{NVD}=0"), &format!("CUDA_VISIBLE_DEVICES={SECOND}")]);
        assert_eq!(seen.cuda, [SECOND], "{mode}");
        asked_for(&record, &[SECOND.to_owned()]);
    }
}

/// Nodes that the engine put into the specification: NVIDIA's runtime has nothing to do, as CDI's `void` says.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn nvidia_runtime_is_not_asked_where_the_engine_has_done_it() {
    let host = Host::new(BUILT_IN, "");
    for mode in MODES {
        host.toolkit.configure(in_mode(mode));
        let bundle = host.bundle(&["gpu-count", "--json"], &["NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=3"]);
        bundle.edit(|spec| crate::world::spec::grant_nodes(spec, &[1, 3]));
        let seen = count(&bundle);
        assert_eq!((seen.cuda, seen.nodes), (host.uuids_of(&[3]), paths(&[3])), "{mode}");
        let record = host.toolkit.take_record();
        assert_eq!((&record[0]["asked"], &record[0]["entries"]), (&Value::Null, &json!(["void"])), "{mode} {record:?}");
        not_asked(&record);
    }
    // Where something still names GPUs, it is just these.
    host.toolkit.configure(BUILT_IN);
    let bundle = host.bundle(&["gpu-count", "--json"], &["NVIDIA_VISIBLE_DEVICES=all", "CUDA_VISIBLE_DEVICES=3"]);
    bundle.edit(|spec| crate::world::spec::grant_nodes(spec, &[1, 3]));
    assert_eq!(count(&bundle).nodes, paths(&[3]));
    assert_eq!(host.toolkit.take_record()[0]["asked"], json!(host.uuids_of(&[3])));
}
