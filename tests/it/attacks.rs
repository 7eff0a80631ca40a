//! Attacks and faults: whoever wrote the image, whoever types odd command lines, and a system that fails half-way.

mod command_line;
pub(crate) mod dev;
mod exec;
mod faults;
mod files;
mod helper;
mod image;
mod nvidia;
mod policy;
mod processes;
mod rules;
mod sizes;
mod targets;
mod values;
