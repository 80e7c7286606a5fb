//! Grants, their plans, and what is given back.

use super::*;

#[test]
fn granted_work_is_ordered_once_its_plan_is_made() {
    let mut bench = Bench::new();
    let reply = SyncReply {
        grants: vec![grant(&bench.plan, 3), grant(&bench.plan, 1)],
        ..quiet()
    };
    bench.exchange(reply.clone());
    assert_eq!(bench.orders(), ["plan 10"]);
    assert_eq!(bench.machine.held(), 2);
    // Repeated before the plan is made: no second order, and no hunger either.
    let request = bench.exchange(reply.clone());
    assert_eq!(request.seconds_wanted, 0.0);
    assert_eq!(held(&request), [3, 1]);
    assert!(request.held.iter().all(|held| !held.started));
    assert_eq!(bench.orders(), [""; 0]);
    let made = Ok(bench.plan.clone());
    bench
        .machine
        .handle_plan(*bench.plan.spec(), made, bench.now);
    assert_eq!(bench.orders(), ["count 3", "count 1"]);
    // And after, in each stage of its life.
    bench.begin(3);
    bench.count(3);
    bench.exchange(reply);
    assert_eq!(bench.orders(), [""; 0]);
    bench.exchange(SyncReply {
        grants: vec![grant(&bench.plan, 2)],
        ..quiet()
    });
    assert_eq!(bench.orders(), ["count 2"], "the plan is known");
    assert_eq!(bench.machine.held(), 2);
}

#[test]
fn what_is_taken_back_is_stopped_and_not_told_any_more() {
    let mut bench = Bench::holding(0..3);
    bench.begin(0);
    let revoke = |task| Revocation {
        task: lease(&plan(10), task).task,
        epoch: Epoch(1),
        reason: "the run is cancelled".to_owned(),
    };
    let reply = SyncReply {
        revoked: vec![revoke(0), revoke(2), revoke(7)],
        ..quiet()
    };
    bench.exchange(reply);
    assert_eq!(bench.orders(), ["stop 0", "stop 2"]);
    assert_eq!(bench.machine.summary().revoked, 2);
    // Its leaving its slot is no news; a late count is welcome.
    bench.leave(2, Outcome::Cancelled);
    let before = bench.now;
    let next = bench.machine.poll_timeout(before).unwrap();
    assert!(
        next >= before + Duration::from_millis(25),
        "nobody waits to hear of it"
    );
    bench.count(0);
    let request = bench.call();
    assert_eq!((held(&request), partials(&request)), (vec![1], vec![0]));
    assert_eq!(bench.machine.summary().abandoned, 0);
}

#[test]
fn a_lease_is_taken_back_while_its_plan_is_made() {
    let mut bench = Bench::new();
    bench.exchange(SyncReply {
        grants: vec![grant(&bench.plan, 0), grant(&bench.plan, 1)],
        ..quiet()
    });
    bench.orders();
    bench.exchange(SyncReply {
        revoked: vec![Revocation {
            task: lease(&bench.plan, 0).task,
            epoch: Epoch(1),
            reason: String::new(),
        }],
        ..quiet()
    });
    assert_eq!(
        (bench.machine.summary().revoked, bench.machine.held()),
        (1, 1)
    );
    let made = Ok(bench.plan.clone());
    bench
        .machine
        .handle_plan(*bench.plan.spec(), made, bench.now);
    assert_eq!(bench.orders(), ["count 1"]);
}

#[test]
fn a_count_that_fails_gives_its_lease_back_soon() {
    let mut bench = Bench::holding(0..2);
    bench.begin(0);
    bench.leave(0, Outcome::Failed(Failure::Overflow));
    bench.leave(1, Outcome::Cancelled);
    assert_eq!(bench.machine.summary().abandoned, 2);
    let before = bench.now;
    let request = bench.exchange(quiet());
    assert!(bench.now - before <= SECOND, "{:?}", bench.now - before);
    assert_eq!(held(&request), [0; 0]);
    assert!(request.seconds_wanted > 0.0, "no reason to refuse work");
    assert_eq!(bench.orders(), [""; 0], "there is nothing left to stop");
}

#[test]
fn a_plan_that_cannot_be_counted_here_is_given_back_and_refused_for_a_minute() {
    let mut bench = Bench::holding(0..3);
    bench.begin(0);
    bench.begin(1);
    let setup = SetupError::Memory {
        given: 1 << 20,
        least: 1 << 30,
    };
    bench.leave(0, Outcome::Failed(Failure::Setup(setup)));
    assert_eq!(bench.orders(), ["stop 2"], "another slot may still succeed");
    let until = bench.now + 60 * SECOND;
    assert!(bench.machine.is_refusing(until - Duration::from_millis(1)));
    assert!(!bench.machine.is_refusing(until));
    let request = bench.exchange(quiet());
    assert_eq!(held(&request), [1]);
    assert_eq!(request.seconds_wanted, 0.0);
    let refused = bench.now;
    bench.leave(1, Outcome::Cancelled);
    loop {
        let request = bench.exchange(quiet());
        if request.seconds_wanted > 0.0 {
            break;
        }
    }
    let refusing = bench.now - refused;
    assert!(
        refusing >= 59 * SECOND && refusing <= 61 * SECOND,
        "{refusing:?}"
    );
}

#[test]
fn why_work_is_refused_is_said_once_a_refusal() {
    let mut bench = Bench::holding(0..3);
    (0..3).for_each(|task| bench.begin(task));
    let failed = |bench: &mut Bench, task| {
        let setup = SetupError::Memory {
            given: 1 << 20,
            least: 1 << 30,
        };
        said(|| bench.leave(task, Outcome::Failed(Failure::Setup(setup))))
            .matches("no work is taken for 60 s")
            .count()
    };
    assert_eq!(failed(&mut bench, 0), 1);
    assert_eq!(failed(&mut bench, 1), 0, "it is known");
    bench.now += 60 * SECOND;
    assert_eq!(failed(&mut bench, 2), 1, "a new one");
}

#[test]
fn who_lacks_memory_says_how_much_it_needs() {
    let mut bench = Bench::holding([0]);
    bench.begin(0);
    let setup = SetupError::Memory {
        given: 1 << 20,
        least: 1 << 30,
    };
    let said = said(|| bench.leave(0, Outcome::Failed(Failure::Setup(setup))));
    // Of all threads together.
    let needs = "this worker cannot count N = 10: that needs at least --memory 2";
    assert!(said.contains(needs), "{said}");
    assert!(
        said.contains(" with --threads 2, and there are 2"),
        "{said}"
    );
}

#[test]
fn a_grant_of_another_plan_is_declined() {
    let mut bench = Bench::new();
    let beyond = grant(&bench.plan, bench.plan.tasks());
    bench.exchange(SyncReply {
        grants: vec![beyond],
        ..quiet()
    });
    let made = Ok(bench.plan.clone());
    bench
        .machine
        .handle_plan(*bench.plan.spec(), made, bench.now);
    assert_eq!(bench.orders(), ["plan 10"]);
    let before = bench.now;
    let request = bench.call();
    assert!(
        bench.now - before <= SECOND,
        "the coordinator hears of it soon"
    );
    assert_eq!((held(&request), request.seconds_wanted), (vec![], 0.0));
}

#[test]
fn plans_that_cannot_be_made_decline_only_their_own_grants() {
    let mut bench = Bench::new();
    let other = plan(9);
    bench.exchange(SyncReply {
        grants: vec![grant(&bench.plan, 0), grant(&other, 0), grant(&other, 1)],
        ..quiet()
    });
    assert_eq!(bench.orders(), ["plan 10", "plan 9"]);
    bench
        .machine
        .handle_plan(*other.spec(), Err(NoPlan::Panicked), bench.now);
    assert_eq!(bench.machine.held(), 1);
    let made = Ok(bench.plan.clone());
    bench
        .machine
        .handle_plan(*bench.plan.spec(), made, bench.now);
    assert_eq!(bench.orders(), ["count 0"]);
}

#[test]
fn what_was_given_up_is_told_again_after_a_lost_call() {
    let mut bench = Bench::holding(0..2);
    bench.leave(0, Outcome::Cancelled);
    assert_eq!(held(&bench.call()), [1]);
    bench.machine.handle_lost_call(0.0, bench.now);
    bench.exchange(quiet());
    let before = bench.now;
    bench.leave(1, Outcome::Cancelled);
    bench.call();
    bench.machine.handle_lost_call(0.0, bench.now);
    assert_eq!(held(&bench.call()), [0; 0]);
    assert!(
        bench.now - before < 10 * SECOND,
        "not only at the next regular call"
    );
}
