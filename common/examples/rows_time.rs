//! Prints how long whole boards take with method `rows`: N down, layout and kernel across.
//!
//! ```text
//! cargo run --release -p common --example rows_time -- [FIRST_N [LAST_N [KERNEL,… [LAYOUT,…]]]]
//! ```
//!
//! CPU seconds of one core, the best of three where a count takes under a second. Every count is
//! checked against the known one.

#[path = "support/cpu.rs"]
mod cpu;

use common::{
    board::Board,
    count::{Counter, Orientation, Setup, Unwatched},
    kernel::Kernel,
    known::known_counts,
    method::Layout,
    plan::{Plan, PlanSpec},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut board = |default: &str| {
        arguments
            .next()
            .unwrap_or(default.to_owned())
            .parse::<Board>()
    };
    let (first, last) = (board("12")?, board("16")?);
    let kernels: Vec<Kernel> = match arguments.next() {
        Some(list) => list
            .split(',')
            .map(|name| Ok(Kernel::new(name.parse()?)?))
            .collect::<Result<_, Box<dyn std::error::Error>>>()?,
        None => Kernel::available(),
    };
    let layouts: Vec<Layout> = match arguments.next() {
        Some(list) => list.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => vec![Layout::FirstRows, Layout::Border],
    };
    print!("{:>3}", "N");
    for (layout, kernel) in pairs(&layouts, &kernels) {
        print!("{:>20}", format!("{layout}/{kernel}"));
    }
    println!();
    for n in first.n()..=last.n() {
        let board = Board::new(n)?;
        print!("{n:>3}");
        for (layout, kernel) in pairs(&layouts, &kernels) {
            print!("{:>20.3}", best_seconds(board, layout, kernel)?);
        }
        println!();
    }
    Ok(())
}

fn pairs<'a>(
    layouts: &'a [Layout],
    kernels: &'a [Kernel],
) -> impl Iterator<Item = (Layout, Kernel)> + 'a {
    layouts
        .iter()
        .flat_map(move |&layout| kernels.iter().map(move |&kernel| (layout, kernel)))
}

fn best_seconds(
    board: Board,
    layout: Layout,
    kernel: Kernel,
) -> Result<f64, Box<dyn std::error::Error>> {
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let start = cpu::seconds();
        let plan = Plan::new(PlanSpec::new(board, layout))?;
        let setup = Setup {
            kernel,
            threads: std::num::NonZeroU16::MIN,
            memory_bytes: 1 << 20,
            orientation: Orientation::Upright,
        };
        let mut counter = Counter::new(&plan, &setup)?;
        let mut total = 0;
        for task in plan.handing_out_order() {
            total += u128::from(counter.count(plan.task_units(task), &Unwatched)?);
        }
        best = best.min(cpu::seconds() - start);
        if let Some(known) = known_counts(board) {
            assert_eq!(total, known.all(), "N = {board}, {layout}, {kernel}");
        }
        if best > 1.0 {
            break;
        }
    }
    Ok(best)
}
