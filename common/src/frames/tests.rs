//! The method as a whole, against the world.

use std::{cell::Cell, collections::BTreeMap, num::NonZeroU16, ops::ControlFlow, sync::Arc};

use super::{
    frame::Frame,
    geometry::Kind,
    halves::HalfBoardMaker,
    parts::{Bottoms, Parts, Tops},
    plan::Division,
    qjoin::QJoin,
    quarter::LEAST_NOTED,
    shelf::Shelf,
};
use crate::{
    board::Board,
    count::{CountError, Counter, Orientation, Setup, SetupError, Unwatched, Watch},
    crew::{Crew, OnDone},
    kernel::Kernel,
    known::known_counts,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
};

/// One line of the reference files: the solutions with these columns of P and R, unweighted.
#[derive(serde::Deserialize)]
struct CountedFrame {
    /// Column of the middle-row queen and row of the middle-column queen (odd N).
    x: Option<u32>,
    y: Option<u32>,
    #[serde(rename = "A")]
    a: u32,
    #[serde(rename = "C")]
    c: u32,
    count: u64,
}

/// The frames that a brute-force search over all solutions of the board found.
fn reference(n: u8) -> Vec<CountedFrame> {
    let path = format!(
        "{}/../tests/data/frames_n{n}.jsonl",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).unwrap();
    // The first line tells of the file as a whole.
    text.lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Quarter lists that one thread makes.
fn parts_of_one() -> Parts {
    Parts::new(
        QJoin::new(Kernel::best()),
        Arc::new(Crew::new(1)),
        LEAST_NOTED,
    )
}

/// The unweighted number of solutions of each frame that has any, type II frames by (x, y).
fn frames_of(n: u8, kind: Kind, turned: bool) -> BTreeMap<(u32, u32, u32, u32), u64> {
    let plan = PlanSpec::new(Board::new(n).unwrap(), Layout::Frames);
    let division = Division::new(&plan).unwrap();
    let (sets, geometry) = (division.sets(), division.geometry(kind, turned));
    let shelf = Shelf::new(1 << 20);
    let mut found = BTreeMap::new();
    let side = u32::from(n) / 2;
    for queens in 0..=side {
        let more = u32::from(kind == Kind::TypeTwo);
        let Some(top_queens) = queens.checked_sub(more) else {
            continue;
        };
        let ranks = |count: usize| 0..count;
        let pairs = ranks(sets.count(top_queens))
            .flat_map(|a| ranks(sets.count(queens)).map(move |c| (a, c)));
        for (a, c) in pairs {
            let frame = Frame { kind, queens, a, c };
            let mut parts = parts_of_one();
            let go_on: OnDone<'_> = &mut |_| ControlFlow::Continue(());
            parts
                .set(frame, geometry, &division, &shelf, go_on)
                .unwrap();
            let (columns_a, columns_c) = (sets.of_size(top_queens)[a], sets.of_size(queens)[c]);
            let middles = match kind {
                Kind::Even => vec![(0, 0)],
                Kind::TypeOne => vec![(side, side)],
                Kind::TypeTwo => {
                    let free = (0..side).filter(|x| columns_a >> x & 1 == 0);
                    free.flat_map(|x| (0..side).map(move |y| (x, y))).collect()
                }
            };
            for (x, y) in middles {
                let only = parts.with_middle_queens(x, y, columns_a);
                let (mut tops, mut bottoms) = (Vec::new(), Vec::new());
                for b in ranks(sets.count(top_queens)) {
                    Tops::new(&only, &division).make(b, &mut tops);
                }
                for d in ranks(sets.count(queens)) {
                    Bottoms::new(&only, &division).make(d, &mut bottoms);
                }
                let fitting = |u: &u64| bottoms.iter().filter(|&v| u & v == 0).count() as u64;
                let count = tops.iter().map(fitting).sum::<u64>();
                if count > 0 {
                    found.insert((x, y, columns_a, columns_c), count);
                }
            }
        }
    }
    found
}

#[test]
fn every_frame_has_the_solutions_of_a_brute_force_search() {
    for n in [8, 9, 10, 11] {
        let side = u32::from(n) / 2;
        for turned in [false, true] {
            let kinds = if n % 2 == 0 {
                vec![Kind::Even]
            } else {
                vec![Kind::TypeOne, Kind::TypeTwo]
            };
            let mut found = BTreeMap::new();
            for kind in kinds {
                found.extend(frames_of(n, kind, turned));
            }
            let lines = reference(n).into_iter();
            let lines = lines.map(|line| {
                (
                    (line.x.unwrap_or(0), line.y.unwrap_or(0), line.a, line.c),
                    line.count,
                )
            });
            // Reflections bring every other middle queen here.
            let lines = lines.filter(|&((x, y, ..), _)| x < side && y < side || x == y);
            let expected: BTreeMap<_, _> = lines.collect();
            assert_eq!(found, expected, "N = {n}, turned: {turned}");
        }
    }
}

#[test]
fn crews_and_pieces_of_any_size_give_the_same_count() {
    for n in [10, 11, 13] {
        let known = known_counts(Board::new(n).unwrap()).unwrap().all();
        for limit in [1, 7, 100, usize::MAX] {
            for (threads, orientation) in [
                (1, Orientation::Turned),
                (2, Orientation::Upright),
                (3, Orientation::Turned),
            ] {
                let setup = Setup {
                    kernel: Kernel::best(),
                    threads: NonZeroU16::new(threads).unwrap(),
                    memory_bytes: 1 << 30,
                    orientation,
                };
                let spec = PlanSpec::new(Board::new(n).unwrap(), Layout::Frames);
                let division = Arc::new(Division::new(&spec).unwrap());
                // All frames on one thread, some of them on several: starting threads takes its time.
                let step = usize::from(threads * threads);
                let units: Vec<u64> = (0..division.units()).step_by(step).collect();
                let mut counter = super::Counter::new(division.clone(), &setup).unwrap();
                counter.set_limit(limit);
                let mut whole = super::Counter::new(division, &setup).unwrap();
                let mut all = 0;
                for unit in units {
                    let count = counter.count(unit..unit + 1, &Unwatched).unwrap();
                    let expected = whole.count(unit..unit + 1, &Unwatched).unwrap();
                    let shape = format!("N = {n}, {limit} keys a piece, {threads} threads");
                    assert_eq!(count, expected, "{shape}, unit {unit}");
                    all += count;
                }
                if step == 1 {
                    assert_eq!(u128::from(all), known, "N = {n}, {limit} keys a piece");
                }
            }
        }
    }
}

#[test]
fn quarter_lists_are_no_longer_than_estimated() {
    for n in [16, 17, 20, 21] {
        let spec = PlanSpec::new(Board::new(n).unwrap(), Layout::Frames);
        let division = Division::new(&spec).unwrap();
        for class in division.classes() {
            let estimated = division.quarter_bytes(class);
            let mut most = 0;
            for unit in (0..division.units()).step_by(1 + usize::from(n) * 7) {
                let frame = division.frame(unit);
                if (frame.kind, frame.queens) != class {
                    continue;
                }
                let (mut parts, shelf) = (parts_of_one(), Shelf::new(0));
                let geometry = division.geometry(frame.kind, false);
                let go_on: OnDone<'_> = &mut |_| ControlFlow::Continue(());
                parts
                    .set(frame, geometry, &division, &shelf, go_on)
                    .unwrap();
                most = most.max(parts.held_bytes());
            }
            assert!(
                most <= estimated,
                "N = {n}, {class:?}: {most} of {estimated} bytes"
            );
        }
    }
}

#[test]
fn crews_of_every_size_count_in_any_memory() {
    for n in [12, 15] {
        let known = known_counts(Board::new(n).unwrap()).unwrap().all();
        let plan = Plan::new(PlanSpec::new(Board::new(n).unwrap(), Layout::Frames)).unwrap();
        for threads in [1, 2, 3] {
            let mut setup = Setup {
                kernel: Kernel::best(),
                threads: NonZeroU16::new(threads).unwrap(),
                memory_bytes: 1,
                orientation: Orientation::Upright,
            };
            let Err(SetupError::Memory { least, .. }) = Counter::new(&plan, &setup) else {
                panic!("N = {n} in one byte");
            };
            for memory_bytes in [least, 2 * least, 1 << 30] {
                setup.memory_bytes = memory_bytes;
                assert_eq!(all(n, &setup), known, "N = {n}, {setup:?}");
            }
        }
    }
}

#[test]
fn every_kernel_agrees() {
    for kernel in Kernel::available() {
        for n in [12, 13, 14] {
            let known = known_counts(Board::new(n).unwrap()).unwrap().all();
            let orientation = Orientation::Upright;
            let setup = Setup {
                kernel,
                threads: NonZeroU16::MIN,
                memory_bytes: 1 << 24,
                orientation,
            };
            assert_eq!(all(n, &setup), known, "N = {n}, {kernel}");
        }
    }
}

/// Stops when a certain cost is done, and adds up what it is told.
struct StopAt {
    cost: u64,
    done: Cell<u64>,
}

impl Watch for StopAt {
    fn advance(&self, cost_done: u64) -> ControlFlow<()> {
        self.done.set(self.done.get() + cost_done);
        if self.done.get() >= self.cost {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

#[test]
fn cost_is_told_and_counting_stops_when_asked() {
    let plan = Plan::new(PlanSpec::new(Board::new(14).unwrap(), Layout::Frames)).unwrap();
    // In little memory the members of a crew count all frames together.
    for (threads, memory_bytes) in [(1, 1 << 24), (2, 1 << 25), (3, 1 << 30)] {
        let setup = Setup {
            kernel: Kernel::best(),
            threads: NonZeroU16::new(threads).unwrap(),
            memory_bytes,
            orientation: Orientation::Upright,
        };
        stops_when_asked(&plan, &setup);
    }
}

fn stops_when_asked(plan: &Plan, setup: &Setup) {
    let mut counter = Counter::new(plan, setup).unwrap();
    let units = 0..plan.units();
    let never = StopAt {
        cost: u64::MAX,
        done: Cell::new(0),
    };
    assert_eq!(counter.count(units.clone(), &never), Ok(365_596));
    let costs: u64 = (0..plan.tasks())
        .map(|task| plan.task_cost(TaskId(task)))
        .sum();
    // Costs are rounded by frame here and by task there.
    assert!(never.done.get().abs_diff(costs) < plan.units());
    let soon = StopAt {
        cost: never.done.get() / 3,
        done: Cell::new(0),
    };
    assert_eq!(
        counter.count(units.clone(), &soon),
        Err(CountError::Cancelled)
    );
    // Helpers go on while their leader has no processor.
    if setup.threads == NonZeroU16::MIN {
        assert!(soon.done.get() < never.done.get() / 2);
    }
    assert_eq!(
        counter.count(units, &never),
        Ok(365_596),
        "after being cancelled"
    );
}

#[test]
fn no_task_passes_its_limit() {
    for n in [4, 9, 12, 13] {
        let plan = Plan::new(PlanSpec::new(Board::new(n).unwrap(), Layout::Frames)).unwrap();
        let orientation = Orientation::Upright;
        let setup = Setup {
            kernel: Kernel::best(),
            threads: NonZeroU16::MIN,
            memory_bytes: 1 << 24,
            orientation,
        };
        let mut counter = Counter::new(&plan, &setup).unwrap();
        for task in plan.handing_out_order() {
            let count = counter.count(plan.task_units(task), &Unwatched).unwrap();
            assert!(count <= plan.task_limit(task), "N = {n}, task {task}");
        }
    }
}

fn all(n: u8, setup: &Setup) -> u128 {
    let plan = Plan::new(PlanSpec::new(Board::new(n).unwrap(), Layout::Frames)).unwrap();
    let mut counter = Counter::new(&plan, setup).unwrap();
    let tasks = plan.handing_out_order();
    tasks
        .map(|task| u128::from(counter.count(plan.task_units(task), &Unwatched).unwrap()))
        .sum()
}

#[test]
fn exact_totals() {
    for n in 4..=16 {
        for orientation in [Orientation::Upright, Orientation::Turned] {
            let setup = Setup {
                kernel: Kernel::best(),
                threads: NonZeroU16::MIN,
                memory_bytes: 1 << 30,
                orientation,
            };
            let known = known_counts(Board::new(n).unwrap()).unwrap().all();
            assert_eq!(all(n, &setup), known, "N = {n}, {orientation:?}");
        }
    }
}
