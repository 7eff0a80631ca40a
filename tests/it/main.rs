//! The integration tests: the real programs on real runtimes and engines.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends by panicking, and its helpers with it"
)]

mod harness;
mod plain_docker;
mod plain_runc;
mod world;
