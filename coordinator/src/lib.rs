//! The coordinator: splits a run into tasks, keeps them durably, leases them to workers, and folds
//! their partial counts into the total.

// `println!` and `eprintln!` panic where a pipe is closed or a disk is full.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(any(feature = "archive", feature = "postgres"))]
mod apart;
pub mod app;
pub mod certify;
pub mod checks;
mod descriptors;
pub mod doors;
pub mod driver;
pub mod exit;
pub mod grpc;
pub mod http;
pub mod ledger;
mod name;
pub mod queensctl;
mod render;
pub mod room;
pub mod sched;
pub mod store;
mod text;

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};
    use worker::environment::with_environment;

    fn flags(command: &Command, found: &mut Vec<(String, Option<String>)>) {
        for arg in command.get_arguments() {
            if let Some(long) = arg.get_long() {
                let name = arg
                    .get_env()
                    .map(|name| name.to_string_lossy().into_owned());
                found.push((long.to_owned(), name));
            }
        }
        for subcommand in command.get_subcommands() {
            flags(subcommand, found);
        }
    }

    #[test]
    fn every_flag_of_both_programs_can_be_given_in_the_environment() {
        for command in [
            crate::app::Options::command(),
            crate::queensctl::Options::command(),
        ] {
            let mut found = Vec::new();
            flags(&with_environment(command), &mut found);
            assert!(found.len() > 5);
            for (long, name) in found {
                let expected = format!("QUEENS_{}", long.replace('-', "_").to_uppercase());
                assert_eq!(name, Some(expected), "--{long}");
            }
        }
    }
}
