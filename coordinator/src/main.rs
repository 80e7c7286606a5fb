//! The coordinator program.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use coordinator::app::{LogWriter, Options, main as coordinator};
use mimalloc::MiMalloc;
use tracing_subscriber::EnvFilter;

/// Thousands of connections come and go over weeks; the system's allocator keeps twice the memory
/// after a flood of them (`cargo run --release -p tests --example siege`).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Whether the user wants no colours: <https://no-color.org>.
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(LogWriter)
        // Its report of a full disk would go to the same stderr, and panic.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal() && !no_color())
        .with_target(false)
        .init();
    coordinator(options).await.into()
}
