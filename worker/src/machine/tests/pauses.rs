//! Pauses, and stops that an operator wants.

use super::*;

#[test]
fn a_pause_finishes_what_is_nearly_done_and_gives_the_rest_back() {
    let mut bench = Bench::holding([0, 1, 2]);
    bench.begin(0);
    bench.begin(1);
    let cost = work(&bench.plan, 1).cost;
    // One second of work is left of the first; of the second, which is as long as it can be, all.
    bench.machine.handle_progress(lease(&bench.plan, 0), cost);
    bench.now += 11 * SECOND;
    bench
        .machine
        .handle_pause(Some("on battery".to_owned()), bench.now);
    assert_eq!(bench.orders(), ["stop 1", "stop 2"]);
    assert_eq!(bench.machine.paused(), Some("on battery"));
    // The coordinator hears of it at once, and that nothing of it failed. What it granted meanwhile is
    // not taken.
    let begun = bench.now;
    let reply = SyncReply {
        grants: vec![grant(&bench.plan, 7)],
        ..quiet()
    };
    let request = bench.exchange(reply);
    assert_eq!(bench.now, begun);
    assert_eq!((held(&request), request.seconds_wanted), (vec![0], 0.0));
    assert!(request.draining);
    assert_eq!(request.paused, "on battery");
    assert_eq!(held(&bench.exchange(quiet())), [0]);
    assert!(bench.now < begun + LIMIT * 2 / 5, "it is told of soon");
    assert_eq!(bench.orders(), [""; 0]);
    // Another reason is told too; the patience is that of the first.
    bench
        .machine
        .handle_pause(Some("outside of its hours".to_owned()), bench.now);
    assert_eq!(bench.exchange(quiet()).paused, "outside of its hours");
    bench.now = begun + LIMIT * 2 / 5;
    bench.machine.handle_timeout(bench.now);
    assert_eq!(bench.machine.held(), 0);
}

#[test]
fn after_a_pause_work_is_asked_for_at_once() {
    let mut bench = Bench::new();
    bench
        .machine
        .handle_pause(Some("on battery".to_owned()), bench.now);
    let request = bench.exchange(quiet());
    assert!(request.draining && request.seconds_wanted == 0.0);
    bench.now += 5 * SECOND;
    let before = bench.now;
    bench.machine.handle_pause(None, bench.now);
    let request = bench.exchange(quiet());
    assert_eq!(bench.now, before);
    assert!(!request.draining && request.seconds_wanted > 0.0);
    assert_eq!(
        (request.paused.as_str(), bench.machine.paused()),
        ("", None)
    );
}

#[test]
fn a_worker_that_pauses_stops_like_any_other() {
    let mut bench = Bench::holding([0]);
    bench
        .machine
        .handle_pause(Some("on battery".to_owned()), bench.now);
    bench.machine.handle_stop(bench.now);
    bench.machine.handle_pause(None, bench.now);
    let request = bench.exchange(quiet());
    assert!(request.draining && request.paused.is_empty());
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Told));
}

#[test]
fn whom_an_operator_has_stop_stops() {
    let mut bench = Bench::holding([0, 1]);
    bench.begin(0);
    let lease = lease(&bench.plan, 0);
    bench.machine.handle_progress(lease, 1);
    bench.exchange(SyncReply {
        grants: vec![grant(&bench.plan, 2)],
        drain: true,
        ..quiet()
    });
    assert_eq!(bench.orders(), ["stop 1"]);
    bench.count(0);
    let request = bench.exchange(bench.accept([0]));
    assert!(request.draining);
    assert_eq!((held(&request), partials(&request)), (vec![], vec![0]));
    assert_eq!(bench.machine.poll_end(bench.now), Some(Ended::Drained));
}

#[test]
fn a_pause_begins_soon_however_long_a_stop_may_take() {
    let mut bench = Bench::with(Settings {
        drain_limit: 600 * SECOND,
        ..settings()
    });
    bench.grant([0]);
    bench.begin(0);
    let why = Some("on battery".to_owned());
    bench.machine.handle_pause(why, bench.now);
    bench.machine.handle_timeout(bench.now + 9 * SECOND);
    assert_eq!(bench.orders(), [""; 0]);
    bench.machine.handle_timeout(bench.now + 10 * SECOND);
    assert_eq!(bench.orders(), ["stop 0"]);
}

#[test]
fn a_pause_for_the_same_reason_is_no_news_and_a_worker_that_stops_does_not_pause() {
    let mut bench = Bench::new();
    let why = || Some("on battery".to_owned());
    bench.machine.handle_pause(why(), bench.now);
    bench.exchange(quiet());
    bench.machine.handle_pause(why(), bench.now);
    let next = bench.machine.poll_timeout(bench.now).unwrap();
    assert_eq!(next, bench.now + 10 * SECOND);
    bench.machine.handle_pause(None, bench.now);
    bench.machine.handle_stop(bench.now);
    bench.machine.handle_pause(why(), bench.now);
    assert_eq!(bench.machine.paused(), None);
}
