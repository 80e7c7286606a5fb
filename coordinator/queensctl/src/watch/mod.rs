//! `queensctl status --watch` on a terminal: a screen that people leave open.

mod drawing;
mod terminal;

use std::{
    pin::pin,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use proto::v1;
use tokio::{
    sync::mpsc::unbounded_channel,
    time::{MissedTickBehavior, interval},
};

pub(super) use self::terminal::Screen;
use self::{
    drawing::{View, draw},
    terminal::Wish,
};
use super::{
    client::{Client, Connection},
    follow::{News, follow},
    status::show_status,
};
use coordinator::{
    exit::Exit,
    render::{Facts, History, Point, worker_rows},
};

/// Ages grow while nothing else happens.
const TICK: Duration = Duration::from_secs(1);

/// Follows a run on a screen until it is over or somebody leaves; the last that was known of it then
/// stays on the terminal as text.
pub(super) async fn watch(
    connection: &Connection,
    run: (Client, Option<u64>),
    mut screen: Screen,
    colours: bool,
) -> anyhow::Result<Exit> {
    let (sender, mut news) = unbounded_channel();
    let mut tell = |news| {
        // The receiver lives as long as this function.
        let _ = sender.send(news);
        Ok(())
    };
    let mut following = pin!(follow(connection, run, &mut tell));
    let mut watched = Watched::new(colours);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let done = loop {
        tokio::select! {
            done = &mut following => break done,
            Some(news) = news.recv() => watched.take(news),
            wish = screen.wish() => match wish {
                Wish::Quit => break Ok(Exit::Success),
                Wish::Interrupt => break Ok(Exit::Interrupted),
                Wish::Scroll(by) => watched.scroll(by),
                Wish::Top => watched.first_worker = 0,
                Wish::Redraw => {}
            },
            _ = ticks.tick() => {}
        }
        if let Some(facts) = watched.facts(SystemTime::now()) {
            screen.draw(|frame| draw(frame, &watched.view(&facts)))?;
        }
    };
    drop(screen);
    while let Ok(news) = news.try_recv() {
        watched.take(news);
    }
    if let Some(status) = &watched.status {
        show_status(status, false)?;
    }
    done
}

/// What is known of a run, and how it is looked at.
struct Watched {
    status: Option<v1::Status>,
    /// When the status came.
    at: Instant,
    history: History,
    lost: Option<String>,
    workers: Vec<Vec<String>>,
    first_worker: usize,
    colours: bool,
}

impl Watched {
    fn new(colours: bool) -> Self {
        Self {
            status: None,
            at: Instant::now(),
            history: History::default(),
            lost: None,
            workers: Vec::new(),
            first_worker: 0,
            colours,
        }
    }

    fn take(&mut self, news: News) {
        match news {
            News::Status(status) => {
                self.history
                    .add(Point::of(&status, unix_ms(SystemTime::now())));
                self.status = Some(*status);
                self.at = Instant::now();
                self.lost = None;
            }
            News::Lost(line) => self.lost = Some(line),
        }
    }

    fn scroll(&mut self, by: isize) {
        let last = self.workers.len().saturating_sub(1);
        self.first_worker = self.first_worker.saturating_add_signed(by).min(last);
    }

    /// What is said now; `None` before the first status.
    fn facts(&mut self, now: SystemTime) -> Option<Facts> {
        let mut status = self.status.clone()?;
        let age_ms = u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        for worker in &mut status.workers {
            worker.last_seen_ms_ago = worker.last_seen_ms_ago.saturating_add(age_ms);
        }
        self.workers = worker_rows(&status.workers, 0..status.workers.len());
        Some(Facts::of(&status, &self.history, unix_ms(now)))
    }

    fn view<'a>(&'a self, facts: &'a Facts) -> View<'a> {
        View {
            facts,
            workers: &self.workers,
            first_worker: self.first_worker,
            history: &self.history,
            lost: self.lost.as_deref(),
            colours: self.colours,
        }
    }
}

fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
