//! The store in a PostgreSQL database: the same journal lines in a table, one transaction a group.
//!
//! Every transaction that writes begins with the fence (`queens.fence`): it passes only for the
//! coordinator whose term it is, and counts the commits, so that one whose answer was lost can be
//! sent again and is kept once. Reads need no fence: nobody else writes while the term lasts, and
//! what one that was replaced reads it can do nothing with.

#[cfg(test)]
mod conformance;
mod copy;
mod found;
mod group;
mod lead;
mod link;
mod pages;
mod schema;
#[cfg(test)]
#[expect(
    unreachable_pub,
    dead_code,
    clippy::print_stderr,
    reason = "the tests of whole processes have it in common with these"
)]
#[path = "../../../../tests/src/postgres.rs"]
mod server;
mod vault;

use std::{collections::HashMap, ops::ControlFlow, sync::Arc, time::Instant};

use common::{
    plan::{Plan, TaskId},
    run::RunId,
};
use tokio::sync::watch;

pub(super) use self::pages::Table;
pub use self::{
    copy::{copy_to_database, copy_to_directory},
    found::verify_database,
    vault::PgVault,
};
use self::{
    found::{KeptRun, find_runs, read_trust},
    group::{put_rows, signed},
    lead::{Begun, Heart},
    link::{FIRST_PATIENCE, Link, PATIENCE, Server, Step},
    pages::{PAGE, Shared},
    schema::migrate,
};
use super::{
    Change, Fold, JournalCursor, JournalEntry, Leader, RunManifest, RunState, Store, StoreError,
    StoredRun, SymmetricCounts, SyncTimes, TaskRow, TrustRecord,
    files::Secret,
    journal::End,
    line::JournalLine,
    manifest,
    recover::{FoundRun, Survey, refold},
    rows, stage,
    trust::TrustChain,
};
use crate::ledger::fold::{self, KeptTask};

const FENCE: &str = "SELECT queens.fence($1, $2)";

/// All runs of one database, for the coordinator that leads.
///
/// Use it from one thread that may block and runs no async tasks.
pub struct PgStore {
    link: Shared,
    heart: Heart,
    leader: Leader,
    term: i64,
    /// Of the last transaction that was kept.
    commits: i64,
    sync_times: SyncTimes,
    runs: HashMap<RunId, PgRun>,
    trust: TrustChain,
    secret: Secret,
    /// Why nothing more is kept.
    poison: Option<String>,
}

struct PgRun {
    stored: StoredRun,
    plan: Plan,
    end: End,
}

/// How rows and journal are at odds.
#[derive(Debug, thiserror::Error)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, on its way to a message"
)]
enum Odds {
    #[error("task {task}: {row:?}, the journal says {folded:?}")]
    Row {
        task: TaskId,
        row: KeptTask,
        folded: Option<KeptTask>,
    },
    #[error("{journalled} tasks have records, {agreed} have rows")]
    Number { journalled: usize, agreed: usize },
    #[error("the row of task {0} is malformed")]
    Malformed(TaskId),
}

impl PgStore {
    /// Opens the database of a URL, which is a secret: makes its tables or brings them up to date,
    /// waits until no other coordinator leads (`waits` is told who does), and reads and checks
    /// everything.
    pub fn open(url: &str, name: &str, waits: &mut dyn FnMut(&Leader)) -> Result<Self, StoreError> {
        let server = Server::of(url)?;
        let mut link = Link::new(server.clone(), FIRST_PATIENCE)?;
        migrate(&mut link, &schema::MIGRATIONS[..1], None)?;
        link.patience = PATIENCE;
        let Begun { leader, commits } = lead::take(&mut link, name, waits)?;
        let term = i64::try_from(leader.term).expect("a term came from there");
        let heart = Heart::start(&server, term)?;
        migrate(&mut link, &schema::MIGRATIONS, Some(term))?;
        let link = Shared::new(link);
        let vault = PgVault {
            link: link.clone(),
            term,
        };
        let mut store = Self {
            link,
            heart,
            leader,
            term,
            commits,
            sync_times: SyncTimes::default(),
            runs: HashMap::new(),
            trust: TrustChain::new(),
            secret: vault.secret("secret")?,
            poison: None,
        };
        store.trust = read_trust(&store.link)?;
        for (found, kept) in find_runs(&store.link)? {
            store.restore(found, kept)?;
        }
        Ok(store)
    }

    /// Who leads: this process, by the name that it gave.
    pub fn leader(&self) -> &Leader {
        &self.leader
    }

    /// Who leads instead, as soon as somebody does.
    pub fn replaced(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.heart.replaced.clone()
    }

    /// Where keys, tokens and secrets are kept, on a connection of its own.
    pub fn vault(&self) -> Result<PgVault, StoreError> {
        let server = self.link.lock().server.clone();
        Ok(PgVault {
            link: Shared::new(Link::new(server, FIRST_PATIENCE)?),
            term: self.term,
        })
    }

    /// Reads and checks one run; its rows are made anew where they are at odds with its journal.
    fn restore(&mut self, found: FoundRun<Table>, kept: KeptRun) -> Result<(), StoreError> {
        let plan = fold::plan_of(&found.manifest)?;
        let survey = Survey::of(&found, &plan, 0)?;
        let run = found.manifest.run;
        if let Some(odds) = self.rows_at_odds(run, &plan, &survey.fold)? {
            tracing::warn!("the rows of run {run} are made anew from its journal: {odds}");
            self.rebuild_rows(run, &survey.fold)?;
        }
        let stored = StoredRun {
            state: found.saved.map_or(RunState::Running, |saved| saved.state),
            manifest: found.manifest,
            recheck: kept.recheck,
            elapsed_ms: survey.fold.elapsed_ms(),
        };
        let end = survey.end;
        self.runs.insert(run, PgRun { stored, plan, end });
        Ok(())
    }

    /// Where the rows of a run and its journal are at odds, if they are.
    fn rows_at_odds(
        &self,
        run: RunId,
        plan: &Plan,
        fold: &Fold,
    ) -> Result<Option<Odds>, StoreError> {
        let mut agreed = 0;
        let mut wrong = None;
        let malformed = self.each_row(run, &mut |task, row| match fold.row(task) {
            Some(folded) if (row.sequence, &row.state) == (folded.sequence, &folded.state) => {
                agreed += 1;
            }
            None if row.sequence == 0 && row.is_open() && plan.contains(task) => {}
            folded => {
                let folded = folded.cloned();
                wrong.get_or_insert(Odds::Row { task, row, folded });
            }
        })?;
        let journalled = fold.rows().count();
        if agreed != journalled {
            wrong.get_or_insert(Odds::Number { journalled, agreed });
        }
        Ok(malformed.map(Odds::Malformed).or(wrong))
    }

    fn rebuild_rows(&mut self, run: RunId, fold: &Fold) -> Result<(), StoreError> {
        let name = run.to_string();
        let mut rows: Vec<_> = fold.rows().collect();
        let gone = Step::new(
            "DELETE FROM queens.rows WHERE run = $1",
            vec![Box::new(name)],
        );
        let mut steps = vec![gone];
        loop {
            let rest = rows.split_off(rows.len().min(usize::try_from(PAGE).expect("it is small")));
            let put = rows.iter().map(|(task, row)| (run, *task, *row));
            steps.push(put_rows(put));
            self.transact(std::mem::take(&mut steps))?;
            if rest.is_empty() {
                return Ok(());
            }
            rows = rest;
        }
    }

    /// Shows every row of a run to `visit`; says which one is none, if there is one.
    fn each_row(
        &self,
        run: RunId,
        visit: &mut dyn FnMut(TaskId, KeptTask),
    ) -> Result<Option<TaskId>, StoreError> {
        const SQL: &str = "SELECT task, content FROM queens.rows \
             WHERE run = $1 AND task > $2 ORDER BY task LIMIT $3";
        let name = run.to_string();
        let mut after = -1_i64;
        loop {
            let page = self
                .link
                .lock()
                .call(async |session| session.query(SQL, &[&name, &after, &PAGE]).await)?
                .unwrap_or_default();
            for found in &page {
                after = found.get(0);
                let task = TaskId(lead::unsigned(after));
                match rows::decode(found.get(1)) {
                    Some(row) => visit(task, row),
                    None => return Ok(Some(task)),
                }
            }
            if page.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Keeps all of it or nothing, as the coordinator that leads.
    fn transact(&mut self, steps: Vec<Step>) -> Result<(), StoreError> {
        let commit = self.commits + 1;
        let mut all = vec![Step::new(
            FENCE,
            vec![Box::new(self.term), Box::new(Some(commit))],
        )];
        all.extend(steps);
        let began = Instant::now();
        self.link
            .lock()
            .call(async |session| session.transact(&all).await)?;
        self.sync_times.saw(began.elapsed());
        self.commits = commit;
        Ok(())
    }

    fn healthy(&self) -> Result<(), StoreError> {
        match &self.poison {
            None => Ok(()),
            Some(first) => Err(StoreError::Poisoned(first.clone())),
        }
    }

    /// The same, and the end of it after an error: what the database holds is read at the next
    /// start.
    fn keep(&mut self, steps: Vec<Step>) -> Result<(), StoreError> {
        self.healthy()?;
        self.transact(steps)
            .inspect_err(|error| self.poison = Some(error.to_string()))
    }

    fn run(&self, run: RunId) -> Result<&PgRun, StoreError> {
        self.runs.get(&run).ok_or(StoreError::NoSuchRun(run))
    }
}

impl Store for PgStore {
    fn runs(&self) -> Result<Vec<StoredRun>, StoreError> {
        let mut runs: Vec<_> = self.runs.values().map(|run| run.stored.clone()).collect();
        runs.sort_by_key(|run| run.manifest.age());
        Ok(runs)
    }

    fn create(&mut self, manifest: &RunManifest) -> Result<(), StoreError> {
        let run = manifest.run;
        if self.runs.contains_key(&run) {
            return Err(StoreError::RunExists(run));
        }
        let plan = fold::plan_of(manifest)?;
        let end = End::empty(manifest);
        let text = manifest::encode(manifest);
        self.keep(vec![Step::new(
            "INSERT INTO queens.runs (run, manifest, lines, head) VALUES ($1, $2, 0, $3)",
            vec![
                Box::new(run.to_string()),
                Box::new(text),
                Box::new(end.head.to_string()),
            ],
        )])?;
        let stored = StoredRun {
            manifest: manifest.clone(),
            state: RunState::Running,
            recheck: None,
            elapsed_ms: 0,
        };
        self.runs.insert(run, PgRun { stored, plan, end });
        Ok(())
    }

    fn delete(&mut self, run: RunId) -> Result<(), StoreError> {
        self.run(run)?;
        let of = |sql| Step::new(sql, vec![Box::new(run.to_string())]);
        self.keep(vec![
            of("DELETE FROM queens.runs WHERE run = $1"),
            of("DELETE FROM queens.lines WHERE run = $1"),
            of("DELETE FROM queens.rows WHERE run = $1"),
        ])?;
        self.runs.remove(&run);
        Ok(())
    }

    fn symmetric(&self, run: RunId) -> Result<Option<SymmetricCounts>, StoreError> {
        const SQL: &str = "SELECT symmetric_counts FROM queens.runs WHERE run = $1";
        self.run(run)?;
        let name = run.to_string();
        let rows = self
            .link
            .lock()
            .call(async |session| session.query(SQL, &[&name]).await)?
            .unwrap_or_default();
        let text: Option<String> = rows.first().and_then(|row| row.get(0));
        let Some(text) = text else { return Ok(None) };
        match manifest::decode_symmetric(run, &text) {
            Ok(counts) => Ok(Some(counts)),
            Err(what) => {
                tracing::warn!("the symmetric solutions of run {run} are counted anew: {what}");
                Ok(None)
            }
        }
    }

    fn trust(&self) -> Result<Vec<TrustRecord>, StoreError> {
        Ok(self.trust.records().to_vec())
    }

    fn secret(&self) -> [u8; 32] {
        self.secret.0
    }

    fn term(&self) -> u64 {
        self.leader.term
    }

    fn sync_times(&self) -> SyncTimes {
        self.sync_times.clone()
    }

    fn keep_symmetric(&mut self, run: RunId, counts: SymmetricCounts) -> Result<(), StoreError> {
        self.run(run)?;
        let text = manifest::encode_symmetric(run, counts);
        self.keep(vec![Step::new(
            "UPDATE queens.runs SET symmetric_counts = $2 WHERE run = $1",
            vec![Box::new(run.to_string()), Box::new(text)],
        )])
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.healthy()?;
        let staged = stage::stage(&self.known(changes)?, changes)?;
        let (steps, kept) = self.steps(&staged)?;
        self.keep(steps)?;
        for (run, (end, elapsed)) in kept.ends {
            let run = self.runs.get_mut(&run).ok_or(StoreError::NoSuchRun(run))?;
            run.end = end;
            run.stored.elapsed_ms = run.stored.elapsed_ms.max(elapsed.ms());
        }
        if let Some(trust) = kept.trust {
            self.trust = trust;
        }
        for (run, recheck) in staged.rechecks {
            if let Some(run) = self.runs.get_mut(&run) {
                run.stored.recheck = Some(recheck);
            }
        }
        for (run, state) in staged.states {
            if let Some(run) = self.runs.get_mut(&run) {
                run.stored.state = state;
            }
        }
        Ok(())
    }

    fn refold(&self, run: RunId) -> Result<Fold, StoreError> {
        let known = self.run(run)?;
        let found = FoundRun {
            files: Table {
                link: self.link.clone(),
                run,
            },
            manifest: known.stored.manifest.clone(),
            saved: None,
            seals: Vec::new(),
        };
        refold(&found, &known.plan, &known.end)
    }

    fn scan(&self, run: RunId, visit: &mut dyn FnMut(TaskRow)) -> Result<(), StoreError> {
        self.run(run)?;
        let malformed = self.each_row(run, &mut |task, row| visit(row.task_row(task)))?;
        malformed.map_or(Ok(()), |task| {
            let place = format!("{}, table queens.rows", self.link.place());
            let what = Odds::Malformed(task);
            Err(StoreError::damaged(place.as_ref(), None, what))
        })
    }

    fn journal(
        &self,
        run: RunId,
        from: JournalCursor,
        visit: &mut dyn FnMut(u64, &JournalEntry, &str) -> ControlFlow<()>,
    ) -> Result<JournalCursor, StoreError> {
        const AT_A_TIME: i64 = 1000;
        self.run(run)?;
        let table = Table {
            link: self.link.clone(),
            run,
        };
        let mut place = from.0;
        loop {
            let page = table.page(signed(place), AT_A_TIME)?;
            for (number, text) in &page {
                let line = JournalLine::decode(text.as_bytes()).map_err(|bad| {
                    let name = super::journal::Source::name(&table);
                    StoreError::damaged(&name, Some(lead::unsigned(*number)), bad.to_string())
                })?;
                place = lead::unsigned(*number);
                if visit(line.sequence, &line.entry, text).is_break() {
                    return Ok(JournalCursor(place));
                }
            }
            if page.is_empty() {
                return Ok(JournalCursor(place));
            }
        }
    }
}
