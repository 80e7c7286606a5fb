//! Second counts, and what becomes of those who are wrong.

use super::*;
use crate::ledger::Confirmed;

/// Workers on machines of their own.
fn machines(ids: std::ops::RangeInclusive<u128>) -> Vec<Puppet> {
    ids.map(Puppet::new).collect()
}

/// The first worker's count of one task is on record, and the other two count all the rest with
/// everything compared, so that the first three are known to be good.
fn known(ids: std::ops::RangeInclusive<u128>) -> (Scheduler, Vec<Puppet>, Grant) {
    let mut scheduler = rechecked(Recheck::All);
    let mut workers = machines(ids);
    let mut kept = None;
    for round in 0..40 {
        for worker in &mut workers {
            worker.sync(&mut scheduler, round * 1_000);
            for grant in std::mem::take(&mut worker.held) {
                worker.say(&mut scheduler, &grant, truth(grant.task));
                kept.get_or_insert(grant);
            }
        }
    }
    scheduler.audit().unwrap();
    (scheduler, workers, kept.unwrap())
}

#[test]
fn identities_on_one_machine_have_one_voice() {
    for machine in [0, 77] {
        let mut scheduler = scheduler();
        let mut honest = Puppet::new(1);
        honest.sync(&mut scheduler, 0);
        let grant = honest.held[0];
        let right = truth(grant.task);
        honest.say(&mut scheduler, &grant, right);
        for id in 2..=9 {
            let mut other = Puppet::new(id);
            other.info.machine = machine;
            let (verdict, _) = other.say(&mut scheduler, &grant, right + 8);
            assert_eq!(
                verdict,
                Verdict::Conflict,
                "identity {id} on machine {machine}"
            );
        }
        assert_eq!(numbers(&scheduler).quarantined, 1);
        scheduler.audit().unwrap();
        let (verdict, _) = Puppet::new(10).say(&mut scheduler, &grant, right);
        assert_eq!(verdict, Verdict::Accepted);
    }
}

#[test]
fn two_unknown_machines_do_not_overturn_a_count_while_others_can_be_asked() {
    let mut scheduler = scheduler();
    let mut honest = Puppet::new(1);
    honest.sync(&mut scheduler, 0);
    let mut busy = Puppet::new(9);
    busy.sync(&mut scheduler, 0);
    let grant = honest.held[0];
    let right = truth(grant.task);
    honest.say(&mut scheduler, &grant, right);
    for id in 2..=3 {
        let (verdict, _) = Puppet::new(id).say(&mut scheduler, &grant, right + 8);
        assert_eq!(verdict, Verdict::Conflict, "identity {id}");
    }
    let (verdict, _) = busy.say(&mut scheduler, &grant, right);
    assert_eq!(verdict, Verdict::Conflict, "two against two");
    let mut others = machines(20..=22);
    others.push(honest);
    others.push(busy);
    drive(&mut scheduler, &mut others, 1_000);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn any_number_of_fresh_identities_does_not_overturn_a_known_machine() {
    let (mut scheduler, workers, grant) = known(1..=3);
    let right = truth(grant.task);
    for id in 10..=16 {
        let sybil = Puppet::new(id);
        let (verdict, _) = sybil.say(&mut scheduler, &grant, right + 8);
        let bad = [Verdict::Accepted, Verdict::Duplicate].contains(&verdict);
        assert!(!bad, "identity {id}: {verdict:?}");
    }
    drive(&mut scheduler, &mut { workers }, 100_000);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn a_worker_found_wrong_is_doubted_then_barred_and_all_it_counted_is_counted_again() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut liar = machines(1..=1).remove(0);
    liar.wants = 1e9;
    let mut told = Vec::new();
    for _ in 0..4 {
        liar.sync(&mut scheduler, 0);
        for grant in std::mem::take(&mut liar.held) {
            liar.say(&mut scheduler, &grant, truth(grant.task) + 1);
            told.push(grant);
        }
    }
    assert!(told.len() >= 4, "{}", told.len());
    let mut honest = machines(2..=4);
    let state = |scheduler: &Scheduler| {
        let workers = scheduler.workers(Millis(0));
        let liar = workers.iter().find(|worker| worker.info.id == WorkerId(1));
        liar.map(|liar| liar.state)
    };
    // Two against one is not enough where nobody is known; three are.
    for (at, lease) in told[..2].iter().enumerate() {
        for worker in &honest {
            worker.say(&mut scheduler, lease, truth(lease.task));
        }
        let barred = state(&scheduler) == Some(WorkerState::Barred);
        assert_eq!(barred, at == 1, "after {} wrong counts", at + 1);
        let status = scheduler.status(RUN, Millis(0)).unwrap();
        assert_eq!(
            status.rechecks.awaited
                + status.tasks.done
                + status.tasks.pending
                + status.tasks.leased,
            TRUTH.plan.tasks() + (told.len() - at - 1) as u64,
            "all it alone counted is to be counted again"
        );
    }
    let reply = liar.sync(&mut scheduler, 1_000);
    assert_eq!(reply.grants, []);
    assert!(reply.reason.contains("memory"), "{}", reply.reason);
    // Its other counts were as wrong, and nobody had looked: they are all found now.
    drive(&mut scheduler, &mut honest, 2_000);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn an_always_wrong_worker_beside_two_honest_ones_is_barred_within_20_compared_counts() {
    for seed in 0..20 {
        let mut scheduler = Scheduler::new(Config::default(), seed);
        scheduler.restored(Millis(0));
        scheduler.add_run(&manifest(RUN, 0), TRUTH.plan.clone(), RunState::Running);
        scheduler.restore_recheck(RUN, Recheck::All);
        let mut workers = machines(1..=3);
        let mut compared = 0;
        let mut now = 0;
        while scheduler.poll_finished().is_none() {
            now += 1_000;
            assert!(
                now < 1_000_000,
                "seed {seed}: {:#?}",
                scheduler.status(RUN, Millis(now))
            );
            for worker in &mut workers {
                let wrong = u64::from(worker.info.id == WorkerId(1));
                worker.sync(&mut scheduler, now);
                for grant in std::mem::take(&mut worker.held) {
                    let said = worker.say(&mut scheduler, &grant, truth(grant.task) + wrong);
                    compared += u64::from(wrong == 1 && said.0 == Verdict::Conflict);
                }
                scheduler.audit().unwrap();
            }
        }
        assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)), "seed {seed}");
        assert!(compared <= 20, "seed {seed}: {compared} compared");
        let workers = scheduler.workers(Millis(now));
        let liar = workers
            .iter()
            .find(|worker| worker.info.id == WorkerId(1))
            .unwrap();
        assert_eq!(liar.state, WorkerState::Barred, "seed {seed}");
    }
}

#[test]
fn a_machine_alone_counts_its_own_tasks_again_at_the_end_and_the_other_way_round() {
    let mut scheduler = rechecked(Recheck::All);
    // Two workers, one machine.
    let mut workers = machines(1..=2);
    for worker in &mut workers {
        worker.info.machine = 5;
    }
    let mut firsts = 0;
    let mut now = 0;
    while scheduler.poll_finished().is_none() {
        now += 1_000;
        assert!(now < 1_000_000);
        for worker in &mut workers {
            worker.sync(&mut scheduler, now);
            for grant in &worker.held {
                match grant.orientation {
                    Orientation::Upright => firsts += 1,
                    Orientation::Turned => {
                        assert_eq!(numbers(&scheduler).pending, 0, "firsts come first");
                    }
                }
            }
            worker.finish(&mut scheduler, now);
        }
    }
    assert!(firsts > 0);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn what_only_its_own_machine_has_confirmed_is_no_more_after_a_restart() {
    let mut scheduler = rechecked(Recheck::All);
    drive(&mut scheduler, &mut machines(1..=1), 0);
    scheduler.conclude(RUN, true);
    let mut second = restarted(&mut scheduler, Config::default());
    let tasks = 0..u32::try_from(TRUTH.plan.tasks()).unwrap();
    for task in tasks {
        let done = second.runs[0].tasks().done(task).unwrap();
        assert_eq!(done.confirmed, Confirmed::SameMachine, "task {task}");
    }
    // Nothing is awaited, as before; but another machine's word is worth asking for.
    assert_eq!(second.poll_finished(), Some(RUN));
    assert_eq!(second.conclude(RUN, true), Some(RunState::Complete));
    let command = Command::Recheck(Recheck::All);
    let state = second.control(RUN, command, Millis(0));
    assert_eq!(state, Ok(RunState::Running));
    let status = second.status(RUN, Millis(0)).unwrap();
    assert_eq!(status.rechecks.awaited, TRUTH.plan.tasks());
}

#[test]
fn a_recheck_that_cannot_be_kept_is_forgotten() {
    for state in [RunState::Complete, RunState::Running] {
        let mut scheduler = rechecked(Recheck::Millionths(0));
        let mut worker = machines(1..=1).remove(0);
        match state {
            RunState::Complete => {
                drive(&mut scheduler, &mut [worker], 0);
                scheduler.conclude(RUN, true);
            }
            _ => drop(worker.finish(&mut scheduler, 0)),
        }
        worker = Puppet::new(1);
        worker.finish(&mut scheduler, 1_000);
        let before = scheduler.status(RUN, Millis(1_000)).unwrap();
        let drawn = |scheduler: &Scheduler| {
            let tasks = 0..u32::try_from(TRUTH.plan.tasks()).unwrap();
            let done = tasks.filter_map(|task| scheduler.runs[0].tasks().done(task));
            done.filter(|done| done.drawn).count()
        };
        let command = Command::Recheck(Recheck::All);
        scheduler.control(RUN, command, Millis(1_000)).unwrap();
        assert!(drawn(&scheduler) > 0 || state == RunState::Running);
        changes(&mut scheduler);
        scheduler.take_back();
        assert_eq!(scheduler.recheck(RUN), Some(Recheck::Millionths(0)));
        assert_eq!(drawn(&scheduler), 0);
        assert_eq!(scheduler.status(RUN, Millis(1_000)), Some(before));
        scheduler.audit().unwrap();
        // What is counted from now on is not counted twice either.
        let mut other = Puppet::new(2);
        drive_if_open(&mut scheduler, &mut other);
        let status = scheduler.status(RUN, Millis(1_000)).unwrap();
        assert_eq!(
            (status.rechecks.agreed, status.rechecks.awaited),
            (0, 0),
            "{state:?}"
        );
    }
}

fn drive_if_open(scheduler: &mut Scheduler, worker: &mut Puppet) {
    if scheduler.runs()[0].state == RunState::Running {
        drive(scheduler, std::slice::from_mut(worker), 2_000);
    }
}

#[test]
fn a_second_count_that_takes_long_gets_a_backup_copy_on_another_machine() {
    let mut scheduler = rechecked(Recheck::All);
    let mut workers = machines(1..=3);
    let mut now = 0;
    // All first counts are in, and the second ones of the first worker's are under way.
    while numbers(&scheduler).done < TRUTH.plan.tasks() {
        now += 1_000;
        workers[0].finish(&mut scheduler, now);
    }
    workers[0].held.clear();
    workers[0].wants = 0.0;
    workers[0].sync(&mut scheduler, now);
    let mut slow = workers.remove(1);
    slow.wants = 1e9;
    slow.started = true;
    while scheduler.runs[0].seconds().number_waiting() > 0 {
        slow.sync(&mut scheduler, now);
        assert!(!slow.held.is_empty());
        slow.finish(&mut scheduler, now);
    }
    slow.sync(&mut scheduler, now);
    let awaited: Vec<_> = slow.held.iter().map(|grant| grant.task).collect();
    assert!(!awaited.is_empty(), "the last ones are never finished");
    now += 11_000;
    slow.sync(&mut scheduler, now);
    let [first, third] = &mut workers[..] else {
        unreachable!()
    };
    first.wants = 60.0;
    assert_eq!(first.sync(&mut scheduler, now).grants, [], "its own counts");
    let copies = third.sync(&mut scheduler, now).grants;
    assert_eq!(copies.len(), 1);
    assert!(awaited.contains(&copies[0].task));
    let same_way = slow.held.iter().find(|held| held.task == copies[0].task);
    assert_eq!(copies[0].orientation, same_way.unwrap().orientation);
    scheduler.audit().unwrap();
    // Either of them settles it.
    drive(&mut scheduler, std::slice::from_mut(third), now);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn a_second_count_waits_a_while_for_another_kernel() {
    let mut scheduler = rechecked(Recheck::All);
    let mut workers = machines(1..=3);
    workers[2].info.kernel = KernelName::Avx2;
    for worker in &mut workers {
        worker.sync(&mut scheduler, 0);
        worker.wants = 0.0;
    }
    for worker in &mut workers {
        worker.finish(&mut scheduler, 1_000);
    }
    let second_of_first = |scheduler: &mut Scheduler, worker: &mut Puppet, now| {
        worker.wants = 60.0;
        let reply = worker.sync(scheduler, now);
        worker.wants = 0.0;
        let done = |grant: &&Grant| {
            let done = scheduler.runs[0].tasks().done(run::index(grant.task.task));
            done.is_some_and(|done| scheduler.workers.id(done.worker) == WorkerId(1))
        };
        reply.grants.iter().filter(done).count()
    };
    let [_, same, other] = &mut workers[..] else {
        unreachable!()
    };
    assert_eq!(second_of_first(&mut scheduler, same, 2_000), 0);
    assert!(second_of_first(&mut scheduler, other, 3_000) > 0);
    for worker in &mut workers {
        worker.wants = 60.0;
    }
    drive(&mut scheduler, &mut workers, 4_000);
}

#[test]
fn a_complete_run_is_rechecked_on_demand_and_corrected() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut liar = machines(1..=1).remove(0);
    let mut lies = 0;
    let mut now = 0;
    // Nobody looks: the total is wrong, by a multiple of 8.
    while scheduler.poll_finished().is_none() {
        now += 1_000;
        liar.sync(&mut scheduler, now);
        for grant in std::mem::take(&mut liar.held) {
            let wrong = u64::from(lies < 2) * 8;
            lies += 1;
            liar.say(&mut scheduler, &grant, truth(grant.task) + wrong);
        }
    }
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total + 16)));
    assert_eq!(scheduler.conclude(RUN, false), Some(RunState::Contradicted));
    let mut honest = machines(2..=3);
    let command = Command::Recheck(Recheck::All);
    let state = scheduler.control(RUN, command, Millis(now));
    assert_eq!(state, Ok(RunState::Running));
    drive(&mut scheduler, &mut honest, now);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
    // Once more is no work: everything is confirmed.
    assert_eq!(scheduler.conclude(RUN, true), Some(RunState::Complete));
    let state = scheduler.control(RUN, command, Millis(now));
    assert_eq!(state, Ok(RunState::Complete));
}

#[test]
fn a_barred_worker_works_again_once_it_is_trusted() {
    let mut scheduler = scheduler();
    scheduler.restore_distrust(WorkerId(1), true);
    let mut worker = Puppet::new(1);
    assert_eq!(worker.sync(&mut scheduler, 0).grants, []);
    scheduler.trust(WorkerId(1));
    assert!(!worker.sync(&mut scheduler, 1_000).grants.is_empty());
    drive(&mut scheduler, &mut [worker], 2_000);
}

#[test]
fn all_counts_of_a_doubted_worker_are_compared() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    scheduler.restore_distrust(WorkerId(1), false);
    let mut workers = machines(1..=2);
    drive(&mut scheduler, &mut workers, 0);
    let by_it =
        |done: &Change| matches!(done, Change::Accepted(record) if record.worker == WorkerId(1));
    let changes = changes(&mut scheduler);
    let counted = changes.iter().filter(|change| by_it(change)).count();
    let status = scheduler.status(RUN, Millis(0)).unwrap();
    assert!(counted > 0);
    assert_eq!(status.rechecks.agreed, counted as u64);
}

#[test]
fn a_run_that_nobody_can_decide_ends_as_disputed_and_goes_on_when_somebody_comes() {
    let mut scheduler = rechecked(Recheck::All);
    let mut workers = machines(1..=2);
    // One of two is wrong about one task, both ways round.
    let now = until_over(&mut scheduler, &mut workers, |worker, of| {
        u64::from(worker == WorkerId(1) && of == task(3))
    });
    assert_eq!(scheduler.runs()[0].state, RunState::Disputed);
    assert_eq!(scheduler.poll_finished(), Some(RUN));
    assert_eq!(scheduler.total(RUN), None);
    let status = scheduler.status(RUN, Millis(now)).unwrap();
    assert_eq!(status.rechecks.quarantined, [TaskId(3)]);
    // A third machine decides.
    workers.extend(machines(3..=3));
    drive(&mut scheduler, &mut workers, now);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
    assert_eq!(scheduler.conclude(RUN, true), Some(RunState::Complete));
}

#[test]
fn doubts_and_bars_are_kept_with_the_reason_and_survive_a_restart() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut workers = machines(1..=4);
    for worker in &mut workers[1..] {
        worker.wants = 0.0;
        worker.sync(&mut scheduler, 0);
    }
    workers[0].wants = 1e9;
    let mut told = Vec::new();
    for _ in 0..4 {
        workers[0].sync(&mut scheduler, 0);
        for grant in std::mem::take(&mut workers[0].held) {
            workers[0].say(&mut scheduler, &grant, truth(grant.task) + 8);
            told.push(grant);
        }
    }
    for worker in &workers[1..] {
        worker.say(&mut scheduler, &told[0], truth(told[0].task));
    }
    let kept = changes(&mut scheduler);
    let doubt = kept.iter().position(|change| {
        matches!(change, Change::Trust(TrustRecord { trust: Trust::Doubted, worker, .. })
            if *worker == WorkerId(1))
    });
    let decided = kept
        .iter()
        .rposition(|change| matches!(change, Change::Accepted(_)));
    assert!(doubt.expect("a doubt") < decided.expect("a decision"));
    // The next life of the coordinator knows, and counts again what the worker alone counted.
    let mut store = MemoryStore::new();
    let manifest = manifest(RUN, 0);
    store.create(&manifest).unwrap();
    store.apply(&kept).unwrap();
    let mut second = Scheduler::new(Config::default(), 9);
    for record in store.trust().unwrap() {
        second.restore_distrust(record.worker, record.trust == Trust::Barred);
    }
    second.add_run(&manifest, TRUTH.plan.clone(), RunState::Running);
    second.restore_recheck(RUN, Recheck::Millionths(0));
    store
        .scan(RUN, &mut |row| second.restore_task(RUN, row))
        .unwrap();
    second.restored(Millis(0));
    second.audit().unwrap();
    let status = second.status(RUN, Millis(0)).unwrap();
    assert_eq!(status.rechecks.awaited, told.len() as u64 - 1);
    drive(
        &mut second,
        &mut workers[1..]
            .iter()
            .map(|_| ())
            .zip(2..)
            .map(|((), id)| Puppet::new(id))
            .collect::<Vec<_>>(),
        1_000,
    );
    assert_eq!(second.total(RUN), Some(Ok(TRUTH.total)));
}

/// Tasks that one worker alone has counted, compared as far as needed to make it known, and one more
/// about which it is wrong.
fn liar_that_is_known() -> (Scheduler, Puppet, Grant) {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut liar = machines(1..=1).remove(0);
    liar.wants = 1e9;
    let mut told = Vec::new();
    for round in 0..40 {
        liar.sync(&mut scheduler, round * 1_000);
        for grant in std::mem::take(&mut liar.held) {
            let wrong = u64::from(grant.task == task(7));
            liar.say(&mut scheduler, &grant, truth(grant.task) + wrong);
            told.push(grant);
        }
    }
    assert_eq!(told.len() as u64, TRUTH.plan.tasks());
    let wrong = told.iter().position(|grant| grant.task == task(7));
    let wrong = told.remove(wrong.unwrap());
    // Somebody who has gone since agreed with three of its counts.
    for grant in &told[..3] {
        let (verdict, _) = Puppet::new(2).say(&mut scheduler, grant, truth(grant.task));
        assert_eq!(verdict, Verdict::Duplicate);
    }
    let mut scheduler = restarted(&mut scheduler, Config::default());
    liar.sync(&mut scheduler, 0);
    (scheduler, liar, wrong)
}

/// One step of a worker that counts right, or of the liar above.
fn step(scheduler: &mut Scheduler, worker: &mut Puppet, now: u64) {
    worker.sync(scheduler, now);
    for grant in std::mem::take(&mut worker.held) {
        let lies = worker.info.id == WorkerId(1) && grant.task == task(7);
        worker.say(scheduler, &grant, truth(grant.task) + u64::from(lies));
    }
    scheduler.audit().unwrap();
}

#[test]
fn two_honest_newcomers_become_known_and_then_outvote_a_known_liar() {
    for is_disputed in [false, true] {
        let (mut scheduler, mut liar, wrong) = liar_that_is_known();
        let mut newcomers = machines(3..=4);
        let right = truth(wrong.task);
        let (verdict, _) = newcomers[0].say(&mut scheduler, &wrong, right);
        assert_eq!(verdict, Verdict::Conflict);
        let mut now = 0;
        // One against one stays open, whoever is known.
        while is_disputed && scheduler.runs()[0].state == RunState::Running {
            now += 1_000;
            assert!(now < 500_000, "{:#?}", scheduler.status(RUN, Millis(now)));
            step(&mut scheduler, &mut liar, now);
            step(&mut scheduler, &mut newcomers[0], now);
        }
        let (verdict, _) = newcomers[1].say(&mut scheduler, &wrong, right);
        assert_eq!(verdict, Verdict::Conflict, "nobody knows them");
        while scheduler.poll_finished().is_none() || scheduler.total(RUN).is_none() {
            now += 1_000;
            assert!(now < 900_000, "{:#?}", scheduler.status(RUN, Millis(now)));
            step(&mut scheduler, &mut liar, now);
            for worker in &mut newcomers {
                step(&mut scheduler, worker, now);
            }
        }
        assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
        let state = scheduler.workers(Millis(now))[0].state;
        assert_ne!(state, WorkerState::Barred, "it was wrong once");
    }
}

#[test]
fn one_unknown_machine_against_a_known_one_is_no_majority_to_be_examined() {
    // Whichever of them says more.
    for wrong in [0, 2] {
        let (mut scheduler, mut known, kept) = liar_that_is_known();
        let mut unknown = machines(3..=3).remove(0);
        let count = truth(kept.task) + wrong;
        let (verdict, _) = unknown.say(&mut scheduler, &kept, count);
        assert_eq!(verdict, Verdict::Conflict);
        let mut now = 0;
        while scheduler.runs()[0].state == RunState::Running {
            now += 1_000;
            assert!(now < 500_000, "{:#?}", scheduler.status(RUN, Millis(now)));
            step(&mut scheduler, &mut known, now);
            unknown.sync(&mut scheduler, now);
            for grant in std::mem::take(&mut unknown.held) {
                assert_eq!(grant.task, kept.task, "to be known would not help it");
                unknown.say(&mut scheduler, &grant, count);
            }
        }
        assert_eq!(scheduler.runs()[0].state, RunState::Disputed);
    }
}

#[test]
fn a_machine_that_lost_its_identity_is_known_by_its_number_and_token() {
    for same_token in [true, false] {
        let token = |name: &str| Some(Arc::from(name));
        let mut scheduler = rechecked(Recheck::Millionths(0));
        let mut liar = machines(1..=1).remove(0);
        liar.wants = 1e9;
        liar.token = token("lab");
        let mut told = Vec::new();
        for round in 0..40 {
            liar.sync(&mut scheduler, round * 1_000);
            for grant in std::mem::take(&mut liar.held) {
                liar.say(&mut scheduler, &grant, truth(grant.task));
                told.push(grant);
            }
        }
        let of = |id: u128, machine: u64, name: &str| {
            let mut worker = Puppet::new(id);
            worker.info.machine = machine;
            worker.token = token(name);
            worker
        };
        let (kept, rest) = told.split_first().unwrap();
        for grant in &rest[..3] {
            of(2, 77, "lab").say(&mut scheduler, grant, truth(grant.task));
        }
        // Both machines are known by now; the one of number 77 comes back under another name.
        let right = truth(kept.task);
        let back = of(3, 77, if same_token { "lab" } else { "other" });
        back.say(&mut scheduler, kept, right + 1);
        let (verdict, _) = of(4, 78, "lab").say(&mut scheduler, kept, right + 1);
        assert_eq!(verdict == Verdict::Accepted, same_token, "{verdict:?}");
    }
}

#[test]
fn every_worker_is_owed_two_comparisons_whatever_the_others_have_used_up() {
    let mut scheduler = rechecked(Recheck::Auto);
    // A hundredth of so small a run is less than one task.
    let mut workers = machines(1..=4);
    let mut compared = std::collections::BTreeMap::<WorkerId, u64>::new();
    let mut now = 0;
    while scheduler.poll_finished().is_none() {
        now += 1_000;
        assert!(now < 500_000, "{:#?}", scheduler.status(RUN, Millis(now)));
        for worker in &mut workers {
            worker.finish(&mut scheduler, now);
        }
        for change in changes(&mut scheduler) {
            if let Change::Confirmed(second) = change {
                let first = scheduler.runs[0]
                    .tasks()
                    .done(run::index(second.task))
                    .unwrap();
                *compared
                    .entry(scheduler.workers.id(first.worker))
                    .or_default() += 1;
            }
        }
    }
    for worker in &workers {
        let compared = compared.get(&worker.info.id).copied().unwrap_or_default();
        assert!(
            (2..=4).contains(&compared),
            "{}: {compared}",
            worker.info.name
        );
    }
}
