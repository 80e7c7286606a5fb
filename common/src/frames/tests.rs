//! The method as a whole, against the world.

use crate::{
    board::Board,
    count::{Counter, Orientation, Setup, Unwatched},
    kernel::Kernel,
    known::known_counts,
    method::Layout,
    plan::{Plan, PlanSpec},
};

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
                memory_bytes: 1 << 30,
                orientation,
            };
            let known = known_counts(Board::new(n).unwrap()).unwrap().all();
            assert_eq!(all(n, &setup), known, "N = {n}, {orientation:?}");
        }
    }
}
