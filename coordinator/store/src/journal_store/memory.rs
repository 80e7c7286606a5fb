//! A medium in memory: dropping it loses everything.

use std::{
    collections::{BTreeMap, HashMap},
    io::Cursor,
    path::PathBuf,
    sync::Arc,
};

use common::{messages::run::RunId, plan::TaskId};

use crate::{
    StoreError, SyncTimes,
    directory::files::Secret,
    journal::{JournalEnd, Reader, Source, trust::TrustChain},
};

use super::{Group, JournalStore, Medium, Text, index::IndexedRun, recover::Loaded, rows::TaskRow};

/// A store in memory: the model in tests of stores, and the disk of simulations.
pub type MemoryStore = JournalStore<Memory>;

#[derive(Clone, Debug, Default)]
pub struct Memory {
    journals: HashMap<RunId, Arc<Vec<u8>>>,
    texts: HashMap<String, String>,
    rows: HashMap<RunId, Rows>,
}

/// The rows of a run, and the number of lines that they reflect.
#[derive(Clone, Debug, Default)]
struct Rows {
    by_task: BTreeMap<TaskId, TaskRow>,
    seen: u64,
}

impl MemoryStore {
    /// Creates a store without runs, in its first term.
    pub fn new() -> Self {
        let (loaded, trust) = (Loaded::default(), TrustChain::new());
        Self::from_parts(Memory::default(), loaded, trust, Secret([7; 32]), 1)
    }

    /// Begins the next term, as a restarted coordinator does.
    pub fn begin_term(&mut self) {
        self.term += 1;
    }

    /// Removes everything that is not journaled.
    #[cfg(test)]
    pub(crate) fn lose_rows(&mut self) {
        self.medium.rows.clear();
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) struct MemoryJournal(RunId, Arc<Vec<u8>>);

impl Source for MemoryJournal {
    fn name(&self) -> PathBuf {
        format!("the journal of run {}", self.0).into()
    }

    fn open(&self, end: &JournalEnd) -> Result<Reader, StoreError> {
        let start = usize::try_from(end.bytes).unwrap_or(usize::MAX).min(self.1.len());
        Ok(Reader::new(Cursor::new(self.1[start..].to_vec()), end.bytes))
    }

    fn state_name(&self) -> PathBuf {
        format!("the state of run {}", self.0).into()
    }

    fn length(&self) -> Result<u64, StoreError> {
        Ok(self.1.len() as u64)
    }
}

impl Medium for Memory {
    type Journal = MemoryJournal;

    fn journal(&self, run: RunId) -> MemoryJournal {
        MemoryJournal(run, self.journals.get(&run).cloned().unwrap_or_default())
    }

    fn name(&self, text: Text) -> PathBuf {
        text.path().into()
    }

    fn create(&mut self, _: &IndexedRun) -> Result<(), StoreError> {
        Ok(())
    }

    fn delete(&mut self, run: RunId) -> Result<(), StoreError> {
        let folder = format!("runs/{run}/");
        self.journals.remove(&run);
        self.rows.remove(&run);
        self.texts.retain(|name, _| !name.starts_with(&folder));
        Ok(())
    }

    fn commit(&mut self, group: &Group<'_>, _: &SyncTimes) -> Result<(), StoreError> {
        for ((run, task), row) in group.rows {
            self.rows.entry(*run).or_default().by_task.insert(*task, row.clone());
        }
        for (run, new) in &group.journals {
            self.rows.entry(*run).or_default().seen = new.end.lines;
            Arc::make_mut(self.journals.entry(*run).or_default()).extend(&new.text);
        }
        for (text, content) in &group.texts {
            self.write(*text, content)?;
        }
        Ok(())
    }

    fn read(&self, text: Text) -> Result<Option<String>, StoreError> {
        Ok(self.texts.get(&text.path()).cloned())
    }

    fn write(&mut self, text: Text, content: &str) -> Result<(), StoreError> {
        self.texts.insert(text.path(), content.to_owned());
        Ok(())
    }

    fn rows(
        &mut self,
        run: RunId,
        visit: &mut dyn FnMut(TaskId, TaskRow),
    ) -> Result<u64, StoreError> {
        let Some(rows) = self.rows.get(&run) else { return Ok(0) };
        rows.by_task.iter().for_each(|(task, row)| visit(*task, row.clone()));
        Ok(rows.seen)
    }

    fn put_rows(
        &mut self,
        run: RunId,
        rows: &mut dyn Iterator<Item = (TaskId, TaskRow)>,
        seen: u64,
    ) -> Result<(), StoreError> {
        let kept = self.rows.entry(run).or_default();
        kept.by_task.extend(rows);
        kept.seen = seen;
        Ok(())
    }
}
