//! The command line of `queensctl`.

use std::{num::NonZeroU64, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use common::{
    board::Board,
    choice::{MethodChoice, Prefix},
    run::RunId,
};

use crate::app::task_cost;

/// Looks after the runs of a coordinator.
#[derive(Clone, Debug, Parser)]
#[command(name = "queensctl", version)]
pub struct Options {
    /// Where the coordinator serves
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:7171"
    )]
    pub coordinator: String,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// How far a run is
    Status(StatusOptions),
    /// The workers of the coordinator
    Workers(JsonOption),
    /// The runs of the coordinator
    Runs(JsonOption),
    /// Starts a run
    Submit(SubmitOptions),
    /// Hands out no more tasks of a run; results of those handed out are still taken
    Pause(RunOption),
    /// Hands out the tasks of a paused run again
    Resume(RunOption),
    /// Gives a run up; its results stay in the data directory
    Cancel(RunOption),
    /// Prints every accepted result of a run as it stands in the journal, one JSON object a line
    Export(RunOption),
    /// Checks a data directory, without a coordinator: every line, every sum, every total
    Verify(VerifyOptions),
    /// Shows how far the textbook techniques get in a given time, beside the methods of this
    /// program, on one thread
    Ladder(LadderOptions),
}

/// Options of `status`.
#[derive(Clone, Debug, Args)]
pub struct StatusOptions {
    /// The run [default: the one served first]
    pub run: Option<RunId>,

    /// Shows it again whenever it changes, until the run is done
    #[arg(long)]
    pub watch: bool,

    /// Prints one JSON object; with --watch one a line
    #[arg(long)]
    pub json: bool,
}

/// `--json` alone.
#[derive(Clone, Debug, Args)]
pub struct JsonOption {
    /// Prints one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// One run.
#[derive(Clone, Debug, Args)]
pub struct RunOption {
    /// The run: 16 hexadecimal digits, see `queensctl runs`
    pub run: RunId,
}

/// Options of `submit`.
#[derive(Clone, Debug, Args)]
pub struct SubmitOptions {
    /// The board's side, 1 to 32
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub n: Board,

    /// How to count: auto, rows or frames
    #[arg(long, default_value = "auto")]
    pub method: MethodChoice,

    /// How method rows divides the board: first-rows or border
    #[arg(long, value_name = "LAYOUT")]
    pub prefix: Option<Prefix>,

    /// How much work a task holds, in microseconds of one core [default: by N]
    #[arg(long, value_name = "MICROSECONDS", value_parser = task_cost)]
    pub task_cost: Option<NonZeroU64>,

    /// Runs of higher priority are served first
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    pub priority: i32,

    /// Prints the run as a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Options of `verify`.
#[derive(Clone, Debug, Args)]
pub struct VerifyOptions {
    /// The data directory
    pub dir: PathBuf,
}

/// Options of `ladder`.
#[derive(Clone, Debug, Args)]
pub struct LadderOptions {
    /// The largest board to try
    #[arg(
        long,
        value_name = "N",
        default_value = "20",
        allow_hyphen_values = true
    )]
    pub max_n: Board,

    /// Seconds that a technique may take for one board
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub time_limit: u64,
}
