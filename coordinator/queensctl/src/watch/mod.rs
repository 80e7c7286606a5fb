//! `queensctl status --watch` on a terminal: a full screen with views and keys.

mod drawing;
mod terminal;

use std::{
    fmt,
    pin::pin,
    time::{Duration, Instant},
};

use cli::exit::Exit;
use common::messages::run::RunId;
use crossterm::event::KeyCode;
use proto::v1::{self, ListRequest, RunState};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{MissedTickBehavior, interval},
};
use view::{
    History, Point, Rating, RunView, WorkerRow, listed, run_row, text::thousands, worker_rows,
};

pub(super) use self::terminal::Screen;

use self::{drawing::draw, terminal::UserAction};
use super::{
    client::{Connection, Control},
    follow::{RunUpdate, Style, follow, show_status, unix_ms},
};

/// Redraw interval: the shown ages change every second.
const TICK: Duration = Duration::from_secs(1);

/// Poll interval of the list of runs.
const LIST_INTERVAL: Duration = Duration::from_secs(2);

/// Follows a run on a full screen until a quit, and then prints the last status.
///
/// If `run` is `None`, follows the run in progress, and after its end the next one.
pub(super) async fn watch(
    connection: &Connection,
    run: Option<u64>,
    mut screen: Screen,
    (colors, style): (bool, Style),
) -> anyhow::Result<Exit> {
    let (sender, mut updates) = unbounded_channel();
    let follow_run = |run: Option<u64>| {
        let sender = sender.clone();
        Box::pin(async move {
            // The receiver lives as long as this function.
            let mut show = |update| {
                let _ = sender.send(update);
                Ok(())
            };
            follow(connection, (connection.connect().await?, run), &mut show).await
        })
    };
    let (mut following, mut ended, mut goes_on) = (follow_run(run), None, run.is_none());
    let mut state = WatchState::new(colors);
    let (commands, queued) = unbounded_channel();
    let (replies, mut replied) = unbounded_channel();
    let mut requesting = pin!(send_requests(connection, queued, replies));
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let done = loop {
        tokio::select! {
            done = &mut following, if ended.is_none() => match done {
                Ok(exit) => ended = Some(exit),
                Err(error) => break Err(error),
            },
            Some(update) = updates.recv() => state.take(update),
            () = &mut requesting => {}
            Some(reply) = replied.recv() => match reply {
                Reply::Runs(runs) => {
                    state.runs = runs;
                    if ended.is_some() && goes_on && let Some(next) = state.run_in_progress() {
                        (following, ended) = (follow_run(Some(next)), None);
                    }
                }
                Reply::Result(text) => state.panes.message = text,
            },
            action = screen.next_action() => match action {
                UserAction::Key(code) => match state.key(code) {
                    KeyEffect::Quit => break Ok(ended.unwrap_or(Exit::Success)),
                    KeyEffect::Open(run) => {
                        (following, ended, goes_on) = (follow_run(Some(run)), None, false);
                    }
                    // The receiver lives as long as this function.
                    KeyEffect::Command(run, control) => drop(commands.send((run, control))),
                    KeyEffect::None => {}
                },
                UserAction::Paste(text) => state.panes.paste(&text),
                UserAction::Suspend => screen.suspend()?,
                UserAction::Interrupt => break Ok(Exit::Interrupted),
                UserAction::Resize => {}
            },
            _ = ticks.tick() => {}
        }
        if let Some(view) = state.view(unix_ms()) {
            screen.draw(|frame| draw(frame, &state, &view))?;
        }
    };
    drop(screen);
    while let Ok(update) = updates.try_recv() {
        state.take(update);
    }
    if let Some(status) = &state.status {
        show_status(status, style)?;
    }
    done
}

/// The reply to a request outside of the status stream.
enum Reply {
    Runs(Vec<v1::Run>),
    Result(String),
}

/// Polls the list of runs and sends commands, forever.
async fn send_requests(
    connection: &Connection,
    mut commands: UnboundedReceiver<(u64, Control)>,
    replies: UnboundedSender<Reply>,
) {
    let mut ticks = interval(LIST_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut client = None;
    loop {
        let command = tokio::select! {
            Some(command) = commands.recv() => Some(command),
            _ = ticks.tick() => None,
        };
        let answered: anyhow::Result<Reply> = async {
            let client = match &mut client {
                Some(client) => client,
                none => none.insert(connection.connect().await?),
            };
            let Some((run, control)) = command else {
                let runs = connection.ask(client.list(ListRequest {})).await?.runs;
                return Ok(Reply::Runs(runs));
            };
            let run = connection.control(client, run, control).await?;
            Ok(Reply::Result(view::run_text(&run)))
        }
        .await;
        let reply = match (answered, command) {
            (Ok(reply), _) => reply,
            (Err(error), Some(_)) => Reply::Result(view::text::one_line(&error)),
            // The status stream reports a lost connection.
            (Err(_), None) => {
                client = None;
                continue;
            }
        };
        // The receiver lives as long as this future.
        let _ = replies.send(reply);
    }
}

/// The followed run and the view of it.
struct WatchState {
    status: Option<v1::Status>,
    /// Time of the status.
    at: Instant,
    history: History,
    lost: Option<String>,
    runs: Vec<v1::Run>,
    panes: Panes,
    /// The rows that pass the filter. Workers that need attention come first.
    rows: Vec<Row>,
    /// Number of rows, including those that the coordinator or the terminal omits.
    total: u64,
    colors: bool,
}

impl WatchState {
    fn new(colors: bool) -> Self {
        Self {
            status: None,
            at: Instant::now(),
            history: History::default(),
            lost: None,
            runs: Vec::new(),
            panes: Panes::default(),
            rows: Vec::new(),
            total: 0,
            colors,
        }
    }

    fn take(&mut self, update: RunUpdate) {
        match update {
            RunUpdate::Status(status) => {
                let of = |status: &v1::Status| status.run.as_ref().map(|run| run.run);
                if self.status.as_ref().is_some_and(|before| of(before) != of(&status)) {
                    self.history = History::default();
                }
                self.history.add(Point::of(&status, unix_ms()));
                self.status = Some(*status);
                self.at = Instant::now();
                self.lost = None;
            }
            RunUpdate::Disconnected(line) => self.lost = Some(line),
        }
    }

    /// Returns the run in progress that is served first.
    fn run_in_progress(&self) -> Option<u64> {
        let in_progress = |run: &&v1::Run| run.state() == RunState::Running;
        self.runs.iter().find(in_progress).map(|run| run.run)
    }

    fn key(&mut self, code: KeyCode) -> KeyEffect {
        let id = |row: &Row| u64::from_str_radix(row.cells.first()?, 16).ok();
        let chosen = match self.panes.pane {
            Pane::Runs => self.rows.get(self.panes.row).and_then(id),
            Pane::Machines | Pane::Tasks => None,
        };
        let followed = self.status.as_ref().and_then(|status| Some(status.run.as_ref()?.run));
        let Some(run) = chosen.or(followed) else { return KeyEffect::None };
        let is_over = |known: &v1::Run| {
            let is_open =
                matches!(known.state(), RunState::Running | RunState::Verifying | RunState::Paused);
            known.run == run && !is_open
        };
        let is_idle = self.panes.question.is_none() && !self.panes.is_typing;
        if is_idle
            && matches!(code, KeyCode::Char('p' | 'r' | 'x'))
            && self.runs.iter().any(is_over)
        {
            return KeyEffect::None;
        }
        if is_idle
            && code == KeyCode::Enter
            && let Some(run) = chosen
        {
            self.panes.show_pane(Pane::Machines);
            return KeyEffect::Open(run);
        }
        let size = (self.rows.len(), self.rows.first().map_or(0, |row| row.cells.len()));
        self.panes.key(code, run, size)
    }

    /// Returns the view of the run now; `None` before the first status.
    fn view(&mut self, now_ms: u64) -> Option<RunView> {
        let mut status = self.status.clone()?;
        let age_ms = u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        for worker in &mut status.workers {
            worker.last_seen_ms_ago = worker.last_seen_ms_ago.saturating_add(age_ms);
        }
        let rows = match self.panes.pane {
            // The newest first, with their whole IDs.
            Pane::Runs => {
                let row = |run| Row { cells: run_row(run, false), rating: Rating::Ok };
                listed(self.runs.clone(), true).iter().map(row).collect()
            }
            Pane::Machines => {
                let row = |row: WorkerRow| Row { rating: row.rating(), cells: row.cells };
                worker_rows(&status.workers).into_iter().map(row).collect()
            }
            Pane::Tasks => task_rows(&status),
        };
        self.rows = self.panes.filtered(rows);
        self.total = match self.panes.pane {
            Pane::Machines => status.worker_totals.map_or(0, |totals| totals.workers + totals.away),
            Pane::Runs | Pane::Tasks => self.rows.len() as u64,
        };
        self.panes.row = self.panes.row.min(self.rows.len().saturating_sub(1));
        Some(RunView::new(&status, &self.history, now_ms))
    }

    /// Returns the text that replaces the keys in the last line: the reason for missing
    /// updates, a question, the filter while it is typed, or a command's result.
    fn prompt(&self) -> Option<String> {
        let Panes { question, is_typing, filter, message, .. } = &self.panes;
        let typing = || format!("filter: {filter}_  (Enter keeps it, Esc clears it)");
        let lost_or_question =
            self.lost.clone().or_else(|| question.as_ref().map(Question::to_string));
        lost_or_question
            .or_else(|| is_typing.then(typing))
            .or_else(|| (!message.is_empty()).then(|| message.clone()))
    }
}

/// A row of the shown table.
#[derive(Clone, Debug)]
struct Row {
    cells: Vec<String>,
    rating: Rating,
}

/// The shown table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pane {
    Runs,
    #[default]
    Machines,
    Tasks,
}

/// The effect of a key beyond the shown table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyEffect {
    None,
    Quit,
    /// Follow this run.
    Open(u64),
    /// A command about a run.
    Command(u64, Control),
}

/// The state of the table.
#[derive(Clone, Debug, Default)]
struct Panes {
    pane: Pane,
    row: usize,
    /// The column that rows are sorted by.
    sort: Option<usize>,
    filter: String,
    /// Whether the filter is being typed.
    is_typing: bool,
    shows_help: bool,
    /// The command that needs confirmation.
    question: Option<Question>,
    /// The result of the last command.
    message: String,
}

const PAGE: usize = 10;

impl Panes {
    /// Handles a key; commands apply to `run`, and the table has `rows` and `columns`.
    fn key(&mut self, code: KeyCode, run: u64, (rows, columns): (usize, usize)) -> KeyEffect {
        if let Some(mut question) = self.question.take() {
            let KeyCode::Char(digit) = code else { return KeyEffect::None };
            question.typed.push(digit);
            let digits = RunId(question.run).confirmation();
            if question.typed == digits {
                return KeyEffect::Command(question.run, question.control);
            }
            self.question = digits.starts_with(&question.typed).then_some(question);
            return KeyEffect::None;
        }
        if self.is_typing {
            match code {
                KeyCode::Char(typed) => self.filter.push(typed),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Esc => (self.is_typing, self.filter) = (false, String::new()),
                KeyCode::Enter => self.is_typing = false,
                _ => {}
            }
            self.row = 0;
            return KeyEffect::None;
        }
        self.message.clear();
        if std::mem::take(&mut self.shows_help) {
            return KeyEffect::None;
        }
        let last = rows.saturating_sub(1);
        match code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return KeyEffect::Quit,
            KeyCode::Char('p') => self.question = Some(Question::new(run, Control::Pause)),
            KeyCode::Char('r') => self.question = Some(Question::new(run, Control::Resume)),
            KeyCode::Char('x') => self.question = Some(Question::new(run, Control::Cancel)),
            KeyCode::Char('1') => self.show_pane(Pane::Runs),
            KeyCode::Char('2') => self.show_pane(Pane::Machines),
            KeyCode::Char('3') => self.show_pane(Pane::Tasks),
            KeyCode::Char('s') => {
                self.sort = match self.sort.map_or(0, |column| column + 1) {
                    next if next < columns => Some(next),
                    _ => None,
                };
            }
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('?') => self.shows_help = true,
            KeyCode::Down | KeyCode::Char('j') => self.row = (self.row + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.row = self.row.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.row = (self.row + PAGE).min(last),
            KeyCode::PageUp => self.row = self.row.saturating_sub(PAGE),
            KeyCode::Home => self.row = 0,
            KeyCode::End => self.row = last,
            _ => {}
        }
        KeyEffect::None
    }

    /// Adds pasted text to the filter while it is typed; elsewhere it is not a command.
    fn paste(&mut self, text: &str) {
        if self.is_typing {
            self.filter.extend(text.chars().filter(|c| !c.is_control()));
            self.row = 0;
        }
    }

    fn show_pane(&mut self, pane: Pane) {
        (self.pane, self.row, self.sort) = (pane, 0, None);
    }

    /// Returns the rows that pass the filter, in the selected order.
    fn filtered(&self, mut rows: Vec<Row>) -> Vec<Row> {
        let wanted = self.filter.to_lowercase();
        rows.retain(|row| row.cells.iter().any(|cell| cell.to_lowercase().contains(&wanted)));
        if let Some(column) = self.sort {
            let number = |cell: &String| {
                let digits: String = cell
                    .chars()
                    .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ','))
                    .filter(|c| *c != ',')
                    .collect();
                digits.parse::<f64>().unwrap_or(f64::MAX)
            };
            rows.sort_by(|a, b| {
                let (a, b) = (&a.cells[column], &b.cells[column]);
                number(a).total_cmp(&number(b)).then_with(|| a.cmp(b))
            });
        }
        rows
    }
}

/// Returns the number of tasks in each state, and the first disputed ones.
fn task_rows(status: &v1::Status) -> Vec<Row> {
    let disputed = status.rechecks.clone().unwrap_or_default().disputed_tasks;
    let names = disputed.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let share = |tasks: u64| {
        let part = tasks as f64 / status.tasks_total.max(1) as f64;
        format!("{:.1} %", part * 100.0)
    };
    let in_dispute = status.referee.as_ref().map_or(0, |referee| referee.disputed);
    let states = [
        ("pending", Rating::Ok, status.tasks_pending, String::new()),
        ("leased", Rating::Ok, status.tasks_leased, String::new()),
        ("done", Rating::Ok, status.tasks_done, String::new()),
        ("confirmed", Rating::Ok, status.tasks_confirmed, "of those that are done".to_owned()),
        ("parked", Rating::Ok, status.tasks_parked, "retried later".to_owned()),
        ("disputed", Rating::Failed, in_dispute, names),
    ];
    let rows = states.into_iter().map(|(state, rating, tasks, details)| {
        let cells = vec![state.to_owned(), thousands(tasks.into()), share(tasks), details];
        Row { cells, rating }
    });
    rows.collect()
}

/// A command that waits for the first digits of its run's id.
///
/// A terminal without bracketed paste sends pasted text as keys. Text does not contain these digits by
/// chance.
#[derive(Clone, Debug)]
struct Question {
    run: u64,
    control: Control,
    typed: String,
}

impl Question {
    const fn new(run: u64, control: Control) -> Self {
        Self { run, control, typed: String::new() }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (run, typed) = (RunId(self.run), &self.typed);
        let (verb, digits) = (self.control.verb(), run.confirmation());
        write!(
            f,
            "{verb} run {}? Type {digits}, or any other key to leave it: {typed}_",
            run.short()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_opens_a_run_and_a_finished_run_has_no_commands() {
        let run = |run, state: RunState| v1::Run { run, state: state.into(), ..v1::Run::default() };
        let mut state = WatchState::new(false);
        state.runs = vec![run(0xabcd, RunState::Complete), run(0xabce, RunState::Running)];
        state.take(RunUpdate::Status(Box::new(v1::Status {
            run: Some(state.runs[0].clone()),
            ..v1::Status::default()
        })));
        assert_eq!(state.run_in_progress(), Some(0xabce));
        for (row, asks) in [(0, false), (1, true)] {
            state.key(KeyCode::Char('1'));
            state.view(0);
            let at = state.rows.iter().position(|of| of.cells[0].ends_with(["d", "e"][row]));
            state.panes.row = at.unwrap();
            assert_eq!(state.key(KeyCode::Char('x')), KeyEffect::None);
            assert_eq!(state.panes.question.take().is_some(), asks);
            assert_eq!(state.key(KeyCode::Enter), KeyEffect::Open([0xabcd, 0xabce][row]));
            assert_eq!(state.panes.pane, Pane::Machines);
        }
    }

    /// Types `text` on the screen of run 1a2b…; returns the commands that follow.
    fn typed(panes: &mut Panes, text: &str) -> Vec<KeyEffect> {
        let key = |c| match c {
            '\n' => KeyCode::Enter,
            c => KeyCode::Char(c),
        };
        let effects = text.chars().map(|c| panes.key(key(c), RUN, (3, 2)));
        effects.filter(|effect| *effect != KeyEffect::None).collect()
    }

    const RUN: u64 = 0x1a2b_0000_0000_0000;

    #[test]
    fn a_command_needs_the_first_digits_of_the_id() {
        for (text, control) in
            [("p1a2b", Control::Pause), ("r1a2b", Control::Resume), ("x1a2b", Control::Cancel)]
        {
            let effects = typed(&mut Panes::default(), text);
            assert_eq!(effects, [KeyEffect::Command(RUN, control)], "{text}");
        }
        for text in ["xy", "xY", "x\n", "x1a2c", "x1a2\nb", "px1a2b", "x1A2B"] {
            assert_eq!(typed(&mut Panes::default(), text), [], "{text}");
        }
        let mut panes = Panes::default();
        typed(&mut panes, "x1a");
        let question = panes.question.as_ref().expect("a question").to_string();
        assert!(question.starts_with("Cancel run 1a2b0000? Type 1a2b,"), "{question}");
    }

    #[test]
    fn pasted_text_is_no_command() {
        let line = "export https_proxy=http://proxy.lab.example:3128\n";
        let mut panes = Panes::default();
        assert_eq!(typed(&mut panes, line), [], "on a terminal without bracketed paste");
        let mut panes = Panes::default();
        panes.paste(line);
        assert!(
            panes.filter.is_empty() && panes.question.is_none() && panes.pane == Pane::Machines
        );
        typed(&mut panes, "/");
        panes.paste("rack-07\n");
        assert_eq!(panes.filter, "rack-07");
        typed(&mut panes, "\nx");
        panes.paste("1a2b");
        assert_eq!(typed(&mut panes, "1a2b"), [KeyEffect::Command(RUN, Control::Cancel)]);
    }

    #[test]
    fn keys_choose_sort_and_filter() {
        let mut panes = Panes::default();
        let key = |panes: &mut Panes, code| panes.key(code, 7, (3, 2));
        key(&mut panes, KeyCode::Char('1'));
        assert_eq!(panes.pane, Pane::Runs);
        for code in [KeyCode::Down, KeyCode::PageDown] {
            key(&mut panes, code);
        }
        assert_eq!(panes.row, 2);
        let rows = || {
            ["b 10", "a 9", "c 9,000"].map(|row| Row {
                cells: row.split(' ').map(str::to_owned).collect(),
                rating: Rating::Ok,
            })
        };
        key(&mut panes, KeyCode::Char('s'));
        key(&mut panes, KeyCode::Char('s'));
        let names = |panes: &Panes| {
            let rows = panes.filtered(rows().to_vec());
            rows.iter().map(|row: &Row| row.cells[0].clone()).collect::<String>()
        };
        assert_eq!(names(&panes), "abc");
        for code in [KeyCode::Char('/'), KeyCode::Char('9'), KeyCode::Char(','), KeyCode::Enter] {
            key(&mut panes, code);
        }
        assert_eq!(names(&panes), "c");
        assert_eq!(key(&mut panes, KeyCode::Char('q')), KeyEffect::Quit);
    }
}
