//! The integration tests: real binaries, real files.

mod cli;
mod scenarios;
mod support;
mod vectors;
