//! Keys, tokens and join strings: private texts by name, stored with the runs.

use std::path::{Path, PathBuf};

use proto::connect::FOLDER;

use crate::{
    StoreError,
    directory::files::{self, read_text},
    postgres::Texts,
    run_off_runtime,
};

/// A place for private texts. Its calls may block.
#[derive(Clone)]
pub struct SecretStore(Place);

#[derive(Clone)]
enum Place {
    /// A folder that only its owner can read.
    Folder(PathBuf),
    Database(Texts),
}

impl SecretStore {
    /// Returns the secrets of a data directory. The first write creates their folder.
    pub fn of_directory(dir: &Path) -> Self {
        Self(Place::Folder(dir.join(FOLDER)))
    }

    pub(crate) fn of_database(texts: Texts) -> Self {
        Self(Place::Database(texts))
    }

    /// Reads the text of this name; `None` if it is missing.
    pub fn read(&self, name: &str) -> Result<Option<String>, StoreError> {
        match &self.0 {
            Place::Folder(folder) => read_text(&folder.join(name)),
            Place::Database(texts) => run_off_runtime(|| texts.read(&in_folder(name))),
        }
    }

    /// Writes a text durably and atomically.
    pub fn write(&self, name: &str, text: &str) -> Result<(), StoreError> {
        self.claim()?;
        match &self.0 {
            Place::Folder(folder) => files::write_private(&folder.join(name), text.as_bytes()),
            Place::Database(texts) => run_off_runtime(|| texts.write(&in_folder(name), text)),
        }
    }

    /// Makes the folder private. A database has its own access rights.
    pub fn claim(&self) -> Result<(), StoreError> {
        match &self.0 {
            Place::Folder(folder) => files::claim_folder(folder),
            Place::Database(_) => Ok(()),
        }
    }

    /// Returns the path of a text, or a description of its place in the database.
    pub fn path(&self, name: &str) -> PathBuf {
        match &self.0 {
            Place::Folder(folder) => folder.join(name),
            Place::Database(texts) => texts.place(&in_folder(name)).into(),
        }
    }
}

fn in_folder(name: &str) -> String {
    format!("{FOLDER}/{name}")
}
