//! How podman is told of a runtime or a hook, and what depends on it.

use std::fs;

use super::{BOTH, Expected, GPUS_1_3, Host, PLAIN, PRECREATE, Setup, WRAPPER};
use crate::world::Access;
use crate::world::command::{Ran, run};
use crate::world::count::{COUNT, Count};
use crate::world::podman::IMAGE;

/// `podman run` with options of podman's own before it, and none of a cgroup's.
#[track_caller]
fn ran(host: &Host, first: &[&str], flags: &[&str], args: &[&str]) -> Ran {
    host.podman.podman(&[first, &["run", "--rm"], &GPUS_1_3, flags, &[IMAGE], args].concat())
}

/// podman knows what a runtime can do by its name in containers.conf; of a path it knows nothing.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_a_runtime_by_its_path() {
    let host = Host::new(PLAIN, "low_level_runtime = [\"crun\"]");
    let runtime = host.install.runtime();
    let by_path = ["--runtime", runtime.to_str().unwrap()];
    let parent = ["--cgroup-parent", &crate::world::cgroup()].map(str::to_owned);
    let parent = parent.each_ref().map(String::as_str);
    let with = |value: &'static str| [&parent[..], &["-e", value]].concat();

    let count = Count::of(ran(&host, &by_path, &with("CUDA_VISIBLE_DEVICES=3"), &COUNT));
    host.compare(&count, &Expected { view: &[3], nodes: &[3], value: "0" }, "by its path");
    // Without --log the refusal is read from standard error.
    let refused = ran(&host, &by_path, &with("CUDA_VISIBLE_DEVICES=5"), &["true"]).failed_with(126);
    assert!(refused.stderr.contains("cudaview: refused, CUDA_VISIBLE_DEVICES=\"5\" names none"), "{refused}");
    let no_cgroup = ran(&host, &by_path, &["--cgroups=disabled"], &["true"]).failed_with(125);
    assert!(no_cgroup.stderr.contains("is not compatible with NoCgroups"), "{no_cgroup}");

    // The shipped containers.conf says that the one called cudaview can.
    let by_name = ["--runtime", "cudaview"];
    let count = Count::of(ran(&host, &by_name, &["--cgroups=disabled", "-e", "CUDA_VISIBLE_DEVICES=3"], &COUNT));
    host.compare(&count, &Expected { view: &[3], nodes: &[3], value: "0" }, "without cgroups");
}

/// runc keeps annotations and its own notes as one list of labels, of which `bundle` is one.
#[track_caller]
fn a_false_bundle(config: &str) {
    let host = Host::new(WRAPPER, config);
    let flags = [&GPUS_1_3[..], &["--annotation", "bundle=/evil", "--cap-add", "MKNOD"]].concat();
    host.podman.up("one", &[&flags[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat(), IMAGE);
    let change = if host.podman.version() < (5, 0) { ["--cpu-shares", "512"] } else { ["--restart", "no"] };
    host.podman.podman(&[&["update"], &change[..], &["one"]].concat()).ok();
    let count = host.podman.exec_count(&[], "one");
    host.compare(&count, &Expected { view: &[3, 1], nodes: &[1, 3], value: "1,0" }, "exec");
    assert_eq!([0, 1].map(|minor| host.podman.try_mknod("one", minor)), [Access::Blocked, Access::Openable]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_an_annotation_does_not_say_where_the_bundle_is() {
    a_false_bundle("");
    a_false_bundle("low_level_runtime = [\"crun\"]");
}

/// A limit: podman takes no notice of a hook whose program is missing. The wrapper cannot be missed like that.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_skips_a_hook_whose_program_is_missing() {
    let host = Host::new(Setup { create_runtime: Some(&[]), ..PRECREATE }, "");
    fs::remove_file(host.install.bin("cudaview-hook")).unwrap();
    let flags = [&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat();
    let count = host.podman.count(&flags, IMAGE);
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[3]), "1,3"));
    let host = Host::new(WRAPPER, "");
    fs::remove_file(host.install.runtime()).unwrap();
    let ran = host.podman.run(&flags, IMAGE, &["true"]);
    assert_ne!(ran.code, 0, "{ran}");
}

/// A `RUN` of the counting program, and what `podman build` wrote.
#[track_caller]
fn build(host: &Host, runtime: &str) -> Ran {
    let folder = host.podman.path().join("build");
    fs::create_dir_all(&folder).unwrap();
    let text = format!("FROM {IMAGE}\nENV CUDA_VISIBLE_DEVICES=3\nRUN gpu-count --json\n");
    fs::write(folder.join("Containerfile"), text).unwrap();
    let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--network", "none"];
    // By their nodes, which every version takes in a build. A build's cgroup is the parent itself, so it is no other's.
    let devices = ["--device", "/dev/nvidia1", "--device", "/dev/nvidia3"];
    let first = ["--runtime", runtime, "build", "--isolation", "oci", "--no-cache", "--cgroup-parent"];
    let parent = format!("{}/{}", crate::world::cgroup(), host.podman.path().file_name().unwrap().display());
    host.podman.podman(&[&first[..], &[&parent], &limits, &devices, &[folder.to_str().unwrap()]].concat())
}

/// The report among what a build wrote.
#[track_caller]
fn report_of(ran: Ran) -> Count {
    let ran = ran.ok();
    let line = ran.stdout.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no report: {ran}"));
    Count::of(Ran::new("podman build", 0, line))
}

/// A build's `RUN` is a container too.
#[track_caller]
fn builds(runtime: &str) {
    let host = Host::new(BOTH, &format!("low_level_runtime = [\"{runtime}\"]"));
    let count = report_of(build(&host, runtime));
    assert_eq!((count.cuda, count.nodes.len()), (Vec::new(), 2), "the fault");
    let count = report_of(build(&host, "cudaview"));
    host.compare(&count, &Expected { view: &[3], nodes: &[3], value: "0" }, "a build");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_build_on_crun() {
    builds("crun");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_build_on_runc() {
    builds("runc");
}

/// A precreate file in a folder of hooks that others read too stops every build; the shipped one has its own.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_build_beside_precreate() {
    let host = Host::new(PRECREATE, "");
    build(&host, "crun").ok();
    // A copy of the distribution's folder, for this test's podman alone.
    let script = "cp -a /usr/share/containers \"$1/shared\" && mkdir -p \"$1/shared/oci/hooks.d\" &&
        cp \"$1/hooks/50-cudaview.json\" \"$1/shared/oci/hooks.d\" && mount --bind \"$1/shared\" /usr/share/containers";
    run(host.podman.command("sh").args(["-ec", script, "sh"]).arg(host.podman.path())).ok();
    let ran = build(&host, "crun");
    assert_ne!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains("unknown stage \"precreate\""), "{ran}");
}
