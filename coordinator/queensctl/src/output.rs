//! Standard output.

use std::io::{self, Write as _};

use anyhow::Context as _;

use coordinator::text::{prose, stdout_width};

/// Writes lines to stdout; a reader that has seen enough (`| head`) is no error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes sentences to stdout, their lines broken at spaces where a terminal would break them in words.
pub(super) fn print_prose(text: &str) -> anyhow::Result<()> {
    print(&prose(text, stdout_width()))
}
