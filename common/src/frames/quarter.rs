//! Quarter lists: all placements of queens in given columns of a quadrant.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    geometry::{Geometry, Quadrant, Sets, elements},
    qjoin,
};
use crate::{
    compute::{
        crew::{Crew, OnDone},
        kernel::Kernel,
        setup::{CountError, go_on},
    },
    simd::SharedWords,
};

/// Keys of the quarter boards of one column set in one quadrant, by row set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quarter {
    /// Start of each row set's boards, by rank; one more entry at the end.
    starts: Vec<u32>,
    keys: Vec<u64>,
    /// OR of all keys.
    attacked: u64,
}

impl Quarter {
    /// Returns the diagonals that any board attacks.
    pub(crate) fn attacked(&self) -> u64 {
        self.attacked
    }

    /// Returns the boards whose row set has this rank.
    pub(crate) fn rows(&self, rank: usize) -> &[u64] {
        &self.keys[self.starts[rank] as usize..self.starts[rank + 1] as usize]
    }

    /// Replaces the boards with those of `from` that allow `queen`; adds its diagonals.
    pub(crate) fn assign_with_queen(&mut self, queen: u64, from: &Self, kernel: Kernel) {
        self.starts.clear();
        self.keys.clear();
        self.starts.push(0);
        for rank in 0..from.starts.len() - 1 {
            qjoin::join(kernel, (&[queen], from.rows(rank)), u64::MAX, &mut self.keys);
            self.starts.push(u32::try_from(self.keys.len()).expect("no more than before"));
        }
        self.attacked = or_all(self.keys.iter().copied());
    }

    pub(crate) fn shrink(&mut self) {
        self.starts.shrink_to_fit();
        self.keys.shrink_to_fit();
    }

    /// Returns the heap size of a copy, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        (self.starts.len() * size_of::<u32>() + self.keys.len() * size_of::<u64>()) as u64
    }
}

/// Identifies a list: `columns` in one quadrant of a geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QuarterOf {
    pub(crate) geometry: Geometry,
    pub(crate) quadrant: Quadrant,
    /// Columns with one queen each; the others are empty.
    pub(crate) columns: u32,
}

/// Enumerator of quarter boards that works with a crew and keeps its buffers.
#[derive(Debug)]
pub(crate) struct QuarterMaker {
    crew: Arc<Crew>,
    /// Crew of one, for lists that take less time than waking another thread.
    single: Crew,
    /// Key of row i, column j at 16 j + i.
    squares: Box<[u64; 256]>,
    branches: Vec<Branch>,
}

/// Boards of a list with the same first queen.
#[derive(Debug, Default)]
struct Branch {
    start: Attacked,
    total: usize,
    /// Number of boards per row set rank; later the index of the next one.
    places: Vec<u32>,
    /// (row set rank, key) of the first boards.
    recorded: Vec<(u32, u64)>,
    /// OR of all keys.
    attacked: u64,
}

/// Maximum number of boards recorded while a list is made.
///
/// Longer lists are counted first and enumerated again, which takes twice as long but no memory.
const MAX_RECORDED: usize = 1 << 20;

/// Maximum bytes for making a list; the buffer may have twice the recorded length.
pub(crate) const MAKER_BYTES: u64 = (MAX_RECORDED * 2 * size_of::<(u32, u64)>()) as u64;

/// Minimum number of placements in different rows for a list that the crew shares.
///
/// About a tenth of the placements are boards; a thread finds 10^8 boards per second.
const MIN_SHARED_WAYS: u64 = 1 << 20;

/// Attacked rows and diagonals of the next column to fill, and the key so far.
#[derive(Clone, Copy, Debug, Default)]
struct Attacked {
    rows: u32,
    up: u32,
    down: u32,
    key: u64,
}

impl QuarterMaker {
    pub(crate) fn new(crew: Arc<Crew>) -> Self {
        Self { crew, single: Crew::new(1), squares: Box::new([0; 256]), branches: Vec::new() }
    }

    /// Replaces `out` with the boards of a list.
    ///
    /// Returns `Break` if `on_done` does; `out` is then incomplete.
    pub(crate) fn make(
        &mut self,
        sets: &Sets,
        of: QuarterOf,
        out: &mut Quarter,
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        let QuarterOf { geometry, quadrant, columns } = of;
        for j in 0..geometry.side {
            for i in 0..geometry.side {
                self.squares[(16 * j + i) as usize] = geometry.quadrant_key(quadrant, i, j);
            }
        }
        let queens = columns.count_ones();
        let ways: u64 = (0..queens).map(|k| u64::from(geometry.side - k)).product();
        let crew = if ways < MIN_SHARED_WAYS { &self.single } else { &self.crew };
        let steps = steps(geometry, columns);
        let (steps, squares) = (&steps[..], &*self.squares);
        let number = start_branches(squares, steps, &mut self.branches);
        let (branches, steps) = (&mut self.branches[..number], steps.get(1..).unwrap_or_default());
        let max_recorded = MAX_RECORDED / number.max(1);
        crew.share(branches.iter_mut(), on_done, |branch, reporter| {
            branch.find(squares, steps, sets, queens, max_recorded);
            reporter.done(0)
        })?;
        let Quarter { starts, keys, attacked } = out;
        starts.clear();
        starts.resize(sets.count(queens) + 1, 0);
        let mut sum = 0;
        for (rank, start) in starts.iter_mut().enumerate() {
            *start = sum;
            for branch in branches.iter_mut() {
                if let Some(place) = branch.places.get_mut(rank) {
                    sum += std::mem::replace(place, sum);
                }
            }
        }
        *attacked = or_all(branches.iter().map(|branch| branch.attacked));
        keys.clear();
        if keys.capacity() < sum as usize {
            // The system zeroes these pages on first access.
            *keys = vec![0; sum as usize];
        } else {
            keys.resize(sum as usize, 0);
        }
        let keys = SharedWords::new(keys);
        crew.share(branches.iter_mut(), on_done, |branch, reporter| {
            branch.put(squares, steps, sets, keys);
            reporter.done(0)
        })
    }
}

/// Returns the columns to fill, in order.
fn steps(geometry: Geometry, columns: u32) -> Vec<Step> {
    let mut before = None;
    let step = |column| Step {
        distance: before.replace(column).map_or(0, |before| column - before),
        column,
        allowed: geometry.allowed_rows(column),
    };
    elements(columns).map(step).collect()
}

/// Starts a branch per row of the first queen, or one if there is no queen.
///
/// Returns the number of branches; unused ones keep their buffers.
fn start_branches(squares: &[u64; 256], steps: &[Step], branches: &mut Vec<Branch>) -> usize {
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
    if branches.len() < starts.len() {
        branches.resize_with(starts.len(), Branch::default);
    }
    for (branch, start) in branches.iter_mut().zip(&starts) {
        branch.start = *start;
    }
    starts.len()
}

impl Branch {
    /// Counts the boards by row set, and records the first `max_recorded`.
    fn find(
        &mut self,
        squares: &[u64; 256],
        steps: &[Step],
        sets: &Sets,
        queens: u32,
        max_recorded: usize,
    ) {
        let Self { start, total, places, recorded, attacked } = self;
        (*total, *attacked) = (0, 0);
        recorded.clear();
        places.clear();
        places.resize(sets.count(queens), 0);
        descend(squares, steps, *start, &mut |rows, key| {
            let rank = sets.rank(rows);
            places[rank] += 1;
            if *total < max_recorded {
                recorded.push((narrow(rank), key));
            }
            *total += 1;
            *attacked |= key;
        });
    }

    /// Writes every counted board to its place.
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
        if self.total == self.recorded.len() {
            self.recorded.iter().for_each(|&(rank, key)| put(rank as usize, key));
        } else {
            let put = &mut |rows, key| put(sets.rank(rows), key);
            descend(squares, steps, self.start, put);
        }
    }
}

fn narrow(rank: usize) -> u32 {
    u32::try_from(rank).expect("ranks have 16 bits")
}

pub(super) fn or_all(keys: impl Iterator<Item = u64>) -> u64 {
    keys.fold(0, |or, key| or | key)
}

/// A column to fill: distance from the previous one, and allowed rows.
#[derive(Clone, Copy)]
struct Step {
    distance: u32,
    column: u32,
    allowed: u32,
}

/// Calls `visit` with the row set and key of every board.
fn descend(
    squares: &[u64; 256],
    steps: &[Step],
    attacked: Attacked,
    visit: &mut impl FnMut(u32, u64),
) {
    let Some((step, rest)) = steps.split_first() else {
        visit(attacked.rows, attacked.key);
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
            visit(next.rows, next.key);
        } else {
            descend(squares, rest, next, visit);
        }
    }
}

/// Cache of quarter lists within a budget, shared by all threads.
#[derive(Debug)]
pub(crate) struct QuarterCache {
    budget_bytes: u64,
    cached: Mutex<CachedLists>,
}

#[derive(Debug, Default)]
struct CachedLists {
    lists: HashMap<QuarterOf, Arc<Quarter>>,
    bytes: u64,
}

impl QuarterCache {
    pub(crate) fn new(budget_bytes: u64) -> Self {
        Self { budget_bytes, cached: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, CachedLists> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the list for writing: a new one if the cache shares it.
pub(super) fn unshared(list: &mut Arc<Quarter>) -> &mut Quarter {
    if Arc::get_mut(list).is_none() {
        *list = Arc::default();
    }
    Arc::get_mut(list).expect("a new list or the only reference")
}

/// Source of quarter lists: the cache or, for lists not in it, the maker.
pub(crate) struct Source<'a> {
    pub(crate) sets: &'a Sets,
    pub(crate) cache: &'a QuarterCache,
    pub(crate) maker: &'a mut QuarterMaker,
    /// Called while lists are made.
    pub(crate) on_done: OnDone<'a>,
}

impl Source<'_> {
    /// Replaces `list` with the requested one.
    ///
    /// # Errors
    /// `Cancelled` if `on_done` returned `Break`.
    pub(crate) fn get(&mut self, of: QuarterOf, list: &mut Arc<Quarter>) -> Result<(), CountError> {
        if let Some(cached) = self.cache.lock().lists.get(&of) {
            list.clone_from(cached);
            return Ok(());
        }
        // A list that is not shared is made in place.
        let made = unshared(list);
        go_on(self.maker.make(self.sets, of, made, self.on_done))?;
        let bytes = made.held_bytes();
        let CachedLists { lists, bytes: used } = &mut *self.cache.lock();
        if *used + bytes <= self.cache.budget_bytes
            && let Entry::Vacant(entry) = lists.entry(of)
        {
            *used += bytes;
            made.shrink();
            entry.insert(list.clone());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::geometry::Kind;

    #[test]
    fn crews_of_every_size_make_the_same_lists() {
        let geometry = Geometry { kind: Kind::Even, side: 13, rotated: false };
        let sets = Sets::new(13);
        // A list short enough to be recorded, and a longer one.
        for columns in [0b1_0110_0101_0100, 0b1_0111_0101_0110] {
            let of = QuarterOf { geometry, quadrant: Quadrant::Q, columns };
            let [one, three] = [1, 3].map(|threads| {
                let mut maker = QuarterMaker::new(Arc::new(Crew::new(threads)));
                let (mut quarter, mut calls) = (Quarter::default(), 0);
                let mut go_on = |_| {
                    calls += 1;
                    ControlFlow::Continue(())
                };
                assert!(maker.make(&sets, of, &mut quarter, &mut go_on).is_continue());
                assert!(calls > 2, "reports progress");
                let go_on: OnDone<'_> = &mut |_| ControlFlow::Break(());
                assert!(maker.make(&sets, of, &mut Quarter::default(), go_on).is_break());
                quarter
            });
            assert!(one.keys.len() > 10_000);
            assert_eq!((one.starts, one.keys), (three.starts, three.keys));
            assert_eq!(one.attacked, three.attacked);
        }
    }
}
