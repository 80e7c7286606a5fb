//! Rows narrowed for several tiles at a time: what the highest bits of their patterns rule out is left aside
//! once for all of these tiles, each of which narrows what is left. Long rows have thousands of cells of a few
//! keys each, and going from cell to cell is what narrowing takes most of its time for.

use super::gather::{Buffer, GridRow, TILE};
use crate::simd::Rest;

/// What is left of a tile's rows of one grid.
#[derive(Debug, Default)]
pub(crate) struct Shortened<W> {
    keys: Buffer<W>,
    /// Of each row, where its keys begin,
    starts: [usize; TILE],
    /// and where its cells do from there, and the last one ends.
    offsets: Vec<u32>,
    cells: usize,
}

impl<W: Rest> Shortened<W> {
    /// Takes what these rows, [`TILE`] at most and of as many cells each, have in cells whose pattern above the
    /// lowest `low_bits` bits has no bit in common with `exclude`; or nothing if that is more than `most` keys:
    /// then it returns false.
    #[inline(always)]
    pub(crate) fn fill(
        &mut self,
        rows: &[GridRow<'_, W>],
        exclude: usize,
        low_bits: u32,
        most: usize,
    ) -> bool {
        let Some(first) = rows.first() else {
            return false;
        };
        let spans = first.wanted(exclude, low_bits);
        // How many keys are wanted takes longer to find out.
        let mut keys = rows.iter().map(|row| row.len()).sum();
        if keys > most {
            keys = rows.iter().map(|row| row.keys_of(spans)).sum();
        }
        if keys > most {
            return false;
        }
        self.cells = spans.cells();
        self.keys.clear(keys);
        self.offsets.resize(rows.len() * (self.cells + 1), 0);
        let offsets = self.offsets.chunks_exact_mut(self.cells + 1);
        for ((row, start), offsets) in rows.iter().zip(&mut self.starts).zip(offsets) {
            *start = self.keys.len();
            // SAFETY: all rows have as many cells, so these are spans of each; there is room for all keys.
            unsafe { row.narrow(spans, offsets, &mut self.keys) };
        }
        true
    }

    /// Row number `at` of those it was filled with: its cells are numbered by the lowest bits of their patterns.
    #[inline(always)]
    pub(crate) fn row(&self, at: usize) -> GridRow<'_, W> {
        let offsets = &self.offsets[at * (self.cells + 1)..][..=self.cells];
        GridRow::new(self.keys.rests_from(self.starts[at]), offsets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::hjoin::grid::gather::{List, SLACK, TILE_BITS};

    #[test]
    fn shortened_rows_have_what_is_wanted_of_the_whole_ones() {
        // 256 cells: cell c holds (c + r) % 3 keys in row r, all with the number c.
        let rows: Vec<(Vec<u32>, Vec<u32>)> = (0..1 << TILE_BITS)
            .map(|r| {
                let (mut rests, mut offsets) = (Vec::new(), vec![0]);
                for c in 0..256 {
                    rests.extend(vec![c; (c + r) as usize % 3]);
                    offsets.push(u32::try_from(rests.len()).unwrap());
                }
                rests.resize(rests.len() + SLACK, u32::MAX);
                (rests, offsets)
            })
            .collect();
        let rows: Vec<GridRow<'_, u32>> = rows.iter().map(|(r, o)| GridRow::new(r, o)).collect();
        let (mut shortened, mut buffers) =
            (Shortened::default(), [Buffer::default(), Buffer::default()]);
        for exclude in 0..256_usize {
            for low_bits in [0, 5, 7, 8] {
                let all = rows.iter().map(|row| row.len()).sum();
                assert!(shortened.fill(&rows, exclude >> low_bits, low_bits, all));
                for (at, row) in rows.iter().enumerate() {
                    let low = exclude & ((1 << low_bits) - 1);
                    let [left, whole] = &mut buffers;
                    let sorted = |list: List<u32>| {
                        // SAFETY: a list is readable for its length.
                        let keys = unsafe { std::slice::from_raw_parts(list.start, list.length) };
                        let mut keys = keys.to_vec();
                        keys.sort_unstable();
                        keys
                    };
                    let left = sorted(shortened.row(at).gather(low, left));
                    assert_eq!(
                        left,
                        sorted(row.gather(exclude, whole)),
                        "{exclude}, {low_bits}"
                    );
                }
            }
        }
        assert!(!shortened.fill(&rows, 0, 4, 10), "more than that");
        assert!(!shortened.fill(&[], 0, 4, 10));
    }
}
