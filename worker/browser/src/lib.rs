//! The counter of one Web Worker of a browser's tab, as WebAssembly without imports.
//!
//! The worker creates a counter for the plan of a package, starts a task, and counts its units in steps
//! short enough to report progress and to obey a stop between them.

#![warn(unreachable_pub)]

use std::{cell::RefCell, ops::Range};

use common::{
    board::Board,
    count::{Counter, CounterConfig, NoProgress, Orientation, SetupError},
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
};

/// Layouts by the code that plan hashes use.
const LAYOUTS: [Layout; 3] = [Layout::FirstRows, Layout::Border, Layout::Frames];

/// The work of this instance of the module.
struct Work {
    plan: Plan,
    hash: String,
    memory_bytes: u64,
    counter: Option<(Orientation, Counter)>,
    /// Units of the current task that are not counted yet.
    units: Range<u64>,
    count: u64,
}

thread_local! {
    static WORK: RefCell<Option<Work>> = const { RefCell::new(None) };
}

/// Answer to a call that the counter carried out.
const DONE: u32 = 0;
/// Answer if the arguments define no plan, or no task of it.
const INVALID: u32 = 1;
/// Answer if the memory is not enough for the plan.
const TOO_LITTLE_MEMORY: u32 = 2;
/// Answer if the count failed.
const FAILED: u32 = 3;

/// Creates the counter of a plan, and replaces any previous one.
#[unsafe(no_mangle)]
pub extern "C" fn create(n: u32, layout: u32, task_cost: u64, memory_bytes: u64) -> u32 {
    free();
    let board = u8::try_from(n).ok().and_then(|n| Board::new(n).ok());
    let layout = LAYOUTS.get(layout as usize);
    let (Some(board), Some(&layout)) = (board, layout) else { return INVALID };
    let Ok(plan) = Plan::new(PlanSpec { board, layout, task_cost }) else { return INVALID };
    let hash = plan.hash().to_string();
    let work = Work { plan, hash, memory_bytes, counter: None, units: 0..0, count: 0 };
    WORK.set(Some(work));
    DONE
}

/// Returns the address of the 64 digits of the plan's hash; 0 without a plan.
#[unsafe(no_mangle)]
pub extern "C" fn hash() -> *const u8 {
    with(|work| work.hash.as_ptr()).unwrap_or(std::ptr::null())
}

/// Starts a task from its first unit; `rotated` is 1 for a rotated board, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn start(task: u64, rotated: u32) -> u32 {
    let start = |work: &mut Work| {
        let task = TaskId(task);
        if !work.plan.contains(task) {
            return INVALID;
        }
        let orientation = Orientation::ALL[usize::from(rotated != 0)];
        if work.counter.as_ref().is_none_or(|(of, _)| *of != orientation) {
            // The memory of the previous one is free first.
            work.counter = None;
            let config = CounterConfig { orientation, ..CounterConfig::best(work.memory_bytes) };
            match Counter::new(&work.plan, &config) {
                Ok(counter) => work.counter = Some((orientation, counter)),
                Err(SetupError::Memory { .. }) => return TOO_LITTLE_MEMORY,
            }
        }
        (work.units, work.count) = (work.plan.task_units(task), 0);
        DONE
    };
    with(start).unwrap_or(INVALID)
}

/// Counts up to this many units of the task.
#[unsafe(no_mangle)]
pub extern "C" fn step(units: u64) -> u32 {
    let step = |work: &mut Work| {
        let Some((_, counter)) = &mut work.counter else { return INVALID };
        let Range { start, end } = work.units;
        let to = start.saturating_add(units).min(end);
        let more = counter.count(start..to, &NoProgress).ok();
        match more.and_then(|more| work.count.checked_add(more)) {
            Some(count) => (work.count, work.units) = (count, to..end),
            None => return FAILED,
        }
        DONE
    };
    with(step).unwrap_or(INVALID)
}

/// Returns the number of the task's units that are not counted yet.
#[unsafe(no_mangle)]
pub extern "C" fn remaining() -> u64 {
    with(|work| work.units.end - work.units.start).unwrap_or(0)
}

/// Returns the weighted count of the units counted so far.
#[unsafe(no_mangle)]
pub extern "C" fn count() -> u64 {
    with(|work| work.count).unwrap_or(0)
}

/// Frees the counter and its plan.
#[unsafe(no_mangle)]
pub extern "C" fn free() {
    WORK.set(None);
}

fn with<T>(call: impl FnOnce(&mut Work) -> T) -> Option<T> {
    WORK.with_borrow_mut(|work| work.as_mut().map(call))
}
