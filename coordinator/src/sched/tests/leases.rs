//! Leases: granted, renewed, released, lost, found again.

use std::collections::BTreeSet;

use super::{
    super::{grants::BACKUP_AFTER_MS, leases::DECLINES},
    *,
};

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
fn who_names_a_task_that_the_plan_lacks_hears_which_there_are() {
    let mut scheduler = scheduler();
    let tasks = TRUTH.plan.tasks();
    let held = HeldLease {
        task: task(tasks),
        epoch: Epoch(1),
        cost_done: 0,
        started: false,
    };
    let request = SyncRequest {
        held: vec![held],
        ..Puppet::new(1).request()
    };
    let revoked = scheduler.sync(&request, Millis(0)).revoked;
    let expected = format!(
        "run {RUN} has tasks 0 to {}, and no task {tasks}: drop it",
        tasks - 1
    );
    assert_eq!(revoked[0].reason, expected);
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
fn a_worker_lost_days_before_the_start_is_not_waited_for_and_its_counts_are_taken() {
    const DAY: u64 = 86_400_000;
    const LEASED_UNTIL: u64 = 300_000;
    let long = DAY + LEASED_UNTIL;
    for (start, waits) in [(DAY, true), (long, true), (long + 1, false)] {
        let mut first = scheduler();
        let mut worker = Puppet::new(1);
        worker.sync(&mut first, 0);
        let held = worker.held.len() as u64;
        assert!(held > 0);
        let mut second = restarted_at(&mut first, Config::default(), start);
        second.advance(Millis(start + 1));
        second.audit().unwrap();
        assert_eq!(numbers(&second).leased, if waits { held } else { 0 });
        worker.finish(&mut second, start + 2);
        second.audit().unwrap();
        assert_eq!(numbers(&second).done, held);
    }
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
fn no_life_of_the_coordinator_leases_under_an_epoch_of_the_one_before() {
    let mut second = restarted(&mut scheduler(), Config::default());
    let grants = Puppet::new(1).sync(&mut second, 0).grants;
    let epochs: Vec<_> = grants.iter().map(|grant| grant.epoch).collect();
    assert!(epochs.iter().all(|epoch| *epoch > Epoch(1)), "{epochs:?}");
}

#[test]
fn epochs_go_on_from_those_on_disk() {
    let mut scheduler = Scheduler::new(Config::default(), 1);
    scheduler.add_run(&manifest(RUN, 0), TRUTH.plan.clone(), RunState::Running);
    let highest = 1 << 40;
    for task in 0..TRUTH.plan.tasks() {
        let row = crate::ledger::TaskRow {
            task: TaskId(task),
            epoch: Epoch(highest),
            state: crate::ledger::TaskState::Pending,
            failed: Vec::new(),
        };
        scheduler.restore_task(RUN, row);
    }
    scheduler.restored(Millis(0));
    let grants = Puppet::new(1).sync(&mut scheduler, 0).grants;
    assert!(grants.iter().all(|grant| grant.epoch.0 > highest));
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

#[test]
fn a_lease_lasts_from_when_it_was_granted() {
    let mut scheduler = scheduler();
    scheduler.advance(Millis(1_000));
    scheduler.advance(Millis(8_000));
    let reply = Puppet::new(1).sync(&mut scheduler, 8_000);
    let until: Vec<_> = changes(&mut scheduler)
        .iter()
        .filter_map(|change| match change {
            Change::Leased { until_unix_ms, .. } => Some(*until_unix_ms),
            _ => None,
        })
        .collect();
    let lease_ms = Config::default().lease_ms;
    assert_eq!(until, vec![8_000 + lease_ms; reply.grants.len()]);
    assert!(!until.is_empty());
}

#[test]
fn a_task_whose_copy_is_given_back_stays_with_its_other_holder() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut slow = Puppet::new(1);
    slow.sync(&mut scheduler, 0);
    slow.held.truncate(1);
    let last = tasks_of(&slow);
    // Another counts all the rest.
    let mut quick = Puppet::new(2);
    let mut now = 1_000;
    while numbers(&scheduler).done + 1 < numbers(&scheduler).total {
        slow.wants = 0.0;
        slow.sync(&mut scheduler, now);
        quick.finish(&mut scheduler, now);
        now += 1_000;
        assert!(now < 1_000_000, "{:?}", numbers(&scheduler));
    }
    now += BACKUP_AFTER_MS;
    slow.sync(&mut scheduler, now);
    quick.sync(&mut scheduler, now);
    assert_eq!(tasks_of(&quick), last, "a backup copy");
    quick.held.clear();
    let drained = SyncRequest {
        draining: true,
        ..quick.request()
    };
    changes(&mut scheduler);
    scheduler.sync(&drained, Millis(now));
    assert_eq!(released(&changes(&mut scheduler)), last);
    let left = numbers(&scheduler);
    assert_eq!((left.leased, left.pending), (1, 0));
    scheduler.audit().unwrap();
}

#[test]
fn what_a_worker_holds_when_it_is_barred_goes_to_others_at_once() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut liar = Puppet::new(1);
    liar.wants = 1e9;
    liar.sync(&mut scheduler, 0);
    let lies: Vec<_> = std::mem::take(&mut liar.held);
    for grant in &lies[..2] {
        liar.say(&mut scheduler, grant, truth(grant.task) + 8);
    }
    liar.held = lies[2..].to_vec();
    liar.sync(&mut scheduler, 0);
    liar.started = true;
    liar.sync(&mut scheduler, 0);
    let held = tasks_of(&liar);
    assert!(!held.is_empty());
    let leased = numbers(&scheduler).leased;
    changes(&mut scheduler);
    for grant in &lies[..2] {
        for id in 2..=4 {
            Puppet::new(id).say(&mut scheduler, grant, truth(grant.task));
        }
    }
    let changes = changes(&mut scheduler);
    assert_eq!((released(&changes), expired(&changes).len()), (held, 0));
    let left = numbers(&scheduler).leased;
    assert_eq!(left, leased - liar.held.len() as u64);
    scheduler.audit().unwrap();
    // It names them still, and is told why they are gone.
    let named = liar.held.len();
    let reply = liar.sync(&mut scheduler, 1_000);
    assert_eq!((reply.revoked.len(), liar.held.len()), (named, 0));
    assert!(
        reply.revoked[0].reason.contains("memory"),
        "{:?}",
        reply.revoked
    );
}

#[test]
fn revocations_fill_their_part_of_a_reply_and_the_rest_comes_with_the_next() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    let grant = worker.held[0];
    // Epochs that were never issued, all with as many digits: the reasons are equally long.
    worker.held = (10_000..30_000)
        .map(|epoch| Grant {
            epoch: Epoch(epoch),
            ..grant
        })
        .collect();
    worker.wants = 0.0;
    let first = scheduler.sync(&worker.request(), Millis(1_000)).revoked;
    let each = 80 + first[0].reason.len();
    assert_eq!(first.len(), (2 << 20) / each);
    let told: Vec<_> = first.iter().map(|revocation| revocation.epoch).collect();
    let held: Vec<_> = worker.held.drain(..told.len()).collect();
    assert_eq!(
        told,
        held.iter().map(|grant| grant.epoch).collect::<Vec<_>>()
    );
    let rest = scheduler.sync(&worker.request(), Millis(2_000)).revoked;
    assert_eq!(rest.len(), worker.held.len());
}

#[test]
fn a_grant_that_nobody_takes_is_sent_five_times() {
    let mut scheduler = scheduler();
    let refuser = Puppet::new(1);
    let first = scheduler.sync(&refuser.request(), Millis(0)).grants;
    assert!(!first.is_empty());
    for again in 2..=5 {
        let reply = scheduler.sync(&refuser.request(), Millis(again * 1_000));
        assert_eq!(leases(&reply.grants), leases(&first), "time {again}");
    }
    let reply = scheduler.sync(&refuser.request(), Millis(6_000));
    assert!(leases(&reply.grants).is_disjoint(&leases(&first)));
}

#[test]
fn grants_sent_again_are_no_more_than_a_reply_holds() {
    let mut first = scheduler();
    let mut worker = Puppet::new(1);
    worker.info.threads = 4;
    worker.sync(&mut first, 0);
    let held = tasks_of(&worker);
    assert!(held.len() > 2);
    let config = Config {
        grants_per_sync: 2,
        ..Config::default()
    };
    let mut second = restarted(&mut first, config);
    // The replies never arrived.
    worker.held.clear();
    let reply = worker.sync(&mut second, 1_000);
    let again: BTreeSet<_> = reply.grants.iter().map(|grant| grant.task.task).collect();
    assert_eq!(again.len(), 2);
    assert!(again.is_subset(&held));
    second.audit().unwrap();
}

#[test]
fn a_worker_that_gives_back_what_it_began_has_failed_nothing() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    worker.started = true;
    worker.sync(&mut scheduler, 1_000);
    let held = tasks_of(&worker);
    worker.held.clear();
    worker.wants = 0.0;
    changes(&mut scheduler);
    worker.sync(&mut scheduler, 2_000);
    let changes = changes(&mut scheduler);
    assert_eq!((released(&changes), expired(&changes).len()), (held, 0));
}

#[test]
fn tasks_given_back_together_are_one_refusal() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.info.threads = 4;
    let most = DECLINES;
    for time in 1..=u64::from(most) {
        let now = time * 10_000;
        worker.sync(&mut scheduler, now);
        assert!(worker.held.len() > most as usize, "time {time}");
        worker.wants = 0.0;
        worker.sync(&mut scheduler, now + 1_000);
        worker.held.clear();
        worker.sync(&mut scheduler, now + 2_000);
        worker.wants = 60.0;
    }
    let reply = worker.sync(&mut scheduler, 60_000);
    assert_eq!(reply.grants, []);
    assert!(reply.reason.contains("unworked"), "{}", reply.reason);
}

#[test]
fn a_worker_that_drains_refuses_nothing() {
    let mut scheduler = scheduler();
    let mut worker = Puppet::new(1);
    worker.info.threads = 4;
    for time in 1..=2 * u64::from(DECLINES) {
        let now = time * 10_000;
        worker.sync(&mut scheduler, now);
        assert!(!worker.held.is_empty(), "time {time}");
        worker.sync(&mut scheduler, now + 1_000);
        worker.held.clear();
        let drained = SyncRequest {
            draining: true,
            ..worker.request()
        };
        scheduler.sync(&drained, Millis(now + 2_000));
        assert_eq!(numbers(&scheduler).leased, 0);
    }
}

#[test]
fn who_was_thought_lost_goes_on_beside_the_next_one_and_a_third_does_not() {
    let mut scheduler = scheduler();
    let mut lost = Puppet::new(1);
    lost.sync(&mut scheduler, 0);
    lost.started = true;
    lost.wants = 0.0;
    lost.sync(&mut scheduler, 1_000);
    let held = lost.held.clone();
    for now in (50_000..=400_000).step_by(50_000) {
        scheduler.advance(Millis(now));
    }
    let mut next = Puppet::new(2);
    next.sync(&mut scheduler, 400_000);
    assert!(next.held.iter().any(|grant| grant.task == held[0].task));
    lost.sync(&mut scheduler, 401_000);
    assert_eq!(lost.held, held, "it has begun: two may count it");
    let mut third = Puppet::new(3);
    (third.started, third.wants) = (true, 0.0);
    third.held = held[..1].to_vec();
    third.sync(&mut scheduler, 402_000);
    assert_eq!(third.held, []);
    scheduler.audit().unwrap();
}

#[test]
fn failed_attempts_are_remembered_over_a_restart() {
    let mut scheduler = scheduler();
    let row = crate::ledger::TaskRow {
        task: TaskId(2),
        epoch: Epoch(3),
        state: crate::ledger::TaskState::Pending,
        failed: vec![WorkerId(5), WorkerId(6)],
    };
    scheduler.restore_task(RUN, row);
    assert_eq!(scheduler.task_view(RUN, TaskId(2)).unwrap().failed, 2);
    // Others go first.
    let mut worker = Puppet::new(5);
    worker.sync(&mut scheduler, 0);
    assert!(worker.held.iter().all(|grant| grant.task != task(2)));
}
