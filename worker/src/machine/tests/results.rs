//! What is told until it is answered for, and kept.

use super::*;

#[test]
fn the_inventory_is_told_with_its_progress_until_it_is_counted() {
    let mut bench = Bench::holding(0..4);
    bench.begin(2);
    let cost = work(&bench.plan, 2).cost;
    bench.machine.handle_progress(lease(&bench.plan, 2), cost);
    bench.begin(0);
    let first = bench.exchange(quiet());
    assert_eq!(held(&first), [0, 1, 2, 3]);
    let started: Vec<_> = first.held.iter().map(|held| held.started).collect();
    assert_eq!(started, [true, false, true, false]);
    assert_eq!(first.held[2].cost_done, cost);
    bench.count(0);
    let second = bench.exchange(quiet());
    assert_eq!((held(&second), partials(&second)), (vec![1, 2, 3], vec![0]));
    let expected = Partial {
        task: lease(&bench.plan, 0).task,
        epoch: Epoch(1),
        count: 100,
        kernel: KernelName::Scalar,
        orientation: common::count::Orientation::Upright,
        duration_us: 1_500_000,
    };
    assert_eq!(second.partials, [expected]);
    assert_eq!(bench.machine.summary().counted, 1);
}

#[test]
fn results_are_told_again_until_they_are_answered_for() {
    let mut bench = Bench::holding(0..3);
    (0..3).for_each(|task| bench.count(task));
    assert_eq!(partials(&bench.call()), [0, 1, 2]);
    bench.machine.handle_lost_call(0.5, bench.now);
    assert_eq!(partials(&bench.exchange(bench.accept([0, 2]))), [0, 1, 2]);
    assert_eq!(bench.machine.unacknowledged(), 1);
    assert_eq!(partials(&bench.exchange(bench.accept([1]))), [1]);
    assert_eq!(bench.machine.unacknowledged(), 0);
    assert_eq!(bench.machine.summary().accepted, 3);
}

#[test]
fn whatever_the_verdict_a_result_is_dropped_and_the_verdict_counted() {
    let mut bench = Bench::holding(0..5);
    (0..5).for_each(|task| bench.count(task));
    let verdicts = [
        Verdict::Accepted,
        Verdict::Duplicate,
        Verdict::Conflict,
        Verdict::Refused,
        Verdict::Refused,
    ];
    let answer = |(task, verdict)| acknowledge(&lease(&plan(10), task), verdict);
    bench.exchange(SyncReply {
        acknowledgements: (0..).zip(verdicts).map(answer).collect(),
        ..quiet()
    });
    let summary = bench.machine.summary();
    let told = [
        summary.accepted,
        summary.duplicates,
        summary.conflicts,
        summary.refused,
        summary.unacknowledged,
    ];
    assert_eq!(told, [1, 1, 1, 2, 0]);
}

#[test]
fn an_answer_for_something_else_drops_nothing() {
    let mut bench = Bench::holding([1]);
    bench.count(1);
    let right = lease(&bench.plan, 1);
    let other_epoch = LeaseKey {
        epoch: Epoch(8),
        ..right
    };
    let other_run = LeaseKey {
        task: TaskRef {
            run: common::run::RunId(1),
            ..right.task
        },
        ..right
    };
    let answers = [other_epoch, other_run].map(|lease| acknowledge(&lease, Verdict::Accepted));
    bench.exchange(SyncReply {
        acknowledgements: answers.to_vec(),
        ..quiet()
    });
    assert_eq!(
        (
            bench.machine.unacknowledged(),
            bench.machine.summary().accepted
        ),
        (1, 0)
    );
}

#[test]
fn many_results_travel_in_several_calls_and_their_leases_stay_held() {
    let all = limits::PARTIALS as u64 + 100;
    let mut bench = Bench::with(Settings {
        kept: Some((0..all).map(|task| sample_partial(task, 1)).collect()),
        ..settings()
    });
    let mut sizes = Vec::new();
    while bench.machine.unacknowledged() > 0 {
        let request = bench.call();
        let sent: BTreeMap<_, _> = request
            .partials
            .iter()
            .map(|p| (LeaseKey::of(p), p))
            .collect();
        for listed in &request.held {
            assert!(listed.started && listed.cost_done == 0);
            let (task, epoch) = (listed.task, listed.epoch);
            assert!(!sent.contains_key(&LeaseKey { task, epoch }));
        }
        sizes.push((request.partials.len(), request.held.len()));
        let answers = sent
            .keys()
            .map(|lease| acknowledge(lease, Verdict::Accepted));
        let reply = SyncReply {
            acknowledgements: answers.collect(),
            ..quiet()
        };
        bench.machine.handle_reply(reply, bench.now);
    }
    assert_eq!(sizes, [(limits::PARTIALS, 100), (100, 0)]);
}

#[test]
fn who_holds_as_much_as_a_message_lists_asks_for_no_more() {
    let full = limits::HELD - limits::GRANTS;
    for (kept, asks) in [(full, true), (full + 1, false)] {
        let mut bench = Bench::with(Settings {
            kept: Some(
                (0..kept as u64)
                    .map(|task| sample_partial(task, 1))
                    .collect(),
            ),
            ..settings()
        });
        assert_eq!(bench.call().seconds_wanted > 0.0, asks, "{kept}");
    }
}

#[test]
fn what_is_not_soon_acknowledged_goes_to_the_spool() {
    let mut bench = Bench::with(Settings {
        kept: Some(Vec::new()),
        ..settings()
    });
    bench.grant(0..2);
    bench.call();
    bench.count(0);
    let due = bench.machine.poll_timeout(bench.now).unwrap();
    assert_eq!(bench.machine.poll_spool(bench.now), None);
    let write = bench.machine.poll_spool(due).unwrap();
    assert_eq!((write.keep.len(), write.forget.len()), (1, 0));
    bench.machine.handle_spooled(true, due);
    assert_eq!(bench.machine.unkept(), 0);
    bench.count(1);
    bench.machine.handle_spool_lost();
    assert_eq!(bench.machine.unkept(), 2);
    assert_eq!(bench.machine.poll_spool(due + LIMIT), None);
}

#[test]
fn before_the_end_only_what_is_not_written_is_written() {
    let kept = Some(Vec::new());
    let mut bench = Bench::with(Settings { kept, ..settings() });
    assert_eq!(bench.machine.poll_last_write(), None, "nothing was counted");
    bench.grant(0..1);
    bench.count(0);
    let last = bench.machine.poll_last_write().unwrap();
    assert_eq!(last.keep.len(), 1);
    bench.machine.handle_spooled(true, bench.now);
    assert_eq!(bench.machine.poll_last_write(), None, "it was written");
}

#[test]
fn its_speed_is_known_once_something_was_counted() {
    let mut bench = Bench::holding(0..1);
    assert_eq!(bench.machine.cores(), 0.0);
    bench.begin(0);
    bench.count(0);
    assert!(bench.machine.cores() > 0.0);
    assert_eq!(bench.machine.summary().unacknowledged, 1);
}
