//! The store on disk: journals are the truth, sled's rows the quick way to it.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::ErrorKind,
    ops::ControlFlow,
    path::Path,
};

use common::{
    plan::{Plan, TaskId},
    run::RunId,
};

use super::{
    Change, Fold, JournalCursor, JournalEntry, Recheck, RunManifest, RunState, Store, StoreError,
    StoredRun, SymmetricCounts, SyncTimes, TaskRow, TrustRecord,
    files::{self, DataFiles, Lock, Replacement, RunFiles, Secret},
    journal::{Journal, Next, Reader},
    manifest::{self, SavedState},
    recover::{self, FoundRun, Replayed},
    rows::{BadRows, Rows},
    segments,
    stage::{self, Known, Staged},
    trust::TrustLog,
};
use crate::{
    descriptors,
    ledger::{
        Elapsed, TaskState,
        fold::{self, KeptTask},
    },
};

/// Rows of leased tasks that are remembered, some 100 bytes each: more than a large fleet holds. Those of
/// other tasks are read from sled.
const LEASED_REMEMBERED: usize = 1 << 16;

/// All runs of one data directory, which it holds alone until dropped.
///
/// Use it from one thread that may block: it writes and syncs files in every call that changes it.
#[derive(Debug)]
pub struct DiskStore {
    data_files: DataFiles,
    rows: Rows,
    /// Rows of leased tasks, as they are in `rows`: the next thing that is kept of such a task is its
    /// count, and a look into sled costs as much as the rest of checking that.
    leased: HashMap<(RunId, TaskId), KeptTask>,
    runs: HashMap<RunId, DiskRun>,
    trust: TrustLog,
    secret: Secret,
    term: u64,
    sync_times: SyncTimes,
    /// The first write error: what the disk holds since is unknown, so nothing more is kept.
    poison: Option<String>,
    /// Released after everything else is closed.
    _lock: Lock,
}

#[derive(Debug)]
struct DiskRun {
    stored: StoredRun,
    plan: Plan,
    journal: Journal,
}

impl DiskRun {
    fn files(&self, data_files: &DataFiles) -> RunFiles {
        data_files.run(self.stored.manifest.run)
    }
}

impl DiskStore {
    /// Opens a data directory, or makes one of a directory that is empty or missing.
    ///
    /// Reads every journal whole: a torn tail is cut (a copy of it is kept), records that sled has
    /// not seen are replayed, and a sled that is missing, unreadable or at odds with the journals is
    /// set aside and made anew. Damage within a journal is an error.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let data_files = DataFiles::new(dir);
        let lock = Lock::exclusive(&data_files)?;
        recover::remove_deleted(&data_files)?;
        let found = recover::find_runs(&data_files)?
            .into_iter()
            .map(|run| {
                segments::exists(&run.files.journal(), true)?;
                Ok((fold::plan_of(&run.manifest)?, run))
            })
            .map(|run: Result<_, StoreError>| run.map(|(plan, run)| (run, plan)))
            .collect::<Result<Vec<_>, _>>()?;
        let (rows, replayed) = recover::open_rows(&data_files, &found)?;
        let mut runs = HashMap::new();
        for ((run, plan), Replayed { end, elapsed_ms }) in found.into_iter().zip(replayed) {
            let journal = Journal::open(&run.files.journal(), &run.manifest, end)?;
            let recheck = kept_recheck(&run.files, run.manifest.run)?;
            let state = run.saved.map_or(RunState::Running, |saved| saved.state);
            let name = run.manifest.run;
            let stored = StoredRun {
                manifest: run.manifest,
                state,
                recheck,
                elapsed_ms,
            };
            let run = DiskRun {
                stored,
                plan,
                journal,
            };
            runs.insert(name, run);
        }
        Ok(Self {
            trust: TrustLog::open(&data_files.trust())?,
            secret: data_files.keep_secret()?,
            term: data_files.next_term()?,
            sync_times: SyncTimes::default(),
            data_files,
            rows,
            leased: HashMap::new(),
            runs,
            poison: None,
            _lock: lock,
        })
    }

    /// Seals segments of so many bytes, in runs that are there.
    #[cfg(test)]
    pub(super) fn set_segment_bytes(&mut self, bytes: u64) {
        for run in self.runs.values_mut() {
            run.journal.set_segment_bytes(bytes);
        }
    }

    #[cfg(test)]
    pub(super) fn set_medium(&mut self, run: RunId, medium: Box<dyn super::journal::Medium>) {
        let run = self.runs.get_mut(&run).unwrap();
        run.journal.replace_medium(medium);
    }

    fn run(&self, run: RunId) -> Result<&DiskRun, StoreError> {
        self.runs.get(&run).ok_or(StoreError::NoSuchRun(run))
    }

    fn run_mut(&mut self, run: RunId) -> Result<&mut DiskRun, StoreError> {
        self.runs.get_mut(&run).ok_or(StoreError::NoSuchRun(run))
    }

    fn healthy(&self) -> Result<(), StoreError> {
        match &self.poison {
            None => Ok(()),
            Some(first) => Err(StoreError::Poisoned(first.clone())),
        }
    }

    /// Lets nothing be kept after the first error of a write that may have changed something.
    fn poisoned_by<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result
            && !error.kept_nothing()
        {
            self.poison = Some(error.to_string());
        }
        result
    }

    /// Journals first and durably; then states, which name the journal's end; then rows, which may
    /// be lost.
    fn keep(&mut self, staged: &Staged) -> Result<(), StoreError> {
        let mut by_run = BTreeMap::<RunId, Vec<&JournalEntry>>::new();
        for (_, entry) in &staged.lines {
            by_run.entry(entry.record().run).or_default().push(entry);
        }
        for (run, entries) in &by_run {
            let fence = self.term;
            let DiskRun {
                stored,
                plan,
                journal,
            } = self.run_mut(*run)?;
            let synced = journal.append(entries.iter().copied(), plan, fence)?;
            let mut elapsed = Elapsed::of(&stored.manifest);
            for entry in entries {
                elapsed.see(entry.record());
            }
            stored.elapsed_ms = stored.elapsed_ms.max(elapsed.ms());
            self.sync_times.saw(synced);
        }
        let mut untouched = by_run.is_empty();
        if !staged.trust.is_empty() {
            untouched = false;
            self.trust.append(&staged.trust)?;
        }
        for (run, recheck) in &staged.rechecks {
            let path = self.data_files.run(*run).recheck();
            let text = manifest::encode_recheck(*run, *recheck);
            let new = Replacement::prepare(&path, &text).map_err(|error| match untouched {
                true => error.unkept(),
                false => error,
            })?;
            untouched = false;
            new.put_in_place()?;
            self.run_mut(*run)?.stored.recheck = Some(*recheck);
        }
        for (run, state) in &staged.states {
            let new = self
                .prepare_state(*run, *state)
                .map_err(|error| match untouched {
                    true => error.unkept(),
                    false => error,
                })?;
            untouched = false;
            new.put_in_place()?;
            self.run_mut(*run)?.stored.state = *state;
        }
        let seen = by_run
            .keys()
            .map(|run| Ok((*run, self.run(*run)?.journal.end().lines)))
            .collect::<Result<Vec<_>, StoreError>>()?;
        // Flushing is cheap, since nothing waits for the disk; so a killed process loses no leases
        // either, and sled's memory does not grow.
        self.rows
            .put(&staged.rows, seen)
            .and_then(|()| self.rows.flush())
            .map_err(|error| self.bad_rows(error))?;
        self.remember_leased(staged);
        Ok(())
    }

    /// Whatever else is kept of a task, its row is no longer that of its lease.
    fn remember_leased(&mut self, staged: &Staged) {
        for (key, row) in &staged.rows {
            let is_leased = matches!(row.state, TaskState::Leased { .. });
            if is_leased && self.leased.len() < LEASED_REMEMBERED {
                self.leased.insert(*key, row.clone());
            } else {
                self.leased.remove(key);
            }
        }
    }

    fn bad_rows(&self, error: BadRows) -> StoreError {
        error.at(&self.data_files.database())
    }

    fn prepare_state(&self, run: RunId, state: RunState) -> Result<Replacement, StoreError> {
        let end = self.run(run)?.journal.end();
        let saved = SavedState {
            state,
            lines: end.lines,
            head: end.head,
        };
        let path = self.data_files.run(run).state();
        Replacement::prepare(&path, &manifest::encode_state(run, &saved))
    }

    /// The manifest comes last: it is what makes the run exist.
    fn keep_run(&self, manifest: &RunManifest, plan: Plan) -> Result<DiskRun, StoreError> {
        let files = self.data_files.run(manifest.run);
        fs::create_dir_all(&files.dir).map_err(files::failed("create", &files.dir))?;
        files::sync_parent(&files.dir)?;
        let journal = Journal::create(&files.journal(), manifest)?;
        files::write_durably(&files.manifest(), &manifest::encode(manifest))?;
        let stored = StoredRun {
            manifest: manifest.clone(),
            state: RunState::Running,
            recheck: None,
            elapsed_ms: 0,
        };
        Ok(DiskRun {
            stored,
            plan,
            journal,
        })
    }

    /// Takes back what [`Self::keep_run`] did before it failed.
    fn unkeep_run(&mut self, run: RunId, error: StoreError) -> StoreError {
        let dir = self.data_files.run(run).dir;
        match fs::remove_dir_all(&dir) {
            Err(left) if left.kind() != ErrorKind::NotFound => {
                self.poison = Some(error.to_string());
                error
            }
            _ => error.unkept(),
        }
    }
}

pub(super) fn kept_recheck(files: &RunFiles, run: RunId) -> Result<Option<Recheck>, StoreError> {
    let path = files.recheck();
    recover::read_if_there(&path)?
        .map(|text| manifest::decode_recheck(run, text.trim_end()))
        .transpose()
        .map_err(|what| StoreError::damaged(&path, None, what))
}

impl Known for DiskStore {
    fn run(&self, run: RunId) -> Result<(&Plan, u64), StoreError> {
        let run = self.run(run)?;
        Ok((&run.plan, run.journal.end().lines))
    }

    fn row(&self, run: RunId, task: TaskId) -> Result<Option<KeptTask>, StoreError> {
        if let Some(row) = self.leased.get(&(run, task)) {
            return Ok(Some(row.clone()));
        }
        self.rows
            .get(run, task)
            .map_err(|error| self.bad_rows(error))
    }
}

impl Store for DiskStore {
    fn runs(&self) -> Result<Vec<StoredRun>, StoreError> {
        let mut runs: Vec<_> = self.runs.values().map(|run| run.stored.clone()).collect();
        runs.sort_by_key(|run| run.manifest.age());
        Ok(runs)
    }

    fn create(&mut self, manifest: &RunManifest) -> Result<(), StoreError> {
        self.healthy()?;
        if self.runs.contains_key(&manifest.run) {
            return Err(StoreError::RunExists(manifest.run));
        }
        let plan = fold::plan_of(manifest)?;
        match self.keep_run(manifest, plan) {
            Ok(run) => {
                self.runs.insert(manifest.run, run);
                Ok(())
            }
            Err(error) => Err(self.unkeep_run(manifest.run, error)),
        }
    }

    fn delete(&mut self, run: RunId) -> Result<(), StoreError> {
        self.healthy()?;
        let files = self.run(run)?.files(&self.data_files);
        let gone = files.deleted();
        fs::rename(&files.dir, &gone)
            .map_err(files::failed("remove", &files.dir))
            .map_err(StoreError::unkept)?;
        self.runs.remove(&run);
        self.leased.retain(|(of, _), _| *of != run);
        // The run is gone; what cannot be removed now is removed at the next start.
        if let Err(error) = files::sync_parent(&gone) {
            tracing::warn!("run {run} may be there again after a power cut: {error}");
        }
        if let Err(error) = self.rows.remove(run) {
            tracing::warn!("rows of run {run} are left until the next start: {error}");
        }
        if let Err(error) = fs::remove_dir_all(&gone) {
            tracing::warn!("{} is left until the next start: {error}", gone.display());
        }
        Ok(())
    }

    fn symmetric(&self, run: RunId) -> Result<Option<SymmetricCounts>, StoreError> {
        let path = self.run(run)?.files(&self.data_files).symmetric();
        let bytes = match descriptors::open(|| fs::read(&path)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(files::failed("read", &path)(error)),
        };
        // Bytes that are no text are changed bytes too.
        let text = String::from_utf8_lossy(&bytes);
        match manifest::decode_symmetric(run, text.trim_end()) {
            Ok(counts) => Ok(Some(counts)),
            Err(what) => {
                tracing::warn!("{} is counted anew: {what}", path.display());
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
        self.term
    }

    fn sync_times(&self) -> SyncTimes {
        self.sync_times.clone()
    }

    fn keep_symmetric(&mut self, run: RunId, counts: SymmetricCounts) -> Result<(), StoreError> {
        let path = self.run(run)?.files(&self.data_files).symmetric();
        files::write_durably(&path, &manifest::encode_symmetric(run, counts))
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.healthy()?;
        let staged = stage::stage(self, changes)?;
        let kept = self.keep(&staged);
        self.poisoned_by(kept)
    }

    fn refold(&self, run: RunId) -> Result<Fold, StoreError> {
        let run = self.run(run)?;
        let found = FoundRun {
            files: run.files(&self.data_files),
            manifest: run.stored.manifest.clone(),
            saved: None,
            seals: Vec::new(),
        };
        recover::refold(&found, &run.plan, &run.journal.end())
    }

    fn scan(&self, run: RunId, visit: &mut dyn FnMut(TaskRow)) -> Result<(), StoreError> {
        self.run(run)?;
        self.rows
            .scan(run, &mut |task, row| {
                visit(row.task_row(task));
                Ok(())
            })
            .map_err(|error| self.bad_rows(error))
    }

    fn journal(
        &self,
        run: RunId,
        from: JournalCursor,
        visit: &mut dyn FnMut(u64, &JournalEntry, &str) -> ControlFlow<()>,
    ) -> Result<JournalCursor, StoreError> {
        let journal = &self.run(run)?.journal;
        let end = journal.end();
        let mut lines = Reader::open(journal.path(), from.0)?;
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue() && lines.offset() < end.bytes {
            flow = match lines
                .next()
                .map_err(files::failed("read", journal.path()))?
            {
                Next::Line(line, text) => visit(line.sequence, &line.entry, text),
                Next::Bad(bad) => {
                    let what = format!("a line before byte {}: {bad}", lines.offset());
                    return Err(StoreError::damaged(journal.path(), None, what));
                }
                Next::Torn | Next::End => {
                    let what = format!("it ends before byte {}", end.bytes);
                    return Err(StoreError::damaged(journal.path(), None, what));
                }
            };
        }
        Ok(JournalCursor(lines.offset()))
    }
}
