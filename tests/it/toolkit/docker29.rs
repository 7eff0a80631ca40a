//! What Docker from 29.2 on makes of `--gpus` where it finds NVIDIA's CDI hook: the GPUs are in the specification already.
//!
//! There is no such Docker here. The specification was made by hand, as CDI edits what Docker writes.

use serde_json::{Value, json};

use super::{A100X4, BUILT_IN, Host, MODES, count, in_mode, not_asked, paths};
use crate::world::count::COUNT;
use crate::world::{Bundle, Install, find_program, spec};

/// The edits of `nvidia.com/gpu=1` and `=3`, in NVIDIA's words: `void`, nodes with rules, the driver's files, hooks.
fn edit(spec: &mut Value) {
    spec::grant_nodes(spec, &[1, 3]);
    let env = ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"];
    spec["process"]["env"].as_array_mut().unwrap().extend(env.map(Value::from));
    let file = json!({"destination": "/usr/bin/nvidia-smi", "source": "/bin/true", "type": "bind",
                      "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]});
    spec::push(&mut spec["mounts"], file);
    spec::add_hook(spec, "createContainer", hook());
}

fn hook() -> Value {
    json!({"path": "/bin/true", "args": ["nvidia-cdi-hook", "update-ldcache"], "env": ["NVIDIA_CTK_DEBUG=false"]})
}

#[track_caller]
fn check(host: &Host, bundle: &Bundle, context: &str) {
    bundle.edit(edit);
    let rules = |spec: &Value| spec["linux"]["resources"]["devices"].as_array().unwrap().len();
    let before = rules(&bundle.spec());
    let seen = count(bundle);
    assert_eq!((seen.cuda, seen.nodes), (host.uuids_of(&[3]), paths(&[3])), "{context}");
    assert_eq!((seen.env["CUDA_VISIBLE_DEVICES"].as_str(), seen.env["NVIDIA_VISIBLE_DEVICES"].as_str()), ("0", "void"));
    let after = bundle.spec();
    assert_eq!(after["mounts"].as_array().unwrap().len(), 6, "{context}");
    assert_eq!(after["hooks"]["createContainer"], json!([hook()]), "{context}");
    assert_eq!(rules(&after), before - 1, "{context}: only the rule of what is withheld went");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn what_docker_29_has_injected_is_only_narrowed() {
    let host = Host::new(BUILT_IN, "");
    let env = ["NVIDIA_VISIBLE_DEVICES=all", "CUDA_VISIBLE_DEVICES=3"];
    let plain = Bundle::new(A100X4, &COUNT, &env);
    plain.edit(edit);
    assert!(count(&plain).cuda.is_empty(), "host number 3 is no number in there");

    for mode in MODES {
        host.toolkit.configure(in_mode(mode));
        check(&host, &host.bundle(&COUNT, &env), mode);
        let record = host.toolkit.take_record();
        not_asked(&record);
        assert_eq!(record[0]["entries"], json!(["void"]), "{mode}: {record:?}");
    }

    let install = Install::new(A100X4, &format!("low_level_runtime = ['{}']\n", find_program("runc").display()));
    check(&host, &Bundle::with_runtime(&host.toolkit.host(&install.runtime()), A100X4, &COUNT, &env), "runc");
    assert_eq!(host.toolkit.take_record(), [Value::Null; 0], "nothing of the toolkit's ran");
}
