//! Layout of the screen: important figures first; small terminals omit the others.

use super::{Pane, WatchState};
use proto::v1::RunState;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    symbols::Marker,
    text::{Line, Span},
    widgets::{Axis, Chart, Dataset, GraphType},
};
use view::{
    History, Point, RUN_COLUMNS, Rating, RunView, WORKER_COLUMNS,
    text::{Column, LABEL_WIDTH, abbreviated, shortened, table, wrapped},
};

/// The smallest terminal with charts.
const CHART_MIN_SIZE: (u16, u16) = (120, 40);

/// Minimum height of the table: title, heads and one row.
const MIN_TABLE_HEIGHT: u16 = 3;

const MAX_ALERT_LINES: usize = 3;

pub(super) fn draw(frame: &mut Frame, state: &WatchState, view: &RunView) {
    let [head, bar, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(title(state, view), head);
    frame.render_widget(progress(state, view, bar.width), bar);
    let roomy = frame.area().width >= CHART_MIN_SIZE.0 && frame.area().height >= CHART_MIN_SIZE.1;
    // One column stays empty before the charts.
    let wide = if roomy { body.width / 2 - 1 } else { body.width };
    let figures = figures(state, view, wide.into());
    let needed = u16::try_from(figures.len()).unwrap_or(u16::MAX);
    let least = if roomy { needed.max(18) } else { needed };
    let most = body.height.saturating_sub(MIN_TABLE_HEIGHT);
    let [above, below] =
        Layout::vertical([Constraint::Length(least.min(most)), Constraint::Fill(1)]).areas(body);
    if roomy {
        let [left, right] = Layout::horizontal([Constraint::Length(wide), Constraint::Fill(1)])
            .spacing(1)
            .areas(above);
        lines(frame, left, figures);
        charts(frame, right, state);
    } else {
        lines(frame, above, figures);
    }
    let shown = match state.panes.shows_help {
        true => {
            lines(frame, below, HELP.iter().map(|line| Line::raw(*line)).collect());
            String::new()
        }
        false => pane(frame, below, state, view),
    };
    frame.render_widget(help(state, &shown, foot.width), foot);
}

fn paint(state: &WatchState, color: Color) -> Style {
    if state.colors { Style::new().fg(color) } else { Style::new() }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

fn title<'a>(state: &WatchState, view: &'a RunView) -> Line<'a> {
    let color = match view.state {
        RunState::Running | RunState::Complete => Color::Green,
        RunState::Paused => Color::Yellow,
        RunState::Unspecified
        | RunState::Verifying
        | RunState::Cancelled
        | RunState::Contradicted
        | RunState::Disputed => Color::Red,
    };
    Line::from(vec![
        Span::styled(&*view.figures.board.short, BOLD),
        Span::raw(", "),
        Span::raw(&*view.figures.method.short),
        Span::raw(": "),
        Span::styled(&*view.figures.state.short, paint(state, color).patch(BOLD)),
    ])
}

/// Returns the progress bar, which is visible without colors too.
fn progress<'a>(state: &WatchState, view: &'a RunView, width: u16) -> Line<'a> {
    let percent = &view.figures.percent.short;
    let room = usize::from(width).saturating_sub(percent.chars().count() + 1);
    // At most the terminal's width.
    #[expect(clippy::cast_possible_truncation)]
    let done = (view.fraction.clamp(0.0, 1.0) * room as f64) as usize;
    Line::from(vec![
        Span::styled("█".repeat(done), paint(state, Color::Blue)),
        Span::raw("░".repeat(room - done)),
        Span::raw(" "),
        Span::styled(&**percent, BOLD),
    ])
}

/// Returns the figures as lines within `width`.
fn figures(state: &WatchState, view: &RunView, width: usize) -> Vec<Line<'static>> {
    let verification = match view.verification {
        Rating::Ok => Color::Green,
        Rating::Pending => Color::Yellow,
        Rating::Failed => Color::Red,
    };
    let room = width.saturating_sub(LABEL_WIDTH).max(1);
    let mut lines = Vec::new();
    for (label, text) in view.rows() {
        let mut parts = wrapped(&text, room);
        if label == "Alerts" && parts.len() > MAX_ALERT_LINES {
            parts.truncate(MAX_ALERT_LINES);
            let last = format!("{} …", parts[MAX_ALERT_LINES - 1]);
            parts[MAX_ALERT_LINES - 1] = shortened(&last, room);
        }
        let style = match label {
            "Verification" => paint(state, verification),
            "Alerts" if view.alarm => paint(state, Color::Red).patch(BOLD),
            "Solutions" | "Solutions so far" => BOLD,
            _ => Style::new(),
        };
        for (place, part) in parts.into_iter().enumerate() {
            let label = if place == 0 { label } else { "" };
            lines.push(Line::from(vec![
                Span::styled(format!("{label:<LABEL_WIDTH$}"), paint(state, Color::Cyan)),
                Span::styled(part, style),
            ]));
        }
    }
    lines
}

fn lines(frame: &mut Frame, area: Rect, lines: Vec<Line>) {
    for (line, row) in lines.into_iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}

const TASKS: [Column; 4] = [
    Column::words("State"),
    Column::numbers("Tasks"),
    Column::numbers("Share"),
    Column::name("Details"),
];

/// Draws the rows that fit; returns their range as text if some do not.
fn pane(frame: &mut Frame, area: Rect, state: &WatchState, view: &RunView) -> String {
    let panes = &state.panes;
    let (name, head, columns) = match panes.pane {
        Pane::Runs => ("runs", "Runs".to_owned(), &RUN_COLUMNS[..]),
        Pane::Machines => ("workers", view.figures.machines.full().to_owned(), &WORKER_COLUMNS[..]),
        Pane::Tasks => ("states", "Tasks by state".to_owned(), &TASKS[..]),
    };
    let head = match panes.sort.and_then(|column| columns.get(column)) {
        Some(column) => format!("{head} · sorted by {}", column.head.to_lowercase()),
        None => head,
    };
    let [line, rows] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Span::styled(head, BOLD), line);
    let room = usize::from(rows.height).saturating_sub(1);
    // The selected row is visible, and the last page is full.
    let first = (panes.row + 1).saturating_sub(room.max(1));
    let mut shown: Vec<_> = state.rows.iter().skip(first).take(room).cloned().collect();
    if shown.is_empty() {
        return String::new();
    }
    if panes.pane == Pane::Runs {
        // Whole ids do not fit a narrow terminal.
        for row in &mut shown {
            row.cells[0].truncate(8);
        }
    }
    let cells: Vec<_> = shown.iter().map(|row| row.cells.clone()).collect();
    let text = table(columns, &cells, Some(rows.width.into()));
    let styles = shown.iter().enumerate().map(|(place, row)| {
        let style = match row.rating {
            Rating::Failed => paint(state, Color::Red),
            Rating::Pending => paint(state, Color::Yellow),
            Rating::Ok => Style::new(),
        };
        match (panes.pane == Pane::Runs || panes.row > 0) && first + place == panes.row {
            true => style.add_modifier(Modifier::REVERSED),
            false => style,
        }
    });
    let styles = std::iter::once(paint(state, Color::Cyan)).chain(styles);
    let styled = text.lines().zip(styles);
    let styled = styled.map(|(line, style)| Line::styled(line.to_owned(), style));
    lines(frame, rows, styled.collect());
    match shown.len() as u64 == state.total {
        true => String::new(),
        false => {
            format!(" · {name} {} to {} of {}", first + 1, first + shown.len(), state.total)
        }
    }
}

const HELP: [&str; 9] = [
    "1 2 3      runs, machines, tasks",
    "arrows     move, also j and k, Page keys, Home and End",
    "Enter      open the selected run",
    "p r x      pause, resume or cancel the run (in the list of runs, the selected one);",
    "           the first four digits of its id confirm the command",
    "s          sort by the next column",
    "/          filter the rows",
    "q          quit; the run goes on",
    "any key    close this help",
];

/// Returns the last row: a lost connection, a question, or the keys.
fn help(state: &WatchState, shown: &str, width: u16) -> Line<'static> {
    if let Some(text) = state.prompt() {
        let style = paint(state, Color::Red).patch(BOLD);
        return Line::styled(shortened(&text, width.into()), style);
    }
    let keys = format!("q quit  1 runs  2 machines  3 tasks  ? help{shown}");
    Line::styled(shortened(&keys, width.into()), paint(state, Color::Cyan))
}

fn charts(frame: &mut Frame, area: Rect, state: &WatchState) {
    let [above, below] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let of_estimate = |place: usize| {
        let point = move |point: &Point| Some((point.unix_ms, point.estimate?[place]));
        series(&state.history, point)
    };
    let [low, middle, high] = [0, 1, 2].map(of_estimate);
    let estimates = [
        (&low, Color::DarkGray, Marker::Dot),
        (&high, Color::DarkGray, Marker::Dot),
        (&middle, Color::Blue, Marker::Braille),
    ];
    chart(frame, above, state, ("estimate and its interval over time", None, &estimates));
    let speed = series(&state.history, |point| Some((point.unix_ms, point.per_second)));
    let speed = [(&speed, Color::Green, Marker::Braille)];
    chart(frame, below, state, ("solutions per second over time", Some(0.0), &speed));
}

/// Returns values by seconds before the last point, without the time before the first count.
fn series(history: &History, value: impl Fn(&Point) -> Option<(u64, f64)>) -> Vec<(f64, f64)> {
    let last = history.points().last().map_or(0, |point| point.unix_ms);
    let is_before = |point: &&Point| point.per_second <= 0.0 && point.estimate.is_none();
    let points = history.points().skip_while(is_before).filter_map(value);
    points.map(|(at, value)| (-(last.saturating_sub(at) as f64) / 1e3, value)).collect()
}

/// Formats the label of an axis.
fn number(value: f64) -> String {
    // For display; `as` saturates.
    #[expect(clippy::cast_possible_truncation)]
    let whole = value as u128;
    abbreviated(whole)
}

/// Points with their color and marker.
type Series<'a> = (&'a Vec<(f64, f64)>, Color, Marker);

/// Draws series with a title; their axis starts at the least value if no other one is given.
fn chart(
    frame: &mut Frame,
    area: Rect,
    state: &WatchState,
    (title, low, series): (&str, Option<f64>, &[Series]),
) {
    let points = || series.iter().flat_map(|(points, ..)| points.iter());
    let Some(first) = points().map(|point| point.0).reduce(f64::min) else {
        return;
    };
    let (least, high) = points()
        .fold((f64::MAX, f64::MIN), |(low, high), point| (low.min(point.1), high.max(point.1)));
    let low = low.unwrap_or(least);
    // The axis of constant values needs a range.
    let high = if high > low { high } else { low + low.abs().max(1.0) * 0.01 };
    let sets = series.iter().map(|(points, color, marker)| {
        Dataset::default()
            .data(points)
            .marker(*marker)
            .graph_type(GraphType::Line)
            .style(paint(state, *color))
    });
    let x = Axis::default()
        .bounds([first.min(-1.0), 0.0])
        .labels([format!("{} ago", view::text::age(-first)), "now".to_owned()]);
    let y = Axis::default().bounds([low, high]).labels([number(low), number(high)]);
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Span::styled(title.to_owned(), paint(state, Color::Cyan)), head);
    frame.render_widget(Chart::new(sets.collect()).x_axis(x).y_axis(y), body);
}

#[cfg(test)]
mod tests {
    use proto::v1;
    use ratatui::{Terminal, backend::TestBackend};

    use v1::WorkerState::{Barred, Idle, Lost, Working};

    use super::*;

    /// 22 November 2026, 12:00 UTC.
    const NOW: u64 = 1_795_348_800_000;

    fn worker(number: u32) -> v1::Worker {
        v1::Worker {
            id: vec![0xab; 16],
            name: format!("rack-07-{number:04}"),
            kernel: v1::Kernel::Avx512.into(),
            threads: 128,
            crews: 16,
            state: [Working, Lost, Barred, Idle][number as usize % 4].into(),
            tasks_done: 1_234_567,
            last_seen_ms_ago: 59_000,
            cost_per_second: 127.25e6,
            failed_threads: number % 2,
            ..v1::Worker::default()
        }
    }

    /// Returns the totals of the first workers.
    fn totals(workers: u32) -> v1::WorkerTotals {
        let number =
            |is: fn(&v1::Worker) -> bool| (0..workers).map(worker).filter(is).count() as u64;
        v1::WorkerTotals {
            workers: workers.into(),
            threads: (0..workers).map(|number| u64::from(worker(number).threads)).sum(),
            silent: number(|worker| worker.state() == Lost),
            reconnecting: 0,
            barred: number(|worker| worker.state() == Barred),
            failing: number(|worker| worker.failed_threads > 0),
            away: 0,
        }
    }

    /// Returns the status of a run of N = 28 with the largest figures.
    fn status(workers: u32) -> v1::Status {
        v1::Status {
            run: Some(v1::Run {
                run: 0x1234_5678_9abc_def0,
                spec: Some(v1::PlanSpec { n: 28, layout: v1::Layout::Frames.into(), task_cost: 1 }),
                state: v1::RunState::Running.into(),
                ..v1::Run::default()
            }),
            tasks_total: 2_000_000,
            tasks_done: 1_234_567,
            tasks_leased: 12_345,
            tasks_counting: 512,
            tasks_pending: 753_087,
            tasks_parked: 1,
            tasks_confirmed: 24_691,
            tasks_recounted: 20_000,
            solutions_so_far: "1601234567890123456".to_owned(),
            estimate: Some(v1::Estimate {
                solutions: "2566123456789012345".to_owned(),
                low: "2560999999999999999".to_owned(),
                high: "2571345678901234567".to_owned(),
                confidence: 0.95,
            }),
            eta_seconds: Some(864_000.0),
            solutions_per_second: 1.234e12,
            fraction_done: 0.6173,
            workers: (0..workers).map(worker).collect(),
            worker_totals: Some(totals(workers)),
            rechecks: Some(v1::Rechecks { agreed: 24_691, ..v1::Rechecks::default() }),
            ..v1::Status::default()
        }
    }

    /// Returns half a day of history, with a shrinking confidence interval.
    fn history() -> History {
        let mut history = History::default();
        for minute in 0..=720u32 {
            let part = f64::from(minute) / 720.0;
            let off = 2e16 * (1.05 - part);
            history.add(Point {
                unix_ms: NOW - 60_000 * u64::from(720 - minute),
                fraction: 0.6173 * part,
                per_second: 1.2e12 * (1.0 + 0.2 * (f64::from(minute) / 40.0).sin()),
                estimate: Some([2.566e18 - off, 2.566e18, 2.566e18 + off]),
                ..Point::default()
            });
        }
        history
    }

    /// Draws the screen for this status, after `change`.
    fn drawn(
        (width, height): (u16, u16),
        status: v1::Status,
        change: impl FnOnce(&mut WatchState),
    ) -> String {
        let mut state = WatchState::new(true);
        (state.status, state.history) = (Some(status), history());
        change(&mut state);
        let view = state.view(NOW).expect("a status");
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, &state, &view)).expect("a drawn screen");
        terminal.backend().to_string()
    }

    #[test]
    fn a_large_run_on_a_small_terminal() {
        let text = drawn((80, 24), status(1_000), |_| {});
        insta::assert_snapshot!(text);
        for part in [
            "N = 28",
            "61.73 %",
            "ETA",
            "Verification",
            "Alerts",
            "Solutions",
            "extrapolated",
            "confidence",
            "SPEED",
            "LAST SEEN",
            "workers 1 to",
        ] {
            assert!(text.contains(part), "'{part}' in\n{text}");
        }
    }

    #[test]
    fn a_large_run_on_a_large_terminal() {
        insta::assert_snapshot!(drawn((200, 60), status(1_000), |_| {}));
    }

    /// Returns the status of a run on five machines without problems.
    fn a_lab() -> v1::Status {
        let machine = |number: u32| v1::Worker {
            name: ["rack-07", "rack-08", "a-laptop-with-a-long-name", "desk-3", "desk-4"]
                [number as usize]
                .to_owned(),
            threads: 16 >> number,
            crews: 4 >> (number / 2),
            state: Working.into(),
            tasks_done: 4_321,
            last_seen_ms_ago: 4_000,
            cost_per_second: f64::from(16u32 >> number) * 0.9e6,
            failed_threads: 0,
            ..worker(number)
        };
        let worker_totals = v1::WorkerTotals { workers: 5, threads: 31, ..totals(0) };
        let workers = (0..5).map(machine).collect();
        v1::Status { tasks_parked: 0, workers, worker_totals: Some(worker_totals), ..status(0) }
    }

    #[test]
    fn a_lab_on_a_small_and_on_a_large_terminal() {
        let small = drawn((80, 24), a_lab(), |_| {});
        insta::assert_snapshot!("a_lab_on_a_small_terminal", small);
        let large = drawn((200, 60), a_lab(), |_| {});
        insta::assert_snapshot!("a_lab_on_a_large_terminal", large);
        assert!(large.contains("desk-4"), "every worker:\n{large}");
        for text in [small, large] {
            for part in ["Alerts           None", "SPEED", "rack-07"] {
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
        insta::assert_snapshot!(drawn((80, 24), begun, |_| {}));
    }

    #[test]
    fn a_lost_coordinator_is_reported_and_the_last_row_can_be_selected() {
        let lost = "http://127.0.0.1:7171 does not answer; retrying every second";
        let text = drawn((80, 24), status(10), |state| {
            (state.panes.row, state.lost) = (9, Some(lost.to_owned()));
        });
        assert!(text.contains(lost), "{text}");
        // Workers that need attention come first: this is the last one, and the page is full.
        assert!(text.contains("rack-07-0008  working"), "{text}");
    }

    #[test]
    fn every_size_of_terminal_can_be_drawn_on() {
        for size in [(1, 1), (10, 3), (79, 7), (20, 60), (300, 5)] {
            drawn(size, status(3), |state| state.panes.row = 2);
        }
    }
}
