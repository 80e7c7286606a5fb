//! Screens as they were looked at, in the sizes that people have.

use proto::v1;
use ratatui::{Terminal, backend::TestBackend};

use super::*;
use coordinator::render::worker_rows;

/// 22 November 2026, 12:00 UTC.
const NOW: u64 = 1_795_348_800_000;

fn worker(number: u32) -> v1::Worker {
    v1::Worker {
        id: vec![0xab; 16],
        name: format!("rack-07-{number:04}"),
        kernel: v1::Kernel::Avx512.into(),
        threads: 128,
        crews: 16,
        state: ["working", "lost", "barred", "idle"][number as usize % 4].to_owned(),
        tasks_done: 1_234_567,
        last_seen_ms_ago: 59_000,
        cost_per_second: 127.25e6,
        failed_threads: number % 2,
        ..v1::Worker::default()
    }
}

/// A run of N = 28 on its way, with figures as large as they come.
fn status(workers: u32) -> v1::Status {
    v1::Status {
        run: Some(v1::Run {
            run: 0x1234_5678_9abc_def0,
            spec: Some(v1::PlanSpec {
                n: 28,
                layout: v1::Layout::Frames.into(),
                task_cost: 1,
            }),
            state: v1::RunState::Running.into(),
            ..v1::Run::default()
        }),
        tasks_total: 2_000_000,
        tasks_done: 1_234_567,
        tasks_leased: 12_345,
        tasks_pending: 753_087,
        tasks_parked: 1,
        tasks_confirmed: 24_691,
        tasks_compared: 20_000,
        solutions_so_far: "100123456789012345678901".to_owned(),
        estimate: Some(v1::Estimate {
            solutions: "161123456789012345678901".to_owned(),
            low: "160999999999999999999999".to_owned(),
            high: "161234567890123456789012".to_owned(),
            confidence: 0.95,
        }),
        eta_seconds: Some(864_000.0),
        solutions_per_second: 1.234e17,
        fraction_done: 0.6173,
        workers: (0..workers).map(worker).collect(),
        rechecks: Some(v1::Rechecks {
            agreed: 24_691,
            ..v1::Rechecks::default()
        }),
        ..v1::Status::default()
    }
}

/// Half a day, ever more sure of the total.
fn history() -> History {
    let mut history = History::default();
    for minute in 0..=720u32 {
        let part = f64::from(minute) / 720.0;
        let off = 2e23 * (1.05 - part);
        history.add(Point {
            unix_ms: NOW - 60_000 * u64::from(720 - minute),
            fraction: 0.6173 * part,
            per_second: 1.2e17 * (1.0 + 0.2 * (f64::from(minute) / 40.0).sin()),
            estimate: Some([1.61e23 - off, 1.61e23, 1.61e23 + off]),
        });
    }
    history
}

fn drawn(
    (width, height): (u16, u16),
    status: &v1::Status,
    change: impl FnOnce(&mut View),
) -> String {
    let history = history();
    let facts = Facts::of(status, &history, NOW);
    let workers = worker_rows(&status.workers, 0..status.workers.len());
    let mut view = View {
        facts: &facts,
        workers: &workers,
        first_worker: 0,
        history: &history,
        lost: None,
        colours: true,
    };
    change(&mut view);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal
        .draw(|frame| draw(frame, &view))
        .expect("it cannot fail");
    terminal.backend().to_string()
}

#[test]
fn a_large_run_on_a_small_terminal() {
    let text = drawn((80, 24), &status(1_000), |_| {});
    insta::assert_snapshot!(text);
    for part in [
        "N = 28",
        "61.73 %",
        "Ends",
        "Believed",
        "Wrong",
        "Sum so far",
        "Simkin",
        "confidence",
        "FAULTS",
        "CREWS",
        "workers 1 to",
    ] {
        assert!(text.contains(part), "'{part}' in\n{text}");
    }
}

#[test]
fn a_large_run_on_a_large_terminal() {
    insta::assert_snapshot!(drawn((200, 60), &status(1_000), |_| {}));
}

/// N = 24 on the five machines of a lab, all of them well.
fn a_lab() -> v1::Status {
    let machine = |number: u32| v1::Worker {
        name: [
            "rack-07",
            "rack-08",
            "a-laptop-with-a-long-name",
            "desk-3",
            "desk-4",
        ][number as usize]
            .to_owned(),
        threads: 16 >> number,
        crews: 4 >> (number / 2),
        state: "working".to_owned(),
        tasks_done: 4_321,
        last_seen_ms_ago: 4_000,
        cost_per_second: f64::from(16u32 >> number) * 0.9e6,
        failed_threads: 0,
        ..worker(number)
    };
    v1::Status {
        tasks_parked: 0,
        workers: (0..5).map(machine).collect(),
        ..status(0)
    }
}

#[test]
fn a_lab_on_a_small_and_on_a_large_terminal() {
    let small = drawn((80, 24), &a_lab(), |_| {});
    insta::assert_snapshot!("a_lab_on_a_small_terminal", small);
    let large = drawn((200, 60), &a_lab(), |_| {});
    insta::assert_snapshot!("a_lab_on_a_large_terminal", large);
    assert!(large.contains("desk-4"), "all of them:\n{large}");
    for text in [small, large] {
        for part in ["Wrong      nothing", "CREWS", "rack-07"] {
            assert!(text.contains(part), "'{part}' in\n{text}");
        }
    }
}

#[test]
fn a_run_that_just_began() {
    let begun = v1::Status {
        reason: "no worker has called".to_owned(),
        ..v1::Status {
            run: status(0).run,
            tasks_total: 2_000_000,
            tasks_pending: 2_000_000,
            solutions_so_far: "0".to_owned(),
            ..v1::Status::default()
        }
    };
    insta::assert_snapshot!(drawn((80, 24), &begun, |_| {}));
}

#[test]
fn a_lost_coordinator_is_said_and_the_last_workers_are_reached() {
    let lost = "http://127.0.0.1:7171 does not answer; trying again every second";
    let text = drawn((80, 24), &status(10), |view| {
        view.lost = Some(lost);
        view.first_worker = 9;
    });
    assert!(text.contains(lost), "{text}");
    // Those in trouble come first: this is the last, and the page is a whole one.
    assert!(text.contains("working  rack-07-0008"), "{text}");
}

#[test]
fn nothing_is_too_small_to_be_drawn_on() {
    for size in [(1, 1), (10, 3), (79, 7), (20, 60), (300, 5)] {
        drawn(size, &status(3), |view| view.first_worker = 99);
    }
}
