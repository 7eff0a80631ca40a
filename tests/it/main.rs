//! The integration tests: real binaries, real files.

mod cli;
mod command;
mod scenarios;
mod vectors;
