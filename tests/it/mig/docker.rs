//! `docker run --gpus`, and `--device` where Docker reads CDI specifications.

use serde_json::json;

use super::{CAPS_MAJOR, FIRST, FIRST_CAPS, MIG, PARENT, SECOND, SECOND_CAPS, check, file, inventory, rows_of};
use crate::world::count::COUNT;
use crate::world::dockerd::IMAGE;
use crate::world::{Access, CUDA_ERROR_NO_DEVICE, Dockerd, Install, cdi, require};

const RUNTIME: [&str; 2] = ["--runtime", "cudaview"];

struct Host {
    docker: Dockerd,
    install: Install,
}

#[track_caller]
fn host(name: &str) -> Host {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let install = Install::new(&file(name), "");
    let docker = Dockerd::start(&[("cudaview", &install.runtime())], None);
    docker.import(&file(name), IMAGE, &[]);
    Host { docker, install }
}

/// Makes a capability node in a running container and opens it.
#[track_caller]
fn try_capability(docker: &Dockerd, container: &str, minor: u32) -> Access {
    let command = Access::command_for(CAPS_MAJOR, minor);
    Access::of(docker.exec(&[], container, &command.each_ref().map(String::as_str)))
}

/// Every row whose flags any Docker takes.
#[track_caller]
fn every_row(name: &str, least: usize) {
    let host = host(name);
    let inventory = inventory(name);
    let mut done = 0;
    for row in rows_of(name) {
        let asked = row.spans("asked", &inventory);
        if asked.iter().any(|flag| flag.starts_with("--device")) {
            continue;
        }
        let mut flags: Vec<String> = RUNTIME.map(str::to_owned).to_vec();
        for flag in &asked {
            let (flag, value) = flag.split_once(' ').unwrap();
            flags.extend([flag.to_owned(), value.trim_matches('\'').to_owned()]);
        }
        for (variable, value) in row.variables("-e", &inventory) {
            flags.extend(["-e".to_owned(), format!("{variable}={value}")]);
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let ran = host.docker.run(&flags, IMAGE, &COUNT);
        if row.cell("verdict") == Some("refused") {
            let ran = ran.failed_with(125);
            assert!(ran.stderr.contains("cudaview"), "line {}: {ran}", row.line);
        } else {
            check(&row, &inventory, &crate::world::count::Count::of(ran));
        }
        let record = host.install.audit_records().pop().expect("an audit record");
        let mut codes: Vec<&str> =
            record["findings"].as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap()).collect();
        codes.sort_unstable();
        codes.dedup();
        let codes = if codes.is_empty() { "–".to_owned() } else { codes.join(", ") };
        assert_eq!(Some(codes.as_str()), row.cell("findings"), "line {}: {record}", row.line);
        assert_eq!(Some(record["verdict"].as_str().unwrap()), row.cell("verdict"), "line {}: {record}", row.line);
        done += 1;
    }
    assert!(done >= least, "{done} rows");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn every_row_in_a_container() {
    every_row(MIG, 35);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn every_row_with_newer_and_older_drivers() {
    every_row("h100mig3", 10);
    every_row("a100old2", 4);
}

/// First what plain Docker makes of it, with the nodes that an operator can name without a toolkit.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn gpus_device_0_1() {
    let host = host(MIG);
    let dev = host.install.dev_root().join("dev");
    let device = |name: &str| format!("--device={}:/dev/{name}", dev.join(name).display());
    let plain = [device("nvidia0"), device("nvidia-caps/nvidia-cap21"), device("nvidia-caps/nvidia-cap22")];
    let plain: Vec<&str> = plain.iter().map(String::as_str).collect();
    let second = format!("CUDA_VISIBLE_DEVICES={SECOND}");
    assert_eq!(host.docker.count(&plain[..1], IMAGE).cuda_error, CUDA_ERROR_NO_DEVICE, "without capability nodes");
    assert_eq!(host.docker.count(&plain, IMAGE).cuda, [SECOND]);
    let wrong = [&plain[..], &["-e", "CUDA_VISIBLE_DEVICES=1"]].concat();
    assert_eq!(host.docker.count(&wrong, IMAGE).cuda_error, CUDA_ERROR_NO_DEVICE, "the host's number");
    // The same nodes under cudaview are that one MIG device.
    let count = host.docker.count(&[&RUNTIME[..], &plain].concat(), IMAGE);
    assert_eq!((count.cuda, count.capabilities), (vec![SECOND.to_owned()], SECOND_CAPS.map(str::to_owned).to_vec()));

    let older = format!("\"device=MIG-{PARENT}/2/0\"");
    let uuid = format!("\"device={SECOND}\"");
    for gpus in ["\"device=0:1\"", "device=0:1", &older, &uuid] {
        let flags = [&RUNTIME[..], &["--gpus", gpus]].concat();
        let count = host.docker.count(&flags, IMAGE);
        assert_eq!(
            (count.cuda.as_slice(), count.nodes.len()),
            ([SECOND.to_owned()].as_slice(), 1),
            "{gpus}: {count:?}"
        );
        assert_eq!(count.capabilities, SECOND_CAPS, "{gpus}: {count:?}");
        assert_eq!(count.env.get("CUDA_VISIBLE_DEVICES"), None, "{gpus}: {count:?}");
        assert_eq!(count.env["NVIDIA_VISIBLE_DEVICES"], SECOND, "{gpus}: {count:?}");
        assert_eq!(count.env["CUDAVIEW_HOST_GPUS"], "0:1", "{gpus}: {count:?}");
    }

    host.docker.up("one", &[&RUNTIME[..], &["--gpus", "device=0", "-e", &second]].concat(), IMAGE);
    for (minor, expected) in
        [(21, Access::Openable), (22, Access::Openable), (12, Access::Blocked), (13, Access::Blocked)]
    {
        assert_eq!(try_capability(&host.docker, "one", minor), expected, "nvidia-cap{minor}");
    }
    assert_eq!(host.docker.exec_count(&[], "one").cuda, [SECOND]);
    assert_eq!(host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=0"], "one").cuda, [SECOND]);
    let ran = host.docker.exec(&["-e", &format!("CUDA_VISIBLE_DEVICES={FIRST}")], "one", &["true"]);
    assert_ne!(ran.code, 0, "narrowed away: {ran}");
    host.docker.up("two", &[&RUNTIME[..], &["--gpus", "device=0"]].concat(), IMAGE);
    for uuid in [FIRST, SECOND] {
        let count = host.docker.exec_count(&["-e", &format!("CUDA_VISIBLE_DEVICES={uuid}")], "two");
        assert_eq!(count.cuda, [uuid], "a process for each");
    }
}

/// Docker makes the nodes of CDI names; from version 25 on.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cdi_names() {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let install = Install::new(&file(MIG), "");
    let folder = install.prefix().join("cdi");
    cdi::write_spec(&folder, &install, &file(MIG));
    if Dockerd::program_version() < 25 {
        let host = host(MIG);
        let flags = [&RUNTIME[..], &["--device", "nvidia.com/gpu=0:1"]].concat();
        let ran = host.docker.run(&flags, IMAGE, &["true"]).failed_with(125);
        assert!(ran.stderr.contains("1 is not an absolute path"), "Docker takes it for a path on the host: {ran}");
        return;
    }
    let settings = json!({"storage-driver": "overlay2", "features": {"cdi": true}, "cdi-spec-dirs": [folder]});
    let docker = Dockerd::start_with(&[("cudaview", &install.runtime())], None, &settings);
    docker.import(&file(MIG), IMAGE, &[]);
    let uuid = format!("nvidia.com/gpu={SECOND}");
    for name in ["nvidia.com/gpu=0:1", &uuid] {
        assert_eq!(
            docker.count(&["--device", name, "-e", "CUDA_VISIBLE_DEVICES=1"], IMAGE).cuda_error,
            CUDA_ERROR_NO_DEVICE
        );
        let count = docker.count(&[&RUNTIME[..], &["--device", name]].concat(), IMAGE);
        assert_eq!(
            (count.cuda.as_slice(), count.capabilities.as_slice()),
            ([SECOND.to_owned()].as_slice(), &SECOND_CAPS.map(str::to_owned)[..])
        );
        let record = install.audit_records().pop().unwrap();
        assert_eq!(record["source"], json!(["cdi"]), "and not the nodes beside it: {record}");
    }
    let value = format!("CUDA_VISIBLE_DEVICES={FIRST}");
    let both = ["--device", "nvidia.com/gpu=0:0", "--device", "nvidia.com/gpu=0:1", "-e", &value];
    assert_eq!(docker.count(&both, IMAGE).capabilities.len(), 4, "without cudaview");
    docker.up("narrow", &[&RUNTIME[..], &both].concat(), IMAGE);
    let count = docker.exec_count(&[], "narrow");
    assert_eq!(
        (count.cuda.as_slice(), count.capabilities.as_slice()),
        ([FIRST.to_owned()].as_slice(), &FIRST_CAPS.map(str::to_owned)[..])
    );
    assert_eq!(try_capability(&docker, "narrow", 21), Access::Blocked);
    assert_eq!(try_capability(&docker, "narrow", 13), Access::Openable);
}

/// `--gpus` on a host with a CDI specification of which Docker knows nothing: its device of the same name is used, unless
/// that is another MIG device by now.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn gpus_with_the_hosts_specification() {
    let host = host(MIG);
    let folder = host.install.prefix().join("cdi");
    cdi::write_spec(&folder, &host.install, &file(MIG));
    let config = std::fs::read_to_string(host.install.config()).unwrap();
    host.install.configure(&format!("cdi_spec_dirs = [{:?}]\n{config}", folder.to_str().unwrap()));
    let flags = [&RUNTIME[..], &["--gpus", "device=0:1"]].concat();
    let count = host.docker.count(&flags, IMAGE);
    assert_eq!((count.cuda.as_slice(), count.nodes.len()), ([SECOND.to_owned()].as_slice(), 1), "{count:?}");
    assert_eq!(count.capabilities, SECOND_CAPS);

    // The GPU was divided anew, and the file is from before.
    let spec = folder.join("nvidia.json");
    let text = std::fs::read_to_string(&spec).unwrap();
    let swapped = text.replace("\"0:0\"", "\"-\"").replace("\"0:1\"", "\"0:0\"").replace("\"-\"", "\"0:1\"");
    assert_ne!(swapped, text);
    std::fs::write(&spec, swapped).unwrap();
    let ran = host.docker.run(&flags, IMAGE, &["true"]).failed_with(125);
    assert!(ran.stderr.contains("\"0:1\" is MIG device 0:1 here, and it would give MIG device 0:0 too"), "{ran}");
}
