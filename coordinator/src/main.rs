//! The coordinator program.

use std::process::ExitCode;

use coordinator::app::{Options, main as coordinator};
use mimalloc::MiMalloc;

/// Allocator that, after a connection flood, retains half as much as the system's
/// (`cargo run --release --example bench -- under-attack`).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read();
    options.terminal.apply();
    let brief = options.is_brief().then_some("worker");
    cli::terminal::start_log(options.log_format, options.terminal, brief);
    coordinator(options).await.into()
}
