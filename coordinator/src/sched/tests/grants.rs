//! How much a worker gets, and of which run.

use std::collections::BTreeSet;

use super::{super::grants::BACKUP_AFTER_MS, *};

#[test]
fn an_unknown_worker_gets_a_few_tasks_a_thread() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.info.threads = 2;
    let reply = worker.sync(&mut scheduler, 0);
    assert_eq!((reply.grants.len(), reply.reason.as_str()), (4, ""));
}

#[test]
fn a_measured_worker_gets_what_it_wants_in_seconds() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.wants = 2.5;
    worker.sync(&mut scheduler, 0);
    // It needs a second for each unit of cost, and every task here costs one.
    let slow = |worker: &Puppet, grant: &Grant| Partial {
        duration_us: 1_000_000 * TRUTH.plan.task_cost(grant.task.task),
        ..worker.partial(grant, truth(grant.task))
    };
    let request = SyncRequest {
        partials: worker
            .held
            .iter()
            .map(|grant| slow(&worker, grant))
            .collect(),
        held: Vec::new(),
        ..worker.request()
    };
    let reply = scheduler.sync(&request, Millis(4_000));
    assert_eq!(reply.grants.len(), 3, "no less than it wants");
    let speed = scheduler.workers(Millis(4_000))[0].cost_per_second;
    assert!((speed - 1.0).abs() < 1e-9, "{speed}");
    assert!(
        (1_200..=1_800).contains(&reply.next_sync_ms),
        "half way through 3 s, {}",
        reply.next_sync_ms
    );
}

#[test]
fn a_worker_of_four_times_the_speed_gets_four_times_the_work() {
    let spec = PlanSpec {
        board: Board::new(13).unwrap(),
        layout: Layout::FirstRows,
        task_cost: 1,
    };
    let plan = Plan::new(spec).unwrap();
    let costs: Vec<u64> = (0..plan.tasks())
        .map(|task| plan.task_cost(TaskId(task)))
        .collect();
    let whole: u64 = costs.iter().sum();
    let run = RunManifest {
        spec,
        plan: plan.hash(),
        plan_version: spec.version(),
        ..manifest(RUN, 0)
    };
    let mut scheduler = Scheduler::new(Config::default(), 1);
    scheduler.restored(Millis(0));
    scheduler.add_run(&run, plan, RunState::Running);
    let mut workers = [Puppet::new(1), Puppet::new(2)];
    for worker in &mut workers {
        worker.sync(&mut scheduler, 0);
        // It has been compared with others before, and gets more than first tasks.
        let known = scheduler.workers.pinned(worker.info.id);
        scheduler.workers.standing_mut(known).agreed();
    }
    let cost = |grant: &Grant| costs[usize::try_from(grant.task.task.0).unwrap()];
    // In eight seconds the fast one counts a twentieth of the run.
    let speeds = [1, 4].map(|speed| whole * speed / 4 / 160);
    let granted = [0, 1].map(|place| {
        let worker: &Puppet = &workers[place];
        let partials = worker.held.iter().map(|grant| Partial {
            duration_us: cost(grant) * 1_000_000 / speeds[place],
            ..worker.partial(grant, 0)
        });
        let request = SyncRequest {
            partials: partials.collect(),
            held: Vec::new(),
            seconds_wanted: 8.0,
            ..worker.request()
        };
        let reply = scheduler.sync(&request, Millis(8_000));
        assert!(reply.grants.len() > 4, "single tasks show no proportion");
        reply.grants.iter().map(cost).sum::<u64>()
    });
    // Each may have one task more than it wishes.
    let longest = *costs.iter().max().unwrap();
    for (granted, speed) in granted.into_iter().zip(speeds) {
        assert!(
            (8 * speed..=8 * speed + longest).contains(&granted),
            "{granted} at {speed}"
        );
    }
}

#[test]
fn a_worker_gets_nothing_that_its_memory_does_not_hold() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.info.memory_bytes_per_thread = 1 << 10;
    let reply = worker.sync(&mut scheduler, 0);
    assert!(reply.grants.is_empty(), "{:?}", reply.grants);
    assert!(reply.reason.contains("memory"), "{}", reply.reason);
    worker.info.memory_bytes_per_thread = 1 << 30;
    assert!(!worker.sync(&mut scheduler, 20_000).grants.is_empty());
}

#[test]
fn as_much_memory_as_a_run_takes_is_enough() {
    let scheduler = scheduler_of(&LONG, Recheck::Millionths(0));
    let lacks = |memory_bytes_per_thread| {
        let info = WorkerInfo {
            memory_bytes_per_thread,
            ..Puppet::new(1).info
        };
        scheduler.runs[0].lacks_memory(&info)
    };
    let least = lacks(0).unwrap();
    assert_eq!((lacks(least - 1), lacks(least)), (Some(least), None));
}

#[test]
fn nothing_is_granted_for_no_reason() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.wants = 0.0;
    assert!(worker.sync(&mut scheduler, 0).reason.contains("nothing"));
    worker.wants = f64::NAN;
    assert!(worker.sync(&mut scheduler, 0).reason.contains("nothing"));
    let mut empty = Scheduler::new(Config::default(), 0);
    let reply = Puppet::new(1).sync(&mut empty, 0);
    assert!(reply.reason.contains("no run"), "{}", reply.reason);
    assert!(reply.next_sync_ms < 15_000);
}

#[test]
fn stragglers_get_one_backup_copy_and_the_first_result_wins() {
    let mut scheduler = scheduler();
    let mut slow = Puppet::new(1);
    slow.info.threads = 100;
    slow.sync(&mut scheduler, 0);
    assert_eq!(numbers(&scheduler).pending, 0);
    let mut quick = Puppet::new(2);
    let early = quick.sync(&mut scheduler, 1_000);
    let leased = numbers(&scheduler).leased;
    let expected = format!("nothing is pending: {leased} tasks leased");
    assert_eq!(early.reason, expected);
    assert!(early.next_sync_ms <= 1_200, "{}", early.next_sync_ms);
    quick.sync(&mut scheduler, 20_000);
    assert_eq!(quick.held.len(), 1);
    let copied = quick.held[0].task;
    let mut third = Puppet::new(3);
    third.sync(&mut scheduler, 21_000);
    assert_ne!(
        third.held[0].task, copied,
        "two copies of a task are enough"
    );
    scheduler.audit().unwrap();
    quick.wants = 0.0;
    quick.finish(&mut scheduler, 22_000);
    let reply = slow.sync(&mut scheduler, 23_000);
    assert_eq!(reply.revoked[0].task, copied);
    drive(&mut scheduler, &mut [slow, quick, third], 24_000);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn the_last_tasks_go_out_one_a_thread() {
    let mut scheduler = scheduler();
    let mut workers = [Puppet::new(1), Puppet::new(2)];
    let mut now = 0;
    for worker in &mut workers {
        worker.sync(&mut scheduler, now);
    }
    while scheduler.poll_finished().is_none() {
        for worker in &mut workers {
            now += 1_000;
            let pending = numbers(&scheduler).pending;
            let reply = worker.finish(&mut scheduler, now);
            let most = (pending / 2).max(1);
            assert!(
                reply.grants.len() as u64 <= most,
                "{} of {pending}",
                reply.grants.len()
            );
        }
    }
}

#[test]
fn the_higher_priority_is_served_first_then_the_older_run() {
    let mut scheduler = scheduler();
    let (urgent, younger) = (RunId(1), RunId(2));
    for (run, priority) in [(younger, 0), (urgent, 5)] {
        let manifest = RunManifest {
            created_unix_ms: 10,
            ..manifest(run, priority)
        };
        scheduler.add_run(&manifest, TRUTH.plan.clone(), RunState::Running);
    }
    for run in [RUN, urgent, younger] {
        scheduler.restore_recheck(run, Recheck::Millionths(0));
    }
    let served: Vec<_> = scheduler
        .runs()
        .iter()
        .map(|run| run.manifest.run)
        .collect();
    assert_eq!(served, [urgent, RUN, younger]);
    let mut worker = Puppet::new(1);
    let mut order = Vec::new();
    for round in 0..2_000 {
        let reply = worker.finish(&mut scheduler, round * 1_000);
        for grant in reply.grants {
            if order.last() != Some(&grant.task.run) {
                order.push(grant.task.run);
            }
        }
    }
    assert_eq!(order, [urgent, RUN, younger]);
}

#[test]
fn the_preferred_run_goes_before_older_ones_but_not_before_urgent_ones() {
    let mut scheduler = scheduler();
    let (urgent, preferred) = (RunId(1), RunId(2));
    scheduler.prefer(preferred);
    for (run, priority) in [(preferred, 0), (urgent, 5)] {
        scheduler.add_run(
            &manifest(run, priority),
            TRUTH.plan.clone(),
            RunState::Running,
        );
    }
    let served: Vec<_> = scheduler
        .runs()
        .iter()
        .map(|run| run.manifest.run)
        .collect();
    assert_eq!(served, [urgent, preferred, RUN]);
}

#[test]
fn everything_in_a_message_is_bounded() {
    let mut scheduler = scheduler_with(Config {
        grants_per_sync: 3,
        leases_per_worker: 5,
        workers: 2,
        ..Config::default()
    });
    let mut greedy = Puppet::new(1);
    greedy.info.threads = 1_000;
    assert_eq!(greedy.sync(&mut scheduler, 0).grants.len(), 3);
    assert_eq!(greedy.sync(&mut scheduler, 1_000).grants.len(), 2);
    let full = greedy.sync(&mut scheduler, 2_000);
    assert!(full.reason.contains("the most allowed"), "{}", full.reason);
    Puppet::new(2).sync(&mut scheduler, 3_000);
    let third = Puppet::new(3).sync(&mut scheduler, 4_000);
    assert!(third.reason.contains("known already"), "{}", third.reason);
    // Workers lost long ago make room.
    for minute in 1..=6 {
        greedy.sync(&mut scheduler, minute * 60_000);
    }
    let third = Puppet::new(3).sync(&mut scheduler, 361_000);
    assert!(!third.reason.contains("known already"), "{}", third.reason);
    let ids: BTreeSet<_> = scheduler
        .workers(Millis(0))
        .iter()
        .map(|worker| worker.info.id)
        .collect();
    assert_eq!(ids, BTreeSet::from([WorkerId(1), WorkerId(3)]));
}

#[test]
fn thousands_of_workers_are_spread_over_time() {
    let mut scheduler = scheduler();
    let mut last = SyncReply::default();
    for id in 0..10_000 {
        let mut worker = Puppet::new(id);
        worker.wants = 0.0;
        last = worker.sync(&mut scheduler, 0);
    }
    assert!(
        (160_000..=240_000).contains(&last.next_sync_ms),
        "{}",
        last.next_sync_ms
    );
    assert!(last.lease_ms >= 600_000, "{}", last.lease_ms);
}

#[test]
fn idle_threads_of_thousands_of_workers_are_spread_too() {
    let mut scheduler = scheduler();
    scheduler.control(RUN, Command::Pause, Millis(0)).unwrap();
    let mut last = SyncReply::default();
    for id in 0..3_000 {
        last = Puppet::new(id).sync(&mut scheduler, 0);
    }
    assert!(last.grants.is_empty());
    assert!(
        (2_400..=3_600).contains(&last.next_sync_ms),
        "{}",
        last.next_sync_ms
    );
}

#[test]
fn a_full_reply_fits_a_message() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.info.threads = 4_096;
    let first = worker.sync(&mut scheduler, 0).grants[0];
    // Every lease there may be, of a run that the coordinator no longer has; and as many counts.
    let foreign = |number: usize| Grant {
        task: TaskRef {
            run: RunId(u64::MAX),
            task: TaskId(u64::MAX - number as u64),
            ..first.task
        },
        epoch: Epoch(u64::MAX),
        ..first
    };
    worker.held = (0..proto::limits::HELD).map(foreign).collect();
    let mut partials: Vec<_> = worker
        .held
        .iter()
        .map(|grant| worker.partial(grant, 0))
        .collect();
    partials.truncate(proto::limits::PARTIALS);
    let mut calls = 0;
    while !worker.held.is_empty() {
        let request = SyncRequest {
            partials: partials.clone(),
            ..worker.request()
        };
        let mut reply = scheduler.sync(&request, Millis(1_000 + calls));
        worker.take(&reply);
        worker.held.retain(|grant| grant.task.run != RUN);
        reply.reason = "r".repeat(proto::limits::REASON_BYTES);
        for answer in &mut reply.acknowledgements {
            answer.reason = reply.reason.clone();
        }
        let grant = Grant {
            spec: *TRUTH.plan.spec(),
            ..foreign(0)
        };
        reply.grants = vec![grant; proto::limits::GRANTS];
        let bytes = prost::Message::encoded_len(&proto::v1::SyncResponse::from(reply));
        assert!(bytes <= proto::limits::MESSAGE_BYTES, "{bytes} bytes");
        calls += 1;
        assert!(
            calls < 10,
            "{} leases are still not told",
            worker.held.len()
        );
    }
}

#[test]
fn what_is_sent_again_is_part_of_what_is_wanted() {
    let mut scheduler = scheduler_of(&LONG, Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    // As fast as the reference machine.
    let counted = |worker: &Puppet, grant: &Grant| Partial {
        duration_us: LONG.task_cost(grant.task.task),
        ..worker.partial(grant, 0)
    };
    let held = std::mem::take(&mut worker.held);
    worker.wants = 1.0;
    let request = SyncRequest {
        partials: held.iter().map(|grant| counted(&worker, grant)).collect(),
        ..worker.request()
    };
    let first = scheduler.sync(&request, Millis(1_000)).grants;
    let costs = first.iter().map(|grant| LONG.task_cost(grant.task.task));
    assert!(costs.sum::<u64>() >= 1_000_000);
    let again = scheduler.sync(&worker.request(), Millis(2_000)).grants;
    let tasks =
        |grants: &[Grant]| -> BTreeSet<_> { grants.iter().map(|grant| grant.task.task).collect() };
    assert!(first.len() > 1);
    assert_eq!(tasks(&again), tasks(&first), "the answer was lost");
}

#[test]
fn a_worker_of_unknown_speed_is_taken_for_the_reference_machine() {
    let mut scheduler = scheduler_of(&LONG, Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    (worker.info.threads, worker.wants) = (4, 0.4);
    let grants = worker.sync(&mut scheduler, 0).grants;
    let costs: Vec<_> = grants
        .iter()
        .map(|grant| LONG.task_cost(grant.task.task))
        .collect();
    let (last, others) = costs.split_last().unwrap();
    let before: u64 = others.iter().sum();
    assert!(
        before < 1_600_000 && before + last >= 1_600_000,
        "{costs:?}"
    );
    // The answer was lost: that is no reason to give it more.
    worker.held.clear();
    let again = worker.sync(&mut scheduler, 1_000).grants;
    assert_eq!(again.len(), grants.len());
}

/// A worker's next call, with the count of the first task that it holds.
fn finish_one(scheduler: &mut Scheduler, worker: &mut Puppet) -> SyncReply {
    let done = worker.held.remove(0);
    let count = MANY.counts[usize::try_from(done.task.task.0).unwrap()];
    let request = SyncRequest {
        partials: vec![worker.partial(&done, count)],
        ..worker.request()
    };
    let reply = scheduler.sync(&request, Millis(1_000));
    worker.take(&reply);
    scheduler.audit().unwrap();
    reply
}

#[test]
fn who_waits_for_its_first_comparison_holds_two_tasks_a_thread() {
    // (first counts are compared, one was, another machine is there), and whether it holds little
    for (recheck, was_compared, has_other, holds_little) in [
        (Recheck::Auto, false, true, true),
        (Recheck::Auto, true, true, false),
        (Recheck::Auto, false, false, false),
        (Recheck::Millionths(0), false, true, false),
    ] {
        let mut scheduler = scheduler_of(&MANY.plan, recheck);
        let mut worker = Puppet::new(1);
        worker.info.threads = 2;
        worker.wants = 1e9;
        if has_other {
            Puppet::new(2).say_nothing(&mut scheduler);
        }
        worker.sync(&mut scheduler, 0);
        assert_eq!(worker.held.len(), 4, "its speed is unknown");
        if was_compared {
            let known = scheduler.workers.pinned(worker.info.id);
            scheduler.workers.standing_mut(known).agreed();
        }
        for _ in 0..3 {
            let granted = finish_one(&mut scheduler, &mut worker).grants.len();
            let case = (recheck, was_compared, has_other);
            if holds_little {
                assert_eq!((granted, worker.held.len()), (1, 4), "{case:?}");
            } else {
                assert!(worker.held.len() > 8, "{case:?}: {granted}");
            }
        }
    }
}

#[test]
fn in_the_last_part_of_a_run_a_busy_thread_gets_nothing_ahead() {
    let mut scheduler = scheduler_of(&MANY.plan, Recheck::Millionths(0));
    let mut other = Puppet::new(2);
    other.sync(&mut scheduler, 0);
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    let costs = |scheduler: &Scheduler| {
        let tasks = scheduler.runs[0].tasks();
        (tasks.cost(tasks::Stage::Pending), tasks.cost_of_all())
    };
    let mut ahead = 0;
    loop {
        // It works on its last one, and calls for more.
        while worker.held.len() > 1 {
            let done = worker.held.remove(0);
            let count = MANY.counts[usize::try_from(done.task.task.0).unwrap()];
            worker.say(&mut scheduler, &done, count);
        }
        let (pending, all) = costs(&scheduler);
        let reply = worker.sync(&mut scheduler, 1_000);
        if pending * 50 < all {
            assert_eq!(reply.grants, [], "{pending} of {all}");
            break;
        }
        assert!(!reply.grants.is_empty(), "{pending} of {all}");
        ahead += 1;
    }
    assert!(ahead > 0);
    // An idle one gets a single task of several, a busy one beside it none.
    assert!(numbers(&scheduler).pending > 2);
    assert_eq!(finish_one(&mut scheduler, &mut worker).grants.len(), 1);
    worker.info.threads = 3;
    let reply = worker.sync(&mut scheduler, 1_000);
    assert_eq!(reply.grants.len(), 2, "one a thread");
    scheduler.audit().unwrap();
}

#[test]
fn what_another_could_count_again_is_turned_by_lot_and_nothing_else_is() {
    for others in [false, true] {
        let mut scheduler = scheduler_of(&MANY.plan, Recheck::Auto);
        if others {
            Puppet::new(2).say_nothing(&mut scheduler);
        }
        let mut worker = Puppet::new(1);
        worker.info.threads = 100;
        worker.sync(&mut scheduler, 0);
        let mut turned = 0;
        for grant in &worker.held {
            let (task, before) = (grant.task.task, grant.epoch.0 - 1);
            let is_turned = grant.orientation == Orientation::Turned;
            assert_eq!(
                is_turned,
                others && scheduler.draw.turned(RUN, task, before)
            );
            turned += usize::from(is_turned);
        }
        assert!(worker.held.len() > 100, "{}", worker.held.len());
        assert_eq!(turned > 0, others, "{turned}");
    }
}

#[test]
fn where_others_count_too_no_thread_stays_idle_however_little_is_wanted() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    Puppet::new(2).say_nothing(&mut scheduler);
    let mut worker = Puppet::new(1);
    worker.info.threads = 4;
    worker.sync(&mut scheduler, 0);
    worker.wants = 1e-6;
    let reply = worker.finish(&mut scheduler, 1_000);
    assert_eq!(reply.grants.len(), 4);
}

#[test]
fn copies_are_found_behind_all_that_a_worker_holds_itself() {
    let mut scheduler = scheduler_of(&MANY.plan, Recheck::Millionths(0));
    let mut first = Puppet::new(1);
    first.sync(&mut scheduler, 0);
    let mut second = Puppet::new(2);
    second.info.threads = 1_000;
    for _ in 0..9 {
        second.sync(&mut scheduler, 0);
    }
    assert_eq!(numbers(&scheduler).pending, 0);
    let copies = second.sync(&mut scheduler, BACKUP_AFTER_MS).grants;
    let tasks =
        |grants: &[Grant]| -> BTreeSet<_> { grants.iter().map(|grant| grant.task.task).collect() };
    assert_eq!(tasks(&copies), tasks(&first.held));
}
