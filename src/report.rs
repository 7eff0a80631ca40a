//! Reports: what was decided, as JSON for programs and as text for people. Nothing here prints.

#![expect(clippy::format_push_string, reason = "a report has some thirty lines, and reads best as they are printed")]

mod changes;
mod container;
mod doctor;
mod gone;
mod hints;
mod human;
mod image;
mod inventory;
mod json;
mod lint;
mod log;
mod migration;
mod page;
mod predict;
mod ps;
mod refusal;
mod said;
mod services;
mod style;
mod words;

pub use container::{AsIs, Container, Made, Origin, Tense};
pub use doctor::{doctor, doctor_json, doctor_summary};
pub use gone::{gone, gone_json};
pub use human::explain;
pub use image::{FoundIn, ImageSource};
pub use inventory::inventory_table;
pub use json::{explain_json, predict_json};
pub use lint::{
    Looked, lint_command, lint_command_footer, lint_command_json, lint_files, lint_files_json, lint_footer,
};
pub use log::{Columns, Logged, log_head, log_line};
pub use migration::{Fate, migration};
pub use page::page;
pub use predict::predict_text;
pub use ps::{Held, Holder, Outside, ps_json, ps_table};
pub use refusal::{exec_refusal, refusal};
pub use services::services_table;
pub use style::Style;

use crate::compose::Way;
use crate::inventory::Inventory;
use crate::plan::{ExecPlan, Plan};
use crate::situation::Situation;

/// What the image has built in, where that is known: for the lines that say who was outranked.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ImageEnv {
    /// The image's `CUDA_VISIBLE_DEVICES`.
    pub visible_devices: Option<String>,
    /// The image's `CUDA_DEVICE_ORDER`.
    pub device_order: Option<String>,
    /// The image's `NVIDIA_VISIBLE_DEVICES`.
    pub nvidia_visible_devices: Option<String>,
    /// The image itself, where one was asked about.
    pub source: Option<ImageSource>,
}

/// Where the facts come from, and so what a report may say that somebody typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The flags themselves.
    Flags,
    /// A `config.json`, and nothing of the engine.
    Bundle,
    /// A container that is being created or was: the engine's files where there are any.
    Engine,
    /// A Compose file.
    Compose {
        /// How `CUDA_VISIBLE_DEVICES` came to the service, where the file gave it.
        visible_devices: Way,
        /// How `NVIDIA_VISIBLE_DEVICES` did.
        nvidia: Way,
        /// How `CUDA_DEVICE_ORDER` did.
        device_order: Way,
    },
}

/// What a report is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The host.
    pub inventory: &'a Inventory,
    /// What was looked at.
    pub situation: &'a Situation,
    /// What was decided.
    pub plan: &'a Plan,
    /// What was decided for a process that is added, if one was asked about.
    pub exec: Option<&'a ExecPlan>,
    /// What the image has built in.
    pub image: &'a ImageEnv,
    /// The container's name, if it has one.
    pub name: Option<&'a str>,
    /// The container that it is about, where that exists.
    pub container: Option<&'a Container>,
    /// It has happened; otherwise it is a what-if.
    pub done: bool,
    /// Where its facts come from.
    pub told: Told,
    /// The configuration says to write down, and to do nothing.
    pub observe: bool,
    /// Why the origin of a value is not known, where it is not: `looked at …`.
    pub origin_unknown: &'a str,
}
