//! The `/proc` of a machine with GPUs: what NVIDIA's driver would list, over the machine's own in a mount namespace.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::command::write_program;
use super::{Install, artifacts, inventory};

/// Modules of a driver that is up.
pub(crate) const ALL_MODULES: [&str; 3] = ["nvidia", "nvidia_uvm", "nvidia_modeset"];

/// A made-up host. Nodes are not its: those are an [`Install`]'s, whose `dev_root` the configuration names.
pub(crate) struct MadeUp {
    folder: TempDir,
}

impl MadeUp {
    /// A host without the driver.
    pub(crate) fn empty() -> MadeUp {
        let host = MadeUp { folder: tempfile::Builder::new().prefix("host").tempdir().unwrap() };
        for name in ["proc/driver", "run"] {
            fs::create_dir_all(host.path(name)).unwrap();
        }
        host.modules(&[]);
        host
    }

    /// A host with the GPUs of an inventory fixture.
    pub(crate) fn of(inventory_name: &str) -> MadeUp {
        let host = MadeUp::empty();
        let value: Value = serde_json::from_slice(&fs::read(inventory(inventory_name)).unwrap()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        for gpu in value["gpus"].as_array().unwrap() {
            let minor = gpu["minor"].as_u64().unwrap();
            host.gpu(&text(&gpu["pciBusId"]), minor, &text(&gpu["uuid"]), &text(&gpu["name"]));
        }
        let version = text(&value["driverVersion"]);
        let line = format!("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n");
        host.write("proc/driver/nvidia/version", &line);
        host.modules(&ALL_MODULES);
        host
    }

    /// What the driver lists of a GPU.
    pub(crate) fn gpu(&self, address: &str, minor: u64, uuid: &str, model: &str) {
        // The driver writes a domain with four digits, or more where it has more.
        let (domain, rest) = address.split_once(':').unwrap();
        let address = format!("{:04x}:{rest}", u32::from_str_radix(domain, 16).unwrap());
        let text = format!(
            "Model: \t\t {model}\nIRQ:   \t\t 94\nGPU UUID: \t {uuid}\nVideo BIOS: \t 96.00.89.00.01\n\
             Bus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t {address}\n\
             Device Minor: \t {minor}\nGPU Firmware: \t 570.86.15\nGPU Excluded:\t No\n"
        );
        self.write(&format!("proc/driver/nvidia/gpus/{address}/information"), &text);
    }

    /// The modules that are loaded, and no other.
    pub(crate) fn modules(&self, names: &[&str]) {
        let mut text = "ext4 999424 1 - Live 0x0000000000000000\n".to_owned();
        for name in names {
            writeln!(text, "{name} 60710912 0 - Live 0x0000000000000000 (POE)").unwrap();
        }
        self.write("proc/modules", &text);
        let numbers = [
            ("nvidia", "195 nvidia\n"),
            ("nvidia_uvm", "510 nvidia-uvm\n"),
            ("nvidia_modeset", "195 nvidia-modeset\n"),
        ];
        let lines: String = numbers.iter().filter(|(name, _)| names.contains(name)).map(|(_, line)| *line).collect();
        self.write("proc/devices", &format!("Character devices:\n  1 mem\n{lines}\nBlock devices:\n  8 sd\n"));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    /// A shell script that puts it over the machine's own, for a mount namespace of its own.
    pub(crate) fn script(&self) -> String {
        format!(
            r#"
host='{}'
mount --bind "$host/proc/driver" /proc/driver
# A kernel that is in one piece has none; the numbers say the same.
[ ! -e /proc/modules ] || mount --bind "$host/proc/modules" /proc/modules
mount --bind "$host/proc/devices" /proc/devices
mkdir -p /run/cudaview
mount --bind "$host/run" /run/cudaview
"#,
            self.folder.path().display()
        )
    }

    /// Shell assignments with which `cudaview-nvml` finds the double of NVML, on a host with the nodes of an install.
    pub(crate) fn nvml(inventory_name: &str, install: &Install) -> String {
        format!(
            "export LD_LIBRARY_PATH='{}' GPU_DOUBLE_INVENTORY='{}' GPU_DOUBLE_DEV='{}'\n",
            artifacts::doubles().display(),
            inventory(inventory_name).display(),
            install.dev_root().join("dev").display()
        )
    }

    /// One of our programs on this host; its arguments are to follow. `more` is shell, run before it.
    pub(crate) fn command(&self, program: &Path, more: &str) -> Command {
        let mut command = Command::new("unshare");
        let script = format!("set -e\n{}{more}\nexec \"$@\"", self.script());
        command.args(["--mount", "--propagation", "slave", "sh", "-c", &script, "sh"]).arg(program);
        command
    }

    /// The wrapper of an install as a program that runs on this host.
    pub(crate) fn runtime(&self, install: &Install, more: &str) -> PathBuf {
        let path = self.path("runtime");
        let script = format!("set -e\n{}{more}\nexec '{}' \"$@\"\n", self.script(), install.runtime().display());
        self.write("runtime.inner", &script);
        let inner = self.path("runtime.inner");
        let outer = format!("#!/bin/sh\nexec unshare --mount --propagation slave sh '{}' \"$@\"\n", inner.display());
        write_program(&path, outer.as_bytes());
        path
    }
}

/// `config.toml` of an install that asks its host and not a file.
pub(crate) fn ask_the_host(install: &Install, more: &str) {
    let text = fs::read_to_string(install.config()).unwrap();
    let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with("inventory ")).collect();
    install.configure(&format!("{}\n{more}", kept.join("\n")));
}
