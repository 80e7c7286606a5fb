//! Quarter lists: all placements of queens in given columns of a quadrant.
//!
//! The mathematics: `docs/method.md`, “Quarter boards, and when they fit”.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    geometry::{Geometry, Quadrant},
    qjoin::QJoin,
    sets::{Sets, elements},
};
use crate::{
    crew::{Crew, OnDone},
    simd::SharedWords,
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

/// Which list: that of `columns` in one quadrant of a geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuarterOf {
    pub(crate) geometry: Geometry,
    pub(crate) quadrant: Quadrant,
    /// With one queen in each of them, none elsewhere.
    pub(crate) columns: u32,
}

/// Enumerates quarter boards by a crew; keeps its buffers.
#[derive(Debug)]
pub(crate) struct QuarterMaker {
    crew: Arc<Crew>,
    /// For lists that are made before a helper wakes up.
    leader: Crew,
    /// The key of row i, column j at 16 j + i.
    squares: Box<[u64; 256]>,
    parts: Vec<Part>,
    most_noted: usize,
}

/// The boards of a list with the same first queen.
#[derive(Debug, Default)]
struct Part {
    start: Attacked,
    /// How many they are.
    all: usize,
    /// How many have each row set, by rank; then where the next of them goes.
    places: Vec<u32>,
    /// (rank of the row set, key) as they are found, if they are not too many.
    found: Vec<(u32, u64)>,
    /// The bits that any of them has.
    attacked: u64,
}

/// The most boards of a list to note as they are found: more of them are counted first and then found again,
/// which takes twice as long and no memory. As many always,
pub(crate) const LEAST_NOTED: usize = 1 << 20;
/// and as many where there is plenty.
pub(crate) const MOST_NOTED: usize = 1 << 23;

/// What a noted board takes, where there is room for twice as many.
pub(crate) const NOTED_BYTES: u64 = 2 * size_of::<(u32, u64)>() as u64;

/// The most memory, in bytes, that making a list takes beside it at the least.
pub(crate) const MAKER_BYTES: u64 = LEAST_NOTED as u64 * NOTED_BYTES;

/// Ways to put queens into different rows from which on a list takes a crew's while: about a tenth of them
/// are boards, of which a thread finds a hundred million a second.
const SHARED_WAYS: u64 = 1 << 20;

/// Rows and diagonals attacked so far, seen from the column to fill next, and the key so far.
#[derive(Clone, Copy, Debug, Default)]
struct Attacked {
    rows: u32,
    up: u32,
    down: u32,
    key: u64,
}

impl QuarterMaker {
    /// Working with this crew, which notes so many boards of a list as they are found.
    pub(crate) fn new(crew: Arc<Crew>, most_noted: usize) -> Self {
        Self {
            crew,
            leader: Crew::new(1),
            squares: Box::new([0; 256]),
            parts: Vec::new(),
            most_noted,
        }
    }

    /// Replaces `out` by the boards of a list; `Break` when `on_done`, which is called now and then,
    /// breaks: some of them are missing then.
    pub(crate) fn make(
        &mut self,
        sets: &Sets,
        of: QuarterOf,
        out: &mut Quarter,
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        let QuarterOf {
            geometry,
            quadrant,
            columns,
        } = of;
        for j in 0..geometry.side {
            for i in 0..geometry.side {
                self.squares[(16 * j + i) as usize] = geometry.quadrant_key(quadrant, i, j);
            }
        }
        let queens = columns.count_ones();
        let ways: u64 = (0..queens).map(|k| u64::from(geometry.side - k)).product();
        let crew = if ways < SHARED_WAYS {
            &self.leader
        } else {
            &self.crew
        };
        let steps = steps(geometry, columns);
        let (steps, squares) = (&steps[..], &*self.squares);
        let number = first_queens(squares, steps, &mut self.parts);
        let (parts, steps) = (
            &mut self.parts[..number],
            steps.get(1..).unwrap_or_default(),
        );
        let most_noted = self.most_noted / number.max(1);
        crew.share(parts.iter_mut(), on_done, |part, tell| {
            part.find(squares, steps, sets, queens, most_noted);
            tell.done(0)
        })?;
        let Quarter {
            starts,
            keys,
            attacked,
        } = out;
        starts.clear();
        starts.resize(sets.count(queens) + 1, 0);
        let mut sum = 0;
        for (rank, start) in starts.iter_mut().enumerate() {
            *start = sum;
            for part in parts.iter_mut() {
                if let Some(place) = part.places.get_mut(rank) {
                    sum += std::mem::replace(place, sum);
                }
            }
        }
        *attacked = parts.iter().fold(0, |any, part| any | part.attacked);
        keys.clear();
        if keys.capacity() < sum as usize {
            // Cleared by the system, for whoever writes there first.
            *keys = vec![0; sum as usize];
        } else {
            keys.resize(sum as usize, 0);
        }
        let keys = SharedWords::new(keys);
        crew.share(parts.iter_mut(), on_done, |part, tell| {
            part.put(squares, steps, sets, keys);
            tell.done(0)
        })
    }
}

/// The columns to fill, in their order.
fn steps(geometry: Geometry, columns: u32) -> Vec<Step> {
    let mut before = None;
    let step = |column| Step {
        distance: before.replace(column).map_or(0, |before| column - before),
        column,
        allowed: geometry.allowed_rows(column),
    };
    elements(columns).map(step).collect()
}

/// Begins a part for every row that the first queen may take, or one for none; returns how many there
/// are. Those behind them keep their buffers.
fn first_queens(squares: &[u64; 256], steps: &[Step], parts: &mut Vec<Part>) -> usize {
    let mut starts = Vec::new();
    match steps.first() {
        Some(first) => starts.extend(elements(first.allowed).map(|row| Attacked {
            rows: 1 << row,
            up: 1 << row,
            down: 1 << row,
            key: squares[(16 * first.column + row) as usize],
        })),
        None => starts.push(Attacked::default()),
    }
    if parts.len() < starts.len() {
        parts.resize_with(starts.len(), Part::default);
    }
    for (part, start) in parts.iter_mut().zip(&starts) {
        part.start = *start;
    }
    starts.len()
}

impl Part {
    /// Counts the boards by row set, and notes them if they are at most so many.
    fn find(
        &mut self,
        squares: &[u64; 256],
        steps: &[Step],
        sets: &Sets,
        queens: u32,
        most_noted: usize,
    ) {
        let Self {
            start,
            all,
            places,
            found,
            attacked,
        } = self;
        (*all, *attacked) = (0, 0);
        found.clear();
        places.clear();
        places.resize(sets.count(queens), 0);
        descend(squares, steps, *start, &mut |rows, key| {
            let rank = sets.rank(rows);
            places[rank] += 1;
            if *all < most_noted {
                found.push((narrow(rank), key));
            }
            *all += 1;
            *attacked |= key;
        });
    }

    /// Puts every board that was counted where it goes.
    fn put(
        &mut self,
        squares: &[u64; 256],
        steps: &[Step],
        sets: &Sets,
        keys: SharedWords<'_, u64>,
    ) {
        let places = &mut self.places;
        let mut put = |rank: usize, key| {
            keys.put(places[rank] as usize, key);
            places[rank] += 1;
        };
        if self.all == self.found.len() {
            self.found
                .iter()
                .for_each(|&(rank, key)| put(rank as usize, key));
        } else {
            let put = &mut |rows, key| put(sets.rank(rows), key);
            descend(squares, steps, self.start, put);
        }
    }
}

fn narrow(rank: usize) -> u32 {
    u32::try_from(rank).expect("ranks have 16 bits")
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
            let mut maker = QuarterMaker::new(Arc::new(Crew::new(2)), LEAST_NOTED);
            let mut quarter = Quarter::default();
            for columns in 0..1 << 6 {
                let of = QuarterOf {
                    geometry,
                    quadrant,
                    columns,
                };
                let go_on: OnDone<'_> = &mut |_| ControlFlow::Continue(());
                assert!(maker.make(&sets, of, &mut quarter, go_on).is_continue());
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

    #[test]
    fn crews_of_every_size_make_the_same_lists() {
        let geometry = Geometry {
            kind: Kind::Even,
            side: 13,
            turned: false,
        };
        let sets = Sets::new(13);
        // Noted as they are found, and too many for that.
        for columns in [0b1_0110_0101_0100, 0b1_0111_0101_0110] {
            let of = QuarterOf {
                geometry,
                quadrant: Quadrant::Q,
                columns,
            };
            let [one, three] = [1, 3].map(|threads| {
                let mut maker = QuarterMaker::new(Arc::new(Crew::new(threads)), LEAST_NOTED);
                let (mut quarter, mut calls) = (Quarter::default(), 0);
                let mut go_on = |_| {
                    calls += 1;
                    ControlFlow::Continue(())
                };
                assert!(
                    maker
                        .make(&sets, of, &mut quarter, &mut go_on)
                        .is_continue()
                );
                assert!(calls > 2, "told of it as it goes");
                let go_on: OnDone<'_> = &mut |_| ControlFlow::Break(());
                assert!(
                    maker
                        .make(&sets, of, &mut Quarter::default(), go_on)
                        .is_break()
                );
                quarter
            });
            assert!(one.keys.len() > 10_000);
            assert_eq!((one.starts, one.keys), (three.starts, three.keys));
            assert_eq!(one.attacked, three.attacked);
        }
    }
}
