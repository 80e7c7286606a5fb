//! Test that a count keeps to its memory budget, by the peak memory of a child process (Linux).

use std::{
    cmp::Reverse,
    env, fs,
    io::{self, Write as _},
    num::NonZeroU16,
    process::Command,
};

use common::{
    count::{Counter, CounterConfig, NoProgress},
    crew_layout::PlanNeeds,
    method::Layout,
    plan::{Plan, TaskId},
    test_fixture::plan_of_cost,
};

/// Passes the case to a child process.
const CASE: &str = "QUEENS_MEMORY_CASE";

/// Prefix of a child's output.
const MARK: &str = "peak above the start: ";

/// Parameters of a count in a child process.
#[derive(Clone, Copy, Debug)]
struct Case {
    n: u8,
    threads: NonZeroU16,
    memory_bytes: u64,
}

impl Case {
    fn plan(n: u8) -> Plan {
        plan_of_cost(n, Layout::Frames, 300_000)
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(Self {
            n: words.next()?.parse().ok()?,
            threads: words.next()?.parse().ok()?,
            memory_bytes: words.next()?.parse().ok()?,
        })
    }

    /// Counts, and prints by how much the peak of this process rises.
    fn count(self) {
        let Self { n, threads, memory_bytes } = self;
        let plan = Self::plan(n);
        let tasks = some_tasks(&plan);
        let before = peak_bytes().unwrap();
        let config = CounterConfig { threads, ..CounterConfig::best(memory_bytes) };
        let mut counter = Counter::new(&plan, &config).unwrap();
        for task in tasks {
            counter.count(plan.task_units(task), &NoProgress).unwrap();
        }
        println!("\n{MARK}{}", peak_bytes().unwrap() - before);
    }

    /// Returns by how much the peak of a child process rises.
    fn measure(self) -> u64 {
        let Self { n, threads, memory_bytes } = self;
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "a_count_keeps_to_its_memory", "--nocapture"])
            .env(CASE, format!("{n} {threads} {memory_bytes}"))
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        let peak = output.lines().find_map(|line| line.strip_prefix(MARK)?.parse().ok());
        peak.unwrap_or_else(|| panic!("{self:?}: {child:?}"))
    }
}

/// Returns the longest task, and some from all over the board.
///
/// The longest task has the longest lists; the others fill the cache.
fn some_tasks(plan: &Plan) -> Vec<TaskId> {
    let mut tasks: Vec<_> = (0..plan.tasks()).map(TaskId).collect();
    tasks.sort_by_key(|task| Reverse(plan.task_cost(*task)));
    tasks.truncate(1);
    tasks.extend(plan.lease_order().take(3));
    tasks
}

/// Returns the peak memory of this process in bytes; `None` if unknown.
fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[test]
fn a_count_keeps_to_its_memory() {
    if let Some(case) = env::var(CASE).ok().and_then(|text| Case::read(&text)) {
        return case.count();
    }
    if peak_bytes().is_none() {
        let loud = "!! NOT TESTED: the memory of a count: /proc has no peak of a process's memory";
        // The output of `eprintln!` is shown only if the test fails.
        let _ = writeln!(io::stderr(), "{loud}");
        return;
    }
    let mut wrong = Vec::new();
    for n in [22, 24] {
        let needs = PlanNeeds::new(&Case::plan(n));
        for threads in [1, 2, 8].map(|threads| NonZeroU16::new(threads).unwrap()) {
            let least = needs.of(threads).least;
            // N = 22 in pieces, in fewer pieces, and with cached and held lists; N = 24 only in pieces.
            let whole = needs.of(threads).whole;
            let all = [least, least + least / 4, whole, 2 * whole];
            for memory_bytes in all.into_iter().take(if n == 22 { 4 } else { 1 }) {
                let case = Case { n, threads, memory_bytes };
                let peak = case.measure();
                let part = peak as f64 / memory_bytes as f64;
                println!("{case:?}: {peak}, {part:.2} of it");
                // If much less were used, the measurement would be wrong.
                if part > 1.0 || (memory_bytes == least && part < 0.3) {
                    wrong.push((case, peak));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
