//! Ends: of runs, of patience, of the program.

use super::*;

#[test]
fn a_worker_whose_runs_are_over_ends_after_the_idle_timeout() {
    let mut bench = Bench::holding([0]);
    bench.begin(0);
    bench.count(0);
    let over = SyncReply {
        all_runs_over: true,
        ..bench.accept([0])
    };
    bench.exchange(over.clone());
    let end = bench.now + 60 * SECOND;
    bench.machine.handle_timeout(end - SECOND);
    assert_eq!(bench.machine.poll_end(end - SECOND), None);
    while bench.now < end {
        bench.exchange(SyncReply {
            acknowledgements: Vec::new(),
            ..over.clone()
        });
        if bench.machine.poll_end(bench.now).is_some() {
            break;
        }
    }
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Idle));
    assert!(bench.now >= end, "not before its time");
}

#[test]
fn a_worker_that_holds_something_is_not_idle() {
    let mut bench = Bench::holding(0..2);
    bench.begin(0);
    bench.count(0);
    bench.exchange(SyncReply {
        all_runs_over: true,
        ..bench.accept([0])
    });
    let later = bench.now + 600 * SECOND;
    bench.machine.handle_timeout(later);
    assert_eq!(bench.machine.poll_end(later), None);
    assert!(!bench.call().draining);
}

#[test]
fn a_stop_gives_back_what_waits_finishes_what_runs_and_hands_everything_in() {
    let mut bench = Bench::holding(0..4);
    bench.begin(0);
    bench.begin(1);
    bench.count(1);
    bench.machine.handle_stop(bench.now);
    assert_eq!(bench.orders(), ["stop 2", "stop 3"]);
    assert_eq!(bench.machine.summary().abandoned, 2);
    let request = bench.exchange(bench.accept([1]));
    assert!(request.draining);
    assert_eq!((held(&request), partials(&request)), (vec![0], vec![1]));
    assert_eq!(request.seconds_wanted, 0.0);
    assert_eq!(bench.machine.poll_end(bench.now), None);
    bench.count(0);
    assert_eq!(
        bench.machine.poll_end(bench.now),
        None,
        "it is not handed in"
    );
    // What is granted now is not taken.
    bench.exchange(SyncReply {
        grants: vec![grant(&bench.plan, 5)],
        ..bench.accept([0])
    });
    assert_eq!(bench.orders(), [""; 0]);
    assert_eq!(bench.machine.poll_end(bench.now), None);
    bench.exchange(quiet());
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Told));
}

#[test]
fn a_stop_declines_what_waits_for_its_plan() {
    let mut bench = Bench::new();
    bench.exchange(SyncReply {
        grants: vec![grant(&bench.plan, 0)],
        ..quiet()
    });
    bench.orders();
    bench.machine.handle_stop(bench.now);
    assert_eq!(
        (bench.machine.held(), bench.machine.summary().abandoned),
        (0, 1)
    );
    let made = Ok(bench.plan.clone());
    bench
        .machine
        .handle_plan(*bench.plan.spec(), made, bench.now);
    assert_eq!(bench.orders(), [""; 0]);
    assert_eq!(held(&bench.exchange(quiet())), [0; 0]);
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Told));
}

#[test]
fn the_second_reason_to_stop_changes_nothing() {
    let mut bench = Bench::holding([0]);
    bench.begin(0);
    bench.machine.handle_stop(bench.now);
    let first = bench.machine.poll_timeout(bench.now);
    for _ in 0..2 {
        bench.machine.handle_failed_canaries(None, bench.now);
    }
    assert_eq!(bench.machine.poll_timeout(bench.now), first);
    let limit = bench.now + LIMIT;
    assert_eq!(bench.machine.poll_end(limit), Some(Ended::Told));
}

#[test]
fn at_the_end_of_its_patience_a_stop_gives_up_what_runs() {
    let mut bench = Bench::holding([0]);
    bench.begin(0);
    let stop = bench.now;
    bench.machine.handle_stop(stop);
    bench.machine.handle_timeout(stop + 9 * SECOND);
    assert_eq!(bench.orders(), [""; 0]);
    bench.machine.handle_timeout(stop + 10 * SECOND);
    assert_eq!(bench.orders(), ["stop 0"]);
    assert_eq!(bench.machine.summary().abandoned, 1);
    bench.now = stop + 10 * SECOND;
    assert_eq!(held(&bench.exchange(quiet())), [0; 0]);
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Told));
}

#[test]
fn a_stop_wakes_at_the_end_of_its_patience_and_at_its_limit() {
    let mut bench = Bench::holding([0]);
    bench.begin(0);
    let stop = bench.now;
    bench.machine.handle_stop(stop);
    bench.call();
    assert_eq!(bench.machine.poll_timeout(stop), Some(stop + 10 * SECOND));
    let later = stop + 10 * SECOND;
    assert_eq!(bench.machine.poll_timeout(later), Some(stop + LIMIT));
}

#[test]
fn without_a_coordinator_only_what_is_safe_is_left() {
    for (kept, safe) in [(Some(Vec::new()), true), (None, false)] {
        let mut bench = Bench::with(Settings { kept, ..settings() });
        bench.grant(0..2);
        bench.count(0);
        bench.begin(1);
        bench.machine.handle_stop(bench.now);
        bench.call();
        bench.machine.handle_lost_call(0.0, bench.now);
        assert_eq!(bench.machine.poll_end(bench.now), None, "one is under way");
        bench.count(1);
        bench.call();
        bench.machine.handle_lost_call(0.0, bench.now);
        let end = bench.machine.poll_end(bench.now);
        assert_eq!(end, safe.then_some(Ended::Told));
        bench.machine.poll_last_write();
        bench.machine.handle_spooled(true, bench.now);
        assert_eq!(bench.machine.unkept(), if safe { 0 } else { 2 });
    }
}

#[test]
fn a_stop_that_gets_on_calls_again_at_once_and_one_that_does_not_waits() {
    let mut bench = Bench::holding(0..4);
    (0..4).for_each(|task| bench.count(task));
    bench.machine.handle_stop(bench.now);
    bench.exchange(bench.accept([0, 1]));
    let after_half = bench.machine.poll_timeout(bench.now).unwrap() - bench.now;
    assert_eq!(after_half, Duration::from_millis(25));
    bench.exchange(quiet());
    let after_nothing = bench.machine.poll_timeout(bench.now).unwrap() - bench.now;
    assert_eq!(after_nothing, SECOND);
}

#[test]
fn what_a_long_stop_finishes_stays_leased() {
    let mut bench = Bench::with(Settings {
        drain_limit: 300 * SECOND,
        ..settings()
    });
    bench.grant([0]);
    bench.begin(0);
    let stop = bench.now;
    bench.machine.handle_stop(stop);
    // It calls whenever the coordinator wants to hear from it.
    for calls in 0..3 {
        assert_eq!(held(&bench.exchange(quiet())), [0]);
        assert_eq!(bench.now, stop + calls * 10 * SECOND);
    }
    bench.count(0);
    let reply = bench.accept([0]);
    assert_eq!(partials(&bench.exchange(reply)), [0]);
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Told));
}

#[test]
fn who_has_handed_everything_in_calls_no_more() {
    let mut bench = Bench::new();
    bench.machine.handle_stop(bench.now);
    bench.exchange(quiet());
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Told));
    assert!(!bench.machine.is_call_due(bench.now + 60 * SECOND));
}
