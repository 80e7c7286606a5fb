//! The machines of a run: connected workers, and others that counted, with shares.
//! Shares come from the journal, so that they survive restarts.

use std::collections::BTreeMap;

use axum::{
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use common::messages::run::{RunId, WorkerId};
use maud::{Markup, html};
use proto::v1::WorkerState;
use scheduler::{REFEREE, WorkersPart};
use serde::Deserialize;
use store::{EntryKind, JournalCursor};
use view::{
    Figure, RunView, SHOWN_WORKERS, WORKER_COLUMNS, WORKER_LEGEND, WorkerRow,
    text::{brief, minute, percent, plural, thousands},
    worker_rows,
};

use super::{
    App,
    guard::{Query, Refusal},
    layout::{self, Command, buttons},
    sessions::Reader,
};
use crate::{
    driver::{Activity, DriverHandle, RequestError, SLOT_MS, Strip},
    message,
};

/// Maximum number of disconnected machines listed by name; others are summed up.
const MAX_LISTED_GONE: usize = 20;

/// The state of a machine that counted and is no longer connected.
const GONE: &str = "disconnected";

/// Headings of the columns that the journal fills.
const SHARE_HEADS: [&str; 3] = ["Share", "Core time", "Rechecks"];

/// The index of the column "All tasks" among a row's cells; "Tasks" in a table of one run.
const TASKS: usize = 6;

/// The columns of a page of workers.
const ALL: [usize; WORKER_COLUMNS.len()] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

/// The columns of an ended run: who counted it, not what they do now.
const OF_ENDED: [usize; 4] = [0, 2, 3, TASKS];

const COMMANDS: [Command<WorkerState>; 3] = [
    Command {
        name: "drain",
        states: &[
            WorkerState::Working,
            WorkerState::Idle,
            WorkerState::Paused,
            WorkerState::Silent,
            WorkerState::Reconnecting,
        ],
        verb: "Drain",
        question: Some([
            "It will submit its results, release the rest and exit. Restart it to resume counting.",
            LEAVE,
        ]),
    },
    Command {
        name: "drain",
        states: &[WorkerState::Away],
        verb: "Revoke",
        question: Some([
            "Other workers will count its tasks. Its counts are still accepted if they arrive.",
            LEAVE,
        ]),
    },
    Command {
        name: "trust",
        states: &[WorkerState::Barred],
        verb: "Readmit",
        question: Some([
            "It will get tasks again, and its counts will be accepted. Repair the machine first.",
            LEAVE,
        ]),
    },
];
const LEAVE: &str = "Leave as is";

/// Counts per machine, up to a line of the run's journal.
#[derive(Clone, Debug, Default)]
pub(super) struct MachineCounts {
    /// The page and the sequence number of the last line that was read.
    cursor: JournalCursor,
    sequence: u64,
    counted: BTreeMap<WorkerId, Counted>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    tasks: u64,
    /// Number of rechecks among them.
    rechecks: u64,
    /// Microseconds of one core.
    core_us: u64,
}

impl Counted {
    fn add(&mut self, other: Self) {
        self.tasks += other.tasks;
        self.rechecks += other.rechecks;
        self.core_us = self.core_us.saturating_add(other.core_us);
    }

    /// Returns the cells of [`SHARE_HEADS`].
    fn cells(self, whole_us: u64) -> [String; 3] {
        let share = percent(self.core_us as f64 / whole_us.max(1) as f64);
        [share, brief(self.core_us as f64 / 1e6), thousands(self.rechecks.into())]
    }
}

impl MachineCounts {
    /// Reads the lines that were added to the journal of `run`.
    pub(super) async fn read(
        &mut self,
        driver: &DriverHandle,
        run: RunId,
    ) -> Result<(), RequestError> {
        while let Some(page) = driver.journal(run, self.cursor).await? {
            for (sequence, entry, _) in page.lines {
                let record = &entry.record;
                let is_count = matches!(entry.kind, EntryKind::Accepted | EntryKind::Confirmed);
                if sequence > self.sequence && is_count && record.worker != REFEREE {
                    self.counted.entry(record.worker).or_default().add(Counted {
                        tasks: 1,
                        rechecks: u64::from(entry.kind == EntryKind::Confirmed),
                        core_us: record.duration_us,
                    });
                }
                self.sequence = self.sequence.max(sequence);
            }
            match page.next {
                Some(next) => self.cursor = next,
                None => break,
            }
        }
        Ok(())
    }

    /// Adds shares to the rows of connected workers, and rows for others that counted.
    /// `names` maps identities to last known names. An ended run keeps only the machines that counted,
    /// the largest share first.
    pub(super) fn complete(&self, view: &mut RunView, names: &BTreeMap<String, String>) {
        let whole_us = self.counted.values().map(|counted| counted.core_us).sum();
        let mut gone: BTreeMap<_, _> =
            self.counted.iter().map(|(id, counted)| (id.to_string(), *counted)).collect();
        let mut rows: Vec<_> = std::mem::take(&mut view.workers)
            .into_iter()
            .map(|mut row| {
                let counted = gone.remove(&row.id).unwrap_or_default();
                row.cells[TASKS] = thousands(counted.tasks.into());
                (row, counted)
            })
            .collect();
        let mut gone: Vec<_> = gone.into_iter().collect();
        gone.sort_by_key(|(_, counted)| std::cmp::Reverse(counted.core_us));
        let rest = gone.split_off(gone.len().min(MAX_LISTED_GONE));
        rows.extend(gone.into_iter().map(|(id, counted)| {
            let name = names.get(&id).cloned().unwrap_or_else(|| format!("worker {}", &id[..8]));
            (gone_row(id, name, counted), counted)
        }));
        if view.ended {
            rows.retain(|(_, counted)| counted.tasks > 0);
            rows.sort_by_key(|(_, counted)| std::cmp::Reverse(counted.core_us));
            let machines = plural(self.counted.len(), "machine");
            view.figures.threads = "counted this run".into();
            view.figures.machines =
                Figure { full: Some(format!("{machines} counted this run")), short: machines };
        }
        if !rest.is_empty() {
            let mut sum = Counted::default();
            rest.iter().for_each(|(_, counted)| sum.add(*counted));
            rows.push((gone_row(String::new(), plural(rest.len(), "other machine"), sum), sum));
        }
        view.workers = rows
            .into_iter()
            .map(|(mut row, counted)| {
                if view.ended {
                    row.cells = OF_ENDED.map(|place| row.cells[place].clone()).to_vec();
                }
                row.cells.extend(counted.cells(whole_us));
                row
            })
            .collect();
    }
}

fn gone_row(id: String, name: String, counted: Counted) -> WorkerRow {
    let mut cells = vec!["–".to_owned(); WORKER_COLUMNS.len()];
    cells[0] = name;
    cells[1] = GONE.to_owned();
    cells[TASKS] = thousands(counted.tasks.into());
    WorkerRow { id, state: None, cells }
}

fn state(row: &WorkerRow) -> String {
    row.state.map_or_else(|| GONE.to_owned(), |state| state.to_string())
}

/// Returns the section of a run's page that lists its machines.
pub(super) fn section(view: &RunView, operator: bool) -> Markup {
    html! {
        section.machines aria-labelledby="machines-h" {
            div.head {
                h2 id="machines-h" { "Machines" }
                p data-figure="machines" data-full { (view.figures.machines.full()) }
                a href="/workers" { "View all workers" }
            }
            @if view.ended { (table(&view.workers, &OF_ENDED, &SHARE_HEADS, &[], false)) }
            @else { (table(&view.workers, &ALL, &SHARE_HEADS, &[], operator)) }
        }
    }
}

fn table(
    rows: &[WorkerRow],
    columns: &[usize],
    more: &[&str],
    strips: &[Strip],
    operator: bool,
) -> Markup {
    let own = |&place: &usize| match place == TASKS && strips.is_empty() {
        true => "Tasks",
        false => WORKER_COLUMNS[place].head,
    };
    let heads = || columns.iter().map(own).chain(more.iter().copied());
    html! {
        div.scroll tabindex="0" role="region" aria-label="Table of machines" {
            table.stacked.sortable id="workers" {
                thead { tr {
                    @for head in heads() {
                        th scope="col" title=[["Speed", "All tasks"].contains(&head).then_some(WORKER_LEGEND)] { (head) }
                    }
                    @if !strips.is_empty() { th scope="col" { "Last 24 h" } }
                    @if operator { th.scripted scope="col" { "Commands" } }
                } }
                tbody { @for (place, row) in rows.iter().enumerate() { tr data-id=(row.id) data-state=(state(row)) {
                    @for (head, cell) in heads().zip(&row.cells) {
                        td data-head=(head) data-none[cell == "–"] { (cell) }
                    }
                    @if let Some(strip) = strips.get(place) { td data-head="Last 24 h" { (heat(strip)) } }
                    @if operator { td.scripted {} }
                } } }
            }
        }
        @if operator {
            // The script copies the buttons into each row, so that the page contains them once.
            div id="worker-commands" hidden { (buttons(&COMMANDS, "/api/v1/workers/", "", None, None)) }
        }
    }
}

/// Draws what a machine did: counting, darker for a larger part of the slot, or waiting.
fn heat(strip: &Strip) -> Markup {
    let level = |[counting, waiting]: [f64; 2]| match () {
        () if counting > 0.75 => Some(3),
        () if counting > 0.25 => Some(2),
        () if counting > 0.0 => Some(1),
        () => (waiting > 0.0).then_some(0),
    };
    let mut paths = [const { String::new() }; 4];
    for (place, slot) in strip.iter().enumerate() {
        if let Some(level) = level(*slot) {
            paths[level] += &format!("M{place} 0h1v1h-1z");
        }
    }
    let hours = |at: usize| {
        let slots: f64 = strip.iter().map(|slot| slot[at]).sum();
        brief(slots * SLOT_MS as f64 / 1e3)
    };
    let text = format!("counting {}, waiting {}", hours(0), hours(1));
    html! {
        svg.heat viewBox="0 0 96 1" preserveAspectRatio="none" role="img" aria-label=(text) {
            title { (text) }
            @for (level, path) in paths.iter().enumerate() { @if !path.is_empty() { path class=(format!("h{level}")) d=(path) {} } }
        }
    }
}

/// The query for a page of workers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FromWorker {
    /// Number of workers before the first one of the page.
    #[serde(default)]
    from: usize,
}

/// Answers with a page of workers: those that need attention, then the fastest.
pub(super) async fn workers(
    State(app): State<App>,
    Query(FromWorker { from }): Query<FromWorker>,
    request: Request,
) -> Result<Response, Refusal> {
    let operator = Reader::of(&app, &request).operator;
    let part = WorkersPart::ByAttention(from..from.saturating_add(SHOWN_WORKERS));
    let page_of = app.driver.workers(part).await?;
    let workers: Vec<_> = page_of.workers.iter().map(message::worker).collect();
    let away = page_of.totals.of(scheduler::WorkerState::Away).workers;
    let totals = page_of.totals.all();
    let (mut rows, all) = (worker_rows(&workers), totals.workers + away);
    for (row, worker) in rows.iter_mut().zip(&workers) {
        row.cells.push(percent(worker.tasks_done as f64 / totals.tasks_done.max(1) as f64));
    }
    let end = from.saturating_add(rows.len());
    let id = |row: &WorkerRow| u128::from_str_radix(&row.id, 16).map(WorkerId).unwrap_or_default();
    let Activity { since_unix_ms, mut strips, mut gone } =
        app.driver.activity(rows.iter().map(id).collect()).await?;
    let number_gone = gone.len();
    gone.truncate(if from == 0 { MAX_LISTED_GONE } else { 0 });
    for (id, name, strip) in gone {
        let mut row = gone_row(id.to_string(), name, Counted::default());
        row.cells.push("–".to_owned());
        rows.push(row);
        strips.push(strip);
    }
    let body = html! {
        body {
            header { div.title { h1 { "Workers" } a href="/" { "Back to the run" } } }
            main id="main" {
                section.machines aria-labelledby="these" {
                    h2 id="these" {
                        @if end == from { "None" } @else { (from + 1) " to " (end) " of " (all) }
                        @if number_gone > 0 { ", and " (number_gone) " gone" }
                    }
                    p.sub { svg.heat.key viewBox="0 0 4 1" aria-hidden="true" {
                        @for level in 0..4 { path class=(format!("h{level}")) d=(format!("M{level} 0h1v1h-1z")) {} }
                    } " Waiting, and counting up to a quarter, three quarters or all of 15 minutes; empty: away or not observed. Observed since "
                        time data-ms=(since_unix_ms) { (minute(since_unix_ms, true)) " UTC" } ", the coordinator's start." }
                    (table(&rows, &ALL, &SHARE_HEADS[..1], &strips, operator))
                    p {
                        @if from > 0 {
                            a href=(format!("/workers?from={}", from.saturating_sub(SHOWN_WORKERS))) { "Previous" } " "
                        }
                        @if (end as u64) < all { a href=(format!("/workers?from={end}")) { "Next" } }
                    }
                    p id="command-result" role="status" {}
                }
            }
            (layout::dialog())
        }
    };
    Ok(layout::page("queens: workers", &body).into_response())
}

#[cfg(test)]
mod tests {
    use proto::v1::{Result, Run, Status, Worker};
    use view::History;

    use super::*;

    #[test]
    fn an_ended_run_lists_who_counted_it_and_not_what_they_do_now() {
        let worker = |id: u8, name: &str| Worker {
            id: vec![id; 16],
            name: name.to_owned(),
            threads: 4,
            state: WorkerState::Working.into(),
            current_task: Some(7),
            ..Worker::default()
        };
        let status = |result| Status {
            run: Some(Run::default()),
            workers: vec![worker(1, "a"), worker(2, "idle")],
            result,
            ..Status::default()
        };
        let mut counts = MachineCounts::default();
        for (id, core_us) in [(1, 1_000_000), (3, 3_000_000)] {
            let counted = Counted { tasks: 5, rechecks: 2, core_us };
            counts.counted.insert(WorkerId(u128::from_be_bytes([id; 16])), counted);
        }
        let names = BTreeMap::from([(common::messages::hex::encode(&[3; 16]), "gone".to_owned())]);
        let shown = |result| {
            let mut view = RunView::new(&status(result), &History::default(), 0);
            counts.complete(&mut view, &names);
            (view.workers.iter().map(|row| row.cells.join(" ")).collect::<Vec<_>>(), view.figures)
        };
        let (rows, figures) = shown(Some(Result::default()));
        assert_eq!(rows, ["gone – – 5 75.00 % 3.0 s 2", "a unknown 4 5 25.00 % 1.0 s 2"]);
        assert_eq!(figures.machines.full(), "2 machines counted this run");
        let (rows, _) = shown(None);
        assert!(rows[0].starts_with("a working") && rows[0].contains(" 7 for "), "{rows:?}");
    }
}
