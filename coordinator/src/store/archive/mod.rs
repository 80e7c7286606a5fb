//! A copy of a data directory that follows it, elsewhere: whoever loses the disk restores the copy, and
//! lacks at most what was kept since the last pass.
//!
//! Sealed segments go over once. The segment that grows goes over whole in every pass that finds it
//! longer, under the number that it will be sealed with, so that nothing is there twice whatever a
//! pass that was cut off leaves behind. Small files are read first and go over last: what they say of
//! the journal is never more than the copy has. Nothing is ever removed there but segments that were
//! replaced by their sealed ones.

mod place;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
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
use super::{
    Copied, StoreError,
    files::{self, DataFiles},
};
use crate::descriptors;

/// The time between two passes. What is lost with a disk is what was kept in it, and while the pass
/// took that ran last.
const EVERY: Duration = Duration::from_secs(5);

/// The journal's segment that grows, as its sealed ones are named.
const ACTIVE: &str = "journal.jsonl";

/// Whose archive it is: the file that no two data directories have in common.
const OWNER: &str = "secret";

/// A place for copies.
struct Archive {
    objects: Arc<dyn ObjectStore>,
    runtime: Runtime,
    /// As errors name it.
    place: PathBuf,
    /// What is there already, and how long it is.
    there: BTreeMap<String, u64>,
    /// The small files as they were put there.
    small: BTreeMap<String, Vec<u8>>,
}

impl Archive {
    fn open(place: &ArchivePlace) -> Result<Self, StoreError> {
        let objects = place.open()?;
        let place = place.path();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(files::failed("open", &place))?;
        let mut archive = Self {
            objects,
            runtime,
            place,
            there: BTreeMap::new(),
            small: BTreeMap::new(),
        };
        archive.there = archive.list()?;
        Ok(archive)
    }

    fn list(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let all = self.objects.list(None);
        let all = all.map_ok(|object| (object.location.to_string(), object.size));
        let listed = self.runtime.block_on(all.try_collect());
        listed.map_err(|error| cannot("list", &self.place, &error))
    }

    fn put(&mut self, name: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let length = bytes.len() as u64;
        let done = self
            .runtime
            .block_on(async { self.objects.put(&Name::from(name), bytes.into()).await });
        done.map_err(|error| cannot("write", &self.place.join(name), &error))?;
        self.there.insert(name.to_owned(), length);
        Ok(())
    }

    fn get(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let bytes = self.runtime.block_on(async {
            let found = self.objects.get(&Name::from(name)).await?;
            found.bytes().await
        });
        let bytes = bytes.map_err(|error| cannot("read", &self.place.join(name), &error))?;
        Ok(bytes.to_vec())
    }

    fn remove(&mut self, name: &str) -> Result<(), StoreError> {
        let gone = self
            .runtime
            .block_on(async { self.objects.delete(&Name::from(name)).await });
        gone.map_err(|error| cannot("remove", &self.place.join(name), &error))?;
        self.there.remove(name);
        Ok(())
    }

    /// Brings the copy up to the directory.
    fn pass(&mut self, data_files: &DataFiles) -> Result<(), StoreError> {
        let small = small_files(&data_files.dir)?;
        let dir = data_files.runs();
        for entry in fs::read_dir(&dir).map_err(files::failed("read", &dir))? {
            let run = entry.map_err(files::failed("read", &dir))?.path();
            if run.is_dir() && !files::is_deleted(&run) {
                self.journal(&run, &data_files.dir)?;
            }
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
        // Read again where it was sealed meanwhile: then it is another one.
        let (sealed, text) = loop {
            let before = sealed_segments(run)?;
            let text = read_if_there(&active)?;
            if sealed_segments(run)?.len() == before.len() {
                break (before, text);
            }
        };
        for segment in &sealed {
            let name = name_of(segment, dir);
            if !self.there.contains_key(&name)
                && let Some(bytes) = read_if_there(segment)?
            {
                self.put(&name, bytes)?;
            }
        }
        let name = growing(&name_of(run, dir), sealed.len() + 1);
        if let Some(bytes) = text
            && self.there.get(&name) != Some(&(bytes.len() as u64))
        {
            self.put(&name, bytes)?;
        }
        let replaced = growing(&name_of(run, dir), sealed.len());
        match self.there.contains_key(&replaced) {
            true => self.remove(&replaced),
            false => Ok(()),
        }
    }
}

/// What the segment that grows is called until it is sealed.
fn growing(run: &str, number: usize) -> String {
    format!("{run}/growing.{number:06}.jsonl")
}

fn name_of(path: &Path, dir: &Path) -> String {
    let name = path.strip_prefix(dir).unwrap_or(path);
    name.to_string_lossy().into_owned()
}

fn sealed_segments(run: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = fs::read_dir(run).map_err(files::failed("read", run))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(files::failed("read", run))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name
            .strip_prefix("journal.")
            .and_then(|name| name.strip_suffix(".jsonl"));
        if number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Everything but the journals, the index and the lock.
fn small_files(dir: &Path) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(files::failed("read", &folder))? {
            let path = entry.map_err(files::failed("read", &folder))?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let passed_over = name == "lock"
                || name.starts_with("db")
                || name.contains("torn-")
                || [".tmp", ".new", ".next", ".deleted"]
                    .iter()
                    .any(|end| name.ends_with(end))
                || (name.starts_with("journal.") && name.ends_with(".jsonl"));
            if passed_over {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Some(bytes) = read_if_there(&path)? {
                found.push((name_of(&path, dir), bytes));
            }
        }
    }
    // A manifest makes the run, the marker the directory: what they promise is there before.
    found.sort_by_key(|(name, _)| (name.ends_with("manifest.json"), name == "format.json"));
    Ok(found)
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match descriptors::open(|| fs::read(path)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(files::failed("read", path)(error)),
    }
}

fn cannot(action: &'static str, path: &Path, error: &Error) -> StoreError {
    files::failed(action, path)(std::io::Error::other(error.to_string()))
}

/// Follows a data directory until it is dropped.
pub struct Archiver {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    copied: Copied,
}

impl Archiver {
    /// Copies `dir`, which a coordinator has open, to `place` from now on. The first copy
    /// is whole when this returns. An archive of another data directory is an error.
    pub fn start(dir: &Path, place: &ArchivePlace) -> Result<Self, StoreError> {
        let data_files = DataFiles::new(dir);
        place.make()?;
        place.beside(dir)?;
        let mut archive = Archive::open(place)?;
        if archive.there.contains_key(OWNER)
            && Some(archive.get(OWNER)?) != read_if_there(&dir.join(OWNER))?
        {
            let what = format!("it is not the archive of {}", dir.display());
            let advice = "restore it with `queensctl restore`, or give an empty or a new one";
            return Err(place.unfit(what, advice));
        }
        let copied = Copied::up_to(Instant::now());
        archive.pass(&data_files)?;
        let (stop, stopped) = mpsc::channel();
        let moves = copied.clone();
        let thread = thread::Builder::new()
            .name("archive".to_owned())
            .spawn(move || follow(&mut archive, &data_files, &stopped, &moves))
            .map_err(files::failed("follow", dir))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
            copied,
        })
    }

    /// How far the archive is behind, as it goes on.
    pub fn copied(&self) -> Copied {
        self.copied.clone()
    }
}

fn follow(
    archive: &mut Archive,
    data_files: &DataFiles,
    stopped: &mpsc::Receiver<()>,
    copied: &Copied,
) {
    loop {
        let last = stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
        let began = Instant::now();
        match archive.pass(data_files) {
            Ok(()) => copied.moves(began),
            Err(error) => tracing::warn!(
                "the archive is {} s behind: {error}",
                copied.behind().as_secs()
            ),
        }
        if last {
            return;
        }
    }
}

impl Drop for Archiver {
    /// With a last pass.
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the archive was not brought up to its end");
        }
    }
}

/// Makes a data directory of an archive, in a directory that is empty or new.
pub fn restore(place: &ArchivePlace, dir: &Path) -> Result<(), StoreError> {
    let archive = Archive::open(place)?;
    if !archive.there.contains_key("format.json") {
        let what = "it is no archive of a coordinator, or not a whole one: it has no format.json";
        return Err(place.unfit(what.to_owned(), "check the path"));
    }
    fs::create_dir_all(dir).map_err(files::failed("create", dir))?;
    let mut entries = fs::read_dir(dir).map_err(files::failed("read", dir))?;
    if entries.next().is_some() {
        return Err(StoreError::Server {
            place: dir.display().to_string(),
            what: "it is not empty".to_owned(),
            advice: "give an empty or a new directory",
        });
    }
    // The marker last: half a directory is none.
    let mut names: Vec<_> = archive.there.keys().collect();
    names.sort_by_key(|name| *name == "format.json");
    for name in names {
        if let Some(path) = restored(name, dir, &archive.there) {
            files::write_private(&path, &archive.get(name)?)?;
        }
    }
    Ok(())
}

/// Where an object goes; nowhere, if it is a segment whose sealed one is there.
fn restored(name: &str, dir: &Path, there: &BTreeMap<String, u64>) -> Option<PathBuf> {
    let Some((run, number)) = name.split_once("/growing.") else {
        return Some(dir.join(name));
    };
    match there.contains_key(&format!("{run}/journal.{number}")) {
        true => None,
        false => Some(dir.join(run).join(ACTIVE)),
    }
}
