//! Counts: accepted, repeated, refused, contradicted, decided.

use super::*;

/// A scheduler with one task leased to the first worker, and nothing else on.
fn leased(config: Config) -> (Scheduler, Puppet, Grant) {
    let mut scheduler = scheduler_with(config);
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    let grant = worker.held[0];
    (scheduler, worker, grant)
}

fn verdict(answer: &(Verdict, String)) -> Verdict {
    answer.0
}

#[test]
fn a_count_is_accepted_once_whoever_repeats_it() {
    let (mut scheduler, worker, grant) = leased(Config::default());
    let count = truth(grant.task);
    changes(&mut scheduler);
    assert_eq!(
        verdict(&worker.say(&mut scheduler, &grant, count)),
        Verdict::Accepted
    );
    assert_eq!(accepted(&changes(&mut scheduler)).len(), 1);
    for _ in 0..3 {
        let again = worker.say(&mut scheduler, &grant, count);
        assert_eq!(verdict(&again), Verdict::Duplicate);
    }
    assert_eq!(accepted(&changes(&mut scheduler)).len(), 0);
    // Another worker's equal count is evidence, written down once.
    let other = Puppet::new(2);
    for _ in 0..3 {
        let again = other.say(&mut scheduler, &grant, count);
        assert_eq!(verdict(&again), Verdict::Duplicate);
    }
    let confirmed = changes(&mut scheduler);
    assert!(
        matches!(confirmed[..], [Change::Confirmed(_)]),
        "{confirmed:?}"
    );
    let status = scheduler.status(RUN, Millis(0)).unwrap();
    assert_eq!((status.rechecks.agreed, status.tasks.done), (1, 1));
}

#[test]
fn a_late_count_under_an_old_epoch_is_welcome() {
    let (mut scheduler, worker, grant) = leased(Config::default());
    for minute in 1..=6 {
        scheduler.advance(Millis(minute * 60_000));
    }
    let mut second = Puppet::new(2);
    second.info.threads = 100;
    second.sync(&mut scheduler, 400_000);
    let newer = second.held.iter().find(|lease| lease.task == grant.task);
    assert!(newer.unwrap().epoch > grant.epoch);
    let answer = worker.say(&mut scheduler, &grant, truth(grant.task));
    assert_eq!(verdict(&answer), Verdict::Accepted);
    let reply = second.sync(&mut scheduler, 401_000);
    assert_eq!(reply.revoked.len(), 1);
    assert_eq!(reply.revoked[0].task, grant.task);
}

#[test]
fn impossible_and_foreign_counts_are_refused_and_change_nothing() {
    let (mut scheduler, mut worker, grant) = leased(Config::default());
    worker.wants = 0.0;
    let limit = TRUTH.plan.task_limit(grant.task.task);
    let foreign = Plan::new(PlanSpec {
        task_cost: 2,
        ..*TRUTH.plan.spec()
    });
    let mut other_plan = grant;
    other_plan.task.plan = foreign.unwrap().hash();
    let mut other_run = grant;
    other_run.task.run = RunId(99);
    let mut no_task = grant;
    no_task.task.task = TaskId(TRUTH.plan.tasks());
    let mut no_epoch = grant;
    no_epoch.epoch = Epoch(grant.epoch.0 + 1);
    let cases = [
        (grant, limit + 1, format!("{limit} at most")),
        (other_plan, 0, TRUTH.plan.hash().to_string()),
        (other_plan, 0, other_plan.task.plan.to_string()),
        (other_run, 0, "no run 0000000000000063".to_owned()),
        (no_task, 0, format!("no task {}", TRUTH.plan.tasks())),
        (no_epoch, 0, "never leased under epoch 2".to_owned()),
    ];
    for (grant, count, reason) in cases {
        changes(&mut scheduler);
        let request = SyncRequest {
            partials: vec![worker.partial(&grant, count)],
            ..worker.request()
        };
        let answer = scheduler.sync(&request, Millis(1_000)).acknowledgements;
        assert_eq!(answer[0].verdict, Verdict::Refused);
        assert!(answer[0].reason.contains(&reason), "{}", answer[0].reason);
        let mut kept = changes(&mut scheduler);
        // Whoever says what cannot be is doubted; the run does not hear of it.
        kept.retain(|change| !matches!(change, Change::Trust(_)));
        assert_eq!(kept, []);
        assert_eq!(numbers(&scheduler).done, 0);
    }
}

#[test]
fn contradicting_counts_are_set_aside_and_a_third_worker_decides() {
    for right_is_first in [true, false] {
        let (mut scheduler, first, grant) = leased(Config::default());
        let right = truth(grant.task);
        let (said_first, said_second) = if right_is_first {
            (right, right + 1)
        } else {
            (right + 1, right)
        };
        first.say(&mut scheduler, &grant, said_first);
        changes(&mut scheduler);
        let second = Puppet::new(2);
        let (verdict, reason) = second.say(&mut scheduler, &grant, said_second);
        assert_eq!(verdict, Verdict::Conflict);
        assert!(reason.contains(&said_first.to_string()), "{reason}");
        assert!(matches!(
            changes(&mut scheduler)[..],
            [Change::Quarantined { .. }]
        ));
        let status = scheduler.status(RUN, Millis(0)).unwrap();
        assert_eq!(status.rechecks.quarantined, [grant.task.task]);
        assert_eq!((status.tasks.done, status.tasks.quarantined), (0, 1));
        assert_eq!(status.solutions_so_far, 0);
        // Neither of the two gets it again while there is a third, who counts through other data.
        let mut third = Puppet::new(3);
        third.sync(&mut scheduler, 1_000);
        let lease = third.held.iter().find(|lease| lease.task == grant.task);
        let lease = *lease.expect("the quarantined task goes first");
        assert_eq!(lease.orientation, Orientation::Turned);
        assert!(lease.epoch > grant.epoch);
        scheduler.audit().unwrap();
        changes(&mut scheduler);
        assert_eq!(
            third.say(&mut scheduler, &lease, right).0,
            Verdict::Accepted
        );
        let decided = changes(&mut scheduler);
        assert_eq!(accepted(&decided)[0].count, right);
        assert_eq!(numbers(&scheduler).quarantined, 0);
        assert_eq!(
            scheduler.status(RUN, Millis(0)).unwrap().solutions_so_far,
            u128::from(right)
        );
        // The loser repeats itself: an alarm again, since its count still contradicts.
        scheduler.audit().unwrap();
    }
}

#[test]
fn with_two_workers_one_of_them_counts_again_through_other_data() {
    let (mut scheduler, first, grant) = leased(Config::default());
    let right = truth(grant.task);
    first.say(&mut scheduler, &grant, right);
    let mut second = Puppet::new(2);
    second.say(&mut scheduler, &grant, right + 1);
    second.sync(&mut scheduler, 1_000);
    let lease = second.held.iter().find(|lease| lease.task == grant.task);
    let lease = *lease.expect("nobody else is there");
    assert_eq!(lease.orientation, Orientation::Turned);
    assert_eq!(
        second.say(&mut scheduler, &lease, right).0,
        Verdict::Accepted
    );
}

#[test]
fn three_different_counts_decide_nothing() {
    let (mut scheduler, first, grant) = leased(Config::default());
    let right = truth(grant.task);
    first.say(&mut scheduler, &grant, right);
    for (id, lie) in [(2, 1), (3, 2), (2, 1), (3, 2)] {
        let answer = Puppet::new(id).say(&mut scheduler, &grant, right + lie);
        assert_eq!(verdict(&answer), Verdict::Conflict, "worker {id}");
    }
    let kept = changes(&mut scheduler);
    let contradictions = kept
        .iter()
        .filter(|change| matches!(change, Change::Quarantined { .. }));
    assert_eq!(contradictions.count(), 2);
    assert_eq!(
        verdict(&Puppet::new(4).say(&mut scheduler, &grant, right)),
        Verdict::Accepted
    );
}

#[test]
fn rechecks_are_counted_by_another_worker_through_other_data() {
    let mut scheduler = rechecked(Recheck::All);
    let mut other = Puppet::new(2);
    other.wants = 0.0;
    other.sync(&mut scheduler, 0);
    let mut first = Puppet::new(1);
    first.sync(&mut scheduler, 0);
    let ways: Vec<_> = first
        .held
        .iter()
        .map(|grant| (grant.task, grant.orientation))
        .collect();
    first.finish(&mut scheduler, 1_000);
    other.wants = 60.0;
    other.sync(&mut scheduler, 2_000);
    for (task, way) in ways {
        let recheck = other.held.iter().find(|grant| grant.task == task).unwrap();
        assert_ne!(recheck.orientation, way);
    }
    drive(&mut scheduler, &mut [first, other], 3_000);
    let status = scheduler.status(RUN, Millis(0)).unwrap();
    assert_eq!(status.rechecks.agreed, TRUTH.plan.tasks());
    // A restart remembers what was confirmed.
    let second = restarted(&mut scheduler, Config::default());
    assert_eq!(second.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn one_worker_alone_rechecks_itself_through_other_data() {
    let mut scheduler = rechecked(Recheck::All);
    drive(&mut scheduler, &mut [Puppet::new(1)], 0);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn a_contradiction_after_completion_opens_the_run_again() {
    let (mut scheduler, worker, grant) = leased(Config::default());
    drive(&mut scheduler, &mut [worker], 0);
    assert_eq!(scheduler.conclude(RUN, true), Some(RunState::Complete));
    let answer = Puppet::new(2).say(&mut scheduler, &grant, truth(grant.task) + 1);
    assert_eq!(verdict(&answer), Verdict::Conflict);
    assert_eq!(scheduler.runs()[0].state, RunState::Running);
    assert_eq!(scheduler.conclude(RUN, true), Some(RunState::Running));
    drive(&mut scheduler, &mut [Puppet::new(3)], 1_000);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn a_sole_disputant_counts_its_task_once_each_way_and_then_waits() {
    let (mut scheduler, first, grant) = leased(Config::default());
    let (disputed, right) = (grant.task, truth(grant.task));
    first.say(&mut scheduler, &grant, right);
    let mut stubborn = Puppet::new(2);
    let mut now = 0;
    for minute in 1..=10 {
        now = minute * 60_000;
        scheduler.advance(Millis(now));
    }
    stubborn.say(&mut scheduler, &grant, right + 1);
    let mut recounted = 0;
    for _ in 0..200 {
        now += 1_000;
        stubborn.sync(&mut scheduler, now);
        for grant in std::mem::take(&mut stubborn.held) {
            let lie = u64::from(grant.task == disputed);
            recounted += lie;
            stubborn.say(&mut scheduler, &grant, truth(grant.task) + lie);
        }
        scheduler.audit().unwrap();
    }
    assert_eq!(recounted, 1, "upright it had said already");
    // The rest went on, and the status says who is wanted.
    assert_eq!(numbers(&scheduler).done, TRUTH.plan.tasks() - 1);
    let status = scheduler.status(RUN, Millis(now)).unwrap();
    for part in [
        format!("task {}", grant.task.task),
        format!("{right} by worker-1"),
        format!("{} by worker-2", right + 1),
        "a worker that has not counted it".to_owned(),
    ] {
        assert!(status.reason.contains(&part), "{part}: {}", status.reason);
    }
    // Without anybody else the run ends so.
    assert_eq!(scheduler.poll_finished(), Some(RUN));
    drive(&mut scheduler, &mut [Puppet::new(3)], now);
    assert_eq!(scheduler.total(RUN), Some(Ok(TRUTH.total)));
}

#[test]
fn a_repeated_message_does_not_use_up_a_second_count() {
    let mut scheduler = rechecked(Recheck::All);
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    let partials: Vec<_> = worker
        .held
        .iter()
        .map(|grant| worker.partial(grant, truth(grant.task)))
        .collect();
    worker.held.clear();
    let request = SyncRequest {
        partials,
        ..worker.request()
    };
    // The first answer, with leases to count the same tasks the other way, is lost.
    scheduler.sync(&request, Millis(1_000));
    let reply = scheduler.sync(&request, Millis(2_000));
    worker.take(&reply);
    drive(&mut scheduler, &mut [worker], 3_000);
    let status = scheduler.status(RUN, Millis(0)).unwrap();
    assert_eq!(status.rechecks.agreed, TRUTH.plan.tasks());
}

#[test]
fn repeating_what_others_agreed_on_makes_nobody_known() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut first = Puppet::new(1);
    first.info.threads = 3;
    first.sync(&mut scheduler, 0);
    let grants = std::mem::take(&mut first.held);
    assert!(grants.len() >= 4, "{grants:?}");
    for grant in &grants {
        first.say(&mut scheduler, grant, truth(grant.task));
    }
    let is_known = |scheduler: &mut Scheduler, id| {
        let worker = scheduler.workers.pinned(WorkerId(id));
        scheduler.workers.is_known(worker)
    };
    let (second, third) = (Puppet::new(2), Puppet::new(3));
    for (grant, known) in grants.iter().zip([false, false, true, true]) {
        second.say(&mut scheduler, grant, truth(grant.task));
        assert_eq!(is_known(&mut scheduler, 2), known);
        assert_eq!(is_known(&mut scheduler, 1), known);
    }
    // Nobody asked.
    for grant in &grants {
        third.say(&mut scheduler, grant, truth(grant.task));
    }
    assert!(!is_known(&mut scheduler, 3));
}

#[test]
fn leases_that_a_crash_lost_are_taken_up_a_few_lives_later() {
    const LEAP: u64 = 1 << 22;
    let mut second = restarted(&mut scheduler(), Config::default());
    let worker = Puppet::new(1);
    let grant = |task: u64, epoch| Grant {
        task: self::task(task),
        epoch: Epoch(epoch),
        spec: *TRUTH.plan.spec(),
        orientation: Orientation::Upright,
    };
    let lost = grant(0, 4 * LEAP);
    let (verdict, _) = worker.say(&mut second, &lost, truth(lost.task));
    assert_eq!(verdict, Verdict::Accepted);
    let never = grant(1, 5 * LEAP);
    let (verdict, reason) = worker.say(&mut second, &never, truth(never.task));
    assert_eq!(verdict, Verdict::Refused);
    assert!(reason.contains("never leased"), "{reason}");
}

#[test]
fn records_say_how_long_earlier_processes_have_served_the_run_too() {
    let mut scheduler = scheduler();
    scheduler.restore_elapsed(RUN, 5_000);
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    worker.finish(&mut scheduler, 700);
    let changes = changes(&mut scheduler);
    let times: Vec<_> = accepted(&changes)
        .iter()
        .map(|record| record.elapsed_ms)
        .collect();
    assert_eq!(times, [5_700; 2]);
}
