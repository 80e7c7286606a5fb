//! The worker program.

mod cli;
mod count_command;
mod estimate_command;
mod progress;
mod request;
mod say;
mod serve_command;
mod stop_command;

use std::process::ExitCode;

use common::kernel::Kernel;

use cli::{Cli, Command};
use say::{fail, print};

/// Interrupted by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Bad usage: the same command fails again.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let Cli {
        command,
        serve,
        manner,
    } = Cli::read();
    manner.keep();
    match command {
        Some(Command::Count(arguments)) => count_command::run(&arguments),
        Some(Command::Estimate(arguments)) => estimate_command::run(&arguments),
        Some(Command::Kernels) => kernels(),
        Some(Command::Stop(arguments)) => stop_command::run(&arguments),
        None => serve_command::run(&serve, manner),
    }
}

fn kernels() -> ExitCode {
    let printed = Kernel::available()
        .iter()
        .try_for_each(|kernel| print(&kernel.to_string()));
    printed.map_or_else(|error| fail(1, error), |()| ExitCode::SUCCESS)
}
