//! Words for devices, selections and numbers: the same ones in every report.

use crate::inventory::{Device, Inventory};
use crate::request::{DeviceRequest, Selection, Source};

/// `1`, `1 and 3`, `0 to 3`, `0, 2 and 3`: a run of three or more is shown by its ends.
pub(super) fn list(items: &[String]) -> String {
    let numbers: Option<Vec<u32>> = items.iter().map(|item| item.parse().ok()).collect();
    let is_run = |numbers: &Vec<u32>| numbers.len() > 2 && numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    match items {
        [] => "none".to_owned(),
        [only] => only.clone(),
        [first, .., last] if numbers.as_ref().is_some_and(is_run) => format!("{first} to {last}"),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

/// `host GPU 1`, `host GPUs 1 and 3`, `MIG devices 0:0 and 0:1`.
pub(super) fn host(inventory: &Inventory, devices: &[Device]) -> String {
    let labels: Vec<String> = devices.iter().map(|device| inventory.host_label(*device)).collect();
    format!("{} {}", noun(devices, "host GPU"), list(&labels))
}

/// `GPU` or `MIG device`, in the plural where it has to be; `gpu` is the word for a full one.
pub(super) fn noun(devices: &[Device], gpu: &str) -> String {
    let migs = devices.iter().filter(|device| device.mig.is_some()).count();
    let word = match migs {
        0 => gpu,
        all if all == devices.len() => "MIG device",
        _ => "device",
    };
    if devices.len() == 1 { word.to_owned() } else { format!("{word}s") }
}

/// `2 GPUs`, `1 MIG device`.
pub(super) fn count(devices: &[Device]) -> String {
    format!("{} {}", devices.len(), noun(devices, "GPU"))
}

/// `both`, `all 4`.
pub(super) fn all_of(count: usize) -> String {
    if count == 2 { "both".to_owned() } else { format!("all {count}") }
}

/// How one would type this selection: one spelling, since engines do not keep the typed one.
pub(super) fn typed(inventory: &Inventory, request: &DeviceRequest) -> String {
    match request.source {
        Source::Gpus => format!("--gpus {}", gpus_value(&request.selection)),
        Source::Cdi | Source::Nodes => names(inventory, &request.selection)
            .iter()
            .map(|name| format!("--device nvidia.com/gpu={name}"))
            .collect::<Vec<_>>()
            .join(" "),
        Source::VolumeMounts => "the device plugin".to_owned(),
        Source::User => format!("-e NVIDIA_VISIBLE_DEVICES=\"{}\"", names(inventory, &request.selection).join(",")),
        Source::Image => format!("image NVIDIA_VISIBLE_DEVICES=\"{}\"", names(inventory, &request.selection).join(",")),
        Source::Policy => "the policy".to_owned(),
        Source::Record => "an earlier decision".to_owned(),
    }
}

/// The value of `--gpus`, as Docker must get it: a list in double quotes.
fn gpus_value(selection: &Selection) -> String {
    match selection {
        Selection::Nothing => "0".to_owned(),
        Selection::All => "all".to_owned(),
        Selection::Count(count) => count.to_string(),
        Selection::Names(names) => gpus_devices(names),
        Selection::Minors(minors) => gpus_devices(&minors.iter().map(ToString::to_string).collect::<Vec<_>>()),
    }
}

/// `device=1`, or `"device=1,3"`.
pub(super) fn gpus_devices(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| super::style::cut(&name.escape_debug().to_string(), 40)).collect();
    match names.as_slice() {
        [only] => format!("device={only}"),
        several => format!("\"device={}\"", several.join(",")),
    }
}

/// The names in a selection; somebody else's, so cut and escaped.
fn names(inventory: &Inventory, selection: &Selection) -> Vec<String> {
    match selection {
        Selection::Nothing => vec!["none".to_owned()],
        Selection::All => vec!["all".to_owned()],
        Selection::Count(count) => (0..*count).map(|n| n.to_string()).collect(),
        Selection::Names(names) => {
            names.iter().map(|name| super::style::cut(&name.escape_debug().to_string(), 40)).collect()
        }
        Selection::Minors(minors) => minors
            .iter()
            .map(|minor| match inventory.position_of_minor(*minor) {
                Some(gpu) => inventory.gpus[gpu].index.to_string(),
                None => format!("/dev/nvidia{minor}"),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_a_person_would_say_them() {
        let say = |items: &[&str]| list(&items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>());
        assert_eq!(say(&["1"]), "1");
        assert_eq!(say(&["0", "1"]), "0 and 1");
        assert_eq!(say(&["0", "1", "2"]), "0 to 2");
        assert_eq!(say(&["3", "2", "1"]), "3, 2 and 1");
        assert_eq!(say(&["0:0", "0:1", "1"]), "0:0, 0:1 and 1");
    }
}
