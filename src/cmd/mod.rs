//! The shells: each reads, asks the library, acts and reports.

pub mod alone;
pub mod door;
pub mod failure;
pub mod hook;
pub mod precreate;
pub mod runtime;
