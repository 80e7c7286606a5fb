//! A count keeps to the memory that it was given: the peak of a process that does nothing but count, as
//! `/proc` tells it, which other systems than Linux do not have.

use std::{cmp::Reverse, env, fs, num::NonZeroU16, process::Command};

use common::{
    board::Board,
    count::{Counter, Orientation, Setup, Unwatched},
    crews::PlanNeeds,
    kernel::Kernel,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
};

/// Tells a child what to count.
const CASE: &str = "QUEENS_MEMORY_CASE";

/// What a child's line begins with.
const MARK: &str = "peak above the start: ";

/// What is counted in a process of its own.
#[derive(Clone, Copy, Debug)]
struct Case {
    n: u8,
    threads: NonZeroU16,
    memory_bytes: u64,
}

impl Case {
    fn plan(n: u8) -> Plan {
        let mut spec = PlanSpec::new(Board::new(n).unwrap(), Layout::Frames);
        spec.task_cost = 300_000;
        Plan::new(spec).unwrap()
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(Self {
            n: words.next()?.parse().ok()?,
            threads: words.next()?.parse().ok()?,
            memory_bytes: words.next()?.parse().ok()?,
        })
    }

    /// Counts, and tells how far the peak of this process rises by that.
    fn count(self) {
        let plan = Self::plan(self.n);
        let tasks = some_tasks(&plan);
        let before = peak_bytes().unwrap();
        let setup = Setup {
            kernel: Kernel::best(),
            threads: self.threads,
            memory_bytes: self.memory_bytes,
            orientation: Orientation::Upright,
        };
        let mut counter = Counter::new(&plan, &setup).unwrap();
        for task in tasks {
            counter.count(plan.task_units(task), &Unwatched).unwrap();
        }
        println!("\n{MARK}{}", peak_bytes().unwrap() - before);
    }

    /// How far the peak rises in a process that counts this.
    fn measure(self) -> u64 {
        let Self {
            n,
            threads,
            memory_bytes,
        } = self;
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "a_count_keeps_to_its_memory", "--nocapture"])
            .env(CASE, format!("{n} {threads} {memory_bytes}"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        let mut lines = said.lines();
        let peak = lines.find_map(|line| line.strip_prefix(MARK)?.parse().ok());
        peak.unwrap_or_else(|| {
            let why = String::from_utf8_lossy(&child.stderr);
            panic!("{self:?}: {} {said} {why}", child.status)
        })
    }
}

/// Those that take longest, which have long lists, and some from all over the board, so that the lists
/// kept for later frames are as many as may be.
fn some_tasks(plan: &Plan) -> Vec<TaskId> {
    let mut tasks: Vec<_> = (0..plan.tasks()).map(TaskId).collect();
    tasks.sort_by_key(|task| Reverse(plan.task_cost(*task)));
    tasks.truncate(1);
    tasks.extend(plan.handing_out_order().take(3));
    tasks
}

/// The most memory that this process has had, in bytes; `None` where the system does not tell.
fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[test]
fn a_count_keeps_to_its_memory() {
    if let Some(case) = env::var(CASE).ok().and_then(|text| Case::read(&text)) {
        return case.count();
    }
    if peak_bytes().is_none() {
        eprintln!("SKIPPED: this system does not tell the peak of a process's memory in /proc");
        return;
    }
    let mut wrong = Vec::new();
    for n in [22, 24] {
        let needs = PlanNeeds::new(&Case::plan(n));
        for threads in [1, 2, 8].map(|threads| NonZeroU16::new(threads).unwrap()) {
            let least = needs.least_bytes(threads);
            // In pieces, in fewer of them, with room for lists of other frames, and for longer lists that are
            // held; of frames that take longer in pieces alone.
            let whole = needs.whole_bytes(threads);
            let all = [least, least + least / 4, whole, 2 * whole];
            for memory_bytes in all.into_iter().take(if n == 22 { 4 } else { 1 }) {
                let case = Case {
                    n,
                    threads,
                    memory_bytes,
                };
                let peak = case.measure();
                let part = peak as f64 / memory_bytes as f64;
                println!("{case:?}: {peak}, {part:.2} of it");
                // Much less of the least, and it would not be what is measured.
                if part > 1.0 || (memory_bytes == least && part < 0.3) {
                    wrong.push((case, peak));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
