//! The hands: everything that touches the system.

pub mod audit;
pub mod bundle;
pub mod provenance;
pub mod report;
pub mod runtime;
