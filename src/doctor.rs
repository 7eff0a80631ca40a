//! `cudaview doctor`: what was found out about a host → what is wrong with it, causes before effects.

mod container;
mod driver;
mod engines;
mod facts;
mod host;
#[cfg(test)]
mod inside;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use container::{Inside, InsideNode, examine_container};
pub use facts::{
    Cdi, CdiFile, Containerd, Docker, Driver, Facts, File, GpusFlag, HookFile, Node, NodeState, Podman, Presence,
    Process, Program, Runtime, SeLinux, Toolkit, Trouble,
};

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Something works otherwise than somebody would expect.
    Warning,
    /// Something does not work.
    Error,
    /// It was not looked at; the line says why.
    Skipped,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// What it is about, in two words at most.
    pub name: &'static str,
    /// What it came to.
    pub status: Status,
    /// What was found, in one line.
    pub line: String,
    /// What follows from it, for a problem.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub consequence: String,
    /// Files and engines that were asked.
    pub looked_at: Vec<String>,
    /// What to type; empty where there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

impl Check {
    fn new(name: &'static str, status: Status, line: impl Into<String>) -> Self {
        Self { name, status, line: line.into(), consequence: String::new(), looked_at: Vec::new(), fix: String::new() }
    }

    fn ok(name: &'static str, line: impl Into<String>) -> Self {
        Self::new(name, Status::Ok, line)
    }

    fn skipped(name: &'static str, line: impl Into<String>) -> Self {
        Self::new(name, Status::Skipped, line)
    }

    fn error(name: &'static str, line: impl Into<String>) -> Self {
        Self::new(name, Status::Error, line)
    }

    fn warning(name: &'static str, line: impl Into<String>) -> Self {
        Self::new(name, Status::Warning, line)
    }

    fn so(self, consequence: impl Into<String>) -> Self {
        Self { consequence: consequence.into(), ..self }
    }

    fn looked_at<T: Into<String>>(self, places: impl IntoIterator<Item = T>) -> Self {
        Self { looked_at: places.into_iter().map(Into::into).collect(), ..self }
    }

    fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: fix.into(), ..self }
    }

    /// Whether something is to be done.
    pub fn is_problem(&self) -> bool {
        matches!(self.status, Status::Warning | Status::Error)
    }
}

/// Every check, in the order of causes: what stands first can be the reason for what stands below it.
pub fn examine(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![
        driver::driver(facts),
        driver::gpus(facts),
        driver::nodes(facts),
        driver::inventory(facts),
        host::policy(facts),
    ];
    checks.extend(host::programs(facts));
    checks.extend([
        host::toolkit(facts),
        host::cdi(facts),
        engines::docker(facts),
        engines::gpus_flag(facts),
        engines::podman(facts),
        engines::containerd(facts),
        host::cgroups(facts),
        host::systemd(facts),
        host::selinux(facts),
        host::processes(facts),
    ]);
    checks
}
