//! `cudaview log`: the audit trail.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::cli::{Format, LogArgs};
use super::output::{Failure, note, print, print_line, style, why};
use crate::exit::Exit;
use crate::report::{Logged, log_head, log_line};
use crate::sys::audit::{self, Trail};
use crate::sys::configuration;

/// What is said once, below a table.
const WHY: &str = "cudaview explain --container NAME (also for containers that are gone)";

pub(super) fn run(arguments: &LogArgs) -> Result<(), Failure> {
    let config = match &arguments.config {
        Some(file) => configuration::load_file(file)?,
        None => configuration::load()?,
    };
    let place = audit::place(&config.audit);
    let trail = match audit::read(&config.audit) {
        Ok(trail) => trail,
        Err(reason) if reason == audit::MISSING => Trail::default(),
        Err(reason) => return Err(unreadable(&place, &reason)),
    };
    let (records, others) = trail.newest(arguments.lines);
    if others > 0 {
        let (lines, are) = if others == 1 { ("a line", "is no record") } else { ("lines", "are no records") };
        let count = if others == 1 { String::new() } else { format!("{others} ") };
        note(&format!("{count}{lines} of {place} {are} of this version, and left out"));
    }
    if records.is_empty() && !arguments.follow {
        if arguments.lines == 0 {
            return Ok(());
        }
        if others == 0 {
            note(&format!("nothing is written down yet in {place}"));
        }
        return Ok(());
    }
    let (zone, style) = (TimeZone::system(), style());
    let logged = |record| logged(record, &zone);
    let all: Vec<Logged> = records.into_iter().map(logged).collect();
    let (head, columns) = log_head(&all, style);
    let show = |logged: &Logged| match arguments.format {
        Format::Json => print_line(&logged.record),
        Format::Human => print(&log_line(logged, columns, arguments.findings, style)),
    };
    if arguments.format == Format::Human {
        print(&head)?;
    }
    all.iter().try_for_each(show)?;
    if arguments.follow {
        return match audit::follow(&config.audit, &trail, &mut |record| show(&logged(record)).map_err(End::Reader)) {
            Ok(()) => Ok(()),
            Err(End::Reader(failure)) => Err(failure),
            Err(End::Trail(reason)) => Err(unreadable(&place, &reason)),
        };
    }
    if arguments.format == Format::Human {
        why(WHY);
    }
    Ok(())
}

/// Why following ends.
enum End {
    /// Nobody can be shown it.
    Reader(Failure),
    /// There is nothing to read.
    Trail(String),
}

impl From<String> for End {
    fn from(reason: String) -> Self {
        End::Trail(reason)
    }
}

fn unreadable(place: &str, reason: &str) -> Failure {
    let error = anyhow::anyhow!("failed to read {place}: {reason}");
    if reason == audit::OFF {
        let hint = "audit = \"auto\" in the configuration writes down what is changed or refused";
        return Failure::new(Exit::Configuration, anyhow::anyhow!("nothing is written down: {reason}"), hint);
    }
    let hint = if reason == audit::DENIED { "sudo cudaview log, or as a member of the trail's group" } else { "" };
    Failure::new(Exit::Failed, error, hint)
}

/// A record with its time on the wall's clock; of another day, its date.
fn logged(record: Value, zone: &TimeZone) -> Logged {
    let text = record["time"].as_str().unwrap_or_default();
    let when = text.parse::<Timestamp>().ok().map(|time| {
        let (time, now) = (time.to_zoned(zone.clone()), Timestamp::now().to_zoned(zone.clone()));
        let form = if time.date() == now.date() {
            "%H:%M:%S"
        } else if time.year() == now.year() {
            "%b %d %H:%M"
        } else {
            "%Y-%m-%d"
        };
        time.strftime(form).to_string()
    });
    Logged { when: when.unwrap_or_else(|| "-".to_owned()), record }
}
