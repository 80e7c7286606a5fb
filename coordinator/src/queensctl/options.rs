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
#[command(name = "queensctl", version)]
pub struct Options {
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
    pub fn read() -> Self {
        environment::read(&NEEDS)
    }
}

const PLAN_EXAMPLE: &str = "\
Example: queensctl plan --n 28 --fleet fleet.toml, with fleet.toml
  [[machine]]
  name = \"rack\"
  count = 40
  cores = 16
  memory = \"8GiB\"             # what counting may hold
  estimate = \"rack.json\"      # worker estimate --n 28 --json, on one of them
  watts = 250                 # of each; may be left out
  [[machine]]
  name = \"old\"
  count = 10
  cores = 4
  memory = \"2GiB\"
  speed = 0.5                 # of a core; or rate = 2.0, of the machine (queensctl workers)";

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    /// How far a run is
    Status(StatusOptions),
    /// Waits until a run is over, prints its result, and exits with its outcome: 0 complete, 1
    /// cancelled, 3 contradicted
    Wait(WaitOptions),
    /// The workers of the coordinator; `workers trust NAME` lets one count again that was wrong
    Workers(WorkersOptions),
    /// The runs of the coordinator
    Runs(RunsOptions),
    /// Prints where to look at the coordinator's runs in a browser; where tokens are asked for, a link
    /// that lets one browser in, once
    Dashboard(DashboardOptions),
    /// Starts a run
    Submit(SubmitOptions),
    /// Hands out no more tasks of a run; results of those handed out are still taken
    Pause(ControlOptions),
    /// Hands out the tasks of a paused run again
    Resume(ControlOptions),
    /// Gives a run up; its results stay in the data directory
    Cancel(ControlOptions),
    /// Tries tasks again at once that were set aside after failed attempts, instead of one by one
    Retry(ControlOptions),
    /// Counts a part of a run a second time, or all of it, also of a run that is over: it goes on
    /// until that is done
    Recheck(RecheckOptions),
    /// Removes a run that is over (complete, contradicted or cancelled) with all its results, for
    /// good
    Delete(ControlOptions),
    /// Prints every accepted result of a run as it stands in the journal, one JSON object a line
    Export(ExportOptions),
    /// Checks a data directory or a database, without a coordinator: every line, every sum, every total
    Verify(VerifyOptions),
    /// Moves all runs, with keys, tokens and secrets, from a data directory into a database or back
    Copy(CopyOptions),
    /// Makes a data directory of the archive of a coordinator that lost its disk
    #[cfg(feature = "archive")]
    Restore(RestoreOptions),
    /// Writes a signed certificate of a whole run: what was counted, by whom, and what was checked
    Certify(CertifyOptions),
    /// Checks a certificate without a coordinator: its signature, its counts, and some of them by
    /// counting again here
    Audit(AuditOptions),
    /// Says before a run begins what it takes on a fleet, and which machines cannot join
    #[command(after_help = PLAN_EXAMPLE)]
    Plan(PlanOptions),
    /// Who gets in: makes tokens, lists them, takes them back
    Token(TokenOptions),
    #[command(flatten)]
    Museum(MuseumCommand),
}
