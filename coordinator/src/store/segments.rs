//! A journal's segments. The lines go into `journal.jsonl` until it holds [`SEGMENT_BYTES`]; then it
//! becomes `journal.000001.jsonl`, which nobody writes any more, and a new one is begun. A seal,
//! `journal.000001.seal`, says how many lines there were until its end and the hash after the last:
//! a journal that lost some of them, even whole files, is found out. To its readers a journal is one
//! text, whose places are counted from its very start.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, BufRead, BufReader, ErrorKind, Read, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use common::run::RunId;
use serde::{Deserialize, Serialize};

use super::{
    StoreError, files,
    journal::End,
    line::Link,
    text::{self, BadField, BadText},
};
use crate::descriptors;

/// About 40,000 lines.
pub(crate) const SEGMENT_BYTES: u64 = 16 << 20;

const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealFields {
    format: u32,
    run: String,
    segment: u64,
    lines: u64,
    bytes: u64,
    head: String,
}

/// How a journal was when a segment of it was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    /// The segment, counted from 1.
    pub(crate) segment: u64,
    /// Lines of the journal until the segment's end.
    pub(crate) lines: u64,
    /// What the line after those names as the one before.
    pub(crate) head: Link,
}

/// A segment that is not written any more.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    path: PathBuf,
    bytes: u64,
}

fn segment_path(active: &Path, number: u64, extension: &str) -> PathBuf {
    active.with_extension(format!("{number:06}.{extension}"))
}

/// Where the next segment waits to be begun.
fn next_path(active: &Path) -> PathBuf {
    active.with_extension("next")
}

/// The sealed segments of the journal whose lines go to `active`, in order.
pub(crate) fn sealed(active: &Path) -> io::Result<Vec<Sealed>> {
    let mut found = Vec::new();
    for number in 1.. {
        let path = segment_path(active, number, "jsonl");
        match fs::metadata(&path) {
            Ok(data) => found.push(Sealed {
                bytes: data.len(),
                path,
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// How many bytes sealed segments hold.
pub(crate) fn bytes(sealed: &[Sealed]) -> u64 {
    sealed.iter().map(|segment| segment.bytes).sum()
}

/// How many bytes a whole journal holds, that of `active` and of the sealed segments.
pub(crate) fn length(active: &Path) -> io::Result<u64> {
    let last = match fs::metadata(active) {
        Ok(data) => data.len(),
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok(bytes(&sealed(active)?) + last)
}

/// Every seal of a run's journal. One that cannot be read is as good as none: the lines name one
/// another all the same.
pub(crate) fn seals(active: &Path, run: RunId) -> Result<Vec<Seal>, StoreError> {
    let mut found = Vec::new();
    for segment in 1.. {
        let path = segment_path(active, segment, "seal");
        let text = match descriptors::open(|| fs::read(&path)) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) => return Err(files::failed("read", &path)(error)),
        };
        match decode(run, segment, &String::from_utf8_lossy(&text)) {
            Ok(seal) => found.push(seal),
            Err(what) => tracing::warn!(path = %path.display(), "this seal seals nothing: {what}"),
        }
    }
    Ok(found)
}

fn encode(run: RunId, segment: u64, end: &End) -> String {
    text::seal(&SealFields {
        format: FORMAT,
        run: run.to_string(),
        segment,
        lines: end.lines,
        bytes: end.bytes,
        head: end.head.to_string(),
    })
}

pub(super) fn decode(run: RunId, segment: u64, given: &str) -> Result<Seal, BadText> {
    let fields: SealFields = text::unseal(given.trim_end())?;
    if fields.run != run.to_string() || fields.segment != segment {
        return Err(BadText::OtherSegment {
            segment: fields.segment,
            run: fields.run,
        });
    }
    Ok(Seal {
        segment,
        lines: fields.lines,
        head: BadField::parse("head", &fields.head)?,
    })
}

/// Seals what `active` holds as segment `number` of a journal that ends at `end`, and begins a new
/// file. After an error everything is as it was.
pub(crate) fn seal(
    active: &Path,
    run: RunId,
    (number, end): (u64, &End),
) -> Result<(), StoreError> {
    files::write_durably(
        &segment_path(active, number, "seal"),
        &encode(run, number, end),
    )?;
    let next = next_path(active);
    descriptors::open(|| File::create(&next))
        .and_then(|file| file.sync_all())
        .map_err(files::failed("create", &next))?;
    let path = segment_path(active, number, "jsonl");
    fs::rename(active, &path).map_err(files::failed("seal", active))?;
    if let Err(error) = fs::rename(&next, active) {
        // Nothing else has the name.
        let _ = fs::rename(&path, active);
        return Err(files::failed("begin", active)(error));
    }
    if let Err(error) = files::sync_parent(active) {
        tracing::warn!("the names of the journal's segments are not yet on the disk: {error}");
    }
    Ok(())
}

/// Whether there is a journal; one that a crash kept from beginning its new segment has that begun
/// now, if `write`.
pub(crate) fn exists(active: &Path, write: bool) -> Result<bool, StoreError> {
    if active.exists() {
        return Ok(true);
    }
    let sealed = sealed(active).map_err(files::failed("read", active))?;
    if sealed.is_empty() {
        return Ok(false);
    }
    if write {
        descriptors::open(|| File::create(active))
            .and_then(|file| file.sync_all())
            .map_err(files::failed("create", active))?;
        files::sync_parent(active)?;
    }
    Ok(true)
}

/// Reads all segments as one text.
#[derive(Debug)]
pub(crate) struct Segments {
    current: BufReader<File>,
    sealed: VecDeque<PathBuf>,
    active: Option<File>,
}

impl Segments {
    /// Reads from byte `offset` of the text on.
    pub(crate) fn open(active: &Path, offset: u64) -> io::Result<Self> {
        // The file that grows comes first: if it is sealed meanwhile, it is found again below.
        let file = match descriptors::open(|| File::open(active)) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut sealed = sealed(active)?;
        if let (Some(file), Some(last)) = (&file, sealed.last())
            && same_file(file, &last.path)?
        {
            sealed.pop();
        }
        let mut left = offset;
        let mut waiting: VecDeque<_> = sealed
            .into_iter()
            .skip_while(|segment| {
                let before = left >= segment.bytes;
                left -= if before { segment.bytes } else { 0 };
                before
            })
            .map(|segment| segment.path)
            .collect();
        let (mut first, active) = match (waiting.pop_front(), file) {
            (Some(first), active) => (descriptors::open(|| File::open(&first))?, active),
            (None, Some(active)) => (active, None),
            (None, None) => return Err(ErrorKind::NotFound.into()),
        };
        first.seek(SeekFrom::Start(left))?;
        Ok(Self {
            current: buffered(first),
            sealed: waiting,
            active,
        })
    }

    fn next_file(&mut self) -> io::Result<Option<File>> {
        match self.sealed.pop_front() {
            Some(path) => descriptors::open(|| File::open(&path)).map(Some),
            None => Ok(self.active.take()),
        }
    }
}

fn buffered(file: File) -> BufReader<File> {
    BufReader::with_capacity(1 << 16, file)
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

impl Read for Segments {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut ready = self.fill_buf()?;
        let read = ready.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Segments {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.current.fill_buf()?.is_empty() {
            match self.next_file()? {
                Some(file) => self.current = buffered(file),
                None => break,
            }
        }
        self.current.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.current.consume(amount);
    }
}
