//! What equal counts, wrong ones and decisions say of the counts, and of those who made them.

use super::{super::grants::BACKUP_AFTER_MS, *};

/// How many second counts have agreed.
fn confirmed(scheduler: &Scheduler) -> u64 {
    let status = scheduler.status(RUN, Millis(0)).unwrap();
    status.rechecks.confirmed
}

fn awaited(scheduler: &Scheduler) -> u64 {
    let status = scheduler.status(RUN, Millis(0)).unwrap();
    status.rechecks.awaited
}

/// How often others have agreed with a worker.
fn compared(scheduler: &mut Scheduler, worker: &Puppet) -> u32 {
    let number = scheduler.workers.pinned(worker.info.id);
    scheduler.workers.standing(number).compared()
}

fn turned_over(grant: &Grant) -> Grant {
    Grant {
        orientation: match grant.orientation {
            Orientation::Upright => Orientation::Turned,
            Orientation::Turned => Orientation::Upright,
        },
        ..*grant
    }
}

/// Tasks that a worker was given, counted by it, and nothing is counted twice.
fn counted(scheduler: &mut Scheduler, worker: &mut Puppet) -> Vec<Grant> {
    worker.sync(scheduler, 0);
    let grants = std::mem::take(&mut worker.held);
    for grant in &grants {
        worker.say(scheduler, grant, truth(grant.task));
    }
    grants
}

#[test]
fn its_own_count_confirms_a_machine_only_where_it_was_asked_and_as_it_was_asked() {
    // Unasked: it may have kept the first one.
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    let grants = counted(&mut scheduler, &mut worker);
    worker.say(
        &mut scheduler,
        &turned_over(&grants[0]),
        truth(grants[0].task),
    );
    assert_eq!(confirmed(&scheduler), 0);
    // Asked for the other way round, it answers the first way, and as it was asked.
    for (as_asked, expected) in [(false, 0), (true, 1)] {
        let mut scheduler = rechecked(Recheck::All);
        let mut worker = Puppet::new(1);
        while numbers(&scheduler).done < TRUTH.plan.tasks() {
            counted(&mut scheduler, &mut worker);
        }
        let before = confirmed(&scheduler);
        worker.held.clear();
        worker.sync(&mut scheduler, 0);
        let asked = worker.held[0];
        let said = match as_asked {
            true => asked,
            false => turned_over(&asked),
        };
        let (verdict, _) = worker.say(&mut scheduler, &said, truth(said.task));
        assert_eq!(verdict, Verdict::Duplicate);
        assert_eq!(confirmed(&scheduler) - before, expected);
    }
}

#[test]
fn once_a_second_count_agrees_nobody_goes_on_with_another() {
    let mut scheduler = rechecked(Recheck::All);
    let mut first = Puppet::new(1);
    let mut second = Puppet::new(2);
    second.say_nothing(&mut scheduler);
    while numbers(&scheduler).done < TRUTH.plan.tasks() {
        counted(&mut scheduler, &mut first);
    }
    second.info.threads = 1_000;
    second.sync(&mut scheduler, 0);
    assert_eq!(second.held.len() as u64, TRUTH.plan.tasks());
    let mut third = Puppet::new(3);
    third.sync(&mut scheduler, BACKUP_AFTER_MS);
    let copy = third.held[0];
    let task = run::index(copy.task.task);
    assert_eq!(scheduler.runs[0].holders_of(task).len(), 2);
    let of = |one: &&Grant| one.task == copy.task;
    let asked = *second.held.iter().find(of).unwrap();
    second.say(&mut scheduler, &asked, truth(asked.task));
    assert!(!scheduler.runs[0].is_held(task));
    scheduler.audit().unwrap();
}

#[test]
fn the_most_that_a_task_can_have_is_taken_and_one_more_is_held_against_the_worker_once() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    worker.sync(&mut scheduler, 0);
    let [first, second] = worker.held[..] else {
        panic!("{:?}", worker.held);
    };
    let most = TRUTH.plan.task_limit(first.task.task);
    let number = scheduler.workers.pinned(worker.info.id);
    let request = |count| SyncRequest {
        partials: vec![worker.partial(&second, count)],
        seconds_wanted: 0.0,
        ..worker.request()
    };
    let impossible = TRUTH.plan.task_limit(second.task.task) + 1;
    for _ in 0..2 {
        let reply = scheduler.sync(&request(impossible), Millis(0));
        assert_eq!(reply.acknowledgements[0].verdict, Verdict::Refused);
        assert_eq!(scheduler.workers.standing(number).faults(), 1);
    }
    let (verdict, _) = worker.say(&mut scheduler, &first, most);
    assert_eq!(verdict, Verdict::Accepted);
}

#[test]
fn what_the_wrong_worker_alone_counted_is_counted_again_and_nothing_else() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let [mut wrong, mut other, third] = [1, 2, 3].map(Puppet::new);
    let grants = counted(&mut scheduler, &mut wrong);
    counted(&mut scheduler, &mut other);
    third.say(&mut scheduler, &grants[0], truth(grants[0].task));
    assert_eq!((confirmed(&scheduler), awaited(&scheduler)), (1, 0));
    wrong.sync(&mut scheduler, 0);
    let grant = wrong.held[0];
    let impossible = TRUTH.plan.task_limit(grant.task.task) + 1;
    let request = SyncRequest {
        partials: vec![wrong.partial(&grant, impossible)],
        seconds_wanted: 0.0,
        ..wrong.request()
    };
    scheduler.sync(&request, Millis(0));
    assert_eq!(awaited(&scheduler), grants.len() as u64 - 1);
}

#[test]
fn who_counts_a_task_of_a_run_is_forgiven_what_it_gave_back() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    let gives_back = |scheduler: &mut Scheduler, worker: &mut Puppet| {
        worker.sync(scheduler, 0);
        worker.sync(scheduler, 0);
        worker.held.clear();
        worker.wants = 0.0;
        worker.sync(scheduler, 0);
        worker.wants = 60.0;
    };
    for _ in 0..2 {
        gives_back(&mut scheduler, &mut worker);
    }
    counted(&mut scheduler, &mut worker);
    gives_back(&mut scheduler, &mut worker);
    let reply = worker.sync(&mut scheduler, 0);
    assert!(!reply.grants.is_empty(), "{}", reply.reason);
}

#[test]
fn who_was_right_in_a_dispute_was_agreed_with_and_who_was_wrong_was_not() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut wrong = Puppet::new(1);
    wrong.sync(&mut scheduler, 0);
    let grant = wrong.held[0];
    let right = [2, 3].map(Puppet::new);
    wrong.say(&mut scheduler, &grant, truth(grant.task) + 1);
    for worker in &right {
        worker.say(&mut scheduler, &grant, truth(grant.task));
    }
    assert_eq!(numbers(&scheduler).quarantined, 0);
    assert_eq!(compared(&mut scheduler, &wrong), 0);
    for worker in &right {
        assert_eq!(compared(&mut scheduler, worker), 1);
    }
    assert_eq!(confirmed(&scheduler), 1);
}

#[test]
fn who_decides_by_its_own_word_again_is_confirmed_by_nobody_who_contradicts_it() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let [mut first, second, third] = [1, 2, 3].map(Puppet::new);
    first.sync(&mut scheduler, 0);
    let grant = first.held[0];
    let right = truth(grant.task);
    first.say(&mut scheduler, &grant, right);
    second.say(&mut scheduler, &grant, right);
    assert_eq!(confirmed(&scheduler), 1);
    third.say(&mut scheduler, &grant, right + 1);
    assert_eq!(numbers(&scheduler).quarantined, 1);
    let (verdict, reason) = first.say(&mut scheduler, &grant, right);
    assert_eq!(verdict, Verdict::Accepted, "{reason}");
    assert_eq!(confirmed(&scheduler), 0);
}

#[test]
fn contradictions_are_told_and_a_restart_knows_of_those_that_last() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut first = Puppet::new(1);
    first.sync(&mut scheduler, 0);
    let grant = first.held[0];
    first.say(&mut scheduler, &grant, truth(grant.task));
    Puppet::new(2).say(&mut scheduler, &grant, truth(grant.task) + 1);
    let conflicts = |scheduler: &Scheduler| {
        let status = scheduler.status(RUN, Millis(0)).unwrap();
        status.rechecks.conflicts
    };
    assert_eq!(conflicts(&scheduler), 1);
    let second = restarted(&mut scheduler, Config::default());
    assert_eq!(conflicts(&second), 1);
}

#[test]
fn a_run_that_was_concluded_is_not_concluded_otherwise() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    drive(&mut scheduler, &mut [Puppet::new(1)], 0);
    for agrees in [true, false] {
        assert_eq!(scheduler.conclude(RUN, agrees), Some(RunState::Complete));
    }
}
