//! Every kernel and both layouts against the known counts, and what plans promise.

use std::{
    cell::Cell,
    ops::{ControlFlow, Range},
};

use proptest::prelude::*;

use crate::{
    board::Board,
    count::{CountError, Counter, Orientation, Setup, SetupError, Unwatched, Watch},
    kernel::Kernel,
    known::known_counts,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
};

const LAYOUTS: [Layout; 2] = [Layout::FirstRows, Layout::Border];

fn plan(n: u8, layout: Layout) -> Plan {
    Plan::new(PlanSpec::new(Board::new(n).unwrap(), layout)).unwrap()
}

fn plan_of_cost(n: u8, layout: Layout, task_cost: u64) -> Plan {
    Plan::new(PlanSpec {
        board: Board::new(n).unwrap(),
        layout,
        task_cost,
    })
    .unwrap()
}

fn counter(plan: &Plan, kernel: Kernel, orientation: Orientation) -> Counter {
    Counter::new(
        plan,
        &Setup {
            kernel,
            threads: std::num::NonZeroU16::MIN,
            memory_bytes: 1 << 20,
            orientation,
        },
    )
    .unwrap()
}

fn count(plan: &Plan, kernel: Kernel, orientation: Orientation, units: Range<u64>) -> u64 {
    counter(plan, kernel, orientation)
        .count(units, &Unwatched)
        .unwrap()
}

fn all(n: u8) -> u128 {
    known_counts(Board::new(n).unwrap()).unwrap().all()
}

#[test]
fn every_kernel_and_layout_is_exact() {
    for n in 1..=13 {
        for layout in LAYOUTS {
            let plan = plan(n, layout);
            for kernel in Kernel::available() {
                let mut counter = counter(&plan, kernel, Orientation::Upright);
                let mut count = |task| counter.count(plan.task_units(task), &Unwatched).unwrap();
                let total: u128 = plan
                    .handing_out_order()
                    .map(|task| u128::from(count(task)))
                    .sum();
                assert_eq!(total, all(n), "N = {n}, {layout}, {kernel}");
            }
        }
    }
}

#[test]
fn tasks_of_every_board_cover_its_units_in_order() {
    for n in 1..=Board::MAX {
        for layout in LAYOUTS {
            let plan = plan(n, layout);
            let tasks = plan.tasks();
            assert!(
                (1..=Plan::MAX_TASKS).contains(&tasks),
                "N = {n}, {layout}: {tasks} tasks"
            );
            assert_eq!(plan.task_units(TaskId(0)).start, 0);
            assert_eq!(plan.task_units(TaskId(tasks - 1)).end, plan.units());
            // All of them where that is quick, or else some hundred all over.
            for task in (0..tasks).step_by(usize::try_from(tasks / 500).unwrap().max(1)) {
                let units = plan.task_units(TaskId(task));
                assert!(
                    units.start < units.end,
                    "N = {n}, {layout}, task {task}: {units:?}"
                );
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
    for (n, layout, task_cost) in [
        (9, Layout::Border, 1),
        (10, Layout::Border, 2),
        (10, Layout::FirstRows, 3),
    ] {
        let plan = plan_of_cost(n, layout, task_cost);
        let heads = plan_of_cost(n, layout, u64::MAX).units();
        assert!(
            plan.units() > heads,
            "N = {n}, {layout}: {} units",
            plan.units()
        );
        let mut counter = counter(&plan, Kernel::best(), Orientation::Upright);
        // Unit by unit, so that no neighbour can make up for another.
        let total: u64 = (0..plan.units())
            .map(|unit| counter.count(unit..unit + 1, &Unwatched).unwrap())
            .sum();
        assert_eq!(u128::from(total), all(n), "N = {n}, {layout}");
    }
}

#[test]
fn no_task_passes_its_limit() {
    for n in 1..=11 {
        for layout in LAYOUTS {
            let plan = plan_of_cost(n, layout, 5);
            for task in (0..plan.tasks()).map(TaskId) {
                let found = count(
                    &plan,
                    Kernel::best(),
                    Orientation::Upright,
                    plan.task_units(task),
                );
                assert!(
                    found <= plan.task_limit(task),
                    "N = {n}, {layout}, task {task}: {found}"
                );
            }
        }
    }
}

/// Adds up what it is told, and stops at a call.
struct Record {
    calls: Cell<u64>,
    cost: Cell<u64>,
    last_call: u64,
}

impl Watch for Record {
    fn advance(&self, cost_done: u64) -> ControlFlow<()> {
        self.calls.set(self.calls.get() + 1);
        self.cost.set(self.cost.get() + cost_done);
        if self.calls.get() < self.last_call {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

fn record(last_call: u64) -> Record {
    Record {
        calls: Cell::new(0),
        cost: Cell::new(0),
        last_call,
    }
}

#[test]
fn a_long_unit_is_cancelled_from_within() {
    for layout in LAYOUTS {
        // One unit of N = 30 would take years.
        let plan = plan_of_cost(30, layout, u64::MAX);
        let middle = plan.units() / 2;
        for kernel in Kernel::available() {
            let watch = record(3);
            let mut counter = counter(&plan, kernel, Orientation::Upright);
            let found = counter.count(middle..middle + 1, &watch);
            assert_eq!((found, watch.calls.get()), (Err(CountError::Cancelled), 3));
            let small = plan.units()..plan.units();
            assert_eq!(
                counter.count(small, &Unwatched),
                Ok(0),
                "usable after a cancellation"
            );
        }
    }
}

#[test]
fn progress_adds_up_to_the_cost() {
    for layout in LAYOUTS {
        let plan = plan_of_cost(13, layout, 100);
        let watch = record(u64::MAX);
        let mut counter = counter(&plan, Kernel::best(), Orientation::Upright);
        let mut cost = 0;
        for task in (0..plan.tasks()).map(TaskId) {
            counter.count(plan.task_units(task), &watch).unwrap();
            cost += plan.task_cost(task);
        }
        let told = watch.cost.get();
        assert!(
            told <= cost && told * 10 >= cost * 7,
            "{layout}: told {told} of {cost}"
        );
    }
}

#[test]
fn too_little_memory_is_refused_with_the_least_that_works() {
    let plan = plan(20, Layout::Border);
    let setup = |memory_bytes| Setup {
        kernel: Kernel::SCALAR,
        threads: std::num::NonZeroU16::MIN,
        memory_bytes,
        orientation: Orientation::Upright,
    };
    let Err(SetupError::Memory { given: 1000, least }) = Counter::new(&plan, &setup(1000)) else {
        panic!("1000 bytes were enough");
    };
    assert!(least < 1 << 20);
    assert!(Counter::new(&plan, &setup(least)).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any range of units, however tasks are cut: the same count on every kernel, mirrored too, and
    /// the sum of the counts of its parts.
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
            prop_assert_eq!(count(&plan, kernel, Orientation::Turned, start..end), reference);
        }
        let parts = [start..middle, middle..end].map(|part| count(&plan, Kernel::best(), upright, part));
        prop_assert_eq!(parts.iter().sum::<u64>(), reference);
    }
}

/// What a coordinator and its workers must agree on. Whoever changes a number here raises
/// `PLAN_VERSION`.
#[test]
fn plans_are_frozen() {
    let seen: Vec<_> = [
        (8, 0),
        (12, 7),
        (16, 5000),
        (18, 5000),
        (20, 1000),
        (24, 10_000_000),
        (27, 0),
        (32, 0),
    ]
    .into_iter()
    .flat_map(|(n, task_cost)| LAYOUTS.map(|layout| (n, layout, task_cost)))
    .map(|(n, layout, task_cost)| {
        let plan = if task_cost == 0 {
            plan(n, layout)
        } else {
            plan_of_cost(n, layout, task_cost)
        };
        let third = TaskId(plan.tasks() / 3);
        let hash = plan.hash().short();
        format!(
            "{n} {layout} {hash} {} {} {:?} {}",
            plan.units(),
            plan.tasks(),
            plan.task_units(third),
            plan.task_cost(third)
        )
    })
    .collect();
    assert_eq!(seen, FROZEN);
}

/// N, layout, hash, units, tasks, units and cost of the task a third of the way.
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
