//! Test that the audit names each kind of inconsistency.

use super::{super::*, bench::Bench};
use crate::{
    fleet::Worker,
    run::{Lease, Purpose},
};

/// A scheduler with tasks in every stage but parked.
struct Fixture {
    scheduler: Scheduler,
    /// A task with a single holder, which has started it.
    alone: TaskIx,
    /// A task that was never granted.
    pending: TaskIx,
    /// A task that is done and confirmed.
    done: TaskIx,
    /// A task whose recheck is in progress.
    rechecked: TaskIx,
}

/// Worker indexes in [`Fixture`]; the third worker called before the second.
const FIRST: WorkerIx = 1;
const SECOND: WorkerIx = 3;
const THIRD: WorkerIx = 2;

fn fixture() -> Fixture {
    let steps = [
        "1 set threads=4, 1 sync, 1 submit 6 8 4 2 13",
        // One task is disputed, one confirmed; the second worker rechecks others and referees.
        "3 submit 6+1 8",
        "2 set token=trusted trusted, 2 sync",
        // The tasks in progress have made progress.
        "1 set started done=1 wants=0, 1 sync",
    ];
    let scheduler = Bench::after(&["recheck all"], &steps).scheduler;
    let pending = scheduler.runs[0].upcoming().last().unwrap();
    Fixture { scheduler, alone: 5, pending, done: 8, rechecked: 2 }
}

impl Fixture {
    fn run(&mut self) -> &mut Run {
        &mut self.scheduler.runs[0]
    }

    fn worker(&mut self, worker: WorkerIx) -> &mut Worker {
        self.scheduler.workers.get_mut(worker)
    }

    /// Changes the first worker's lease of the task that it holds alone.
    fn change(&mut self, change: impl FnOnce(&mut Lease)) {
        let task = self.alone;
        self.run().change_lease(task, FIRST, change);
    }

    /// Adds a lease of [`Self::alone`] for `worker`, to the run only.
    fn lease(&mut self, worker: WorkerIx) {
        let task = self.alone;
        self.run().add_lease(task, worker, Lease::new(1, Purpose::Count, 0), 0);
    }

    fn remove(&mut self, task: TaskIx, worker: WorkerIx) {
        self.run().remove_lease(task, worker).unwrap();
    }

    /// Leases [`Self::alone`] to another worker too.
    fn copy(&mut self, to: WorkerIx) {
        let task = self.alone;
        self.lease(to);
        self.worker(to).leases.insert((0, task));
    }
}

#[test]
fn each_inconsistency_is_named() {
    let mut plain = fixture();
    let [of_first, of_second] = [FIRST, SECOND].map(|worker| plain.worker(worker).leases.len());
    let most = of_first.max(of_second);
    let of = |task: TaskIx, problem: &str| format!("task {task} {problem}");
    let unknown = "has a lease that its worker does not list";
    let no_epoch = of(plain.alone, "is leased under an epoch that was not issued");
    let twice = of(plain.alone, "is held twice by one worker");
    let too_many_leases =
        format!("worker {} holds too many leases", if of_first == most { FIRST } else { SECOND });
    type Case<'a> = (&'a dyn Fn(&mut Fixture), &'a str);
    let recheck = |fixture: &mut Fixture, task, worker| {
        fixture.run().add_lease(task, worker, Lease::new(1, Purpose::Recheck, 0), 0);
    };
    let cases: [Case; 17] = [
        (
            &|fixture| fixture.worker(FIRST).deadline = None,
            "worker 1 holds leases without a deadline",
        ),
        // The third worker holds no leases.
        (&|fixture| fixture.worker(THIRD).deadline = None, ""),
        (&|fixture| fixture.scheduler.config.leases_per_worker = most, ""),
        (&|fixture| fixture.scheduler.config.leases_per_worker = most - 1, &too_many_leases),
        (&|fixture| fixture.worker(FIRST).info.threads += 1, "live threads: 6, expected 7"),
        (
            &|fixture| fixture.scheduler.runs[0].park(fixture.alone, 0),
            "stage of a leased task: Parked, expected Leased",
        ),
        (&|fixture| fixture.change(|lease| lease.epoch = 0), &no_epoch),
        (&|fixture| fixture.change(|lease| lease.epoch = 2), &no_epoch),
        (&|fixture| recheck(fixture, fixture.done, THIRD), &of(plain.done, unknown)),
        (&|fixture| fixture.lease(THIRD), &of(plain.alone, unknown)),
        (&|fixture| fixture.run().leases.cost_done += 1, "run 0 has stale leases"),
        (&|fixture| fixture.lease(FIRST), &twice),
        (&|fixture| fixture.copy(SECOND), ""),
        (&|fixture| [SECOND, THIRD].into_iter().for_each(|to| fixture.copy(to)), ""),
        (
            &|fixture| {
                fixture.scheduler.runs[0].add_lease(fixture.pending, THIRD, Lease::default(), 0);
                fixture.scheduler.runs[0].enter(fixture.pending, Stage::Pending);
            },
            &of(plain.pending, "is pending, and held or lost"),
        ),
        (
            &|fixture| fixture.remove(fixture.alone, FIRST),
            &of(plain.alone, "is leased, and no worker holds it"),
        ),
        (
            &|fixture| fixture.remove(fixture.rechecked, SECOND),
            &of(plain.rechecked, "is listed without a lease"),
        ),
    ];
    for (at, (change, expected)) in cases.into_iter().enumerate() {
        let mut fixture = fixture();
        change(&mut fixture);
        let found = fixture
            .scheduler
            .snapshot()
            .audit()
            .map_or_else(|error| error.to_string(), |()| String::new());
        assert_eq!(found, expected, "case {at}");
    }
}
