//! The command line of `queensctl`: what to do, and where. Each command's own options are beside it.

use clap::{Parser, Subcommand};

use worker::{
    environment::{self, Needs},
    terminal::Manner,
};

#[cfg(feature = "archive")]
use super::copy::RestoreOptions;
use super::{
    certify::{AuditOptions, CertifyOptions},
    client::Connection,
    copy::CopyOptions,
    dashboard::DashboardOptions,
    examples,
    museum::MuseumCommand,
    plan::PlanOptions,
    runs::{ControlOptions, ExportOptions, RecheckOptions, RunsOptions, SubmitOptions},
    status::{StatusOptions, WaitOptions},
    token::TokenOptions,
    verify::VerifyOptions,
    workers::WorkersOptions,
};

/// Looks after the runs of a coordinator.
#[derive(Clone, Debug, Parser)]
#[command(name = "queensctl", version, after_help = examples::QUEENSCTL)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) connection: Connection,

    #[command(flatten)]
    pub(super) manner: Manner,

    #[command(subcommand)]
    pub(super) command: Command,
}

/// What counts only for callers with a certificate.
const NEEDS: [Needs; 2] = [
    Needs {
        flag: "tls_cert",
        other: "tls_ca",
    },
    Needs {
        flag: "tls_key",
        other: "tls_ca",
    },
];

impl Options {
    /// Reads the command line and the environment; ends the process where they make no sense.
    pub(crate) fn read() -> Self {
        environment::read(&NEEDS)
    }
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    /// How far a run is
    #[command(after_help = examples::STATUS)]
    Status(StatusOptions),
    /// Waits until a run is over, prints its result, and exits with its outcome: 0 complete, 1
    /// cancelled, 3 contradicted
    #[command(after_help = examples::WAIT)]
    Wait(WaitOptions),
    /// The workers of the coordinator; `workers trust NAME` lets one count again that was wrong
    #[command(after_help = examples::WORKERS)]
    Workers(WorkersOptions),
    /// The runs of the coordinator
    #[command(after_help = examples::RUNS)]
    Runs(RunsOptions),
    /// Prints where to look at the coordinator's runs in a browser; where tokens are asked for, a link
    /// that lets one browser in, once
    #[command(after_help = examples::DASHBOARD)]
    Dashboard(DashboardOptions),
    /// Starts a run
    #[command(after_help = examples::SUBMIT)]
    Submit(SubmitOptions),
    /// Hands out no more tasks of a run; results of those handed out are still taken
    #[command(after_help = examples::PAUSE)]
    Pause(ControlOptions),
    /// Hands out the tasks of a paused run again
    #[command(after_help = examples::RESUME)]
    Resume(ControlOptions),
    /// Gives a run up; its results stay in the data directory
    #[command(after_help = examples::CANCEL)]
    Cancel(ControlOptions),
    /// Tries tasks again at once that were set aside after failed attempts, instead of one by one
    #[command(after_help = examples::RETRY)]
    Retry(ControlOptions),
    /// Counts a part of a run a second time, or all of it, also of a run that is over: it goes on
    /// until that is done
    #[command(after_help = examples::RECHECK)]
    Recheck(RecheckOptions),
    /// Removes a run that is over (complete, contradicted or cancelled) with all its results, for
    /// good
    #[command(after_help = examples::DELETE)]
    Delete(ControlOptions),
    /// Prints every accepted result of a run as it stands in the journal, one JSON object a line
    #[command(after_help = examples::EXPORT)]
    Export(ExportOptions),
    /// Checks a data directory or a database, without a coordinator: every line, every sum, every total
    #[command(after_help = examples::VERIFY)]
    Verify(VerifyOptions),
    /// Moves all runs, with keys, tokens and secrets, from a data directory into a database or back
    #[command(after_help = examples::COPY)]
    Copy(CopyOptions),
    /// Makes a data directory of the archive of a coordinator that lost its disk
    #[cfg(feature = "archive")]
    #[command(after_help = examples::RESTORE)]
    Restore(RestoreOptions),
    /// Writes a signed certificate of a whole run: what was counted, by whom, and what was checked
    #[command(after_help = examples::CERTIFY)]
    Certify(CertifyOptions),
    /// Checks a certificate without a coordinator: its signature, its counts, and some of them by
    /// counting again here
    #[command(after_help = examples::AUDIT)]
    Audit(AuditOptions),
    /// Says before a run begins what it takes on a fleet, and which machines cannot join
    #[command(after_help = examples::PLAN)]
    Plan(PlanOptions),
    /// Who gets in: makes tokens, lists them, takes them back
    #[command(after_help = examples::TOKEN)]
    Token(TokenOptions),
    #[command(flatten)]
    Museum(MuseumCommand),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_can_be_given_in_the_environment() {
        environment::check_flags::<Options>();
    }

    #[test]
    fn every_command_has_examples_that_it_takes() {
        environment::check_examples::<Options>(&NEEDS);
    }
}
