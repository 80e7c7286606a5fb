//! The first step of sorting a long list: its keys by rows of cells, as they are made.
//!
//! Nobody knows before how many keys a row will have, so each is a chain of blocks. Keys go there a whole
//! line at a time, those of long lists past the caches: lines that are written as a whole need not be
//! read first.

use std::sync::{Mutex, PoisonError};

use super::sort::{Apart, Places, each};
use crate::{
    frames::hjoin::layout::order::Dissection,
    simd::{CacheLine, Lanes, Set, Work},
};

/// Short enough that the last ones of all rows are little beside a long list, and that a thread takes
/// 4 MiB at N = 28.
const LINES_A_BLOCK: usize = 8;
/// 128 KiB: each thread has one that it may not have begun to fill.
const BLOCKS_A_CHUNK: usize = 1 << 8;

/// The memory of blocks, some at a time.
type Chunk = Vec<CacheLine>;

/// Memory that nobody uses now.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Vec<Chunk>>);

impl Spare {
    fn take(&self) -> Chunk {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| vec![CacheLine::default(); LINES_A_BLOCK * BLOCKS_A_CHUNK])
    }
}

/// Keys by row, in no order within one, and whatever one thread needs to put them there.
#[derive(Debug, Default)]
pub(crate) struct ByRow {
    /// For each row, its last keys: a line goes to its block when the next one begins, since it is read
    /// as a whole, and the last word of it has reached the cache by then.
    pending: Vec<CacheLine>,
    /// How many keys each row has.
    lengths: Vec<u32>,
    /// The last block of each row; its last block may have room left.
    last: Vec<u32>,
    /// For each block, the one before it in its row.
    before: Vec<u32>,
    chunks: Vec<Chunk>,
}

impl ByRow {
    /// No keys, in so many rows.
    pub(crate) fn clear(&mut self, rows: usize) {
        self.pending.resize(rows, CacheLine::default());
        self.last.resize(rows, 0);
        self.lengths.clear();
        self.lengths.resize(rows, 0);
        self.before.clear();
    }

    /// Gives all memory for blocks back.
    pub(crate) fn give_back(&mut self, spare: &mut Spare) {
        let all = spare.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        all.append(&mut self.chunks);
        self.lengths.fill(0);
    }

    /// How many keys a row has.
    pub(crate) fn length(&self, row: usize) -> usize {
        self.lengths[row] as usize
    }

    /// Adds the keys of a row, as they lie in memory.
    pub(crate) fn read<'a>(&'a self, row: usize, keys: &mut Vec<&'a [u64]>) {
        let length = self.length(row);
        let mut lines = length.saturating_sub(1) / CacheLine::WORDS;
        keys.push(&self.pending[row].0[..length - lines * CacheLine::WORDS]);
        let mut block = self.last[row];
        while lines > 0 {
            let in_block = (lines - 1) % LINES_A_BLOCK + 1;
            let (chunk, start) = place(block);
            keys.push(CacheLine::words(
                &self.chunks[chunk][start..start + in_block],
            ));
            block = self.before[block as usize];
            lines -= in_block;
        }
    }

    /// A new last block of `row`.
    #[cold]
    fn add_block(&mut self, row: usize, spare: &Spare) {
        let block = u32::try_from(self.before.len()).expect("a list has at most 2^31 keys");
        self.before
            .push(std::mem::replace(&mut self.last[row], block));
        if place(block).0 == self.chunks.len() {
            self.chunks.push(spare.take());
        }
    }
}

/// The chunk of a block, and its first line in it.
fn place(block: u32) -> (usize, usize) {
    let block = block as usize;
    (
        block / BLOCKS_A_CHUNK,
        block % BLOCKS_A_CHUNK * LINES_A_BLOCK,
    )
}

/// About the most memory, in bytes, that a list takes in this form on so many threads.
pub(crate) fn memory_bytes(keys: u64, rows: u64, threads: u64) -> u64 {
    let blocks = keys / (CacheLine::WORDS * LINES_A_BLOCK) as u64 + threads * rows;
    let chunks = blocks / BLOCKS_A_CHUNK as u64 + threads;
    let lines = chunks * (BLOCKS_A_CHUNK * LINES_A_BLOCK) as u64 + threads * rows;
    lines * size_of::<CacheLine>() as u64 + 4 * blocks + 8 * threads * rows
}

/// Keys from which on a list does not stay in the caches until its rows are read.
pub(crate) const LONG: usize = 1 << 20;

/// Adding keys.
pub(crate) struct Scatter<'a> {
    pub(crate) dissection: Dissection<'a>,
    /// By row, whether its keys are to be added; all, if there is none.
    pub(crate) is_wanted: Option<&'a [bool]>,
    /// Whether they are some of [`LONG`] or more.
    pub(crate) is_long: bool,
    pub(crate) keys: &'a [u64],
    pub(crate) to: &'a mut ByRow,
    pub(crate) spare: &'a Spare,
}

impl Work for Scatter<'_> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, _set: S) {
        match (self.is_wanted, self.is_long) {
            (None, true) => self.add::<S::Bits, true>(|_| true),
            (None, false) => self.add::<S::Bits, false>(|_| true),
            (Some(is_wanted), _) => self.add::<S::Bits, true>(|row| is_wanted[row]),
        }
    }
}

impl Scatter<'_> {
    #[inline(always)]
    fn add<L: Lanes, const STREAM: bool>(self, is_wanted: impl Fn(usize) -> bool) {
        let Self { to, spare, .. } = self;
        let apart = Apart::new::<L>(self.dissection);
        let (rows, _) = Places::cells(apart).halves();
        assert!(to.lengths.len() >= rows.len() && to.pending.len() >= rows.len());
        let (first, second) = self.keys.split_at(self.keys.len() / 2);
        each!(first, second, |_, key| {
            let row = apart.place::<L>(key, rows);
            if is_wanted(row) {
                // SAFETY: there are so many rows.
                let at = unsafe { *to.lengths.get_unchecked(row) } as usize;
                if at.is_multiple_of(CacheLine::WORDS) && at > 0 {
                    to.flush::<L, STREAM>(row, at / CacheLine::WORDS - 1, spare);
                }
                // SAFETY: as above.
                unsafe {
                    to.pending.get_unchecked_mut(row).0[at % CacheLine::WORDS] = key;
                    *to.lengths.get_unchecked_mut(row) += 1;
                }
            }
        });
        if STREAM {
            L::end_streams();
        }
    }
}

impl ByRow {
    /// Moves the pending keys of a row to its last block, where they are line `line` of the row.
    #[inline(always)]
    fn flush<L: Lanes, const STREAM: bool>(&mut self, row: usize, line: usize, spare: &Spare) {
        let line = line % LINES_A_BLOCK;
        if line == 0 {
            self.add_block(row, spare);
        }
        let (chunk, start) = place(self.last[row]);
        let (from, to) = (&self.pending[row], &mut self.chunks[chunk][start + line]);
        if STREAM {
            // SAFETY: the end of all streams comes before anybody reads.
            unsafe { L::stream(from, to) };
        } else {
            *to = *from;
        }
    }
}
