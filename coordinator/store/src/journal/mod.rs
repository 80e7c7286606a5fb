//! A run's journal: appends groups durably, reads them back, and cuts a torn tail.

pub(crate) mod line;
pub(crate) mod manifest;
pub(crate) mod notes;
pub(crate) mod segments;
pub(crate) mod text;
pub(crate) mod trust;

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, Read, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use common::messages::run::RunId;

use crate::{
    StoreError, descriptors,
    directory::files,
    journal::{
        line::{JournalLine, MAX_LINE_BYTES},
        segments::SEGMENT_BYTES,
        text::Damage,
    },
};

pub(crate) use line::JournalEnd;

/// A file for appended lines; a trait, so that tests can make its writes fail.
pub(crate) trait AppendFile: Send + fmt::Debug {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything appended durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts everything after the first `bytes`.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

/// A file that is open only from the first write after a sync until the next sync.
/// This allows more runs than descriptors, and reveals a removed file.
#[derive(Debug)]
struct Appended {
    path: PathBuf,
    open: Option<File>,
}

impl Appended {
    fn file(&mut self) -> io::Result<&mut File> {
        let file = match self.open.take() {
            Some(file) => file,
            None => descriptors::open(|| OpenOptions::new().append(true).open(&self.path))?,
        };
        Ok(self.open.insert(file))
    }
}

impl AppendFile for Appended {
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

/// A journal on disk, open for appending.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    run: RunId,
    pub(crate) file: Box<dyn AppendFile>,
    end: JournalEnd,
    /// The number of sealed segments, and of the bytes in them.
    sealed: (u64, u64),
    /// The size at which a segment is sealed.
    pub(crate) segment_bytes: u64,
}

impl Journal {
    /// Creates an empty journal; the caller makes its directory entry durable.
    pub(crate) fn create(path: &Path, run: RunId, end: JournalEnd) -> Result<Self, StoreError> {
        descriptors::open(|| OpenOptions::new().create(true).append(true).open(path))
            .map_err(files::failed("create", path))?;
        Ok(Self::new(path, run, end, (0, 0)))
    }

    /// Opens a journal whose whole lines end at `end`.
    /// Cuts the rest, and keeps its bytes in a file next to the journal.
    pub(crate) fn open(path: &Path, run: RunId, end: JournalEnd) -> Result<Self, StoreError> {
        let sealed = segments::sealed(path).map_err(files::failed("read", path))?;
        let sealed = (sealed.len() as u64, segments::bytes(&sealed));
        let Some(active_bytes) = end.bytes.checked_sub(sealed.1) else {
            let what = format!(
                "its sealed segments hold {} bytes, but only the first {} are whole lines",
                sealed.1, end.bytes
            );
            return Err(StoreError::damaged(path, None, what));
        };
        let mut file = descriptors::open(|| OpenOptions::new().read(true).append(true).open(path))
            .map_err(files::failed("open", path))?;
        cut_tail(&mut file, path, active_bytes)?;
        Ok(Self::new(path, run, end, sealed))
    }

    fn new(path: &Path, run: RunId, end: JournalEnd, sealed: (u64, u64)) -> Self {
        let file = Box::new(Appended { path: path.to_owned(), open: None });
        Self { path: path.to_owned(), run, file, end, sealed, segment_bytes: SEGMENT_BYTES }
    }

    /// Appends lines that end at `end` and syncs them; returns the sync's duration.
    /// After an error the caller must acknowledge none of the lines and append no more: the contents of
    /// the disk are unknown until it is read again.
    pub(crate) fn append(&mut self, text: &[u8], end: JournalEnd) -> Result<Duration, StoreError> {
        let written = self.file.append(text).and_then(|()| {
            let began = Instant::now();
            self.file.sync().map(|()| began.elapsed())
        });
        let synced = written.map_err(|error| {
            // A partly written group must not count after a restart. If this fails too, the restart
            // cuts the torn line and keeps whole ones, which are valid.
            let _ = self.file.cut(self.end.bytes - self.sealed.1).and_then(|()| self.file.sync());
            files::failed("write", &self.path)(error)
        })?;
        self.end = end;
        self.seal_if_full()?;
        Ok(synced)
    }

    /// Begins a new segment if this one is full.
    /// The lines are durable already, so a failure to begin it is logged and retried after the next group.
    fn seal_if_full(&mut self) -> Result<(), StoreError> {
        if self.end.bytes - self.sealed.1 < self.segment_bytes {
            return Ok(());
        }
        let number = self.sealed.0 + 1;
        if let Err(error) = segments::seal(&self.path, self.run, number, &self.end) {
            tracing::warn!("segment {number} will be sealed later: {error}");
            return Ok(());
        }
        self.sealed = (number, self.end.bytes);
        files::sync_parent(&self.path)
    }
}

fn cut_tail(file: &mut File, path: &Path, bytes: u64) -> Result<(), StoreError> {
    let length = file.metadata().map_err(files::failed("read", path))?.len();
    if length <= bytes {
        return Ok(());
    }
    let copy = files::backup_path(path, "torn");
    let keep = |file: &mut File| {
        file.seek(SeekFrom::Start(bytes))?;
        let mut torn = File::create_new(&copy)?;
        io::copy(file, &mut torn)?;
        torn.sync_all()
    };
    keep(file).map_err(|error| {
        // The next start tries again; half a copy is useless.
        let _ = fs::remove_file(&copy);
        files::failed("write", &copy)(error)
    })?;
    files::sync_parent(&copy)?;
    tracing::warn!(
        journal = %path.display(),
        cut_bytes = length - bytes,
        "truncated a torn record at the end of the journal; its bytes are saved in {}",
        copy.display()
    );
    file.set_len(bytes).and_then(|()| file.sync_all()).map_err(files::failed("cut", path))
}

/// A source of the lines of one run's journal.
pub(crate) trait Source {
    /// Returns the journal's name in messages.
    fn name(&self) -> PathBuf;

    /// Opens a reader of the lines after `end`.
    fn open(&self, end: &JournalEnd) -> Result<Reader, StoreError>;

    /// Returns the saved state's name, to be removed if it refers to missing lines.
    fn state_name(&self) -> PathBuf;

    /// Returns the journal's length, in the unit of [`Self::position`].
    fn length(&self) -> Result<u64, StoreError>;

    /// Returns the position of a reader that has read this number of bytes and lines.
    fn position(&self, bytes: u64, _lines: u64) -> u64 {
        bytes
    }
}

pub(crate) struct Reader {
    input: Box<dyn BufRead>,
    buffer: Vec<u8>,
    /// The number of bytes before the next line.
    offset: u64,
}

/// The next part of a journal.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and most are lines")]
pub(crate) enum Next<'a> {
    /// A line with the right checksum, and its text without the end.
    Line(JournalLine, &'a str),
    Bad(Damage),
    /// Bytes without a line end, up to the end of the file.
    Torn,
    End,
}

impl Reader {
    /// Creates a reader of the journal's text after its first `offset` bytes.
    pub(crate) fn new(input: impl BufRead + 'static, offset: u64) -> Self {
        Self { input: Box::new(input), buffer: Vec::new(), offset }
    }

    /// Returns the number of bytes before the next line.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the rest of the text.
    pub(crate) fn into_inner(self) -> Box<dyn BufRead> {
        self.input
    }

    /// Returns whether the bad line that was read last ends in a whole line.
    /// In that case a line end was lost, and the write was not torn.
    pub(crate) fn hides_a_line(&self) -> bool {
        let text = self.buffer.strip_suffix(b"\n").unwrap_or(&self.buffer);
        (1..text.len())
            .filter(|start| text[*start..].starts_with(b"{\"seq\":"))
            .any(|start| JournalLine::decode(&text[start..]).is_ok())
    }

    /// Reads one line.
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

    /// Returns an unfinished line as torn, or skips the rest of one that is too long.
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
                let what = format!("it has more than {MAX_LINE_BYTES} bytes");
                return Ok(Next::Bad(Damage(what)));
            }
        }
    }
}

/// A reader of several texts as one.
pub(crate) struct Chain<F> {
    current: Box<dyn BufRead>,
    next: F,
}

impl<F: FnMut() -> io::Result<Option<Box<dyn BufRead>>>> Chain<F> {
    /// Creates a reader of the texts that `next` returns.
    pub(crate) fn new(next: F) -> Self {
        Self { current: Box::new(io::empty()), next }
    }
}

impl<F: FnMut() -> io::Result<Option<Box<dyn BufRead>>>> Read for Chain<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut ready = self.fill_buf()?;
        let read = ready.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl<F: FnMut() -> io::Result<Option<Box<dyn BufRead>>>> BufRead for Chain<F> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.current.fill_buf()?.is_empty() {
            match (self.next)()? {
                Some(next) => self.current = next,
                None => break,
            }
        }
        self.current.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.current.consume(amount);
    }
}
