//! The wrapper, beside the plain runtime: what a program in the container inherits and where it stands.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::world::command::{Ran, run};
use crate::world::{A100X4, Bundle, Install, find_program, require, spec};

/// Starts a program with twenty more descriptors, one of them the host's root, one of them a file to write to.
const WITH_DESCRIPTORS: &str = r#"
for n in /proc/$$/fd/*; do n=${n##*/}; [ "$n" -le 2 ] || eval "exec $n>&-"; done
for n in {3..22}; do eval "exec $n</dev/null"; done
exec 7</ 9<>/dev/null
exec "$@"
"#;

fn bundle(runtime: &Path, args: &[&str]) -> Bundle {
    let bundle = Bundle::with_runtime(runtime, A100X4, args, &["CUDA_VISIBLE_DEVICES=3"]);
    bundle.edit(|config| spec::grant_nodes(config, &[1, 3]));
    bundle
}

fn run_with_descriptors(bundle: &Bundle, more: &[&str]) -> Ran {
    let runtime = bundle.command();
    let mut command = Command::new("bash");
    command.args(["-c", WITH_DESCRIPTORS, "bash"]).arg(runtime.get_program());
    command.args(runtime.get_args()).arg("run").args(more).arg("--bundle").arg(bundle.path()).arg(bundle.id());
    run(command.current_dir(bundle.path()))
}

/// T13, R6: descriptors that an engine did not mean for the container do not get there through us, and those that it did
/// mean do.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn the_container_has_the_descriptors_that_it_has_without_us() {
    require(&["runc", "bash"]);
    let install = Install::new(A100X4, "");
    let list = ["sh", "-c", "cd /proc/self/fd; for n in *; do [ -e $n ] && echo $n $(readlink $n); done; true"];
    for (more, count) in [(&[][..], 0), (&["--preserve-fds", "20"], 20), (&["--preserve-fds", "3"], 3)] {
        let listed = |runtime: &Path| {
            let ran = run_with_descriptors(&bundle(runtime, &list), more).ok();
            // The standard streams are files of their own in each run; the shell's own descriptor for the folder comes
            // and goes.
            let lines = ran.stdout.lines().filter(|line| {
                let parts = ["(deleted)", "pipe:", "/proc/"];
                !parts.iter().any(|part| line.contains(part))
            });
            lines.map(str::to_owned).collect::<Vec<String>>()
        };
        let plain = listed(&find_program("runc"));
        assert_eq!(listed(&install.runtime()), plain, "{more:?}");
        assert_eq!(plain.len(), count, "{more:?} {plain:?}");
    }
}

/// T14, CVE-2024-21626: a working directory through a descriptor of the runtime's. We may not be the one who lets it
/// through, nor change what is said.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_working_directory_that_is_a_trick_ends_as_without_us() {
    require(&["runc", "bash"]);
    let install = Install::new(A100X4, "");
    let mut refused = 0;
    let list = ["sh", "-c", "pwd -P; ls ../../../../etc/hostname-of-the-host 2>&1; ls -a . | head -3"];
    for cwd in
        ["/proc/self/fd/7", "/proc/self/fd/8", "/proc/self/fd/3", "/proc/self/fd/9999", "/dev/fd/7", "/../..", ""]
    {
        let ended = |runtime: &Path| {
            let bundle = bundle(runtime, &list);
            bundle.edit(|config| config["process"]["cwd"] = json!(cwd));
            let ran = run_with_descriptors(&bundle, &[]);
            let own = |text: &str| {
                let text = text.replace(bundle.id(), "ID").replace(bundle.path().to_str().unwrap(), "BUNDLE");
                // The first word of a line of runc's is its time.
                text.lines()
                    .map(|line| line.split_once("level=").map_or(line, |(_, rest)| rest).to_owned())
                    .collect::<Vec<_>>()
            };
            (ran.code, own(&ran.stdout), own(&ran.stderr))
        };
        let plain = ended(&find_program("runc"));
        assert_eq!(ended(&install.runtime()), plain, "{cwd:?}");
        refused += usize::from(plain.0 != 0);
    }
    assert!(refused >= 2, "runc refuses some: {refused}");
}

/// T35: what a container may be under: a root that is read-only, no_new_privs, masked paths, no capability at all.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn read_only_and_unprivileged_containers_get_their_gpus() {
    require(&["runc"]);
    let install = Install::new(A100X4, "");
    let strict = |config: &mut serde_json::Value| {
        config["root"]["readonly"] = json!(true);
        config["process"]["noNewPrivileges"] = json!(true);
        config["process"]["user"] = json!({"uid": 61234, "gid": 61234});
        config["process"]["capabilities"] = json!({"bounding": [], "effective": [], "permitted": []});
        config["linux"]["maskedPaths"] = json!(["/proc/kcore", "/sys/firmware"]);
        config["linux"]["rootfsPropagation"] = json!("slave");
    };
    for nodes_are_there in [true, false] {
        let count = |runtime: &Path| {
            let bundle = bundle(runtime, &["gpu-count", "--json"]);
            bundle.edit(strict);
            if !nodes_are_there && runtime != find_program("runc") {
                bundle.edit(|config| {
                    config["linux"]["devices"].as_array_mut().unwrap().retain(|node| node["path"] != "/dev/nvidia-uvm");
                });
            }
            bundle.count()
        };
        let plain = count(&find_program("runc"));
        assert!(plain.cuda.is_empty(), "the plain runtime has the fault");
        assert_eq!(count(&install.runtime()).cuda, crate::world::uuids(A100X4)[3..]);
    }
    // A label that this machine does not know is the runtime's to refuse, and its words stay.
    let labelled = |runtime: &Path| {
        let bundle = bundle(runtime, &["true"]);
        bundle.edit(|config| config["process"]["apparmorProfile"] = json!("no-such-profile"));
        let ran = bundle.run();
        (ran.code, ran.stderr.split("msg=").nth(1).map(|text| text.replace(bundle.id(), "ID")))
    };
    assert_eq!(labelled(&install.runtime()), labelled(&find_program("runc")));
}
