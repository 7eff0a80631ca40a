//! The commands: each reads, asks the brain, and reports.

pub mod cli;
mod demo;
mod explain;
mod inventory;
mod output;
mod predict;

pub use cli::main;
