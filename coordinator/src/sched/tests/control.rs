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
    assert_eq!(
        scheduler.control(RUN, Command::Cancel, Millis(1)),
        Err(ControlError::Over(RUN))
    );
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
