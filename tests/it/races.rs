//! Rename races, shared volumes and storms, against the hook under real runtimes.
//!
//! `sys::rootfs::node::races` has the same in one process, with many more rounds. What is printed here is in the log of
//! a run, whether a test fails or not.

mod starts;
mod storm;
mod volumes;
