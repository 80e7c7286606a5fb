//! The coordinator program.

use std::process::ExitCode;

use coordinator::app::{Options, main as coordinator};
use mimalloc::MiMalloc;

/// Thousands of connections come and go over weeks; the system's allocator keeps twice the memory
/// after a flood of them (`cargo run --release -p tests --example siege`).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read();
    options.manner.keep();
    worker::log::start(options.log_format, options.manner);
    coordinator(options).await.into()
}
