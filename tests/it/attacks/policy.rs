//! The files that decide, in hands that they should not be in: nothing starts, and the message says which file it was.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use crate::sandbox::{Sandbox, Untouched, gpu_spec, plain_spec};

const POLICY: &str = "prefix/etc/cudaview/config.toml";
const CONFIGURATION: i32 = 6;
const NO_INVENTORY: i32 = 5;

/// A container of a policy that would grant everything, after something was done to one of the files.
fn refused(code: i32, words: &[&str], spoil: impl Fn(&Sandbox)) {
    let sandbox = Sandbox::new("[grant]\nbase = \"all\"\n");
    spoil(&sandbox);
    for spec in [gpu_spec(&["CUDA_VISIBLE_DEVICES=1"]), plain_spec()] {
        sandbox.write_spec(&spec);
        let before = Untouched::of(&sandbox.path("bundle/config.json"));
        let ran = sandbox.create().failed_with(code);
        assert!(words.iter().all(|word| ran.stderr.contains(word)), "{words:?}: {ran}");
        assert_eq!(Untouched::of(&sandbox.path("bundle/config.json")), before);
        assert_eq!(sandbox.started(), [""; 0]);
    }
}

/// T32. A policy that others can write, a link, one that is too long, and a key that is not known.
#[test]
fn t32_a_policy_that_cannot_be_trusted_is_not_used() {
    let mode = |mode| {
        move |sandbox: &Sandbox| fs::set_permissions(sandbox.path(POLICY), Permissions::from_mode(mode)).unwrap()
    };
    refused(CONFIGURATION, &["config.toml", "can be written"], mode(0o666));
    refused(CONFIGURATION, &["config.toml", "can be written"], mode(0o664));
    refused(CONFIGURATION, &["config.toml", "not a regular file"], |sandbox| {
        fs::rename(sandbox.path(POLICY), sandbox.path("elsewhere")).unwrap();
        symlink(sandbox.path("elsewhere"), sandbox.path(POLICY)).unwrap();
    });
    refused(CONFIGURATION, &["config.toml", "larger than"], |sandbox| {
        let text = fs::read_to_string(sandbox.path(POLICY)).unwrap();
        sandbox.write(POLICY, format!("#{}\n{text}", "x".repeat(2 << 20)));
    });
    refused(CONFIGURATION, &["config.toml", "grants"], |sandbox| {
        let text = fs::read_to_string(sandbox.path(POLICY)).unwrap();
        sandbox.write(POLICY, text.replace("[grant]", "[grants]"));
    });
}

/// T32. Whoever owns the file could change it at any time.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn t32_a_policy_of_somebody_elses_is_not_used() {
    refused(CONFIGURATION, &["config.toml", "belongs to uid 1000"], |sandbox| {
        chown(sandbox.path(POLICY), Some(1000), None).unwrap();
    });
}

/// T32. Without a file of its own an installation grants nothing that nobody asked for.
#[test]
fn t32_without_a_policy_nothing_is_granted() {
    let config = cudaview::config::Config::built_in();
    assert!(!config.grant.grants_unasked());
    assert_eq!(cudaview::config::Config::parse("").unwrap(), config);
}

/// T33. An inventory says which numbers are which GPUs: one that others can write would hand out any GPU.
#[test]
fn t33_an_inventory_that_cannot_be_trusted_is_not_used() {
    let file = "inventory.json";
    refused(NO_INVENTORY, &["inventory.json", "can be written"], |sandbox| {
        fs::set_permissions(sandbox.path(file), Permissions::from_mode(0o666)).unwrap();
    });
    refused(NO_INVENTORY, &["inventory.json", "not a regular file"], |sandbox| {
        fs::rename(sandbox.path(file), sandbox.path("elsewhere")).unwrap();
        symlink(sandbox.path("elsewhere"), sandbox.path(file)).unwrap();
    });
    refused(NO_INVENTORY, &["inventory.json", "occurs twice"], |sandbox| {
        let text = fs::read_to_string(sandbox.path(file)).unwrap();
        sandbox.write(file, text.replace("\"minor\":1", "\"minor\":0").replace("\"minor\": 1", "\"minor\": 0"));
    });
}
