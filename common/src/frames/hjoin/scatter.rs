//! The first step of sorting a long list: its keys by rows of cells, as they are made.
//!
//! Nobody knows before how many keys a row will have, so each is a chain of blocks. Keys go to memory
//! a whole line at a time and past the caches: lines that are written as a whole need not be read first.

use std::sync::{Mutex, PoisonError};

use super::{
    Work,
    lanes::{Lanes, Line},
    layout::{ByteTables, Order},
    sort::{Apart, Places},
};

/// Short enough that the last ones of all rows are little beside a long list.
const LINES_A_BLOCK: usize = 16;
const BLOCKS_A_CHUNK: usize = 1 << 10;

/// The memory of blocks, some at a time.
type Chunk = Vec<Line>;

/// Memory that nobody uses now.
#[derive(Debug, Default)]
pub(super) struct Spare(Mutex<Vec<Chunk>>);

impl Spare {
    fn take(&self) -> Chunk {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| vec![Line::default(); LINES_A_BLOCK * BLOCKS_A_CHUNK])
    }
}

/// Keys by row, in no order within one, and whatever one thread needs to put them there.
#[derive(Debug, Default)]
pub(super) struct ByRow {
    /// For each row, the keys that make no whole line yet.
    pending: Vec<Line>,
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
    pub(super) fn clear(&mut self, rows: usize) {
        self.pending.resize(rows, Line::default());
        self.last.resize(rows, 0);
        self.lengths.clear();
        self.lengths.resize(rows, 0);
        self.before.clear();
    }

    /// Gives all memory for blocks back.
    pub(super) fn give_back(&mut self, spare: &mut Spare) {
        let all = spare.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        all.append(&mut self.chunks);
        self.lengths.fill(0);
    }

    /// How many keys a row has.
    pub(super) fn length(&self, row: usize) -> usize {
        self.lengths[row] as usize
    }

    /// Adds the keys of a row.
    pub(super) fn read(&self, row: usize, keys: &mut Vec<u64>) {
        let length = self.length(row);
        let (mut lines, pending) = (length / Line::WORDS, length % Line::WORDS);
        let mut block = self.last[row];
        while lines > 0 {
            let in_block = (lines - 1) % LINES_A_BLOCK + 1;
            let (chunk, start) = place(block);
            let block_lines = &self.chunks[chunk][start..start + in_block];
            keys.extend_from_slice(Line::words(block_lines));
            block = self.before[block as usize];
            lines -= in_block;
        }
        keys.extend_from_slice(&self.pending[row].0[..pending]);
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
pub(super) fn memory_bytes(keys: u64, rows: u64, threads: u64) -> u64 {
    let blocks = keys / (Line::WORDS * LINES_A_BLOCK) as u64 + threads * rows;
    let chunks = blocks / BLOCKS_A_CHUNK as u64 + threads;
    let lines = chunks * (BLOCKS_A_CHUNK * LINES_A_BLOCK) as u64 + threads * rows;
    lines * size_of::<Line>() as u64 + 4 * blocks + 8 * threads * rows
}

/// Adding keys.
pub(super) struct Scatter<'a> {
    pub(super) order: (Order, &'a ByteTables),
    /// By row, whether its keys are to be added.
    pub(super) is_wanted: &'a [bool],
    pub(super) keys: &'a [u64],
    pub(super) to: &'a mut ByRow,
    pub(super) spare: &'a Spare,
}

impl Work for Scatter<'_> {
    type Result = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { to, .. } = self;
        let apart = Apart::new::<L>(self.order);
        let (rows, _) = Places::cells(apart).halves();
        for &key in self.keys {
            let row = apart.place::<L>(key, rows);
            if !self.is_wanted[row] {
                continue;
            }
            let at = to.lengths[row] as usize;
            to.lengths[row] += 1;
            let pending = &mut to.pending[row];
            pending.0[at % Line::WORDS] = key;
            if at % Line::WORDS == Line::WORDS - 1 {
                let line = at / Line::WORDS % LINES_A_BLOCK;
                let pending = *pending;
                if line == 0 {
                    to.add_block(row, self.spare);
                }
                let (chunk, start) = place(to.last[row]);
                // SAFETY: the end of all streams comes below, before anybody reads.
                unsafe { L::stream(&pending, &mut to.chunks[chunk][start + line]) };
            }
        }
        L::end_streams();
    }
}
