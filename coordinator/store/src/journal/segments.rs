//! A journal's segments, which readers see as one text.
//! Lines go to `journal.jsonl` until it reaches [`SEGMENT_BYTES`]. It becomes `journal.000001.jsonl`, which
//! is never written again, and a new file begins. A seal, `journal.000001.seal`, states the number of lines
//! up to the segment's end and the hash of the last line: it reveals lost lines and lost files.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, BufRead, BufReader, ErrorKind, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use common::messages::{run::RunId, sealed::as_text};
use serde::{Deserialize, Serialize};

use crate::{
    StoreError, descriptors,
    directory::{files, files::RunFiles},
    journal::{
        Chain, JournalEnd, Reader, Source,
        text::{self, ChainHash, Damage, FORMAT},
    },
};

/// The size at which a segment is sealed: about 40,000 lines.
pub(crate) const SEGMENT_BYTES: u64 = 16 << 20;

/// The name of the file with a journal's newest lines.
pub(crate) const ACTIVE: &str = "journal.jsonl";

/// Returns the name in an archive of the newest lines, which will be sealed as segment `number`.
pub(crate) fn growing(number: usize) -> String {
    format!("growing.{number:06}.jsonl")
}

/// The end of a journal when one of its segments was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seal {
    format: u32,
    #[serde(with = "as_text")]
    run: RunId,
    /// The segment, counted from 1.
    pub(crate) segment: u64,
    /// Lines of the journal up to the segment's end.
    pub(crate) lines: u64,
    bytes: u64,
    /// The link that the next line names.
    #[serde(with = "as_text")]
    pub(crate) head: ChainHash,
}

impl Seal {
    pub(crate) fn new(
        run: RunId,
        segment: u64,
        &JournalEnd { lines, bytes, head, .. }: &JournalEnd,
    ) -> Self {
        Self { format: FORMAT, run, segment, lines, bytes, head }
    }
}

/// A segment that is never written again.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    pub(crate) path: PathBuf,
    bytes: u64,
}

fn segment_path(active: &Path, number: u64, extension: &str) -> PathBuf {
    active.with_file_name(format!("journal.{number:06}.{extension}"))
}

/// Lists a journal's sealed segments in order; `active` has its last lines.
pub(crate) fn sealed(active: &Path) -> io::Result<Vec<Sealed>> {
    let mut found = Vec::new();
    for number in 1.. {
        let path = segment_path(active, number, "jsonl");
        match fs::metadata(&path) {
            Ok(data) => found.push(Sealed { bytes: data.len(), path }),
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns the total size of sealed segments.
pub(crate) fn bytes(sealed: &[Sealed]) -> u64 {
    sealed.iter().map(|segment| segment.bytes).sum()
}

/// Reads every seal of a journal; ignores invalid ones, since lines are chained.
pub(crate) fn seals(active: &Path, run: RunId) -> Result<Vec<Seal>, StoreError> {
    let mut found = Vec::new();
    for segment in 1.. {
        let path = segment_path(active, segment, "seal");
        let Some(text) = files::read_bytes(&path)? else { break };
        match decode(run, segment, &String::from_utf8_lossy(&text)) {
            Ok(seal) => found.push(seal),
            Err(what) => {
                tracing::warn!(path = %path.display(), "ignoring an invalid seal file: {what}");
            }
        }
    }
    Ok(found)
}

pub(crate) fn decode(run: RunId, segment: u64, given: &str) -> Result<Seal, Damage> {
    let seal: Seal = text::unseal(given.trim_end())?;
    if seal.run != run || seal.segment != segment {
        let what = format!("it belongs to segment {} of run {}", seal.segment, seal.run);
        return Err(Damage(what));
    }
    Ok(seal)
}

/// Seals `active` as segment `segment` of a journal that ends at `end`.
/// Begins a new file, whose name is not yet durable. After an error the journal is unchanged.
pub(crate) fn seal(
    active: &Path,
    run: RunId,
    segment: u64,
    end: &JournalEnd,
) -> Result<(), StoreError> {
    let seal = text::seal(&Seal::new(run, segment, end));
    files::write_durably(&segment_path(active, segment, "seal"), &seal)?;
    let next = active.with_extension("next");
    create_empty(&next)?;
    let path = segment_path(active, segment, "jsonl");
    fs::rename(active, &path).map_err(files::failed("seal", active))?;
    if let Err(error) = fs::rename(&next, active) {
        // The name is free, so no file is replaced.
        let _ = fs::rename(&path, active);
        return Err(files::failed("begin", active)(error));
    }
    Ok(())
}

fn create_empty(path: &Path) -> Result<(), StoreError> {
    descriptors::open(|| File::create(path))
        .and_then(|file| file.sync_all())
        .map_err(files::failed("create", path))
}

/// Returns whether a journal exists; if `write`, creates a missing last segment.
pub(crate) fn exists(active: &Path, write: bool) -> Result<bool, StoreError> {
    if active.exists() {
        return Ok(true);
    }
    let sealed = sealed(active).map_err(files::failed("read", active))?;
    if sealed.is_empty() {
        return Ok(false);
    }
    if write {
        create_empty(active)?;
        files::sync_parent(active)?;
    }
    Ok(true)
}

impl Source for RunFiles {
    fn name(&self) -> PathBuf {
        self.journal()
    }

    fn open(&self, end: &JournalEnd) -> Result<Reader, StoreError> {
        let path = self.journal();
        let input = read_from(&path, end.bytes).map_err(files::failed("read", &path))?;
        Ok(Reader::new(input, end.bytes))
    }

    fn state_name(&self) -> PathBuf {
        self.state()
    }

    fn length(&self) -> Result<u64, StoreError> {
        let active = self.journal();
        let length = || {
            let last = match fs::metadata(&active) {
                Ok(data) => data.len(),
                Err(error) if error.kind() == ErrorKind::NotFound => 0,
                Err(error) => return Err(error),
            };
            Ok(bytes(&sealed(&active)?) + last)
        };
        length().map_err(files::failed("read", &active))
    }
}

/// Reads all segments as one text, from byte `offset` on.
fn read_from(active: &Path, offset: u64) -> io::Result<impl BufRead + use<>> {
    // Opens the growing file first: if it is sealed meanwhile, it is found again below.
    let mut growing = match descriptors::open(|| File::open(active)) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut sealed: VecDeque<_> = sealed(active)?.into();
    if let (Some(file), Some(last)) = (&growing, sealed.back())
        && same_file(file, &last.path)?
    {
        sealed.pop_back();
    }
    if growing.is_none() && sealed.is_empty() {
        return Err(ErrorKind::NotFound.into());
    }
    let mut skip = offset;
    while let Some(first) = sealed.front()
        && skip >= first.bytes
    {
        skip -= first.bytes;
        sealed.pop_front();
    }
    Ok(Chain::new(move || {
        let next = match sealed.pop_front() {
            Some(segment) => Some(descriptors::open(|| File::open(&segment.path))?),
            None => growing.take(),
        };
        let Some(mut file) = next else { return Ok(None) };
        file.seek(SeekFrom::Start(std::mem::take(&mut skip)))?;
        Ok(Some(Box::new(BufReader::with_capacity(1 << 16, file)) as Box<dyn BufRead>))
    }))
}

#[cfg(unix)]
fn same_file(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let (one, other) = (file.metadata()?, fs::metadata(path)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

#[cfg(not(unix))]
fn same_file(_file: &File, _path: &Path) -> io::Result<bool> {
    Ok(false)
}
