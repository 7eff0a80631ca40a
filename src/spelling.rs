//! What a misspelt word or list was meant to be: for hints only, nothing is ever decided by it.

use crate::inventory::{Device, Inventory, list};
use crate::request::Source;

/// The longest list that a range is written out as.
const LONGEST: u32 = 64;

/// The host numbers of a list in a form that engines do not read: `1-3`, `1;3`, `1 3`.
///
/// `None` for whatever holds something else than numbers.
pub fn numbers(text: &str) -> Option<Vec<u32>> {
    let mut out = Vec::new();
    for part in text.split([',', ';', ' ', '\t']).filter(|part| !part.is_empty()) {
        match part.split_once('-') {
            None => out.push(part.parse().ok()?),
            Some((first, last)) => {
                let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
                if last < first || last - first >= LONGEST {
                    return None;
                }
                out.extend(first..=last);
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    out.retain(|number| seen.insert(*number));
    (!out.is_empty()).then_some(out)
}

/// Whether these are several names of GPUs, apart by commas: `GPU-a11,GPU-a31`, `0:1,2`.
pub fn are_gpu_names(list: &str) -> bool {
    let is_name = |name: &str| {
        let of_uuid = name.strip_prefix("GPU-").or_else(|| name.strip_prefix("MIG-"));
        let is_uuid = of_uuid.is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'/'))
        });
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_uuid || name.splitn(2, ':').all(is_number)
    };
    list.contains(',') && list.split(',').all(is_name)
}

/// These devices, those first that a value has by the numbers of the host, `3` or `0:1`: they were meant, most likely.
pub fn meant_first(inventory: &Inventory, value: &str, devices: &[Device]) -> Vec<Device> {
    let entries: Vec<&str> = value.split(',').map(str::trim).collect();
    let is_named = |device: &Device| {
        let index = inventory.gpu(*device).index.to_string();
        entries.iter().any(|entry| *entry == index || *entry == inventory.host_label(*device))
    };
    let (mut first, others): (Vec<Device>, Vec<Device>) = devices.iter().partition(|device| is_named(device));
    first.extend(others);
    first
}

/// The flags that ask for these GPUs in the way of this source, for a shell.
pub fn flags<T: std::fmt::Display>(source: Option<Source>, names: &[T]) -> String {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    match (source, names.as_slice()) {
        (Some(Source::Cdi | Source::Nodes), names) => {
            names.iter().map(|name| format!("--device nvidia.com/gpu={name}")).collect::<Vec<_>>().join(" ")
        }
        (Some(Source::User), names) => format!("-e NVIDIA_VISIBLE_DEVICES={}", names.join(",")),
        (_, [only]) => format!("--gpus device={only}"),
        // Docker must get the double quotes.
        (_, several) => format!("--gpus '\"device={}\"'", several.join(",")),
    }
}

/// The flag of this source, without a value.
pub fn flag(source: Option<Source>) -> &'static str {
    match source {
        Some(Source::Cdi | Source::Nodes) => "--device",
        Some(Source::User) => "-e NVIDIA_VISIBLE_DEVICES",
        _ => "--gpus",
    }
}

/// The flag that asks for every GPU in the way of this source.
pub fn all(source: Option<Source>) -> &'static str {
    match source {
        Some(Source::Cdi | Source::Nodes) => "--device nvidia.com/gpu=all",
        Some(Source::User) => "-e NVIDIA_VISIBLE_DEVICES=all",
        _ => "--gpus all",
    }
}

/// `host GPU 5`, `host GPUs 5 and 6`.
pub fn host_gpus(indices: &[u32]) -> String {
    let word = if indices.len() == 1 { "host GPU" } else { "host GPUs" };
    format!("{word} {}", list(&indices.iter().map(ToString::to_string).collect::<Vec<_>>()))
}

/// Names that people type for the variables, too far from them to be found by distance.
const NEAR: [(&str, &str); 4] = [
    ("CUDA_VISIBLE_GPUS", "CUDA_VISIBLE_DEVICES"),
    ("CUDA_VISIBLE_DEVICE_IDS", "CUDA_VISIBLE_DEVICES"),
    ("NVIDIA_VISIBLE_GPUS", "NVIDIA_VISIBLE_DEVICES"),
    ("NVIDIA_VISIBLE_DEVICE_IDS", "NVIDIA_VISIBLE_DEVICES"),
];

/// The variables that choose GPUs.
const VARIABLES: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"];

/// The variable that a misspelt name was meant to be; `None` for a right one, and for all others.
pub fn variable(name: &str) -> Option<&'static str> {
    if VARIABLES.contains(&name) {
        return None;
    }
    let upper = name.to_ascii_uppercase().replace('-', "_");
    if let Some((_, meant)) = NEAR.iter().find(|(near, _)| *near == upper) {
        return Some(meant);
    }
    // Long names only come near by mistake; those of other vendors are four letters away.
    VARIABLES.into_iter().find(|known| distance(&upper, known) <= 2)
}

/// The name that is nearest to a misspelt one, if one is near.
pub fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, name) = names.map(|name| (distance(typed, name), name)).min_by_key(|(distance, _)| *distance)?;
    (distance <= 2.max(name.len() / 4)).then_some(name)
}

/// How many characters have to be put in, taken out or replaced (Levenshtein's distance).
pub fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (position, left) in one.chars().enumerate() {
        let mut corner = row[0];
        row[0] = position + 1;
        for (column, right) in other.iter().enumerate() {
            let replaced = corner + usize::from(left != *right);
            corner = row[column + 1];
            row[column + 1] = replaced.min(corner + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables() {
        for (name, expected) in [
            ("CUDA_VISIBLE_DEVICE", Some("CUDA_VISIBLE_DEVICES")),
            ("CUDA_VISBLE_DEVICES", Some("CUDA_VISIBLE_DEVICES")),
            ("cuda_visible_devices", Some("CUDA_VISIBLE_DEVICES")),
            ("NVIDIA_VISIBLE_DEVICE", Some("NVIDIA_VISIBLE_DEVICES")),
            ("CUDA_DEVICES_ORDER", Some("CUDA_DEVICE_ORDER")),
            ("CUDA_VISIBLE_GPUS", Some("CUDA_VISIBLE_DEVICES")),
            ("CUDA_VISIBLE_DEVICES", None),
            ("HIP_VISIBLE_DEVICES", None),
            ("ROCR_VISIBLE_DEVICES", None),
            ("NVIDIA_DRIVER_CAPABILITIES", None),
            ("CUDA_VERSION", None),
        ] {
            assert_eq!(variable(name), expected, "{name}");
        }
    }

    #[test]
    fn lists_that_engines_do_not_read() {
        for (text, meant) in [
            ("1-3", Some(vec![1, 2, 3])),
            ("1;3", Some(vec![1, 3])),
            ("1 3", Some(vec![1, 3])),
            ("0, 2-3,2", Some(vec![0, 2, 3])),
            (" 1", Some(vec![1])),
            ("3-1", None),
            ("0-4000000000", None),
            ("-1", None),
            ("", None),
            ("GPU-a1100000", None),
            ("0:1", None),
        ] {
            assert_eq!(numbers(text), meant, "{text:?}");
        }
    }

    #[test]
    fn names_of_gpus_are_known_by_their_form() {
        for list in ["GPU-a11,GPU-a31", "0,MIG-0100c0de", "0:1,2"] {
            assert!(are_gpu_names(list), "{list:?}");
        }
        for list in ["GPU-a11", "0,two", "GPU-,0", "0,capabilities=utility", "0,", "GPU-a11,'GPU-a31"] {
            assert!(!are_gpu_names(list), "{list:?}");
        }
    }

    #[test]
    fn each_source_has_its_flags() {
        assert_eq!(flags(Some(Source::Gpus), &[1]), "--gpus device=1");
        assert_eq!(flags(Some(Source::Gpus), &[1, 3]), r#"--gpus '"device=1,3"'"#);
        assert_eq!(flags(Some(Source::Cdi), &[1, 3]), "--device nvidia.com/gpu=1 --device nvidia.com/gpu=3");
        assert_eq!(flags(Some(Source::User), &[1, 3]), "-e NVIDIA_VISIBLE_DEVICES=1,3");
    }

    #[test]
    fn a_word_is_near_or_it_is_not() {
        let names = ["host-index-override", "withheld"];
        let near = |typed| nearest(typed, names.into_iter());
        assert_eq!(near("host-index-overide"), Some("host-index-override"));
        assert_eq!(near("witheld"), Some("withheld"));
        assert_eq!(near("pytorch"), None);
        assert_eq!((distance("", "abc"), distance("abc", "abc"), distance("abc", "cb")), (3, 0, 2));
    }
}
