//! Tables of the database: rows, small texts, and journals line by line as on disk.

use std::{
    io::{self, BufRead, Cursor},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use common::{messages::run::RunId, plan::TaskId};
use tokio_postgres::{Row, types::ToSql};

use crate::{
    RunManifest, StoreError,
    directory::files::Secret,
    journal::{Chain, JournalEnd, Reader, Source, manifest},
    journal_store::{
        Text,
        rows::{self, TaskRow},
    },
    postgres::{
        FENCE,
        connection::{DbConnection, Step},
    },
};

/// Maximum number of lines or rows per query.
pub(super) const PAGE: i64 = 4000;

/// A connection that a store and its readers share.
#[derive(Clone)]
pub(crate) struct Shared {
    link: Arc<Mutex<DbConnection>>,
    place: Arc<str>,
}

impl Shared {
    pub(super) fn new(link: DbConnection) -> Self {
        Self { place: link.server.place.as_str().into(), link: Arc::new(Mutex::new(link)) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DbConnection> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn query(
        &self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        self.lock().query(sql, values)
    }
}

/// The journal of one run.
#[derive(Clone)]
pub(crate) struct Table {
    pub(super) link: Shared,
    pub(super) run: RunId,
}

impl Source for Table {
    fn name(&self) -> PathBuf {
        format!("{}, the journal of run {}", self.link.place(), self.run).into()
    }

    fn open(&self, end: &JournalEnd) -> Result<Reader, StoreError> {
        const SQL: &str = "SELECT seq, line FROM queens.lines \
             WHERE run = $1 AND seq > $2 ORDER BY seq LIMIT $3";
        let (link, run) = (self.link.clone(), self.run.to_string());
        let mut after = signed(end.lines);
        let pages = move || {
            let page = link.query(SQL, &[&run, &after, &PAGE]).map_err(io::Error::other)?;
            let Some(last) = page.last() else { return Ok(None) };
            after = last.get(0);
            let lines = page.iter().flat_map(|row| [row.get::<_, &str>(1), "\n"]);
            let text: String = lines.collect();
            Ok(Some(Box::new(Cursor::new(text)) as Box<dyn BufRead>))
        };
        Ok(Reader::new(Chain::new(pages), end.bytes))
    }

    fn state_name(&self) -> PathBuf {
        format!("the state of run {} in {} (table queens.runs)", self.run, self.link.place()).into()
    }

    fn length(&self) -> Result<u64, StoreError> {
        const SQL: &str = "SELECT lines FROM queens.runs WHERE run = $1";
        let rows = self.link.query(SQL, &[&self.run.to_string()])?;
        Ok(rows.first().map_or(0, |row| unsigned(row.get(0))))
    }

    fn position(&self, _: u64, lines: u64) -> u64 {
        lines
    }
}

/// Keys, tokens, secrets and notes, by the names of a data directory's files.
#[derive(Clone)]
pub(crate) struct Texts {
    pub(super) link: Shared,
    pub(super) term: i64,
}

impl Texts {
    pub(crate) fn read(&self, name: &str) -> Result<Option<String>, StoreError> {
        let rows = self.link.query("SELECT content FROM queens.texts WHERE name = $1", &[&name])?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// Writes a text, as the coordinator that leads.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let steps = [
            Step::new(FENCE, vec![Box::new(self.term), Box::new(None::<i64>)]),
            put_named(name, text),
        ];
        let mut link = self.link.lock();
        link.call(async |session| session.transact(&steps).await)?;
        Ok(())
    }

    /// Returns the name of a text in messages.
    pub(crate) fn place(&self, name: &str) -> String {
        format!("{}, {name}", self.link.place())
    }

    /// Reads 32 random bytes; creates them if they are missing.
    pub(super) fn secret(&self, name: &str) -> Result<Secret, StoreError> {
        if let Some(text) = self.read(name)? {
            return Secret::decode(text.trim_end())
                .map_err(|what| StoreError::damaged(self.place(name).as_ref(), None, what));
        }
        let secret = Secret(rand::random());
        self.write(name, &secret.encode())?;
        Ok(secret)
    }

    /// Reads all texts, with their names.
    pub(super) fn all(&self) -> Result<Vec<(String, String)>, StoreError> {
        let rows = self.link.query("SELECT name, content FROM queens.texts ORDER BY name", &[])?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).expect("fewer tasks and lines than that")
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Returns a statement whose only parameter is a run.
pub(super) fn of_run(sql: &'static str, run: RunId) -> Step {
    Step::new(sql, vec![Box::new(run.to_string())])
}

/// Returns the statements that remove a run.
pub(super) fn delete_run(run: RunId) -> Vec<Step> {
    vec![
        of_run("DELETE FROM queens.runs WHERE run = $1", run),
        of_run("DELETE FROM queens.lines WHERE run = $1", run),
        of_run("DELETE FROM queens.rows WHERE run = $1", run),
        of_run("DELETE FROM queens.texts WHERE name LIKE 'runs/' || $1 || '/%'", run),
    ]
}

/// Returns the statement that creates a run whose journal ends at `end`.
pub(super) fn put_run(manifest: &RunManifest, end: &JournalEnd) -> Step {
    let (run, text) = (manifest.run.to_string(), manifest::encode(manifest));
    let (lines, head) = (signed(end.lines), end.head.to_string());
    Step::new(
        "INSERT INTO queens.runs (run, manifest, lines, head) VALUES ($1, $2, $3, $4)",
        vec![Box::new(run), Box::new(text), Box::new(lines), Box::new(head)],
    )
}

pub(super) fn put_named(name: &str, text: &str) -> Step {
    Step::new(
        "INSERT INTO queens.texts (name, content) VALUES ($1, $2) \
         ON CONFLICT (name) DO UPDATE SET content = excluded.content",
        vec![Box::new(name.to_owned()), Box::new(text.to_owned())],
    )
}

/// Returns the statement that reads a run's text, unless it is a note.
pub(super) fn select(text: Text) -> Option<(RunId, &'static str)> {
    Some(match text {
        Text::State(run) => (run, "SELECT state FROM queens.runs WHERE run = $1"),
        Text::Settings(run) => (run, "SELECT settings FROM queens.runs WHERE run = $1"),
        Text::Symmetric(run) => (run, "SELECT symmetric_counts FROM queens.runs WHERE run = $1"),
        Text::Note(..) => return None,
    })
}

pub(super) fn put_text(text: Text, content: &str) -> Step {
    let (run, sql) = match text {
        Text::State(run) => (run, "UPDATE queens.runs SET state = $2 WHERE run = $1"),
        Text::Settings(run) => (run, "UPDATE queens.runs SET settings = $2 WHERE run = $1"),
        Text::Symmetric(run) => {
            (run, "UPDATE queens.runs SET symmetric_counts = $2 WHERE run = $1")
        }
        Text::Note(..) => return put_named(&text.path(), content),
    };
    Step::new(sql, vec![Box::new(run.to_string()), Box::new(content.to_owned())])
}

pub(super) fn put_lines(run: RunId, first: u64, lines: Vec<String>) -> Step {
    let numbers: Vec<_> = (signed(first)..).take(lines.len()).collect();
    Step::new(
        "INSERT INTO queens.lines (run, seq, line) \
         SELECT $1, seq, line FROM unnest($2::bigint[], $3::text[]) AS new (seq, line)",
        vec![Box::new(run.to_string()), Box::new(numbers), Box::new(lines)],
    )
}

pub(super) fn set_end(run: RunId, end: &JournalEnd) -> Step {
    let head = end.head.to_string();
    Step::new(
        "UPDATE queens.runs SET lines = $2, head = $3 WHERE run = $1",
        vec![Box::new(run.to_string()), Box::new(signed(end.lines)), Box::new(head)],
    )
}

pub(super) fn put_rows<'a>(all: impl Iterator<Item = (RunId, TaskId, &'a TaskRow)>) -> Step {
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
        vec![Box::new(columns.0), Box::new(columns.1), Box::new(columns.2)],
    )
}

pub(super) fn put_trust(first: u64, lines: Vec<String>) -> Step {
    let numbers: Vec<_> = (signed(first)..).take(lines.len()).collect();
    Step::new(
        "INSERT INTO queens.trust (seq, line) SELECT * FROM unnest($1::bigint[], $2::text[])",
        vec![Box::new(numbers), Box::new(lines)],
    )
}
