//! The medium in a PostgreSQL database, with one transaction per group of changes.
//!
//! Every transaction that writes begins with the fence (`queens.fence`). It passes only in the
//! coordinator's own term. It also counts commits, so a transaction whose answer was lost can be
//! repeated without effect. Reads need no fence: only the leader writes, so a former leader that reads old
//! data cannot act on it.

mod connection;
mod copy;
mod leader_election;
mod load;
mod password_file;
mod schema;
mod tables;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Instant};

use common::{messages::run::RunId, plan::TaskId};
use tokio::sync::watch;

pub(crate) use self::tables::Texts;
pub use self::{
    copy::{copy_to_database, copy_to_directory},
    load::verify_database,
};

use self::{
    connection::{DbConnection, RETRY_TIMEOUT, STARTUP_TIMEOUT, Server, Step},
    leader_election::Heartbeat,
    load::{find_runs, read_trust},
    schema::migrate,
    tables::{
        PAGE, Shared, Table, delete_run, of_run, put_lines, put_rows, put_run, put_text, put_trust,
        set_end, unsigned,
    },
};
use crate::{
    Leader, Observed, Outages, SecretStore, StoreError, StoredRun, SyncTimes,
    directory::files::{SECRET, SIGNING_KEY},
    journal::{Source as _, manifest},
    journal_store::{
        Group, JournalStore, Medium, Text,
        index::IndexedRun,
        recover,
        rows::{self, TaskRow},
    },
};

const FENCE: &str = "SELECT queens.fence($1, $2)";

/// All runs of one database, for the coordinator that leads.
///
/// Use it from one thread that may block and runs no async tasks.
pub type PgStore = JournalStore<Database>;

/// The database of a coordinator that leads.
pub struct Database {
    link: Shared,
    heartbeat: Heartbeat,
    leader: Leader,
    term: i64,
    /// The number of the last commit.
    commits: i64,
    /// Runs whose rows were removed, to be rebuilt.
    without_rows: HashSet<RunId>,
}

impl PgStore {
    /// Opens the database of a URL, which is a secret, as its leader.
    /// Reports another leader to `waits`, twice a second, until none leads. Migrates the tables; reads and checks everything.
    pub fn open(
        url: &str,
        name: &str,
        waits: &mut dyn FnMut(&Observed),
    ) -> Result<Self, StoreError> {
        let server = Server::of(url)?;
        let mut link = DbConnection::new(server.clone(), STARTUP_TIMEOUT)?;
        // A standby only reads, so it would notice a replica only when it has to take over.
        let settings = link.query("SHOW transaction_read_only", &[])?;
        if settings.iter().any(|row| row.get::<_, &str>(0) == "on") {
            let advice = "give the address of the primary server";
            return Err(server.failed("the database is read-only, as a replica is", advice));
        }
        migrate(&mut link, &schema::MIGRATIONS[..1], None)?;
        link.retry_timeout = RETRY_TIMEOUT;
        let (leader, commits) = leader_election::lead(&mut link, name, waits)?;
        let term = i64::try_from(leader.term).expect("the term was an i64");
        let heartbeat = Heartbeat::start(&server, term)?;
        migrate(&mut link, &schema::MIGRATIONS, Some(term))?;
        let link = Shared::new(link);
        let secret = Texts { link: link.clone(), term }.secret(SECRET)?;
        let mut medium =
            Database { link, heartbeat, leader, term, commits, without_rows: HashSet::new() };
        let trust = read_trust(&medium.link)?;
        let found = find_runs(&medium.link)?;
        let loaded = recover::load(&mut medium, &found)?;
        let term = medium.leader.term;
        Ok(Self::from_parts(medium, loaded, trust, secret, term))
    }

    /// Returns this process as the leader.
    pub fn leader(&self) -> &Leader {
        &self.medium.leader
    }

    /// Returns the outages of the database.
    pub fn outages(&self) -> Outages {
        self.medium.link.lock().server.outages.clone()
    }

    /// Returns a receiver of the next leader.
    pub fn replaced(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.medium.heartbeat.replaced.clone()
    }

    /// Returns the secrets of the coordinator, on a separate connection.
    pub fn secrets(&self) -> Result<SecretStore, StoreError> {
        let server = self.medium.link.lock().server.clone();
        let link = Shared::new(DbConnection::new(server, STARTUP_TIMEOUT)?);
        Ok(SecretStore::of_database(Texts { link, term: self.medium.term }))
    }

    /// Returns the secrets of the coordinator that leads, for reading.
    pub fn secrets_of_leader(url: &str) -> Result<SecretStore, StoreError> {
        let link = Shared::new(DbConnection::new(Server::of(url)?, STARTUP_TIMEOUT)?);
        // No coordinator leads in this term, so the fence refuses writes.
        Ok(SecretStore::of_database(Texts { link, term: -1 }))
    }

    /// Returns the key that signs certificates; creates a missing key.
    pub fn signing_key(&self) -> Result<[u8; 32], StoreError> {
        self.medium.texts().secret(SIGNING_KEY).map(|key| key.0)
    }
}

impl Database {
    fn texts(&self) -> Texts {
        Texts { link: self.link.clone(), term: self.term }
    }

    /// Commits all steps or none, as the coordinator that leads.
    fn transact(&mut self, steps: Vec<Step>) -> Result<(), StoreError> {
        let commit = self.commits + 1;
        let mut all = vec![Step::new(FENCE, vec![Box::new(self.term), Box::new(Some(commit))])];
        all.extend(steps);
        self.link.lock().call(async |session| session.transact(&all).await)?;
        self.commits = commit;
        Ok(())
    }
}

impl Medium for Database {
    type Journal = Table;

    fn journal(&self, run: RunId) -> Table {
        Table { link: self.link.clone(), run }
    }

    fn name(&self, text: Text) -> PathBuf {
        self.texts().place(&text.path()).into()
    }

    fn create(&mut self, run: &IndexedRun) -> Result<(), StoreError> {
        let StoredRun { manifest, settings, .. } = &run.stored;
        let text = manifest::encode_settings(manifest.run, *settings);
        let settings = put_text(Text::Settings(manifest.run), &text);
        self.transact(vec![put_run(manifest, &run.end), settings])
    }

    fn delete(&mut self, run: RunId) -> Result<(), StoreError> {
        self.transact(delete_run(run))
    }

    fn commit(&mut self, group: &Group<'_>, times: &SyncTimes) -> Result<(), StoreError> {
        let mut steps = Vec::new();
        for (run, new) in &group.journals {
            let text = std::str::from_utf8(&new.text).expect("JSON is UTF-8");
            let lines: Vec<_> = text.lines().map(str::to_owned).collect();
            let first = new.end.lines + 1 - lines.len() as u64;
            steps.push(put_lines(*run, first, lines));
            steps.push(set_end(*run, &new.end));
        }
        if !group.rows.is_empty() {
            let rows = group.rows.iter();
            steps.push(put_rows(rows.map(|((run, task), row)| (*run, *task, row))));
        }
        if let Some((chain, lines)) = &group.trust {
            let first = (chain.records.len() + 1 - lines.len()) as u64;
            steps.push(put_trust(first, lines.clone()));
        }
        steps.extend(group.texts.iter().map(|(text, content)| put_text(*text, content)));
        let began = Instant::now();
        self.transact(steps)?;
        times.observe(began.elapsed());
        Ok(())
    }

    fn read(&self, text: Text) -> Result<Option<String>, StoreError> {
        match tables::select(text) {
            None => self.texts().read(&text.path()),
            Some((run, sql)) => {
                let rows = self.link.query(sql, &[&run.to_string()])?;
                Ok(rows.first().and_then(|row| row.get(0)))
            }
        }
    }

    fn write(&mut self, text: Text, content: &str) -> Result<(), StoreError> {
        self.transact(vec![put_text(text, content)])
    }

    /// Returns the number of all lines: rows and lines are committed together.
    fn rows(
        &mut self,
        run: RunId,
        visit: &mut dyn FnMut(TaskId, TaskRow),
    ) -> Result<u64, StoreError> {
        const SQL: &str = "SELECT task, content FROM queens.rows \
             WHERE run = $1 AND task > $2 ORDER BY task LIMIT $3";
        if self.without_rows.contains(&run) {
            return Ok(0);
        }
        let name = run.to_string();
        let mut after = -1_i64;
        loop {
            let page = self.link.query(SQL, &[&name, &after, &PAGE])?;
            for found in &page {
                after = found.get(0);
                let task = TaskId(unsigned(after));
                let row = rows::decode(found.get(1)).ok_or_else(|| {
                    StoreError::Database(format!("run {run}: the row of task {task} is malformed"))
                })?;
                visit(task, row);
            }
            if page.is_empty() {
                return self.journal(run).length();
            }
        }
    }

    fn put_rows(
        &mut self,
        run: RunId,
        rows: &mut dyn Iterator<Item = (TaskId, TaskRow)>,
        _: u64,
    ) -> Result<(), StoreError> {
        let page = usize::try_from(PAGE).expect("a page is small");
        loop {
            let batch: Vec<_> = rows.take(page).collect();
            if batch.is_empty() {
                return Ok(());
            }
            let batch = batch.iter().map(|(task, row)| (run, *task, row));
            self.transact(vec![put_rows(batch)])?;
        }
    }

    fn remove_rows(&mut self, run: RunId) -> Result<bool, StoreError> {
        self.without_rows.insert(run);
        self.transact(vec![of_run("DELETE FROM queens.rows WHERE run = $1", run)])?;
        Ok(true)
    }
}
