//! Tests of scheduling rules whose expected outcomes are calculated.

use common::{
    count::Orientation,
    messages::{
        limits,
        run::{Epoch, LeaseKey, TaskRef},
        sync::{Grant, HeldLease, Verdict},
    },
    plan::{PlanSpec, TaskId},
};

use super::{
    super::*,
    bench::{Bench, RUN},
};
use crate::{
    MapState, RecountPurpose, RunSummary, STATUS_WORKERS, WorkerState, WorkerStatus, WorkersPart,
    choosing::MAX_SCANNED,
    ledger::{OpenState, Recheck, RunManifest},
};

const OTHER: RunId = RunId(8);

/// Adds another run of the same board.
fn add(bench: &mut Bench, run: RunId, priority: i32, created_unix_ms: u64) {
    let manifest = RunManifest::new(run, bench.plan, priority, created_unix_ms);
    let run = StoredRun::new(manifest, Recheck::Millionths(0));
    bench.scheduler.add_run(run, bench.plan.clone());
}

fn call(bench: &mut Bench, id: u128) -> SyncReply {
    let request = bench.worker(id).request();
    bench.call(id, &request)
}

fn cost(bench: &Bench, grants: &[Grant]) -> u64 {
    grants.iter().map(|grant| bench.plan.task_cost(grant.lease.task.task)).sum()
}

#[test]
fn a_measured_worker_gets_the_seconds_of_work_it_wants_and_calls_when_half_are_done() {
    for (wants, seconds, next_ms) in [(2.5, 1, 1_200..=1_800), (5.0, 2, 2_400..=3_600)] {
        // The time that the worker states does not matter.
        let set = format!("1 set wants={wants} us=1");
        let wait = format!("wait {}", 2 * seconds);
        let mut bench = Bench::after(&[], &[&set, "1 sync", &wait]);
        let reply = bench.finish(1);
        assert_eq!(reply.grants.len(), 3, "no less than requested");
        let speed = bench.status().workers[0].cost_per_second;
        assert!((speed * f64::from(seconds) - 1.0).abs() < 1e-3, "{speed}");
        assert!(next_ms.contains(&reply.next_sync_ms), "{}", reply.next_sync_ms);
    }
}

#[test]
fn a_worker_of_four_times_the_speed_gets_four_times_the_work() {
    let mut bench = Bench::after(&["long"], &["1 sync", "2 sync"]);
    let before = [1, 2].map(|id| cost(&bench, &bench.workers[&id].held));
    let speeds = [1, 4].map(|factor| factor * 250_000_u64);
    let mut longest = 0;
    for task in 0..bench.plan.tasks() {
        longest = bench.plan.task_cost(TaskId(task)).max(longest);
    }
    let took_ms = [0, 1].map(|at| before[at] * 1_000 / speeds[at]);
    assert!(took_ms[1] < took_ms[0], "the fast worker finishes first");
    let mut now_ms = 0;
    for at in [1, 0] {
        let id = at as u128 + 1;
        bench.wait(took_ms[at] - now_ms);
        now_ms = took_ms[at];
        // The times are rounded down.
        let speed = before[at] * 1_000 / (now_ms + 1);
        bench.steps(&format!("{id} set wants=8"));
        let granted = bench.finish(id).grants;
        let granted = cost(&bench, &granted);
        // The worker may get one task more than it requests.
        assert!((8 * speed - 8..=8 * speed + longest).contains(&granted), "{granted} at {speed}");
    }
}

#[test]
fn runs_are_served_by_priority_then_by_preference_then_by_age() {
    let mut bench = Bench::new(&[]);
    let [urgent, younger, preferred] = [1, 2, 3].map(RunId);
    bench.scheduler.prefer(preferred);
    for (run, priority) in [(younger, 0), (urgent, 5), (preferred, 0)] {
        add(&mut bench, run, priority, 10);
    }
    let expected = [urgent, preferred, RUN, younger];
    let served = |bench: &Bench| {
        let runs = bench.scheduler.snapshot().runs();
        runs.iter().map(|run| (run.manifest.run, run.priority)).collect::<Vec<_>>()
    };
    let before = [(urgent, 5), (preferred, 0), (RUN, 0), (younger, 0)];
    assert_eq!(served(&bench), before);
    // An operator changes the priority, the store fails, and the change is undone.
    let now = Millis(bench.now);
    bench.scheduler.control(younger, Command::Priority(6), now).unwrap();
    assert_eq!(served(&bench)[0], (younger, 6));
    bench.scheduler.undo_command();
    assert_eq!(served(&bench), before);
    let mut order = Vec::new();
    for _ in 0..30 {
        bench.now += 1_000;
        order.extend(bench.finish(1).grants.iter().map(|grant| grant.lease.task.run));
    }
    order.dedup();
    assert_eq!(order, expected);
}

#[test]
fn a_run_of_higher_priority_takes_the_place_of_tasks_that_no_thread_has_started() {
    let mut bench = Bench::after(&["many"], &["1 set wants=0.004", "1 sync"]);
    let (begun, waiting) = bench.workers[&1].held.split_first().unwrap();
    let (begun, waiting) = (*begun, waiting.to_vec());
    assert!(!waiting.is_empty());
    add(&mut bench, OTHER, 5, 10);
    let held = |grant: &Grant| HeldLease {
        lease: grant.lease,
        cost_done: 0,
        started: grant.lease == begun.lease,
        failed: false,
    };
    // The worker's queue is full: it requests nothing.
    let request = SyncRequest {
        held: bench.workers[&1].held.iter().map(held).collect(),
        seconds_wanted: 0.0,
        ..bench.worker(1).request()
    };
    let reply = bench.call(1, &request);
    let revoked: Vec<_> = reply.revoked.iter().map(|gone| gone.lease).collect();
    assert_eq!(revoked, waiting.iter().map(|grant| grant.lease).collect::<Vec<_>>());
    assert!(reply.revoked[0].reason.contains("higher priority"), "{:?}", reply.revoked[0]);
    assert!(!reply.grants.is_empty(), "{reply:?}");
    assert!(reply.grants.iter().all(|grant| grant.lease.task.run == OTHER), "{reply:?}");
    // Nothing of a lower priority is left to revoke.
    let again = SyncRequest { seconds_wanted: 0.0, ..bench.worker(1).request() };
    assert_eq!(bench.call(1, &again).revoked, []);
}

#[test]
fn rechecks_that_no_thread_has_started_make_room_for_a_run_of_higher_priority() {
    let steps = ["2 names, count-all 1, 2 names", "2 set wants=600, 2 sync"];
    let mut bench = Bench::after(&["recheck all"], &steps);
    let held: Vec<_> = bench.workers[&2].held.iter().map(|grant| grant.lease).collect();
    assert!(!held.is_empty());
    add(&mut bench, OTHER, 5, 10);
    let request = bench.workers[&2].request();
    let reply = bench.call(2, &request);
    assert_eq!(reply.revoked.iter().map(|gone| gone.lease).collect::<Vec<_>>(), held);
    assert_eq!(reply.grants[0].lease.task.run, OTHER);
}

#[test]
fn the_last_tasks_of_a_run_do_not_wait_for_a_run_of_lower_priority() {
    let mut bench = Bench::new(&["many"]);
    add(&mut bench, OTHER, 5, 10);
    bench.steps("1 set wants=0.004, 2 set wants=0.004, 1 sync, 2 sync");
    let open = |bench: &Bench, run| {
        let tasks = bench.scheduler.snapshot().status(run, Millis(bench.now)).unwrap().run.tasks;
        tasks.total - tasks.done
    };
    while open(&bench, OTHER) > 0 {
        bench.now += 1_000;
        for id in [1, 2] {
            // The worker counts its oldest task and refills its queue.
            let grant = bench.worker(id).held.remove(0);
            bench.worker(id).wants = if bench.workers[&id].held.len() < 4 { 0.004 } else { 0.0 };
            let partials = vec![bench.partial(id, &grant, bench.truth(grant.lease.task.task))];
            let request = SyncRequest { partials, ..bench.worker(id).request() };
            bench.call(id, &request);
        }
        assert!(open(&bench, RUN) > 300, "the higher run waits: {} open", open(&bench, OTHER));
    }
    // Nor do its rechecks, although the worker's queue is full of other tasks.
    bench.worker(1).wants = 0.004;
    bench.steps("1 sync");
    bench.scheduler.control(OTHER, Command::Recheck(Recheck::All), Millis(bench.now)).unwrap();
    bench.worker(1).wants = 0.0;
    let request = bench.workers[&1].request();
    let reply = bench.call(1, &request);
    assert!(!request.held.is_empty() && !reply.grants.is_empty(), "{reply:?}");
    assert_eq!(reply.grants[0].lease.task.run, OTHER);
}

#[test]
fn calls_are_spread_over_time() {
    for (wants, workers, next_ms) in [
        (0.0, 1, 12_000..=18_000),
        (0.0, 10_000, 160_000..=240_000),
        (60.0, 3_000, 2_400..=3_600),
        (60.0, 501, 800..=1_200),
        (60.0, 1, 800..=1_200),
    ] {
        let mut bench = Bench::after(&[], &["pause"]);
        let mut last = SyncReply::default();
        for id in 0..workers {
            bench.worker(id).wants = wants;
            last = call(&mut bench, id);
        }
        assert_eq!(last.grants, []);
        assert!(next_ms.contains(&last.next_sync_ms), "{}", last.next_sync_ms);
        assert_eq!(last.lease_ms, if workers < 10_000 { 300_000 } else { 600_000 });
    }
}

#[test]
fn workers_that_get_nothing_in_any_case_call_at_the_regular_time() {
    let mut bench = Bench::after(&[], &["pause", "bar 2"]);
    let pausing = SyncRequest {
        draining: true,
        paused: "on battery".to_owned(),
        ..bench.worker(1).request()
    };
    let next = [bench.call(1, &pausing), call(&mut bench, 2)].map(|reply| reply.next_sync_ms);
    assert!(next.iter().all(|next_ms| (12_000..=18_000).contains(next_ms)), "{next:?}");
}

#[test]
fn a_full_reply_fits_a_message() {
    let mut bench = Bench::after(&[], &["1 set threads=4096", "1 sync"]);
    let first = bench.workers[&1].held[0];
    // The maximum number of leases and of counts, all of a deleted run.
    let foreign = |number: usize| {
        let task = TaskId(u64::MAX - number as u64);
        let task = TaskRef { run: RunId(u64::MAX), task, ..first.lease.task };
        let lease = LeaseKey { task, epoch: Epoch(u64::MAX), ..first.lease };
        bench.granted(1, lease, first.orientation)
    };
    let mut held: Vec<_> = (0..limits::HELD).map(foreign).collect();
    let grants = held[..limits::GRANTS].to_vec();
    let partial = |grant| bench.partial(1, grant, 0);
    let partials: Vec<_> = held.iter().take(limits::PARTIALS).map(partial).collect();
    let mut calls = 0;
    while !held.is_empty() {
        bench.worker(1).held = held;
        let request = SyncRequest { partials: partials.clone(), ..bench.worker(1).request() };
        let mut reply = bench.call(1, &request);
        held = std::mem::take(&mut bench.worker(1).held);
        held.retain(|grant| grant.lease.task.run != RUN);
        reply.reason = "r".repeat(limits::REASON_BYTES);
        for answer in &mut reply.acknowledgements {
            answer.reason = reply.reason.clone();
        }
        reply.grants.clone_from(&grants);
        let bytes = prost::Message::encoded_len(&proto::v1::SyncResponse::from(reply));
        assert!(bytes <= limits::MESSAGE_BYTES, "{bytes} bytes");
        calls += 1;
        assert!(calls < 10, "{} leases are still held", held.len());
    }
}

#[test]
fn revocations_beyond_the_limit_of_a_reply_come_with_the_next() {
    let mut bench = Bench::after(&[], &["1 sync", "1 set wants=0"]);
    let grant = bench.workers[&1].held[0];
    // Epochs that were never issued; all have five digits, and so all reasons have the same length.
    let epochs = (10_000..24_000).map(Epoch);
    let other = |epoch| Grant { lease: LeaseKey { epoch, ..grant.lease }, ..grant };
    let held: Vec<_> = epochs.map(other).collect();
    bench.worker(1).held = held.clone();
    let first = call(&mut bench, 1).revoked;
    let each = limits::REVOCATION_FRAME_BYTES + first[0].reason.len();
    assert_eq!(first.len(), (2 << 20) / each);
    assert!(first.iter().zip(&held).all(|(gone, grant)| gone.lease == grant.lease));
    assert_eq!(call(&mut bench, 1).revoked.len(), held.len() - first.len());
}

#[test]
fn a_lease_begins_when_it_is_granted() {
    let mut bench = Bench::new(&[]);
    bench.scheduler.advance(Millis(1_000));
    bench.now = 8_000;
    let granted = call(&mut bench, 1).grants.len();
    let changes = std::iter::from_fn(|| bench.scheduler.poll_change());
    let until = changes.filter_map(|change| match change {
        Change::Lease { after, .. } => match after.state {
            OpenState::Leased { until_unix_ms, .. } => Some(until_unix_ms),
            OpenState::Pending | OpenState::Parked => None,
        },
        _ => None,
    });
    assert_eq!(until.collect::<Vec<_>>(), vec![8_000 + Config::default().lease_ms; granted]);
}

#[test]
fn in_the_last_part_of_a_run_a_busy_thread_gets_no_second_task() {
    let mut bench = Bench::after(&["many"], &["2 sync", "1 sync"]);
    let mut ahead = 0;
    loop {
        // The worker counts its last task and requests more.
        while bench.workers[&1].held.len() > 1 {
            let first = bench.workers[&1].held[0].lease.task.task;
            bench.steps(&format!("1 submit {first}"));
        }
        let tasks = bench.run().tasks();
        let (pending, all) = (tasks.cost(Stage::Pending), tasks.total_cost());
        let granted = call(&mut bench, 1).grants.len();
        assert_eq!(granted == 0, pending * 50 < all, "{granted}: {pending} of {all}");
        if granted == 0 {
            break;
        }
        ahead += 1;
    }
    assert!(ahead > 0);
    // Of several tasks, an idle worker gets one, and a busy one none.
    assert!(bench.status().run.tasks.pending > 2);
    assert_eq!(bench.finish(1).grants.len(), 1);
    bench.steps("1 set threads=3");
    assert_eq!(call(&mut bench, 1).grants.len(), 2, "one per thread");
}

#[test]
fn a_worker_that_calls_often_holds_no_more_than_half_of_its_share() {
    let mut bench = Bench::after(&["many"], &["1 set wants=300", "1 sync", "2 sync", "wait 1"]);
    bench.finish(2);
    bench.finish(1);
    let open = bench.plan.lease_order().map(|task| bench.plan.task_cost(task)).sum::<u64>();
    for _ in 0..10 {
        bench.steps("1 sync");
    }
    let held = cost(&bench, &bench.workers[&1].held);
    assert!((open / 5..=open / 4).contains(&held), "{held} of {open}");
}

#[test]
fn counts_of_other_plans_and_runs_are_refused_and_change_nothing() {
    let mut bench = Bench::after(&[], &["1 sync", "1 set wants=0"]);
    let grant = bench.workers[&1].held[0];
    let foreign = Plan::new(PlanSpec { task_cost: 2, ..*bench.plan.spec() }).unwrap().hash();
    let [mut other_plan, mut other_run] = [grant.lease; 2];
    other_plan.task.plan = foreign;
    other_run.task.run = RunId(99);
    for (grant, reason) in [
        (other_plan, bench.plan.hash().to_string()),
        (other_plan, foreign.to_string()),
        (other_run, "no run 0000000000000063".to_owned()),
    ] {
        let grant = bench.granted(1, grant, Orientation::Upright);
        let partials = vec![bench.partial(1, &grant, 0)];
        let request = SyncRequest { partials, ..bench.worker(1).request() };
        let answers = bench.call(1, &request).acknowledgements;
        assert_eq!(answers[0].verdict, Verdict::Refused);
        assert!(answers[0].reason.contains(&reason), "{}", answers[0].reason);
        assert_eq!(bench.steps("state"), "running: 19 pending, 2 leased");
    }
}

#[test]
fn the_key_decides_which_tasks_are_selected() {
    let selected = |key| {
        let mut bench = Bench::new(&[]);
        let mut scheduler = Scheduler::new(Config::default(), 1);
        scheduler.set_key([key; 32]);
        bench.scheduler = scheduler;
        add(&mut bench, RUN, 0, 0);
        bench.steps("recheck 0.5");
        bench.steps("selected")
    };
    assert_eq!(selected(1), selected(1));
    assert_ne!(selected(1), selected(2));
}

#[test]
fn referees_recount_in_proportion_to_their_share_of_the_fleet() {
    for (own, plain, trusted, part) in [
        (1, 10, 0, 0.1),
        (2, 10, 0, 0.2),
        (2, 38, 2, 0.05 + 0.05),
        // Trusted workers recount at most a tenth.
        (3, 12, 4, 3.0 / 16.0 + 0.1),
        (1, 18, 2, 0.05 + 0.1),
    ] {
        // The run would end if no random recounts were due.
        let mut bench = Bench::after(&["elapsed 10000"], &["referee 1000", "count-all 99"]);
        bench.steps(&format!("1 set threads={plain}, 1 names"));
        if trusted > 0 {
            bench.steps(&format!("2 set threads={trusted} token=trusted trusted, 2 names"));
        }
        bench.steps(&format!("drain 99, referee {own}"));
        let rank = |task| bench.scheduler.snapshot().rank(RUN, TaskId(task)) as f64 / 2f64.powi(64);
        let tasks = (0..bench.plan.tasks()).filter(|&task| rank(task) < part);
        let mut expected: Vec<_> = tasks.map(TaskId).collect();
        expected.sort_by_key(|&task| bench.scheduler.snapshot().rank(RUN, task));
        let begun = std::iter::from_fn(|| bench.assign(false));
        let random = begun.take_while(|recount| recount.purpose == RecountPurpose::Random);
        let random: Vec<_> = random.map(|recount| recount.task).collect();
        assert_eq!(random, expected, "{own} {plain} {trusted}");
    }
}

#[test]
fn counts_that_come_faster_than_any_machine_can_make_them_are_implausible() {
    let cost = Bench::after(&["long"], &["1 sync"]).plan.task_cost(TaskId(477));
    // Twenty times as fast as the reference thread. The time that the worker states does not matter.
    let us = cost / 20;
    for (stated_us, took_ms, is_implausible) in
        [(us, us / 1_000, false), (1, us / 1_000, false), (us, us / 1_000 - 1, true)]
    {
        let mut bench = Bench::after(&["long"], &["1 sync"]);
        bench.wait(took_ms);
        bench.steps(&format!("1 set us={stated_us}, 1 submit 477, wait 400, drain 1, wait 4000"));
        let implausible = bench.status().implausible;
        assert_eq!(implausible.len(), usize::from(is_implausible), "{stated_us} us, {took_ms} ms");
    }
}

const DISPUTED: [&str; 3] = ["2 sync", "2 submit 6", "1 submit 6+1"];

#[test]
fn the_referee_counts_no_task_that_exceeds_its_memory() {
    let mut bench = Bench::after(&[], &DISPUTED);
    let least = bench.run().least_bytes();
    for (threads, bytes, lacks) in [
        (1, least - 1, Some((least, least - 1))),
        (1, 1, Some((least, 1))),
        (0, least - 1, None),
        (1, least + 1, None),
        (1, least, None),
    ] {
        bench.scheduler.set_referee(threads, bytes);
        assert_eq!(bench.scheduler.snapshot().referee_lacks(RUN), lacks);
        assert_eq!(bench.scheduler.snapshot().counts_itself(0), threads > 0 && lacks.is_none());
    }
}

#[test]
fn a_crash_between_a_count_and_the_state_that_it_changes_reopens_the_run() {
    for (state, last) in [
        (RunState::Complete, "2 submit 3+1"),
        (RunState::Contradicted, "2 submit 3+1"),
        (RunState::Disputed, "state"),
    ] {
        let mut bench = Bench::after(&[], &["count-all 1", last]);
        bench.history.push(Change::State { run: RUN, state });
        bench.restart();
        assert_eq!(bench.run().state(), RunState::Running, "{state:?}");
    }
    // A run whose result only a referee takes away.
    for (steps, after) in [
        ("count-all 1, 2 submit 3+1", RunState::Complete),
        ("count-all 1, 2 submit 3+1, recount urgent, settle 5", RunState::Running),
        ("1 sync, 1 finish", RunState::Running),
    ] {
        let mut bench = Bench::after(&["referee"], &[steps]);
        bench.history.push(Change::State { run: RUN, state: RunState::Complete });
        bench.restart();
        assert_eq!(bench.run().state(), after, "{steps}");
    }
}

#[test]
fn epochs_that_followed_a_lease_unknown_to_a_backup_are_skipped() {
    let lost = 1_000_000;
    let mut held = Bench::after(&[], &["1 set wants=0"]);
    let (grant, _) = held.count(1, &format!("6@{lost}"));
    held.worker(1).held.push(grant);
    call(&mut held, 1);
    assert!(held.run().lease(6, 1).is_some_and(|lease| lease.epoch == lost));
    let counted = Bench::after(&[], &[&format!("1 submit 6@{lost}")]);
    for bench in [held, counted] {
        assert!(bench.run().epoch(6) > lost + 1);
    }
}

#[test]
fn the_wait_for_disputes_follows_from_their_costs() {
    let mut bench = Bench::after(&["referee"], &DISPUTED);
    let seconds = bench.plan.task_cost(TaskId(6)) as f64 / crate::fleet::REFERENCE_SPEED;
    let wait = |bench: &Bench| {
        bench.scheduler.snapshot().referee_seconds(0, bench.run().tasks().disputed().keys())
    };
    assert_eq!(wait(&bench), seconds);
    bench.steps("referee 4");
    assert_eq!(wait(&bench), seconds / 4.0);
}

#[test]
fn an_unknown_run_has_no_commands_and_no_status() {
    let mut scheduler = Bench::new(&[]).scheduler;
    let none = RunId(99);
    let error = scheduler.control(none, Command::Pause, Millis(0));
    assert_eq!(error, Err(ControlError::NoSuchRun(none)));
    assert_eq!(scheduler.snapshot().status(none, Millis(0)), None);
    assert_eq!(scheduler.snapshot().solutions_so_far(none), None);
    assert_eq!(scheduler.snapshot().solutions_so_far(RUN), Some(Ok(0)));
    assert!(scheduler.snapshot().plan(none).is_none() && scheduler.snapshot().plan(RUN).is_some());
    assert_eq!(scheduler.snapshot().task_view(none, TaskId(0), Millis(0)), None);
    assert!(scheduler.snapshot().map_states(none).is_none());
}

#[test]
fn a_forgotten_run_affects_no_other() {
    let mut bench = Bench::new(&[]);
    add(&mut bench, OTHER, 0, 0);
    bench.steps("1 sync");
    for _ in 0..30 {
        bench.now += 1_000;
        bench.finish(1);
    }
    let done = |run: &RunSummary| run.tasks.done == run.tasks.total;
    assert!(bench.scheduler.snapshot().runs().iter().all(done));
    bench.scheduler.forget_run(RUN);
    assert!(bench.steps("2 names").contains("all runs finished"));
    assert_eq!(bench.scheduler.poll_finished(), Some(OTHER));
    assert_eq!(bench.scheduler.poll_finished(), None);
    let left: Vec<_> =
        bench.scheduler.snapshot().runs().iter().map(|run| run.manifest.run).collect();
    assert_eq!(left, [OTHER]);
    assert_eq!(bench.scheduler.snapshot().status(RUN, Millis(0)), None);
}

#[test]
fn a_run_waits_for_another_only_while_that_has_work() {
    let mut bench = Bench::new(&[]);
    add(&mut bench, OTHER, 0, 10);
    let reason =
        |bench: &Bench| bench.scheduler.snapshot().status(OTHER, Millis(bench.now)).unwrap().reason;
    bench.steps("1 names");
    assert_eq!(reason(&bench), format!("waiting for run {RUN} (same priority, served first)"));
    bench.scheduler.control(OTHER, Command::Priority(-1), Millis(0)).unwrap();
    assert_eq!(reason(&bench), format!("waiting for run {RUN} (higher priority)"));
    bench.scheduler.control(OTHER, Command::Pause, Millis(0)).unwrap();
    bench.steps("1 set threads=1000, 1 sync, 1 sync");
    assert_eq!(bench.status().run.tasks.pending, 0);
    bench.scheduler.control(OTHER, Command::Resume, Millis(0)).unwrap();
    assert_eq!(reason(&bench), format!("waiting for run {RUN} (its tasks were leased first)"));
    bench.steps("2 names");
    assert_eq!(reason(&bench), "", "a worker holds no task");
    bench.steps("1 set wants=0, 1 finish, recheck all");
    assert_eq!(reason(&bench), format!("waiting for run {RUN} (higher priority)"));
    // A paused run is not finished: it may be resumed.
    bench.scheduler.control(OTHER, Command::Pause, Millis(0)).unwrap();
    bench.steps("1 set wants=60, drive 1 2");
    let over = |bench: &mut Bench| bench.steps("2 names").contains("all runs finished");
    assert!(!over(&mut bench));
    bench.scheduler.control(OTHER, Command::Cancel, Millis(0)).unwrap();
    assert!(over(&mut bench));
}

#[test]
fn the_last_rechecks_wait_behind_tasks_of_other_runs() {
    let mut bench = Bench::new(&["recheck all"]);
    let reason = |bench: &Bench| bench.status().reason;
    bench.steps("2 names, count-all 1, 2 names");
    add(&mut bench, OTHER, 0, 10);
    assert_eq!(reason(&bench), "", "worker 2 makes one at its next call");
    // Worker 2 counts tasks of the other run, and then also holds a recheck that no thread has started.
    for steps in ["pause, 2 sync, wait 1, 2 finish, resume", "2 set wants=600, 2 sync"] {
        bench.steps(steps);
        let behind = "behind tasks of other runs on 1 worker";
        assert_eq!(reason(&bench), format!("every task is done; awaiting 21 rechecks, {behind}"));
    }
    assert!(bench.run().held().next().is_some());
    bench.steps("2 set started, 2 names");
    assert_eq!(reason(&bench), "");
}

#[test]
fn a_run_that_no_connected_worker_can_count_says_why() {
    let mut bench = Bench::new(&[]);
    let reason = |bench: &Bench| bench.status().reason;
    bench.steps("1 pauses night");
    assert_eq!(reason(&bench), "the only connected worker is paused");
    bench.steps("2 set memory=1, 2 sync");
    assert_eq!(
        reason(&bench),
        "none of 2 connected workers can count: each is paused or lacks memory"
    );
    bench.steps("3 names");
    assert_eq!(reason(&bench), "", "it has only just connected");
    bench.steps("3 drains");
    assert_ne!(reason(&bench), "");
}

#[test]
fn the_time_of_a_task_begins_when_a_thread_starts_it() {
    let mut bench = Bench::new(&[]);
    bench.steps("1 sync, 1 sync, wait 20, 1 set started, 1 sync, wait 3");
    let all = WorkersPart::ById { after: None, most: usize::MAX };
    let workers = bench.scheduler.snapshot().workers(&all, Millis(bench.now)).workers;
    assert_eq!(workers[0].current_task.map(|(_, took_ms)| took_ms), Some(3_000));
}

#[test]
fn a_run_that_is_added_later_is_counted_from_then_on() {
    let mut bench = Bench::new(&[]);
    bench.scheduler = Scheduler::new(Config::default(), 1);
    bench.scheduler.restored(Millis(0), 1);
    assert!(call(&mut bench, 1).reason.contains("there is no run"));
    bench.steps("1 drains, wait 600");
    add(&mut bench, RUN, 0, 0);
    bench.steps("2 sync, wait 5, 2 finish");
    assert!(bench.steps("record").ends_with("after 5000 ms"));
}

#[test]
fn workers_seen_longest_ago_are_forgotten_for_a_new_one_a_few_at_a_time() {
    let mut bench = Bench::new(&["workers 32"]);
    for id in 0..32 {
        bench.steps(&format!("{id} names, wait 1"));
    }
    let reply = call(&mut bench, 99);
    assert_eq!(reply.reason, "the coordinator's limit is 32 workers: stop some", "all are live");
    assert_eq!((reply.next_sync_ms, reply.lease_ms), (15_000, 300_000));
    bench.steps("wait 570");
    assert_eq!(call(&mut bench, 99).reason, "");
    let all = WorkersPart::ById { after: None, most: usize::MAX };
    let known = bench.scheduler.snapshot().workers(&all, Millis(bench.now)).workers;
    let known: Vec<_> = known.iter().map(|worker| worker.id.0).collect();
    // Three were forgotten (one in sixteen, plus one), and one was added.
    assert!(known.len() == 30 && known.iter().all(|id| *id > 2), "{known:?}");
}

#[test]
fn a_status_shows_workers_that_need_attention_and_counts_all() {
    let mut bench = Bench::new(&[]);
    let call_up_to = |bench: &mut Bench, most| {
        for id in 1..=most {
            bench.worker(id).wants = 0.0;
            call(bench, id);
        }
    };
    call_up_to(&mut bench, 1_000);
    bench.now = 60_000;
    call_up_to(&mut bench, 900);
    bench.steps("900 tests 2 all");
    let (status, now) = (bench.status(), Millis(bench.now));
    let totals = status.worker_totals;
    assert_eq!((totals.failing, totals.failed_threads), (1, 2));
    assert_eq!((totals.all().workers, totals.all().threads), (1_000, 1_000));
    assert_eq!(totals.of(WorkerState::Silent).workers, 100);
    assert_eq!(totals.last_call_ms_ago, Some(0));
    assert_eq!(status.workers.len(), STATUS_WORKERS);
    let silent = |worker: &WorkerStatus| worker.state == WorkerState::Silent;
    assert_eq!(status.workers[0].id, common::messages::run::WorkerId(900));
    assert!(status.workers[1..101].iter().all(silent));
    assert!(!status.workers[101..].iter().any(silent));
    // Pages by identity show each worker once, independent of changes between two pages.
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = bench.scheduler.snapshot().workers(&WorkersPart::ById { after, most: 170 }, now);
        assert_eq!(page.totals.all().workers, 1_000);
        let Some(last) = page.workers.last() else { break };
        after = Some(last.id);
        seen.extend(page.workers.iter().map(|worker| worker.id.0));
        call(&mut bench, 1);
    }
    assert!(seen.iter().copied().eq(1..=1_000), "{seen:?}");
    let shown = bench.scheduler.snapshot().workers(&WorkersPart::ByAttention(95..105), now).workers;
    assert_eq!(shown.iter().filter(|worker| silent(worker)).count(), 6);
    let none = bench.scheduler.snapshot().workers(&WorkersPart::ByAttention(2_000..2_050), now);
    assert_eq!(none.workers, []);
}

#[test]
fn the_speed_of_silent_workers_does_not_count() {
    let mut bench = Bench::new(&[]);
    bench.steps("1 sync");
    bench.steps("2 sync");
    for _ in 0..3 {
        bench.steps("wait 2, 1 finish, 2 finish");
    }
    let rate = |bench: &Bench| bench.status().solutions_per_second;
    let both = rate(&bench);
    for _ in 0..10 {
        bench.steps("wait 2, 1 sync");
    }
    let one = bench.status();
    let (silent, counting): (Vec<_>, Vec<_>) =
        one.workers.iter().partition(|worker| worker.state == WorkerState::Silent);
    assert_eq!((silent.len(), counting.len()), (1, 1));
    assert_eq!(silent[0].cost_per_second, 0.0);
    assert!(silent[0].lost_at_unix_ms.is_some() && counting[0].cost_per_second > 0.0);
    // The other worker made half of the mean over 26 s.
    let ratio = rate(&bench) / (both * 6.0 / 26.0);
    assert!(ratio > 0.3 && ratio < 0.9, "{ratio}");
}

#[test]
fn a_machine_makes_two_failed_self_tests_durable_per_hour_and_a_token_a_hundred() {
    let mut bench = Bench::new(&[]);
    bench.worker(7).wants = 0.0;
    let stored = |bench: &mut Bench, id: u128, reports: std::ops::Range<u32>| {
        // Only counts can be suspect.
        bench.steps(&format!("{id} submit 6"));
        let steps = reports.map(|failed| bench.steps(&format!("{id} tests {failed} 1000")));
        steps.filter(|outcome| outcome.contains("SelfTestFailed")).count()
    };
    bench.steps("wait 3700");
    assert_eq!(stored(&mut bench, 7, 1..200), 2);
    bench.steps("wait 3700");
    assert_eq!(stored(&mut bench, 7, 200..400), 1);
    let others: usize = (8..208)
        .map(|id| {
            bench.worker(id).wants = 0.0;
            stored(&mut bench, id, 1..4)
        })
        .sum();
    assert!((98..=100).contains(&others), "{others}");
}

#[test]
fn a_machine_without_counts_reserves_no_index_by_a_failed_self_test() {
    let mut bench = Bench::new(&[]);
    for id in 1..=20 {
        bench.worker(id).wants = 0.0;
        let outcome = bench.steps(&format!("{id} tests 1 1, workers"));
        assert!(outcome.ends_with("idle 1 failed"), "{outcome}");
        bench.steps(&format!("{id} drains, wait 700"));
    }
    // The referee remains.
    assert_eq!(bench.scheduler.workers.all().count(), 1);
}

#[test]
fn a_call_that_names_a_lease_often_ends_it_once() {
    let mut bench = Bench::after(&[], &["1 sync", "1 set wants=0"]);
    // Task 6.
    let lease = bench.workers[&1].held[0].lease;
    let named = |failed| HeldLease { lease, cost_done: 0, started: true, failed };
    for most in [1, 0] {
        let held = (0..200).map(|number| named(number % 2 == 1)).collect();
        let request = SyncRequest { held, ..bench.worker(1).request() };
        bench.call(1, &request);
        let changes: Vec<_> = std::iter::from_fn(|| bench.scheduler.poll_change()).collect();
        assert!(changes.len() < 10, "{changes:?}");
        let failures = changes
            .iter()
            .filter(|change| matches!(change, Change::Lease { event: LeaseEvent::Failed(_), .. }));
        assert_eq!(failures.count(), most);
    }
    assert_eq!(bench.run().failed(6).len(), 1);
}

#[test]
fn the_referee_lets_no_dispute_and_no_machine_wait_for_random_recounts_of_another_run() {
    let mut bench = Bench::after(&["referee"], &["1 submit 6", "2 submit 6+1", "3 submit 8"]);
    add(&mut bench, OTHER, 5, 0);
    bench.steps("3 sync, 3 finish, bar 21, bar 22, bar 23");
    let recounts: Vec<_> = std::iter::from_fn(|| bench.assign(false)).collect();
    let shown = recounts.iter().map(|of| (of.purpose, of.run, of.is_urgent));
    let expected = [
        (RecountPurpose::Dispute, RUN, true),
        (RecountPurpose::First, OTHER, false),
        (RecountPurpose::First, RUN, false),
        (RecountPurpose::Random, OTHER, false),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[test]
fn rechecks_that_a_run_ends_without_do_not_wait_for_recounts_of_another_run() {
    let settings = ["referee", "recounts 3"];
    let mut bench = Bench::after(&settings, &["1 set token=a", "2 set token=b threads=1000"]);
    bench.steps("2 names, count-all 1");
    add(&mut bench, OTHER, -1, 0);
    bench.steps("3 set token=a threads=30 lies=8, 3 sync, 3 finish");
    let assigned = |bench: &mut Bench| {
        let recount = bench.assign(true).unwrap();
        (recount.purpose, recount.run)
    };
    assert_eq!(assigned(&mut bench), (RecountPurpose::Random, OTHER));
    bench.steps("1 tests 1 3600000, wait 61");
    assert_eq!(assigned(&mut bench), (RecountPurpose::Recheck, RUN));
}

#[test]
fn the_tasks_that_a_worker_has_failed_hide_no_others() {
    let steps =
        ["1 set threads=100 wants=1e-9, 1 sync, 1 finish", "1 set started, 1 names, wait 400"];
    let mut bench = Bench::after(&["many", "referee"], &steps);
    let failed = bench.run().pending().returned().clone();
    assert!(failed.len() > MAX_SCANNED, "{failed:?}");
    // It comes back, and gives other tasks back.
    bench.steps("1 drop, 1 sync, 1 names, 1 drop, 1 names");
    let given_back = bench.run().pending().returned().difference(&failed);
    assert!(given_back.max() > failed.iter().nth(MAX_SCANNED));
    bench.drive(&["1"], true, |bench| bench.scheduler.poll_finished().is_some());
    assert_eq!(bench.total(), "total right");
}

#[test]
fn a_count_of_a_paused_run_holds_its_machine_back_from_no_other_run() {
    let mut bench = Bench::after(&[], &["50 set token=other", "50 sync", "50 submit 8"]);
    bench.steps("10 submit 6, bar 1, bar 2, bar 3");
    add(&mut bench, OTHER, 0, 0);
    assert!(call(&mut bench, 10).reason.contains("as they are checked"));
    bench.steps("pause");
    let grants = call(&mut bench, 10).grants;
    assert_eq!(grants.iter().map(|grant| grant.lease.task.run).collect::<Vec<_>>(), [OTHER]);
}

#[test]
fn every_task_has_a_state_on_the_map() {
    let steps = ["die 6 1 2 3 4 5", "6 set threads=3, 6 sync, 6 finish, 6 sync"];
    let mut bench = Bench::after(&[], &steps);
    let held: Vec<_> = bench.workers[&6].held.iter().map(|grant| grant.lease.task.task).collect();
    let [leased, done, confirmed, disputed, ..] = held[..] else { panic!("{held:?}") };
    assert_eq!(
        bench.scheduler.snapshot().task_view(RUN, leased, Millis(0)).unwrap().state,
        MapState::Leased
    );
    bench.steps("6 set started=1, 6 sync");
    bench.steps(&format!(
        "6 submit {done} {confirmed} {disputed}, 7 submit {confirmed} {disputed}+1"
    ));
    let (plan, map_states) = bench.scheduler.snapshot().map_states(RUN).unwrap();
    assert_eq!(plan.hash(), bench.plan.hash());
    assert_eq!(map_states.len() as u64, plan.tasks());
    let at = |task: u64| map_states[usize::try_from(task).unwrap()];
    for (task, state) in [
        (leased.0, MapState::Counting),
        (done.0, MapState::Done),
        (confirmed.0, MapState::Confirmed),
        (disputed.0, MapState::Disputed),
        (6, MapState::Parked),
    ] {
        assert_eq!(at(task), state);
    }
    let view = bench.scheduler.snapshot().task_view(RUN, done, Millis(0)).unwrap();
    assert_eq!(
        (view.task, view.units, view.cost),
        (done, plan.task_units(done), plan.task_cost(done))
    );
}
