//! The OCI runtime wrapper; see [`cudaview::cmd::runtime`].
#![allow(clippy::disallowed_methods, reason = "a program reads its arguments")]
#![no_main]

use std::ffi::OsString;

/// Rust's own start-up would ignore SIGPIPE and open closed descriptors, and the low-level runtime would inherit that.
#[expect(unsafe_code, reason = "the symbol that the C library calls")]
// SAFETY: nothing else in this program is called `main`.
#[unsafe(no_mangle)]
pub extern "C" fn main(_argc: std::ffi::c_int, _argv: *const *const std::ffi::c_char) -> std::ffi::c_int {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    cudaview::cmd::runtime::run(&args).code().into()
}
