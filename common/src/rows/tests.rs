//! Every kernel and both layouts against the known counts.

use crate::{
    board::Board,
    count::{Counter, Orientation, Setup, Unwatched},
    kernel::Kernel,
    known::known_counts,
    method::Layout,
    plan::{Plan, PlanSpec},
};

const LAYOUTS: [Layout; 2] = [Layout::FirstRows, Layout::Border];

fn total(plan: &Plan, kernel: Kernel, orientation: Orientation) -> u128 {
    let setup = Setup {
        kernel,
        memory_bytes: 1 << 20,
        orientation,
    };
    let mut counter = Counter::new(plan, &setup).unwrap();
    let count = |task| u128::from(counter.count(plan.task_units(task), &Unwatched).unwrap());
    plan.handing_out_order().map(count).sum()
}

#[test]
fn every_kernel_and_layout_is_exact() {
    for n in 1..=13 {
        let board = Board::new(n).unwrap();
        for layout in LAYOUTS {
            let plan = Plan::new(PlanSpec::new(board, layout)).unwrap();
            for kernel in Kernel::available() {
                let all = known_counts(board).unwrap().all();
                assert_eq!(
                    total(&plan, kernel, Orientation::Upright),
                    all,
                    "{layout} N = {n} {kernel}"
                );
            }
        }
    }
}
