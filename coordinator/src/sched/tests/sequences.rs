//! Words of operators, restarts and machines that cannot, in orders that nobody plans: nothing waits for
//! ever, and no doubt is forgotten.

use super::*;

/// A worker whose memory holds no task of the run.
fn too_small(id: u128) -> Puppet {
    let mut worker = Puppet::new(id);
    worker.info.memory_bytes_per_thread = 1;
    worker
}

#[test]
fn a_machine_that_cannot_count_the_run_is_not_waited_for_with_second_counts() {
    let mut scheduler = rechecked(Recheck::All);
    let mut workers = [Puppet::new(1), too_small(2)];
    drive(&mut scheduler, &mut workers, 0);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
    let agreed = scheduler.status(RUN, Millis(0)).unwrap().rechecks.agreed;
    assert_eq!(
        agreed,
        TRUTH.plan.tasks(),
        "by the machine that is there, the other way round"
    );
}

#[test]
fn a_machine_that_cannot_count_the_run_does_not_keep_a_dispute_open() {
    for why in ["memory", "bar", "drain"] {
        dispute_beside_one_that_cannot(why);
    }
}

fn dispute_beside_one_that_cannot(why: &str) {
    let mut scheduler = rechecked(Recheck::All);
    let mut workers = [Puppet::new(1), Puppet::new(2), Puppet::new(3)];
    workers[2].say_nothing(&mut scheduler);
    match why {
        "memory" => workers[2] = too_small(3),
        "bar" => scheduler.restore_distrust(WorkerId(3), true),
        _ => assert!(scheduler.drain(WorkerId(3))),
    }
    let now = until_over(&mut scheduler, &mut workers, |worker, of| {
        u64::from(worker == WorkerId(1) && of == task(3))
    });
    assert_eq!(scheduler.runs()[0].state, RunState::Disputed);
    assert_eq!(scheduler.poll_finished(), Some(RUN));
    // Somebody who can decides.
    workers[2] = Puppet::new(4);
    drive(&mut scheduler, &mut workers, now);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn a_cancellation_that_cannot_be_kept_loses_no_second_count_and_no_dispute() {
    let mut scheduler = rechecked(Recheck::All);
    let mut first = Puppet::new(1);
    first.finish(&mut scheduler, 0);
    first.wants = 0.0;
    let contested = first.held[0];
    first.finish(&mut scheduler, 1_000);
    // One contradicts it, the next is to decide, and counts others a second time.
    Puppet::new(2).say(&mut scheduler, &contested, truth(contested.task) + 1);
    let mut third = Puppet::new(3);
    third.sync(&mut scheduler, 2_000);
    let asked: Vec<_> = third.held.iter().map(|grant| grant.task).collect();
    assert!(asked.contains(&contested.task), "{asked:?}");
    assert!(asked.len() > 1, "{asked:?}");
    changes(&mut scheduler);
    let before = scheduler.status(RUN, Millis(2_000)).unwrap().rechecks;
    scheduler
        .control(RUN, Command::Cancel, Millis(2_000))
        .unwrap();
    scheduler.audit().unwrap();
    changes(&mut scheduler);
    scheduler.take_back();
    scheduler.audit().unwrap();
    let after = scheduler.status(RUN, Millis(2_000)).unwrap().rechecks;
    assert_eq!(after, before);
    let mut workers = [Puppet::new(1), Puppet::new(3), Puppet::new(4)];
    drive(&mut scheduler, &mut workers, 3_000);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
    let agreed = scheduler.runs[0].tasks().agreed().confirmed;
    assert_eq!(agreed, TRUTH.plan.tasks());
}

#[test]
fn what_was_counted_before_a_repair_is_counted_again_whatever_is_restarted_after_it() {
    for is_restarted in [false, true] {
        let mut scheduler = rechecked(Recheck::Millionths(0));
        let mut liar = Puppet::new(1);
        liar.wants = 1e9;
        let mut told = Vec::new();
        for _ in 0..4 {
            liar.sync(&mut scheduler, 0);
            for grant in std::mem::take(&mut liar.held) {
                let wrong = u64::from(told.len() < 2) * 8;
                liar.say(&mut scheduler, &grant, truth(grant.task) + wrong);
                told.push(grant);
            }
        }
        // Found wrong once of twice, repaired, and trusted before anybody has looked at the rest.
        for id in 2..=4 {
            Puppet::new(id).say(&mut scheduler, &told[0], truth(told[0].task));
        }
        scheduler.trust(WorkerId(1));
        let awaited = |scheduler: &Scheduler| {
            let status = scheduler.status(RUN, Millis(0)).unwrap();
            status.rechecks.awaited
        };
        assert_eq!(awaited(&scheduler), told.len() as u64 - 1);
        if is_restarted {
            scheduler = restarted(&mut scheduler, Config::default());
        }
        assert_eq!(awaited(&scheduler), told.len() as u64 - 1);
        let mut honest: Vec<_> = (5..=7).map(Puppet::new).collect();
        drive(&mut scheduler, &mut honest, 1_000);
        assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
    }
}

#[test]
fn a_count_on_which_two_machines_agreed_is_not_outvoted_after_a_restart() {
    for is_restarted in [false, true] {
        let mut scheduler = rechecked(Recheck::Millionths(0));
        let mut first = Puppet::new(1);
        first.sync(&mut scheduler, 0);
        let grant = first.held.remove(0);
        let right = truth(grant.task);
        first.say(&mut scheduler, &grant, right);
        let (verdict, _) = Puppet::new(2).say(&mut scheduler, &grant, right);
        assert_eq!(verdict, Verdict::Duplicate);
        // Both are gone when two others tell the same lie, and nobody else is there to be asked.
        let liars = [Puppet::new(3), Puppet::new(4)];
        let said = liars[0].say(&mut scheduler, &grant, right + 8);
        assert_eq!(said.0, Verdict::Conflict);
        if is_restarted {
            scheduler = restarted(&mut scheduler, Config::default());
        }
        for liar in &liars {
            let (verdict, _) = liar.say(&mut scheduler, &grant, right + 8);
            assert_eq!(verdict, Verdict::Conflict, "restarted: {is_restarted}");
        }
        assert_eq!(numbers(&scheduler).quarantined, 1);
    }
}

#[test]
fn a_machine_that_is_always_wrong_beside_one_that_is_right_ends_in_a_dispute_about_every_task() {
    let mut scheduler = scheduler_of(&MANY.plan, Recheck::All);
    // More than are looked at for one reply.
    assert!(MANY.plan.tasks() > 3 * super::super::grants::SCAN as u64);
    let mut workers: Vec<_> = (1..=2).map(Puppet::new).collect();
    let mut now = 0;
    let step = |scheduler: &mut Scheduler, worker: &mut Puppet, now| {
        worker.sync(scheduler, now);
        for grant in std::mem::take(&mut worker.held) {
            let wrong = u64::from(worker.info.id == WorkerId(1)) * 8;
            let right = MANY.counts[usize::try_from(grant.task.task.0).unwrap()];
            worker.say(scheduler, &grant, right + wrong);
        }
    };
    while scheduler.runs()[0].state == RunState::Running {
        now += 1_000;
        assert!(now < 5_000_000, "{:#?}", scheduler.status(RUN, Millis(now)));
        for worker in &mut workers {
            step(&mut scheduler, worker, now);
        }
    }
    scheduler.audit().unwrap();
    assert_eq!(scheduler.runs()[0].state, RunState::Disputed);
    assert_eq!(numbers(&scheduler).quarantined, MANY.plan.tasks());
    // A third one decides them all.
    workers.push(Puppet::new(3));
    while scheduler.total(RUN).is_none() {
        now += 1_000;
        assert!(now < 9_000_000, "{:#?}", scheduler.status(RUN, Millis(now)));
        for worker in &mut workers {
            step(&mut scheduler, worker, now);
        }
    }
    assert_eq!(scheduler.total(RUN), Some(Ok(MANY.total)));
}

#[test]
fn more_different_counts_than_are_kept_end_in_a_dispute() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut first = Puppet::new(1);
    first.sync(&mut scheduler, 0);
    let contested = first.held.remove(0);
    // Every machine counts something else, whichever way round.
    for id in 1..=8 {
        let count = truth(contested.task) + u64::try_from(id).unwrap();
        Puppet::new(id).say(&mut scheduler, &contested, count);
    }
    let mut workers: Vec<_> = (1..=10).map(Puppet::new).collect();
    until_over(&mut scheduler, &mut workers, |worker, task| {
        match task == contested.task {
            true => u64::try_from(worker.0).unwrap(),
            false => 0,
        }
    });
    assert_eq!(scheduler.runs()[0].state, RunState::Disputed);
}
