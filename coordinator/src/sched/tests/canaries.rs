//! Workers whose threads count known boards wrong.

use super::*;
use crate::ledger::Trust;

/// What a worker says of its canaries.
fn canaries(threads: u32, unproven_ms: u64, passed: u64) -> FailedCanaries {
    FailedCanaries {
        threads,
        unproven_ms,
        passed,
    }
}

fn tell(scheduler: &mut Scheduler, worker: &Puppet, said: FailedCanaries, now: u64) {
    let request = SyncRequest {
        failed_canaries: said,
        seconds_wanted: 0.0,
        ..worker.request()
    };
    scheduler.sync(&request, Millis(now));
    scheduler.audit().unwrap();
}

fn trust_facts(changes: &[Change]) -> Vec<&TrustRecord> {
    let facts = changes.iter().filter_map(|change| match change {
        Change::Trust(record) => Some(record),
        _ => None,
    });
    facts.collect()
}

fn awaited(scheduler: &Scheduler) -> u64 {
    let status = scheduler.status(RUN, Millis(0)).unwrap();
    status.rechecks.awaited
}

#[test]
fn when_a_count_came_is_kept_in_whole_seconds() {
    let kept = [0, 999, 1_000, 86_400_000, u64::MAX].map(super::super::canaries::seconds);
    assert_eq!(kept, [0, 0, 1, 86_400, u32::MAX]);
}

/// A worker's counts at two times half an hour apart; how many came at each.
fn counted_twice(scheduler: &mut Scheduler, worker: &mut Puppet) -> [u64; 2] {
    let mut now = 0;
    [0, 1_800_000].map(|at| {
        while now < at {
            now += 50_000;
            tell(scheduler, worker, canaries(0, 0, 1), now);
        }
        let before = numbers(scheduler).done;
        worker.sync(scheduler, now);
        let partials = worker.held.drain(..).collect::<Vec<_>>();
        for grant in &partials {
            worker.say(scheduler, grant, truth(grant.task));
        }
        numbers(scheduler).done - before
    })
}

#[test]
fn a_process_that_never_counted_a_known_board_right_has_all_counted_again() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    let [early, late] = counted_twice(&mut scheduler, &mut worker);
    assert!(early > 0 && late > 0);
    changes(&mut scheduler);
    worker.info.session = SessionId(2);
    tell(
        &mut scheduler,
        &worker,
        canaries(1, u64::MAX, 1),
        90_000_000,
    );
    assert_eq!(awaited(&scheduler), early + late);
    let kept = changes(&mut scheduler);
    let facts = trust_facts(&kept);
    let from_unix_ms = 0;
    assert_eq!(facts[0].trust, Trust::Unproven { from_unix_ms });
    assert!(facts[0].reason.contains("ever"), "{}", facts[0].reason);
}

#[test]
fn what_was_counted_since_the_last_good_canary_is_counted_again_and_nothing_else() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    let [early, late] = counted_twice(&mut scheduler, &mut worker);
    assert!(early > 0 && late > 0);
    changes(&mut scheduler);
    tell(&mut scheduler, &worker, canaries(1, 600_000, 2), 1_810_000);
    assert_eq!(awaited(&scheduler), late);
    let kept = changes(&mut scheduler);
    let facts = trust_facts(&kept);
    assert_eq!(facts.len(), 1);
    // The window and a minute, in which clocks may differ.
    let from_unix_ms = 1_810_000 - 600_000 - 60_000;
    assert_eq!(facts[0].trust, Trust::Unproven { from_unix_ms });
    assert!(facts[0].reason.contains("1 thread"), "{}", facts[0].reason);
    assert_eq!(scheduler.workers(Millis(0))[0].failed_threads, 1);
    // The same word again is no news; another thread is, and it reaches further.
    tell(&mut scheduler, &worker, canaries(1, 610_000, 2), 1_820_000);
    assert_eq!(trust_facts(&changes(&mut scheduler)).len(), 0);
    tell(
        &mut scheduler,
        &worker,
        canaries(2, 1_800_000, 2),
        1_830_000,
    );
    assert_eq!(awaited(&scheduler), early + late);
    assert_eq!(trust_facts(&changes(&mut scheduler)).len(), 1);
    // Others count them, and then it is over.
    let mut others = [Puppet::new(2), Puppet::new(3)];
    drive(&mut scheduler, &mut others, 1_840_000);
    assert_eq!(awaited(&scheduler), 0);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn a_run_that_was_over_goes_on_for_what_is_unproven() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    drive(&mut scheduler, std::slice::from_mut(&mut worker), 0);
    assert_eq!(scheduler.conclude(RUN, true), Some(RunState::Complete));
    let now = scheduler.clock.wall(scheduler.clock.ticks()).0;
    tell(&mut scheduler, &worker, canaries(1, 3_600_000, 0), now);
    assert_eq!(scheduler.runs()[0].state, RunState::Running);
    assert_eq!(awaited(&scheduler), TRUTH.plan.tasks());
}

#[test]
fn what_comes_after_a_full_call_is_as_old() {
    let config = Config {
        partials_per_sync: 1,
        ..Config::default()
    };
    let mut scheduler = scheduler_with(config);
    scheduler.restore_recheck(RUN, Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    assert_eq!(worker.held.len(), 2);
    let call = |worker: &Puppet, grant: &Grant| SyncRequest {
        partials: vec![worker.partial(grant, truth(grant.task))],
        failed_canaries: canaries(1, 500, 0),
        seconds_wanted: 0.0,
        ..worker.request()
    };
    for (grant, so_far) in worker.held.clone().iter().zip(1..) {
        scheduler.sync(&call(&worker, grant), Millis(1_000));
        assert_eq!(awaited(&scheduler), so_far);
    }
    // A call that has room for more ends it.
    tell(&mut scheduler, &worker, canaries(1, 600, 0), 2_000);
    worker.held.clear();
    worker.sync(&mut scheduler, 70_000);
    let grant = worker.held[0];
    worker.say(&mut scheduler, &grant, truth(grant.task));
    assert_eq!(awaited(&scheduler), 2);
}

#[test]
fn the_next_life_counts_them_again_too_whoever_was_repaired_since() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    let [_, late] = counted_twice(&mut scheduler, &mut worker);
    tell(&mut scheduler, &worker, canaries(1, 600_000, 1), 1_810_000);
    let kept = changes(&mut scheduler);
    let mut store = MemoryStore::new();
    store.create(&manifest(RUN, 0)).unwrap();
    store.apply(&kept).unwrap();
    let repaired = TrustRecord {
        trust: Trust::Trusted,
        ..store.trust().unwrap().pop().unwrap()
    };
    for repaired in [None, Some(repaired)] {
        let mut second = Scheduler::new(Config::default(), 3);
        for record in store.trust().unwrap().iter().chain(&repaired) {
            second.restore_trust(record);
        }
        second.add_run(&manifest(RUN, 0), TRUTH.plan.clone(), RunState::Running);
        second.restore_recheck(RUN, Recheck::Millionths(0));
        store
            .scan(RUN, &mut |row| second.restore_task(RUN, row))
            .unwrap();
        second.restored(Millis(1_900_000));
        second.audit().unwrap();
        assert_eq!(awaited(&second), late);
    }
}

#[test]
fn proofs_are_kept_with_the_first_count_and_at_the_end() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    assert_eq!(trust_facts(&changes(&mut scheduler)).len(), 0);
    let mut said = Vec::new();
    let mut passed = 3;
    while numbers(&scheduler).done < TRUTH.plan.tasks() {
        passed += 1;
        let held = std::mem::take(&mut worker.held);
        let request = SyncRequest {
            partials: held
                .iter()
                .map(|grant| worker.partial(grant, truth(grant.task)))
                .collect(),
            failed_canaries: canaries(0, 0, passed),
            ..worker.request()
        };
        let reply = scheduler.sync(&request, Millis(1_000 * passed));
        worker.take(&reply);
        let changes = changes(&mut scheduler);
        said.extend(trust_facts(&changes).iter().map(|fact| fact.trust));
    }
    let expected = [4, passed].map(|proofs| Trust::Proven { proofs });
    assert_eq!(said, expected);
    // Nothing is counted again for a proof.
    assert_eq!(awaited(&scheduler), 0);
    let mut second = Scheduler::new(Config::default(), 3);
    let record = TrustRecord {
        worker: WorkerId(1),
        principal: crate::ledger::Principal::new(2, None),
        name: String::new(),
        trust: expected[1],
        faults: 0,
        reason: String::new(),
        since_unix_ms: 0,
    };
    second.restore_trust(&record);
    assert!(
        !second
            .workers(Millis(0))
            .iter()
            .any(|worker| worker.failed_threads > 0)
    );
    assert_eq!(*second.workers.proofs_kept(0), passed);
}

#[test]
fn who_has_counted_nothing_has_no_proofs_kept_at_the_end() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let idle = Puppet::new(2);
    tell(&mut scheduler, &idle, canaries(0, 0, 9), 0);
    drive(&mut scheduler, &mut [Puppet::new(1)], 0);
    assert_eq!(scheduler.workers(Millis(0)).len(), 2, "it is remembered");
    let changes = changes(&mut scheduler);
    assert!(trust_facts(&changes).is_empty(), "{changes:?}");
}
