//! What is shown of workers that come, fall silent, leave and are forgotten.

use super::*;

fn state(scheduler: &mut Scheduler, now: u64) -> Option<WorkerState> {
    scheduler.advance(Millis(now));
    let workers = scheduler.workers(Millis(now));
    workers.first().map(|worker| worker.state)
}

/// The state at a time, with nothing else happening on the way there.
fn state_after(scheduler: &mut Scheduler, (from, to): (u64, u64)) -> Option<WorkerState> {
    let mut now = from;
    while now < to {
        now = scheduler
            .next_timeout()
            .map_or(to, |at| at.0.clamp(now + 1, to));
        scheduler.advance(Millis(now));
    }
    state(scheduler, to)
}

#[test]
fn a_killed_worker_is_silent_then_lost_then_forgotten() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    let reply = worker.sync(&mut scheduler, 0);
    let due = reply.next_sync_ms;
    assert_eq!(state(&mut scheduler, due), Some(WorkerState::Working));
    // Another takes over what it held: it does not look idle for that.
    let mut other = Puppet::new(2);
    for second in 1..60 {
        other.finish(&mut scheduler, due + second * 1_000);
    }
    let mut now = due + 60_000;
    assert_eq!(state(&mut scheduler, now), Some(WorkerState::Silent));
    now = 310_000;
    assert_eq!(
        state_after(&mut scheduler, (due + 60_000, now)),
        Some(WorkerState::Lost)
    );
    let lost = &scheduler.workers(Millis(now))[0];
    assert_eq!((lost.last_seen_ms_ago, lost.leases), (now, 0));
    let of_run = scheduler.status(RUN, Millis(now)).unwrap().workers;
    assert!(of_run.iter().all(|worker| worker.info.id != WorkerId(1)));
    let hours = 5 * 3_600_000;
    state_after(&mut scheduler, (now, hours));
    assert_eq!(scheduler.workers(Millis(hours)), []);
    assert_eq!(scheduler.next_timeout(), None);
    scheduler.audit().unwrap();
}

#[test]
fn a_drained_worker_has_left_and_is_forgotten() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    let drain = |worker: &Puppet| SyncRequest {
        draining: true,
        ..worker.request()
    };
    scheduler.sync(&drain(&worker), Millis(1_000));
    assert_eq!(state(&mut scheduler, 1_000), Some(WorkerState::Draining));
    let partials = worker.held.iter();
    let last = SyncRequest {
        partials: partials
            .map(|grant| worker.partial(grant, truth(grant.task)))
            .collect(),
        held: Vec::new(),
        ..drain(&worker)
    };
    let reply = scheduler.sync(&last, Millis(2_000));
    assert_eq!(reply.acknowledgements.len(), last.partials.len());
    assert_eq!(state(&mut scheduler, 2_000), Some(WorkerState::Left));
    assert_eq!(scheduler.status(RUN, Millis(2_000)).unwrap().workers, []);
    // Its last answer was lost: it asks again, and goes again.
    scheduler.sync(&last, Millis(4_000));
    assert_eq!(state(&mut scheduler, 4_000), Some(WorkerState::Left));
    let hour = 3_600_000;
    assert_eq!(state_after(&mut scheduler, (4_000, hour)), None);
    scheduler.audit().unwrap();
    // It may come back at any time.
    worker.held.clear();
    worker.sync(&mut scheduler, hour);
    assert_eq!(state(&mut scheduler, hour), Some(WorkerState::Working));
    drive(&mut scheduler, &mut [worker], hour);
}

#[test]
fn a_worker_killed_while_it_drains_does_not_drain_for_ever() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    let request = SyncRequest {
        draining: true,
        ..worker.request()
    };
    scheduler.sync(&request, Millis(1_000));
    assert_eq!(
        state_after(&mut scheduler, (1_000, 90_000)),
        Some(WorkerState::Silent)
    );
    assert_eq!(
        state_after(&mut scheduler, (90_000, 400_000)),
        Some(WorkerState::Lost)
    );
}

#[test]
fn workers_hear_when_every_run_is_over() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    let mut idler = Puppet::new(2);
    assert!(!worker.sync(&mut scheduler, 0).all_runs_over);
    let mut now = 0;
    let over = loop {
        now += 1_000;
        let reply = worker.finish(&mut scheduler, now);
        let all_done = numbers(&scheduler).done == numbers(&scheduler).total;
        assert_eq!(reply.all_runs_over, all_done);
        if all_done {
            break reply;
        }
    };
    assert_eq!(over.grants, []);
    assert!(idler.sync(&mut scheduler, now).all_runs_over);
    assert_eq!(over.reason, "every task is counted");
    scheduler.conclude(RUN, true);
    let over = idler.sync(&mut scheduler, now);
    assert!(over.all_runs_over);
    assert_eq!(over.reason, "every run is over: submit one with queensctl");
    // A paused run may go on.
    let next = RunId(RUN.0 + 1);
    scheduler.add_run(&manifest(next, 0), TRUTH.plan.clone(), RunState::Paused);
    assert!(!idler.sync(&mut scheduler, now).all_runs_over);
    scheduler
        .control(next, Command::Cancel, Millis(now))
        .unwrap();
    assert!(idler.sync(&mut scheduler, now).all_runs_over);
}

#[test]
fn threads_that_failed_their_canaries_are_shown() {
    let mut scheduler = scheduler();
    let worker = Puppet::new(1);
    let request = SyncRequest {
        failed_canaries: FailedCanaries {
            threads: 2,
            unproven_ms: 5_000,
            passed: 0,
        },
        ..worker.request()
    };
    scheduler.sync(&request, Millis(0));
    assert_eq!(scheduler.workers(Millis(0))[0].failed_threads, 2);
}

#[test]
fn a_pause_counts_against_nobody() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.started = true;
    let mut now = 0;
    // As often as a laptop's cable comes and goes: more often than any task may fail.
    for _ in 0..20 {
        worker.sync(&mut scheduler, now);
        assert!(!worker.held.is_empty(), "it gets work after every pause");
        worker.sync(&mut scheduler, now + 1_000);
        worker.held.clear();
        let pause = SyncRequest {
            draining: true,
            paused: "on battery".to_owned(),
            seconds_wanted: 0.0,
            ..worker.request()
        };
        let reply = scheduler.sync(&pause, Millis(now + 2_000));
        assert_eq!(reply.reason, "the worker pauses: on battery");
        assert_eq!(
            state(&mut scheduler, now + 2_000),
            Some(WorkerState::Paused)
        );
        now += 10_000;
    }
    let shown = &scheduler.workers(Millis(now))[0];
    assert_eq!((shown.leases, shown.paused.as_str()), (0, "on battery"));
    let status = scheduler.status(RUN, Millis(now)).unwrap();
    assert_eq!((status.tasks.leased, status.tasks.parked), (0, 0));
    scheduler.audit().unwrap();
}

#[test]
fn whom_an_operator_has_stop_is_told_until_it_starts_again() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    let name = worker.info.id;
    assert!(!scheduler.drain(name), "nobody knows it");
    worker.sync(&mut scheduler, 0);
    assert!(scheduler.drain(name));
    assert_eq!(state(&mut scheduler, 500), Some(WorkerState::Draining));
    let granted = worker.held.len();
    for call in 1..3 {
        // One that does not know the word goes on with what it has, and gets no more.
        worker.wants = 1e6;
        let reply = worker.sync(&mut scheduler, call * 1_000);
        assert!(reply.drain && reply.grants.is_empty(), "{reply:?}");
        assert!(reply.reason.contains("operator"), "{}", reply.reason);
        assert_eq!(worker.held.len(), granted);
    }
    worker.held.clear();
    let last = SyncRequest {
        draining: true,
        ..worker.request()
    };
    scheduler.sync(&last, Millis(3_000));
    assert_eq!(state(&mut scheduler, 3_000), Some(WorkerState::Left));
    assert!(!scheduler.drain(name), "it has left");
    worker.info.session = SessionId(77);
    let reply = worker.sync(&mut scheduler, 4_000);
    assert!(!reply.drain && !reply.grants.is_empty(), "{reply:?}");
    scheduler.audit().unwrap();
}

#[test]
fn who_was_seen_longest_ago_is_forgotten_for_a_new_one_a_few_at_a_time() {
    let config = Config {
        workers: 32,
        ..Config::default()
    };
    let mut scheduler = scheduler_with(config);
    for id in 0..32 {
        let worker = Puppet {
            wants: 0.0,
            ..Puppet::new(id)
        };
        scheduler.sync(
            &worker.request(),
            Millis(u64::try_from(id).unwrap() * 1_000),
        );
    }
    let mut newcomer = Puppet::new(99);
    let reply = newcomer.sync(&mut scheduler, 40_000);
    assert_eq!(reply.reason, "32 workers are known already", "all are live");
    assert_eq!((reply.next_sync_ms, reply.lease_ms), (15_000, 300_000));
    let now = 600_000;
    state_after(&mut scheduler, (40_000, now));
    newcomer.sync(&mut scheduler, now);
    let known: Vec<_> = scheduler
        .workers(Millis(now))
        .iter()
        .map(|worker| worker.info.id.0)
        .collect();
    // One in sixteen, and one more.
    assert_eq!(known.len(), 30, "{known:?}");
    assert!(known.iter().all(|id| *id > 2), "{known:?}");
    scheduler.audit().unwrap();
}

#[test]
fn an_earlier_process_takes_over_only_from_one_that_has_missed_two_calls() {
    for (silent_ms, taken) in [(30_000, false), (30_001, true)] {
        let mut scheduler = scheduler();
        let [mut earlier, mut later] = [1, 1].map(Puppet::new);
        later.info.session = SessionId(2);
        earlier.sync(&mut scheduler, 0);
        later.sync(&mut scheduler, 1_000);
        let reply = earlier.sync(&mut scheduler, 1_000 + silent_ms);
        let told = reply.reason.starts_with("a later process");
        assert_eq!(!told, taken, "{silent_ms}: {}", reply.reason);
    }
}

#[test]
fn who_gets_nothing_hears_what_the_run_waits_for() {
    let mut scheduler = rechecked(Recheck::All);
    let mut worker = Puppet::new(1);
    // Its counts wait for another machine, which is there.
    Puppet::new(2).say_nothing(&mut scheduler);
    let mut round = 0;
    let reply = loop {
        let reply = worker.finish(&mut scheduler, round);
        round += 1;
        if reply.grants.is_empty() {
            break reply;
        }
    };
    let tasks = TRUTH.plan.tasks();
    assert_eq!(numbers(&scheduler).done, tasks);
    assert_eq!(
        reply.reason,
        format!("nothing is pending: {tasks} tasks to be counted a second time")
    );
}

#[test]
fn the_number_of_who_counted_names_nobody_else_however_long_it_is_gone() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    let grant = worker.held[0];
    worker.say(&mut scheduler, &grant, truth(grant.task));
    let hours = 5 * 3_600_000;
    assert_eq!(state_after(&mut scheduler, (0, hours)), None);
    Puppet::new(2).say_nothing(&mut scheduler);
    let seen = scheduler.task_view(RUN, grant.task.task).unwrap();
    assert_eq!(seen.workers, ["worker 00000000"]);
}

#[test]
fn who_was_ever_wrong_is_not_forgotten() {
    let mut scheduler = scheduler();
    let worker = Puppet::new(1);
    worker.say_nothing(&mut scheduler);
    scheduler.restore_distrust(worker.info.id, false);
    let hours = 5 * 3_600_000;
    let state = state_after(&mut scheduler, (0, hours));
    assert_eq!(state, Some(WorkerState::Lost));
}

#[test]
fn who_moves_to_another_machine_takes_nothing_from_who_stays() {
    let mut scheduler = scheduler();
    let [mut moves, stays] = [1, 2].map(|id| {
        let mut worker = Puppet::new(id);
        worker.info.machine = 5;
        worker
    });
    for worker in [&moves, &stays] {
        worker.say_nothing(&mut scheduler);
    }
    let [mover, stayer] = [&moves, &stays].map(|worker| scheduler.workers.pinned(worker.info.id));
    for _ in 0..3 {
        scheduler.workers.standing_mut(stayer).agreed();
    }
    assert!(scheduler.workers.is_known(mover) && scheduler.workers.is_known(stayer));
    moves.info.machine = 6;
    moves.say_nothing(&mut scheduler);
    assert!(!scheduler.workers.is_known(mover) && scheduler.workers.is_known(stayer));
    let principals = [mover, stayer].map(|worker| scheduler.workers.principal(worker).machine());
    assert_eq!(principals, [Some(6), Some(5)]);
}

#[test]
fn second_counts_that_nobody_has_begun_are_work_that_waits() {
    let mut scheduler = rechecked(Recheck::All);
    let [mut first, mut second] = [1, 2].map(Puppet::new);
    second.say_nothing(&mut scheduler);
    for round in 0..TRUTH.plan.tasks() {
        first.finish(&mut scheduler, round);
    }
    assert_eq!(numbers(&scheduler).done, TRUTH.plan.tasks());
    assert!(scheduler.runs[0].has_waiting());
    while scheduler.poll_finished().is_none() {
        second.finish(&mut scheduler, 1_000);
    }
    assert!(!scheduler.runs[0].has_waiting());
}
