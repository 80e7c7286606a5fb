//! A replica of a data directory, updated in passes.
//!
//! Restored after the loss of the disk, the replica lacks only the writes since the last pass. Sealed
//! segments are copied once. The growing segment is copied whole in every pass that finds it longer, under
//! the number of its future seal: an interrupted pass leaves no duplicates. Small files are read first and
//! written last, so they never refer to lines that the replica lacks. A manifest, which refers to no lines, is
//! written before the lines of its run: lines without a manifest are damage. Only growing segments are
//! removed, once their sealed copies exist.

mod place;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use futures_util::TryStreamExt as _;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, path::Path as Name};
use tokio::runtime::{self, Runtime};

pub use self::place::ArchivePlace;

use crate::{
    ArchiveLag, EventLog, Note, StoreError,
    directory::files::{self, DataFiles, LOCK, MARKER, SECRET, TERM},
    journal::{
        manifest,
        segments::{self, ACTIVE, Sealed},
    },
};

/// The interval between the starts of two passes.
/// The loss of a disk costs the writes of this interval and of a pass; if a pass takes longer, of two passes.
const PASS_INTERVAL: Duration = Duration::from_secs(5);

/// An open replica.
pub struct Archive {
    objects: Arc<dyn ObjectStore>,
    runtime: Runtime,
    place: ArchivePlace,
    /// The lengths of the archive's objects, by name.
    lengths: BTreeMap<String, u64>,
    /// The small files as last written.
    small: BTreeMap<String, Vec<u8>>,
}

impl Archive {
    /// Opens the replica of `dir`, which need not exist yet, and creates a missing directory at `place`.
    /// An archive of another data directory, or of a later state, is an error.
    pub fn of(dir: &Path, place: &ArchivePlace) -> Result<Self, StoreError> {
        place.check_separate(dir)?;
        place.make()?;
        let archive = Self::open(place)?;
        let is_other = archive.lengths.contains_key(SECRET)
            && Some(archive.get(SECRET)?) != files::read_bytes(&dir.join(SECRET))?;
        let what = match is_other {
            true => Some("is not the archive of"),
            false if !archive.is_continued_by(dir)? => Some("has counts that are not in"),
            false if archive.is_later_than(dir)? => Some("has events that are not in"),
            false => None,
        };
        if let Some(what) = what {
            let advice = "restore it with `queensctl restore`, or give an empty or a new one";
            let what = format!("it {what} {}", dir.display());
            return Err(StoreError::unusable(place, what, advice));
        }
        Ok(archive)
    }

    fn open(place: &ArchivePlace) -> Result<Self, StoreError> {
        let objects = place.open()?;
        let path = place.path();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(files::failed("open", &path))?;
        let all = objects.list(None);
        let all = all.map_ok(|object| (object.location.to_string(), object.size));
        let lengths = runtime.block_on(all.try_collect());
        let lengths = lengths.map_err(|error| cannot("list", &path, &error))?;
        Ok(Self { objects, runtime, place: place.clone(), lengths, small: BTreeMap::new() })
    }

    /// Runs an operation on an object; an error names the operation and the object.
    fn run<T>(
        &self,
        action: &'static str,
        name: &str,
        work: impl AsyncFnOnce(&dyn ObjectStore, &Name) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let done = self.runtime.block_on(work(&*self.objects, &Name::from(name)));
        done.map_err(|error| cannot(action, &self.place.path().join(name), &error))
    }

    fn put(&mut self, name: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let length = bytes.len() as u64;
        self.run("write", name, async |objects, name| objects.put(name, bytes.into()).await)?;
        self.place.protect(name)?;
        self.lengths.insert(name.to_owned(), length);
        Ok(())
    }

    fn get(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let read = async |objects: &dyn ObjectStore, name: &Name| {
            objects.get(name).await?.bytes().await.map(Vec::from)
        };
        self.run("read", name, read)
    }

    fn remove(&mut self, name: &str) -> Result<(), StoreError> {
        self.run("remove", name, async |objects, name| objects.delete(name).await)?;
        self.lengths.remove(name);
        Ok(())
    }

    /// Returns whether a directory has all journal lines of the replica: an older copy lacks some.
    fn is_continued_by(&self, dir: &Path) -> Result<bool, StoreError> {
        for name in self.lengths.keys() {
            let Some((run, _)) = name.split_once("/growing.") else { continue };
            let folder = dir.join(run);
            if !folder.is_dir() {
                continue;
            }
            let path = match *name == growing(run, sealed_segments(&folder)?.len() + 1) {
                true => folder.join(ACTIVE),
                false => dir.join(name.replace("/growing.", "/journal.")),
            };
            let (archived, ours) = (self.get(name)?, files::read_bytes(&path)?);
            // The directory has cut a torn line, which the replica may have.
            let whole = archived.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            if !ours.is_some_and(|ours| ours.starts_with(&archived[..whole])) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether the replica has a later event than a directory, or is of a later start.
    ///
    /// An older copy may have all counts and lack only bars or a whole run. A directory lacks a run also after its
    /// deletion, but that is a later event.
    fn is_later_than(&self, dir: &Path) -> Result<bool, StoreError> {
        let mut last = 0;
        for name in self.lengths.keys() {
            if Path::new(name.as_str()).ends_with(Note::Events.file()) {
                last = last.max(last_event(&self.get(name)?));
            }
        }
        let term = match self.lengths.contains_key(TERM) {
            // The next pass replaces a damaged one.
            true => manifest::decode_term(String::from_utf8_lossy(&self.get(TERM)?).trim_end()),
            false => Ok(0),
        };
        Ok(last > last_event_in(dir)?
            || term.unwrap_or_default() > DataFiles::new(dir).last_term()?)
    }

    /// Brings the replica up to date.
    fn pass(&mut self, data_files: &DataFiles) -> Result<(), StoreError> {
        let small = small_files(&data_files.dir)?;
        let runs = small
            .iter()
            .filter_map(|(name, bytes)| Some((name.strip_suffix("/manifest.json")?, name, bytes)));
        for (run, manifest, bytes) in runs {
            if !self.lengths.contains_key(manifest) {
                self.put(&growing(run, 1), Vec::new())?;
                self.put(manifest, bytes.clone())?;
            }
            self.journal(&data_files.dir.join(run), &data_files.dir)?;
        }
        for (name, bytes) in small {
            if self.small.get(&name) != Some(&bytes) {
                self.put(&name, bytes.clone())?;
                self.small.insert(name, bytes);
            }
        }
        Ok(())
    }

    fn journal(&mut self, run: &Path, dir: &Path) -> Result<(), StoreError> {
        let active = run.join(ACTIVE);
        // Reads again if a segment was sealed in the meantime.
        let (sealed, text) = loop {
            let before = sealed_segments(run)?;
            let text = files::read_bytes(&active)?;
            if sealed_segments(run)?.len() == before.len() {
                break (before, text);
            }
        };
        for segment in &sealed {
            let name = name_of(&segment.path, dir);
            if !self.lengths.contains_key(&name)
                && let Some(bytes) = files::read_bytes(&segment.path)?
            {
                self.put(&name, bytes)?;
            }
        }
        let name = growing(&name_of(run, dir), sealed.len() + 1);
        if let Some(bytes) = text
            && self.lengths.get(&name) != Some(&(bytes.len() as u64))
        {
            self.put(&name, bytes)?;
        }
        let replaced = growing(&name_of(run, dir), sealed.len());
        if self.lengths.contains_key(&replaced) { self.remove(&replaced) } else { Ok(()) }
    }
}

/// Returns the object name of the growing segment that will be sealed as `number`.
fn growing(run: &str, number: usize) -> String {
    format!("{run}/{}", segments::growing(number))
}

fn name_of(path: &Path, dir: &Path) -> String {
    let name = path.strip_prefix(dir).unwrap_or(path);
    name.to_string_lossy().into_owned()
}

/// Returns the number of the last event of a log; 0 without events.
fn last_event(log: &[u8]) -> u64 {
    let log = EventLog::decode(&String::from_utf8_lossy(log));
    log.events().map(|event| event.sequence).max().unwrap_or(0)
}

/// Returns the number of the last event of a data directory, which may be missing.
fn last_event_in(dir: &Path) -> Result<u64, StoreError> {
    let runs = DataFiles::new(dir).runs();
    let mut folders = if runs.is_dir() { files::entries(&runs)? } else { Vec::new() };
    folders.push(dir.to_owned());
    let mut last = 0;
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        if let Some(log) = files::read_bytes(&folder.join(Note::Events.file()))? {
            last = last.max(last_event(&log));
        }
    }
    Ok(last)
}

fn sealed_segments(run: &Path) -> Result<Vec<Sealed>, StoreError> {
    segments::sealed(&run.join(ACTIVE)).map_err(files::failed("read", run))
}

/// Reads all files except journals, index, lock, temporary files and copies.
fn small_files(dir: &Path) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut entries = files::entries(&folder)?;
        // A seal is read before its lines and written after them, so that it never states missing ones.
        entries.sort_by(|a, b| b.cmp(a));
        for path in entries {
            let name = name_of(&path, dir);
            if is_skipped(&name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Some(bytes) = files::read_bytes(&path)? {
                found.push((name, bytes));
            }
        }
    }
    // The marker makes a directory, so it comes last.
    found.sort_by(|(a, _), (b, _)| (*a == MARKER, a).cmp(&(*b == MARKER, b)));
    Ok(found)
}

/// Returns whether a file or folder, named by its path in the data directory, is not a small file.
fn is_skipped(name: &str) -> bool {
    let journal = name.strip_prefix("runs/").and_then(|name| name.split_once("/journal."));
    name == LOCK
        || name == "db"
        || name.starts_with("db.")
        || name.contains(".torn-")
        || [".tmp", ".new", ".next", ".deleted"].iter().any(|end| name.ends_with(end))
        || journal.is_some_and(|(_, end)| end.ends_with("jsonl"))
}

fn cannot(action: &'static str, path: &Path, error: &Error) -> StoreError {
    files::failed(action, path)(std::io::Error::other(without_xml(&error.to_string())))
}

/// Shortens an error of S3 to the code and message of its XML answer.
fn without_xml(text: &str) -> String {
    let tag = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0)
    };
    match (tag("Code"), tag("Message")) {
        (Some(code), Some(message)) => format!("{message} ({code})"),
        _ => text.to_owned(),
    }
}

/// Replicates a data directory until dropped.
pub struct Archiver {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    lag: ArchiveLag,
}

impl Archiver {
    /// Starts to replicate `dir`, which a coordinator has open; returns after the first pass.
    pub fn start(dir: &Path, mut archive: Archive) -> Result<Self, StoreError> {
        let data_files = DataFiles::new(dir);
        let lag = ArchiveLag::up_to(Instant::now());
        archive.pass(&data_files)?;
        let (stop, stopped) = mpsc::channel();
        let thread_lag = lag.clone();
        let thread = thread::Builder::new()
            .name("archive".to_owned())
            .spawn(move || follow(&mut archive, &data_files, &stopped, &thread_lag))
            .map_err(files::failed("follow", dir))?;
        Ok(Self { stop: Some(stop), thread: Some(thread), lag })
    }

    pub fn lag(&self) -> ArchiveLag {
        self.lag.clone()
    }
}

fn follow(
    archive: &mut Archive,
    data_files: &DataFiles,
    stopped: &mpsc::Receiver<()>,
    lag: &ArchiveLag,
) {
    let mut began = Instant::now();
    loop {
        let pause = PASS_INTERVAL.saturating_sub(began.elapsed());
        let last = stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout);
        began = Instant::now();
        match archive.pass(data_files) {
            Ok(()) => lag.advance(began),
            Err(error) => {
                tracing::warn!("the archive is {} s behind: {error}", lag.behind().as_secs())
            }
        }
        if last {
            return;
        }
    }
}

impl Drop for Archiver {
    /// Makes a last pass.
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the last pass of the archive failed");
        }
    }
}

/// Restores a data directory from an archive, into an empty or new directory.
pub fn restore(place: &ArchivePlace, dir: &Path) -> Result<(), StoreError> {
    let archive = Archive::open(place)?;
    if !archive.lengths.contains_key(MARKER) {
        let what = "not a complete archive of a coordinator: it has no format.json";
        return Err(StoreError::unusable(place, what, "check the path"));
    }
    files::claim_folder(dir)?;
    if !files::entries(dir)?.is_empty() {
        let advice = "give an empty or a new directory";
        return Err(StoreError::unusable(dir.display(), "it is not empty", advice));
    }
    // The marker comes last: it makes the directory usable.
    let mut names: Vec<_> = archive.lengths.keys().collect();
    names.sort_by_key(|name| *name == MARKER);
    for name in names {
        if let Some(path) = restored(name, dir, &archive.lengths) {
            files::write_private(&path, &archive.get(name)?)?;
        }
    }
    Ok(())
}

/// Returns the path to which an object is restored; `None` for a growing segment that is also there sealed.
fn restored(name: &str, dir: &Path, lengths: &BTreeMap<String, u64>) -> Option<PathBuf> {
    let Some((run, number)) = name.split_once("/growing.") else {
        return Some(dir.join(name));
    };
    match lengths.contains_key(&format!("{run}/journal.{number}")) {
        true => None,
        false => Some(dir.join(run).join(ACTIVE)),
    }
}
