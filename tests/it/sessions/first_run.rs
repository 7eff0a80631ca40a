//! Session 1: numbers that contradict each other, and where one reads what became of them.

use std::process::Command;

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::as_it_is;
use super::terminal::screens;
use crate::command::cudaview;
use crate::explain_container::pages::trainer;
use crate::log::Trail;

/// Where everybody begins.
#[test]
fn no_arguments() {
    insta::assert_snapshot!(screens("cudaview", cudaview, as_it_is));
}

/// An id that is as long as a real one.
fn id(name: &str) -> String {
    let bytes: Vec<String> = name.bytes().cycle().take(32).map(|byte| format!("{byte:02x}")).collect();
    bytes.concat()
}

/// The trail of a day.
fn day(date: &str) -> Trail {
    let trail = Trail::new();
    for record in records(date) {
        trail.append(&record);
    }
    trail
}

/// Three records of a day, and one of podman's.
fn records(date: &str) -> Vec<Value> {
    let mut records = Vec::new();
    let mut add = |name: &str, engine: &str, time: &str, facts: Value| {
        let mut record = json!({"schemaVersion": 1, "time": format!("{date}T{time}Z"), "door": "runtime",
            "mode": "enforce", "id": id(name), "name": name, "engine": engine, "image": "pytorch-cuda:v2.6",
            "provenance": "user"});
        record.as_object_mut().unwrap().extend(facts.as_object().unwrap().clone());
        records.push(record);
    };
    let finding = |code: &str, severity: &str, message: &str, hint: &str| json!([{"code": code, "severity": severity, "message": message, "hint": hint}]);
    let refused = |source: &str| {
        json!({"verdict": "refused", "source": [source], "granted": ["0"], "kept": ["0"], "visible": [],
            "before": {"cvd": "1"}, "after": {"cvd": "1"},
            "findings": finding("override-matches-nothing", "error",
                "CUDA_VISIBLE_DEVICES=\"1\" names none of the granted GPUs", "")})
    };
    add(
        "notebook",
        "docker",
        "12:58:40",
        json!({"verdict": "rewritten", "source": ["gpus"], "granted": ["2"], "kept": ["2"], "visible": ["2"],
            "provenance": "unset", "before": {"nvd": "2"},
            "after": {"cvd": "0", "order": "PCI_BUS_ID", "trace": "2"}, "findings": []}),
    );
    add("brave_curie", "docker", "13:01:17", refused("gpus"));
    add(
        "trainer",
        "docker",
        "13:05:12",
        json!({"verdict": "rewritten", "source": ["gpus"], "granted": ["1", "3"], "kept": ["1", "3"],
            "visible": ["1", "3"], "before": {"cvd": "1,3", "nvd": "1,3"},
            "after": {"cvd": "0,1", "order": "PCI_BUS_ID", "nvd": "GPU-a1100000-0002-4001-8000-000000002222,\
                GPU-a3100000-0004-4003-8000-000000004444", "trace": "1,3"},
            "findings": finding("host-index-override", "info",
                "CUDA_VISIBLE_DEVICES=\"1,3\" holds host numbers; inside they are 0,1",
                "leave CUDA_VISIBLE_DEVICES out, or count from 0: 0,1")}),
    );
    add("sad_euler", "podman", "13:09:44", refused("cdi"));
    records
}

/// The date that `log` takes for today's, which shows the hour alone.
fn today() -> String {
    jiff::Timestamp::now().to_zoned(TimeZone::UTC).date().to_string()
}

/// Screens with the hours of one day, however late it is.
#[track_caller]
pub(super) fn of_today(show: impl Fn(&Trail) -> String) -> String {
    loop {
        let before = today();
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| show(&day(&before))));
        if before == today() {
            return seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }
}

pub(super) fn log(trail: &Trail, arguments: &[&str]) -> Command {
    let mut command = cudaview();
    command.arg("log").arg("--config").arg(trail.config()).args(arguments).env("TZ", "UTC");
    command
}

#[test]
fn the_log() {
    insta::assert_snapshot!(of_today(|trail| screens("cudaview log", || log(trail, &[]), as_it_is)));
}

#[test]
fn the_log_with_findings() {
    let typed = "cudaview log --findings";
    insta::assert_snapshot!(of_today(|trail| screens(typed, || log(trail, &["--findings"]), as_it_is)));
}

#[test]
fn a_container() {
    let daemon = trainer();
    let typed = "cudaview explain --container trainer";
    insta::assert_snapshot!(screens(typed, || daemon.command("trainer"), |seen| daemon.clean(seen)));
}

/// `--rm` has taken it away, if it was ever there; the log's "why" still holds.
#[test]
fn a_container_that_is_gone() {
    let daemon = trainer().configured("", &records("2020-11-28"));
    let typed = "cudaview explain --container brave_curie";
    insta::assert_snapshot!(screens(typed, || daemon.command("brave_curie"), |seen| daemon.clean(seen)));
}
