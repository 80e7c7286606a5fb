//! The coordinator program.

use std::process::ExitCode;

use coordinator::app::{Options, main as coordinator};
use mimalloc::MiMalloc;

/// Keeps half the memory that the system's allocator keeps after a flood of connections
/// (`cargo run --release -p tests --example many_workers -- --attack`).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read();
    options.terminal.apply();
    cli::terminal::start_log(options.log_format, options.terminal);
    coordinator(options).await.into()
}
