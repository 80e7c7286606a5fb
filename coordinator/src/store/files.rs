//! The data directory: whose it is, who holds it, and files that are there whole or not at all.
//!
//! ```text
//! DIR/format.json                 marks the directory as ours, with the version of its format
//! DIR/lock                        locked by the process that writes; holds its process id
//! DIR/runs/<run>/manifest.json    what the run is; written last, so it seals the run
//! DIR/runs/<run>/state.json       paused, complete, …, and how long the journal was then
//! DIR/runs/<run>/journal.jsonl    the last records
//! DIR/runs/<run>/journal.000001.jsonl, …   those before, in sealed segments
//! DIR/runs/<run>/journal.000001.seal, …    how the journal was when each was sealed
//! DIR/runs/<run>/symmetric.json   the symmetric solutions, once they were counted
//! DIR/runs/<run>.deleted          a run that is being removed
//! DIR/runs/<run>/recheck.json     how much of it is counted twice, if somebody has said
//! DIR/term.json                   the coordinator's term: one more at every start
//! DIR/trust.jsonl                 what is thought of workers
//! DIR/trust.seal                  how many lines that has, and the hash of the last
//! DIR/secret                      32 random bytes, for this user alone
//! DIR/signing-key                 what certificates are signed with, for this user alone
//! DIR/db/                         sled; can be made again from the rest
//! ```

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read, Seek, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use common::run::RunId;

use super::{
    StoreError, manifest,
    text::{BadText, format_of},
};
use crate::descriptors;

const MARKER: &str = "format.json";
const LOCK: &str = "lock";
const DELETED: &str = "deleted";

/// Where things are.
#[derive(Clone, Debug)]
pub(crate) struct DataFiles {
    pub(crate) dir: PathBuf,
}

/// Where the files of one run are.
#[derive(Clone, Debug)]
pub(crate) struct RunFiles {
    pub(crate) dir: PathBuf,
}

impl DataFiles {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.dir.join("db")
    }

    pub(crate) fn runs(&self) -> PathBuf {
        self.dir.join("runs")
    }

    pub(crate) fn run(&self, run: RunId) -> RunFiles {
        RunFiles {
            dir: self.runs().join(run.to_string()),
        }
    }

    pub(crate) fn trust(&self) -> PathBuf {
        self.dir.join("trust.jsonl")
    }

    pub(crate) fn term(&self) -> PathBuf {
        self.dir.join("term.json")
    }

    fn secret(&self) -> PathBuf {
        self.dir.join("secret")
    }

    /// Begins a new term, higher than all before, durably.
    pub(crate) fn next_term(&self) -> Result<u64, StoreError> {
        let term = self.kept_term()? + 1;
        write_durably(&self.term(), &manifest::encode_term(term))?;
        Ok(term)
    }

    /// The last term that was begun; 0 if none was.
    pub(crate) fn kept_term(&self) -> Result<u64, StoreError> {
        let path = self.term();
        match descriptors::open(|| fs::read_to_string(&path)) {
            Ok(text) => manifest::decode_term(text.trim_end())
                .map_err(|what| StoreError::damaged(&path, None, what)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(failed("read", &path)(error)),
        }
    }

    /// The directory's secret; drawn when it is asked for first.
    pub(crate) fn keep_secret(&self) -> Result<Secret, StoreError> {
        secret_at(&self.secret())
    }

    /// The key that signs certificates; drawn when it is asked for first.
    pub(crate) fn keep_signing_key(&self) -> Result<Secret, StoreError> {
        secret_at(&self.dir.join("signing-key"))
    }

    /// The directory's secret, if it has one, for readers.
    pub(crate) fn kept_secret(&self) -> Result<Option<Secret>, StoreError> {
        let path = self.secret();
        match path.exists() {
            true => secret_at(&path).map(Some),
            false => Ok(None),
        }
    }

    fn marker(&self) -> PathBuf {
        self.dir.join(MARKER)
    }

    fn lock(&self) -> PathBuf {
        self.dir.join(LOCK)
    }

    /// Makes the directory ours if it is empty; an error if it is not ours or of another format.
    fn claim(&self) -> Result<(), StoreError> {
        match self.check()? {
            Some(manifest::FORMAT) => return Ok(()),
            Some(older) => {
                tracing::info!(
                    "{} has format {older}: what it holds stays as it is, what is added has format \
                     {}, and programs that know only {older} will refuse it from now on",
                    self.dir.display(),
                    manifest::FORMAT
                );
            }
            None => {}
        }
        let runs = self.runs();
        fs::create_dir_all(&runs).map_err(failed("create", &runs))?;
        write_durably(&self.marker(), &manifest::marker())
    }

    /// The format of a directory that is marked as ours; an error if it cannot become ours.
    fn check(&self) -> Result<Option<u32>, StoreError> {
        let marker = self.marker();
        match fs::read_to_string(&marker) {
            Ok(text) => manifest::check_marker(text.trim_end())
                .map(Some)
                .map_err(|what| self.marker_error(&text, what)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.foreign_entry().map_or(Ok(None), |found| {
                    Err(StoreError::ForeignDirectory {
                        dir: self.dir.clone(),
                        found: found.to_string_lossy().into_owned(),
                    })
                })
            }
            Err(error) => Err(failed("read", &marker)(error)),
        }
    }

    fn marker_error(&self, text: &str, what: BadText) -> StoreError {
        match format_of(text) {
            Some(found) if found != manifest::FORMAT => StoreError::FormatVersion {
                dir: self.dir.clone(),
                found,
                ours: manifest::FORMAT,
            },
            _ => StoreError::damaged(&self.marker(), None, what),
        }
    }

    /// Something in an unmarked directory that a crash of ours cannot have left.
    fn foreign_entry(&self) -> Option<std::ffi::OsString> {
        let entries = fs::read_dir(&self.dir).ok()?;
        entries.flatten().find_map(|entry| {
            let name = entry.file_name();
            let temporary = temporary(&self.marker());
            let ours = name == LOCK
                || Some(name.as_os_str()) == temporary.file_name()
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

    pub(crate) fn journal(&self) -> PathBuf {
        self.dir.join("journal.jsonl")
    }

    pub(crate) fn recheck(&self) -> PathBuf {
        self.dir.join("recheck.json")
    }

    pub(crate) fn symmetric(&self) -> PathBuf {
        self.dir.join("symmetric.json")
    }

    /// Where a run goes that is being removed: from then on it is gone.
    pub(crate) fn deleted(&self) -> PathBuf {
        self.dir.with_extension(DELETED)
    }
}

/// How a directory is read.
#[derive(Debug)]
pub(crate) enum Reading {
    /// Nobody writes it as long as the lock lives.
    Alone(#[expect(dead_code, reason = "held for as long as the directory is read")] Option<Lock>),
    /// A coordinator has it: journals grow, and a last line may be half written.
    WhileWritten,
}

/// Holds the data directory for one process; released when dropped or when the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    exclusive: bool,
}

impl Lock {
    /// Makes the directory if need be, checks that it is ours or empty, and takes it.
    pub(crate) fn exclusive(data_files: &DataFiles) -> Result<Self, StoreError> {
        fs::create_dir_all(&data_files.dir).map_err(failed("create", &data_files.dir))?;
        data_files.check()?;
        let path = data_files.lock();
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
        file.set_len(0)
            .and_then(|()| writeln!(file, "{pid}"))
            .map_err(failed("write", &path))?;
        let lock = Self {
            file,
            exclusive: true,
        };
        data_files.claim()?;
        Ok(lock)
    }

    /// Keeps coordinators away while a directory is read, unless one has it already: then `None`.
    /// A copy on a read-only medium may lack the lock file, which is as good as none either.
    pub(crate) fn shared(data_files: &DataFiles) -> Result<Reading, StoreError> {
        let path = data_files.lock();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Reading::Alone(None)),
            Err(error) => return Err(failed("open", &path)(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Reading::Alone(Some(Self {
                file,
                exclusive: false,
            }))),
            Err(TryLockError::WouldBlock) => Ok(Reading::WhileWritten),
            Err(TryLockError::Error(error)) => Err(failed("lock", &path)(error)),
        }
    }

    /// Whether the directory of `data_files` is one of ours, for readers.
    pub(crate) fn marked(data_files: &DataFiles) -> Result<bool, StoreError> {
        fs::read_dir(&data_files.dir).map_err(failed("read", &data_files.dir))?;
        Ok(data_files.check()?.is_some())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.exclusive {
            // The process id is a hint for people: nothing is lost if it stays.
            let _ = self.file.set_len(0);
        }
        let _ = self.file.unlock();
    }
}

fn in_use(data_files: &DataFiles, file: &mut File) -> StoreError {
    let mut pid = String::new();
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut pid));
    let holder = match pid.trim() {
        "" => String::new(),
        pid => format!(" (process {pid})"),
    };
    StoreError::InUse {
        dir: data_files.dir.clone(),
        holder,
    }
}

fn temporary(path: &Path) -> PathBuf {
    path.with_extension("tmp")
}

/// Replaces a file so that after a crash it holds either the old or the new text, whole.
pub(crate) fn write_durably(path: &Path, text: &str) -> Result<(), StoreError> {
    Replacement::prepare(path, text)?.put_in_place()
}

/// A file's new text, on disk beside it.
#[derive(Debug)]
pub(crate) struct Replacement {
    path: PathBuf,
    temporary: PathBuf,
}

impl Replacement {
    /// Writes the new text. After an error the file is as it was.
    pub(crate) fn prepare(path: &Path, text: &str) -> Result<Self, StoreError> {
        Self::prepare_with(path, text, OpenOptions::new())
    }

    /// The same for this user's eyes only.
    fn prepare_private(path: &Path, text: &str) -> Result<Self, StoreError> {
        // One left by a crash keeps the mode that it was made with.
        let _ = fs::remove_file(temporary(path));
        #[cfg_attr(not(unix), expect(unused_mut, reason = "files have modes on Unix"))]
        let mut options = OpenOptions::new();
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Self::prepare_with(path, text, options)
    }

    fn prepare_with(path: &Path, text: &str, mut options: OpenOptions) -> Result<Self, StoreError> {
        let temporary = temporary(path);
        options.create(true).write(true).truncate(true);
        let write = || {
            let mut file = descriptors::open(|| options.open(&temporary))?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()
        };
        write().map_err(|error| {
            // It may hold on to the last free blocks.
            let _ = fs::remove_file(&temporary);
            failed("write", path)(error)
        })?;
        Ok(Self {
            path: path.to_owned(),
            temporary,
        })
    }

    /// After an error the file holds either text.
    pub(crate) fn put_in_place(self) -> Result<(), StoreError> {
        fs::rename(&self.temporary, &self.path).map_err(failed("write", &self.path))?;
        sync_parent(&self.path)
    }
}

/// Writes a file, with its folder, that nobody but this user may read, byte for byte.
#[cfg(any(feature = "postgres", feature = "archive"))]
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(failed("create", dir))?;
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    descriptors::open(|| options.open(path))
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .map_err(failed("write", path))?;
    sync_parent(path)
}

/// Bytes that no log and no error may show.
#[derive(Clone, Copy)]
pub(crate) struct Secret(pub(crate) [u8; 32]);

impl Secret {
    /// 64 hexadecimal digits, and their CRC-32 as eight more: with a digit changed it would be a
    /// secret as good as any other, that nobody knows.
    pub(crate) fn encode(&self) -> String {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{digits}{:08x}", crc32fast::hash(&self.0))
    }

    /// Programs before wrote the 64 digits alone.
    pub(crate) fn decode(text: &str) -> Result<Self, &'static str> {
        let mut bytes = [0; 32];
        if !matches!(text.len(), 64 | 72) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("it is not 64 or 72 hexadecimal digits");
        }
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).expect("they are digits");
        }
        let check = u32::from_str_radix(&text[64..], 16);
        match check.is_ok_and(|check| check != crc32fast::hash(&bytes)) {
            true => Err("its check sum is wrong"),
            false => Ok(Self(bytes)),
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// 32 random bytes kept in a file that only this user may read; drawn when they are asked for first.
pub(crate) fn secret_at(path: &Path) -> Result<Secret, StoreError> {
    match descriptors::open(|| fs::read_to_string(path)) {
        Ok(text) => {
            Secret::decode(text.trim_end()).map_err(|what| StoreError::damaged(path, None, what))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let secret = Secret(rand::random());
            Replacement::prepare_private(path, &secret.encode())?.put_in_place()?;
            Ok(secret)
        }
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// Makes the entry of `path` in its directory durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), StoreError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    if cfg!(not(unix)) {
        // Elsewhere a folder is no file to be opened, and names are the file system's own matter.
        return Ok(());
    }
    descriptors::open(|| File::open(dir))
        .and_then(|dir| dir.sync_all())
        .map_err(failed("sync", dir))
}

/// Whether `path` is what was left of a run while it was being removed.
pub(crate) fn is_deleted(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == DELETED)
}

/// Names the file in an error of the operating system.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io {
        action,
        path,
        source,
    }
}

/// A name beside `path` that is not taken: `path.SUFFIX-MILLISECONDS`.
pub(crate) fn aside(path: &Path, suffix: &str) -> PathBuf {
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

/// What [`aside`] named before, for the same path and suffix.
pub(crate) fn set_aside_before(path: &Path, suffix: &str) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{name}.{suffix}-");
    let dir = path.parent().unwrap_or(Path::new("."));
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect()
}
