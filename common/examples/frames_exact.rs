//! Counts whole boards by method `frames` on crews of 1, 2 and 3 threads, each in three memory budgets
//! (the smallest, twice that, and plenty), and compares with the published counts: `frames_exact FROM TO`.

use common::{
    count::{Counter, CounterConfig, SetupError},
    method::Layout,
    solutions::tally::total,
    test_fixture::{plan, published, task_counts},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bounds: Vec<u8> =
        std::env::args().skip(1).map(|bound| bound.parse()).collect::<Result<_, _>>()?;
    let [from, to] = bounds[..] else {
        return Err("usage: frames_exact FROM TO".into());
    };
    for n in from..=to {
        let (plan, known) = (plan(n, Layout::Frames), published(n));
        for threads in 1..=3_u16 {
            let mut config =
                CounterConfig { threads: threads.try_into()?, ..CounterConfig::best(1) };
            let Err(SetupError::Memory { least, .. }) = Counter::new(&plan, &config) else {
                return Err(format!("N = {n} is counted in one byte").into());
            };
            for memory_bytes in [least, 2 * least, least.max(4 << 30)] {
                config.memory_bytes = memory_bytes;
                let all = total(task_counts(&plan, &config))?;
                if all != known {
                    let config = format!("{threads} threads, {memory_bytes} bytes");
                    return Err(format!("N = {n}, {config}: {all} instead of {known}").into());
                }
                println!("N = {n}, {threads} threads, {memory_bytes} bytes: {all}");
            }
        }
    }
    Ok(())
}
