//! The one transaction that keeps a group of changes.

use std::collections::{BTreeMap, HashMap};

use common::{
    plan::{Plan, TaskId},
    run::RunId,
};

use super::{
    super::{
        Change, StoreError,
        journal::End,
        line::{JournalLine, Link as LineLink, Stamp},
        manifest::{self, SavedState},
        rows,
        stage::{Known, Staged},
        trust::TrustChain,
    },
    PgStore, lead,
    link::Step,
};
use crate::ledger::{Elapsed, fold::KeptTask};

impl PgStore {
    /// What is kept of the tasks that changes are about.
    pub(super) fn known(&self, changes: &[Change]) -> Result<Rows<'_>, StoreError> {
        const SQL: &str = "SELECT run, task, content FROM queens.rows JOIN \
             unnest($1::text[], $2::bigint[]) AS asked (run, task) USING (run, task)";
        let mut asked: Vec<_> = changes.iter().filter_map(Change::task).collect();
        asked.sort_unstable();
        asked.dedup();
        let (runs, tasks): (Vec<String>, Vec<i64>) = asked
            .iter()
            .map(|(run, task)| (run.to_string(), signed(task.0)))
            .unzip();
        let mut rows = HashMap::new();
        if !asked.is_empty() {
            let found = self
                .link
                .lock()
                .call(async |session| session.query(SQL, &[&runs, &tasks]).await)?
                .unwrap_or_default();
            for found in &found {
                let run: String = found.get(0);
                let task = TaskId(lead::unsigned(found.get(1)));
                let what = |what: &str| {
                    let place = format!("{}, table queens.rows", self.link.place());
                    StoreError::damaged(
                        place.as_ref(),
                        None,
                        format!("task {task} of run {run}: {what}"),
                    )
                };
                let row = rows::decode(found.get(2)).ok_or_else(|| what("no row"))?;
                let run = run.parse().map_err(|_| what("no run"))?;
                rows.insert((run, task), row);
            }
        }
        Ok(Rows { store: self, rows })
    }

    /// The transaction of a group, and how the journals end after it.
    pub(super) fn steps(&self, staged: &Staged) -> Result<(Vec<Step>, Kept), StoreError> {
        let mut kept = Kept::default();
        let mut steps = Vec::new();
        let mut lines: (Vec<String>, Vec<i64>, Vec<String>) = Default::default();
        for (sequence, entry) in &staged.lines {
            let record = entry.record();
            let run = self.run(record.run)?;
            let (end, elapsed) = kept
                .ends
                .entry(record.run)
                .or_insert_with(|| (run.end, Elapsed::of(&run.stored.manifest)));
            let line = JournalLine {
                sequence: *sequence,
                plan: run.plan.hash(),
                stamp: Some(Stamp {
                    units: run.plan.task_units(record.task),
                    fence: self.leader.term,
                }),
                entry: entry.clone(),
                prev: end.head,
            }
            .encode();
            *end = End {
                bytes: end.bytes + line.len() as u64 + 1,
                lines: *sequence,
                head: LineLink::after(line.as_bytes()),
                fence: self.leader.term,
            };
            elapsed.see(record);
            lines.0.push(record.run.to_string());
            lines.1.push(signed(*sequence));
            lines.2.push(line);
        }
        if !lines.0.is_empty() {
            steps.push(Step::new(
                "INSERT INTO queens.lines (run, seq, line) \
                 SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[])",
                vec![Box::new(lines.0), Box::new(lines.1), Box::new(lines.2)],
            ));
        }
        for (run, (end, _)) in &kept.ends {
            steps.push(set_end(*run, end));
        }
        if !staged.rows.is_empty() {
            let rows = staged.rows.iter();
            steps.push(put_rows(rows.map(|((run, task), row)| (*run, *task, row))));
        }
        if !staged.trust.is_empty() {
            let (longer, texts) = self.trust.with(&staged.trust);
            let numbers: Vec<_> = (signed(self.trust.records().len() as u64) + 1..)
                .take(texts.len())
                .collect();
            steps.push(put_trust(numbers, texts));
            kept.trust = Some(longer);
        }
        for (run, recheck) in &staged.rechecks {
            let text = manifest::encode_recheck(*run, *recheck);
            let sql = "UPDATE queens.runs SET recheck = $2 WHERE run = $1";
            steps.push(Step::new(
                sql,
                vec![Box::new(run.to_string()), Box::new(text)],
            ));
        }
        for (run, state) in &staged.states {
            let end = kept
                .ends
                .get(run)
                .map_or(self.run(*run)?.end, |(end, _)| *end);
            let saved = SavedState {
                state: *state,
                lines: end.lines,
                head: end.head,
            };
            let text = manifest::encode_state(*run, &saved);
            let sql = "UPDATE queens.runs SET state = $2 WHERE run = $1";
            steps.push(Step::new(
                sql,
                vec![Box::new(run.to_string()), Box::new(text)],
            ));
        }
        Ok((steps, kept))
    }
}

/// What a group changes in memory, once it is kept.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) ends: BTreeMap<RunId, (End, Elapsed)>,
    pub(super) trust: Option<TrustChain>,
}

/// The rows of a group's tasks, as the database has them.
pub(super) struct Rows<'a> {
    store: &'a PgStore,
    rows: HashMap<(RunId, TaskId), KeptTask>,
}

impl Known for Rows<'_> {
    fn run(&self, run: RunId) -> Result<(&Plan, u64), StoreError> {
        let run = self.store.run(run)?;
        Ok((&run.plan, run.end.lines))
    }

    fn row(&self, run: RunId, task: TaskId) -> Result<Option<KeptTask>, StoreError> {
        Ok(self.rows.get(&(run, task)).cloned())
    }
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).expect("tasks and lines are counted by nobody that far")
}

pub(super) fn set_end(run: RunId, end: &End) -> Step {
    Step::new(
        "UPDATE queens.runs SET lines = $2, head = $3 WHERE run = $1",
        vec![
            Box::new(run.to_string()),
            Box::new(signed(end.lines)),
            Box::new(end.head.to_string()),
        ],
    )
}

pub(super) fn put_rows<'a>(all: impl Iterator<Item = (RunId, TaskId, &'a KeptTask)>) -> Step {
    let mut columns: (Vec<String>, Vec<i64>, Vec<Vec<u8>>) = Default::default();
    for (run, task, row) in all {
        columns.0.push(run.to_string());
        columns.1.push(signed(task.0));
        columns.2.push(rows::encode(row));
    }
    Step::new(
        "INSERT INTO queens.rows (run, task, content) \
         SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[]) \
         ON CONFLICT (run, task) DO UPDATE SET content = excluded.content",
        vec![
            Box::new(columns.0),
            Box::new(columns.1),
            Box::new(columns.2),
        ],
    )
}

pub(super) fn put_trust(numbers: Vec<i64>, lines: Vec<String>) -> Step {
    Step::new(
        "INSERT INTO queens.trust (seq, line) SELECT * FROM unnest($1::bigint[], $2::text[])",
        vec![Box::new(numbers), Box::new(lines)],
    )
}
