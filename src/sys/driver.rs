//! NVIDIA's kernel modules and their nodes: what is missing, and what to type.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::inventory::list;
use crate::sys::host::device_number;
use crate::sys::read_text;

/// The modules that a container's GPU can need; the last one for displays alone.
const MODULES: [&str; 3] = ["nvidia", "nvidia_uvm", "nvidia_modeset"];

/// The nodes without which CUDA does not start, and the module that each belongs to.
const NEEDED: [(&str, &str); 2] = [("nvidiactl", "nvidia"), ("nvidia-uvm", "nvidia_uvm")];

/// What a module is called in `/proc/devices`; the first module's name there has changed with R550.
// NVIDIA Container Toolkit, internal/info/proc/devices.
const MAJORS: [(&str, &str); 4] = [
    ("nvidia", "nvidia"),
    ("nvidia-frontend", "nvidia"),
    ("nvidia-uvm", "nvidia_uvm"),
    ("nvidia-modeset", "nvidia_modeset"),
];

/// NVIDIA's number among vendors of PCI devices, as sysfs writes it.
const VENDOR: &str = "0x10de";

/// What makes modules and nodes be there; part of NVIDIA's driver.
const REMEDY: &str = "sudo nvidia-modprobe -u -c0";

/// Nodes that should be there and are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Absolute paths.
    nodes: Vec<PathBuf>,
    /// The modules that they wait for.
    modules: Vec<&'static str>,
    /// Those that are loaded.
    loaded: Vec<&'static str>,
}

/// The nodes that CUDA needs and `dev` does not have; `None` where it has all.
pub fn missing(proc: &Path, dev: &Path) -> Option<Missing> {
    let absent: Vec<_> = NEEDED.iter().filter(|(node, _)| device_number(&dev.join(node)).is_none()).collect();
    if absent.is_empty() {
        return None;
    }
    let loaded = loaded(proc);
    let modules = absent.iter().map(|(_, module)| *module).filter(|module| !loaded.contains(module)).collect();
    Some(Missing { nodes: absent.iter().map(|(node, _)| dev.join(node)).collect(), modules, loaded })
}

/// The modules of NVIDIA's that are loaded.
pub fn loaded(proc: &Path) -> Vec<&'static str> {
    let modules = read_text(&proc.join("modules")).unwrap_or_default();
    let devices = read_text(&proc.join("devices")).unwrap_or_default();
    let in_modules = |name: &str| modules.lines().any(|line| line.split_whitespace().next() == Some(name));
    let has_major = |name: &str| {
        let mut names = devices.lines().filter_map(|line| line.split_whitespace().nth(1));
        names.any(|device| MAJORS.iter().any(|(known, module)| *known == device && *module == name))
    };
    MODULES.into_iter().filter(|name| in_modules(name) || has_major(name)).collect()
}

/// How many GPUs of NVIDIA's are on the PCI bus; `None` where nobody can say.
pub fn gpus_on_bus(sys: &Path) -> Option<usize> {
    let devices = fs::read_dir(sys.join("bus/pci/devices")).ok()?;
    let is_gpu = |folder: PathBuf| {
        let read = |name: &str| read_text(&folder.join(name)).unwrap_or_default();
        // PCI Code and ID Assignment Specification: class 03 is a display controller.
        read("vendor").trim() == VENDOR && read("class").trim().starts_with("0x03")
    };
    Some(devices.filter_map(|entry| Some(is_gpu(entry.ok()?.path()))).filter(|is| *is).count())
}

impl Missing {
    /// What to do about it. `dev_root` is the configuration's.
    pub fn hint(&self, dev_root: &str) -> String {
        match self.modules.as_slice() {
            _ if dev_root != "/" => {
                "dev_root in the configuration names a folder with the host's dev/ in it".to_owned()
            }
            [] => format!("{REMEDY} makes them; in a container, start that one with --gpus all"),
            modules => format!("{REMEDY} loads {} and makes the nodes", list(&owned(modules))),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.nodes.iter().map(|path| format!("{path:?}")).collect();
        let are = if nodes.len() == 1 { "is" } else { "are" };
        write!(f, "{} {are} missing: ", list(&nodes))?;
        let plural = if self.modules.len() == 1 { "module" } else { "modules" };
        let loaded = list(&owned(&self.loaded));
        match self.modules.as_slice() {
            [] => write!(f, "the driver is loaded ({loaded}), and its nodes have not been made"),
            modules => {
                let are = if modules.len() == 1 { "is" } else { "are" };
                write!(f, "the kernel {plural} {} {are} not loaded (loaded: {loaded})", list(&owned(modules)))
            }
        }
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// What is said of a host with these modules and device numbers, and these nodes.
    fn said(modules: &str, devices: &str, nodes: &[&str]) -> Option<(String, String)> {
        let folder = tempfile::tempdir().expect("a folder");
        let (proc, dev) = (folder.path().join("proc"), folder.path().join("dev"));
        fs::create_dir_all(&proc).expect("a folder");
        fs::create_dir_all(&dev).expect("a folder");
        fs::write(proc.join("modules"), modules).expect("written");
        fs::write(proc.join("devices"), devices).expect("written");
        for node in nodes {
            // Only root can make a node; nothing opens it.
            symlink("/dev/null", dev.join(node)).expect("a link");
        }
        let missing = missing(&proc, &dev)?;
        Some((missing.to_string().replace(dev.to_str().expect("UTF-8"), "/dev"), missing.hint("/")))
    }

    const NVIDIA: &str = "nvidia 60710912 2 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)\n";
    const MODESET: &str = "nvidia_modeset 1310720 1 nvidia_drm, Live 0x0000000000000000 (POE)\n";
    const UVM: &str = "nvidia_uvm 1540096 0 - Live 0x0000000000000000 (POE)\n";

    #[test]
    fn what_is_missing_is_named_with_its_module() {
        let check = |modules: &str, nodes: &[&str], text: &str, hint: &str| {
            let expected = (text.to_owned(), hint.to_owned());
            assert_eq!(said(modules, "", nodes), Some(expected), "{modules:?} {nodes:?}");
        };
        check(
            "nouveau 2310144 1 - Live 0x0000000000000000\n",
            &[],
            "\"/dev/nvidiactl\" and \"/dev/nvidia-uvm\" are missing: the kernel modules nvidia and nvidia_uvm are not \
             loaded (loaded: none)",
            "sudo nvidia-modprobe -u -c0 loads nvidia and nvidia_uvm and makes the nodes",
        );
        check(
            &[NVIDIA, MODESET].concat(),
            &["nvidiactl", "nvidia0"],
            "\"/dev/nvidia-uvm\" is missing: the kernel module nvidia_uvm is not loaded (loaded: nvidia and \
             nvidia_modeset)",
            "sudo nvidia-modprobe -u -c0 loads nvidia_uvm and makes the nodes",
        );
        check(
            &[NVIDIA, UVM].concat(),
            &["nvidia-uvm"],
            "\"/dev/nvidiactl\" is missing: the driver is loaded (nvidia and nvidia_uvm), and its nodes have not been made",
            "sudo nvidia-modprobe -u -c0 makes them; in a container, start that one with --gpus all",
        );
        assert_eq!(said("", "", &["nvidiactl", "nvidia-uvm"]), None, "what there is can be opened, whoever made it");
    }

    #[test]
    fn a_module_is_known_by_its_major_number_too() {
        for name in ["nvidia", "nvidia-frontend"] {
            let devices = format!("Character devices:\n  1 mem\n195 {name}\n\nBlock devices:\n  8 sd\n");
            let (text, _) = said("", &devices, &[]).expect("nodes are missing");
            assert!(text.ends_with("the kernel module nvidia_uvm is not loaded (loaded: nvidia)"), "{name}: {text}");
        }
        // The number of capabilities is the first module's too, and of no other.
        assert!(said("", "195 nvidia-caps\n", &[]).expect("missing").0.ends_with("(loaded: none)"));
    }

    #[test]
    fn a_dev_root_elsewhere_is_the_first_suspect() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = missing(folder.path(), folder.path()).expect("nothing is there");
        assert!(missing.hint("/run/nvidia/driver").starts_with("dev_root in the configuration"));
    }

    #[test]
    fn gpus_on_the_bus() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(gpus_on_bus(folder.path()), None);
        let devices = [("0x10de", "0x030200"), ("0x10de", "0x030000"), ("0x10de", "0x040300"), ("0x8086", "0x030000")];
        for (number, (vendor, class)) in devices.into_iter().enumerate() {
            let device = folder.path().join(format!("bus/pci/devices/0000:0{number}:00.0"));
            fs::create_dir_all(&device).expect("a folder");
            fs::write(device.join("vendor"), format!("{vendor}\n")).expect("written");
            fs::write(device.join("class"), format!("{class}\n")).expect("written");
        }
        assert_eq!(gpus_on_bus(folder.path()), Some(2), "a card's sound is no GPU");
    }
}
