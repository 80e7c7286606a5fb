//! Counts whole boards by method `frames` on crews of 1, 2 and 3 threads, each in three memory budgets
//! (the smallest, twice that, and plenty), and compares with the known counts: `frames_exact FROM TO`.

use common::{
    board::Board,
    count::{Counter, Setup, SetupError, Unwatched},
    known::known_counts,
    method::Layout,
    plan::{Plan, PlanSpec},
    tally::total,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bounds: Vec<u8> = std::env::args()
        .skip(1)
        .map(|bound| bound.parse())
        .collect::<Result<_, _>>()?;
    let [from, to] = bounds[..] else {
        return Err("usage: frames_exact FROM TO".into());
    };
    for n in from..=to {
        let board = Board::new(n)?;
        let known = known_counts(board).ok_or("nobody knows this count")?.all();
        let plan = Plan::new(PlanSpec::new(board, Layout::Frames))?;
        for threads in 1..=3_u16 {
            let mut setup = Setup {
                threads: threads.try_into()?,
                ..Setup::best(1)
            };
            let Err(SetupError::Memory { least, .. }) = Counter::new(&plan, &setup) else {
                return Err(format!("N = {n} is counted in one byte").into());
            };
            for memory_bytes in [least, 2 * least, least.max(4 << 30)] {
                setup.memory_bytes = memory_bytes;
                let mut counter = Counter::new(&plan, &setup)?;
                let tasks = plan.handing_out_order();
                let partials: Vec<u64> = tasks
                    .map(|task| counter.count(plan.task_units(task), &Unwatched))
                    .collect::<Result<_, _>>()?;
                let all = total(partials)?;
                if all != known {
                    let setup = format!("{threads} threads, {memory_bytes} bytes");
                    return Err(format!("N = {n}, {setup}: {all} instead of {known}").into());
                }
                println!("N = {n}, {threads} threads, {memory_bytes} bytes: {all}");
            }
        }
    }
    Ok(())
}
