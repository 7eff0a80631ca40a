//! Odd things where a node is to be, or on the way to it: refused at once, and neither opened nor followed.

use crate::world::Stage;
use crate::world::stage::{Hooked, capability_nodes};

const GPU1: &str = "/dev/nvidia1=195:1";
const CAP2: &str = "/dev/nvidia-caps/nvidia-cap2=236:2";

/// Prepares a root, runs the hook, and sees that it changed nothing.
fn refused(script: &str, node: &str, text: &str) {
    let stage = Stage::new(script);
    let list = "find $R/dev $R/tmp | sort | cut -c 1-400";
    let before = stage.inside(list);
    let hooked = stage.hook(&[node]);
    hooked.refused(text);
    assert_eq!(stage.inside(list), before, "{script}");
    stage.nothing_outside();
}

/// T9.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn whatever_stands_where_a_node_is_to_be() {
    for (script, found) in [
        ("mkfifo $R/dev/nvidia1", "found a FIFO"),
        (
            "cd $R/dev; perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un(\"nvidia1\")) or die'; cd /",
            "found a socket",
        ),
        ("mknod $R/dev/nvidia1 c 1 3", "found a character device 1:3"),
        ("mknod $R/dev/nvidia1 b 195 1", "found a block device"),
        ("mkdir $R/dev/nvidia1", "found a directory"),
        (": >$R/dev/nvidia1", "found a regular file"),
        ("ln -s nothing $R/dev/nvidia1", "found a symbolic link"),
        ("ln -s $F/canary/new $R/dev/nvidia1", "found a symbolic link"),
        ("ln -s nvidia1 $R/dev/nvidia1", "found a symbolic link"),
        ("mknod $R/dev/real c 195 1; ln -s real $R/dev/nvidia1", "found a symbolic link"),
    ] {
        refused(script, GPU1, found);
    }
}

/// T9, for the folder that a node lies in, and for `/dev`.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn whatever_stands_on_the_way_to_a_node() {
    let deep =
        "ln -s 1 $R/dev/nvidia-caps; for i in $(seq 1 300); do ln -s $((i + 1)) $R/dev/$i; done; mkdir $R/dev/301";
    for script in [
        ": >$R/dev/nvidia-caps",
        "mkfifo $R/dev/nvidia-caps",
        "mknod $R/dev/nvidia-caps c 1 3",
        "ln -s nothing $R/dev/nvidia-caps",
        "ln -s nvidia-caps $R/dev/nvidia-caps",
        "ln -s ../../canary $R/dev/nvidia-caps",
        "ln -s $F/canary $R/dev/nvidia-caps",
        "mkdir $R/tmp/caps; ln -s ../tmp/caps $R/dev/nvidia-caps",
        deep,
    ] {
        refused(script, CAP2, "stands in the way");
    }
    // Read-only, so that nothing can be made.
    refused("mkdir $R/dev/nvidia-caps; mount -o remount,ro $R/dev", CAP2, "EROFS");
    refused("mkdir $R/dev/nvidia-caps; mount -t tmpfs none $R/dev/nvidia-caps", CAP2, "EXDEV");
    // A `/dev` that is not the container's own tmpfs.
    refused("umount $R/dev", GPU1, "its /dev is the image's own directory");
    refused("umount $R/dev; mount -t ramfs none $R/dev", GPU1, "its /dev is not a tmpfs of its own");
    refused("mount --make-shared $R/dev", GPU1, "its /dev is shared with other mount namespaces");
}

/// T9: names as long as a file system takes, and the longest path and one that is too long.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn long_names_are_made_and_longer_ones_refused() {
    let stage = Stage::new("true");
    let long = format!("/dev/{}/{}=195:1", "a".repeat(255), "b".repeat(255));
    let hooked = stage.hook(&[&long]);
    assert_eq!(hooked.ran.code, 0, "{}", hooked.ran);
    assert_eq!(stage.inside("stat -c %t:%T $R/dev/*/*"), "c3:1\n");
    for bad in [
        format!("/dev/{}=195:1", "a".repeat(256)),
        format!("/dev{}/x=195:1", "/a".repeat(64)),
        "/dev/../x=195:1".to_owned(),
        "/dev/a/../../x=195:1".to_owned(),
        "/dev/a//b=195:1".to_owned(),
        "/etc/x=195:1".to_owned(),
    ] {
        let Hooked { ran, .. } = stage.hook(&[&bad]);
        assert!(ran.code == 2 || ran.code == 4, "{bad:.60}: {ran}");
    }
    assert_eq!(stage.inside("ls $R/dev | wc -l; ls $R/etc $R/tmp").split_whitespace().next(), Some("1"));
}

/// T10: in folders with a million entries nothing is listed.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_huge_folder_is_not_listed() {
    let stage = Stage::new(
        "mount -o remount,nr_inodes=1200000 $R; mkdir -p $R/usr/lib $R/dev/nvidia-caps; cd $R/usr/lib; seq -f 'lib%.0f.so' 1000000 | xargs touch; \
         cd $R/dev; seq -f 'n%.0f' 20000 | xargs touch; cd nvidia-caps; seq -f 'n%.0f' 20000 | xargs touch; cd /",
    );
    let hooked = stage.traced(&[GPU1, CAP2]);
    assert_eq!(hooked.ran.code, 0, "{}", hooked.ran);
    assert!(!hooked.calls.contains("getdents"), "{}", hooked.calls);
    // R32: so many steps for two nodes, whatever lies around them.
    let calls = hooked.calls_inside().lines().count();
    assert!(calls < 120, "{calls}: {}", hooked.calls_inside());
    let hooked = stage.hook(&[GPU1, CAP2]);
    eprintln!("T10: 1,040,000 entries: {calls} system calls after the join, {:?}", hooked.took);
    assert!(hooked.ran.code == 0 && hooked.took.as_secs() < 1, "{:?} {}", hooked.took, hooked.ran);
}

/// T11: links that the kernel resolves to wherever a process is.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn magic_links_lead_nowhere() {
    for target in ["/proc/self/root", "/proc/1/root/tmp", "/proc/self/cwd", "/proc/self/fd/0", "/proc/thread-self/root"]
    {
        let mount = "mount -t proc proc $R/proc";
        refused(&format!("{mount}; ln -s {target} $R/dev/nvidia-caps"), CAP2, "stands in the way");
        refused(&format!("{mount}; ln -s {target} $R/dev/nvidia1"), GPU1, "found a symbolic link");
        refused(&format!("umount $R/dev; rmdir $R/dev; ln -s {target} $R/dev"), GPU1, "refused \"/dev\"");
    }
}

/// T6: what one node's making does to another's path does not matter, in whichever order they come.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn nodes_in_each_others_way_are_refused_in_any_order() {
    let below = "/dev/nvidia1/x=195:2";
    for (order, text) in [([GPU1, below], "stands in the way"), ([below, GPU1], "found a directory")] {
        let stage = Stage::new("true");
        stage.hook(&order).refused(text);
        stage.nothing_outside();
    }
    // The same nodes in any order, each once more: the same result.
    let mut results = Vec::new();
    for order in [[GPU1, CAP2, GPU1], [CAP2, GPU1, CAP2]] {
        let stage = Stage::new("true");
        assert_eq!(stage.hook(&order).ran.code, 0);
        results.push(stage.inside("cd $R/dev; find . -type c | sort | xargs stat -c '%n %t:%T %a %u:%g'"));
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0].lines().count(), 2, "{results:?}");
}

/// T36: without `openat2` nothing is looked at and nothing made; there is no second way.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn without_openat2_it_refuses() {
    const OPENAT2: &str = "437";
    let filter = Stage::attacker("filter");
    for error in ["ENOSYS", "EPERM"] {
        let stage = Stage::new("mknod $R/dev/nvidia1 c 195 1");
        let words = [filter.to_str().unwrap(), error, OPENAT2];
        for node in [GPU1, CAP2] {
            stage.hook_under(&words, &[node]).refused("openat2 is not available");
        }
        assert_eq!(stage.inside("ls $R/dev"), "nvidia1\n");
        // Only the root itself was opened, by its own path.
        let hooked = stage.traced_with(&["-e", &format!("inject=openat2:error={error}")], &[GPU1]);
        let opened = hooked
            .calls_inside()
            .lines()
            .filter(|line| line.contains(" open"))
            .filter(|line| !line.contains(" write("))
            .count();
        assert!(hooked.ran.code == 1 && opened == 2, "{}", hooked.calls_inside());
    }
}

/// A root that is a link would lead wherever it points to.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_root_that_is_a_link_is_refused() {
    let stage = Stage::new("ln -s rootfs $F/link");
    let link = format!("--root={}", stage.canary().with_file_name("link").display());
    let hooked = stage.hook_with(&[&link], &[GPU1]);
    assert!(hooked.ran.code == 1 && hooked.ran.stderr.contains("open the container's root"), "{}", hooked.ran);
    assert_eq!(stage.inside("ls $R/dev"), "");
}

/// R32: a dead file system in the way costs seconds, and never the engine's patience.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_lookup_that_takes_too_long_is_given_up() {
    let stage = Stage::new("true");
    let delayed = |microseconds: &str| {
        let inject = format!("inject=openat2:delay_enter={microseconds}:when=2");
        stage.traced_with(&["-e", &inject], &[GPU1, CAP2]).ran
    };
    let ran = delayed("10400000");
    assert!(ran.code == 1 && ran.stderr.contains("in time"), "{ran}");
    // A call that does not return at all is ended from outside: 128 + SIGALRM.
    let ran = delayed("14000000");
    assert_eq!(ran.code, 128 + 14, "{ran}");
}

/// R33: what fails half-way leaves no more than what was made before, in the container alone.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_failure_half_way_leaves_nothing_outside() {
    let nodes = capability_nodes(8);
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let stage = Stage::new("mkdir $R/dev/nvidia-caps; ln -s $F/canary/new $R/dev/nvidia-caps/nvidia-cap5");
    let hooked = stage.hook(&nodes);
    hooked.refused("found a symbolic link");
    assert_eq!(hooked.ran.stderr.lines().count(), 1, "{}", hooked.ran);
    assert_eq!(stage.inside("ls $R/dev/nvidia-caps | wc -l").trim(), "5");
    stage.nothing_outside();
}
