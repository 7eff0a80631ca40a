//! cudaview makes the GPU numbers inside a container mean one thing.

pub mod cmd;
pub mod device;
pub mod exit;
pub mod finding;
pub mod inventory;
pub mod node;
pub mod sys;
