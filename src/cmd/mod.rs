//! The shells: each reads, asks the library, acts and reports.

pub mod alone;
pub mod cli;
mod command;
mod compose;
mod container;
mod demo;
mod doctor;
pub mod door;
mod explain;
pub mod failure;
mod flags;
pub mod hook;
mod image;
mod install;
mod inventory;
mod job;
mod lint;
mod log;
mod manual;
mod manual_programs;
mod output;
pub mod precreate;
mod predict;
mod ps;
pub mod runtime;
mod stand_in;
