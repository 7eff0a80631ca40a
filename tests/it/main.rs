//! The integration tests: the real programs on real runtimes and engines.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test ends by panicking, its helpers with it, and it works on the real system"
)]

mod asked;
mod attacks;
mod bad_input;
mod brain;
mod cells;
mod cli;
mod command;
mod containerd;
mod cudaview_docker;
mod cudaview_runc;
mod cve;
mod docker_provenance;
mod doctor;
mod doors;
mod explain_compose;
mod explain_container;
mod explain_image;
mod generated;
mod gpu_script;
mod guide;
mod harness;
mod hints;
mod hook_doors;
mod hook_nodes;
mod hostile_texts;
mod hosts;
mod hygiene;
mod install;
mod invariants;
mod job;
mod lint;
mod log;
mod manual;
mod mig;
mod named;
mod nvml;
mod packages;
mod pages;
mod passthrough;
mod plain_docker;
mod plain_runc;
mod podman;
mod properties;
mod ps;
mod races;
mod read_only;
mod reports;
mod sandbox;
mod scenarios;
mod semantics;
mod sessions;
mod stand_in;
mod supply;
mod threats;
mod toolkit;
mod typed;
mod units;
mod vectors;
mod world;
