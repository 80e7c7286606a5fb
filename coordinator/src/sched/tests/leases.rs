//! Leases: granted, renewed, released, lost, found again.

use std::collections::BTreeSet;

use super::*;

fn leases(grants: &[Grant]) -> BTreeSet<(TaskId, Epoch)> {
    let leases = grants.iter().map(|grant| (grant.task.task, grant.epoch));
    leases.collect()
}

fn expired(changes: &[Change]) -> BTreeSet<TaskId> {
    let expired = changes.iter().filter_map(|change| match change {
        Change::Expired { task, .. } => Some(*task),
        _ => None,
    });
    expired.collect()
}

fn released(changes: &[Change]) -> BTreeSet<TaskId> {
    let released = changes.iter().filter_map(|change| match change {
        Change::Released { task, .. } => Some(*task),
        _ => None,
    });
    released.collect()
}

fn tasks_of(worker: &Puppet) -> BTreeSet<TaskId> {
    worker.held.iter().map(|grant| grant.task.task).collect()
}

#[test]
fn one_worker_counts_the_board() {
    let mut scheduler = scheduler();
    let mut worker = [Puppet::new(1)];
    assert_eq!(scheduler.total(RUN), None);
    drive(&mut scheduler, &mut worker, 0);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
    let changes = changes(&mut scheduler);
    let records = accepted(&changes);
    let tasks: BTreeSet<_> = records.iter().map(|record| record.task).collect();
    assert_eq!(
        (tasks.len(), records.len()),
        (TRUTH.counts.len(), TRUTH.counts.len())
    );
}

#[test]
fn a_lost_reply_is_granted_again_with_the_same_epochs() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    let lost = scheduler.sync(&worker.request(), Millis(0));
    assert!(!lost.grants.is_empty());
    let again = worker.sync(&mut scheduler, 1_000);
    assert_eq!(leases(&lost.grants), leases(&again.grants));
    assert_eq!(changes(&mut scheduler).len(), lost.grants.len());
}

#[test]
fn a_worker_that_never_takes_its_grants_gets_no_more_for_a_while() {
    let mut scheduler = scheduler();
    let refuser = Puppet::new(1);
    let mut now = 0;
    let reply = loop {
        let reply = scheduler.sync(&refuser.request(), Millis(now));
        now += 1_000;
        assert!(now < 60_000, "{reply:?}");
        if reply.grants.is_empty() {
            break reply;
        }
    };
    assert!(reply.reason.contains("unworked"), "{}", reply.reason);
    assert_eq!(numbers(&scheduler).leased, 0);
    let other = Puppet::new(2).sync(&mut scheduler, now);
    assert!(!other.grants.is_empty());
    let later = scheduler.sync(&refuser.request(), Millis(now + 40_000));
    assert!(later.grants.is_empty());
    for minute in 1..=5 {
        scheduler.advance(Millis(now + minute * 60_000));
    }
    let after = scheduler.sync(&refuser.request(), Millis(now + 301_000));
    assert!(!after.grants.is_empty(), "{}", after.reason);
}

#[test]
fn leases_live_by_being_named_and_expire_as_failed_attempts() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.wants = 1e9;
    worker.sync(&mut scheduler, 0);
    worker.wants = 0.0;
    worker.started = true;
    let held = tasks_of(&worker);
    for minute in 1..=30 {
        worker.sync(&mut scheduler, minute * 60_000);
        assert_eq!(tasks_of(&worker), held);
    }
    changes(&mut scheduler);
    for minute in 31..=34 {
        scheduler.advance(Millis(minute * 60_000));
    }
    assert_eq!(scheduler.next_timeout(), Some(Millis(35 * 60_000)));
    assert_eq!(changes(&mut scheduler), []);
    scheduler.advance(Millis(35 * 60_000));
    assert_eq!(expired(&changes(&mut scheduler)), held);
    assert_eq!(numbers(&scheduler).leased, 0);
    // It was cut off, not dead: what nobody took meanwhile is its own again.
    let reply = worker.sync(&mut scheduler, 36 * 60_000);
    assert_eq!(reply.revoked, []);
    assert_eq!(numbers(&scheduler).leased, held.len() as u64);
    scheduler.audit().unwrap();
}

#[test]
fn no_leap_of_the_clock_ends_a_lease_that_could_be_renewed() {
    for leap in [86_400_000, 400_000] {
        let mut scheduler = scheduler();
        let mut worker = Puppet::new(1);
        let mut now = 1_000_000_000;
        worker.sync(&mut scheduler, now);
        worker.started = true;
        worker.sync(&mut scheduler, now);
        let held = tasks_of(&worker);
        now += leap;
        scheduler.advance(Millis(now));
        now -= 2 * leap;
        scheduler.advance(Millis(now));
        assert_eq!(numbers(&scheduler).leased, held.len() as u64, "leap {leap}");
        // Nor does a clock that was set back keep a dead worker's lease for ever.
        for _ in 0..10 {
            now += 60_000;
            scheduler.advance(Millis(now));
        }
        assert_eq!(numbers(&scheduler).leased, 0, "leap {leap}");
        assert_eq!(expired(&changes(&mut scheduler)), held, "leap {leap}");
    }
}

#[test]
fn a_drained_worker_has_failed_nothing() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    worker.sync(&mut scheduler, 1_000);
    let held = tasks_of(&worker);
    worker.held.clear();
    let request = SyncRequest {
        draining: true,
        ..worker.request()
    };
    changes(&mut scheduler);
    let reply = scheduler.sync(&request, Millis(2_000));
    let changes = changes(&mut scheduler);
    assert_eq!((released(&changes), expired(&changes).len()), (held, 0));
    assert_eq!(
        (reply.grants.len(), reply.reason.contains("drain")),
        (0, true)
    );
}

#[test]
fn a_restarted_worker_has_failed_what_it_lost() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    worker.started = true;
    worker.sync(&mut scheduler, 1_000);
    let kept = worker.held.pop().unwrap();
    let lost = tasks_of(&worker);
    worker.held = vec![kept];
    worker.info.session = SessionId(2);
    worker.wants = 0.0;
    changes(&mut scheduler);
    worker.sync(&mut scheduler, 2_000);
    assert_eq!(expired(&changes(&mut scheduler)), lost);
    assert_eq!(numbers(&scheduler).leased, 1);
}

#[test]
fn an_old_process_is_told_that_it_is_over() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    let old = worker.request();
    worker.info.session = SessionId(2);
    worker.sync(&mut scheduler, 1_000);
    let reply = scheduler.sync(&old, Millis(2_000));
    assert!(reply.reason.contains("spool"), "{}", reply.reason);
    assert_eq!(reply.grants, []);
    scheduler.audit().unwrap();
}

#[test]
fn leases_on_disk_outlive_a_restart_by_the_grace_period() {
    let mut first = scheduler();
    let mut worker = Puppet::new(1);
    worker.sync(&mut first, 0);
    let held = tasks_of(&worker);
    let mut second = restarted(&mut first, Config::default());
    assert_eq!(numbers(&second).leased, held.len() as u64);
    let mut other = Puppet::new(2);
    other.sync(&mut second, 1_000);
    assert!(tasks_of(&other).is_disjoint(&held));
    let reply = worker.sync(&mut second, 2_000);
    assert_eq!((reply.revoked.len(), tasks_of(&worker)), (0, held));
    second.audit().unwrap();
}

#[test]
fn a_lease_that_a_crash_lost_from_disk_is_taken_up_again() {
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler(), 0);
    worker.wants = 0.0;
    let mut second = restarted(&mut scheduler(), Config::default());
    let reply = worker.sync(&mut second, 1_000);
    assert_eq!(reply.revoked, []);
    assert_eq!(numbers(&second).leased, worker.held.len() as u64);
    worker.finish(&mut second, 2_000);
    assert!(numbers(&second).done > 0);
    second.audit().unwrap();
}

#[test]
fn no_plan_no_run_no_task_no_epoch_no_lease() {
    let mut scheduler = scheduler();
    let good = Puppet::new(1).sync(&mut scheduler, 0).grants[0];
    let mut strange = Puppet::new(2);
    strange.wants = 0.0;
    let other_run = TaskRef {
        run: RunId(99),
        ..good.task
    };
    for (task, epoch) in [
        (good.task, Epoch(good.epoch.0 + 1)),
        (good.task, Epoch(0)),
        (task(1 << 40), Epoch(1)),
        (other_run, Epoch(1)),
    ] {
        strange.held = vec![Grant {
            task,
            epoch,
            ..good
        }];
        let before = numbers(&scheduler);
        let reply = strange.sync(&mut scheduler, 1_000);
        assert_eq!(reply.revoked.len(), 1, "{task:?}");
        assert!(!reply.revoked[0].reason.is_empty());
        assert_eq!(numbers(&scheduler), before);
    }
}
