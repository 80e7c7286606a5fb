//! What the program prints. A stream that takes nothing more, such as a closed pipe or a full disk,
//! is never a reason to panic.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use worker::terminal::aside;

/// Output that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub(crate) struct Unwritten(io::Error);

/// Prints a line on standard output. A reader that has seen enough (`| head`) is no error.
pub(crate) fn print(line: &str) -> Result<(), Unwritten> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Unwritten),
    }
}

/// Says a line on standard error, as far as anybody can hear.
pub(crate) fn tell(line: &str) {
    aside(|| {
        let _ = writeln!(io::stderr(), "{line}");
    });
}

/// Says in one line what is wrong, and how the program ends.
pub(crate) fn fail(code: u8, what: impl std::fmt::Display) -> ExitCode {
    tell(&format!("error: {what}"));
    ExitCode::from(code)
}
