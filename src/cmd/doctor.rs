//! `cudaview doctor`: what is wrong with this host, causes before effects.

use super::cli::{DoctorArgs, Format};
use super::output::{Failure, footer, print, print_json, style};
use crate::doctor::{Check, examine};
use crate::report::{doctor, doctor_json, doctor_summary};
use crate::sys::doctor::facts;

pub(super) fn run(arguments: &DoctorArgs) -> Result<(), Failure> {
    let root = std::path::absolute(&arguments.root)
        .map_err(|error| Failure::usage(format!("failed to use --root {:?}: {error}", arguments.root), ""))?;
    let checks = examine(&facts(&root));
    let has_problem = checks.iter().any(Check::is_problem);
    match arguments.format {
        Format::Json => print_json(&doctor_json(&checks, arguments.problems))?,
        Format::Human if arguments.problems && !has_problem => print(&format!("{}\n", doctor_summary(&checks)))?,
        Format::Human => {
            print(&doctor(&checks, arguments.problems, style()))?;
            footer(&doctor_summary(&checks));
        }
    }
    if has_problem { Err(Failure::found()) } else { Ok(()) }
}
