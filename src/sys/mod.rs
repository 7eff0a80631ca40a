//! The hands: everything that touches the system.
