//! What becomes of a count: how long it takes, whether it comes to an end, whether it is right.

use common::{count::Orientation, plan::TaskId};
use worker::machine::Work;

use super::{Time, scenario::Scenario, truth::Truth};

/// Who counts, as far as it matters to the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    /// Reports wrong counts, by this much and more.
    pub(super) lie: Option<u64>,
    /// Which of its slots.
    pub(super) slot: usize,
}

/// How long a slot of the usual speed takes: by the cost, and by how wrong the cost is.
pub(super) fn duration(task: TaskId, cost: u64, scenario: &Scenario) -> Time {
    let wrong = 0.3 + (mixed(task.0) >> 40) as f64 / (1u64 << 23) as f64;
    let ms = cost as f64 * scenario.ms_per_cost * wrong;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let ms = ms as Time;
    ms.max(1)
}

/// The count that comes out. Lies of different workers, and of one worker through different data,
/// never agree, unless they are to.
pub(super) fn count(work: &Work, counter: Counter, scenario: &Scenario) -> u64 {
    let task = work.lease.task.task;
    let faults = &scenario.faults;
    let truth = scenario.truth.count(task);
    let Some(lie) = counter.lie else {
        return truth;
    };
    let bad_slot = counter.slot == 0 || !faults.bad_core;
    if !bad_slot || !lies(lie, task, scenario) {
        return truth;
    }
    match work.orientation {
        _ if faults.liars_agree => truth + 8,
        Orientation::Upright => truth + 2 * lie + 1,
        Orientation::Turned => truth + 2 * lie + 2,
    }
}

/// Whether a liar lies about a task; those that agree lie about the same ones.
fn lies(liar: u64, task: TaskId, scenario: &Scenario) -> bool {
    let faults = &scenario.faults;
    let liar = if faults.liars_agree { 0 } else { liar + 1 };
    let draw = mixed(task.0 ^ liar << 40) >> 11;
    (draw as f64) < faults.lie_rate * (1u64 << 53) as f64
}

/// So many tasks, drawn by lot.
pub(super) fn drawn(truth: &Truth, number: u64, rng: &mut impl rand::Rng) -> Vec<TaskId> {
    let tasks = usize::try_from(truth.plan.tasks()).expect("a small plan");
    let number = usize::try_from(number).expect("at most all tasks");
    let places = rand::seq::index::sample(rng, tasks, number);
    places.into_iter().map(|task| TaskId(task as u64)).collect()
}

fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
