//! Real Docker: its `--gpus` puts NVIDIA's hook into the specification, or NVIDIA's runtime is below cudaview.

use serde_json::{Value, json};

use super::{A100X4, BUILT_IN, Settings, Toolkit, in_mode, paths};
use crate::world::count::Count;
use crate::world::dockerd::IMAGE;
use crate::world::{Access, CUDA_ERROR_NO_DEVICE, Dockerd, Install, cdi, find_program, require, uuids};

const GPUS_1_3: [&str; 2] = ["--gpus", "\"device=1,3\""];
const NVD_ALL: &str = "box-nvd-all";

/// A host with Docker and NVIDIA's toolkit. The runtimes are `host`, which is runc there, `nvidia`, and `cudaview`.
struct Host {
    docker: Dockerd,
    toolkit: Toolkit,
    /// Goes away with the host, and not before.
    _install: Install,
    uuids: Vec<String>,
}

/// What is below cudaview.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    Runc,
    Nvidia,
}

impl Host {
    #[track_caller]
    fn new(below: Below, settings: Settings<'_>) -> Host {
        require(&["dockerd", "docker", "containerd", "runc", "jq", "unshare"]);
        let toolkit = Toolkit::new(A100X4, settings);
        let runtime = match below {
            Below::Runc => find_program("runc"),
            Below::Nvidia => toolkit.runtime(),
        };
        let install = Install::new(A100X4, &format!("low_level_runtime = ['{}']\n", runtime.display()));
        let on_host = |program| toolkit.host(program);
        let (runc, nvidia, cudaview) =
            (on_host(&find_program("runc")), on_host(&toolkit.runtime()), on_host(&install.runtime()));
        let mut daemon = json!({"storage-driver": "overlay2"});
        if knows_cdi() {
            let specs = install.prefix().join("cdi");
            cdi::write_spec(&specs, &install, A100X4);
            daemon["cdi-spec-dirs"] = json!([specs]);
            daemon["features"] = json!({"cdi": true});
        }
        let runtimes = [("host", runc.as_path()), ("nvidia", &nvidia), ("cudaview", &cudaview)];
        // An image's request is refused where the runtime was named, so it is the default.
        let docker = Dockerd::start_with(&runtimes, Some("cudaview"), &daemon);
        toolkit.hook_of(&docker);
        docker.import(A100X4, IMAGE, &[]);
        docker.import(A100X4, NVD_ALL, &["ENV NVIDIA_VISIBLE_DEVICES=all"]);
        Host { docker, toolkit, _install: install, uuids: uuids(A100X4) }
    }

    /// What a program sees, and what was written down meanwhile.
    #[track_caller]
    fn count(&self, flags: &[&str], image: &str) -> (Count, Vec<Value>) {
        let _earlier = self.toolkit.take_record();
        (self.docker.count(flags, image), self.toolkit.take_record())
    }

    #[track_caller]
    fn check(&self, flags: &[&str], image: &str, view: &[usize], kept: &[usize], value: &str) {
        let (seen, record) = self.count(flags, image);
        let context = format!("{image} {flags:?}: {seen:?}\n{record:#?}");
        assert_eq!((&seen.cuda, &seen.nvml), (&self.uuids_of(view), &self.uuids_of(kept)), "{context}");
        assert_eq!((&seen.nodes, seen.env["CUDA_VISIBLE_DEVICES"].as_str()), (&paths(kept), value), "{context}");
        let expected = self.uuids_of(kept);
        let first = record.first().unwrap_or_else(|| panic!("it was not called: {context}"));
        assert_eq!((&first["asked"], &first["entries"]), (&json!(expected), &json!([expected.join(",")])), "{context}");
        let given: Vec<&Value> = record.iter().map(|line| &line["given"]).filter(|given| !given.is_null()).collect();
        // Docker 26 and 28 lose the output of a short container now and then, which is then run again.
        assert!(!given.is_empty() && given.iter().all(|given| **given == json!(expected)), "{context}");
        assert_eq!(found(first), found(&self.untouched()), "cudaview added something: {context}");
    }

    /// What the toolkit finds in a container that Docker gives GPUs to, without cudaview.
    fn untouched(&self) -> Value {
        self.docker.run(&[&["--runtime", "nvidia"], &GPUS_1_3[..]].concat(), IMAGE, &["true"]);
        self.toolkit.take_record().remove(0)
    }

    fn uuids_of(&self, hosts: &[usize]) -> Vec<String> {
        hosts.iter().map(|host| self.uuids[*host].clone()).collect()
    }
}

/// Nodes, and how many rules and mounts.
fn found(line: &Value) -> [Value; 3] {
    ["nodes", "rules", "mounts"].map(|key| line[key].clone())
}

/// Whether Docker takes `--device nvidia.com/gpu=1`.
fn knows_cdi() -> bool {
    Dockerd::program_version() >= 26
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_docker_with_nvidias_hook_shows_the_bug() {
    let host = Host::new(Below::Runc, BUILT_IN);
    let count = |more: &[&str]| host.count(&[&["--runtime", "host"], &GPUS_1_3[..], more].concat(), NVD_ALL);
    let (seen, record) = count(&[]);
    assert_eq!((seen.cuda, seen.nodes), (host.uuids_of(&[1, 3]), paths(&[1, 3])));
    assert_eq!(record[0]["asked"], json!(["1", "3"]), "{record:?}");
    assert_eq!(record[0]["entries"], json!(["all", "1,3"]), "Docker appends to what the image has: {record:?}");
    assert_eq!(count(&["-e", "CUDA_VISIBLE_DEVICES=1,3"]).0.cuda, host.uuids_of(&[3]), "one GPU of two");
    assert_eq!(count(&["-e", "CUDA_VISIBLE_DEVICES=3"]).0.cuda_error, CUDA_ERROR_NO_DEVICE);

    // The hook does its work in the container: what was not given cannot be opened.
    host.docker.up("one", &[&["--runtime", "host"], &GPUS_1_3[..]].concat(), IMAGE);
    assert_eq!(host.docker.try_mknod("one", 0), Access::Blocked);
    assert_eq!(host.docker.try_mknod("one", 1), Access::Openable);

    std::fs::remove_file(host.toolkit.cli()).unwrap();
    let ran = host.docker.run(&[&["--runtime", "host"], &GPUS_1_3[..]].concat(), IMAGE, &["true"]);
    assert_ne!(ran.code, 0, "a hook without its tool cannot work: {ran}");
}

/// The hook gets the UUIDs, and does the work; without its tool we do, and the hook is gone.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_nvidias_hook_gives_what_was_reconciled() {
    let host = Host::new(Below::Runc, BUILT_IN);
    let with = |more: &[&'static str]| [&GPUS_1_3[..], more].concat();
    host.check(&with(&[]), IMAGE, &[1, 3], &[1, 3], "0,1");
    host.check(&with(&["-e", "CUDA_VISIBLE_DEVICES=3,1"]), NVD_ALL, &[3, 1], &[1, 3], "1,0");
    host.check(&with(&["-e", "CUDA_VISIBLE_DEVICES=3"]), NVD_ALL, &[3], &[3], "0");
    host.check(&with(&["-e", "CUDA_VISIBLE_DEVICES=-1"]), NVD_ALL, &[], &[1, 3], "-1");
    host.check(&["--gpus", "device=GPU-a21"], IMAGE, &[2], &[2], "0");
    host.check(&["--gpus", "2", "-e", "NVIDIA_VISIBLE_DEVICES=3"], NVD_ALL, &[0, 1], &[0, 1], "0,1");
    host.check(&["--gpus", "all"], NVD_ALL, &[0, 1, 2, 3], &[0, 1, 2, 3], "0,1,2,3");

    host.docker.up("one", &with(&["-e", "CUDA_VISIBLE_DEVICES=3"]), NVD_ALL);
    let seen = host.docker.exec_count(&[], "one");
    assert_eq!((seen.cuda, seen.nodes), (host.uuids_of(&[3]), paths(&[3])));
    assert_eq!(seen.env["NVIDIA_VISIBLE_DEVICES"], host.uuids[3]);
    assert_eq!(host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=3"], "one").cuda, host.uuids_of(&[3]));
    assert_eq!(host.docker.try_mknod("one", 1), Access::Blocked, "narrowed away");
    assert_eq!(host.docker.try_mknod("one", 3), Access::Openable);

    std::fs::remove_file(host.toolkit.cli()).unwrap();
    let (seen, record) = host.count(&with(&["-e", "CUDA_VISIBLE_DEVICES=3,1"]), NVD_ALL);
    assert_eq!((&seen.cuda, &seen.nodes), (&host.uuids_of(&[3, 1]), &paths(&[1, 3])), "{seen:?}");
    assert_eq!(record, [Value::Null; 0], "nothing of the toolkit's ran");
}

/// Also where an image asks for everything and a user for nothing.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_nvidias_runtime_gives_what_was_reconciled() {
    let host = Host::new(Below::Nvidia, BUILT_IN);
    for mode in ["auto", "legacy"] {
        host.toolkit.configure(in_mode(mode));
        host.check(&GPUS_1_3, IMAGE, &[1, 3], &[1, 3], "0,1");
        host.check(&[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat(), NVD_ALL, &[3, 1], &[1, 3], "1,0");
        host.check(&["-e", "NVIDIA_VISIBLE_DEVICES=1,1"], NVD_ALL, &[1], &[1], "0");

        for (flags, why) in [(&["--gpus", "0"][..], "0 GPUs"), (&[], "nobody asked"), (&["--gpus=0"], "again")] {
            let (plain, _) = host.count(&[&["--runtime", "nvidia"], flags].concat(), NVD_ALL);
            // Docker 28 says `void` for `--gpus 0`, and before that the image gets what it asks for.
            let expected = if flags.is_empty() || host.docker.version() < 28 { 4 } else { 0 };
            assert_eq!(plain.nodes.len(), expected, "{mode} {why}: {plain:?}");
            let (seen, record) = host.count(flags, NVD_ALL);
            assert!(seen.nodes.is_empty() && seen.cuda.is_empty(), "{mode} {why}: {seen:?}");
            let line = record.last().unwrap();
            // Docker 28 appends to what the image has, and the last one counts.
            let last = line["entries"].as_array().unwrap().last();
            assert_eq!((&line["asked"], last), (&Value::Null, Some(&json!("void"))), "{mode} {why}: {record:?}");
        }

        host.docker.up(mode, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat(), NVD_ALL);
        let seen = host.docker.exec_count(&[], mode);
        assert_eq!((seen.cuda, seen.nodes), (host.uuids_of(&[3, 1]), paths(&[1, 3])), "{mode}");
        assert_eq!(seen.env["NVIDIA_VISIBLE_DEVICES"], host.uuids_of(&[1, 3]).join(","), "{mode}");
        assert_eq!(host.docker.try_mknod(mode, 0), Access::Blocked, "{mode}");
    }
}

/// Docker's own CDI, which Docker 20.10 does not have.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_nvidias_runtime_has_nothing_to_do_after_cdi() {
    let host = Host::new(Below::Nvidia, BUILT_IN);
    let flags = ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3", "-e", "CUDA_VISIBLE_DEVICES=3,1"];
    if !knows_cdi() {
        host.docker.run(&flags, IMAGE, &["true"]).failed_with(125);
        return;
    }
    for mode in ["auto", "legacy"] {
        host.toolkit.configure(in_mode(mode));
        for image in [IMAGE, NVD_ALL] {
            let (seen, record) = host.count(&flags, image);
            let context = format!("{mode} {image}: {seen:?} {record:?}");
            assert_eq!((&seen.cuda, &seen.nodes), (&host.uuids_of(&[3, 1]), &paths(&[1, 3])), "{context}");
            assert_eq!(seen.env["NVIDIA_VISIBLE_DEVICES"], "void", "{context}");
            assert!(
                record.iter().all(|line| line["asked"].is_null() && line["entries"] == json!(["void"])),
                "{context}"
            );
        }
    }
}
