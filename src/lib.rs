//! cudaview makes the GPU numbers inside a container mean one thing.

pub mod argv;
pub mod cmd;
pub mod config;
pub mod cuda;
pub mod device;
pub mod exit;
pub mod finding;
pub mod grant;
pub mod inventory;
pub mod node;
pub mod plan;
pub mod provenance;
pub mod reconcile;
pub mod record;
pub mod report;
pub mod request;
pub mod situation;
pub mod spec;
pub mod sys;
pub mod whatif;
