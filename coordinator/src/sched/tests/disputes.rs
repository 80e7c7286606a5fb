//! Counts that contradict: who is asked again, who becomes known, and when nobody is waited for.

use super::*;

/// The task that the first worker counted wrong.
const CONTESTED: u64 = 7;

/// Says the same count of a task both ways round: nobody is asked the same twice.
fn say_both_ways(worker: &Puppet, scheduler: &mut Scheduler, grant: &Grant, count: u64) {
    for orientation in [Orientation::Upright, Orientation::Turned] {
        let asked = Grant {
            orientation,
            ..*grant
        };
        let (verdict, reason) = worker.say(scheduler, &asked, count);
        assert!(
            matches!(verdict, Verdict::Conflict | Verdict::Accepted),
            "{verdict:?}: {reason}"
        );
    }
}

/// The first worker has counted every task, one of them wrong, and nothing is counted twice. Its leases.
fn counted_by_one() -> (Scheduler, Puppet, Vec<Grant>) {
    let nobody = Puppet::new(9);
    counted_by_two(&nobody, 0)
}

/// The same, but of so many tasks in natural order the counts are another's.
fn counted_by_two(other: &Puppet, of_other: u64) -> (Scheduler, Puppet, Vec<Grant>) {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    worker.wants = 1e9;
    let mut counted = Vec::new();
    while (counted.len() as u64) < TRUTH.plan.tasks() {
        worker.sync(&mut scheduler, 0);
        for grant in std::mem::take(&mut worker.held) {
            let wrong = u64::from(grant.task == task(CONTESTED));
            let by = match grant.task.task.0 < of_other {
                true => other,
                false => &worker,
            };
            by.say(&mut scheduler, &grant, truth(grant.task) + wrong);
            counted.push(grant);
        }
    }
    scheduler.audit().unwrap();
    (scheduler, worker, counted)
}

/// The lease of the contested task.
fn contested(counted: &[Grant]) -> Grant {
    let grant = counted
        .iter()
        .find(|grant| grant.task == task(CONTESTED))
        .unwrap();
    *grant
}

/// Holds nothing and says goodbye.
fn leave(worker: &Puppet, scheduler: &mut Scheduler) {
    let goodbye = SyncRequest {
        held: Vec::new(),
        draining: true,
        ..worker.request()
    };
    let now = scheduler.clock.wall(scheduler.clock.ticks());
    scheduler.sync(&goodbye, now);
    scheduler.audit().unwrap();
}

/// Nobody calls for this long, in steps that no clock finds strange.
fn wait(scheduler: &mut Scheduler, seconds: u64) {
    let now = scheduler.clock.wall(scheduler.clock.ticks()).0;
    for second in (10..=seconds).step_by(10) {
        scheduler.advance(Millis(now + second * 1_000));
    }
    scheduler.audit().unwrap();
}

fn state(scheduler: &Scheduler) -> RunState {
    scheduler.runs()[0].state
}

fn awaited(scheduler: &Scheduler) -> u64 {
    let status = scheduler.status(RUN, Millis(0)).unwrap();
    status.rechecks.awaited
}

#[test]
fn only_who_works_and_was_never_wrong_is_examined_to_be_known() {
    for (drains, was_wrong) in [(false, false), (true, false), (false, true)] {
        let (mut scheduler, liar, counted) = counted_by_one();
        let grant = contested(&counted);
        let others = counted.iter().filter(|other| other.task != grant.task);
        // Somebody who has gone since agreed with three of the liar's counts: it is known.
        let gone = Puppet::new(2);
        for grant in others.take(3) {
            gone.say(&mut scheduler, grant, truth(grant.task));
        }
        leave(&gone, &mut scheduler);
        for id in [3, 4] {
            let newcomer = Puppet::new(id);
            if was_wrong {
                scheduler.restore_distrust(newcomer.info.id, false);
            }
            say_both_ways(&newcomer, &mut scheduler, &grant, truth(grant.task));
            if drains {
                assert!(scheduler.drain(newcomer.info.id));
            }
        }
        say_both_ways(&liar, &mut scheduler, &grant, truth(grant.task) + 1);
        assert_eq!(
            (state(&scheduler), awaited(&scheduler)),
            (RunState::Running, 0)
        );
        wait(&mut scheduler, 100);
        // The two are given counts of the known one, or nobody who is there can settle it.
        let expected = match drains || was_wrong {
            false => (RunState::Running, 3),
            true => (RunState::Disputed, 0),
        };
        assert_eq!(
            (state(&scheduler), awaited(&scheduler)),
            expected,
            "drains: {drains}, was wrong: {was_wrong}"
        );
    }
}

/// Two against one, and both ways round; a fourth is there who could be asked, so that two are not
/// enough.
fn two_against_one() -> (Scheduler, [Puppet; 4], Grant) {
    let (mut scheduler, liar, counted) = counted_by_one();
    let grant = contested(&counted);
    let [second, third, fourth] = [2, 3, 4].map(Puppet::new);
    fourth.say_nothing(&mut scheduler);
    say_both_ways(&second, &mut scheduler, &grant, truth(grant.task));
    say_both_ways(&third, &mut scheduler, &grant, truth(grant.task));
    say_both_ways(&liar, &mut scheduler, &grant, truth(grant.task) + 1);
    assert_eq!(numbers(&scheduler).quarantined, 1);
    (scheduler, [liar, second, third, fourth], grant)
}

#[test]
fn who_agrees_with_what_is_decided_by_now_settles_it_though_it_was_asked_both_ways() {
    let (mut scheduler, [liar, mut second, third, fourth], grant) = two_against_one();
    leave(&liar, &mut scheduler);
    leave(&fourth, &mut scheduler);
    wait(&mut scheduler, 100);
    assert_eq!(state(&scheduler), RunState::Running, "two can still say it");
    let now = scheduler.clock.wall(scheduler.clock.ticks()).0;
    let asked = second.sync(&mut scheduler, now).grants;
    assert!(
        asked.iter().any(|asked| asked.task == grant.task),
        "{asked:?}"
    );
    drive(&mut scheduler, &mut [second, third], now);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn who_contradicts_what_is_decided_by_now_is_not_waited_for_once_it_was_asked_both_ways() {
    let (mut scheduler, [mut liar, second, third, fourth], grant) = two_against_one();
    for gone in [second, third, fourth] {
        leave(&gone, &mut scheduler);
    }
    liar.held.clear();
    let now = scheduler.clock.wall(scheduler.clock.ticks()).0;
    let asked = liar.sync(&mut scheduler, now).grants;
    assert!(
        asked.iter().all(|asked| asked.task != grant.task),
        "{asked:?}"
    );
    wait(&mut scheduler, 100);
    assert_eq!(state(&scheduler), RunState::Disputed);
}

#[test]
fn who_has_counted_is_asked_again_only_once_nobody_else_can_be() {
    let (mut scheduler, _, counted) = counted_by_one();
    let grant = contested(&counted);
    let mut second = Puppet::new(2);
    let third = Puppet::new(3);
    third.say_nothing(&mut scheduler);
    second.say(&mut scheduler, &grant, truth(grant.task));
    let now = scheduler.clock.wall(scheduler.clock.ticks()).0;
    let asked = second.sync(&mut scheduler, now).grants;
    assert_eq!(asked, [], "the third has not said anything");
    leave(&third, &mut scheduler);
    let [asked] = second.sync(&mut scheduler, now).grants[..] else {
        panic!("it is the only one that can still add something");
    };
    assert_eq!(asked.task, grant.task);
    assert_ne!(asked.orientation, grant.orientation, "the other way round");
}

#[test]
fn a_run_is_not_disputed_while_nobody_is_connected() {
    for somebody_stays in [false, true] {
        let (mut scheduler, liar, counted) = counted_by_one();
        let grant = contested(&counted);
        let other = Puppet::new(2);
        say_both_ways(&other, &mut scheduler, &grant, truth(grant.task));
        say_both_ways(&liar, &mut scheduler, &grant, truth(grant.task) + 1);
        leave(&liar, &mut scheduler);
        if !somebody_stays {
            leave(&other, &mut scheduler);
        }
        wait(&mut scheduler, 200);
        let status = scheduler.status(RUN, Millis(0)).unwrap();
        if somebody_stays {
            assert_eq!(status.state, RunState::Disputed);
        } else {
            assert_eq!(status.state, RunState::Running);
            assert_eq!(status.reason, "no worker is connected");
        }
    }
}

#[test]
fn the_status_names_a_contested_task_that_nobody_can_decide_while_others_move() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut first = Puppet::new(1);
    let second = Puppet::new(2);
    first.sync(&mut scheduler, 0);
    let grant = first.held[0];
    let right = truth(grant.task);
    first.say(&mut scheduler, &grant, right);
    say_both_ways(&second, &mut scheduler, &grant, right + 1);
    say_both_ways(&first, &mut scheduler, &grant, right);
    first.held.clear();
    first.sync(&mut scheduler, 1_000);
    assert!(!first.held.is_empty(), "something moves");
    assert!(first.held.iter().all(|held| held.task != grant.task));
    let reason = |scheduler: &Scheduler| scheduler.status(RUN, Millis(1_000)).unwrap().reason;
    let named = format!("task {} was counted as", grant.task.task);
    assert!(
        reason(&scheduler).starts_with(&named),
        "{}",
        reason(&scheduler)
    );
    // Somebody comes who has not counted it: there is nothing to be told.
    Puppet::new(3).say_nothing(&mut scheduler);
    assert_eq!(reason(&scheduler), "");
}

#[test]
fn of_two_runs_that_came_to_their_end_the_one_that_was_opened_again_is_not_told() {
    let other = RunId(8);
    let mut scheduler = rechecked(Recheck::Millionths(0));
    scheduler.add_run(&manifest(other, 0), TRUTH.plan.clone(), RunState::Running);
    scheduler.restore_recheck(other, Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    let mut first = None;
    for round in 0..200 {
        worker.sync(&mut scheduler, round);
        first = first.or(worker.held.first().copied());
        worker.finish(&mut scheduler, round);
    }
    let done: Vec<_> = scheduler.runs().iter().map(|run| run.tasks.done).collect();
    assert_eq!(done, [TRUTH.plan.tasks(); 2]);
    let first = first.unwrap();
    assert_eq!(first.task.run, RUN);
    // Before its owner asks what has ended, somebody contradicts a count of it.
    let (verdict, _) = Puppet::new(2).say(&mut scheduler, &first, truth(first.task) + 1);
    assert_eq!(verdict, Verdict::Conflict);
    assert_eq!(scheduler.poll_finished(), Some(other));
    assert_eq!(scheduler.poll_finished(), None);
    // Once that is settled it has ended after all.
    drive(&mut scheduler, &mut [Puppet::new(3)], 1_000);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn a_run_waits_a_minute_for_somebody_who_can_decide() {
    for start in [0, 120_000] {
        let (mut scheduler, liar, counted) = counted_by_one();
        wait(&mut scheduler, start / 1_000);
        let grant = contested(&counted);
        let other = Puppet::new(2);
        say_both_ways(&other, &mut scheduler, &grant, truth(grant.task));
        say_both_ways(&liar, &mut scheduler, &grant, truth(grant.task) + 1);
        // From the call that finds it so.
        for (after, expected) in [
            (0, RunState::Running),
            (59_999, RunState::Running),
            (60_000, RunState::Disputed),
        ] {
            scheduler.advance(Millis(start + after));
            assert_eq!(state(&scheduler), expected, "{start} + {after} ms");
        }
    }
}

#[test]
fn the_minute_begins_anew_once_somebody_was_asked() {
    let (mut scheduler, liar, counted) = counted_by_one();
    let grant = contested(&counted);
    let other = Puppet::new(2);
    say_both_ways(&other, &mut scheduler, &grant, truth(grant.task));
    say_both_ways(&liar, &mut scheduler, &grant, truth(grant.task) + 1);
    scheduler.advance(Millis(0));
    let mut third = Puppet::new(3);
    third.sync(&mut scheduler, 30_000);
    assert!(third.held.iter().any(|held| held.task == grant.task));
    scheduler.advance(Millis(50_000));
    third.held.clear();
    // It says something else again.
    say_both_ways(&third, &mut scheduler, &grant, truth(grant.task) + 2);
    for (at, expected) in [
        (50_000, RunState::Running),
        (109_999, RunState::Running),
        (110_000, RunState::Disputed),
    ] {
        scheduler.advance(Millis(at));
        assert_eq!(state(&scheduler), expected, "at {at} ms");
    }
}

#[test]
fn newcomers_are_examined_by_counts_of_those_whom_they_contradict() {
    // Others have counted as well, and are confirmed.
    let [fifth, sixth] = [5, 6].map(Puppet::new);
    let (mut scheduler, liar, counted) = counted_by_two(&fifth, 4);
    let grant = contested(&counted);
    let (theirs, of_liar): (Vec<&Grant>, Vec<_>) =
        counted.iter().partition(|grant| grant.task.task.0 < 4);
    for grant in theirs {
        sixth.say(&mut scheduler, grant, truth(grant.task));
    }
    // The liar is known: somebody agreed with it three times.
    let others = of_liar.iter().filter(|other| other.task != grant.task);
    for grant in others.take(3) {
        sixth.say(&mut scheduler, grant, truth(grant.task));
    }
    for gone in [&fifth, &sixth] {
        leave(gone, &mut scheduler);
    }
    for newcomer in [3, 4].map(Puppet::new) {
        say_both_ways(&newcomer, &mut scheduler, &grant, truth(grant.task));
    }
    say_both_ways(&liar, &mut scheduler, &grant, truth(grant.task) + 1);
    wait(&mut scheduler, 100);
    assert_eq!(awaited(&scheduler), 3);
    let firsts = scheduler.runs[0].seconds().waiting();
    let firsts: Vec<_> = firsts
        .map(|(first, _)| scheduler.workers.id(first))
        .collect();
    assert_eq!(firsts, [liar.info.id]);
}

#[test]
fn an_operator_has_everybody_asked_again_in_a_disputed_run_and_in_no_other_that_is_over() {
    let (mut scheduler, mut liar, counted) = counted_by_one();
    let grant = contested(&counted);
    let mut other = Puppet::new(2);
    say_both_ways(&other, &mut scheduler, &grant, truth(grant.task));
    say_both_ways(&liar, &mut scheduler, &grant, truth(grant.task) + 1);
    wait(&mut scheduler, 100);
    assert_eq!(state(&scheduler), RunState::Disputed);
    let now = scheduler.clock.wall(scheduler.clock.ticks());
    assert_eq!(other.sync(&mut scheduler, now.0).grants, []);
    let after = scheduler.control(RUN, Command::Unpark, now);
    assert_eq!(after, Ok(RunState::Running));
    let asked = other.sync(&mut scheduler, now.0).grants;
    assert!(
        asked.iter().any(|asked| asked.task == grant.task),
        "{asked:?}"
    );
    // A third settles it: nothing is to be asked in a run that is complete.
    liar.held.clear();
    drive(&mut scheduler, &mut [other, Puppet::new(3)], now.0);
    assert_eq!(scheduler.conclude(RUN, true), Some(RunState::Complete));
    let now = scheduler.clock.wall(scheduler.clock.ticks());
    let after = scheduler.control(RUN, Command::Unpark, now);
    assert_eq!(after, Err(ControlError::Over(RUN)));
}

#[test]
fn contested_tasks_are_looked_at_in_turn() {
    let mut scheduler = scheduler();
    let run = &mut scheduler.runs[0];
    (1..=5).for_each(|task| run.contest(task));
    let [one, other] = [0, 1];
    for expected in [[1, 2], [3, 4], [5, 1], [2, 3]] {
        let next = run.next_contested(one, 2);
        assert_eq!(next, expected);
        run.look_on(one, &next);
    }
    assert_eq!(run.next_contested(other, 2), [1, 2], "each in its own turn");
    // Whoever has seen all of them begins with the first.
    let all = run.next_contested(one, 9);
    assert_eq!(all, [4, 5, 1, 2, 3]);
    run.look_on(one, &all);
    assert_eq!(run.next_contested(one, 2), [1, 2]);
}
