//! What NVIDIA's toolkit would go by instead of the variable that it is handed: mounts, annotations, a swarm's variables;
//! and a toolkit that does not go by the variable at all.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::{A100X4, ANYBODY, BUILT_IN, Host, MODES, Settings, asked_for, count, in_mode, paths};
use crate::world::count::COUNT;
use crate::world::{Bundle, Install, spec};

const GRANT: &str = "[grant]\nbase = [\"1\", \"3\"]\n";
const FOLDER: &str = "/var/run/nvidia-container-devices";

/// Mounts as a device plugin's, one for each name.
fn mount(bundle: &Bundle, names: &[&str]) {
    bundle.edit(|spec| {
        for name in names {
            let mount = json!({"destination": format!("{FOLDER}{name}"), "source": "/dev/null", "type": "bind",
                               "options": ["bind", "ro"]});
            spec::push(&mut spec["mounts"], mount);
        }
    });
}

/// Fails the test unless NVIDIA's toolkit was called and not asked for anything, in a container without such mounts.
#[track_caller]
fn not_asked(record: &[Value]) {
    super::not_asked(record);
    assert!(record.iter().all(|line| line["mounts"] == 5), "{record:?}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn mounts_that_ask_for_gpus_do_not_win() {
    for mode in ["auto", "legacy"] {
        let host = Host::new(Settings { mounts: true, ..in_mode(mode) }, "");
        let env = ["CUDA_VISIBLE_DEVICES=3", "NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices"];
        let bundle = host.plain(&COUNT, &env);
        mount(&bundle, &["/1", "/3"]);
        assert_eq!(count(&bundle).nodes, paths(&[1, 3]), "{mode}: they are what it goes by");
        host.toolkit.take_record();

        // They are the request, and what is handed on is what came of it.
        let bundle = host.bundle(&COUNT, &env);
        mount(&bundle, &["/1", "/3"]);
        let seen = count(&bundle);
        assert_eq!((seen.cuda, seen.nodes), (host.uuids_of(&[3]), paths(&[3])), "{mode}");
        asked_for(&host.toolkit.take_record(), &host.uuids_of(&[3]));
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn mounts_that_policy_does_not_take_give_nothing() {
    let host = Host::new(Settings { mounts: true, ..BUILT_IN }, "[grant]\nvolume_mounts = false\n");
    // A prefix is all that it looks at.
    for name in ["/all", "X/all", "/cdi/nvidia.com/gpu/all"] {
        let bundle = host.plain(&COUNT, &[]);
        mount(&bundle, &[name]);
        if name == "X/all" {
            bundle.create().failed_with(1);
        } else {
            assert_eq!(count(&bundle).nodes, paths(&[0, 1, 2, 3]), "{name}");
        }
        host.toolkit.take_record();
        let bundle = host.bundle(&COUNT, &["NVIDIA_VISIBLE_DEVICES=all"]);
        mount(&bundle, &[name]);
        assert!(count(&bundle).nodes.is_empty(), "{name}");
        not_asked(&host.toolkit.take_record());
    }
}

/// It takes paths as Go's `filepath.Clean` leaves them: whoever may name a mount's place has many names for it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn mounts_written_in_other_ways_do_not_win() {
    let config = format!("{GRANT}volume_mounts = false\n");
    for mode in ["auto", "legacy"] {
        let host = Host::new(Settings { mounts: true, ..in_mode(mode) }, &config);
        for (source, destination) in [
            ("/dev/null", "/var/run/./nvidia-container-devices/all"),
            ("/dev/null", "//var/run//nvidia-container-devices/all"),
            ("/dev/null", "/var/run/../run/nvidia-container-devices/all"),
            ("/dev/null", "/../var/run/nvidia-container-devices/all"),
            ("/dev/null", "/var/run/nvidia-container-devices/imex/../all"),
            ("/dev/null", "/var/run/nvidia-container-devices/./imex/../../nvidia-container-devices/all/"),
            ("/dev/../dev/null", "/var/run/nvidia-container-devices/all"),
            ("/dev/pts/.././null", "/var/run/nvidia-container-devices/all"),
        ] {
            let mount = |bundle: &Bundle| {
                let mount =
                    json!({"destination": destination, "source": source, "type": "bind", "options": ["bind", "ro"]});
                bundle.edit(|spec| spec::push(&mut spec["mounts"], mount));
            };
            let bundle = host.plain(&COUNT, &[]);
            mount(&bundle);
            assert_eq!(count(&bundle).nodes.len(), 4, "{mode} {source} {destination}: it is what it goes by");
            host.toolkit.take_record();
            let bundle = host.bundle(&COUNT, &[]);
            mount(&bundle);
            assert_eq!(count(&bundle).nodes, paths(&[1, 3]), "{mode} {source} {destination}");
            asked_for(&host.toolkit.take_record(), &host.uuids_of(&[1, 3]));
        }
    }
}

/// A device plugin may write CDI names into them, and channels of another kind stay.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn mounts_may_hold_cdi_names_and_channels() {
    let host = Host::new(Settings { mounts: true, ..BUILT_IN }, "");
    let bundle = host.bundle(&COUNT, &[]);
    mount(&bundle, &["/cdi/nvidia.com/gpu/1", "/cdi/nvidia.com/gpu=3", "/imex/0"]);
    assert_eq!(count(&bundle).cuda, host.uuids_of(&[1, 3]));
    let record = host.toolkit.take_record();
    assert_eq!((&record[0]["asked"], &record[0]["mounts"]), (&json!(host.uuids_of(&[1, 3])), &json!(6)), "{record:?}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn annotations_of_a_configured_prefix_do_not_win() {
    let prefixes = ["cdi.k8s.io/", "gpus.example.com/"];
    let host = Host::new(Settings { prefixes: &prefixes, ..in_mode("auto") }, "");
    for prefix in prefixes {
        let annotate = |bundle: &Bundle| {
            bundle.edit(|spec| {
                spec["annotations"] =
                    json!({format!("{prefix}x"): "nvidia.com/gpu=all", "other": "nvidia.com/gpu=all"});
            });
        };
        let bundle = host.plain(&COUNT, &[]);
        annotate(&bundle);
        assert_eq!(count(&bundle).cuda, host.uuids, "{prefix}");
        host.toolkit.take_record();

        let bundle = host.bundle(&COUNT, &[]);
        annotate(&bundle);
        assert!(count(&bundle).nodes.is_empty(), "{prefix}");
        not_asked(&host.toolkit.take_record());
        assert_eq!(bundle.spec()["annotations"], json!({"other": "nvidia.com/gpu=all"}));
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_swarms_variables_do_not_win() {
    let swarm = ["DOCKER_RESOURCE_GPU", "DOCKER_RESOURCE_MORE"];
    let settings = Settings { swarm: &swarm, ..BUILT_IN };
    let host = Host::new(settings, GRANT);
    let env =
        ["DOCKER_RESOURCE_GPU=0", "DOCKER_RESOURCE_MORE=2", "NVIDIA_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES=3,1"];
    let (seen, _) = host.count_plain(&env);
    assert_eq!(seen.nodes, paths(&[0, 2]), "they are what it goes by");
    let (seen, record) = host.count(&env);
    assert_eq!((seen.cuda, seen.nodes), (host.uuids_of(&[3, 1]), paths(&[1, 3])));
    asked_for(&record, &host.uuids_of(&[1, 3]));
    // Nothing else in the configuration is a sign of a GPU.
    let nothing = Host::new(settings, "");
    assert_eq!(nothing.count_plain(&["DOCKER_RESOURCE_GPU=all"]).0.nodes.len(), 4);
    let (seen, record) = nothing.count(&["DOCKER_RESOURCE_GPU=all"]);
    assert!(seen.nodes.is_empty(), "{seen:?}");
    not_asked(&record);
    // They are a request as the variable is one.
    let request = Host::new(settings, ANYBODY);
    let (seen, record) =
        request.count(&["DOCKER_RESOURCE_GPU=1", "DOCKER_RESOURCE_MORE=3", "NVIDIA_VISIBLE_DEVICES=all"]);
    assert_eq!(seen.cuda, request.uuids_of(&[1, 3]));
    asked_for(&record, &request.uuids_of(&[1, 3]));
}

/// It gives channels, other devices and rights over MIG for variables, which an image may have too.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn more_than_gpus_is_not_for_an_image_to_ask() {
    let switches = [
        "NVIDIA_GDS=enabled",
        "NVIDIA_GDRCOPY=enabled",
        "NVIDIA_MOFED=enabled",
        "NVIDIA_NVSWITCH=enabled",
        "NVIDIA_IMEX_CHANNELS=0",
        "NVIDIA_IMEX_CHANNELS=none",
        "NVIDIA_MIG_CONFIG_DEVICES=all",
        "NVIDIA_MIG_MONITOR_DEVICES=all",
    ];
    let host = Host::new(BUILT_IN, GRANT);
    for mode in MODES {
        host.toolkit.configure(in_mode(mode));
        assert_eq!(host.count_plain(&switches).1[0]["switches"], json!(switches), "{mode}: they reach it");
        let (seen, record) = host.count(&switches);
        assert_eq!(seen.nodes, paths(&[1, 3]), "{mode}");
        asked_for(&record, &host.uuids_of(&[1, 3]));
        assert!(record.iter().all(|line| line["switches"].as_array().is_none_or(Vec::is_empty)), "{mode}: {record:#?}");
    }
    // Policies that take such a word for an operator's.
    for policy in ["unknown_request = \"user\"\n", "image_request = \"honour\"\n"] {
        let host = Host::new(BUILT_IN, &format!("{GRANT}{policy}"));
        assert_eq!(host.count(&switches).1[0]["switches"], json!(switches), "{policy}");
    }
}

/// As Kubernetes' operators are told to set it up: the variable counts for privileged containers only.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_toolkit_that_does_not_take_the_variable_gets_mounts() {
    for mode in ["auto", "legacy"] {
        let settings = Settings { mounts: true, unprivileged: false, ..in_mode(mode) };
        let host = Host::new(settings, GRANT);
        let (seen, record) = host.count_plain(&["NVIDIA_VISIBLE_DEVICES=1,3"]);
        assert!(seen.nodes.is_empty() && record[0]["asked"].is_null(), "{mode}: {seen:?}");
        let (seen, record) = host.count(&["NVIDIA_VISIBLE_DEVICES=all", "CUDA_VISIBLE_DEVICES=3,1"]);
        assert_eq!((&seen.cuda, &seen.nodes), (&host.uuids_of(&[3, 1]), &paths(&[1, 3])), "{mode}: {seen:?}");
        assert_eq!(record[0]["asked"], json!(host.uuids_of(&[1, 3])), "{mode}: {record:?}");
        assert_eq!((&record[0]["mounts"], &record[0]["nodes"]), (&json!(7), &json!([])), "{mode}: {record:?}");

        // One that takes neither cannot be asked, and we do it.
        host.toolkit.configure(Settings { mounts: false, ..settings });
        let (seen, record) = host.count(&["NVIDIA_VISIBLE_DEVICES=all", "CUDA_VISIBLE_DEVICES=3,1"]);
        assert_eq!((&seen.cuda, &seen.nodes), (&host.uuids_of(&[3, 1]), &paths(&[1, 3])), "{mode}: {seen:?}");
        assert_eq!(record[0]["asked"], Value::Null, "{mode}: {record:?}");
    }
}

/// Nor is it left alone with what it cannot be told.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_toolkit_that_cannot_be_told_anything_stops_the_container() {
    let settings = Settings { unprivileged: false, ..BUILT_IN };
    let host = Host::new(settings, &format!("inject = \"nvidia\"\n{GRANT}"));
    let ran = host.bundle(&COUNT, &[]).create().failed_with(6);
    assert!(ran.stderr.contains("neither from its variables nor from its mounts"), "{ran}");
    assert_eq!(host.toolkit.take_record(), [Value::Null; 0]);
}

/// `none` asks for driver files without a GPU. In its mode `cdi` NVIDIA's runtime looks for a device of that name.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_word_that_stops_the_container_is_not_handed_on() {
    let host = Host::new(in_mode("cdi"), "");
    host.plain(&COUNT, &["NVIDIA_VISIBLE_DEVICES=none"]).create().failed_with(1);
    host.toolkit.take_record();
    let (seen, record) = host.count(&["NVIDIA_VISIBLE_DEVICES=none"]);
    assert!(seen.nodes.is_empty(), "{seen:?}");
    not_asked(&record);
}

/// A runtime of another name that ends in NVIDIA's: only the operator knows.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_runtime_of_another_name_is_nvidias_where_the_configuration_says_so() {
    let host = Host::new(BUILT_IN, "");
    let runtime = host.toolkit.runtime().with_file_name("site-runtime");
    symlink(host.toolkit.runtime(), &runtime).unwrap();
    let seen = |config: &str| {
        let config = format!("low_level_runtime = ['{}']\n{config}", runtime.display());
        let install = Install::new(A100X4, &config);
        let wrapper = host.toolkit.host(&install.runtime());
        let bundle = Bundle::with_runtime(&wrapper, A100X4, &COUNT, &["NVIDIA_VISIBLE_DEVICES=all"]);
        (count(&bundle).nodes, host.toolkit.take_record().remove(0)["asked"].clone())
    };
    assert_eq!(seen(""), (paths(&[0, 1, 2, 3]), json!(["all"])), "it is not known");
    assert_eq!(seen("inject = \"nvidia\"\n"), (paths(&[]), Value::Null));
    let granted = format!("inject = \"nvidia\"\n{GRANT}");
    assert_eq!(seen(&granted), (paths(&[1, 3]), json!(host.uuids_of(&[1, 3]))));
}
