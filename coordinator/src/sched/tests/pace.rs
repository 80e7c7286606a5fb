//! When a worker shall call again, and what it is told where it gets nothing.

use super::*;

fn paused() -> Scheduler {
    let mut scheduler = scheduler();
    let paused = scheduler.control(RUN, Command::Pause, Millis(0));
    assert_eq!(paused, Ok(RunState::Paused));
    scheduler
}

#[test]
fn who_found_nothing_calls_again_soon_though_hundreds_do() {
    let mut scheduler = paused();
    for id in 1..=500 {
        Puppet::new(id).say_nothing(&mut scheduler);
    }
    let reply = Puppet::new(501).sync(&mut scheduler, 0);
    assert!(
        (800..=1_200).contains(&reply.next_sync_ms),
        "{}",
        reply.next_sync_ms
    );
}

#[test]
fn who_gets_nothing_whatever_comes_calls_at_the_regular_time() {
    let regular = 12_000..=18_000;
    let mut scheduler = paused();
    let pausing = SyncRequest {
        draining: true,
        paused: "on battery".to_owned(),
        ..Puppet::new(1).request()
    };
    let reply = scheduler.sync(&pausing, Millis(0));
    assert!(regular.contains(&reply.next_sync_ms), "{reply:?}");
    let mut barred = Puppet::new(2);
    scheduler.restore_distrust(barred.info.id, true);
    let reply = barred.sync(&mut scheduler, 0);
    assert!(regular.contains(&reply.next_sync_ms), "{reply:?}");
}

#[test]
fn who_is_slow_calls_when_half_of_its_work_is_done() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.wants = 5.0;
    worker.sync(&mut scheduler, 0);
    // It needs two seconds for each unit of cost, and every task here costs one.
    let partials = worker.held.iter().map(|grant| Partial {
        duration_us: 2_000_000,
        ..worker.partial(grant, truth(grant.task))
    });
    let request = SyncRequest {
        partials: partials.collect(),
        held: Vec::new(),
        ..worker.request()
    };
    let reply = scheduler.sync(&request, Millis(4_000));
    assert_eq!(reply.grants.len(), 3);
    assert!(
        (2_400..=3_600).contains(&reply.next_sync_ms),
        "half way through 6 s, {}",
        reply.next_sync_ms
    );
}

#[test]
fn who_gave_back_tasks_of_a_run_that_is_paused_by_now_hears_that_it_is() {
    let mut scheduler = scheduler();
    let refuser = Puppet::new(1);
    let mut now = 0;
    loop {
        let reply = scheduler.sync(&refuser.request(), Millis(now));
        now += 1_000;
        if reply.grants.is_empty() {
            assert!(reply.reason.contains("unworked"), "{}", reply.reason);
            break;
        }
    }
    scheduler.control(RUN, Command::Pause, Millis(now)).unwrap();
    let reply = scheduler.sync(&refuser.request(), Millis(now));
    assert_eq!(reply.reason, format!("run {RUN} is paused"));
}

#[test]
fn a_worker_is_silent_once_it_is_late_whenever_it_called() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    let called = 1_000_000;
    let due = called + worker.sync(&mut scheduler, called).next_sync_ms;
    for (at, state) in [
        (due, WorkerState::Working),
        (due + 60_000, WorkerState::Silent),
    ] {
        scheduler.advance(Millis(at));
        assert_eq!(scheduler.workers(Millis(at))[0].state, state, "{at}");
    }
}

#[test]
fn what_is_under_way_is_part_of_what_is_done() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    let [counted, begun] = worker.held[..] else {
        panic!("{:?}", worker.held);
    };
    worker.say(&mut scheduler, &counted, truth(counted.task));
    let held = HeldLease {
        task: begun.task,
        epoch: begun.epoch,
        cost_done: TRUTH.plan.task_cost(begun.task.task),
        started: true,
    };
    let request = SyncRequest {
        held: vec![held],
        seconds_wanted: 0.0,
        ..worker.request()
    };
    scheduler.sync(&request, Millis(0));
    let status = scheduler.status(RUN, Millis(0)).unwrap();
    let cost = |grant: &Grant| TRUTH.plan.task_cost(grant.task.task);
    let all: u64 = (0..TRUTH.plan.tasks())
        .map(|task| TRUTH.plan.task_cost(TaskId(task)))
        .sum();
    let expected = (cost(&counted) + cost(&begun)) as f64 / all as f64;
    assert!((status.fraction_done - expected).abs() < 1e-12);
}

#[test]
fn the_states_of_workers_have_their_words() {
    let words = [
        (WorkerState::Working, "working"),
        (WorkerState::Idle, "idle"),
        (WorkerState::Silent, "silent"),
        (WorkerState::Lost, "lost"),
        (WorkerState::Barred, "barred"),
    ];
    for (state, word) in words {
        assert_eq!(state.name(), word);
    }
}
