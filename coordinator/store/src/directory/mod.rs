//! The medium on disk: authoritative journals, and rows of leases and attempts.

pub(crate) mod files;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use common::{messages::run::RunId, plan::TaskId};
use scheduler::ledger::fold;

use crate::{
    StoreError, StoredRun, SyncTimes,
    directory::files::{DELETED, DataFiles, Lock, Replacement, RunFiles, SECRET},
    journal::{Journal, manifest, segments, trust::TrustChain},
    journal_store::{
        Group, JournalStore, Medium, Text,
        index::IndexedRun,
        recover,
        rows::{Rows, TaskRow},
    },
};

/// All runs of one data directory, locked until the store is dropped.
///
/// Use the store from one thread that may block: every change writes and syncs files.
pub type DiskStore = JournalStore<Directory>;

/// The suffix of the copy of an invalid database.
const BAD: &str = "bad";

/// Rows per batch of sled, which is held in memory.
const BATCH_ROWS: usize = 1024;

/// A data directory that a coordinator has open.
#[derive(Debug)]
pub struct Directory {
    files: DataFiles,
    /// `None` until the database is first used.
    rows: Option<Rows>,
    journals: HashMap<RunId, Journal>,
    /// Released after everything else is closed.
    _lock: Lock,
}

impl DiskStore {
    /// Opens a data directory, or creates one in an empty or missing directory.
    ///
    /// Reads every journal whole. Cuts a torn tail, and saves a copy of the tail. Brings sled's rows up to
    /// date with the journals; rebuilds rows that are missing or unreadable, or that contradict the journals.
    /// Damage within a journal is an error.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let files = DataFiles::new(dir);
        let lock = Lock::exclusive(&files)?;
        for path in files::entries(&files.runs())? {
            if files::is_deleted(&path) {
                fs::remove_dir_all(&path).map_err(files::failed("remove", &path))?;
            }
        }
        let found = recover::find_runs(&files)?;
        for run in &found {
            if run.files.growing().is_some() {
                return Err(StoreError::Server {
                    place: dir.display().to_string(),
                    what: "it is an archive".to_owned(),
                    advice: "restore it with `queensctl restore`, and use the new directory",
                });
            }
            segments::exists(&run.files.journal(), true)?;
            fold::plan_of(&run.manifest)?;
        }
        let mut medium =
            Directory { files: files.clone(), rows: None, journals: HashMap::new(), _lock: lock };
        let loaded = recover::load(&mut medium, &found)?;
        for (run, end) in loaded.index.ends() {
            let journal = Journal::open(&files.run(run).journal(), run, end)?;
            medium.journals.insert(run, journal);
        }
        let trust = TrustChain::read(&files.trust(), true)?;
        let max_fence = loaded.index.ends().map(|(_, end)| end.fence).max().unwrap_or(0);
        let (secret, term) = (files.load_or_create_secret(SECRET)?, files.next_term(max_fence)?);
        Ok(Self::from_parts(medium, loaded, trust, secret, term))
    }

    /// Sets the size at which segments of the existing runs are sealed.
    #[cfg(test)]
    pub(crate) fn set_segment_bytes(&mut self, bytes: u64) {
        for journal in self.medium.journals.values_mut() {
            journal.segment_bytes = bytes;
        }
    }
}

impl Directory {
    fn database(&mut self) -> Result<&Rows, StoreError> {
        if self.rows.is_none() {
            self.rows = Some(Rows::open(&self.files.database())?);
        }
        Ok(self.rows.as_ref().expect("just opened"))
    }

    /// Creates the files of a run. The manifest comes last: it creates the run.
    fn create_files(&self, run: &IndexedRun) -> Result<Journal, StoreError> {
        let StoredRun { manifest, settings, .. } = &run.stored;
        let files = self.files.run(manifest.run);
        fs::create_dir_all(&files.dir).map_err(files::failed("create", &files.dir))?;
        files::sync_parent(&files.dir)?;
        let journal = Journal::create(&files.journal(), manifest.run, run.end)?;
        let settings = manifest::encode_settings(manifest.run, *settings);
        files::write_durably(&self.name(Text::Settings(manifest.run)), &settings)?;
        files::write_durably(&files.manifest(), &manifest::encode(manifest))?;
        Ok(journal)
    }
}

impl Medium for Directory {
    type Journal = RunFiles;

    fn journal(&self, run: RunId) -> RunFiles {
        self.files.run(run)
    }

    fn name(&self, text: Text) -> PathBuf {
        self.files.dir.join(text.path())
    }

    fn create(&mut self, run: &IndexedRun) -> Result<(), StoreError> {
        let name = run.stored.manifest.run;
        match self.create_files(run) {
            Ok(journal) => {
                self.journals.insert(name, journal);
                Ok(())
            }
            Err(error) => match fs::remove_dir_all(self.files.run(name).dir) {
                Err(left) if left.kind() != ErrorKind::NotFound => Err(error),
                _ => Err(error.rolled_back()),
            },
        }
    }

    fn delete(&mut self, run: RunId) -> Result<(), StoreError> {
        let files = self.files.run(run);
        let gone = files.dir.with_extension(DELETED);
        fs::rename(&files.dir, &gone)
            .map_err(files::failed("remove", &files.dir))
            .map_err(StoreError::rolled_back)?;
        self.journals.remove(&run);
        // The run is gone; the next start removes leftovers.
        if let Err(error) = files::sync_parent(&gone) {
            tracing::warn!("run {run} may reappear after a power cut: {error}");
        }
        if let Err(error) = self.database().and_then(|rows| rows.remove(run)) {
            tracing::warn!("rows of run {run} remain until the next start: {error}");
        }
        if let Err(error) = fs::remove_dir_all(&gone) {
            tracing::warn!("{} remains until the next start: {error}", gone.display());
        }
        Ok(())
    }

    /// Stores trust records before the journals that void counts of barred workers.
    /// Texts, which state the journals' ends, come next; rows, which may be lost, last.
    fn commit(&mut self, group: &Group<'_>, times: &SyncTimes) -> Result<(), StoreError> {
        if let Some((chain, lines)) = &group.trust {
            chain.append(&self.files.trust(), lines)?;
        }
        for (run, new) in &group.journals {
            let journal = self.journals.get_mut(run).ok_or(StoreError::NoSuchRun(*run))?;
            times.observe(journal.append(&new.text, new.end)?);
        }
        let mut untouched = group.journals.is_empty() && group.trust.is_none();
        for (text, content) in &group.texts {
            let new = Replacement::prepare(&self.name(*text), content);
            let new = new.map_err(|error| if untouched { error.rolled_back() } else { error })?;
            untouched = false;
            new.put_in_place()?;
        }
        let rows = group.rows.iter().map(|((run, task), row)| (*run, *task, row));
        let seen = group.journals.iter().map(|(run, new)| (*run, new.end.lines));
        // Flushing is cheap, since it does not sync. It preserves the leases of a killed process, and bounds
        // sled's memory.
        let database = self.database()?;
        database.put(rows, seen)?;
        database.flush()
    }

    fn read(&self, text: Text) -> Result<Option<String>, StoreError> {
        // The caller's check of the text also detects bytes that are not UTF-8.
        let bytes = files::read_bytes(&self.name(text))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn write(&mut self, text: Text, content: &str) -> Result<(), StoreError> {
        // These texts are replaced whole, and no total depends on them.
        files::write_durably(&self.name(text), content).map_err(StoreError::rolled_back)
    }

    fn rows(
        &mut self,
        run: RunId,
        visit: &mut dyn FnMut(TaskId, TaskRow),
    ) -> Result<u64, StoreError> {
        self.database()?.scan(run, visit)
    }

    fn put_rows(
        &mut self,
        run: RunId,
        rows: &mut dyn Iterator<Item = (TaskId, TaskRow)>,
        seen: u64,
    ) -> Result<(), StoreError> {
        let database = self.database()?;
        loop {
            let batch: Vec<_> = rows.take(BATCH_ROWS).collect();
            if batch.is_empty() {
                break;
            }
            database.put(batch.iter().map(|(task, row)| (run, *task, row)), [])?;
            database.flush()?;
        }
        database.put([], [(run, seen)])?;
        database.flush()
    }

    fn retain_rows(&mut self, known: &dyn Fn(RunId) -> bool) -> Result<(), StoreError> {
        let database = self.database()?;
        database.retain(known)?;
        database.flush()
    }

    /// Removes earlier copies: at most the newest remains, for examination.
    fn reset_rows(&mut self, keep_copy: bool) -> Result<(), StoreError> {
        self.rows = None;
        let path = self.files.database();
        let remove = |path: &Path| fs::remove_dir_all(path).map_err(files::failed("remove", path));
        for old in files::existing_backups(&path, BAD) {
            remove(&old)?;
        }
        match keep_copy {
            true => {
                let backup = files::backup_path(&path, BAD);
                fs::rename(&path, backup).map_err(files::failed("set aside", &path))
            }
            false => remove(&path),
        }
    }
}
