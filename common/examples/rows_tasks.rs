//! Measures how even the tasks of a plan are and how good their estimates: counts a sample of the
//! tasks of method `rows`, each by itself.
//!
//! ```text
//! cargo run --release -p common --example rows_tasks -- N [LAYOUT [TASK_MICROSECONDS [TASKS]]]
//! ```

#[path = "support/cpu.rs"]
mod cpu;

use common::{
    board::Board,
    count::{Counter, Orientation, Setup, Unwatched},
    kernel::Kernel,
    method::Layout,
    plan::{Plan, PlanSpec},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let board: Board = arguments.next().as_deref().unwrap_or("17").parse()?;
    let layout: Layout = arguments.next().as_deref().unwrap_or("border").parse()?;
    let mut spec = PlanSpec::new(board, layout);
    if let Some(microseconds) = arguments.next() {
        spec.task_cost = microseconds.parse()?;
    }
    let sample: usize = arguments.next().as_deref().unwrap_or("1000").parse()?;
    let start = cpu::seconds();
    let plan = Plan::new(spec)?;
    let planned = cpu::seconds() - start;
    let setup = Setup {
        kernel: Kernel::best(),
        threads: std::num::NonZeroU16::MIN,
        memory_bytes: 1 << 20,
        orientation: Orientation::Upright,
    };
    let mut counter = Counter::new(&plan, &setup)?;
    let mut times = Vec::new();
    let mut estimated = 0.0;
    for task in plan.handing_out_order().take(sample) {
        let start = cpu::seconds();
        counter.count(plan.task_units(task), &Unwatched)?;
        times.push(cpu::seconds() - start);
        #[allow(clippy::cast_precision_loss)]
        {
            estimated += plan.task_cost(task) as f64 / 1e6;
        }
    }
    if times.is_empty() {
        times.push(0.0);
    }
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times[(times.len() - 1) * part / 100] * 1e3;
    println!(
        "N = {board}, {layout}: {} units in {} tasks, planned in {:.1} ms",
        plan.units(),
        plan.tasks(),
        planned * 1e3
    );
    println!(
        "{} tasks took {:.3} s, estimated {estimated:.3} s; milliseconds a task: \
         least {:.2}, 5 % {:.2}, median {:.2}, 95 % {:.2}, most {:.2} ({:.2} x median)",
        times.len(),
        times.iter().sum::<f64>(),
        at(0),
        at(5),
        at(50),
        at(95),
        at(100),
        at(100) / at(50)
    );
    Ok(())
}
