//! The shells: each reads, asks the library, acts and reports.

pub mod alone;
pub mod cli;
mod container;
mod demo;
pub mod door;
mod explain;
pub mod failure;
mod flags;
pub mod hook;
mod inventory;
mod lint;
mod output;
pub mod precreate;
mod predict;
pub mod runtime;
