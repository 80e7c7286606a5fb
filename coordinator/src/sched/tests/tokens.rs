//! Whose tokens vouch for whom, and what that says.

use super::*;
use crate::ledger::{Confirmed, Principal};

/// Workers on machines of their own, by their tokens.
fn fleet<const N: usize>(tokens: [Option<&str>; N]) -> Vec<Puppet> {
    (1..)
        .zip(tokens)
        .map(|(id, token)| {
            let mut worker = Puppet::new(id);
            worker.token = token.map(Arc::from);
            worker
        })
        .collect()
}

#[test]
fn a_record_names_the_machine_and_the_token() {
    let mut scheduler = scheduler();
    let mut workers = fleet([Some("lab-7"), None]);
    for worker in &mut workers {
        worker.sync(&mut scheduler, 0);
    }
    for worker in &mut workers {
        worker.finish(&mut scheduler, 1_000);
    }
    let changes = changes(&mut scheduler);
    let of: std::collections::BTreeSet<_> = accepted(&changes)
        .iter()
        .map(|record| record.principal.to_string())
        .collect();
    let expected = [
        "machine 0000000000000002 token lab-7",
        "machine 0000000000000003",
    ];
    assert!(of.iter().eq(expected), "{of:?}");
}

#[test]
fn a_second_count_says_whether_it_had_another_token() {
    for (tokens, confirmed) in [
        ([None, None], Confirmed::OtherMachine),
        ([Some("a"), Some("a")], Confirmed::OtherMachine),
        ([Some("a"), Some("b")], Confirmed::OtherToken),
        ([Some("a"), None], Confirmed::OtherToken),
    ] {
        let mut scheduler = rechecked(Recheck::All);
        let mut workers = fleet(tokens);
        drive(&mut scheduler, &mut workers, 0);
        for task in 0..u32::try_from(TRUTH.plan.tasks()).unwrap() {
            let done = scheduler.runs[0].tasks().done(task).unwrap();
            assert_eq!(done.confirmed, confirmed, "task {task}, {tokens:?}");
        }
        // The next life knows the same.
        let second = restarted(&mut scheduler, Config::default());
        for task in 0..u32::try_from(TRUTH.plan.tasks()).unwrap() {
            let done = second.runs[0].tasks().done(task).unwrap();
            assert_eq!(done.confirmed, confirmed, "task {task}, {tokens:?}");
        }
    }
}

#[test]
fn a_second_count_waits_a_while_for_another_token() {
    let mut scheduler = rechecked(Recheck::All);
    let mut workers = fleet([Some("a"), Some("a"), Some("b")]);
    for worker in &mut workers {
        worker.sync(&mut scheduler, 0);
        worker.wants = 0.0;
    }
    workers[0].finish(&mut scheduler, 1_000);
    let [_, same, other] = &mut workers[..] else {
        unreachable!()
    };
    let seconds = |scheduler: &mut Scheduler, worker: &mut Puppet, now| {
        worker.wants = 60.0;
        worker.sync(scheduler, now);
        worker.wants = 0.0;
        let done = |grant: &&Grant| {
            let task = run::index(grant.task.task);
            scheduler.runs[0].tasks().done(task).is_some()
        };
        worker.held.iter().filter(done).count()
    };
    assert_eq!(seconds(&mut scheduler, same, 2_000), 0);
    // Not for ever: whoever has the token alone is busy elsewhere.
    let mut later = 2_000;
    while later < 61_000 {
        later += 14_000;
        other.sync(&mut scheduler, later);
        same.sync(&mut scheduler, later);
    }
    same.finish(&mut scheduler, later);
    assert!(seconds(&mut scheduler, same, later + 1_000) > 0);
}

#[test]
fn machines_of_one_token_do_not_outvote_two_tokens() {
    let mut scheduler = scheduler();
    let mut honest = fleet([Some("a"), Some("b")]);
    honest[0].sync(&mut scheduler, 0);
    let grant = honest[0].held[0];
    let right = truth(grant.task);
    honest[0].say(&mut scheduler, &grant, right);
    // Somebody with one token and as many machines as it likes to name.
    for id in 20..=21 {
        let mut liar = Puppet::new(id);
        liar.token = Some(Arc::from("c"));
        let (verdict, _) = liar.say(&mut scheduler, &grant, right + 8);
        assert_eq!(verdict, Verdict::Conflict, "machine {id}");
    }
    let (verdict, _) = honest[1].say(&mut scheduler, &grant, right);
    assert_eq!(verdict, Verdict::Accepted, "two tokens against one");
    let done = scheduler.runs[0].tasks().done(run::index(grant.task.task));
    let done = done.unwrap();
    assert_eq!((done.count, done.confirmed), (right, Confirmed::OtherToken));
}

#[test]
fn workers_without_a_token_vote_by_their_machines() {
    // The coordinator's own worker is wrong, two that joined with one token are not.
    for (first, others) in [(None, Some("a")), (Some("a"), None)] {
        let mut scheduler = scheduler();
        let mut workers = fleet([first, others, others]);
        workers[0].sync(&mut scheduler, 0);
        let grant = workers[0].held[0];
        let wrong = truth(grant.task) + 8;
        workers[0].say(&mut scheduler, &grant, wrong);
        workers[1].say(&mut scheduler, &grant, truth(grant.task));
        let (verdict, _) = workers[2].say(&mut scheduler, &grant, truth(grant.task));
        assert_eq!(verdict, Verdict::Accepted, "{first:?}, {others:?}");
    }
}

#[test]
fn a_dispute_found_on_disk_is_decided_by_the_same_rules() {
    let mut scheduler = scheduler();
    let mut first = fleet([Some("a")]).remove(0);
    first.sync(&mut scheduler, 0);
    let grant = first.held[0];
    let right = truth(grant.task);
    first.say(&mut scheduler, &grant, right);
    let mut liar = Puppet::new(20);
    liar.token = Some(Arc::from("c"));
    liar.say(&mut scheduler, &grant, right + 8);
    let mut second = restarted(&mut scheduler, Config::default());
    let task = run::index(grant.task.task);
    let reports = second.runs[0].reports(task);
    let of: Vec<_> = reports
        .iter()
        .map(|report| (report.count, second.workers.principal(report.worker)))
        .collect();
    let expected = [
        (right, Principal::new(2, Some("a"))),
        (right + 8, Principal::new(21, Some("c"))),
    ];
    assert_eq!(of, expected);
    // Another identity on the first machine is no second opinion, one on another machine is.
    let mut again = Puppet::new(30);
    again.info.machine = first.info.machine;
    let (verdict, _) = again.say(&mut second, &grant, right);
    assert_eq!(verdict, Verdict::Conflict);
    let (verdict, _) = Puppet::new(31).say(&mut second, &grant, right);
    assert_eq!(verdict, Verdict::Accepted);
    second.audit().unwrap();
}

#[test]
fn who_has_another_token_counts_a_second_time_at_once() {
    let mut scheduler = rechecked(Recheck::All);
    let mut first = Puppet::new(1);
    first.token = Some(Arc::from("lab"));
    first.sync(&mut scheduler, 0);
    let counted: Vec<_> = first.held.iter().map(|grant| grant.task).collect();
    first.wants = 0.0;
    first.finish(&mut scheduler, 1_000);
    let mut other = Puppet::new(2);
    other.token = Some(Arc::from("home"));
    let reply = other.sync(&mut scheduler, 2_000);
    assert!(
        reply
            .grants
            .iter()
            .any(|grant| counted.contains(&grant.task))
    );
}

#[test]
fn each_count_has_the_tokens_that_vouch_for_it() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut workers = fleet([Some("a"), Some("b"), Some("c"), Some("d")]);
    workers[0].sync(&mut scheduler, 0);
    let grant = workers[0].held[0];
    let right = truth(grant.task);
    // While the fourth can be asked, two against one decide nothing.
    workers[3].say_nothing(&mut scheduler);
    for (worker, wrong) in workers.iter().zip([1, 0, 1]) {
        worker.say(&mut scheduler, &grant, right + wrong);
    }
    let support = scheduler.support(0, run::index(grant.task.task));
    let told = |count: u64| (support[&count].tokens, support[&count].machines);
    assert_eq!((told(right + 1), told(right)), ((2, 2), (1, 1)));
}

#[test]
fn who_agreed_before_a_count_was_contradicted_speaks_for_it() {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut workers = fleet([None, None, None]);
    workers[0].sync(&mut scheduler, 0);
    let grant = workers[0].held[0];
    let right = truth(grant.task);
    for (worker, wrong) in workers.iter().zip([0, 0, 1]) {
        worker.say(&mut scheduler, &grant, right + wrong);
    }
    let support = scheduler.support(0, run::index(grant.task.task));
    let told = |count: u64| (support[&count].known, support[&count].machines);
    assert_eq!((told(right), told(right + 1)), ((1, 2), (0, 1)));
}
