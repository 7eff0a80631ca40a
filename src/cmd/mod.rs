//! The shells: each reads, asks the library, acts and reports.

pub mod door;
pub mod failure;
pub mod hook;
pub mod runtime;
