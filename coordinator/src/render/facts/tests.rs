//! What the first screen says on a bad day.

use super::*;

/// A run of N = 20 on one worker.
fn status(state: v1::RunState) -> v1::Status {
    v1::Status {
        run: Some(v1::Run {
            run: 0x1234,
            spec: Some(v1::PlanSpec {
                n: 20,
                layout: v1::Layout::Frames.into(),
                task_cost: 1,
            }),
            state: state.into(),
            ..v1::Run::default()
        }),
        tasks_total: 40,
        tasks_done: 17,
        eta_seconds: Some(60.0),
        workers: vec![v1::Worker {
            name: "rack-7".to_owned(),
            state: "working".to_owned(),
            ..v1::Worker::default()
        }],
        coordinator: Some(v1::Coordinator::default()),
        ..v1::Status::default()
    }
}

fn facts(status: &v1::Status) -> Facts {
    Facts::of(status, &History::default(), 0)
}

#[test]
fn a_good_day_has_nothing_wrong() {
    let facts = facts(&status(v1::RunState::Running));
    assert_eq!(facts.alarms, [""; 0]);
    assert_eq!(
        facts.word("ends"),
        "in 54.0 s to 1 min 6 s: 1970-01-01 00:00 to 00:01 UTC"
    );
}

#[test]
fn an_end_within_a_minute_is_one_moment() {
    let soon = v1::Status {
        eta_seconds: Some(10.0),
        ..status(v1::RunState::Running)
    };
    let ends = facts(&soon).word("ends").to_owned();
    assert_eq!(ends, "in 9.0 s to 11.0 s: 1970-01-01 00:00 UTC");
}

#[test]
fn a_full_disk_is_told_before_it_is_full() {
    let mut status = status(v1::RunState::Running);
    let mut with = |bytes| {
        let coordinator = status.coordinator.as_mut().unwrap();
        coordinator.disk_free_bytes = Some(bytes);
        facts(&status).alarms
    };
    assert_eq!(with(2 << 30), [""; 0]);
    let alarm = "The coordinator's disk is nearly full: 1.5 GiB left";
    assert_eq!(with(3 << 29), [alarm]);
}

#[test]
fn a_quiet_worker_is_wrong_only_while_there_is_something_to_count() {
    for (state, alarms) in [
        (v1::RunState::Running, 1),
        (v1::RunState::Paused, 1),
        (v1::RunState::Disputed, 1),
        (v1::RunState::Complete, 0),
        (v1::RunState::Contradicted, 0),
        (v1::RunState::Cancelled, 0),
    ] {
        let mut status = status(state);
        status.workers[0].state = "lost".to_owned();
        assert_eq!(facts(&status).alarms.len(), alarms, "{state:?}");
    }
}

#[test]
fn a_run_that_does_not_go_on_says_what_would_make_it() {
    let ends = |status: &v1::Status| facts(status).word("ends").to_owned();
    assert_eq!(
        ends(&status(v1::RunState::Paused)),
        "paused; to go on: queensctl resume 0000000000001234"
    );
    assert_eq!(
        ends(&status(v1::RunState::Cancelled)),
        "cancelled; what was counted is kept"
    );
    let mut disputed = status(v1::RunState::Disputed);
    disputed.result = Some(v1::Result {
        disputed_tasks: vec![3, 5],
        seconds: 5.0,
        ..v1::Result::default()
    });
    assert_eq!(
        ends(&disputed),
        "not before another machine has counted 2 tasks whose counts contradict each other"
    );
}

#[test]
fn the_end_is_told_in_no_more_words_than_it_takes() {
    let mut status = status(v1::RunState::Running);
    for (seconds, when) in [
        (40.0, "in 36.0 s to 44.0 s: 1970-01-01 00:00 UTC"),
        (
            7200.0,
            "in 1 h 48 min to 2 h 12 min: 1970-01-01 01:48 to 02:12 UTC",
        ),
        (
            864_000.0,
            "in 9 d 0 h to 11 d 0 h: 1970-01-10 00:00 to 1970-01-12 00:00 UTC",
        ),
    ] {
        status.eta_seconds = Some(seconds);
        assert_eq!(facts(&status).word("ends"), when);
    }
}
