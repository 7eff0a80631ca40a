//! cudaview makes the GPU numbers inside a container mean one thing.
//!
//! ```text
//! argv, bundle ─► Value (lossless JSON) ─► Spec ─┐
//! engine's files ────────────────► EngineFacts ──┼─► Situation ─┐
//! host (/proc, /dev) ────────────► HostFacts ────┘              │   Inventory, Config
//! ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ pure from here ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┴────────┬─ ─ ─ ─ ─
//! grant ─► reconcile ─► Plan {verdict, emitted variables, findings} ◄─────┘
//!                        └─► ContainerEdits ─► report (text, JSON)
//! ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─
//! apply once (a temporary file and a rename, only if it changed) ─► execve the real runtime
//! ```
//!
//! What is not under [`sys`] or [`cmd`] opens no file, reads no clock and no environment, and prints nothing.

pub mod argv;
pub mod cdi;
#[allow(clippy::disallowed_methods, reason = "a shell gathers, acts and reports")]
pub mod cmd;
pub mod compose;
pub mod config;
pub mod cuda;
pub mod device;
pub mod doctor;
pub mod edits;
pub mod exit;
pub mod finding;
pub mod grant;
pub mod image;
pub mod inspected;
pub mod install;
pub mod inventory;
pub mod job;
pub mod lint;
pub mod node;
pub mod plan;
pub mod provenance;
pub mod reconcile;
pub mod record;
pub mod recorded;
pub mod report;
pub mod request;
pub mod shell;
pub mod situation;
pub mod spec;
pub mod spelling;
#[allow(clippy::disallowed_methods, reason = "the hands touch the system")]
pub mod sys;
pub mod toolkit;
pub mod typed;
pub mod unambiguous;
pub mod usage;
pub mod whatif;
