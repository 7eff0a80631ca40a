//! The table of `cudaview log`: the audit trail, a line for each container.

use serde_json::Value;

use super::Style;
use super::style::{Tone, cut};
use crate::finding::{printable, quoted};
use crate::record::Variables;

/// An audit record, and when it was written as people read it.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The record.
    pub record: Value,
    /// Its time, in the time zone of whoever asks.
    pub when: String,
}

/// Widths of the columns before the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns([usize; 4]);

const TITLES: [&str; 5] = ["WHEN", "CONTAINER", "GPUS", "CUDA_VISIBLE_DEVICES", "FINDING"];

/// The widths that the columns have at the least, a usual code in the last one.
const LEAST: [usize; 5] = [8, 11, 4, 20, 24];

/// As many characters of an id as engines show.
const SHORT_ID: usize = 12;

/// The first line, and how wide the columns are for these records.
pub fn log_head(logged: &[Logged], style: Style) -> (String, Columns) {
    let mut widths = LEAST;
    for cells in logged.iter().map(cells) {
        for (width, cell) in widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    // What does not fit is taken from the widest; times stay whole.
    let room = style.width.saturating_sub(1 + 2 * (widths.len() - 1));
    for _ in room..widths.iter().sum() {
        let widest = (1..widths.len()).filter(|column| widths[*column] > LEAST[*column]).max_by_key(|c| widths[*c]);
        let Some(widest) = widest else { break };
        widths[widest] -= 1;
    }
    let [when, container, gpus, value, _] = widths;
    let columns = Columns([when, container, gpus, value]);
    (line(&TITLES.map(str::to_owned), columns, None, style), columns)
}

/// The line of a record; with `findings` what was found, and what to type instead, below it.
pub fn log_line(logged: &Logged, columns: Columns, findings: bool, style: Style) -> String {
    let mut cells = cells(logged);
    // A name that is cut cannot be asked about; the beginning of an id can.
    if cells[1].chars().count() > columns.0[1] && logged.record["id"].is_string() {
        cells[1] = short_id(&logged.record).chars().take(columns.0[1]).collect();
    }
    let mut out = line(&cells, columns, worst(&logged.record).and_then(tone), style);
    let all = logged.record["findings"].as_array().into_iter().flatten();
    for finding in all.take(if findings { usize::MAX } else { 0 }) {
        let part = |key: &str| printable(finding[key].as_str().unwrap_or_default());
        let tag = part("severity");
        let said = style.tagged(2, &tag, &format!("{} [{}]", part("message"), part("code")));
        // Painted last: a colour has no width.
        out.push_str(
            &tone(finding).map_or_else(|| said.clone(), |tone| said.replacen(&tag, &style.paint(tone, &tag), 1)),
        );
        if !part("hint").is_empty() {
            out.push_str(&style.tagged(4, "hint", &part("hint")));
        }
    }
    out
}

fn line(cells: &[String; 5], Columns(widths): Columns, tone: Option<Tone>, style: Style) -> String {
    let mut out = String::new();
    let [first @ .., last] = cells;
    for (cell, width) in first.iter().zip(widths) {
        out.push_str(&format!("{:width$}  ", cut(cell, width)));
    }
    let room = style.width.saturating_sub(out.chars().count() + 1).max(LEAST[4] / 2);
    let code = cut(last, room);
    out.push_str(&tone.map_or_else(|| code.clone(), |tone| style.paint(tone, &code)));
    out + "\n"
}

/// What stands in the columns.
fn cells(logged: &Logged) -> [String; 5] {
    let record = &logged.record;
    let text = |key: &str| printable(record[key].as_str().unwrap_or_default());
    let name = if text("name").is_empty() { short_id(record) } else { text("name") };
    [logged.when.clone(), name, gpus(record), value(record), finding(record)]
}

fn short_id(record: &Value) -> String {
    printable(record["id"].as_str().unwrap_or_default()).chars().take(SHORT_ID).collect()
}

/// The host GPUs that its program was given.
fn gpus(record: &Value) -> String {
    let kept: Vec<String> =
        record["kept"].as_array().into_iter().flatten().filter_map(Value::as_str).map(printable).collect();
    if record["verdict"] == "refused" || kept.is_empty() { "none".to_owned() } else { kept.join(",") }
}

/// What became of `CUDA_VISIBLE_DEVICES`.
fn value(record: &Value) -> String {
    let of = |key: &str| serde_json::from_value::<Variables>(record[key].clone()).unwrap_or_default().visible_devices;
    let (before, after) = (of("before"), of("after"));
    let shown = before.as_deref().map_or_else(|| "unset".to_owned(), quoted);
    let became = match (record["verdict"].as_str(), &after) {
        (Some("refused"), _) => format!("{shown} refused"),
        (_, after) if *after == before => shown,
        (_, Some(after)) => format!("{shown} -> {}", printable(after)),
        (_, None) => format!("{shown} -> unset"),
    };
    if record["mode"] == "observe" { format!("observed: {became}") } else { became }
}

/// The finding that matters most, and how many there are beside it.
fn finding(record: &Value) -> String {
    let Some(first) = worst(record) else { return "-".to_owned() };
    let code = printable(first["code"].as_str().unwrap_or_default());
    let count = record["findings"].as_array().map_or(0, Vec::len);
    if count > 1 { format!("{code} +{}", count - 1) } else { code }
}

fn worst(record: &Value) -> Option<&Value> {
    let rank = |finding: &&Value| match finding["severity"].as_str() {
        Some("error") => 0,
        Some("warning") => 1,
        _ => 2,
    };
    record["findings"].as_array()?.iter().min_by_key(rank)
}

/// The colour of a finding's severity.
pub(super) fn tone(finding: &Value) -> Option<Tone> {
    match finding["severity"].as_str()? {
        "error" => Some(Tone::Red),
        "warning" => Some(Tone::Yellow),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const STYLE: Style = Style { width: 80, colour: false };

    fn logged(record: Value) -> Logged {
        Logged { record, when: "13:05:12".to_owned() }
    }

    #[test]
    fn a_line_fits_whatever_names_and_values_are() {
        let long = "x".repeat(300);
        let record = json!({"name": long, "id": long, "kept": ["0", "1", "2", "3", "4", "5", "6", "7", "8"],
            "before": {"cvd": long}, "after": {"cvd": long.clone() + "y"},
            "findings": [{"severity": "info", "code": long, "message": long, "hint": long}]});
        let all = [logged(record)];
        let (head, columns) = log_head(&all, STYLE);
        for line in [head.trim_end(), log_line(&all[0], columns, false, STYLE).trim_end()] {
            assert!(line.chars().count() < 80, "{line}");
        }
    }

    #[test]
    fn a_name_that_does_not_fit_is_the_beginning_of_the_id() {
        let record = |name: &str| {
            json!({"id": "dc9680783fa673af2bba", "name": name, "verdict": "refused",
            "before": {"cvd": "1"}, "findings": [{"code": "override-matches-nothing", "severity": "error"}]})
        };
        let all = [logged(record("a_name_of_more_than_a_terminal_has_room_for")), logged(record("trainer"))];
        let (_, columns) = log_head(&all, STYLE);
        let shown: Vec<String> = all.iter().map(|logged| log_line(logged, columns, false, STYLE)).collect();
        assert!(shown[0].starts_with("13:05:12  dc9680783fa6 "), "{}", shown[0]);
        assert!(shown[1].starts_with("13:05:12  trainer "), "{}", shown[1]);
    }

    #[test]
    fn terminal_sequences_are_not_passed_on() {
        let escape = "\u{1b}[31m\n";
        let record = json!({"name": escape, "kept": [escape], "before": {"cvd": escape},
            "after": {"cvd": escape}, "findings": [{"code": escape, "message": escape}]});
        let all = [logged(record)];
        let (_, columns) = log_head(&all, STYLE);
        let text = log_line(&all[0], columns, true, STYLE);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(text.lines().count(), 2, "{text:?}");
    }

    #[test]
    fn what_is_no_record_is_still_a_line() {
        let all = [logged(json!({"findings": 3, "kept": {}, "before": []}))];
        let (_, columns) = log_head(&all, STYLE);
        assert_eq!(log_line(&all[0], columns, true, STYLE), "13:05:12               none  unset                 -\n");
    }
}
