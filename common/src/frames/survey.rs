//! How large the method's lists are: counted where that is quick, else estimated from random frames.
//!
//! For people who want to see the method at work; nothing is counted with it. Frames are taken as the
//! paper takes them, each with all row sets B and D and without the weights that let a run leave most
//! frames out.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    frame::Frame,
    geometry::{Kind, Quadrant},
    halves::HalfBoardMaker,
    parts::{Bottoms, Parts, Tops},
    plan::Division,
    qjoin::QJoin,
    quarter::{LEAST_NOTED, QuarterMaker, QuarterOf},
    shelf::{Shelf, Source},
};
use crate::{
    board::Board,
    crew::{Crew, OnDone},
    kernel::Kernel,
    method::Layout,
    plan::spec::{BadSpec, PlanSpec},
};

/// The frames of a board, and means of their lists.
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
    division: Division,
    shelf: Shelf,
}

/// Frames that differ in their columns only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    kind: Kind,
    /// Queens in R, the document's m.
    pub queens: u32,
    /// Queens in P.
    pub top_queens: u32,
    /// How many sets of columns P and Q may have.
    pub column_sets: [u64; 2],
    /// How many frames (A, C) there are.
    pub frames: u64,
    /// How many of them a run counts; the others are images of these.
    pub planned: u64,
}

/// The lists of one frame, or their means over some.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lists {
    /// Quarter boards with the columns of P, Q, R and S, middle queens left out.
    pub quarters: [f64; 4],
    /// Half boards above and below: pairs of quarter boards that fit.
    pub halves: [f64; 2],
    /// Pairs of half boards.
    pub pairs: f64,
    /// Those that fit: solutions.
    pub solutions: f64,
    /// Whether any of these numbers is an estimate from some of the row sets or pairs.
    pub sampled: bool,
}

/// How much of a frame is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Half boards made of each half before the other row sets are left out.
    pub halves: usize,
    /// Pairs of half boards compared.
    pub pairs: usize,
}

impl Group {
    /// "even", "type I" or "type II".
    pub const fn name(&self) -> &'static str {
        match self.kind {
            Kind::Even => "even",
            Kind::TypeOne => "type I",
            Kind::TypeTwo => "type II",
        }
    }
}

impl Survey {
    /// Of a board that method `frames` divides, with at most so many bytes of quarter boards kept.
    pub fn new(board: Board, memory_bytes: u64) -> Result<Self, BadSpec> {
        let division = Division::new(&PlanSpec::new(board, Layout::Frames))?;
        let shelf = Shelf::new(memory_bytes);
        Ok(Self { division, shelf })
    }

    /// All groups of frames, by type and number of queens.
    pub fn groups(&self) -> Vec<Group> {
        let sets = self.division.sets();
        let side = self.division.side();
        let kinds = match self.division.is_odd() {
            false => vec![Kind::Even],
            true => vec![Kind::TypeOne, Kind::TypeTwo],
        };
        let mut groups = Vec::new();
        for kind in kinds {
            let least = u32::from(kind == Kind::TypeTwo);
            for queens in least..=side {
                let top_queens = queens - least;
                let column_sets = [top_queens, side - queens].map(|size| sets.count(size) as u64);
                let frames = column_sets[0] * column_sets[1];
                groups.push(Group {
                    kind,
                    queens,
                    top_queens,
                    column_sets,
                    frames,
                    planned: 0,
                });
            }
        }
        for unit in 0..self.division.units() {
            let frame = self.division.frame(unit);
            let group = groups
                .iter_mut()
                .find(|group| (group.kind, group.queens) == (frame.kind, frame.queens));
            group.expect("every frame is of a group").planned += 1;
        }
        groups
    }

    /// The group of frames with these columns A of P and C of R, if there is one.
    pub fn group_of(&self, a: u32, c: u32) -> Option<Group> {
        let inside = (a | c) & !self.division.full() == 0;
        let mut groups = self.groups().into_iter();
        groups.find(|group| {
            inside && (group.top_queens, group.queens) == (a.count_ones(), c.count_ones())
        })
    }

    /// A random frame of a group: A and C.
    pub fn random_frame(
        &self,
        group: Group,
        random_below: &mut dyn FnMut(u64) -> u64,
    ) -> (u32, u32) {
        let sets = self.division.sets();
        let (tops, bottoms) = (sets.of_size(group.top_queens), sets.of_size(group.queens));
        let a = tops[below(tops.len(), random_below)];
        (a, bottoms[below(bottoms.len(), random_below)])
    }

    /// The lists of one frame.
    ///
    /// # Panics
    /// If A and C are not of the group's sizes.
    pub fn lists(
        &mut self,
        group: Group,
        a: u32,
        c: u32,
        effort: Effort,
        random_below: &mut dyn FnMut(u64) -> u64,
    ) -> Lists {
        let Self { division, shelf } = self;
        let sets = division.sets();
        let sizes = (a.count_ones(), c.count_ones());
        assert_eq!(sizes, (group.top_queens, group.queens), "A = {a}, C = {c}");
        let frame = Frame {
            kind: group.kind,
            queens: group.queens,
            a: sets.rank(a),
            c: sets.rank(c),
        };
        let geometry = division.geometry(group.kind, false);
        let full = division.full();
        let mut lists = Lists::default();
        let crew = Arc::new(Crew::new(1));
        let go_on: OnDone<'_> = &mut |_| ControlFlow::Continue(());
        let mut source = Source {
            sets,
            shelf,
            maker: &mut QuarterMaker::new(crew.clone(), LEAST_NOTED),
            on_done: go_on,
        };
        let quadrants = [Quadrant::P, Quadrant::Q, Quadrant::R, Quadrant::S];
        for ((count, quadrant), columns) in
            lists
                .quarters
                .iter_mut()
                .zip(quadrants)
                .zip([a, full & !c, c, full & !a])
        {
            let mut list = Arc::default();
            let of = QuarterOf {
                geometry,
                quadrant,
                columns,
            };
            source.get(of, &mut list).expect("nobody cancels");
            let ranks = 0..sets.count(columns.count_ones());
            *count = ranks.map(|rank| list.rows(rank).len() as f64).sum();
        }
        let mut parts = Parts::new(QJoin::new(Kernel::best()), crew, LEAST_NOTED);
        parts
            .set(frame, geometry, division, shelf, go_on)
            .expect("nobody cancels");
        let tops = Tops::new(&parts, division);
        let bottoms = Bottoms::new(&parts, division);
        let (top_ranks, bottom_ranks) = (sets.count(group.top_queens), sets.count(group.queens));
        let (above, above_is_all) = some_halves(&tops, top_ranks, effort.halves, random_below);
        let (below_, below_is_all) =
            some_halves(&bottoms, bottom_ranks, effort.halves, random_below);
        lists.halves = [above.total, below_.total];
        lists.pairs = above.total * below_.total;
        let (share, all_pairs) = fitting(&above.keys, &below_.keys, effort.pairs, random_below);
        lists.solutions = lists.pairs * share;
        lists.sampled = !(above_is_all && below_is_all && all_pairs);
        lists
    }
}

/// Some half boards, and how many there would be.
struct Halves {
    keys: Vec<u64>,
    total: f64,
}

/// The half boards of all row sets, or of random ones until there are `most`.
fn some_halves(
    maker: &impl HalfBoardMaker,
    ranks: usize,
    most: usize,
    random_below: &mut dyn FnMut(u64) -> u64,
) -> (Halves, bool) {
    let mut order: Vec<usize> = (0..ranks).collect();
    let mut keys = Vec::new();
    let mut made = 0;
    while made < ranks && keys.len() < most {
        let chosen = made + below(ranks - made, random_below);
        order.swap(made, chosen);
        maker.make(order[made], &mut keys);
        made += 1;
    }
    let total = keys.len() as f64 * ranks as f64 / made.max(1) as f64;
    (Halves { keys, total }, made == ranks)
}

/// Which share of the pairs fits, by all pairs or by random ones.
fn fitting(
    above: &[u64],
    below_: &[u64],
    most: usize,
    random_below: &mut dyn FnMut(u64) -> u64,
) -> (f64, bool) {
    let pairs = above.len().saturating_mul(below_.len());
    if pairs == 0 {
        return (0.0, true);
    }
    if pairs <= most {
        let fits = |u: &u64| below_.iter().filter(|&v| u & v == 0).count() as u64;
        let fitting: u64 = above.iter().map(fits).sum();
        return (fitting as f64 / pairs as f64, true);
    }
    // Some of one list against some of the other: a pair costs less than two random numbers.
    let side = most.isqrt().max(1);
    let some = |list: &[u64], wanted: usize, random: &mut dyn FnMut(u64) -> u64| -> Vec<u64> {
        match list.len() <= wanted {
            true => list.to_vec(),
            false => (0..wanted)
                .map(|_| list[below(list.len(), random)])
                .collect(),
        }
    };
    let above = some(above, side, random_below);
    let below_ = some(below_, most / above.len(), random_below);
    let fits = |u: &u64| below_.iter().filter(|&v| u & v == 0).count() as u64;
    let fitting: u64 = above.iter().map(fits).sum();
    (fitting as f64 / (above.len() * below_.len()) as f64, false)
}

fn below(bound: usize, random_below: &mut dyn FnMut(u64) -> u64) -> usize {
    usize::try_from(random_below(bound as u64)).expect("below a bound of this size")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::known_counts;

    const WHOLE: Effort = Effort {
        halves: usize::MAX,
        pairs: usize::MAX,
    };

    /// SplitMix64, a seeded stream of random numbers.
    fn random_from(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (word ^ word >> 31) % below
        }
    }

    /// Type II frames hold the solutions with middle queens in the left and the upper half: a quarter.
    #[test]
    fn all_frames_together_hold_all_solutions() {
        for n in [4, 6, 8, 9, 10, 11] {
            let board = Board::new(n).unwrap();
            let mut survey = Survey::new(board, 1 << 20).unwrap();
            let mut sum = 0.0;
            for group in survey.groups() {
                let weight = if group.kind == Kind::TypeTwo {
                    4.0
                } else {
                    1.0
                };
                let sets = survey.division.sets();
                let (tops, bottoms) = (
                    sets.of_size(group.top_queens).to_vec(),
                    sets.of_size(group.queens).to_vec(),
                );
                for &a in &tops {
                    for &c in &bottoms {
                        let lists = survey.lists(group, a, c, WHOLE, &mut random_from(1));
                        assert!(!lists.sampled);
                        sum += weight * lists.solutions;
                    }
                }
            }
            let known = known_counts(board).unwrap().all() as f64;
            assert!((sum - known).abs() < 1e-6 * known, "N = {n}: {sum}");
        }
    }

    #[test]
    fn samples_come_near_what_they_stand_for() {
        let board = Board::new(16).unwrap();
        let mut survey = Survey::new(board, 1 << 20).unwrap();
        let group = survey.group_of(0b1010_0110, 0b0101_1001).unwrap();
        let mut lists = |effort, seed| {
            let frame = (0b1010_0110, 0b0101_1001);
            survey.lists(group, frame.0, frame.1, effort, &mut random_from(seed))
        };
        let whole = lists(WHOLE, 1);
        let some = Effort {
            halves: 2_000,
            pairs: 1_000_000,
        };
        let mean = |value: fn(&Lists) -> f64, lists: &mut dyn FnMut(u64) -> Lists| {
            (0..200).map(|seed| value(&lists(seed))).sum::<f64>() / 200.0
        };
        let mut sampled = |seed| lists(some, seed);
        assert!(sampled(1).sampled);
        for (value, name) in [
            (
                (|lists| lists.halves[0]) as fn(&Lists) -> f64,
                "halves above",
            ),
            (|lists| lists.halves[1], "halves below"),
            (|lists| lists.solutions, "solutions"),
        ] {
            let (mean, truth) = (mean(value, &mut sampled), value(&whole));
            assert!(
                (mean / truth - 1.0).abs() < 0.1,
                "{name}: {mean} for {truth}"
            );
        }
    }
}
