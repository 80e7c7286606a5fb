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

/// 128 KiB: each thread has one that it may not have begun to fill.
const LINES_A_CHUNK: usize = 1 << 11;

/// The shortest blocks: a thread takes 4 MiB at N = 28 for the last ones of all rows.
const LEAST_LINES: u32 = 8;
/// The longest.
const MOST_LINES: u32 = 64;
/// Blocks of a row from which on they may be longer: the last ones are little beside the others then.
const LEAST_BLOCKS: usize = 32;

/// How long the blocks of a row are. Long ones are read faster: where a block ends, the next one is
/// somewhere else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockLength {
    /// The lines of a block are 2 to the power of this.
    log_lines: u32,
}

impl BlockLength {
    /// The shortest, for lists that leave no memory.
    pub(crate) const LEAST: Self = Self {
        log_lines: LEAST_LINES.ilog2(),
    };

    /// For so many keys in so many rows, divided among so many threads.
    pub(crate) fn of(keys: usize, rows: usize, threads: usize) -> Self {
        let lines = keys / (CacheLine::WORDS * LEAST_BLOCKS * rows * threads);
        let most = MOST_LINES.ilog2();
        let log_lines = lines.checked_ilog2().unwrap_or(0);
        Self {
            log_lines: log_lines.clamp(Self::LEAST.log_lines, most),
        }
    }

    fn lines(self) -> usize {
        1 << self.log_lines
    }

    /// The chunk of a block, and its first line in it.
    fn place(self, block: u32) -> (usize, usize) {
        let line = (block as usize) << self.log_lines;
        (line / LINES_A_CHUNK, line % LINES_A_CHUNK)
    }
}

/// The memory of blocks, some at a time.
type Chunk = Vec<CacheLine>;

/// Memory that nobody uses now.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Vec<Chunk>>);

impl Spare {
    fn take(&self) -> Chunk {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| vec![CacheLine::default(); LINES_A_CHUNK])
    }
}

/// Keys by row, in no order within one, and whatever one thread needs to put them there.
#[derive(Debug)]
pub(crate) struct ByRow {
    block: BlockLength,
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

impl Default for ByRow {
    fn default() -> Self {
        Self {
            block: BlockLength::LEAST,
            pending: Vec::new(),
            lengths: Vec::new(),
            last: Vec::new(),
            before: Vec::new(),
            chunks: Vec::new(),
        }
    }
}

impl ByRow {
    /// No keys, in so many rows.
    pub(crate) fn clear(&mut self, rows: usize, block: BlockLength) {
        self.block = block;
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
            let in_block = (lines - 1) % self.block.lines() + 1;
            let (chunk, start) = self.block.place(block);
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
        if self.block.place(block).0 == self.chunks.len() {
            self.chunks.push(spare.take());
        }
    }
}

/// About the most memory, in bytes, that a list takes in this form on so many threads, a part of it at a time
/// if it is sorted in several rounds.
pub(crate) fn memory_bytes(keys: u64, rows: u64, threads: u64, rounds: u64) -> u64 {
    let words = CacheLine::WORDS as u64;
    let shortest = threads * rows * u64::from(LEAST_LINES);
    let (full, last) = if rounds == 1 {
        (
            keys / words,
            shortest.max(keys / words / LEAST_BLOCKS as u64),
        )
    } else {
        (keys / rounds / words, shortest)
    };
    let blocks = (full + last) / u64::from(LEAST_LINES);
    let lines = full + last + threads * (LINES_A_CHUNK as u64 + rows);
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
        let line = line & (self.block.lines() - 1);
        if line == 0 {
            self.add_block(row, spare);
        }
        let (chunk, start) = self.block.place(self.last[row]);
        let (from, to) = (&self.pending[row], &mut self.chunks[chunk][start + line]);
        if STREAM {
            // SAFETY: the end of all streams comes before anybody reads.
            unsafe { L::stream(from, to) };
        } else {
            *to = *from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        frames::hjoin::layout::order::{ByteTables, Order},
        kernel::Kernel,
        simd::dispatch,
    };

    #[test]
    fn blocks_are_longer_where_their_ends_are_little_beside_the_list() {
        let lines = |keys, rows, threads| BlockLength::of(keys, rows, threads).lines();
        assert_eq!(lines(1 << 19, 1 << 9, 1), 8);
        assert_eq!(lines(1 << 27, 1 << 12, 1), 64);
        assert_eq!(lines(1 << 27, 1 << 12, 16), 8);
        for (keys, rows, threads) in [(5_000_000, 1 << 9, 1), (140_000_000, 1 << 12, 2)] {
            let lines = lines(keys, rows, threads);
            assert!(lines > 8);
            assert!(threads * rows * lines * CacheLine::WORDS * LEAST_BLOCKS <= keys);
        }
    }

    #[test]
    fn rows_are_read_as_they_were_written_in_blocks_of_any_length() {
        let order = Order::of_masks((1 << 40) - 1, 0b1100_0000, 0b1_1000_0000_0011);
        let mut tables = ByteTables::default();
        tables.set(order);
        let dissection = Dissection {
            order,
            tables: &tables,
        };
        let random = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ i) >> 24;
        let keys: Vec<u64> = (0..30_000).map(random).collect();
        let mut expected = keys.clone();
        expected.sort_unstable();
        for (kernel, is_long) in Kernel::available()
            .into_iter()
            .flat_map(|k| [(k, false), (k, true)])
        {
            let mut to = ByRow::default();
            for log_lines in LEAST_LINES.ilog2()..=MOST_LINES.ilog2() {
                let (mut spare, rows) = (Spare::default(), 1 << 3);
                to.clear(rows, BlockLength { log_lines });
                let scatter = Scatter {
                    dissection,
                    is_wanted: None,
                    is_long,
                    keys: &keys,
                    to: &mut to,
                    spare: &spare,
                };
                dispatch(kernel, scatter);
                let mut found = Vec::new();
                for row in 0..rows {
                    let mut lists = Vec::new();
                    to.read(row, &mut lists);
                    let lengths: Vec<usize> = lists.iter().map(|list| list.len()).collect();
                    assert_eq!(lengths.iter().sum::<usize>(), to.length(row));
                    let block = CacheLine::WORDS << log_lines;
                    assert_eq!(
                        lengths.len(),
                        1 + (to.length(row) - 1 - lengths[0]).div_ceil(block)
                    );
                    found.extend(lists.concat());
                }
                found.sort_unstable();
                assert_eq!(found, expected, "{kernel}, 2^{log_lines} lines");
                to.give_back(&mut spare);
            }
        }
    }
}
