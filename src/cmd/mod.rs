//! The shells.
