//! What an image can do to a hook (CVE-2025-23266, "NVIDIAScape"), and the hook entry that the wrapper writes.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::release::release;
use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::artifacts::preloaded;
use crate::world::command::run;
use crate::world::{A100X4, Bundle, Install, find_program, require, spec, uuids};

/// T2, R3: a stage at which the runtime's environment is its own, an absolute path, and an environment that no re-encoder
/// takes for none. There is no time limit, and why is in docs/adr/0009-no-time-limit-in-the-hook-entry.md.
#[test]
fn our_hook_entry_is_safe_in_every_bundle() {
    for env in [&["CUDA_VISIBLE_DEVICES=3"][..], &[], &["LD_PRELOAD=./evil.so", "PATH=."]] {
        let sandbox = Sandbox::new("");
        sandbox.write_spec(&gpu_spec(env));
        sandbox.create().ok();
        let hooks = sandbox.spec()["hooks"].clone();
        let stages: Vec<&String> = hooks.as_object().unwrap().keys().collect();
        assert_eq!(stages, ["createRuntime"], "R3: no other stage");
        let [hook] = &hooks["createRuntime"].as_array().unwrap()[..] else { panic!("{hooks}") };
        assert_eq!(hook["path"], json!(sandbox.path("prefix/bin/cudaview-hook")), "R3: our own, by absolute path");
        assert_eq!(
            hook["env"],
            json!(["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]),
            "R3, R8: not empty, nothing of the image's"
        );
        let args: Vec<&str> = hook["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
        assert_eq!(args[..2], ["cudaview-hook", "createRuntime"]);
        // R9: what it is to do stands in its arguments.
        assert!(args.iter().any(|arg| arg.starts_with("--root=/")), "{args:?}");
        assert!(args.contains(&"--node=/dev/nvidia3=195:3"), "{args:?}");
        assert!(!args.contains(&"--node=/dev/nvidia0=195:0"), "{args:?}");
        assert_eq!(hook.get("timeout"), None, "ADR 9");
    }
}

/// An image whose library writes down, on the host, each process that loads it.
struct Evil {
    bundle: Bundle,
    marker: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl Evil {
    fn new(runtime: &Path) -> Evil {
        let folder = tempfile::tempdir().unwrap();
        let marker = folder.path().join("marker");
        fs::write(&marker, "").unwrap();
        let variable = format!("EVIL_MARKER={}", marker.display());
        let env = ["LD_PRELOAD=./evil.so", "CUDA_VISIBLE_DEVICES=3", &variable];
        let bundle = Bundle::with_runtime(runtime, A100X4, &["gpu-count", "--json"], &env);
        fs::copy(preloaded(), bundle.rootfs().join("evil.so")).unwrap();
        bundle.edit(|config| spec::grant_nodes(config, &[1, 3]));
        Evil { bundle, marker, _folder: folder }
    }

    fn hook(&self, stage: &str, program: &Path, args: &[&str], env: Option<Value>) {
        self.bundle.edit(|config| {
            let mut hook = json!({"path": program, "args": args});
            if let Some(env) = env {
                hook["env"] = env;
            }
            spec::add_hook(config, stage, hook);
        });
    }

    /// Programs of the host that loaded the image's library, while the container was made and ran.
    fn ran(&self) -> Vec<String> {
        fs::read_to_string(&self.marker).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Whether this runc gives a hook without variables of its own those of the container: all of 1.1 do.
fn hands_on_the_containers_variables() -> bool {
    let ran = run(Command::new(find_program("runc")).arg("--version")).ok();
    ran.stdout.starts_with("runc version 1.1.")
}

/// T1, the fault under the plain runtime: the image's library runs as root on the host.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_runc_runs_the_images_library_in_a_hook_without_variables() {
    require(&["runc"]);
    let cat = find_program("cat");
    for (stage, env, faulty) in [
        ("createContainer", None, hands_on_the_containers_variables()),
        ("createContainer", Some(json!(["PATH=/bin"])), false),
        ("createRuntime", None, false),
    ] {
        let evil = Evil::new(&find_program("runc"));
        evil.hook(stage, &cat, &["cat"], env.clone());
        evil.bundle.run().ok();
        assert_eq!(!evil.ran().is_empty(), faulty, "{stage} {env:?}: {:?}", evil.ran());
    }
}

/// T1: with our entry it does not, the container sees its GPU, and as a hook of the wrong stage, without variables, ours
/// loads nothing and says what is wrong.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn an_images_library_is_in_no_hook_of_ours() {
    require(&["runc"]);
    let install = Install::new(A100X4, "");
    let evil = Evil::new(&install.runtime());
    assert_eq!(evil.bundle.count().cuda, uuids(A100X4)[3..]);
    assert_eq!(evil.ran(), [""; 0]);
    assert_eq!(evil.bundle.spec()["hooks"]["createRuntime"].as_array().unwrap().len(), 1);

    let root = |evil: &Evil| format!("--root={}", evil.bundle.rootfs().display());
    let hook = release("cudaview-hook");
    for stage in ["createContainer", "startContainer"] {
        let evil = Evil::new(&find_program("runc"));
        evil.hook(stage, &hook, &["cudaview-hook", "createRuntime", &root(&evil), "--node=/dev/nvidia1=195:1"], None);
        if stage == "startContainer" {
            // Runs in the container's own root, where the host's programs are not.
            fs::copy(&hook, evil.bundle.rootfs().join("hook")).unwrap();
            evil.bundle.edit(|config| config["hooks"][stage][0]["path"] = json!("/hook"));
        }
        let ran = evil.bundle.run();
        assert!(ran.code != 0 && ran.stderr.contains("wrong stage"), "{stage}: {ran}");
        assert_eq!(evil.ran(), [""; 0], "{stage}");
    }
}
