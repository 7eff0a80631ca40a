//! `cudaview completion` and `cudaview manual`: made from the command line's own definition, and from what the other programs
//! say of themselves.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap_complete::Shell;

use super::manual_programs::{PROGRAMS, behind_cudaview, page};
use super::output::{Failure, print};
use crate::exit::Exit;

/// Prints what makes a shell complete our commands.
pub(super) fn completion(shell: Shell, command: &clap::Command) -> Result<(), Failure> {
    // clap completes hidden commands too.
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut visible = clap::Command::new("cudaview").version(env!("CARGO_PKG_VERSION")).subcommands(shown);
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut visible, "cudaview", &mut out);
    print(&String::from_utf8_lossy(&out))
}

/// Writes a page for each program and each command of `cudaview` into a folder that exists.
pub(super) fn pages(folder: &Path, command: clap::Command) -> Result<(), Failure> {
    let names = names(&command, "cudaview");
    let written = clap_mangen::generate_to(command.disable_help_subcommand(true), folder).and_then(|()| {
        for name in names {
            let path = folder.join(format!("{name}.1"));
            let made = fs::read_to_string(&path)?;
            fs::write(&path, unfilled(&made))?;
        }
        for program in &PROGRAMS {
            fs::write(folder.join(format!("{}.8", program.name)), page(program))?;
        }
        let mut cudaview = fs::OpenOptions::new().append(true).open(folder.join("cudaview.1"))?;
        cudaview.write_all(behind_cudaview().as_bytes())
    });
    let written = written.with_context(|| format!("failed to write manual pages to {}", folder.display()));
    written.map_err(|error| Failure::new(Exit::Failed, error, "the folder must exist"))
}

/// The pages that are made of a command and of those below it.
fn names(command: &clap::Command, name: &str) -> Vec<String> {
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    let below = below.flat_map(|below| names(below, &format!("{name}-{}", below.get_name())));
    std::iter::once(name.to_owned()).chain(below).collect()
}

/// Indented lines behind the options are commands: man(1) must neither fill nor hyphenate what is there to be pasted.
fn unfilled(page: &str) -> String {
    let Some((before, after)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let mut out = format!("{before}.SH NOTES\n");
    let mut in_commands = false;
    for line in after.lines() {
        if line.starts_with("  ") != in_commands {
            in_commands = !in_commands;
            out.push_str(if in_commands { ".nf\n" } else { ".fi\n" });
        }
        out.push_str(line);
        out.push('\n');
    }
    if in_commands {
        out.push_str(".fi\n");
    }
    out
}
