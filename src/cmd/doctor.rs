//! `cudaview doctor`: what is wrong with this host, or with a running container, causes before effects.

use super::cli::{DoctorArgs, Format};
use super::output::{Failure, aside, print, print_json, style};
use crate::doctor::{Check, examine, examine_container};
use crate::exit::Exit;
use crate::report::{doctor, doctor_json, doctor_summary};
use crate::sys::doctor::{InsideError, facts, inside};

pub(super) fn run(arguments: &DoctorArgs) -> Result<Exit, Failure> {
    let checks = if let Some(name) = &arguments.container {
        examine_container(&inside(name)?)
    } else {
        let failed = |error| Failure::usage(format!("failed to use --root {:?}: {error}", arguments.root), "");
        let root = std::fs::canonicalize(&arguments.root).map_err(failed)?;
        examine(&facts(&root))
    };
    let has_problem = checks.iter().any(Check::is_problem);
    match arguments.format {
        Format::Json => print_json(&doctor_json(&checks, arguments.problems))?,
        Format::Human if arguments.problems && !has_problem => print(&format!("{}\n", doctor_summary(&checks)))?,
        Format::Human => {
            print(&doctor(&checks, arguments.problems, style()))?;
            aside(&format!("\n{}\n", doctor_summary(&checks)));
        }
    }
    Ok(if has_problem { Exit::Failed } else { Exit::Done })
}

impl From<InsideError> for Failure {
    fn from(error: InsideError) -> Self {
        let exit = if matches!(error, InsideError::NoName(_)) { Exit::Usage } else { Exit::BadInput };
        let hint = error.hint();
        Self::new(exit, error, hint)
    }
}
