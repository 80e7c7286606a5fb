//! What stands where on the screen. Facts that are cut off stand in the order of how much they matter.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    symbols::Marker,
    text::{Line, Span},
    widgets::{Axis, Chart, Dataset, GraphType},
};

use coordinator::{
    render::{Facts, History, Point},
    text::{Column, shortened, table, wrapped},
};

/// What is drawn.
pub(super) struct View<'a> {
    pub(super) facts: &'a Facts,
    /// Every worker's row.
    pub(super) workers: &'a [Vec<String>],
    /// The first of them that is shown.
    pub(super) first_worker: usize,
    pub(super) history: &'a History,
    /// Why there is nothing newer.
    pub(super) lost: Option<&'a str>,
    pub(super) colours: bool,
}

/// From this size on there is room for charts beside the facts.
const ROOMY: (u16, u16) = (120, 40);

/// Columns of labels.
const LABELS: usize = 11;

/// Rows that workers get at least: what they come to, heads, and the first, which is in trouble if any is.
const LEAST_FOR_WORKERS: u16 = 3;

/// Lines of alarms: many at once are about the same.
const MOST_ALARM_LINES: usize = 3;

pub(super) fn draw(frame: &mut Frame, view: &View) {
    let [head, bar, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(title(view), head);
    frame.render_widget(progress(view, bar.width), bar);
    let roomy = frame.area().width >= ROOMY.0 && frame.area().height >= ROOMY.1;
    let wide = if roomy { body.width / 2 } else { body.width };
    let facts = facts(view, wide.into());
    let needed = u16::try_from(facts.len()).unwrap_or(u16::MAX);
    let least = if roomy { needed.max(18) } else { needed };
    let most = body.height.saturating_sub(LEAST_FOR_WORKERS);
    let [above, below] =
        Layout::vertical([Constraint::Length(least.min(most)), Constraint::Fill(1)]).areas(body);
    if roomy {
        let [left, right] =
            Layout::horizontal([Constraint::Length(wide), Constraint::Fill(1)]).areas(above);
        lines(frame, left, facts);
        charts(frame, right, view);
    } else {
        lines(frame, above, facts);
    }
    let shown = workers(frame, below, view);
    frame.render_widget(help(view, &shown, foot.width), foot);
}

fn paint(view: &View, colour: Color) -> Style {
    match view.colours {
        true => Style::new().fg(colour),
        false => Style::new(),
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

fn title<'a>(view: &'a View) -> Line<'a> {
    let colour = match view.facts.state {
        "running" | "complete" => Color::Green,
        "paused" => Color::Yellow,
        _ => Color::Red,
    };
    Line::from(vec![
        Span::styled(view.facts.word("what"), BOLD),
        Span::raw(", "),
        Span::raw(view.facts.word("method")),
        Span::raw(": "),
        Span::styled(view.facts.state, paint(view, colour).patch(BOLD)),
    ])
}

/// A bar that is one without colours too.
fn progress<'a>(view: &'a View, width: u16) -> Line<'a> {
    let percent = view.facts.word("percent");
    let room = usize::from(width).saturating_sub(percent.chars().count() + 1);
    // 0 to 1 of a terminal's width.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let done = (view.facts.fraction.clamp(0.0, 1.0) * room as f64) as usize;
    Line::from(vec![
        Span::styled("█".repeat(done), paint(view, Color::Blue)),
        Span::raw("░".repeat(room - done)),
        Span::raw(" "),
        Span::styled(percent, BOLD),
    ])
}

/// The facts, as lines within `width`.
fn facts(view: &View, width: usize) -> Vec<Line<'static>> {
    let facts = view.facts;
    let belief = match facts.belief {
        "good" => Color::Green,
        "bad" => Color::Red,
        _ => Color::Yellow,
    };
    let (wrong, alarm) = match facts.alarms.as_slice() {
        [] => ("nothing".to_owned(), Style::new()),
        alarms => (alarms.join("; "), paint(view, Color::Red).patch(BOLD)),
    };
    let word = |place| facts.word(place).to_owned();
    let plain = Style::new();
    let mut lines = Vec::new();
    for (label, text, style) in [
        ("Ends", word("ends"), plain),
        ("Believed", word("belief"), paint(view, belief)),
        ("Wrong", wrong, alarm),
        ("Sum so far", word("sum"), BOLD),
        ("Estimate", word("estimate"), plain),
        ("Checks", word("rechecks"), plain),
        ("Compare", word("reference"), plain),
        ("Speed", word("speed"), plain),
        ("Tasks", word("tasks"), plain),
    ] {
        let room = width.saturating_sub(LABELS + 1).max(1);
        let mut parts = wrapped(&text, room);
        if label == "Wrong" && parts.len() > MOST_ALARM_LINES {
            parts.truncate(MOST_ALARM_LINES);
            let last = format!("{} …", parts[MOST_ALARM_LINES - 1]);
            parts[MOST_ALARM_LINES - 1] = shortened(&last, room);
        }
        for (place, part) in parts.into_iter().enumerate() {
            let label = if place == 0 { label } else { "" };
            lines.push(Line::from(vec![
                Span::styled(format!("{label:<LABELS$}"), paint(view, Color::Cyan)),
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

/// Draws the workers that fit, and says which these are.
fn workers(frame: &mut Frame, area: Rect, view: &View) -> String {
    const COLUMNS: [Column; 9] = [
        Column::words("STATE"),
        Column::name("NAME"),
        Column::words("KERNEL"),
        Column::numbers("THREADS"),
        Column::numbers("CREWS"),
        Column::numbers("CORES"),
        Column::numbers("TASKS"),
        Column::numbers("FAULTS"),
        Column::numbers("SEEN"),
    ];
    let [line, rows] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(
        Span::styled(view.facts.word("workers").to_owned(), BOLD),
        line,
    );
    let room = usize::from(rows.height).saturating_sub(1);
    // The last page is a whole one.
    let first = view
        .first_worker
        .min(view.workers.len().saturating_sub(room));
    let shown: Vec<_> = view
        .workers
        .iter()
        .skip(first)
        .take(room)
        .cloned()
        .collect();
    if shown.is_empty() {
        return String::new();
    }
    let text = table(&COLUMNS, &shown, Some(rows.width.into()));
    let styles = shown.iter().map(|row| match row[0].as_str() {
        "barred" => paint(view, Color::Red),
        "silent" | "lost" | "awaited" => paint(view, Color::Yellow),
        _ => Style::new(),
    });
    let styles = std::iter::once(paint(view, Color::Cyan)).chain(styles);
    let styled = text.lines().zip(styles);
    let styled = styled.map(|(line, style)| Line::styled(line.to_owned(), style));
    lines(frame, rows, styled.collect());
    match shown.len() == view.workers.len() {
        true => String::new(),
        false => format!(
            "workers {} to {} of {}",
            first + 1,
            first + shown.len(),
            view.workers.len()
        ),
    }
}

/// The last row: that the coordinator is gone, or which keys there are.
fn help(view: &View, shown: &str, width: u16) -> Line<'static> {
    if let Some(lost) = view.lost {
        let style = paint(view, Color::Red).patch(BOLD);
        return Line::styled(shortened(lost, width.into()), style);
    }
    let keys = match shown {
        "" => "q leaves".to_owned(),
        shown => format!("q leaves, arrows and Page keys move: {shown}"),
    };
    Line::styled(keys, paint(view, Color::Cyan))
}

fn charts(frame: &mut Frame, area: Rect, view: &View) {
    let [above, below] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let of_estimate = |place: usize| {
        let point = move |point: &Point| Some((point.unix_ms, point.estimate?[place]));
        series(view.history, point)
    };
    let [low, middle, high] = [0, 1, 2].map(of_estimate);
    let estimates = [
        (&low, Color::DarkGray, Marker::Dot),
        (&high, Color::DarkGray, Marker::Dot),
        (&middle, Color::Blue, Marker::Braille),
    ];
    chart(
        frame,
        above,
        view,
        ("estimate and its interval over time", &estimates),
    );
    let speed = series(view.history, |point| {
        Some((point.unix_ms, point.per_second))
    });
    let speed = [(&speed, Color::Green, Marker::Braille)];
    chart(frame, below, view, ("solutions a second over time", &speed));
}

/// Seconds before the last point, and values.
fn series(history: &History, value: impl Fn(&Point) -> Option<(u64, f64)>) -> Vec<(f64, f64)> {
    let last = history.points().last().map_or(0, |point| point.unix_ms);
    let points = history.points().filter_map(value);
    points
        .map(|(at, value)| (-(last.saturating_sub(at) as f64) / 1e3, value))
        .collect()
}

/// Points, their colour, and how they are drawn.
type Drawn<'a> = (&'a Vec<(f64, f64)>, Color, Marker);

fn chart(frame: &mut Frame, area: Rect, view: &View, (title, drawn): (&str, &[Drawn])) {
    let points = || drawn.iter().flat_map(|(points, ..)| points.iter());
    let Some(first) = points().map(|point| point.0).reduce(f64::min) else {
        return;
    };
    let (low, high) = points().fold((f64::MAX, f64::MIN), |(low, high), point| {
        (low.min(point.1), high.max(point.1))
    });
    // A level line has a height too.
    let high = if high > low {
        high
    } else {
        low + low.abs().max(1.0) * 0.01
    };
    let sets = drawn.iter().map(|(points, colour, marker)| {
        Dataset::default()
            .data(points)
            .marker(*marker)
            .graph_type(GraphType::Line)
            .style(paint(view, *colour))
    });
    let x = Axis::default().bounds([first.min(-1.0), 0.0]).labels([
        format!("{} ago", coordinator::text::age(-first)),
        "now".to_owned(),
    ]);
    let y = Axis::default()
        .bounds([low, high])
        .labels([format!("{low:.3e}"), format!("{high:.3e}")]);
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(
        Span::styled(title.to_owned(), paint(view, Color::Cyan)),
        head,
    );
    frame.render_widget(Chart::new(sets.collect()).x_axis(x).y_axis(y), body);
}

#[cfg(test)]
mod tests;
