//! The store in a PostgreSQL database: the same journal lines in a table, one transaction a group.
//!
//! Every transaction that writes begins with the fence (`queens.fence`): it passes only for the
//! coordinator whose term it is, and counts the commits, so that one whose answer was lost can be
//! sent again and is kept once. Reads need no fence: nobody else writes while the term lasts, and
//! what one that was replaced reads it can do nothing with.

#[cfg(test)]
mod conformance;
mod copy;
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

use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    sync::Arc,
};

use common::{
    plan::{Plan, TaskId},
    run::RunId,
};
use tokio::sync::watch;
use tokio_postgres::types::ToSql;

pub(super) use self::pages::Table;
pub use self::{
    copy::{copy_to_database, copy_to_directory},
    lead::Leader,
};
use self::{
    lead::{Begun, Heart},
    link::{FIRST_PATIENCE, Link, PATIENCE, Server, Step},
    pages::{PAGE, Shared},
};
use super::{
    Change, Fold, JournalCursor, JournalEntry, RunManifest, RunState, Store, StoreError, StoredRun,
    SymmetricCounts, TaskRow, TrustRecord,
    files::Secret,
    journal::End,
    line::{Line, Link as LineLink, Stamp},
    manifest::{self, SavedState},
    recover::{FoundRun, Survey, refold},
    rows,
    segments::Seal,
    stage::{self, Known, Staged},
    trust::TrustChain,
    verify::{Overall, VerifyError, VerifyReport, verify_all},
};
use crate::ledger::{
    Draw, Elapsed,
    fold::{self, Row},
};

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

/// Keys, tokens and secrets in the database, by name.
#[derive(Clone)]
pub struct PgVault {
    link: Shared,
    term: i64,
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
        if let Err(what) = self.rows_agree(run, &plan, &survey.fold)? {
            tracing::warn!("the rows of run {run} are made anew from its journal: {what}");
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

    fn rows_agree(
        &self,
        run: RunId,
        plan: &Plan,
        fold: &Fold,
    ) -> Result<Result<(), String>, StoreError> {
        let mut agreed = 0;
        let mut wrong = None;
        let malformed = self.each_row(run, &mut |task, row| match fold.row(task) {
            Some(folded) if (row.sequence, &row.state) == (folded.sequence, &folded.state) => {
                agreed += 1;
            }
            None if row.sequence == 0 && row.is_open() && plan.contains(task) => {}
            folded => {
                wrong.get_or_insert(format!("task {task}: {row:?}, the journal says {folded:?}"));
            }
        })?;
        let journalled = fold.rows().count();
        if agreed != journalled {
            wrong.get_or_insert(format!(
                "{journalled} tasks have records, {agreed} have rows"
            ));
        }
        Ok(match malformed.or(wrong) {
            Some(what) => Err(what),
            None => Ok(()),
        })
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
        visit: &mut dyn FnMut(TaskId, Row),
    ) -> Result<Option<String>, StoreError> {
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
                    None => return Ok(Some(format!("the row of task {task} is malformed"))),
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
        self.link
            .lock()
            .call(async |session| session.transact(&all).await)?;
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

    /// What is kept of the tasks that changes are about.
    fn known(&self, changes: &[Change]) -> Result<Rows<'_>, StoreError> {
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
    fn steps(&self, staged: &Staged) -> Result<(Vec<Step>, Kept), StoreError> {
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
            let line = Line {
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
struct Kept {
    ends: BTreeMap<RunId, (End, Elapsed)>,
    trust: Option<TrustChain>,
}

/// The rows of a group's tasks, as the database has them.
struct Rows<'a> {
    store: &'a PgStore,
    rows: HashMap<(RunId, TaskId), Row>,
}

impl Known for Rows<'_> {
    fn run(&self, run: RunId) -> Result<(&Plan, u64), StoreError> {
        let run = self.store.run(run)?;
        Ok((&run.plan, run.end.lines))
    }

    fn row(&self, run: RunId, task: TaskId) -> Result<Option<Row>, StoreError> {
        Ok(self.rows.get(&(run, task)).cloned())
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).expect("tasks and lines are counted by nobody that far")
}

fn set_end(run: RunId, end: &End) -> Step {
    Step::new(
        "UPDATE queens.runs SET lines = $2, head = $3 WHERE run = $1",
        vec![
            Box::new(run.to_string()),
            Box::new(signed(end.lines)),
            Box::new(end.head.to_string()),
        ],
    )
}

fn put_rows<'a>(all: impl Iterator<Item = (RunId, TaskId, &'a Row)>) -> Step {
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

fn put_trust(numbers: Vec<i64>, lines: Vec<String>) -> Step {
    Step::new(
        "INSERT INTO queens.trust (seq, line) SELECT * FROM unnest($1::bigint[], $2::text[])",
        vec![Box::new(numbers), Box::new(lines)],
    )
}

/// What else is kept of a run, besides what its journal is checked with.
struct KeptRun {
    recheck: Option<super::Recheck>,
}

/// Every run of a database, in order of creation.
fn find_runs(link: &Shared) -> Result<Vec<(FoundRun<Table>, KeptRun)>, StoreError> {
    const SQL: &str = "SELECT run, manifest, state, recheck, lines, head FROM queens.runs";
    let rows = link
        .lock()
        .call(async |session| session.query(SQL, &[]).await)?
        .unwrap_or_default();
    let mut all = Vec::new();
    for row in &rows {
        let name: String = row.get(0);
        let damaged = |what: String| {
            let place = format!("{}, table queens.runs, run {name}", link.place());
            StoreError::damaged(place.as_ref(), None, what)
        };
        let manifest = manifest::decode(row.get(1)).map_err(|bad| damaged(bad.to_string()))?;
        let run = manifest.run;
        if run.to_string() != name {
            return Err(damaged(format!("its manifest is of run {run}")));
        }
        let state: Option<String> = row.get(2);
        let saved = state
            .map(|text| manifest::decode_state(run, &text))
            .transpose()
            .map_err(|bad| damaged(bad.to_string()))?;
        let recheck: Option<String> = row.get(3);
        let recheck = recheck
            .map(|text| manifest::decode_recheck(run, &text))
            .transpose()
            .map_err(|bad| damaged(bad.to_string()))?;
        let head: String = row.get(5);
        // How the last transaction left the journal: one that is shorter has lost lines.
        let end = Seal {
            segment: 0,
            lines: lead::unsigned(row.get(4)),
            head: head.parse().map_err(damaged)?,
        };
        let table = Table {
            link: link.clone(),
            run,
        };
        let found = FoundRun {
            files: table,
            manifest,
            saved,
            seals: vec![end],
        };
        all.push((found, KeptRun { recheck }));
    }
    all.sort_by_key(|(found, _)| found.manifest.age());
    Ok(all)
}

fn read_trust(link: &Shared) -> Result<TrustChain, StoreError> {
    const SQL: &str = "SELECT line FROM queens.trust ORDER BY seq";
    let rows = link
        .lock()
        .call(async |session| session.query(SQL, &[]).await)?
        .unwrap_or_default();
    let mut chain = TrustChain::new();
    for (number, row) in (1..).zip(&rows) {
        chain
            .take(row.get(0), number)
            .map_err(|what| StoreError::Damaged {
                path: format!("{}, table queens.trust", link.place()).into(),
                line: Some(number),
                what,
                remedy: "restore it from a backup".to_owned(),
            })?;
    }
    Ok(chain)
}

/// Rechecks every line of every journal in a database, as [`super::verify()`] does in a directory;
/// reads only, also while a coordinator writes.
pub fn verify_database(url: &str) -> Result<VerifyReport, VerifyError> {
    const SQL: &str = "SELECT leads, (SELECT version FROM queens.schema_version), \
         (SELECT content FROM queens.kept WHERE name = 'secret') FROM queens.leader";
    let link = Shared::new(Link::new(Server::of(url)?, FIRST_PATIENCE)?);
    let place = link.place().to_owned();
    let row = link
        .lock()
        .call(async |session| session.query(SQL, &[]).await);
    let row = row?.and_then(|mut rows| rows.pop()).ok_or_else(|| {
        let what = "its table queens.leader is empty".to_owned();
        link.lock().server.failed(what, "restore it from a backup")
    })?;
    let (version, ours) = (row.get::<_, i64>(1), schema::MIGRATIONS.len() as i64);
    if version != ours {
        let what = format!("its tables have version {version}, this program knows {ours}");
        let advice = "use the release that made them, or start a coordinator of this one on it";
        return Err(link.lock().server.failed(what, advice).into());
    }
    let secret: Option<String> = row.get(2);
    let secret = secret
        .map(|text| Secret::decode(text.trim_end()))
        .transpose()
        .map_err(|what| StoreError::damaged(format!("{place}, secret").as_ref(), None, what))?;
    let kept = Overall {
        live: row.get(0),
        draw: secret.map(|secret| Draw::new(secret.0)),
        trust: read_trust(&link)?.records().to_vec(),
    };
    let runs = find_runs(&link)?;
    let runs = runs.into_iter().map(|(found, kept)| (found, kept.recheck));
    verify_all(place.into(), runs.map(Ok), &kept)
}

/// Brings the tables up to date: makes the migrations of `list` that were not made. With a term, as
/// the coordinator that leads.
fn migrate(link: &mut Link, list: &[&str], term: Option<i64>) -> Result<(), StoreError> {
    let before = link.call(async |session| {
        let client = &session.client;
        client.batch_execute("BEGIN").await?;
        let made = async {
            client.batch_execute(schema::SCHEMA_LOCK).await?;
            // Only where it is not there: a user may have the right to use it, and no other.
            if client
                .query_one("SELECT to_regclass('queens.schema_version') IS NULL", &[])
                .await?
                .get(0)
            {
                client.batch_execute(schema::BEGIN_SCHEMA).await?;
            }
            let version = "SELECT version FROM queens.schema_version";
            let before: i64 = client.query_one(version, &[]).await?.get(0);
            let made = usize::try_from(before).unwrap_or(0);
            if made < list.len() {
                if let Some(term) = term {
                    client.query_one(FENCE, &[&term, &None::<i64>]).await?;
                }
                for migration in &list[made..] {
                    client.batch_execute(migration).await?;
                }
                let now = i64::try_from(list.len()).expect("there are a few");
                let values: [&(dyn ToSql + Sync); 1] = [&now];
                let set = "UPDATE queens.schema_version SET version = $1";
                client.execute(set, &values).await?;
            }
            let encoding = client
                .query_one("SHOW server_encoding", &[])
                .await?
                .get::<_, String>(0);
            let fsync = client
                .query_one("SHOW fsync", &[])
                .await?
                .get::<_, String>(0);
            Ok((before, encoding, fsync == "on"))
        }
        .await;
        let end = match &made {
            Ok(_) => "COMMIT",
            Err(_) => "ROLLBACK",
        };
        match (made, client.batch_execute(end).await) {
            (Ok(made), Ok(())) => Ok(made),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        }
    })?;
    let Some((before, encoding, fsync)) = before else {
        return Ok(());
    };
    let ours = schema::MIGRATIONS.len() as i64;
    let failed = |what, advice| Err(link.server.failed(what, advice));
    if before > ours {
        let what = format!("its tables have version {before}, this program knows {ours}");
        return failed(what, "use the release that made them, or a newer one");
    }
    if encoding != "UTF8" {
        let what = format!("its encoding is {encoding}");
        return failed(what, "create it with ENCODING 'UTF8'");
    }
    let place = &link.server.place;
    if term.is_some() && before > 1 && before < ours {
        tracing::info!("{place}: its tables had version {before}, and were brought to {ours}");
    }
    if term.is_some() && !fsync {
        tracing::warn!("{place}: fsync is off there: a power cut may lose results");
    }
    Ok(())
}

impl PgVault {
    /// What is kept under a name.
    pub fn read(&self, name: &str) -> Result<Option<String>, StoreError> {
        const SQL: &str = "SELECT content FROM queens.kept WHERE name = $1";
        let rows = self
            .link
            .lock()
            .call(async |session| session.query(SQL, &[&name]).await)?;
        Ok(rows.and_then(|rows| rows.first().map(|row| row.get(0))))
    }

    /// Keeps it, as the coordinator that leads.
    pub fn write(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let steps = [
            Step::new(FENCE, vec![Box::new(self.term), Box::new(None::<i64>)]),
            keep_named(name, text),
        ];
        let mut link = self.link.lock();
        link.call(async |session| session.transact(&steps).await)?;
        Ok(())
    }

    /// Where it is, for people.
    pub fn place(&self, name: &str) -> String {
        format!("{}, {name}", self.link.place())
    }

    /// 32 random bytes of this name; drawn when they are asked for first.
    pub fn drawn(&self, name: &str) -> Result<[u8; 32], StoreError> {
        self.secret(name).map(|secret| secret.0)
    }

    fn secret(&self, name: &str) -> Result<Secret, StoreError> {
        if let Some(text) = self.read(name)? {
            return Secret::decode(text.trim_end()).map_err(|what| {
                let place = self.place(name);
                StoreError::damaged(place.as_ref(), None, what)
            });
        }
        let secret = Secret(rand::random());
        self.write(name, &secret.encode())?;
        Ok(secret)
    }
}

fn keep_named(name: &str, text: &str) -> Step {
    Step::new(
        "INSERT INTO queens.kept (name, content) VALUES ($1, $2) \
         ON CONFLICT (name) DO UPDATE SET content = excluded.content",
        vec![Box::new(name.to_owned()), Box::new(text.to_owned())],
    )
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
        malformed.map_or(Ok(()), |what| {
            let place = format!("{}, table queens.rows", self.link.place());
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
                let line = Line::decode(text.as_bytes()).map_err(|bad| {
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
