//! Quarter lists: all placements of queens in given columns of a quadrant.

use super::{
    geometry::{Geometry, Quadrant},
    qjoin::QJoin,
    sets::{Sets, elements},
};

/// The quarter boards of one column set in one quadrant: their keys, grouped by row set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quarter {
    /// Where the boards of each row set begin, by rank of the row set; one more entry at the end.
    starts: Vec<u32>,
    keys: Vec<u64>,
    /// The bits that any key has.
    attacked: u64,
}

impl Quarter {
    /// The bits of the key that some board has: the diagonals that any of them attacks.
    pub(crate) fn attacked(&self) -> u64 {
        self.attacked
    }

    /// The boards whose row set has this rank.
    pub(crate) fn rows(&self, rank: usize) -> &[u64] {
        &self.keys[self.starts[rank] as usize..self.starts[rank + 1] as usize]
    }

    /// Replaces these by those boards of `from` that `queen` allows, with its diagonals added.
    pub(crate) fn assign_beside(&mut self, queen: u64, from: &Self, qjoin: QJoin) {
        self.starts.clear();
        self.keys.clear();
        self.starts.push(0);
        for rank in 0..from.starts.len() - 1 {
            qjoin.join(&[queen], from.rows(rank), u64::MAX, &mut self.keys);
            self.starts
                .push(u32::try_from(self.keys.len()).expect("no more than before"));
        }
        self.attacked = any(&self.keys);
    }

    /// As many row sets, none with a board.
    #[cfg(test)]
    pub(super) fn without_boards(&self) -> Self {
        Self {
            starts: vec![0; self.starts.len()],
            ..Self::default()
        }
    }

    /// Gives back memory that no board is in.
    pub(crate) fn shrink(&mut self) {
        self.starts.shrink_to_fit();
        self.keys.shrink_to_fit();
    }

    /// What a copy holds on the heap, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        (self.starts.len() * size_of::<u32>() + self.keys.len() * size_of::<u64>()) as u64
    }
}

/// Enumerates quarter boards; keeps its buffers.
#[derive(Debug)]
pub(crate) struct QuarterMaker {
    geometry: Geometry,
    /// The key of row i, column j at 16 j + i.
    squares: Box<[u64; 256]>,
    /// (row set, key) as they are found, if they are not too many.
    found: Vec<(u32, u64)>,
}

/// The most boards to note as they are found, 16 bytes each: more of them are counted first and then
/// found again, which takes twice as long and no memory.
const MOST_FOUND: usize = 1 << 20;

/// The most memory, in bytes, that making a list takes beside it.
pub(crate) const MAKER_BYTES: u64 = 2 * (MOST_FOUND * size_of::<(u32, u64)>()) as u64;

/// Rows and diagonals attacked so far, seen from the column to fill next, and the key so far.
#[derive(Clone, Copy)]
struct Attacked {
    rows: u32,
    up: u32,
    down: u32,
    key: u64,
}

impl QuarterMaker {
    /// For one quadrant of `geometry`.
    pub(crate) fn new(geometry: Geometry, quadrant: Quadrant) -> Self {
        let mut squares = Box::new([0; 256]);
        for j in 0..geometry.side {
            for i in 0..geometry.side {
                squares[(16 * j + i) as usize] = geometry.quadrant_key(quadrant, i, j);
            }
        }
        Self {
            geometry,
            squares,
            found: Vec::new(),
        }
    }

    /// Replaces `out` by the quarter boards with one queen in each of `columns` and none elsewhere.
    pub(crate) fn make(&mut self, sets: &Sets, columns: u32, out: &mut Quarter) {
        self.found.clear();
        let mut steps = [Step {
            distance: 0,
            column: 0,
            allowed: 0,
        }; 17];
        let mut before = None;
        let mut count = 0;
        for column in elements(columns) {
            steps[count] = Step {
                distance: before.map_or(0, |before| column - before),
                column,
                allowed: self.geometry.allowed_rows(column),
            };
            before = Some(column);
            count += 1;
        }
        let start = Attacked {
            rows: 0,
            up: 0,
            down: 0,
            key: 0,
        };
        let steps = &steps[..count];
        let Quarter {
            starts,
            keys,
            attacked,
        } = out;
        starts.clear();
        starts.resize(sets.count(columns.count_ones()) + 1, 0);
        let (squares, found) = (&self.squares, &mut self.found);
        let mut all = 0;
        descend(squares, steps, start, &mut |rows, key| {
            starts[sets.rank(rows)] += 1;
            if all < MOST_FOUND {
                found.push((rows, key));
            }
            all += 1;
        });
        let mut sum = 0;
        for start in starts.iter_mut() {
            sum += *start;
            *start = sum;
        }
        // Filled from each group's end, so that the starts end up where they belong.
        keys.clear();
        keys.reserve_exact(all);
        keys.resize(all, 0);
        *attacked = 0;
        let mut put = |rows, key| {
            let place = &mut starts[sets.rank(rows)];
            *place -= 1;
            keys[*place as usize] = key;
            *attacked |= key;
        };
        if all <= MOST_FOUND {
            found.iter().for_each(|&(rows, key)| put(rows, key));
        } else {
            found.clear();
            descend(squares, steps, start, &mut put);
        }
    }
}

/// The bits that any of `keys` has.
fn any(keys: &[u64]) -> u64 {
    keys.iter().fold(0, |any, key| any | key)
}

/// A column to fill: how far it is from the one before, and where queens may stand.
#[derive(Clone, Copy)]
struct Step {
    distance: u32,
    column: u32,
    allowed: u32,
}

/// Calls `found` with the row set and the key of every board.
fn descend(
    squares: &[u64; 256],
    steps: &[Step],
    attacked: Attacked,
    found: &mut impl FnMut(u32, u64),
) {
    let Some((step, rest)) = steps.split_first() else {
        found(attacked.rows, attacked.key);
        return;
    };
    let up = attacked.up << step.distance;
    let down = attacked.down >> step.distance;
    let mut free = step.allowed & !(attacked.rows | up | down);
    while free != 0 {
        let row = free.trailing_zeros();
        let queen = free & free.wrapping_neg();
        free ^= queen;
        let next = Attacked {
            rows: attacked.rows | queen,
            up: up | queen,
            down: down | queen,
            key: attacked.key | squares[(16 * step.column + row) as usize & 255],
        };
        if rest.is_empty() {
            found(next.rows, next.key);
        } else {
            descend(squares, rest, next, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::geometry::Kind;

    /// Tries every row for every column: (row set, key) of all boards.
    fn brute_force(geometry: Geometry, quadrant: Quadrant, columns: u32) -> Vec<(u32, u64)> {
        let mut boards: Vec<Vec<(u32, u32)>> = vec![Vec::new()];
        for column in elements(columns) {
            let safe =
                |&(i, j): &(u32, u32), row: u32| i != row && i.abs_diff(row) != j.abs_diff(column);
            let extend = |board: &Vec<(u32, u32)>| {
                let rows = elements(geometry.allowed_rows(column));
                let rows = rows.filter(|&row| board.iter().all(|queen| safe(queen, row)));
                let boards = rows.map(|row| [&board[..], &[(row, column)]].concat());
                boards.collect::<Vec<_>>()
            };
            boards = boards.iter().flat_map(extend).collect();
        }
        let key = |key, &(i, j): &(u32, u32)| key | geometry.quadrant_key(quadrant, i, j);
        let rows = |rows, &(i, _): &(u32, u32)| rows | 1 << i;
        boards
            .iter()
            .map(|board| (board.iter().fold(0, rows), board.iter().fold(0, key)))
            .collect()
    }

    #[test]
    fn agrees_with_brute_force() {
        let kinds = [Kind::Even, Kind::TypeOne, Kind::TypeTwo];
        let quadrants = [Quadrant::P, Quadrant::Q, Quadrant::R, Quadrant::S];
        let sets = Sets::new(6);
        for (kind, quadrant) in kinds.into_iter().zip(quadrants.into_iter().cycle()) {
            let geometry = Geometry {
                kind,
                side: 6,
                turned: kind == Kind::TypeTwo,
            };
            let mut maker = QuarterMaker::new(geometry, quadrant);
            let mut quarter = Quarter::default();
            for columns in 0..1 << 6 {
                maker.make(&sets, columns, &mut quarter);
                let mut found = Vec::new();
                for (rank, &rows) in sets.of_size(columns.count_ones()).iter().enumerate() {
                    found.extend(quarter.rows(rank).iter().map(|&key| (rows, key)));
                }
                let mut expected = brute_force(geometry, quadrant, columns);
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(
                    found, expected,
                    "{geometry:?}, {quadrant:?}, columns {columns:b}"
                );
            }
        }
    }
}
