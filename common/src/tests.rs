//! Tests of both methods and all layouts against published counts and frozen plans.

use std::{
    cell::Cell,
    num::NonZeroU16,
    ops::{ControlFlow, Range},
};

use proptest::prelude::*;

use crate::{
    board::Board,
    compute::kernel::Kernel,
    count::{CountError, Counter, CounterConfig, NoProgress, Orientation, ProgressSink},
    method::{Layout, Method},
    plan::{Plan, TaskId},
    test_fixture::{plan, plan_of_cost, published, task_counts},
};

const LAYOUTS: [Layout; 3] = [Layout::FirstRows, Layout::Border, Layout::Frames];

fn smallest_n(layout: Layout) -> u8 {
    if layout == Layout::Frames { 4 } else { 1 }
}

fn config(plan: &Plan, kernel: Kernel, orientation: Orientation) -> CounterConfig {
    let memory_bytes = match plan.spec().layout.method() {
        Method::Rows => 1 << 20,
        Method::Frames => 1 << 26,
    };
    CounterConfig { kernel, orientation, ..CounterConfig::best(memory_bytes) }
}

fn counter(plan: &Plan, kernel: Kernel, orientation: Orientation) -> Counter {
    Counter::new(plan, &config(plan, kernel, orientation)).unwrap()
}

fn count(plan: &Plan, kernel: Kernel, orientation: Orientation, units: Range<u64>) -> u64 {
    counter(plan, kernel, orientation).count(units, &NoProgress).unwrap()
}

/// Counts a board task by task.
fn total(plan: &Plan, kernel: Kernel, orientation: Orientation) -> u128 {
    let counts = task_counts(plan, &config(plan, kernel, orientation));
    counts.into_iter().map(u128::from).sum()
}

#[test]
fn every_frame_has_the_same_count_when_rotated() {
    for n in 4..=11 {
        let plan = plan_of_cost(n, Layout::Frames, 1);
        let [upright, rotated] = Orientation::ALL
            .map(|orientation| task_counts(&plan, &config(&plan, Kernel::best(), orientation)));
        assert_eq!(upright, rotated, "N = {n}");
    }
}

#[test]
fn every_layout_kernel_and_orientation_is_exact() {
    for layout in LAYOUTS {
        for n in smallest_n(layout)..=13 {
            let plan = plan(n, layout);
            for kernel in Kernel::available() {
                for orientation in Orientation::ALL {
                    let total = total(&plan, kernel, orientation);
                    assert_eq!(total, published(n), "N = {n}, {layout}, {kernel}, {orientation}");
                }
            }
        }
    }
    for n in 14..=16 {
        let plan = plan(n, Layout::Frames);
        for orientation in Orientation::ALL {
            assert_eq!(
                total(&plan, Kernel::best(), orientation),
                published(n),
                "N = {n}, {orientation}"
            );
        }
    }
}

#[test]
fn tasks_of_every_board_cover_its_units_in_order() {
    for layout in LAYOUTS {
        let largest = if layout == Layout::Frames { 22 } else { Board::MAX };
        for n in smallest_n(layout)..=largest {
            let plan = plan(n, layout);
            let tasks = plan.tasks();
            assert!((1..=Plan::MAX_TASKS).contains(&tasks), "N = {n}, {layout}: {tasks} tasks");
            assert_eq!(plan.task_units(TaskId(0)).start, 0);
            assert_eq!(plan.task_units(TaskId(tasks - 1)).end, plan.units());
            // All tasks if that is quick, otherwise some hundreds.
            let most = if layout == Layout::Frames { u64::MAX } else { 500 };
            for task in (0..tasks).step_by(usize::try_from(tasks / most).unwrap().max(1)) {
                let units = plan.task_units(TaskId(task));
                assert!(units.start < units.end, "N = {n}, {layout}, task {task}: {units:?}");
                assert!(plan.task_cost(TaskId(task)) > 0);
                if task + 1 < tasks {
                    assert_eq!(plan.task_units(TaskId(task + 1)).start, units.end);
                }
            }
        }
    }
}

#[test]
fn small_tasks_cut_heads_and_stay_exact() {
    for (n, layout, task_cost) in
        [(9, Layout::Border, 1), (10, Layout::Border, 2), (10, Layout::FirstRows, 3)]
    {
        let plan = plan_of_cost(n, layout, task_cost);
        let heads = plan_of_cost(n, layout, u64::MAX).units();
        assert!(plan.units() > heads, "N = {n}, {layout}: {} units", plan.units());
        let mut counter = counter(&plan, Kernel::best(), Orientation::Upright);
        // Unit by unit, so that errors cannot cancel.
        let total: u64 =
            (0..plan.units()).map(|unit| counter.count(unit..unit + 1, &NoProgress).unwrap()).sum();
        assert_eq!(u128::from(total), published(n), "N = {n}, {layout}");
    }
}

#[test]
fn no_task_exceeds_its_limit() {
    for layout in LAYOUTS {
        let largest = if layout == Layout::Frames { 13 } else { 11 };
        for n in smallest_n(layout)..=largest {
            let plan = match layout.method() {
                Method::Rows => plan_of_cost(n, layout, 5),
                Method::Frames => plan(n, layout),
            };
            let mut counter = counter(&plan, Kernel::best(), Orientation::Upright);
            for task in (0..plan.tasks()).map(TaskId) {
                let count = counter.count(plan.task_units(task), &NoProgress).unwrap();
                assert!(count <= plan.task_limit(task), "N = {n}, {layout}, task {task}: {count}");
            }
        }
    }
}

/// Progress sink that sums the reported cost, and stops at a given call or cost.
struct Recorder {
    calls: Cell<u64>,
    cost: Cell<u64>,
    last_call: u64,
    most_cost: u64,
}

impl ProgressSink for Recorder {
    fn advance(&self, cost_done: u64) -> ControlFlow<()> {
        self.calls.set(self.calls.get() + 1);
        self.cost.set(self.cost.get() + cost_done);
        if self.calls.get() < self.last_call && self.cost.get() < self.most_cost {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

fn recorder(last_call: u64) -> Recorder {
    Recorder { calls: Cell::new(0), cost: Cell::new(0), last_call, most_cost: u64::MAX }
}

#[test]
fn a_long_unit_is_cancelled_from_within() {
    for layout in [Layout::FirstRows, Layout::Border] {
        // One unit of N = 30 would take years.
        let plan = plan_of_cost(30, layout, u64::MAX);
        let middle = plan.units() / 2;
        for kernel in Kernel::available() {
            let sink = recorder(3);
            let mut counter = counter(&plan, kernel, Orientation::Upright);
            let result = counter.count(middle..middle + 1, &sink);
            assert_eq!((result, sink.calls.get()), (Err(CountError::Cancelled), 3));
            let none = plan.units()..plan.units();
            assert_eq!(counter.count(none, &NoProgress), Ok(0), "usable after a cancellation");
        }
    }
}

#[test]
fn progress_adds_up_to_the_cost() {
    for layout in [Layout::FirstRows, Layout::Border] {
        let plan = plan_of_cost(13, layout, 100);
        let sink = recorder(u64::MAX);
        let mut counter = counter(&plan, Kernel::best(), Orientation::Upright);
        for task in (0..plan.tasks()).map(TaskId) {
            counter.count(plan.task_units(task), &sink).unwrap();
        }
        let (reported, cost) = (sink.cost.get(), plan.task_costs().sum::<u64>());
        let enough = reported <= cost && reported * 10 >= cost * 7;
        assert!(enough, "{layout}: reported {reported} of {cost}");
    }
}

#[test]
fn crews_report_the_cost_of_frames_and_stop_when_asked() {
    let plan = plan(14, Layout::Frames);
    // With little memory a crew counts all frames together.
    for (threads, memory_bytes) in [(1, 1 << 24), (2, 1 << 25), (3, 1 << 30)] {
        let threads = NonZeroU16::new(threads).unwrap();
        let config = CounterConfig { threads, ..CounterConfig::best(memory_bytes) };
        let mut counter = Counter::new(&plan, &config).unwrap();
        let unlimited = recorder(u64::MAX);
        assert_eq!(counter.count(0..plan.units(), &unlimited), Ok(365_596));
        // Counters round costs per frame, the plan per task.
        assert!(unlimited.cost.get().abs_diff(plan.task_costs().sum()) < plan.units());
        let limited = Recorder { most_cost: unlimited.cost.get() / 3, ..recorder(u64::MAX) };
        assert_eq!(counter.count(0..plan.units(), &limited), Err(CountError::Cancelled));
        // Helpers continue while the system does not schedule their leader.
        assert!(threads.get() > 1 || limited.cost.get() < unlimited.cost.get() / 2);
        let again = counter.count(0..plan.units(), &NoProgress);
        assert_eq!(again, Ok(365_596), "after being cancelled");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Checks that all kernels and both orientations give a range of units one count.
    #[test]
    fn ranges_of_units_have_one_count(
        n in 4u8..=11,
        border: bool,
        task_cost in 1u64..2000,
        cuts in proptest::array::uniform3(0.0..=1.0f64),
    ) {
        let layout = LAYOUTS[usize::from(border)];
        let plan = plan_of_cost(n, layout, task_cost);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let mut cuts = cuts.map(|cut| (cut * plan.units() as f64) as u64);
        cuts.sort_unstable();
        let [start, middle, end] = cuts;
        let upright = Orientation::Upright;
        let reference = count(&plan, Kernel::SCALAR, upright, start..end);
        for kernel in Kernel::available() {
            prop_assert_eq!(count(&plan, kernel, upright, start..end), reference, "{}", kernel);
            prop_assert_eq!(count(&plan, kernel, Orientation::Rotated, start..end), reference);
        }
        let parts = [start..middle, middle..end].map(|part| count(&plan, Kernel::best(), upright, part));
        prop_assert_eq!(parts.iter().sum::<u64>(), reference);
    }
}

/// Checks that `rows` plans are frozen: changes require a new `PLAN_VERSION`.
#[test]
fn plans_are_frozen() {
    // 0 for the default cost.
    let costs =
        [(8, 0), (12, 7), (16, 5000), (18, 5000), (20, 1000), (24, 10_000_000), (27, 0), (32, 0)];
    let cases = costs.into_iter().flat_map(|(n, task_cost)| {
        [Layout::FirstRows, Layout::Border].map(|layout| (n, layout, task_cost))
    });
    let seen = cases.map(|(n, layout, task_cost)| {
        let plan = match task_cost {
            0 => plan(n, layout),
            _ => plan_of_cost(n, layout, task_cost),
        };
        let (hash, units, tasks) = (plan.hash().short(), plan.units(), plan.tasks());
        let third = TaskId(tasks / 3);
        let (range, cost) = (plan.task_units(third), plan.task_cost(third));
        format!("{n} {layout} {hash} {units} {tasks} {range:?} {cost}")
    });
    assert_eq!(seen.collect::<Vec<_>>(), FROZEN);
}

/// N, layout, hash, units, tasks, units and cost of the task at one third.
const FROZEN: [&str; 16] = [
    "8 first-rows bace2ca7caed 21 1 0..21 21",
    "8 border b1dfe199b73a 78 1 0..78 78",
    "12 first-rows 03c68eb465d3 660 27 261..282 7",
    "12 border 19fc5d1889a1 8760 104 2856..2940 7",
    "16 first-rows 6b1a9c4124c9 26880 52 10040..10644 5019",
    "16 border ad288ef65ceb 3206 17 786..1032 5023",
    "18 first-rows 4d228ab71733 793152 2628 300329..300601 5000",
    "18 border f84465e7f001 103104 876 33377..33530 4997",
    "20 first-rows 4e84b6aa7803 27360000 821528 10248594..10248627 1000",
    "20 border 397e098bd589 76176000 273838 28147583..28148290 1000",
    "24 first-rows 1ad841eae142 83939328 567016 31646298..31646424 9999999",
    "24 border e620e1fd4bc1 310514688 189005 123340932..123342980 10000017",
    "27 first-rows ca8768020f72 172718325 3000000 66073915..66073982 2213323981",
    "27 border 6a888f873168 759842532 1000000 308147234..308148054 2213323981",
    "32 first-rows 24f2941d2d38 487587840 1000000 184204782..184205392 4000000000000",
    "32 border 94f5554b12db 2725969920 1000000 1132602296..1132605966 3999999999999",
];
