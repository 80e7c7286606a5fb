//! A medium in memory: dropping it loses everything.

use std::{collections::HashMap, io::Cursor, path::PathBuf, sync::Arc};

use common::{plan::TaskId, run::RunId};
use scheduler::ledger::TaskRow;

use crate::{
    StoreError, SyncTimes,
    directory::files::Secret,
    journal::{End, Reader, Source, trust::TrustChain},
};

use super::{
    Group, JournalStore, Medium, Text,
    index::{Index, IndexedRun},
};

/// A store in memory: the model in tests of stores, and the disk of simulations.
pub type MemoryStore = JournalStore<Memory>;

#[derive(Clone, Debug, Default)]
pub struct Memory {
    journals: HashMap<RunId, Arc<Vec<u8>>>,
    texts: HashMap<String, String>,
}

impl MemoryStore {
    /// Creates a store without runs, in its first term.
    pub fn new() -> Self {
        let (index, trust) = (Index::default(), TrustChain::new());
        Self::from_parts(Memory::default(), index, trust, Secret([7; 32]), 1)
    }

    /// Begins the next term, as a restarted coordinator does.
    pub fn begin_term(&mut self) {
        self.term += 1;
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

    fn open(&self, end: &End) -> Result<Reader, StoreError> {
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
        self.texts.retain(|name, _| !name.starts_with(&folder));
        Ok(())
    }

    fn commit(&mut self, group: &Group<'_>, _: &SyncTimes) -> Result<(), StoreError> {
        for (run, new) in &group.journals {
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

    /// Passes no rows: a store in memory is never opened, so only its index has rows.
    fn rows(&mut self, _: RunId, _: &mut dyn FnMut(TaskId, TaskRow)) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn put_rows(&mut self, _: RunId, _: &[(TaskId, &TaskRow)], _: u64) -> Result<(), StoreError> {
        Ok(())
    }
}
