//! Sizes of the lists of frames, counted or estimated from samples.
//!
//! This module is for studying the method; counts do not use it. Frames are those of the paper: all
//! row sets B and D, without the weights that skip most frames of a run.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    geometry::{Frame, Kind, Quadrant},
    parts::{HalfMaker, Parts},
    plan::Division,
    quarter::{QuarterCache, QuarterMaker, QuarterOf, Source},
};
use crate::{
    board::Board,
    compute::{
        crew::{Crew, OnDone},
        kernel::Kernel,
    },
    join::Side,
    method::Layout,
    plan::{
        self, Plan,
        spec::{BadSpec, PlanSpec},
    },
    text::estimated,
};

/// Survey of the frames of a board and the sizes of their lists.
///
/// ```
/// use common::{board::Board, frames::{Effort, Survey}};
///
/// // The frame that docs/method.md works through.
/// let mut survey = Survey::new(Board::new(8)?, 1 << 20)?;
/// let (a, c) = (0b0101, 0b1010);
/// let group = survey.group_of(a, c).expect("two queens each");
/// let everything = Effort { halves: usize::MAX, pairs: usize::MAX };
/// let lists = survey.lists(group, a, c, everything, &mut |_| 0);
/// assert_eq!((lists.halves, lists.pairs, lists.solutions), ([14.0, 6.0], 84.0, 6.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Survey {
    division: Arc<Division>,
    cache: QuarterCache,
}

/// Frames that differ only in their columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    kind: Kind,
    /// Queens in R, the paper's m.
    pub queens: u32,
    pub top_queens: u32,
    /// Number of column sets of P and of Q.
    pub column_sets: [u64; 2],
    /// Number of frames (A, C).
    pub frames: u64,
    /// Number of frames that a run counts; the others are images of these.
    pub planned: u64,
}

/// Sizes of the lists of one frame, or means over several frames.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lists {
    /// Quarter boards in P, Q, R and S, without middle queens.
    pub quarters: [f64; 4],
    /// Half boards above and below.
    pub halves: [f64; 2],
    pub pairs: f64,
    /// Pairs of half boards that fit.
    pub solutions: f64,
    /// Whether a number is an estimate from some row sets or pairs.
    pub sampled: bool,
}

/// Limits of the effort spent on a frame.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Half boards to make per half; remaining row sets are skipped.
    pub halves: usize,
    pub pairs: usize,
}

impl Lists {
    /// Returns the name of each size, and the size.
    pub fn rows(&self) -> [(&'static str, String); 8] {
        let exact = |value| estimated(value, false);
        let number = |value| estimated(value, self.sampled);
        let [p, q, r, s] = self.quarters;
        [
            ("quarter boards P", exact(p)),
            ("quarter boards Q", exact(q)),
            ("quarter boards R", exact(r)),
            ("quarter boards S", exact(s)),
            ("half boards above", number(self.halves[0])),
            ("half boards below", number(self.halves[1])),
            ("pairs of half boards", number(self.pairs)),
            ("solutions", number(self.solutions)),
        ]
    }
}

impl Group {
    /// Returns "even", "type I" or "type II".
    pub const fn name(&self) -> &'static str {
        match self.kind {
            Kind::Even => "even",
            Kind::TypeOne => "type I",
            Kind::TypeTwo => "type II",
        }
    }
}

impl Survey {
    /// Creates a survey that caches up to `memory_bytes` of quarter boards.
    pub fn new(board: Board, memory_bytes: u64) -> Result<Self, BadSpec> {
        let division = Division::new(&PlanSpec::new(board, Layout::Frames))?;
        Ok(Self { division: Arc::new(division), cache: QuarterCache::new(memory_bytes) })
    }

    /// Creates a survey of a plan's frames; `None` for other methods.
    pub fn of(plan: &Plan, memory_bytes: u64) -> Option<Self> {
        let plan::Division::Frames(division) = plan.division() else { return None };
        Some(Self { division: division.clone(), cache: QuarterCache::new(memory_bytes) })
    }

    /// Returns all groups of frames, by type and number of queens.
    pub fn groups(&self) -> Vec<Group> {
        let side = self.division.side();
        let kinds = match self.division.is_odd() {
            false => vec![Kind::Even],
            true => vec![Kind::TypeOne, Kind::TypeTwo],
        };
        let mut groups = Vec::new();
        for kind in kinds {
            let least = u32::from(kind == Kind::TypeTwo);
            groups.extend((least..=side).map(|queens| self.group(kind, queens)));
        }
        for unit in 0..self.division.units() {
            let frame = self.division.frame(unit);
            let group = groups
                .iter_mut()
                .find(|group| (group.kind, group.queens) == (frame.kind, frame.queens));
            group.expect("every frame belongs to a group").planned += 1;
        }
        groups
    }

    /// Returns a group, without the number of its planned frames.
    fn group(&self, kind: Kind, queens: u32) -> Group {
        let (sets, side) = (self.division.sets(), self.division.side());
        let top_queens = queens - u32::from(kind == Kind::TypeTwo);
        let column_sets = [top_queens, side - queens].map(|size| sets.count(size) as u64);
        let frames = column_sets[0] * column_sets[1];
        Group { kind, queens, top_queens, column_sets, frames, planned: 0 }
    }

    /// Returns the group of a unit's frame, without the number of planned frames, and its A and C.
    ///
    /// # Panics
    /// If the plan has no such unit.
    pub fn frame(&self, unit: u64) -> (Group, u32, u32) {
        let frame = self.division.frame(unit);
        let group = self.group(frame.kind, frame.queens);
        let set = |size, rank: usize| self.division.sets().of_size(size)[rank];
        (group, set(group.top_queens, frame.a), set(group.queens, frame.c))
    }

    /// Returns the group of the frame with columns A of P and C of R, if any.
    pub fn group_of(&self, a: u32, c: u32) -> Option<Group> {
        let inside = (a | c) & !self.division.full() == 0;
        let mut groups = self.groups().into_iter();
        groups.find(|group| {
            inside && (group.top_queens, group.queens) == (a.count_ones(), c.count_ones())
        })
    }

    /// Returns A and C of a random frame of a group.
    pub fn random_frame(
        &self,
        group: Group,
        random_below: &mut dyn FnMut(u64) -> u64,
    ) -> (u32, u32) {
        let sets = self.division.sets();
        let (tops, bottoms) = (sets.of_size(group.top_queens), sets.of_size(group.queens));
        let a = tops[random_index(tops.len(), random_below)];
        (a, bottoms[random_index(bottoms.len(), random_below)])
    }

    /// Returns the lists of one frame.
    ///
    /// # Panics
    /// If A or C does not have the size of its group.
    pub fn lists(
        &mut self,
        group: Group,
        a: u32,
        c: u32,
        effort: Effort,
        random_below: &mut dyn FnMut(u64) -> u64,
    ) -> Lists {
        let parts = self.parts(group, a, c);
        let Self { division, cache } = self;
        let (sets, full) = (division.sets(), division.full());
        let mut lists = Lists::default();
        let mut source = Source {
            sets,
            cache,
            maker: &mut QuarterMaker::new(Arc::new(Crew::new(1))),
            on_done: &mut |_| ControlFlow::Continue(()),
        };
        let quadrants = [Quadrant::P, Quadrant::Q, Quadrant::R, Quadrant::S];
        for ((count, quadrant), columns) in
            lists.quarters.iter_mut().zip(quadrants).zip([a, full & !c, c, full & !a])
        {
            let mut list = Arc::default();
            let geometry = division.geometry(group.kind, false);
            let of = QuarterOf { geometry, quadrant, columns };
            source.get(of, &mut list).expect("not cancelled");
            let ranks = 0..sets.count(columns.count_ones());
            *count = ranks.map(|rank| list.rows(rank).len() as f64).sum();
        }
        let sample_half = |half, queens, random: &mut dyn FnMut(u64) -> u64| {
            let maker = HalfMaker::new(&parts, division, half);
            some_halves(&maker, sets.count(queens), effort.halves, random)
        };
        let (above, tops, above_is_all) = sample_half(Side::Top, group.top_queens, random_below);
        let (below, bottoms, below_is_all) = sample_half(Side::Bottom, group.queens, random_below);
        lists.halves = [tops, bottoms];
        lists.pairs = tops * bottoms;
        let (share, all_pairs) = fitting_fraction(&above, &below, effort.pairs, random_below);
        lists.solutions = lists.pairs * share;
        lists.sampled = !(above_is_all && below_is_all && all_pairs);
        lists
    }

    /// Returns the keys of a frame's upper and lower half boards with these row sets.
    ///
    /// # Panics
    /// If A or C does not have the size of its group.
    pub fn half_boards(
        &mut self,
        group: Group,
        a: u32,
        c: u32,
        has_rows: &dyn Fn(u32) -> bool,
    ) -> [Vec<u64>; 2] {
        let parts = self.parts(group, a, c);
        [(Side::Top, group.top_queens), (Side::Bottom, group.queens)].map(|(half, queens)| {
            let maker = HalfMaker::new(&parts, &self.division, half);
            let mut keys = Vec::new();
            for (rank, &rows) in self.division.sets().of_size(queens).iter().enumerate() {
                if has_rows(rows) {
                    maker.make(rank, &mut keys);
                }
            }
            keys
        })
    }

    /// Makes the quarter lists of a frame.
    fn parts(&mut self, group: Group, a: u32, c: u32) -> Parts {
        let Self { division, cache } = self;
        let sizes = (a.count_ones(), c.count_ones());
        assert_eq!(sizes, (group.top_queens, group.queens), "A = {a}, C = {c}");
        let [a, c] = [a, c].map(|set| division.sets().rank(set));
        let frame = Frame { kind: group.kind, queens: group.queens, a, c };
        let mut parts = Parts::new(Kernel::best(), Arc::new(Crew::new(1)));
        let geometry = division.geometry(group.kind, false);
        let go_on: OnDone<'_> = &mut |_| ControlFlow::Continue(());
        parts.set(frame, geometry, division, cache, go_on).expect("not cancelled");
        parts
    }
}

/// Returns some half boards, their estimated total, and whether all were made.
///
/// Takes random row sets until there are `most` half boards.
fn some_halves(
    maker: &HalfMaker<'_>,
    ranks: usize,
    most: usize,
    random_below: &mut dyn FnMut(u64) -> u64,
) -> (Vec<u64>, f64, bool) {
    let mut order: Vec<usize> = (0..ranks).collect();
    let mut keys = Vec::new();
    let mut taken = 0;
    while taken < ranks && keys.len() < most {
        let chosen = taken + random_index(ranks - taken, random_below);
        order.swap(taken, chosen);
        maker.make(order[taken], &mut keys);
        taken += 1;
    }
    let total = keys.len() as f64 * ranks as f64 / taken.max(1) as f64;
    (keys, total, taken == ranks)
}

/// Returns the fraction of pairs that fit, and whether all pairs were tested.
fn fitting_fraction(
    above: &[u64],
    below: &[u64],
    most: usize,
    random_below: &mut dyn FnMut(u64) -> u64,
) -> (f64, bool) {
    let pairs = above.len().saturating_mul(below.len());
    if pairs == 0 {
        return (0.0, true);
    }
    // Tests part of one list against part of the other: a test takes less time than two random numbers.
    let mut sample = |list: &[u64], wanted: usize| -> Vec<u64> {
        match pairs <= most || list.len() <= wanted {
            true => list.to_vec(),
            false => (0..wanted).map(|_| list[random_index(list.len(), random_below)]).collect(),
        }
    };
    let above = sample(above, most.isqrt().max(1));
    let below = sample(below, most / above.len());
    let fits = |u: &u64| below.iter().filter(|&v| u & v == 0).count() as u64;
    let fitting: u64 = above.iter().map(fits).sum();
    (fitting as f64 / (above.len() * below.len()) as f64, pairs <= most)
}

fn random_index(bound: usize, random_below: &mut dyn FnMut(u64) -> u64) -> usize {
    usize::try_from(random_below(bound as u64)).expect("below `bound`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::random_from;

    #[test]
    fn samples_approximate_the_whole_lists() {
        let board = Board::new(16).unwrap();
        let mut survey = Survey::new(board, 1 << 20).unwrap();
        let (a, c) = (0b1010_0110, 0b0101_1001);
        let group = survey.group_of(a, c).unwrap();
        let mut lists = |effort, seed| survey.lists(group, a, c, effort, &mut random_from(seed));
        let whole = lists(Effort { halves: usize::MAX, pairs: usize::MAX }, 1);
        let some = Effort { halves: 2_000, pairs: 1_000_000 };
        let sampled: Vec<Lists> = (0..200).map(|seed| lists(some, seed)).collect();
        assert!(sampled[1].sampled);
        for (value, name) in [
            ((|lists| lists.halves[0]) as fn(&Lists) -> f64, "halves above"),
            (|lists| lists.halves[1], "halves below"),
            (|lists| lists.solutions, "solutions"),
        ] {
            let mean = sampled.iter().map(value).sum::<f64>() / sampled.len() as f64;
            let truth = value(&whole);
            assert!((mean / truth - 1.0).abs() < 0.1, "{name}: {mean} for {truth}");
        }
    }
}
