//! The machine as a whole: what it tells, asks for, keeps and gives back.

use std::{collections::BTreeMap, num::NonZeroU16};

use common::{
    count::SetupError,
    kernel::KernelName,
    run::{Epoch, SessionId, TaskRef, WorkerId},
};

use proto::limits;

use super::*;
use crate::testing::{grant, lease, plan, sample_partial, work};

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(25);

fn settings() -> Settings {
    Settings {
        info: WorkerInfo {
            id: WorkerId(5),
            session: SessionId(6),
            name: "tester".to_owned(),
            version: "0".to_owned(),
            kernel: KernelName::Scalar,
            threads: 2,
            memory_bytes_per_thread: 1 << 24,
            machine: 0,
        },
        idle_timeout: Some(60 * SECOND),
        drain_limit: LIMIT,
        kept: None,
    }
}

/// A machine, its time, and what it has ordered.
struct Bench {
    machine: Machine,
    plan: Plan,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self::with(settings())
    }

    fn with(settings: Settings) -> Self {
        let now = Instant::now();
        Self {
            machine: Machine::new(settings, now),
            plan: plan(10),
            now,
        }
    }

    /// One that was granted these tasks, and has ordered them.
    fn holding(tasks: impl IntoIterator<Item = u64>) -> Self {
        let mut bench = Self::new();
        bench.grant(tasks);
        bench
    }

    fn grant(&mut self, tasks: impl IntoIterator<Item = u64>) {
        let grants = tasks.into_iter().map(|task| grant(&self.plan, task));
        let reply = SyncReply {
            grants: grants.collect(),
            ..quiet()
        };
        self.exchange(reply);
        let made = Ok(self.plan.clone());
        self.machine.handle_plan(*self.plan.spec(), made, self.now);
        self.orders();
    }

    /// The next call, when it is due.
    fn call(&mut self) -> SyncRequest {
        loop {
            if let Some(request) = self.machine.poll_call(self.now) {
                return request;
            }
            if self.machine.poll_spool(self.now).is_some() {
                self.machine.handle_spooled(true, self.now);
            }
            let next = self.machine.poll_timeout(self.now).unwrap();
            assert!(next > self.now, "nothing happens");
            self.now = next;
            self.machine.handle_timeout(self.now);
        }
    }

    fn exchange(&mut self, reply: SyncReply) -> SyncRequest {
        let request = self.call();
        self.machine.handle_reply(reply, self.now);
        request
    }

    fn orders(&mut self) -> Vec<String> {
        let told = |order| match order {
            Order::Count(work) => format!("count {}", work.lease.task.task),
            Order::Stop(lease) => format!("stop {}", lease.task.task),
            Order::MakePlan(spec) => format!("plan {}", spec.board),
        };
        std::iter::from_fn(|| self.machine.poll_order())
            .map(told)
            .collect()
    }

    fn begin(&mut self, task: u64) {
        self.machine.handle_begun(lease(&self.plan, task), self.now);
    }

    fn leave(&mut self, task: u64, outcome: Outcome) {
        let left = Left {
            work: work(&self.plan, task),
            outcome,
            duration: Duration::from_millis(1500),
            threads: NonZeroU16::MIN,
        };
        self.machine.handle_left(left, self.now);
    }

    fn count(&mut self, task: u64) {
        self.leave(task, Outcome::Counted(task + 100));
    }

    fn accept(&self, tasks: impl IntoIterator<Item = u64>) -> SyncReply {
        let of = |task| acknowledge(&lease(&self.plan, task), Verdict::Accepted);
        SyncReply {
            acknowledgements: tasks.into_iter().map(of).collect(),
            ..quiet()
        }
    }
}

/// Nothing new; call again in 10 s.
fn quiet() -> SyncReply {
    SyncReply {
        next_sync_ms: 10_000,
        lease_ms: 60_000,
        ..SyncReply::default()
    }
}

fn acknowledge(lease: &LeaseKey, verdict: Verdict) -> Acknowledgement {
    Acknowledgement {
        task: lease.task,
        epoch: lease.epoch,
        verdict,
        reason: "a reason".to_owned(),
    }
}

fn held(request: &SyncRequest) -> Vec<u64> {
    request.held.iter().map(|held| held.task.task.0).collect()
}

fn partials(request: &SyncRequest) -> Vec<u64> {
    let tasks = request.partials.iter();
    tasks.map(|partial| partial.task.task.0).collect()
}

#[test]
fn the_first_call_is_at_once_and_asks_for_work() {
    let mut bench = Bench::new();
    let start = bench.now;
    assert!(bench.machine.is_call_due(start));
    let request = bench.call();
    assert_eq!(bench.now, start);
    assert_eq!(request.worker, settings().info);
    assert!(request.seconds_wanted > 0.0 && !request.draining);
    assert_eq!((held(&request), partials(&request)), (vec![], vec![]));
    assert!(
        !bench.machine.is_call_due(start + 60 * SECOND),
        "one at a time"
    );
    assert_eq!(
        bench.machine.poll_timeout(start),
        None,
        "it waits for the answer"
    );
}

#[test]
fn granted_work_is_ordered_once_its_plan_is_made() {
    let mut bench = Bench::new();
    let reply = SyncReply {
        grants: vec![grant(&bench.plan, 3), grant(&bench.plan, 1)],
        ..quiet()
    };
    bench.exchange(reply.clone());
    assert_eq!(bench.orders(), ["plan 10"]);
    assert_eq!(bench.machine.held(), 2);
    // Repeated before the plan is made: no second order, and no hunger either.
    let request = bench.exchange(reply.clone());
    assert_eq!(request.seconds_wanted, 0.0);
    assert_eq!(held(&request), [3, 1]);
    assert!(request.held.iter().all(|held| !held.started));
    assert_eq!(bench.orders(), [""; 0]);
    let made = Ok(bench.plan.clone());
    bench
        .machine
        .handle_plan(*bench.plan.spec(), made, bench.now);
    assert_eq!(bench.orders(), ["count 3", "count 1"]);
    // And after, in each stage of its life.
    bench.begin(3);
    bench.count(3);
    bench.exchange(reply);
    assert_eq!(bench.orders(), [""; 0]);
    bench.exchange(SyncReply {
        grants: vec![grant(&bench.plan, 2)],
        ..quiet()
    });
    assert_eq!(bench.orders(), ["count 2"], "the plan is known");
    assert_eq!(bench.machine.held(), 2);
}

#[test]
fn the_inventory_is_told_with_its_progress_until_it_is_counted() {
    let mut bench = Bench::holding(0..4);
    bench.begin(2);
    let cost = work(&bench.plan, 2).cost;
    bench.machine.handle_progress(lease(&bench.plan, 2), cost);
    bench.begin(0);
    let first = bench.exchange(quiet());
    assert_eq!(held(&first), [0, 1, 2, 3]);
    let started: Vec<_> = first.held.iter().map(|held| held.started).collect();
    assert_eq!(started, [true, false, true, false]);
    assert_eq!(first.held[2].cost_done, cost);
    bench.count(0);
    let second = bench.exchange(quiet());
    assert_eq!((held(&second), partials(&second)), (vec![1, 2, 3], vec![0]));
    let expected = Partial {
        task: lease(&bench.plan, 0).task,
        epoch: Epoch(1),
        count: 100,
        kernel: KernelName::Scalar,
        orientation: common::count::Orientation::Upright,
        duration_us: 1_500_000,
    };
    assert_eq!(second.partials, [expected]);
    assert_eq!(bench.machine.summary().counted, 1);
}

#[test]
fn results_are_told_again_until_they_are_answered_for() {
    let mut bench = Bench::holding(0..3);
    (0..3).for_each(|task| bench.count(task));
    assert_eq!(partials(&bench.call()), [0, 1, 2]);
    bench.machine.handle_lost_call(0.5, bench.now);
    assert_eq!(partials(&bench.exchange(bench.accept([0, 2]))), [0, 1, 2]);
    assert_eq!(bench.machine.unacknowledged(), 1);
    assert_eq!(partials(&bench.exchange(bench.accept([1]))), [1]);
    assert_eq!(bench.machine.unacknowledged(), 0);
    assert_eq!(bench.machine.summary().accepted, 3);
}

#[test]
fn whatever_the_verdict_a_result_is_dropped_and_the_verdict_counted() {
    let mut bench = Bench::holding(0..5);
    (0..5).for_each(|task| bench.count(task));
    let verdicts = [
        Verdict::Accepted,
        Verdict::Duplicate,
        Verdict::Conflict,
        Verdict::Refused,
        Verdict::Refused,
    ];
    let answer = |(task, verdict)| acknowledge(&lease(&plan(10), task), verdict);
    bench.exchange(SyncReply {
        acknowledgements: (0..).zip(verdicts).map(answer).collect(),
        ..quiet()
    });
    let summary = bench.machine.summary();
    let told = [
        summary.accepted,
        summary.duplicates,
        summary.conflicts,
        summary.refused,
        summary.unacknowledged,
    ];
    assert_eq!(told, [1, 1, 1, 2, 0]);
}

#[test]
fn an_answer_for_something_else_drops_nothing() {
    let mut bench = Bench::holding([1]);
    bench.count(1);
    let right = lease(&bench.plan, 1);
    let other_epoch = LeaseKey {
        epoch: Epoch(8),
        ..right
    };
    let other_run = LeaseKey {
        task: TaskRef {
            run: common::run::RunId(1),
            ..right.task
        },
        ..right
    };
    let answers = [other_epoch, other_run].map(|lease| acknowledge(&lease, Verdict::Accepted));
    bench.exchange(SyncReply {
        acknowledgements: answers.to_vec(),
        ..quiet()
    });
    assert_eq!(
        (
            bench.machine.unacknowledged(),
            bench.machine.summary().accepted
        ),
        (1, 0)
    );
}

#[test]
fn many_results_travel_in_several_calls_and_their_leases_stay_held() {
    let all = limits::PARTIALS as u64 + 100;
    let mut bench = Bench::with(Settings {
        kept: Some((0..all).map(|task| sample_partial(task, 1)).collect()),
        ..settings()
    });
    let mut sizes = Vec::new();
    while bench.machine.unacknowledged() > 0 {
        let request = bench.call();
        let sent: BTreeMap<_, _> = request
            .partials
            .iter()
            .map(|p| (LeaseKey::of(p), p))
            .collect();
        for listed in &request.held {
            assert!(listed.started && listed.cost_done == 0);
            let (task, epoch) = (listed.task, listed.epoch);
            assert!(!sent.contains_key(&LeaseKey { task, epoch }));
        }
        sizes.push((request.partials.len(), request.held.len()));
        let answers = sent
            .keys()
            .map(|lease| acknowledge(lease, Verdict::Accepted));
        let reply = SyncReply {
            acknowledgements: answers.collect(),
            ..quiet()
        };
        bench.machine.handle_reply(reply, bench.now);
    }
    assert_eq!(sizes, [(limits::PARTIALS, 100), (100, 0)]);
}

#[test]
fn who_holds_as_much_as_a_message_lists_asks_for_no_more() {
    let full = limits::HELD - limits::GRANTS;
    for (kept, asks) in [(full, true), (full + 1, false)] {
        let mut bench = Bench::with(Settings {
            kept: Some(
                (0..kept as u64)
                    .map(|task| sample_partial(task, 1))
                    .collect(),
            ),
            ..settings()
        });
        assert_eq!(bench.call().seconds_wanted > 0.0, asks, "{kept}");
    }
}

#[test]
fn what_is_taken_back_is_stopped_and_not_told_any_more() {
    let mut bench = Bench::holding(0..3);
    bench.begin(0);
    let revoke = |task| Revocation {
        task: lease(&plan(10), task).task,
        epoch: Epoch(1),
        reason: "the run is cancelled".to_owned(),
    };
    let reply = SyncReply {
        revoked: vec![revoke(0), revoke(2), revoke(7)],
        ..quiet()
    };
    bench.exchange(reply);
    assert_eq!(bench.orders(), ["stop 0", "stop 2"]);
    assert_eq!(bench.machine.summary().revoked, 2);
    // Its leaving its slot is no news; a late count is welcome.
    bench.leave(2, Outcome::Cancelled);
    let before = bench.now;
    let next = bench.machine.poll_timeout(before).unwrap();
    assert!(
        next >= before + Duration::from_millis(25),
        "nobody waits to hear of it"
    );
    bench.count(0);
    let request = bench.call();
    assert_eq!((held(&request), partials(&request)), (vec![1], vec![0]));
    assert_eq!(bench.machine.summary().abandoned, 0);
}

#[test]
fn a_lease_is_taken_back_while_its_plan_is_made() {
    let mut bench = Bench::new();
    bench.exchange(SyncReply {
        grants: vec![grant(&bench.plan, 0), grant(&bench.plan, 1)],
        ..quiet()
    });
    bench.orders();
    bench.exchange(SyncReply {
        revoked: vec![Revocation {
            task: lease(&bench.plan, 0).task,
            epoch: Epoch(1),
            reason: String::new(),
        }],
        ..quiet()
    });
    assert_eq!(
        (bench.machine.summary().revoked, bench.machine.held()),
        (1, 1)
    );
    let made = Ok(bench.plan.clone());
    bench
        .machine
        .handle_plan(*bench.plan.spec(), made, bench.now);
    assert_eq!(bench.orders(), ["count 1"]);
}

#[test]
fn a_count_that_fails_gives_its_lease_back_soon() {
    let mut bench = Bench::holding(0..2);
    bench.begin(0);
    bench.leave(0, Outcome::Failed(Failure::Overflow));
    bench.leave(1, Outcome::Cancelled);
    assert_eq!(bench.machine.summary().abandoned, 2);
    let before = bench.now;
    let request = bench.exchange(quiet());
    assert!(bench.now - before <= SECOND, "{:?}", bench.now - before);
    assert_eq!(held(&request), [0; 0]);
    assert!(request.seconds_wanted > 0.0, "no reason to refuse work");
    assert_eq!(bench.orders(), [""; 0], "there is nothing left to stop");
}

#[test]
fn a_plan_that_cannot_be_counted_here_is_given_back_and_refused_for_a_minute() {
    let mut bench = Bench::holding(0..3);
    bench.begin(0);
    bench.begin(1);
    let setup = SetupError::Memory {
        given: 1 << 20,
        least: 1 << 30,
    };
    bench.leave(0, Outcome::Failed(Failure::Setup(setup)));
    assert_eq!(bench.orders(), ["stop 2"], "another slot may still succeed");
    let request = bench.exchange(quiet());
    assert_eq!(held(&request), [1]);
    assert_eq!(request.seconds_wanted, 0.0);
    let refused = bench.now;
    bench.leave(1, Outcome::Cancelled);
    loop {
        let request = bench.exchange(quiet());
        if request.seconds_wanted > 0.0 {
            break;
        }
    }
    let refusing = bench.now - refused;
    assert!(
        refusing >= 59 * SECOND && refusing <= 61 * SECOND,
        "{refusing:?}"
    );
}

#[test]
fn a_grant_of_another_plan_is_declined() {
    let mut bench = Bench::new();
    let beyond = grant(&bench.plan, bench.plan.tasks());
    bench.exchange(SyncReply {
        grants: vec![beyond],
        ..quiet()
    });
    let made = Ok(bench.plan.clone());
    bench
        .machine
        .handle_plan(*bench.plan.spec(), made, bench.now);
    assert_eq!(bench.orders(), ["plan 10"]);
    let before = bench.now;
    let request = bench.call();
    assert!(
        bench.now - before <= SECOND,
        "the coordinator hears of it soon"
    );
    assert_eq!((held(&request), request.seconds_wanted), (vec![], 0.0));
}

#[test]
fn plans_that_cannot_be_made_decline_only_their_own_grants() {
    let mut bench = Bench::new();
    let other = plan(9);
    bench.exchange(SyncReply {
        grants: vec![grant(&bench.plan, 0), grant(&other, 0), grant(&other, 1)],
        ..quiet()
    });
    assert_eq!(bench.orders(), ["plan 10", "plan 9"]);
    bench
        .machine
        .handle_plan(*other.spec(), Err("no".to_owned()), bench.now);
    assert_eq!(bench.machine.held(), 1);
    let made = Ok(bench.plan.clone());
    bench
        .machine
        .handle_plan(*bench.plan.spec(), made, bench.now);
    assert_eq!(bench.orders(), ["count 0"]);
}

#[test]
fn lost_calls_back_off_and_are_no_urgent_matter_then() {
    let mut bench = Bench::holding(0..2);
    bench.count(0);
    for (failures, seconds) in [(1, 1), (2, 2), (3, 4)] {
        bench.call();
        let wait = bench.machine.handle_lost_call(1.0, bench.now);
        assert_eq!(
            (bench.machine.failures(), wait),
            (failures, seconds * SECOND)
        );
        assert_eq!(
            bench.machine.poll_timeout(bench.now),
            Some(bench.now + wait)
        );
    }
    bench.exchange(quiet());
    assert_eq!(bench.machine.failures(), 0);
}

#[test]
fn what_was_given_up_is_told_again_after_a_lost_call() {
    let mut bench = Bench::holding(0..2);
    bench.leave(0, Outcome::Cancelled);
    assert_eq!(held(&bench.call()), [1]);
    bench.machine.handle_lost_call(0.0, bench.now);
    bench.exchange(quiet());
    let before = bench.now;
    bench.leave(1, Outcome::Cancelled);
    bench.call();
    bench.machine.handle_lost_call(0.0, bench.now);
    assert_eq!(held(&bench.call()), [0; 0]);
    assert!(
        bench.now - before < 10 * SECOND,
        "not only at the next regular call"
    );
}

#[test]
fn a_starved_worker_waits_for_the_coordinators_time() {
    let mut bench = Bench::new();
    bench.exchange(quiet());
    let before = bench.now;
    assert!(bench.call().seconds_wanted > 0.0);
    assert_eq!(bench.now - before, 10 * SECOND);
}

#[test]
fn three_panics_are_a_fault_of_the_program() {
    let mut bench = Bench::holding(0..4);
    for task in 0..3 {
        assert_eq!(bench.machine.poll_end(bench.now), None);
        assert!(!bench.call().draining);
        bench.machine.handle_reply(quiet(), bench.now);
        bench.leave(
            task,
            Outcome::Failed(Failure::Panic("at the disco".to_owned())),
        );
    }
    assert_eq!(bench.orders(), ["stop 3"]);
    let request = bench.exchange(quiet());
    assert!(request.draining);
    assert_eq!(request.seconds_wanted, 0.0);
    assert_eq!(
        bench.machine.poll_end(bench.now),
        Some(Ended::Faulty { panics: 3 })
    );
}

#[test]
fn slots_that_fail_their_canaries_are_told_and_the_last_one_ends_the_worker() {
    let mut bench = Bench::new();
    let proven = bench.now;
    bench.now += 7 * SECOND;
    bench.machine.handle_failed_canaries(proven, bench.now);
    let request = bench.exchange(quiet());
    assert!(!request.draining);
    assert_eq!(request.failed_canaries.threads, 1);
    assert_eq!(request.failed_canaries.unproven_ms, 7_000);
    bench.machine.handle_failed_canaries(bench.now, bench.now);
    let request = bench.exchange(quiet());
    assert!(request.draining);
    assert_eq!(request.failed_canaries.threads, 2);
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Unproven));
}

#[test]
fn a_failed_slot_is_not_asked_for() {
    let asks = |failed: u32| {
        let mut bench = Bench::holding(0..20);
        for task in 0..20 {
            bench.begin(task);
            bench.count(task);
        }
        (0..failed).for_each(|_| bench.machine.handle_failed_canaries(bench.now, bench.now));
        bench.grant(20..30);
        bench.call().seconds_wanted
    };
    // The same stock lasts longer for half the slots.
    assert!(asks(1) < asks(0), "{} and {}", asks(1), asks(0));
}

#[test]
fn a_worker_whose_runs_are_over_ends_after_the_idle_timeout() {
    let mut bench = Bench::holding([0]);
    bench.begin(0);
    bench.count(0);
    let over = SyncReply {
        all_runs_over: true,
        ..bench.accept([0])
    };
    bench.exchange(over.clone());
    let end = bench.now + 60 * SECOND;
    bench.machine.handle_timeout(end - SECOND);
    assert_eq!(bench.machine.poll_end(end - SECOND), None);
    while bench.now < end {
        bench.exchange(SyncReply {
            acknowledgements: Vec::new(),
            ..over.clone()
        });
        if bench.machine.poll_end(bench.now).is_some() {
            break;
        }
    }
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Idle));
    assert!(bench.now >= end, "not before its time");
}

#[test]
fn a_worker_that_holds_something_is_not_idle() {
    let mut bench = Bench::holding(0..2);
    bench.begin(0);
    bench.count(0);
    bench.exchange(SyncReply {
        all_runs_over: true,
        ..bench.accept([0])
    });
    let later = bench.now + 600 * SECOND;
    bench.machine.handle_timeout(later);
    assert_eq!(bench.machine.poll_end(later), None);
    assert!(!bench.call().draining);
}

#[test]
fn a_stop_gives_back_what_waits_finishes_what_runs_and_hands_everything_in() {
    let mut bench = Bench::holding(0..4);
    bench.begin(0);
    bench.begin(1);
    bench.count(1);
    bench.machine.handle_stop(bench.now);
    assert_eq!(bench.orders(), ["stop 2", "stop 3"]);
    assert_eq!(bench.machine.summary().abandoned, 2);
    let request = bench.exchange(bench.accept([1]));
    assert!(request.draining);
    assert_eq!((held(&request), partials(&request)), (vec![0], vec![1]));
    assert_eq!(request.seconds_wanted, 0.0);
    assert_eq!(bench.machine.poll_end(bench.now), None);
    bench.count(0);
    assert_eq!(
        bench.machine.poll_end(bench.now),
        None,
        "it is not handed in"
    );
    // What is granted now is not taken.
    bench.exchange(SyncReply {
        grants: vec![grant(&bench.plan, 5)],
        ..bench.accept([0])
    });
    assert_eq!(bench.orders(), [""; 0]);
    assert_eq!(bench.machine.poll_end(bench.now), None);
    bench.exchange(quiet());
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Told));
}

#[test]
fn a_stop_declines_what_waits_for_its_plan() {
    let mut bench = Bench::new();
    bench.exchange(SyncReply {
        grants: vec![grant(&bench.plan, 0)],
        ..quiet()
    });
    bench.orders();
    bench.machine.handle_stop(bench.now);
    assert_eq!(
        (bench.machine.held(), bench.machine.summary().abandoned),
        (0, 1)
    );
    let made = Ok(bench.plan.clone());
    bench
        .machine
        .handle_plan(*bench.plan.spec(), made, bench.now);
    assert_eq!(bench.orders(), [""; 0]);
    assert_eq!(held(&bench.exchange(quiet())), [0; 0]);
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Told));
}

#[test]
fn the_second_reason_to_stop_changes_nothing() {
    let mut bench = Bench::holding([0]);
    bench.begin(0);
    bench.machine.handle_stop(bench.now);
    let first = bench.machine.poll_timeout(bench.now);
    for _ in 0..2 {
        bench.machine.handle_failed_canaries(bench.now, bench.now);
    }
    assert_eq!(bench.machine.poll_timeout(bench.now), first);
    let limit = bench.now + LIMIT;
    assert_eq!(bench.machine.poll_end(limit), Some(Ended::Told));
}

#[test]
fn at_the_end_of_its_patience_a_stop_gives_up_what_runs() {
    let mut bench = Bench::holding([0]);
    bench.begin(0);
    let stop = bench.now;
    bench.machine.handle_stop(stop);
    bench.machine.handle_timeout(stop + 9 * SECOND);
    assert_eq!(bench.orders(), [""; 0]);
    bench.machine.handle_timeout(stop + 10 * SECOND);
    assert_eq!(bench.orders(), ["stop 0"]);
    assert_eq!(bench.machine.summary().abandoned, 1);
    bench.now = stop + 10 * SECOND;
    assert_eq!(held(&bench.exchange(quiet())), [0; 0]);
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Told));
}

#[test]
fn a_stop_wakes_at_the_end_of_its_patience_and_at_its_limit() {
    let mut bench = Bench::holding([0]);
    bench.begin(0);
    let stop = bench.now;
    bench.machine.handle_stop(stop);
    bench.call();
    assert_eq!(bench.machine.poll_timeout(stop), Some(stop + 10 * SECOND));
    let later = stop + 10 * SECOND;
    assert_eq!(bench.machine.poll_timeout(later), Some(stop + LIMIT));
}

#[test]
fn without_a_coordinator_only_what_is_safe_is_left() {
    for (kept, safe) in [(Some(Vec::new()), true), (None, false)] {
        let mut bench = Bench::with(Settings { kept, ..settings() });
        bench.grant(0..2);
        bench.count(0);
        bench.begin(1);
        bench.machine.handle_stop(bench.now);
        bench.call();
        bench.machine.handle_lost_call(0.0, bench.now);
        assert_eq!(bench.machine.poll_end(bench.now), None, "one is under way");
        bench.count(1);
        bench.call();
        bench.machine.handle_lost_call(0.0, bench.now);
        let end = bench.machine.poll_end(bench.now);
        assert_eq!(end, safe.then_some(Ended::Told));
        bench.machine.poll_last_write();
        bench.machine.handle_spooled(true, bench.now);
        assert_eq!(bench.machine.unkept(), if safe { 0 } else { 2 });
    }
}

#[test]
fn a_stop_that_gets_on_calls_again_at_once_and_one_that_does_not_waits() {
    let mut bench = Bench::holding(0..4);
    (0..4).for_each(|task| bench.count(task));
    bench.machine.handle_stop(bench.now);
    bench.exchange(bench.accept([0, 1]));
    let after_half = bench.machine.poll_timeout(bench.now).unwrap() - bench.now;
    assert_eq!(after_half, Duration::from_millis(25));
    bench.exchange(quiet());
    let after_nothing = bench.machine.poll_timeout(bench.now).unwrap() - bench.now;
    assert_eq!(after_nothing, SECOND);
}

#[test]
fn what_is_not_soon_acknowledged_goes_to_the_spool() {
    let mut bench = Bench::with(Settings {
        kept: Some(Vec::new()),
        ..settings()
    });
    bench.grant(0..2);
    bench.call();
    bench.count(0);
    let due = bench.machine.poll_timeout(bench.now).unwrap();
    assert_eq!(bench.machine.poll_spool(bench.now), None);
    let write = bench.machine.poll_spool(due).unwrap();
    assert_eq!((write.keep.len(), write.forget.len()), (1, 0));
    bench.machine.handle_spooled(true, due);
    assert_eq!(bench.machine.unkept(), 0);
    bench.count(1);
    bench.machine.handle_spool_lost();
    assert_eq!(bench.machine.unkept(), 2);
    assert_eq!(bench.machine.poll_spool(due + LIMIT), None);
}
