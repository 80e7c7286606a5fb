//! One run's journal on disk: append a group durably, read it back, cut a torn tail.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use common::{
    plan::{Plan, PlanHash},
    run::RunId,
};

use super::{
    JournalEntry, RunManifest, StoreError,
    files::{self, RunFiles},
    line::{BadLine, JournalLine, Link, MAX_LINE_BYTES, Malformed, Stamp},
    segments::{self, SEGMENT_BYTES, Segments},
};
use crate::descriptors;

/// Where lines end up: a file; a trait so that tests can make its writes fail.
pub(crate) trait Medium: Send {
    /// Writes all bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything written durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts everything after the first `bytes`.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

/// The file at a path, open only from the first write after a sync to the next sync: a coordinator
/// may have more runs than descriptors, and a file that was taken away is noticed.
struct Appended {
    path: PathBuf,
    open: Option<File>,
}

impl Appended {
    fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            open: None,
        }
    }

    fn file(&mut self) -> io::Result<&mut File> {
        let file = match self.open.take() {
            Some(file) => file,
            None => descriptors::open(|| OpenOptions::new().append(true).open(&self.path))?,
        };
        Ok(self.open.insert(file))
    }
}

impl Medium for Appended {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file()?.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        let synced = self.file()?.sync_data();
        self.open = None;
        synced
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file()?.set_len(bytes)
    }
}

/// The end of a journal, where the next line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The length of all whole lines.
    pub(crate) bytes: u64,
    /// How many there are.
    pub(crate) lines: u64,
    /// What the next line names as the one before.
    pub(crate) head: Link,
    /// The term of the coordinator that wrote the last line; 0 where it does not say.
    pub(crate) fence: u64,
}

impl End {
    /// The end of a journal without lines.
    pub(crate) fn empty(manifest: &RunManifest) -> Self {
        Self {
            bytes: 0,
            lines: 0,
            head: Link::first(manifest),
            fence: 0,
        }
    }
}

/// A journal open for appending.
pub(crate) struct Journal {
    path: PathBuf,
    run: RunId,
    plan: PlanHash,
    medium: Box<dyn Medium>,
    end: End,
    /// Sealed segments, and the bytes that they hold.
    sealed: (u64, u64),
    /// A segment of so many bytes is sealed.
    segment_bytes: u64,
}

impl Journal {
    /// Makes an empty journal; the caller makes its directory entry durable.
    pub(crate) fn create(path: &Path, manifest: &RunManifest) -> Result<Self, StoreError> {
        descriptors::open(|| OpenOptions::new().create(true).append(true).open(path))
            .map_err(files::failed("create", path))?;
        Ok(Self {
            path: path.to_owned(),
            run: manifest.run,
            plan: manifest.plan,
            medium: Box::new(Appended::at(path)),
            end: End::empty(manifest),
            sealed: (0, 0),
            segment_bytes: SEGMENT_BYTES,
        })
    }

    /// Opens a journal whose whole lines end at `end`, cutting what follows: its bytes are kept in
    /// a file beside the journal.
    pub(crate) fn open(path: &Path, manifest: &RunManifest, end: End) -> Result<Self, StoreError> {
        let sealed = segments::sealed(path).map_err(files::failed("read", path))?;
        let sealed = (sealed.len() as u64, segments::bytes(&sealed));
        let Some(in_file) = end.bytes.checked_sub(sealed.1) else {
            let what = format!(
                "its sealed segments hold {} bytes, and only the first {} are whole lines",
                sealed.1, end.bytes
            );
            return Err(StoreError::damaged(path, None, what));
        };
        let mut file = descriptors::open(|| OpenOptions::new().read(true).append(true).open(path))
            .map_err(files::failed("open", path))?;
        cut_tail(&mut file, path, in_file)?;
        Ok(Self {
            path: path.to_owned(),
            run: manifest.run,
            plan: manifest.plan,
            medium: Box::new(Appended::at(path)),
            end,
            sealed,
            segment_bytes: SEGMENT_BYTES,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn end(&self) -> End {
        self.end
    }

    #[cfg(test)]
    pub(crate) fn replace_medium(&mut self, medium: Box<dyn Medium>) {
        self.medium = medium;
    }

    /// Appends lines and makes them durable with one `fdatasync`; returns how long that took. After an error none of them is
    /// promised, and the journal must not be appended to again: what the disk holds is unknown
    /// until it is read anew.
    pub(crate) fn append<'a>(
        &mut self,
        entries: impl IntoIterator<Item = &'a JournalEntry>,
        plan: &Plan,
        fence: u64,
    ) -> Result<Duration, StoreError> {
        let mut end = self.end;
        let mut text = Vec::new();
        for entry in entries {
            end.lines += 1;
            let line = JournalLine {
                sequence: end.lines,
                plan: self.plan,
                stamp: Some(Stamp {
                    units: plan.task_units(entry.record().task),
                    fence,
                }),
                entry,
                prev: end.head,
            };
            let start = text.len();
            line.encode_onto(&mut text);
            end.head = Link::after(&text[start..]);
            text.push(b'\n');
        }
        end.bytes += text.len() as u64;
        end.fence = fence;
        let written = self.medium.append(&text).and_then(|()| {
            let began = Instant::now();
            self.medium.sync().map(|()| began.elapsed())
        });
        let synced = written.map_err(|error| {
            // What was written in part must not be taken for a promise after a restart. Where
            // even this fails, the restart cuts the torn line and keeps whole ones: they are true.
            let _ = self
                .medium
                .cut(self.end.bytes - self.sealed.1)
                .and_then(|()| self.medium.sync());
            files::failed("write", &self.path)(error)
        })?;
        self.end = end;
        self.seal_if_full();
        Ok(synced)
    }

    /// Begins a new segment. What was appended is kept in any case, so an error is told and tried
    /// again after the next group.
    fn seal_if_full(&mut self) {
        if self.end.bytes - self.sealed.1 < self.segment_bytes {
            return;
        }
        let number = self.sealed.0 + 1;
        match segments::seal(&self.path, self.run, (number, &self.end)) {
            Ok(()) => self.sealed = (number, self.end.bytes),
            Err(error) => tracing::warn!("segment {number} is sealed later: {error}"),
        }
    }

    #[cfg(test)]
    pub(crate) fn set_segment_bytes(&mut self, bytes: u64) {
        self.segment_bytes = bytes;
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("path", &self.path)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

fn cut_tail(file: &mut File, path: &Path, bytes: u64) -> Result<(), StoreError> {
    let length = file.metadata().map_err(files::failed("read", path))?.len();
    if length <= bytes {
        return Ok(());
    }
    let copy = files::aside(path, "torn");
    let keep = |file: &mut File| {
        file.seek(SeekFrom::Start(bytes))?;
        let mut torn = File::create_new(&copy)?;
        io::copy(file, &mut torn)?;
        torn.sync_all()
    };
    keep(file).map_err(|error| {
        // The next start tries again; half a copy is of no use.
        let _ = fs::remove_file(&copy);
        files::failed("write", &copy)(error)
    })?;
    files::sync_parent(&copy)?;
    tracing::warn!(
        journal = %path.display(),
        cut_bytes = length - bytes,
        copy = %copy.display(),
        "the journal's last write was torn: cut, a copy is kept"
    );
    file.set_len(bytes)
        .and_then(|()| file.sync_all())
        .map_err(files::failed("cut", path))
}

/// Reads a journal line by line.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    input: R,
    buffer: Vec<u8>,
    /// After the last line read.
    offset: u64,
}

/// What a journal holds next.
#[derive(Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and most are lines"
)]
pub(crate) enum Next<'a> {
    /// A line whose check sum is right, and its text without the end.
    Line(JournalLine, &'a str),
    /// A line that is not right.
    Bad(BadLine),
    /// Bytes without a line end, up to the end of the file.
    Torn,
    /// The end of the file.
    End,
}

impl Reader<Segments> {
    /// Reads from a line that starts at byte `offset` on.
    pub(crate) fn open(path: &Path, offset: u64) -> Result<Self, StoreError> {
        let input = Segments::open(path, offset).map_err(files::failed("read", path))?;
        Ok(Self::new(input, offset))
    }
}

impl<R> Reader<R> {
    /// Reads a text that begins with a line, after `offset` bytes of the journal.
    pub(crate) fn new(input: R, offset: u64) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            offset,
        }
    }
}

/// Where the lines of one run's journal are read from.
pub(crate) trait Source {
    /// Reads the lines after a place in the journal.
    type Input: BufRead;

    /// What messages call the journal.
    fn name(&self) -> PathBuf;

    /// Reads on from `end`.
    fn open(&self, end: &End) -> Result<Reader<Self::Input>, StoreError>;

    /// What to remove where a run's kept state names lines that are gone.
    fn state_name(&self) -> PathBuf;

    /// How long the journal is, by the measure of [`Self::place`].
    fn length(&self) -> Result<u64, StoreError>;

    /// How far a reader is after so many bytes and lines.
    fn place(bytes: u64, lines: u64) -> u64;
}

impl Source for RunFiles {
    type Input = Segments;

    fn name(&self) -> PathBuf {
        self.journal()
    }

    fn open(&self, end: &End) -> Result<Reader<Segments>, StoreError> {
        Reader::open(&self.journal(), end.bytes)
    }

    fn state_name(&self) -> PathBuf {
        self.state()
    }

    fn length(&self) -> Result<u64, StoreError> {
        let path = self.journal();
        segments::length(&path).map_err(files::failed("read", &path))
    }

    fn place(bytes: u64, _: u64) -> u64 {
        bytes
    }
}

impl<R: BufRead> Reader<R> {
    /// How many bytes precede what [`Self::next`] reads next.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the bad line read last ends in a whole one: then it was no torn write, but a line
    /// end that was lost.
    pub(crate) fn hides_a_line(&self) -> bool {
        let text = self.buffer.strip_suffix(b"\n").unwrap_or(&self.buffer);
        (1..text.len())
            .filter(|start| text[*start..].starts_with(b"{\"seq\":"))
            .any(|start| JournalLine::decode(&text[start..]).is_ok())
    }

    /// Reads on by one line.
    pub(crate) fn next(&mut self) -> io::Result<Next<'_>> {
        self.buffer.clear();
        let mut limited = (&mut self.input).take(MAX_LINE_BYTES as u64 + 1);
        let read = limited.read_until(b'\n', &mut self.buffer)?;
        self.offset += read as u64;
        if read == 0 {
            return Ok(Next::End);
        }
        if !self.buffer.ends_with(b"\n") {
            return self.without_end(read);
        }
        let text = &self.buffer[..self.buffer.len() - 1];
        Ok(match JournalLine::decode(text) {
            Ok(line) => Next::Line(line, std::str::from_utf8(text).expect("decoded as UTF-8")),
            Err(bad) => Next::Bad(bad),
        })
    }

    /// An unfinished line, or one too long to be ours: what remains of it is skipped.
    fn without_end(&mut self, read: usize) -> io::Result<Next<'_>> {
        if read <= MAX_LINE_BYTES {
            return Ok(Next::Torn);
        }
        loop {
            let chunk = self.input.fill_buf()?;
            if chunk.is_empty() {
                return Ok(Next::Torn);
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(chunk.len(), |at| at + 1);
            self.input.consume(used);
            self.offset += used as u64;
            if end.is_some() {
                return Ok(Next::Bad(Malformed::TooLong.into()));
            }
        }
    }
}
