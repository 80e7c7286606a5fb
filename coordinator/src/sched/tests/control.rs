//! Operators' commands, and what people see.

use super::*;

#[test]
fn a_paused_run_grants_nothing_and_takes_results() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    let state = scheduler.control(RUN, Command::Pause, Millis(1));
    assert_eq!(state, Ok(RunState::Paused));
    let reply = worker.finish(&mut scheduler, 1_000);
    assert!(
        reply
            .acknowledgements
            .iter()
            .all(|answer| answer.verdict == Verdict::Accepted)
    );
    assert!(reply.reason.contains("paused"), "{}", reply.reason);
    assert_eq!(
        scheduler.control(RUN, Command::Pause, Millis(2)),
        Ok(RunState::Paused)
    );
    assert_eq!(
        scheduler.control(RUN, Command::Resume, Millis(3)),
        Ok(RunState::Running)
    );
    let states = changes(&mut scheduler)
        .into_iter()
        .filter(|change| matches!(change, Change::State { .. }));
    assert_eq!(states.count(), 2);
    drive(&mut scheduler, &mut [worker], 2_000);
}

#[test]
fn a_cancelled_run_takes_nothing() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    scheduler.control(RUN, Command::Cancel, Millis(1)).unwrap();
    scheduler.audit().unwrap();
    let grant = worker.held[0];
    let (verdict, reason) = worker.say(&mut scheduler, &grant, truth(grant.task));
    assert_eq!(verdict, Verdict::Refused);
    assert!(reason.contains("cancelled"), "{reason}");
    let reply = worker.sync(&mut scheduler, 1_000);
    assert_eq!((worker.held.len(), reply.grants.len()), (0, 0));
    assert_eq!(
        scheduler.control(RUN, Command::Resume, Millis(2)),
        Err(ControlError::Cancelled(RUN))
    );
    assert_eq!(
        scheduler.control(RUN, Command::Cancel, Millis(2)),
        Ok(RunState::Cancelled)
    );
}

#[test]
fn commands_need_a_run_that_is_not_over() {
    let mut scheduler = scheduler();
    let nobody = RunId(99);
    let error = scheduler.control(nobody, Command::Pause, Millis(0));
    assert_eq!(error, Err(ControlError::NoSuchRun(nobody)));
    drive(&mut scheduler, &mut [Puppet::new(1)], 0);
    assert_eq!(scheduler.conclude(RUN, false), Some(RunState::Contradicted));
    for command in [
        Command::Pause,
        Command::Resume,
        Command::Cancel,
        Command::Unpark,
    ] {
        assert_eq!(
            scheduler.control(RUN, command, Millis(1)),
            Err(ControlError::Over(RUN))
        );
    }
}

#[test]
fn a_fraction_that_is_asked_for_later_is_no_more_than_that() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    drive(&mut scheduler, &mut [Puppet::new(1)], 0);
    scheduler.conclude(RUN, true);
    let half = Recheck::Millionths(500_000);
    let command = Command::Recheck(half);
    let state = scheduler.control(RUN, command, Millis(1));
    assert_eq!(state, Ok(RunState::Running));
    let tasks = (0..TRUTH.plan.tasks()).map(TaskId);
    let drawn = tasks.filter(|&task| scheduler.is_drawn(RUN, task)).count() as u64;
    assert!(drawn > 0 && drawn < TRUTH.plan.tasks(), "{drawn}");
    let awaited = |scheduler: &Scheduler| {
        let status = scheduler.status(RUN, Millis(1)).unwrap();
        status.rechecks.awaited
    };
    assert_eq!(awaited(&scheduler), drawn);
    scheduler.control(RUN, command, Millis(1)).unwrap();
    assert_eq!(awaited(&scheduler), drawn, "once is enough");
}

#[test]
fn the_status_follows_the_work() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    let idle = scheduler.status(RUN, Millis(0)).unwrap();
    assert_eq!(
        (idle.eta_seconds, idle.reason.as_str()),
        (None, "no worker is connected")
    );
    worker.sync(&mut scheduler, 0);
    worker.wants = 0.003;
    worker.finish(&mut scheduler, 10_000);
    worker.finish(&mut scheduler, 20_000);
    let status = scheduler.status(RUN, Millis(20_000)).unwrap();
    let TaskNumbers {
        total,
        done,
        leased,
        pending,
        ..
    } = status.tasks;
    assert_eq!(total, done + leased + pending);
    assert!(done == 5 && leased > 0, "{status:?}");
    let done_part = done as f64 / total as f64;
    assert!(
        (status.fraction_done - done_part).abs() < 1e-9,
        "{status:?}"
    );
    let per_second = status.solutions_so_far as f64 / 20.0;
    assert!(
        (status.solutions_per_second - per_second).abs() < 1e-9,
        "{status:?}"
    );
    let eta = (1.0 - done_part) / (done_part / 20.0);
    assert!(
        (status.eta_seconds.unwrap() - eta).abs() < 1e-6,
        "{status:?}"
    );
    assert_eq!(status.reason, "");
    let [seen] = &status.workers[..] else {
        panic!("{status:?}");
    };
    assert_eq!((seen.tasks_done, seen.leases), (done, leased));
    assert_eq!(
        (seen.state, seen.last_seen_ms_ago),
        (WorkerState::Working, 0)
    );
    drive(&mut scheduler, &mut [worker], 30_000);
    let status = scheduler.status(RUN, Millis(60_000)).unwrap();
    let estimate = status.estimate.unwrap();
    assert_eq!((estimate.low, estimate.high), (TRUTH.total, TRUTH.total));
    assert!((status.fraction_done - 1.0).abs() < 1e-9);
}

#[test]
fn a_run_that_is_forgotten_takes_no_other_with_it() {
    let mut scheduler = scheduler();
    let other = RunId(8);
    scheduler.add_run(&manifest(other, 0), TRUTH.plan.clone(), RunState::Running);
    let mut worker = Puppet::new(1);
    for round in 0..100 {
        worker.finish(&mut scheduler, 1_000 * round);
    }
    let done = |run: &RunSummary| run.tasks.done == run.tasks.total;
    assert!(scheduler.runs().iter().all(done));
    scheduler.forget_run(RUN);
    assert_eq!(scheduler.poll_finished(), Some(other));
    assert_eq!(scheduler.poll_finished(), None);
    let left: Vec<_> = scheduler
        .runs()
        .iter()
        .map(|run| run.manifest.run)
        .collect();
    assert_eq!(left, [other]);
    assert_eq!(scheduler.status(RUN, Millis(0)), None);
}

#[test]
fn a_run_waits_for_another_only_while_that_has_work_for_somebody() {
    let mut scheduler = scheduler_with(Config::default());
    let other = RunId(8);
    scheduler.add_run(&manifest(other, -1), TRUTH.plan.clone(), RunState::Running);
    let mut worker = Puppet::new(1);
    worker.info.threads = 1_000;
    let reason = |scheduler: &Scheduler| scheduler.status(other, Millis(0)).unwrap().reason;
    scheduler.control(other, Command::Pause, Millis(0)).unwrap();
    Puppet::new(2).say_nothing(&mut scheduler);
    scheduler
        .control(other, Command::Resume, Millis(0))
        .unwrap();
    assert_eq!(reason(&scheduler), format!("run {RUN} goes first"));
    scheduler.control(other, Command::Pause, Millis(0)).unwrap();
    while numbers(&scheduler).pending > 0 {
        worker.sync(&mut scheduler, 0);
    }
    scheduler
        .control(other, Command::Resume, Millis(0))
        .unwrap();
    assert_eq!(reason(&scheduler), "", "all of it is leased");
}

#[test]
fn progress_goes_by_cost() {
    let mut scheduler = scheduler_of(&LONG, Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    let mut done = 0;
    worker.sync(&mut scheduler, 0);
    for grant in std::mem::take(&mut worker.held) {
        worker.say(&mut scheduler, &grant, 0);
        done += LONG.task_cost(grant.task.task);
    }
    let all: u64 = LONG.task_costs().sum();
    assert!(
        done > numbers(&scheduler).done && done < all,
        "{done} of {all}"
    );
    let status = scheduler.status(RUN, Millis(5)).unwrap();
    assert!((status.fraction_done - done as f64 / all as f64).abs() < 1e-9);
}

#[test]
fn an_estimate_forgets_what_was_contradicted() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut liar = Puppet::new(1);
    liar.sync(&mut scheduler, 0);
    let wrong = liar.held.remove(0);
    liar.say(&mut scheduler, &wrong, truth(wrong.task) + 1);
    let mut honest: Vec<_> = (2..=4).map(Puppet::new).collect();
    for worker in &honest {
        worker.say(&mut scheduler, &wrong, truth(wrong.task));
    }
    drive(&mut scheduler, &mut honest, 1_000);
    let estimate = scheduler.status(RUN, Millis(0)).unwrap().estimate.unwrap();
    assert_eq!((estimate.low, estimate.high), (TRUTH.total, TRUTH.total));
}

#[test]
fn what_is_drawn_goes_by_the_key() {
    let drawn = |key| {
        let mut scheduler = Scheduler::new(Config::default(), 1);
        scheduler.draw_by([key; 32]);
        scheduler.add_run(&manifest(RUN, 0), TRUTH.plan.clone(), RunState::Running);
        scheduler.restore_recheck(RUN, Recheck::Millionths(500_000));
        let tasks = (0..TRUTH.plan.tasks()).map(TaskId);
        let drawn: Vec<_> = tasks
            .filter(|&task| scheduler.is_drawn(RUN, task))
            .collect();
        drawn
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}

#[test]
fn what_was_accepted_adds_up_before_the_end_too() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    let sum: u128 = worker
        .held
        .iter()
        .map(|grant| u128::from(truth(grant.task)))
        .sum();
    assert!(sum > 0);
    worker.finish(&mut scheduler, 1_000);
    assert_eq!(scheduler.solutions_so_far(RUN), Some(Ok(sum)));
    assert_eq!(scheduler.solutions_so_far(RunId(99)), None);
}

#[test]
fn a_run_that_is_added_later_is_served_from_then_on() {
    let mut scheduler = Scheduler::new(Config::default(), 1);
    scheduler.restored(Millis(0));
    for minute in 0..=10 {
        scheduler.advance(Millis(minute * 60_000));
    }
    scheduler.add_run(&manifest(RUN, 0), TRUTH.plan.clone(), RunState::Running);
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 600_000);
    worker.finish(&mut scheduler, 605_000);
    let changes = changes(&mut scheduler);
    let elapsed = accepted(&changes).first().map(|record| record.elapsed_ms);
    assert_eq!(elapsed, Some(5_000));
}
