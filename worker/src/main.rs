//! The worker program.

mod cli;
mod count_command;
mod serve_command;

use std::process::ExitCode;

use clap::Parser;
use common::kernel::Kernel;

use cli::{Cli, Command};

/// Interrupted by Ctrl-C.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let Cli { command, serve } = Cli::parse();
    match command {
        Some(Command::Count(arguments)) => count_command::run(&arguments),
        Some(Command::Kernels) => {
            Kernel::available()
                .iter()
                .for_each(|kernel| println!("{kernel}"));
            ExitCode::SUCCESS
        }
        None => serve_command::run(&serve),
    }
}

/// Says in one line what is wrong, and how the program ends.
fn fail(code: u8, what: impl std::fmt::Display) -> ExitCode {
    eprintln!("error: {what}");
    ExitCode::from(code)
}
