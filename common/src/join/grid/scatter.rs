//! First step of sorting a long list: collecting keys by row as they are made.
//!
//! The number of keys per row is not known in advance, so each row is a chain of blocks. Keys are
//! written a cache line at a time; lines of long lists bypass the caches, because lines that are
//! written whole need not be read first.

use std::sync::{Mutex, PoisonError};

use super::sort::{Places, interleave};
use crate::{
    join::layout::KeySplit,
    simd::{CacheLine, Lanes, Set, Work},
};

/// Lines per chunk: 128 KiB; each thread may have an unused chunk.
const LINES_PER_CHUNK: usize = 1 << 11;

/// Minimum block length; a thread uses 2 MiB for the last blocks at N = 28.
const MIN_LINES: u32 = 8;
/// Maximum block length.
const MAX_LINES: u32 = 64;
/// Minimum blocks per row for longer blocks.
const MIN_BLOCKS: usize = 32;

/// Length of a row's blocks; long ones are read faster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockLength {
    log_lines: u32,
}

impl Default for BlockLength {
    fn default() -> Self {
        Self::MIN
    }
}

impl BlockLength {
    /// Shortest blocks, for lists that leave little memory.
    pub(crate) const MIN: Self = Self { log_lines: MIN_LINES.ilog2() };

    /// Chooses the length for these keys, rows and threads.
    pub(crate) fn of(keys: usize, rows: usize, threads: usize) -> Self {
        let lines = keys / (CacheLine::WORDS * MIN_BLOCKS * rows * threads);
        let most = MAX_LINES.ilog2();
        let log_lines = lines.checked_ilog2().unwrap_or(0);
        Self { log_lines: log_lines.clamp(Self::MIN.log_lines, most) }
    }

    fn lines(self) -> usize {
        1 << self.log_lines
    }

    /// Returns the chunk of a block, and the first line of the block in the chunk.
    fn place(self, block: u32) -> (usize, usize) {
        let line = (block as usize) << self.log_lines;
        (line / LINES_PER_CHUNK, line % LINES_PER_CHUNK)
    }
}

/// Memory of several blocks.
type Chunk = Vec<CacheLine>;

/// Chunks that are not in use.
#[derive(Debug, Default)]
pub(crate) struct ChunkPool(Mutex<Vec<Chunk>>);

impl ChunkPool {
    fn take(&self) -> Chunk {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| vec![CacheLine::default(); LINES_PER_CHUNK])
    }
}

/// Keys by row, unordered within a row, with the write buffers of one thread.
#[derive(Debug, Default)]
pub(crate) struct ByRow {
    block: BlockLength,
    /// Last keys of each row; a full line is moved when the next one begins.
    pending: Vec<CacheLine>,
    lengths: Vec<u32>,
    /// Last block of each row; it may have room left.
    last: Vec<u32>,
    /// Previous block of each block in its row.
    before: Vec<u32>,
    chunks: Vec<Chunk>,
}

impl ByRow {
    /// Removes all keys.
    pub(crate) fn clear(&mut self, rows: usize, block: BlockLength) {
        self.block = block;
        self.pending.resize(rows, CacheLine::default());
        self.last.resize(rows, 0);
        self.lengths.clear();
        self.lengths.resize(rows, 0);
        self.before.clear();
    }

    /// Removes all keys and moves the memory of their blocks to `spare`.
    pub(crate) fn recycle(&mut self, spare: &mut ChunkPool) {
        let all = spare.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        all.append(&mut self.chunks);
        self.lengths.fill(0);
    }

    pub(crate) fn length(&self, row: usize) -> usize {
        self.lengths[row] as usize
    }

    /// Appends the keys of a row as they lie in memory.
    pub(crate) fn read<'a>(&'a self, row: usize, keys: &mut Vec<&'a [u64]>) {
        let length = self.length(row);
        let mut lines = length.saturating_sub(1) / CacheLine::WORDS;
        keys.push(&self.pending[row].0[..length - lines * CacheLine::WORDS]);
        let mut block = self.last[row];
        while lines > 0 {
            let in_block = (lines - 1) % self.block.lines() + 1;
            let (chunk, start) = self.block.place(block);
            keys.push(CacheLine::words(&self.chunks[chunk][start..start + in_block]));
            block = self.before[block as usize];
            lines -= in_block;
        }
    }

    #[cold]
    fn add_block(&mut self, row: usize, spare: &ChunkPool) {
        let block = u32::try_from(self.before.len()).expect("a list has at most 2^31 keys");
        self.before.push(std::mem::replace(&mut self.last[row], block));
        if self.block.place(block).0 == self.chunks.len() {
            self.chunks.push(spare.take());
        }
    }
}

/// Estimates the maximum memory of a list in this form, in bytes.
pub(crate) fn memory_bytes(keys: u64, rows: u64, threads: u64, rounds: u64) -> u64 {
    let words = CacheLine::WORDS as u64;
    let shortest = threads * rows * u64::from(MIN_LINES);
    let (full, last) = if rounds == 1 {
        (keys / words, shortest.max(keys / words / MIN_BLOCKS as u64))
    } else {
        (keys / rounds / words, shortest)
    };
    let blocks = (full + last) / u64::from(MIN_LINES);
    let lines = full + last + threads * (LINES_PER_CHUNK as u64 + rows);
    lines * size_of::<CacheLine>() as u64 + 4 * blocks + 8 * threads * rows
}

/// Minimum keys of a list that does not stay in the caches until its rows are read.
pub(crate) const LONG: usize = 1 << 20;

/// Work that adds keys to their rows.
pub(crate) struct Scatter<'a> {
    pub(crate) key_split: KeySplit<'a>,
    /// Whether the keys of each row are wanted; `None` for all rows.
    pub(crate) is_wanted: Option<&'a [bool]>,
    /// Whether the whole list has [`LONG`] keys or more.
    pub(crate) is_long: bool,
    pub(crate) keys: &'a [u64],
    pub(crate) to: &'a mut ByRow,
    pub(crate) spare: &'a ChunkPool,
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
        let Self { key_split, to, spare, .. } = self;
        let (rows, _) = Places::cells(key_split).halves();
        assert!(to.lengths.len() >= rows.len() && to.pending.len() >= rows.len());
        let (first, second) = self.keys.split_at(self.keys.len() / 2);
        interleave!(first, second, |_, key| {
            let row = rows.of::<L>(key, key_split);
            if is_wanted(row) {
                // SAFETY: the row is below the number of rows.
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
    /// Moves the pending keys of a row to line `line` of its blocks.
    #[inline(always)]
    fn flush<L: Lanes, const STREAM: bool>(&mut self, row: usize, line: usize, spare: &ChunkPool) {
        let line = line & (self.block.lines() - 1);
        if line == 0 {
            self.add_block(row, spare);
        }
        let (chunk, start) = self.block.place(self.last[row]);
        let (from, to) = (&self.pending[row], &mut self.chunks[chunk][start + line]);
        if STREAM {
            // SAFETY: `end_streams` comes before any read.
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
        compute::kernel::Kernel,
        join::layout::{ByteTables, Order},
        simd::dispatch,
    };

    #[test]
    fn blocks_are_longer_if_their_unused_ends_are_small_compared_with_the_list() {
        let lines = |keys, rows, threads| BlockLength::of(keys, rows, threads).lines();
        assert_eq!(lines(1 << 19, 1 << 9, 1), 8);
        assert_eq!(lines(1 << 27, 1 << 12, 1), 64);
        assert_eq!(lines(1 << 27, 1 << 12, 16), 8);
        for (keys, rows, threads) in [(5_000_000, 1 << 9, 1), (140_000_000, 1 << 12, 2)] {
            let lines = lines(keys, rows, threads);
            assert!(lines > 8);
            assert!(threads * rows * lines * CacheLine::WORDS * MIN_BLOCKS <= keys);
        }
    }

    #[test]
    fn rows_are_read_as_they_were_written_in_blocks_of_any_length() {
        let order = Order::of_masks((1 << 40) - 1, 0b1100_0000, 0b1_1000_0000_0011);
        let mut tables = ByteTables::default();
        tables.set(order);
        let random = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ i) >> 24;
        let keys: Vec<u64> = (0..30_000).map(random).collect();
        let mut expected = keys.clone();
        expected.sort_unstable();
        for (kernel, is_long) in
            Kernel::available().into_iter().flat_map(|k| [(k, false), (k, true)])
        {
            let mut to = ByRow::default();
            for log_lines in MIN_LINES.ilog2()..=MAX_LINES.ilog2() {
                let (mut spare, rows) = (ChunkPool::default(), 1 << 3);
                let key_split = KeySplit::new(kernel, order, &tables);
                to.clear(rows, BlockLength { log_lines });
                let scatter = Scatter {
                    key_split,
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
                to.recycle(&mut spare);
            }
        }
    }
}
