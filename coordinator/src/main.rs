//! The coordinator program.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use coordinator::app::{Options, main as coordinator};
use mimalloc::MiMalloc;
use tracing_subscriber::EnvFilter;
use worker::terminal::LogWriter;

/// Thousands of connections come and go over weeks; the system's allocator keeps twice the memory
/// after a flood of them (`cargo run --release -p tests --example siege`).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read();
    let manner = options.manner;
    manner.keep();
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(manner.log_level()));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(LogWriter)
        // Its report of a full disk would go to the same stderr, and panic.
        .log_internal_errors(false)
        .with_ansi(manner.colours(io::stderr().is_terminal()))
        .with_target(false)
        .init();
    coordinator(options).await.into()
}
