//! The hands: everything that touches the system.

pub mod configuration;
pub mod inventory;
pub mod nvml;
pub mod trusted;
