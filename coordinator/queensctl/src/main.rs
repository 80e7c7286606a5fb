//! `queensctl`, the operators' program for a coordinator and its files.

// `println!` and `eprintln!` panic on a closed pipe or a full disk.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod client;
mod cluster;
mod explore;
mod follow;
mod forecast;
mod output;
mod runs;
mod status;
mod storage;
mod watch;

use std::process::ExitCode;

use clap::{Args as _, Parser, Subcommand};
use cli::{
    documents::Group,
    environment::{self, FlagDependency},
    exit::{BadUsage, Exit},
    terminal::TerminalOptions,
};
use view::text::{eprint_line, one_line};

use self::{
    client::{Connection, Control},
    cluster::{EventsOptions, TokenCommand, WorkersOptions},
    explore::ExploreCommand,
    forecast::ForecastOptions,
    runs::{
        CreditsOptions, EndOptions, PriorityOptions, RecheckOptions, RunOptions, RunsOptions,
        SubmitOptions,
    },
    status::{StatusOptions, WaitOptions},
    storage::{AuditOptions, CertifyOptions, CopyOptions, RestoreOptions, VerifyOptions},
};

/// Manage the runs, workers and tokens of a coordinator
#[derive(Clone, Debug, Parser)]
#[command(
    name = "queensctl",
    version,
    after_help = examples("queensctl"),
    mut_subcommands(|command| disconnected(with_examples("queensctl", command)))
)]
struct Options {
    #[command(flatten)]
    connection: Connection,

    #[command(flatten)]
    terminal: TerminalOptions,

    #[command(subcommand)]
    command: Command,
}

/// Options of the client certificate, which require `--tls-ca`.
const NEEDS: [FlagDependency; 1] =
    [FlagDependency { flags: &["tls_cert", "tls_key"], other: "tls_ca" }];

/// Groups of the subcommands in the main help.
const GROUPS: [Group; 4] = [
    (
        "Runs",
        &[
            "status", "wait", "runs", "submit", "pause", "resume", "cancel", "retry", "recheck",
            "priority", "delete", "forecast",
        ],
    ),
    ("Cluster", &["workers", "events", "dashboard", "token", "copy", "restore"]),
    ("Proof", &["credits", "export", "verify", "certify", "audit"]),
    ("Explore", &["show", "solve", "compare", "frames"]),
];

impl Options {
    /// Reads the command line and the environment; exits if they are invalid.
    fn read() -> Self {
        environment::read(&NEEDS, &GROUPS)
    }
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Show the status of a run
    Status(StatusOptions),
    /// Wait until a run has finished, and print its result; the exit code is its outcome
    Wait(WaitOptions),
    /// List workers; `drain` stops one, `trust` readmits one that was found wrong
    Workers(WorkersOptions),
    /// Show the events of runs and of the cluster
    Events(EventsOptions),
    /// List runs
    Runs(RunsOptions),
    /// Print the address of the dashboard, with a link that logs one browser in
    Dashboard {
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Start a run
    Submit(SubmitOptions),
    /// Pause a run: grant no leases, accept results of leased tasks
    Pause(RunOptions),
    /// Resume a paused run
    Resume(RunOptions),
    /// Cancel a run for good; its results are kept (see pause)
    Cancel(EndOptions),
    /// Retry all parked tasks now instead of one at a time
    Retry(RunOptions),
    /// Recheck part or all of a run; a complete run keeps its result
    Recheck(RecheckOptions),
    /// Change the priority of a run: runs of higher priority are served first
    Priority(PriorityOptions),
    /// Delete a finished run with all its results
    Delete(EndOptions),
    /// Print the accepted results of a run, one JSON object per line
    Export(RunOptions),
    /// Show who counted a run: tasks, solutions, share of the total, and confirmed counts
    Credits(CreditsOptions),
    /// Create, list and revoke access tokens
    #[command(subcommand)]
    Token(TokenCommand),
    #[command(flatten)]
    Offline(OfflineCommand),
}

/// Commands that need no coordinator.
#[derive(Clone, Debug, Subcommand)]
enum OfflineCommand {
    /// Check every line, sum and total of a data directory, archive or database
    Verify(VerifyOptions),
    /// Copy all runs, with keys and tokens, from a data directory into a database or back
    Copy(CopyOptions),
    /// Restore a data directory from an archive
    Restore(RestoreOptions),
    /// Write a signed certificate of a complete run
    Certify(CertifyOptions),
    /// Check a certificate: its signature, its sums, and a sample of recounted tasks
    Audit(AuditOptions),
    /// Forecast time, disk and energy for a run on a fleet
    Forecast(ForecastOptions),
    #[command(flatten)]
    Explore(ExploreCommand),
}

/// Examples by command: a line `# COMMAND`, then command lines with explanations.
/// The commands work as typed on a coordinator's machine.
const EXAMPLES: &str = include_str!("examples.txt");

/// Returns the examples of a command for the end of its help.
fn examples(command: &str) -> String {
    let sections = EXAMPLES.trim_start_matches("# ").split("\n# ");
    let mut sections = sections.filter_map(|section| section.split_once('\n'));
    let found = sections.find(|(name, _)| *name == command);
    found.map_or_else(String::new, |(_, text)| format!("Examples:\n{}", text.trim_end()))
}

/// Adds examples to a command and its subcommands.
fn with_examples(parent: &str, command: clap::Command) -> clap::Command {
    let name = format!("{parent} {}", command.get_name());
    let command = command.after_help(examples(&name));
    command.mut_subcommands(|command| with_examples(&name, command))
}

/// Hides the connection options in the help of an offline command.
fn disconnected(command: clap::Command) -> clap::Command {
    let offline = OfflineCommand::augment_subcommands(clap::Command::new(""));
    if !offline.get_subcommands().any(|offline| offline.get_name() == command.get_name()) {
        return command;
    }
    let connection = Connection::augment_args(clap::Command::new(""));
    command.args(connection.get_arguments().map(|option| option.clone().hide(true)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Options::read()).await.into()
}

/// Runs the command and prints its error.
async fn run(options: Options) -> Exit {
    let Options { connection, terminal, command } = options;
    terminal.apply();
    let result = match command {
        // Offline commands block this thread, so Ctrl-C must end the process.
        Command::Offline(command) => offline(&command),
        online => tokio::select! {
            result = ask(&connection, terminal, online) => result,
            Ok(()) = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
        },
    };
    result.unwrap_or_else(|error| {
        eprint_line(&format!("error: {}", one_line(&error)));
        if error.is::<BadUsage>() { Exit::Usage } else { Exit::Error }
    })
}

/// Runs a command that needs a coordinator.
async fn ask(to: &Connection, terminal: TerminalOptions, command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Status(options) => return status::status(to, terminal, &options).await,
        Command::Wait(options) => return status::wait(to, &options).await,
        Command::Cancel(run) => return runs::end(to, &run, Control::Cancel).await,
        Command::Delete(run) => return runs::end(to, &run, Control::Delete).await,
        Command::Offline(command) => return offline(&command),
        Command::Workers(options) => cluster::workers(to, &options).await?,
        Command::Events(options) => cluster::events(to, &options).await?,
        Command::Runs(options) => runs::runs(to, &options).await?,
        Command::Dashboard { json } => cluster::dashboard(to, json).await?,
        Command::Submit(run) => runs::submit(to, &run).await?,
        Command::Pause(run) => runs::control(to, &run, Control::Pause).await?,
        Command::Resume(run) => runs::control(to, &run, Control::Resume).await?,
        Command::Retry(run) => runs::control(to, &run, Control::Retry).await?,
        Command::Recheck(options) => runs::recheck(to, &options).await?,
        Command::Priority(options) => runs::prioritize(to, &options).await?,
        Command::Export(run) => runs::export(to, &run).await?,
        Command::Credits(options) => runs::credits(to, &options).await?,
        Command::Token(command) => cluster::token(to, &command).await?,
    }
    Ok(Exit::Success)
}

/// Runs a command that needs no coordinator.
fn offline(command: &OfflineCommand) -> anyhow::Result<Exit> {
    match command {
        OfflineCommand::Verify(options) => storage::verify(options),
        OfflineCommand::Copy(options) => storage::copy(options),
        OfflineCommand::Restore(options) => storage::restore(options),
        OfflineCommand::Certify(options) => storage::certify(options),
        OfflineCommand::Audit(options) => storage::audit(options),
        OfflineCommand::Forecast(options) => forecast::forecast(options),
        OfflineCommand::Explore(command) => explore::main(command),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn help_shows_connection_options_only_for_commands_that_connect() {
        let mut command = Options::command();
        command.build();
        for command in command.get_subcommands_mut().filter(|command| command.get_name() != "help")
        {
            let help = command.render_long_help().to_string();
            let name = command.get_name();
            let offline = [
                "verify", "copy", "restore", "certify", "audit", "forecast", "show", "solve",
                "compare", "frames",
            ];
            let connects = !offline.contains(&name);
            let shown = help.split_once("\nConnection:\n");
            assert_eq!(shown.is_some(), connects, "{name}: {help}");
            let own = shown.map_or(help.as_str(), |(own, _)| own);
            assert!(!own.contains("--coordinator"), "{help}");
            let output = help.split_once("\nOutput:\n").unwrap_or_else(|| panic!("{help}"));
            assert!(output.1.contains("--quiet") && !output.0.contains("--quiet"), "{help}");
        }
    }

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        grouped.sort_unstable();
        let command = Options::command();
        let mut commands: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        commands.sort_unstable();
        assert_eq!(grouped, commands);
    }

    #[test]
    fn every_flag_has_a_variable_and_every_command_examples() {
        cli::documents::check_examples::<Options>(&NEEDS);
    }
}
