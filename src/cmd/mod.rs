//! The shells: each reads, asks the library, acts and reports.

pub mod hook;
