//! The data directory: its owner, its lock, and atomic writes of its files.
//!
//! ```text
//! DIR/format.json                 the marker, with the version of the directory's format
//! DIR/lock                        locked by the process that writes; holds its process ID
//! DIR/runs/<run>/manifest.json    the run's manifest; written last, so it creates the run
//! DIR/runs/<run>/state.json       the run's state, and the end of the journal at that time
//! DIR/runs/<run>/journal.jsonl    the newest records
//! DIR/runs/<run>/journal.000001.jsonl, …   earlier records, in sealed segments
//! DIR/runs/<run>/journal.000001.seal, …    the end of the journal when the segment was sealed
//! DIR/runs/<run>/symmetric.json   the symmetric solutions, once they are counted
//! DIR/runs/<run>/events.jsonl     the run's events
//! DIR/runs/<run>/history.json     the run's charts and its workers' shares
//! DIR/runs/<run>/settings.json    priority, and the share of tasks to recheck
//! DIR/runs/<run>.deleted          a run that is being removed
//! DIR/term.json                   the coordinator's term, incremented at every start
//! DIR/trust.jsonl                 the trust in workers
//! DIR/trust.seal                  the number of lines in trust.jsonl, and the hash of the last
//! DIR/events.jsonl                the events of the cluster
//! DIR/secret                      32 random bytes, private
//! DIR/auth/                      keys, tokens and join strings, private
//! DIR/signing-key                 the key that signs certificates, private
//! DIR/db/                         sled; can be rebuilt from the rest
//! ```

use std::{
    fmt::Display,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read, Seek, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use common::messages::{hex, run::RunId};

use crate::{
    StoreError, descriptors,
    journal::{
        manifest,
        segments::{self, ACTIVE},
        text::{FORMAT, format_of},
    },
};

pub(crate) const MARKER: &str = "format.json";
pub(crate) const LOCK: &str = "lock";
pub(crate) const TERM: &str = "term.json";
/// The extension of a deleted run's folder until it is removed.
pub(crate) const DELETED: &str = "deleted";
pub(crate) const SECRET: &str = "secret";
pub(crate) const SIGNING_KEY: &str = "signing-key";

/// The paths of a data directory.
#[derive(Clone, Debug)]
pub(crate) struct DataFiles {
    pub(crate) dir: PathBuf,
}

/// The paths of one run's folder.
#[derive(Clone, Debug)]
pub(crate) struct RunFiles {
    pub(crate) dir: PathBuf,
}

impl DataFiles {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.dir.join("db")
    }

    pub(crate) fn runs(&self) -> PathBuf {
        self.dir.join("runs")
    }

    pub(crate) fn run(&self, run: RunId) -> RunFiles {
        RunFiles { dir: self.runs().join(run.to_string()) }
    }

    pub(crate) fn trust(&self) -> PathBuf {
        self.dir.join("trust.jsonl")
    }

    pub(crate) fn term(&self) -> PathBuf {
        self.dir.join(TERM)
    }

    /// Begins a new term, higher than all earlier ones and than those of the journals' lines.
    pub(crate) fn next_term(&self, max_fence: u64) -> Result<u64, StoreError> {
        let term = self.last_term()?.max(max_fence) + 1;
        write_durably(&self.term(), &manifest::encode_term(term))?;
        Ok(term)
    }

    /// Reads the last term; 0 if there was none.
    pub(crate) fn last_term(&self) -> Result<u64, StoreError> {
        Ok(read_decoded(&self.term(), manifest::decode_term)?.unwrap_or(0))
    }

    /// Reads the 32 random bytes of a private file; creates a missing file.
    pub(crate) fn load_or_create_secret(&self, name: &str) -> Result<Secret, StoreError> {
        let path = self.dir.join(name);
        if let Some(secret) = read_decoded(&path, Secret::decode)? {
            return Ok(secret);
        }
        let secret = Secret(rand::random());
        write_private(&path, (secret.encode() + "\n").as_bytes())?;
        Ok(secret)
    }

    /// Reads the directory's secret, if it has one.
    pub(crate) fn existing_secret(&self) -> Result<Option<Secret>, StoreError> {
        read_decoded(&self.dir.join(SECRET), Secret::decode)
    }

    /// Marks an empty directory with this program's format.
    fn claim(&self) -> Result<(), StoreError> {
        if self.is_marked()? {
            return Ok(());
        }
        let runs = self.runs();
        fs::create_dir_all(&runs).map_err(failed("create", &runs))?;
        write_durably(&self.dir.join(MARKER), &manifest::marker())
    }

    /// Returns whether the directory is marked; otherwise it is empty. Fails if it is foreign.
    fn is_marked(&self) -> Result<bool, StoreError> {
        let marker = self.dir.join(MARKER);
        match fs::read_to_string(&marker) {
            Ok(text) => match (manifest::check_marker(text.trim_end()), format_of(&text)) {
                (Ok(()), _) => Ok(true),
                (Err(_), Some(found)) if found != FORMAT => {
                    Err(StoreError::FormatVersion { dir: self.dir.clone(), found, ours: FORMAT })
                }
                (Err(what), _) => Err(StoreError::damaged(&marker, None, what)),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.foreign_entry().map_or(Ok(false), |found| {
                    Err(StoreError::ForeignDirectory {
                        dir: self.dir.clone(),
                        found: found.to_string_lossy().into_owned(),
                    })
                })
            }
            Err(error) => Err(failed("read", &marker)(error)),
        }
    }

    /// Finds an entry of an unmarked directory that no crash of this program left.
    fn foreign_entry(&self) -> Option<std::ffi::OsString> {
        let entries = fs::read_dir(&self.dir).ok()?;
        entries.flatten().find_map(|entry| {
            let name = entry.file_name();
            let temporary = temporary(Path::new(MARKER));
            let ours = name == LOCK
                || name == temporary
                || (name == "runs"
                    && fs::read_dir(entry.path()).is_ok_and(|mut d| d.next().is_none()));
            (!ours).then_some(name)
        })
    }
}

impl RunFiles {
    pub(crate) fn manifest(&self) -> PathBuf {
        self.dir.join("manifest.json")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    /// Returns the path of the newest records.
    pub(crate) fn journal(&self) -> PathBuf {
        let active = self.dir.join(ACTIVE);
        self.growing().filter(|_| !active.exists()).unwrap_or(active)
    }

    /// Returns the path of the newest records in an archive, which names them after their future segment.
    pub(crate) fn growing(&self) -> Option<PathBuf> {
        let sealed = segments::sealed(&self.dir.join(ACTIVE)).ok()?;
        let path = self.dir.join(segments::growing(sealed.len() + 1));
        path.exists().then_some(path)
    }
}

/// A directory that is being read.
#[derive(Debug)]
pub(crate) enum Reading {
    /// No coordinator writes the directory while the lock is held.
    Alone(#[expect(dead_code, reason = "held for as long as the directory is read")] Option<Lock>),
    /// Open in a coordinator: journals grow, and a last line may be half written.
    WhileWritten,
}

/// The lock of a data directory, released when dropped or when the process dies.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Locks a directory that is marked or empty; creates a missing one and marks an empty one.
    pub(crate) fn exclusive(data_files: &DataFiles) -> Result<Self, StoreError> {
        let lock = Self::unmarked(data_files)?;
        data_files.claim()?;
        Ok(lock)
    }

    /// Locks a directory as [`Self::exclusive`] does, but leaves an empty one without a mark.
    pub(crate) fn unmarked(data_files: &DataFiles) -> Result<Self, StoreError> {
        claim_folder(&data_files.dir)?;
        data_files.is_marked()?;
        let path = data_files.dir.join(LOCK);
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(data_files, &mut file)),
            Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
        }
        let pid = std::process::id();
        file.set_len(0).and_then(|()| writeln!(file, "{pid}")).map_err(failed("write", &path))?;
        Ok(Self(file))
    }

    /// Locks out coordinators while a directory is read, unless one has it open.
    /// A copy on read-only storage may lack the lock file, and needs none.
    pub(crate) fn shared(data_files: &DataFiles) -> Result<Reading, StoreError> {
        let path = data_files.dir.join(LOCK);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Reading::Alone(None)),
            Err(error) => return Err(failed("open", &path)(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Reading::Alone(Some(Self(file)))),
            Err(TryLockError::WouldBlock) => Ok(Reading::WhileWritten),
            Err(TryLockError::Error(error)) => Err(failed("lock", &path)(error)),
        }
    }

    pub(crate) fn marked(data_files: &DataFiles) -> Result<bool, StoreError> {
        fs::read_dir(&data_files.dir).map_err(failed("read", &data_files.dir))?;
        data_files.is_marked()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The process ID is only a hint for people. A reader's file cannot be written.
        let _ = self.0.set_len(0);
        let _ = self.0.unlock();
    }
}

fn in_use(data_files: &DataFiles, file: &mut File) -> StoreError {
    let mut pid = String::new();
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut pid));
    let holder = match pid.trim() {
        "" => String::new(),
        pid => format!(" (process {pid})"),
    };
    StoreError::InUse { dir: data_files.dir.clone(), holder }
}

fn temporary(path: &Path) -> PathBuf {
    path.with_extension("tmp")
}

/// Reads a text file; `None` if it is missing.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, StoreError> {
    none_if_missing(path, descriptors::open(|| fs::read_to_string(path)))
}

/// Reads and decodes a small file; `None` if it is missing.
pub(crate) fn read_decoded<T, E: Display>(
    path: &Path,
    decode: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, StoreError> {
    let text = read_text(path)?;
    let decoded = text.map(|text| decode(text.trim_end())).transpose();
    decoded.map_err(|what| StoreError::damaged(path, None, what))
}

/// Reads a file of any bytes; `None` if it is missing.
pub(crate) fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    none_if_missing(path, descriptors::open(|| fs::read(path)))
}

fn none_if_missing<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>, StoreError> {
    match read {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// Replaces a file: after a crash it has either the whole old or whole new text.
pub(crate) fn write_durably(path: &Path, text: &str) -> Result<(), StoreError> {
    Replacement::prepare(path, text)?.put_in_place()
}

/// Replaces a file that only this user can read; creates its folder.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    create_private_folder(folder)?;
    Replacement::write(path, &[bytes], true)?.put_in_place()
}

fn create_private_folder(folder: &Path) -> Result<(), StoreError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(failed("create", folder))
}

/// Makes a folder and everything in it this user's own and private; creates a missing folder.
pub(crate) fn claim_folder(folder: &Path) -> Result<(), StoreError> {
    let action = if folder.exists() { "use" } else { "create" };
    proto::connect::claim_folder(folder).map_err(failed(action, folder))
}

/// The new content of a file, in a temporary file next to it.
#[derive(Debug)]
pub(crate) struct Replacement {
    path: PathBuf,
    temporary: PathBuf,
}

impl Replacement {
    /// Writes the new text and a line end. After an error the file is unchanged.
    pub(crate) fn prepare(path: &Path, text: &str) -> Result<Self, StoreError> {
        Self::write(path, &[text.as_bytes(), b"\n"], false)
    }

    fn write(path: &Path, parts: &[&[u8]], private: bool) -> Result<Self, StoreError> {
        let temporary = temporary(path);
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(true);
        if private {
            // Opening a file that a crash left, or that another user planted, would keep its owner and mode.
            if fs::symlink_metadata(&temporary).is_ok_and(|it| it.is_file() || it.is_symlink()) {
                let _ = fs::remove_file(&temporary);
            }
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        let write = || {
            let mut file = descriptors::open(|| options.open(&temporary))?;
            parts.iter().try_for_each(|part| file.write_all(part))?;
            file.sync_all()
        };
        write().map_err(|error| {
            // The temporary file may occupy the last free blocks.
            let _ = fs::remove_file(&temporary);
            failed("write", path)(error)
        })?;
        Ok(Self { path: path.to_owned(), temporary })
    }

    /// Renames the new file into place. An error leaves the old or the new content.
    pub(crate) fn put_in_place(self) -> Result<(), StoreError> {
        fs::rename(&self.temporary, &self.path).map_err(failed("write", &self.path))?;
        sync_parent(&self.path)
    }
}

/// Bytes that must not appear in logs and errors.
#[derive(Clone, Copy)]
pub(crate) struct Secret(pub(crate) [u8; 32]);

impl Secret {
    /// Encodes the bytes and their CRC-32, which detects changes, in hexadecimal.
    pub(crate) fn encode(&self) -> String {
        hex::encode(&self.0) + &hex::encode(&crc32fast::hash(&self.0).to_be_bytes())
    }

    pub(crate) fn decode(text: &str) -> Result<Self, &'static str> {
        let text = text.to_ascii_lowercase();
        let (bytes, check) = text.split_at_checked(64).unwrap_or_default();
        let (Some(bytes), Some(check)) = (hex::decode(bytes), hex::decode(check)) else {
            return Err("it is not 72 hexadecimal digits");
        };
        match check == crc32fast::hash(&bytes).to_be_bytes() {
            true => Ok(Self(bytes)),
            false => Err("its checksum is wrong"),
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Makes the entry of `path` in its directory durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), StoreError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    if cfg!(not(unix)) {
        // Elsewhere folders cannot be opened as files.
        return Ok(());
    }
    descriptors::open(|| File::open(dir))
        .and_then(|dir| dir.sync_all())
        .map_err(failed("sync", dir))
}

/// Returns whether `path` is a run whose deletion was interrupted.
pub(crate) fn is_deleted(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == DELETED)
}

/// Adds the file to an error of the operating system.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}

/// Returns an unused name next to `path`: `path.SUFFIX-MILLISECONDS`.
pub(crate) fn backup_path(path: &Path, suffix: &str) -> PathBuf {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let first = since.map_or(0, |since| since.as_millis());
    (first..)
        .map(|number| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{suffix}-{number}"));
            PathBuf::from(name)
        })
        .find(|path| !path.exists())
        .expect("some name is free")
}

/// Lists the files named by [`backup_path`] for this path and suffix.
pub(crate) fn existing_backups(path: &Path, suffix: &str) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{name}.{suffix}-");
    let entries = entries(path.parent().unwrap_or(Path::new("."))).unwrap_or_default();
    let is_backup = |path: &PathBuf| {
        path.file_name().unwrap_or_default().to_string_lossy().starts_with(&prefix)
    };
    entries.into_iter().filter(is_backup).collect()
}

/// Lists the paths in a directory.
pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    fs::read_dir(dir)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(failed("read", dir))
}
