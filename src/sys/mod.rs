//! The hands: everything that touches the system.

pub mod provenance;
