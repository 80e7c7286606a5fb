//! Tasks on which workers failed: set aside, tried again, freed.

use super::*;

/// Five machines die one after the other over one task that each has begun.
fn poisoned() -> (Scheduler, TaskId, u64) {
    let mut scheduler = scheduler();
    let mut now = 0;
    let mut poison = None;
    for id in 1..=5 {
        let mut worker = Puppet::new(id);
        worker.sync(&mut scheduler, now);
        let task = *poison.get_or_insert(worker.held[0].task.task);
        // It gives all others back and dies over this one.
        worker.held.retain(|grant| grant.task.task == task);
        assert_eq!(worker.held.len(), 1, "worker {id}");
        worker.wants = 0.0;
        worker.started = true;
        worker.sync(&mut scheduler, now);
        for _ in 0..5 {
            now += 60_000;
            scheduler.advance(Millis(now));
        }
        let parked = u64::from(id == 5);
        assert_eq!(numbers(&scheduler).parked, parked, "worker {id}");
    }
    scheduler.audit().unwrap();
    (scheduler, poison.unwrap(), now)
}

/// Takes what it is given and dies over the poison; counts the rest.
fn suffer(scheduler: &mut Scheduler, poison: TaskId, (id, now): (u128, &mut u64)) {
    let mut worker = Puppet::new(id);
    for _ in 0..TRUTH.counts.len() {
        worker.sync(scheduler, *now);
        worker.held.sort_by_key(|grant| grant.task.task == poison);
        let Some(grant) = worker.held.first().copied() else {
            return;
        };
        if grant.task.task == poison {
            worker.started = true;
            worker.sync(scheduler, *now);
            for _ in 0..5 {
                *now += 60_000;
                scheduler.advance(Millis(*now));
            }
            return;
        }
        let all = worker.held.clone();
        worker.held.retain(|grant| grant.task.task == poison);
        for grant in all.iter().filter(|grant| grant.task.task != poison) {
            worker.say(scheduler, grant, truth(grant.task));
        }
        *now += 1_000;
    }
}

#[test]
fn the_scheduler_wants_to_be_called_for_the_trial_of_a_run_that_goes_on() {
    let (mut scheduler, _, now) = poisoned();
    scheduler.advance(Millis(now + 30_000));
    assert_eq!(scheduler.next_timeout(), Some(Millis(now + 60_000)));
    let later = Millis(now + 30_000);
    scheduler.control(RUN, Command::Pause, later).unwrap();
    // Nothing is tried: as late as it may be.
    assert_eq!(scheduler.next_timeout(), Some(Millis(now + 90_000)));
}

#[test]
fn a_task_that_is_set_aside_goes_on_only_where_it_was_begun() {
    for started in [false, true] {
        let (mut scheduler, poison, now) = poisoned();
        let held = HeldLease {
            task: task(poison.0),
            epoch: Epoch(1),
            cost_done: 0,
            started,
        };
        let request = SyncRequest {
            held: vec![held],
            seconds_wanted: 0.0,
            ..Puppet::new(6).request()
        };
        let revoked = scheduler.sync(&request, Millis(now)).revoked;
        let reasons: Vec<_> = revoked.iter().map(|gone| gone.reason.as_str()).collect();
        let (expected, parked) = match started {
            true => (&[][..], 0),
            false => (&["the task is set aside after failed attempts"][..], 1),
        };
        assert_eq!(reasons, expected);
        assert_eq!(numbers(&scheduler).parked, parked);
        scheduler.audit().unwrap();
    }
}

#[test]
fn a_task_that_fails_everywhere_is_parked_and_the_run_goes_on() {
    let (mut scheduler, poison, mut now) = poisoned();
    let parked = Change::Parked {
        run: RUN,
        task: poison,
    };
    assert!(changes(&mut scheduler).contains(&parked));
    scheduler.control(RUN, Command::Pause, Millis(now)).unwrap();
    scheduler
        .control(RUN, Command::Resume, Millis(now))
        .unwrap();
    let mut worker = Puppet::new(6);
    for _ in 0..50 {
        worker.finish(&mut scheduler, now);
        now += 1_000;
    }
    assert_eq!(numbers(&scheduler).done, TRUTH.counts.len() as u64 - 1);
    assert_eq!(scheduler.total(RUN), None);
    let status = scheduler.status(RUN, Millis(now)).unwrap();
    for part in [
        "parked",
        "tried again in",
        "queensctl retry 0000000000000007",
    ] {
        assert!(status.reason.contains(part), "{}", status.reason);
    }
}

#[test]
fn a_parked_task_is_tried_again_by_itself() {
    let (mut scheduler, poison, now) = poisoned();
    // Nobody says a word; the machines were at fault, and this one is not.
    drive(&mut scheduler, &mut [Puppet::new(6)], now);
    let freed = Change::Unparked {
        run: RUN,
        task: poison,
    };
    assert!(changes(&mut scheduler).contains(&freed));
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn a_task_that_goes_on_failing_is_tried_more_and_more_seldom() {
    let (mut scheduler, poison, mut now) = poisoned();
    let mut trials = Vec::new();
    for id in 6..12 {
        // Until the task is out on trial, nothing else is left for anybody.
        while numbers(&scheduler).parked == 1 {
            now += 1_000;
            scheduler.advance(Millis(now));
        }
        trials.push(now);
        suffer(&mut scheduler, poison, (id, &mut now));
        scheduler.audit().unwrap();
        assert_eq!(numbers(&scheduler).parked, 1, "one more failure parks it");
    }
    let pauses: Vec<_> = trials.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let longer = |pair: &[u64]| pair[1] > pair[0] + 60_000;
    assert!(pauses.windows(2).all(longer), "{pauses:?}");
    // An operator need not wait.
    scheduler
        .control(RUN, Command::Unpark, Millis(now))
        .unwrap();
    assert_eq!(numbers(&scheduler).parked, 0);
    drive(&mut scheduler, &mut [Puppet::new(99)], now);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn machines_that_ask_for_work_and_vanish_park_nothing() {
    let mut scheduler = scheduler();
    let mut now = 0;
    for id in 1..=40 {
        let mut worker = Puppet::new(id);
        worker.info.threads = 64;
        worker.sync(&mut scheduler, now);
        // Some live long enough to say what they hold.
        if id % 2 == 0 {
            worker.sync(&mut scheduler, now);
        }
        for _ in 0..6 {
            now += 60_000;
            scheduler.advance(Millis(now));
        }
        scheduler.audit().unwrap();
    }
    assert_eq!(numbers(&scheduler).parked, 0);
    assert_eq!(numbers(&scheduler).pending, TRUTH.plan.tasks());
    drive(&mut scheduler, &mut [Puppet::new(99)], now);
}

#[test]
fn what_a_vanished_worker_held_comes_after_what_nobody_has_touched() {
    let mut scheduler = scheduler();
    let mut gone = Puppet::new(1);
    gone.sync(&mut scheduler, 0);
    let touched: Vec<_> = gone.held.iter().map(|grant| grant.task.task).collect();
    for minute in 1..=6 {
        scheduler.advance(Millis(minute * 60_000));
    }
    let mut next = Puppet::new(2);
    next.sync(&mut scheduler, 360_000);
    let again = |grant: &&Grant| touched.contains(&grant.task.task);
    assert_eq!(next.held.iter().find(again), None);
    drive(&mut scheduler, &mut [next], 361_000);
}

#[test]
fn a_begun_task_that_was_parked_meanwhile_is_taken_up_again() {
    let (mut scheduler, poison, now) = poisoned();
    let mut survivor = Puppet::new(5);
    survivor.started = true;
    survivor.wants = 0.0;
    survivor.held = vec![Grant {
        task: task(poison.0),
        epoch: Epoch(5),
        spec: *TRUTH.plan.spec(),
        orientation: Orientation::Upright,
    }];
    let reply = survivor.sync(&mut scheduler, now);
    assert_eq!((reply.revoked.len(), numbers(&scheduler).parked), (0, 0));
    scheduler.audit().unwrap();
    survivor.wants = 60.0;
    drive(&mut scheduler, &mut [survivor], now);
}
