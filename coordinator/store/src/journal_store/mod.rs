//! The rules of all stores, over a medium: a data directory, a database or memory.

pub(crate) mod index;
pub(crate) mod memory;
pub(crate) mod recover;
pub(crate) mod rows;

use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    path::PathBuf,
};

use common::{messages::run::RunId, plan::TaskId};

use crate::{
    Change, Fold, JournalCursor, JournalEntry, Note, Recheck, RunManifest, Store, StoreError,
    StoredRun, StoredTasks, SymmetricCounts, SyncTimes, TrustRecord,
    directory::files::{self, Secret},
    journal::{JournalEnd, Next, Reader, Source, manifest, trust::TrustChain},
};

use self::{
    index::{Batch, Index, IndexedRun},
    recover::{FoundRun, Loaded, Survey, open_tasks},
    rows::TaskRow,
};

/// A small text of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    State(RunId),
    Settings(RunId),
    Symmetric(RunId),
    Note(Option<RunId>, Note),
}

impl Text {
    pub(crate) fn all(run: RunId) -> [Self; 5] {
        let [events, history] = Note::ALL.map(|note| Self::Note(Some(run), note));
        [Self::State(run), Self::Settings(run), Self::Symmetric(run), events, history]
    }

    /// Returns its path in a data directory.
    pub(crate) fn path(self) -> String {
        match self {
            Self::State(run) => format!("runs/{run}/state.json"),
            Self::Settings(run) => format!("runs/{run}/settings.json"),
            Self::Symmetric(run) => format!("runs/{run}/symmetric.json"),
            Self::Note(Some(run), note) => format!("runs/{run}/{}", note.file()),
            Self::Note(None, note) => note.file().to_owned(),
        }
    }
}

/// Whole lines to append to a journal, and its end after them.
#[derive(Debug)]
pub(crate) struct NewLines {
    pub(crate) text: Vec<u8>,
    pub(crate) end: JournalEnd,
}

/// A group of changes in the form and the order in which media store it.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    pub(crate) journals: BTreeMap<RunId, NewLines>,
    /// The longer chain and its new lines.
    pub(crate) trust: Option<(TrustChain, Vec<String>)>,
    pub(crate) texts: Vec<(Text, String)>,
    pub(crate) rows: &'a HashMap<(RunId, TaskId), TaskRow>,
}

/// A place where a store's data is durable.
/// Its errors state whether anything may have changed ([`StoreError::changed_nothing`]).
pub(crate) trait Medium: Send {
    type Journal: Source;

    fn journal(&self, run: RunId) -> Self::Journal;

    /// Returns a text's name in messages.
    fn name(&self, text: Text) -> PathBuf;

    /// Creates a run with an empty journal, durably.
    fn create(&mut self, run: &IndexedRun) -> Result<(), StoreError>;

    /// Removes a run and all its data.
    fn delete(&mut self, run: RunId) -> Result<(), StoreError>;

    /// Stores a group: all journal lines are durable on return, rows may be lost.
    fn commit(&mut self, group: &Group<'_>, times: &SyncTimes) -> Result<(), StoreError>;

    fn read(&self, text: Text) -> Result<Option<String>, StoreError>;

    fn write(&mut self, text: Text, content: &str) -> Result<(), StoreError>;

    /// Passes a run's rows to `visit`; returns the number of lines that they reflect.
    fn rows(
        &mut self,
        run: RunId,
        visit: &mut dyn FnMut(TaskId, TaskRow),
    ) -> Result<u64, StoreError>;

    /// Stores rows that reflect the first `seen` lines of the run's journal.
    fn put_rows(
        &mut self,
        run: RunId,
        rows: &mut dyn Iterator<Item = (TaskId, TaskRow)>,
        seen: u64,
    ) -> Result<(), StoreError>;

    /// Opens the rows, if they have their own database; removes those of unknown runs.
    fn retain_rows(&mut self, _known: &dyn Fn(RunId) -> bool) -> Result<(), StoreError> {
        Ok(())
    }

    /// Removes the rows of a run; returns false if only all rows can be removed.
    fn remove_rows(&mut self, _: RunId) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Removes all rows; keeps a copy of them if `keep_copy`.
    fn reset_rows(&mut self, _keep_copy: bool) -> Result<(), StoreError> {
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub struct JournalStore<M> {
    pub(crate) medium: M,
    index: Index,
    /// The tasks that were read when the store was opened, until they are taken.
    tasks: HashMap<RunId, StoredTasks>,
    pub(crate) trust: TrustChain,
    secret: Secret,
    pub(crate) term: u64,
    sync_times: SyncTimes,
    /// The first write error; since then the contents are unknown and writes fail.
    poison: Option<String>,
}

#[expect(private_bounds, reason = "other crates name the stores, not their media")]
impl<M: Medium> JournalStore<M> {
    pub(crate) fn from_parts(
        medium: M,
        Loaded { index, tasks }: Loaded,
        trust: TrustChain,
        secret: Secret,
        term: u64,
    ) -> Self {
        let sync_times = SyncTimes::default();
        Self { medium, index, tasks, trust, secret, term, sync_times, poison: None }
    }

    /// Reads the journal of a run, and requires all lines that were written to it.
    fn survey(&self, run: RunId) -> Result<Survey, StoreError> {
        let IndexedRun { stored, plan, end } = self.index.run(run)?;
        let files = self.medium.journal(run);
        let (manifest, settings, seals) = (stored.manifest.clone(), stored.settings, Vec::new());
        let found = FoundRun { files, manifest, saved: None, settings, symmetric: None, seals };
        let survey = found.survey(plan)?;
        let read = &survey.end;
        if read == end {
            return Ok(survey);
        }
        let what = format!(
            "{} lines ({} bytes) were written to it, but it has {} ({} bytes)",
            end.lines, end.bytes, read.lines, read.bytes
        );
        Err(StoreError::damaged(&found.files.name(), None, what))
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        match &self.poison {
            None => Ok(()),
            Some(first) => Err(StoreError::Poisoned(first.clone())),
        }
    }

    /// Runs a write; an error that may have changed something prevents later writes.
    fn write<T>(
        &mut self,
        write: impl FnOnce(&mut M, &SyncTimes) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.check_writable()?;
        // They would no longer be those on disk.
        self.tasks.clear();
        let written = write(&mut self.medium, &self.sync_times);
        if let Err(error) = &written
            && !error.changed_nothing()
        {
            self.poison = Some(error.to_string());
        }
        written
    }

    fn group<'a>(&self, batch: &'a Batch) -> Result<Group<'a>, StoreError> {
        let mut journals = BTreeMap::new();
        for (run, entries) in &batch.entries {
            let IndexedRun { plan, end, .. } = self.index.run(*run)?;
            let mut new = NewLines { text: Vec::new(), end: *end };
            for entry in entries {
                new.end.append(&mut new.text, plan, entry, self.term);
            }
            journals.insert(*run, new);
        }
        let mut texts = Vec::new();
        for (run, settings) in &batch.settings {
            texts.push((Text::Settings(*run), manifest::encode_settings(*run, *settings)));
        }
        for (run, state) in &batch.states {
            let end = journals.get(run).map_or(self.index.run(*run)?.end, |new| new.end);
            texts.push((Text::State(*run), manifest::encode_state(*run, *state, &end)));
        }
        let trust = (!batch.trust.is_empty()).then(|| self.trust.with(&batch.trust));
        Ok(Group { journals, trust, texts, rows: &batch.rows })
    }
}

impl<M: Medium> Store for JournalStore<M> {
    fn runs(&self) -> Result<Vec<StoredRun>, StoreError> {
        Ok(self.index.runs())
    }

    fn create(&mut self, manifest: &RunManifest, recheck: Recheck) -> Result<(), StoreError> {
        let run = self.index.new_run(StoredRun::new(manifest.clone(), recheck))?;
        self.write(|medium, _| medium.create(&run))?;
        self.index.insert(run);
        Ok(())
    }

    fn delete(&mut self, run: RunId) -> Result<(), StoreError> {
        self.index.run(run)?;
        self.write(|medium, _| medium.delete(run))?;
        self.index.remove(run);
        Ok(())
    }

    fn symmetric(&self, run: RunId) -> Result<Option<SymmetricCounts>, StoreError> {
        self.index.run(run)?;
        let text = Text::Symmetric(run);
        let Some(content) = self.medium.read(text)? else { return Ok(None) };
        let decoded = manifest::decode_symmetric(run, content.trim_end());
        Ok(decoded
            .inspect_err(|what| {
                let name = self.medium.name(text);
                tracing::warn!("{}: {what}; counting again", name.display());
            })
            .ok())
    }

    fn trust(&self) -> Result<Vec<TrustRecord>, StoreError> {
        Ok(self.trust.records.clone())
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
        self.index.run(run)?;
        let content = manifest::encode_symmetric(run, counts);
        self.write(|medium, _| medium.write(Text::Symmetric(run), &content))
    }

    fn keep_note(&mut self, run: Option<RunId>, note: Note, text: &str) -> Result<(), StoreError> {
        self.write(|medium, _| medium.write(Text::Note(run, note), text))
    }

    fn note(&self, run: Option<RunId>, note: Note) -> Result<Option<String>, StoreError> {
        self.medium.read(Text::Note(run, note))
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.check_writable()?;
        let batch = self.index.sort(changes)?;
        let group = self.group(&batch)?;
        self.write(|medium, times| medium.commit(&group, times))?;
        let Group { journals, trust, .. } = group;
        if let Some((chain, _)) = trust {
            self.trust = chain;
        }
        self.index.commit(batch, journals.into_iter().map(|(run, new)| (run, new.end)));
        Ok(())
    }

    fn refold(&self, run: RunId) -> Result<Fold, StoreError> {
        Ok(self.survey(run)?.fold)
    }

    fn take_tasks(&mut self, run: RunId) -> Result<StoredTasks, StoreError> {
        if let Some(tasks) = self.tasks.remove(&run) {
            return Ok(tasks);
        }
        let survey = self.survey(run)?;
        let open = open_tasks(&mut self.medium, run, &survey)?;
        Ok(StoredTasks { fold: survey.fold, open })
    }

    fn journal(
        &self,
        run: RunId,
        from: JournalCursor,
        visit: &mut dyn FnMut(u64, &JournalEntry, &str) -> ControlFlow<()>,
    ) -> Result<JournalCursor, StoreError> {
        let end = self.index.run(run)?.end;
        let journal = self.medium.journal(run);
        let JournalCursor { bytes, mut lines } = from;
        let mut reader: Reader = journal.open(&JournalEnd { bytes, lines, ..end })?;
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue() && lines < end.lines {
            let name = journal.name();
            lines += 1;
            let what = match reader.next().map_err(files::failed("read", &name))? {
                Next::Line(line, text) => {
                    flow = visit(line.sequence, &line.entry, text);
                    continue;
                }
                Next::Bad(bad) => bad.to_string(),
                Next::Torn | Next::End => format!("it ends before line {}", end.lines),
            };
            return Err(StoreError::damaged(&name, Some(lines), what));
        }
        Ok(JournalCursor { bytes: reader.offset(), lines })
    }
}
