//! Sizes that an image or an engine can reach. The times are generous: a debug build on a busy machine must hold them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::count::{COUNT, Count};
use crate::world::{A100X4, Bundle, Install, require, spec, uuids};

/// The kernel's limit for one argument (`MAX_ARG_STRLEN`).
const MAX_ARGUMENT: usize = 128 << 10;

#[track_caller]
fn handled(name: &str, spec: &Value) -> Value {
    let sandbox = Sandbox::new("");
    sandbox.write_spec(spec);
    let begin = Instant::now();
    sandbox.create().ok();
    assert!(begin.elapsed() < Duration::from_secs(10), "{name}: {:?}", begin.elapsed());
    let spec = sandbox.spec();
    let args = spec["hooks"]["createRuntime"][0]["args"].as_array().unwrap();
    assert!(args.iter().all(|arg| arg.as_str().unwrap().len() < MAX_ARGUMENT), "{name}");
    spec
}

#[test]
fn large_configurations_take_no_time() {
    let many = |count: usize, item: &dyn Fn(usize) -> Value| (0..count).map(item).collect::<Vec<Value>>();
    let mut env = gpu_spec(&[]);
    env["process"]["env"] = many(20_000, &|n| format!("VARIABLE_{n}={}", "x".repeat(50)).into()).into();
    assert_eq!(handled("env", &env)["process"]["env"].as_array().unwrap().len(), 20_003);

    let mut repeated = gpu_spec(&[]);
    repeated["process"]["env"] = many(20_000, &|n| format!("CUDA_VISIBLE_DEVICES={n}").into()).into();
    let repeated = handled("repeats", &repeated);
    let is_ours = |entry: &&Value| entry.as_str().unwrap().starts_with("CUDA_VISIBLE_DEVICES=");
    assert_eq!(repeated["process"]["env"].as_array().unwrap().iter().filter(is_ours).count(), 1);

    let mut devices = gpu_spec(&[]);
    for minor in 0..10_000 {
        spec::add_device(&mut devices, &format!("/dev/d{minor}"), 240, minor);
    }
    handled("devices", &devices);

    let mut mounts = gpu_spec(&[]);
    let mount = |n| json!({"destination": format!("/dev/m{n}"), "source": "/dev/null", "options": ["rbind"]});
    mounts["mounts"] = many(5_000, &mount).into();
    handled("mounts", &mounts);

    let mut annotations = gpu_spec(&[]);
    annotations["annotations"] =
        (0..20_000).map(|n| (format!("Path{n}"), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    handled("annotations", &annotations);
}

#[test]
fn long_values_take_no_time() {
    let list = |entry: &str, count: usize| vec![entry; count].join(",");
    for value in [
        list("0", 60_000),
        list("7", 60_000),
        list("GPU-", 30_000),
        list("MIG-x", 20_000),
        "9".repeat(130_000),
        ",".repeat(130_000),
        "\"".repeat(130_000),
        " ".repeat(130_000),
        "-1,".repeat(40_000),
    ] {
        for name in ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDAVIEW_HOST_GPUS"] {
            handled(&format!("{name}={value:.20}"), &gpu_spec(&[&format!("{name}={value}")]));
        }
    }
}

/// A message to the journal has some 200 KiB (`SO_SNDBUF`); an image must not get out of the audit by being loud.
#[test]
fn an_audit_record_stays_short() {
    let long = |start: &str| format!("{start}{}", "9,".repeat(60_000));
    let all =
        ["CUDA_VISIBLE_DEVICES=1,", "NVIDIA_VISIBLE_DEVICES=", "CUDA_DEVICE_ORDER=", "CUDAVIEW_HOST_GPUS="].map(long);
    let all = all.each_ref().map(String::as_str);
    let mut plain = gpu_spec(&all);
    plain["linux"]["devices"] = json!([]);
    for (config, spec, code) in [
        ("", gpu_spec(&all), 0),
        ("[grant]\nunknown_request = \"user\"\n", plain.clone(), 3),
        ("[grant]\nimage_request = \"honour\"\nunknown_request = \"image\"\n", plain, 3),
    ] {
        let sandbox = Sandbox::new(config);
        sandbox.write_spec(&spec);
        let ran = sandbox.create().failed_with(code);
        let record = std::fs::read_to_string(sandbox.path("audit.jsonl")).unwrap();
        assert!(record.lines().count() == 1 && record.len() < 64 << 10, "{}", record.len());
        assert!(ran.stderr.len() < 4 << 10, "{}", ran.stderr.len());
    }
}

/// The record of what the variables were travels in a hook's argument: too long, and no container of this image starts.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn an_image_with_long_values_starts() {
    require(&["runc"]);
    let install = Install::new(A100X4, "");
    let long = |start: &str| format!("{start}{}", "\t".repeat(100_000));
    let hidden = long("CUDA_VISIBLE_DEVICES=-1");
    let env = [hidden.as_str(), &long("CUDAVIEW_HOST_GPUS="), &long("NVIDIA_VISIBLE_DEVICES=all")];
    let bundle = |args: &[&str], env: &[&str]| {
        let bundle = Bundle::with_runtime(&install.runtime(), A100X4, args, env);
        bundle.edit(|spec| spec::grant_nodes(spec, &[1, 3]));
        bundle
    };
    assert_eq!(bundle(&COUNT, &env).count().cuda, [""; 0], "hidden on purpose");
    let shown = bundle(&COUNT, &[&long("CUDA_VISIBLE_DEVICES=3"), env[1]]).count();
    assert_eq!((shown.cuda, shown.env["CUDA_VISIBLE_DEVICES"].as_str()), (uuids(A100X4)[3..].to_vec(), "0"));

    let up = bundle(&["sleep", "1000"], &env);
    up.up();
    let inherited: Count = up.exec_count(&[]);
    assert_eq!((inherited.cuda_error, inherited.env["CUDA_VISIBLE_DEVICES"].as_str()), (100, &hidden[21..]));
    assert_eq!(up.exec_count(&["CUDA_VISIBLE_DEVICES=3"]).cuda, uuids(A100X4)[3..], "given to exec");
}
