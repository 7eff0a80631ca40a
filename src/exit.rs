//! The one table of exit codes. The manual pages and `docs/exit-codes.md` repeat it; tests compare them.

/// How a program of this project ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// The operation failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Refused by the rules or by policy.
    Refused = 3,
    /// The container's files are not what they should be.
    BadInput = 4,
    /// The host's GPUs are not known.
    NoInventory = 5,
    /// The configuration is wrong.
    Configuration = 6,
    /// A bug in this program.
    Bug = 70,
}

impl Exit {
    /// Every code with its meaning, in order.
    pub const TABLE: [(Exit, &'static str); 8] = [
        (Exit::Done, "done"),
        (Exit::Failed, "the operation failed"),
        (Exit::Usage, "usage"),
        (Exit::Refused, "refused by the rules or by policy"),
        (Exit::BadInput, "bad input"),
        (Exit::NoInventory, "no inventory"),
        (Exit::Configuration, "configuration"),
        (Exit::Bug, "a bug in cudaview"),
    ];

    /// The number that the shell sees.
    pub fn code(self) -> u8 {
        self as u8
    }
}
