//! Runs, events and credits as lines, rows and tables, and run selectors.

use std::{collections::BTreeMap, fmt, str::FromStr};

use anyhow::anyhow;
use cli::memory::MemorySize;
use common::{
    board::Board,
    estimate::forecast::{core_seconds, disk_bytes},
    messages::run::RunId,
    plan::Plan,
    text::core_time,
};
use proto::v1::{self, RunState};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Run, grouped, run_of};
use crate::text::{
    Column, abbreviated, brief, method_name, minute, percent, plural, prose, table, thousands,
};

pub const RUN_COLUMNS: [Column; 10] = [
    Column::words("Run"),
    Column::numbers("N"),
    Column::words("Method"),
    Column::words("State"),
    Column::numbers("Done"),
    Column::words("Started"),
    Column::numbers("Counting"),
    Column::numbers("Result"),
    Column::words("Verification").optional(),
    Column::numbers("Priority").optional(),
];

/// Minimum width of a table with whole IDs and every digit of a result.
const WIDE: usize = 128;

/// Formats a run as one line.
pub fn run_text(run: &v1::Run) -> String {
    match run_of(run) {
        Ok(Run { run: id, board, layout, state_text, .. }) => format!(
            "run {id}: N = {board}, method {}, {state_text}, priority {}",
            method_name(layout),
            run.priority
        ),
        Err(_) => format!("run {}: board or method unknown to this program", RunId(run.run)),
    }
}

/// Describes the work and the disk space that a plan needs.
pub fn plan_text(plan: &Plan) -> String {
    let (spec, tasks) = (plan.spec(), plural(plan.tasks(), "task"));
    let disk = MemorySize::at_least(disk_bytes(plan.tasks()));
    format!(
        "N = {}, method {}: {tasks}, {}, {disk} of disk",
        spec.board,
        method_name(spec.layout),
        core_time(core_seconds(plan))
    )
}

/// Describes the work and the disk space that a plan needs, and its time on the connected threads.
pub fn cost_text(plan: &Plan, threads: u64) -> String {
    let time = match threads {
        0 => "no threads are connected".to_owned(),
        _ => {
            let time = core_time(core_seconds(plan) / threads as f64).replace("core-", "");
            format!("{time} on the {} connected", plural(threads, "thread"))
        }
    };
    format!("{}; {time}", plan_text(plan))
}

/// Sorts runs newest first, and drops cancelled ones unless `all` is set.
pub fn listed(mut runs: Vec<v1::Run>, all: bool) -> Vec<v1::Run> {
    runs.retain(|run| all || run.state() != RunState::Cancelled);
    runs.sort_by_key(|run| std::cmp::Reverse((run.created_unix_ms, run.run)));
    runs
}

/// Evidence for the total of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verification {
    None,
    Pending,
    Verified,
    Unverified,
    Disputed,
    Failed,
}

impl Verification {
    pub(crate) fn of(run: &v1::Run) -> Self {
        match run.state() {
            RunState::Complete if run.solutions.is_empty() => Self::Pending,
            RunState::Complete if run.verified => Self::Verified,
            RunState::Complete => Self::Unverified,
            RunState::Contradicted => Self::Failed,
            RunState::Disputed => Self::Disputed,
            RunState::Cancelled | RunState::Unspecified => Self::None,
            RunState::Running | RunState::Verifying | RunState::Paused => Self::Pending,
        }
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed => f.write_str("FAILED"),
            _ => self.serialize(f),
        }
    }
}

/// Returns a run's cells for [`RUN_COLUMNS`], with short numbers unless `wide`.
pub fn run_row(run: &v1::Run, wide: bool) -> Vec<String> {
    let result = match (run.solutions.parse(), run.eta_seconds, run.state()) {
        (Ok(solutions), ..) if wide => thousands(solutions),
        (Ok(solutions), ..) => abbreviated(solutions),
        (_, Some(seconds), RunState::Running | RunState::Verifying) => {
            format!("ETA {}", brief(seconds))
        }
        _ => "–".to_owned(),
    };
    let method = run_of(run).map(|run| match wide {
        true => method_name(run.layout),
        false => run.layout.method().name().to_owned(),
    });
    vec![
        RunId(run.run).to_string(),
        run.spec.unwrap_or_default().n.to_string(),
        method.unwrap_or_else(|_| "unknown".to_owned()),
        run.state().to_string(),
        match run.fraction_done {
            part if part >= 1.0 => "100 %".to_owned(),
            part if part >= 0.001 => format!("{:.1} %", (part * 1000.0).floor() / 10.0),
            part => percent(part),
        },
        minute(run.created_unix_ms, wide),
        brief(run.counting_seconds),
        result,
        Verification::of(run).to_string(),
        run.priority.to_string(),
    ]
}

/// Formats runs as a table that fits `width`, with a note on hidden cancelled runs.
/// A narrow table marks priorities other than 0, and verified and failed totals, in the state column.
pub fn runs_table(runs: Vec<v1::Run>, all: bool, width: Option<usize>) -> String {
    let wide = width.is_none_or(|width| width >= WIDE);
    let total = runs.len();
    let runs = listed(runs, all);
    let columns = if wide { &RUN_COLUMNS[..] } else { &RUN_COLUMNS[..8] };
    let names: Vec<_> = runs.iter().map(|run| RunId(run.run).to_string()).collect();
    let digits = if wide { 16 } else { distinguishing_digits(&names) };
    let row = |run: &v1::Run| {
        let mut row = run_row(run, wide);
        row[0].truncate(digits);
        if !wide {
            row.truncate(columns.len());
            match run.priority {
                0 => {}
                up @ 1.. => row[3].push_str(&format!(" ↑{up}")),
                down => row[3].push_str(&format!(" ↓{}", down.unsigned_abs())),
            }
            match Verification::of(run) {
                Verification::Verified => row[3].push_str(" ✓"),
                Verification::Failed => row[3].push_str(" ✗"),
                _ => {}
            }
        }
        row
    };
    let rows: Vec<_> = runs.iter().map(row).collect();
    let table = table(columns, &rows, width);
    match total - runs.len() {
        0 => table,
        hidden => {
            format!("{table}\n({} hidden; --all lists them)", plural(hidden, "cancelled run"))
        }
    }
}

/// Returns the number of leading digits, at least six, that distinguish `names`.
fn distinguishing_digits(names: &[String]) -> usize {
    let distinguish = |digits: usize| {
        let mut seen = BTreeMap::new();
        names.iter().all(|name| seen.insert(&name[..digits], ()).is_none())
    };
    (6..16).find(|&digits| distinguish(digits)).unwrap_or(16)
}

/// Returns an event's description with the operator who caused it.
pub fn event_text(event: &v1::Event) -> String {
    match event.by.as_str() {
        "" => event.text.clone(),
        by => format!("{} by {by}", event.text),
    }
}

/// Returns the start of the run's id, or "cluster".
pub fn event_subject(event: &v1::Event) -> String {
    event.run.map_or_else(|| "cluster".to_owned(), |run| RunId(run).short())
}

/// Formats an event as one line.
pub fn event_line(event: &v1::Event) -> String {
    let (at, subject) = (minute(event.unix_ms, true), event_subject(event));
    format!("{at}  {subject:<8}  {}", event_text(event))
}

/// Formats events as a table that fits `width`.
pub fn events_table(events: &[v1::Event], width: Option<usize>) -> String {
    let columns = [Column::words("Time (UTC)"), Column::words("Run"), Column::words("Event")];
    let row = |event: &v1::Event| {
        vec![minute(event.unix_ms, true), event_subject(event), event_text(event)]
    };
    let rows: Vec<_> = events.iter().map(row).collect();
    prose(&table(&columns, &rows, None), width)
}

/// The columns of [`credit_row`].
pub const CREDIT_COLUMNS: [Column; 6] = [
    Column::words("Contributor"),
    Column::name("Name").optional(),
    Column::numbers("Tasks"),
    Column::numbers("Solutions"),
    Column::numbers("Share"),
    Column::numbers("Confirmed"),
];

/// Returns a contributor's cells for [`CREDIT_COLUMNS`].
pub fn credit_row(credit: &v1::Credit) -> Vec<String> {
    let name = if credit.name.is_empty() { "–" } else { &credit.name };
    vec![
        credit.contributor.clone(),
        name.to_owned(),
        thousands(credit.tasks.into()),
        grouped(&credit.solutions),
        percent(credit.share),
        thousands(credit.confirmed.into()),
    ]
}

/// Formats contributors as a table that fits `width`.
pub fn credits_table(credits: &[v1::Credit], width: Option<usize>) -> String {
    table(&CREDIT_COLUMNS, &credits.iter().map(credit_row).collect::<Vec<_>>(), width)
}

/// A selection of a run on the command line or in a page's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunSelector {
    /// The run created last.
    Last,
    /// The run of this board created last.
    Board(Board),
    Id(RunId),
    /// Lower-case hexadecimal digits, fewer than an id has.
    Prefix(String),
}

/// Minimum digits of an id: shorter texts are typing errors, such as the N of a board.
const MIN_DIGITS: usize = 4;

impl FromStr for RunSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "last" {
            return Ok(Self::Last);
        }
        let digits = text.to_lowercase();
        if let Some(board) = digits.strip_prefix("n=") {
            return board.parse().map(Self::Board).map_err(|why| format!("{why}"));
        }
        if let Ok(whole) = digits.parse() {
            return Ok(Self::Id(whole));
        }
        let is_digit = |c: char| c.is_ascii_hexdigit();
        if (MIN_DIGITS..16).contains(&digits.len()) && digits.chars().all(is_digit) {
            return Ok(Self::Prefix(digits));
        }
        Err(format!(
            "no run matches '{text}': give at least {MIN_DIGITS} digits of its id (see `queensctl runs`), N=22 \
             for the newest run of that board, or `last`"
        ))
    }
}

/// Key by which a [`RunSelector`] selects runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SelectableRun {
    pub created_unix_ms: u64,
    pub run: RunId,
    pub n: u32,
}

impl From<&v1::Run> for SelectableRun {
    fn from(run: &v1::Run) -> Self {
        let n = run.spec.as_ref().map_or(0, |spec| spec.n);
        Self { created_unix_ms: run.created_unix_ms, run: RunId(run.run), n }
    }
}

impl RunSelector {
    /// Returns the selected run among `runs`.
    pub fn among(&self, runs: &[SelectableRun]) -> anyhow::Result<RunId> {
        match self {
            Self::Id(run) => Ok(*run),
            Self::Last => runs.iter().max().map(|found| found.run).ok_or_else(|| {
                anyhow!("there are no runs; start one with `queensctl submit --n N`")
            }),
            Self::Board(board) => {
                let of_board = runs.iter().filter(|run| run.n == u32::from(board.n()));
                of_board
                    .max()
                    .map(|found| found.run)
                    .ok_or_else(|| anyhow!("there is no run of N = {board}; see `queensctl runs`"))
            }
            Self::Prefix(digits) => {
                let ids = runs.iter().map(|run| run.run);
                let matching: Vec<_> =
                    ids.filter(|run| run.to_string().starts_with(digits)).collect();
                match matching[..] {
                    [run] => Ok(run),
                    [] => Err(anyhow!("no run id begins with {digits}; see `queensctl runs`")),
                    [first, second, ..] => Err(anyhow!(
                        "the ids of {} runs begin with {digits}, such as {first} and {second}; give \
                         more digits",
                        matching.len()
                    )),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::WIDTH;

    fn run(name: u64, state: v1::RunState) -> v1::Run {
        v1::Run {
            run: name,
            spec: Some(v1::PlanSpec { n: 27, layout: v1::Layout::Frames.into(), task_cost: 1 }),
            state: state.into(),
            created_unix_ms: 1_795_348_800_000 + name % 7 * 60_000,
            fraction_done: 0.4273,
            eta_seconds: Some(864_000.0),
            counting_seconds: 360_000.0,
            ..v1::Run::default()
        }
    }

    #[test]
    fn a_list_is_newest_first_and_fits_a_terminal() {
        let complete = v1::Run {
            solutions: "234907967154122528".to_owned(),
            fraction_done: 1.0,
            verified: true,
            ..run(0x1234_5678_9abc_de02, v1::RunState::Complete)
        };
        let runs = vec![
            run(0x1234_4670_0000_0000, v1::RunState::Running),
            run(0x0fff_0000_0000_0000, v1::RunState::Cancelled),
            complete,
        ];
        let table = runs_table(runs.clone(), false, Some(WIDTH));
        let lines: Vec<_> = table.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{table}");
        assert!(lines.last().unwrap().starts_with("(1 cancelled run hidden"), "{table}");
        let newest = listed(runs.clone(), false)[0].run;
        assert!(lines[1].starts_with(&format!("{newest:016x}")[..6]), "{table}");
        for part in ["234.9 quadrillion", "ETA 10 d", "42.7 %", "complete ✓", "123446 "] {
            assert!(table.contains(part), "'{part}' in\n{table}");
        }
        let wide = runs_table(runs, true, None);
        for part in
            ["234,907,967,154,122,528", "123456789abcde02", "cancelled", "verified", "pending"]
        {
            assert!(wide.contains(part), "'{part}' in\n{wide}");
        }
    }

    #[test]
    fn events_name_their_run_and_operator() {
        let event = v1::Event {
            sequence: 7,
            unix_ms: 1_795_348_800_000,
            run: Some(0xabcd_ef01_2345_6789),
            kind: "cancelled".to_owned(),
            text: "cancelled".to_owned(),
            by: "anna".to_owned(),
        };
        assert_eq!(event_line(&event), "2026-11-22 12:00  abcdef01  cancelled by anna");
        let cluster = v1::Event { run: None, by: String::new(), ..event };
        assert!(events_table(&[cluster], None).ends_with("2026-11-22 12:00  cluster  cancelled"));
    }

    #[test]
    fn a_run_is_selected_by_a_prefix_or_as_the_last() {
        let [old, new, other] = [RunId(0xab_cd), RunId(0xabcd << 48), RunId(0xabce << 48)];
        let run = |(created_unix_ms, run, n)| SelectableRun { created_unix_ms, run, n };
        let runs = [(1, old, 22), (5, new, 20), (3, other, 22)].map(run);
        let find = |text: &str| text.parse::<RunSelector>().unwrap().among(&runs);
        for (text, run) in [
            ("last", new),
            ("abcd", new),
            ("ABCE", other),
            ("0000", old),
            ("N=22", other),
            ("n=20", new),
            ("000000000000abcd", old),
            ("0000000000001234", RunId(0x1234)),
        ] {
            assert_eq!(find(text).unwrap(), run, "{text}");
        }
        let twins = [(1, RunId(0xabcd << 48), 8), (2, RunId((0xabcd << 48) + 1), 8)].map(run);
        let several = "abcd".parse::<RunSelector>().unwrap().among(&twins);
        let several = several.unwrap_err().to_string();
        assert!(several.contains("2 runs") && several.contains("more digits"), "{several}");
        let none = find("bbbb").unwrap_err().to_string();
        assert!(none.contains("id begins with bbbb"), "{none}");
        let none = find("N=9").unwrap_err().to_string();
        assert!(none.contains("no run of N = 9"), "{none}");
        let none = RunSelector::Last.among(&[]).unwrap_err().to_string();
        assert!(none.contains("submit"), "{none}");
        for bad in ["", "0", "abc", "xyz", "00000000000000000", "-1", "a b", "latest", "22"] {
            let refused = bad.parse::<RunSelector>().unwrap_err();
            assert!(refused.starts_with(&format!("no run matches '{bad}'")), "{refused}");
        }
        for bad in ["N=", "N=33", "N=0", "n=x"] {
            assert!(bad.parse::<RunSelector>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_plan_has_its_work_and_disk_space() {
        use common::{method::Layout, plan::PlanSpec};
        let plan = Plan::new(PlanSpec::new(Board::new(32).unwrap(), Layout::FirstRows)).unwrap();
        let text = plan_text(&plan);
        assert!(text.starts_with("N = 32, method rows"), "{text}");
        assert!(
            text.ends_with("1,000,000 tasks, about 126,839 core-years, 811.1 MiB of disk"),
            "{text}"
        );
    }
}
