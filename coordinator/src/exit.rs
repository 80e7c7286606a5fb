//! The exit codes that scripts rely on.

use std::process::ExitCode;

/// How a program of this crate ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done; for a run: complete, and no check contradicts it.
    Success,
    /// Something failed.
    Error,
    /// The command line makes no sense.
    Usage,
    /// A check contradicts the total.
    Contradicted,
    /// Stopped by a signal, with everything saved.
    Interrupted,
}

impl Exit {
    /// The process's exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Error => 1,
            Self::Usage => 2,
            Self::Contradicted => 3,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
