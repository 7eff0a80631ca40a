//! The commands that only answer change nothing: what `strace` sees of them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::data;
use crate::world::command::run;
use crate::world::{find_program, require};

/// System calls that change a file system or the system.
const CHANGES: &str = "creat,mkdir,mkdirat,mknod,mknodat,unlink,unlinkat,rmdir,rename,renameat,renameat2,link,linkat,symlink,\
                       symlinkat,truncate,ftruncate,fallocate,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,utimensat,\
                       setxattr,lsetxattr,fsetxattr,mount,umount2,pivot_root,sethostname,kill,tgkill,reboot,init_module";

/// The lines of a trace that are a change, or an open for one.
fn changes(trace: &str) -> Vec<&str> {
    let is_open = |line: &&str| line.contains("open(") || line.contains("openat(") || line.contains("openat2(");
    let writes =
        |line: &&str| ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"].iter().any(|flag| line.contains(flag));
    let is_told = |line: &&str| !line.contains("+++") && !line.contains("---");
    // A program that is given none opens it in their place.
    let harmless = |line: &&str| line.contains("\"/dev/null\"");
    let lines = trace.lines().filter(is_told).filter(|line| !is_open(line) || writes(line));
    lines.filter(|line| !harmless(line)).collect()
}

fn trace_of(folder: &Path, arguments: &[&str]) -> String {
    let trace = folder.join("trace");
    let mut command = Command::new(find_program("strace"));
    command.args(["-f", "-qq", "-e", &format!("trace=open,openat,openat2,{CHANGES}"), "-o"]).arg(&trace);
    command.arg(env!("CARGO_BIN_EXE_cudaview")).args(arguments).current_dir(folder);
    // However it ends: on a host without engines or GPUs some have nothing to say.
    drop(run(&mut command));
    fs::read_to_string(trace).unwrap()
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn no_command_that_answers_changes_anything() {
    require(&["strace"]);
    let folder = tempfile::tempdir().unwrap();
    let inventory = data("inventories/a100x4.json");
    let inventory = inventory.to_str().unwrap();
    let audit = folder.path().join("audit.jsonl");
    fs::write(&audit, "{\"schemaVersion\":1,\"door\":\"runtime\",\"id\":\"x\",\"name\":\"gone\"}\n").unwrap();
    fs::write(folder.path().join("config.toml"), format!("audit = {audit:?}\ninventory = {inventory:?}\n")).unwrap();
    fs::write(folder.path().join("Dockerfile"), "FROM x\nENV CUDA_VISIBLE_DEVICES=0\n").unwrap();
    fs::write(folder.path().join("compose.yaml"), "services:\n  a:\n    image: x\n    gpus: all\n").unwrap();
    fs::create_dir(folder.path().join("root")).unwrap();
    let host = ["--inventory", inventory, "--config", "config.toml"];
    let before = listing(folder.path());
    for arguments in [
        &["explain", "--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=1"][..],
        &["explain", "--container", "gone"],
        &["explain", "--compose", "compose.yaml"],
        &["explain", "--image", "x", "--gpus", "all"],
        &["ps"],
        &["flags"],
    ] {
        let trace = trace_of(folder.path(), &[arguments, &host].concat());
        assert!(trace.contains("config.toml"), "{arguments:?} did nothing: {trace}");
        assert_eq!(changes(&trace), [] as [&str; 0], "{arguments:?}");
    }
    for arguments in [
        &["explain", "host-index-override"][..],
        &["explain", "--", "docker", "run", "--gpus", "all", "x"],
        &["lint", "Dockerfile", "compose.yaml"],
        &["lint", "--image", "x"],
        &["lint", "--", "docker", "run", "--gpus", "0,2", "x"],
        &["log", "--config", "config.toml"],
        &["predict", "--inventory", inventory],
        &["inventory", "--inventory", inventory],
        &["doctor", "--root", "root"],
        &["doctor"],
        &["completion", "bash"],
        &["demo"],
        &["install", "gpus-flag", "--dry-run"],
        &["--help"],
    ] {
        assert_eq!(changes(&trace_of(folder.path(), arguments)), [] as [&str; 0], "{arguments:?}");
    }
    assert_eq!(listing(folder.path()), before);
    // And one that does is seen.
    let pages = folder.path().join("root");
    assert!(!changes(&trace_of(folder.path(), &["manual", pages.to_str().unwrap()])).is_empty());
}

/// Names and times below a folder, but for the trace.
fn listing(folder: &Path) -> Vec<(std::path::PathBuf, std::time::SystemTime)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut out: Vec<_> = entries.filter(|path| !path.ends_with("trace")).collect();
    out.sort();
    out.into_iter().map(|path| (path.clone(), fs::metadata(path).unwrap().modified().unwrap())).collect()
}
