//! Reading tables page by page: a journal as the text that it is on disk, the rows of a run.

use std::{
    io::{self, BufRead, Read},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use common::run::RunId;

use super::{
    super::{
        StoreError,
        journal::{End, Reader, Source},
    },
    lead,
    link::Link,
};

/// Lines, or rows, that are fetched at a time.
pub(super) const PAGE: i64 = 10_000;

const LINES_SQL: &str =
    "SELECT seq, line FROM queens.lines WHERE run = $1 AND seq > $2 ORDER BY seq LIMIT $3";

/// The journal of one run.
#[derive(Clone)]
pub(crate) struct Table {
    pub(super) link: Shared,
    pub(super) run: RunId,
}

/// A connection that a store and its readers have in common.
#[derive(Clone)]
pub(crate) struct Shared {
    link: Arc<Mutex<Link>>,
    place: Arc<str>,
}

impl Shared {
    pub(super) fn new(link: Link) -> Self {
        Self {
            place: link.server.place.as_str().into(),
            link: Arc::new(Mutex::new(link)),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }
}

impl Table {
    /// Some lines after the line `after`, with their numbers in the table.
    pub(super) fn page(&self, after: i64, most: i64) -> Result<Vec<(i64, String)>, StoreError> {
        let run = self.run.to_string();
        let mut link = self.link.lock();
        let rows = link
            .call(async |session| session.query(LINES_SQL, &[&run, &after, &most]).await)?
            .unwrap_or_default();
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }
}

impl Source for Table {
    type Input = Text;

    fn name(&self) -> PathBuf {
        let place = self.link.place();
        format!("{place}, the journal of run {}", self.run).into()
    }

    fn open(&self, end: &End) -> Result<Reader<Text>, StoreError> {
        let text = Text {
            table: self.clone(),
            after: i64::try_from(end.lines).unwrap_or(i64::MAX),
            page: Vec::new(),
            at: 0,
        };
        Ok(Reader::new(text, end.bytes))
    }

    fn state_name(&self) -> PathBuf {
        let place = self.link.place();
        format!(
            "the state of run {} in {place} (table queens.runs)",
            self.run
        )
        .into()
    }

    fn length(&self) -> Result<u64, StoreError> {
        const SQL: &str = "SELECT lines FROM queens.runs WHERE run = $1";
        let run = self.run.to_string();
        let rows = self
            .link
            .lock()
            .call(async |session| session.query(SQL, &[&run]).await)?
            .unwrap_or_default();
        Ok(rows.first().map_or(0, |row| lead::unsigned(row.get(0))))
    }

    fn place(_: u64, lines: u64) -> u64 {
        lines
    }
}

/// The lines of a journal as one text.
pub(crate) struct Text {
    table: Table,
    /// The last line fetched.
    after: i64,
    page: Vec<u8>,
    at: usize,
}

impl Read for Text {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut ready = self.fill_buf()?;
        let read = ready.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Text {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.page.len() {
            let lines = self
                .table
                .page(self.after, PAGE)
                .map_err(io::Error::other)?;
            self.page.clear();
            self.at = 0;
            for (number, line) in lines {
                self.after = number;
                self.page.extend(line.as_bytes());
                self.page.push(b'\n');
            }
        }
        Ok(&self.page[self.at..])
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount;
    }
}
