//! `queensctl status`: once, or again and again.

use anyhow::anyhow;
use clap::Args;
use common::run::RunId;
use proto::v1::{self, GetStatusRequest};
use worker::terminal::{Manner, note};

use super::{
    client::Connection,
    follow::{News, ended, follow},
    name::find,
    output::print,
    watch,
};
use coordinator::{
    exit::Exit,
    name::RunName,
    render,
    text::{percent, stdout_width, tell},
};

/// Options of `status`.
#[derive(Clone, Debug, Args)]
pub(super) struct StatusOptions {
    /// The run: the first digits of its name, or last [default: the one served first]
    run: Option<RunName>,

    /// Shows it as it changes, until the run is done: a screen on a terminal (q leaves it), lines
    /// elsewhere
    #[arg(long)]
    watch: bool,

    /// Prints one JSON object; with --watch one a line
    #[arg(long)]
    json: bool,
}

/// Options of `wait`.
#[derive(Clone, Debug, Args)]
pub(super) struct WaitOptions {
    /// The run: the first digits of its name, see `queensctl runs`, or last
    run: RunName,

    /// Prints the result as a JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn status(
    connection: &Connection,
    manner: Manner,
    options: &StatusOptions,
) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let run = match &options.run {
        Some(name) => Some(find(name, connection, &mut client).await?),
        None => None,
    };
    if options.watch {
        if !options.json
            && let Some(screen) = watch::Screen::open()
        {
            let colours = manner.colours(true);
            return watch::watch(connection, (client, run), screen, colours).await;
        }
        let mut lines = Lines::new(options.json);
        return follow(connection, (client, run), &mut |news| lines.show(news)).await;
    }
    let request = GetStatusRequest { run };
    let status = connection.ask(client.get_status(request)).await?;
    show_status(&status, options.json)?;
    Ok(Exit::Success)
}

pub(super) async fn wait(connection: &Connection, options: &WaitOptions) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let run = find(&options.run, connection, &mut client).await?;
    let mut told = false;
    let mut show = |news: News| {
        let status = match news {
            News::Status(status) => status,
            News::Lost(line) => {
                tell(&line);
                return Ok(());
            }
        };
        if ended(&status).is_some() {
            return show_end(&status, options.json);
        }
        if !told {
            told = true;
            note(&format!(
                "waiting for run {}: {} of the work is done",
                RunId(run),
                percent(status.fraction_done)
            ));
        }
        Ok(())
    };
    follow(connection, (client, Some(run)), &mut show).await
}

/// The last word on a run that is over.
fn show_end(status: &v1::Status, json: bool) -> anyhow::Result<()> {
    match status.result.is_some() || json {
        true => show_status(status, json),
        false => {
            let run = status.run.clone().unwrap_or_default();
            Err(anyhow!("run {} was cancelled", RunId(run.run)))
        }
    }
}

pub(super) fn show_status(status: &v1::Status, json: bool) -> anyhow::Result<()> {
    match json {
        true => print(&render::status_json(status)?.to_string()),
        false => print(&render::status_text(status, stdout_width())?),
    }
}

/// What `--watch` writes where it cannot draw: a text whenever something happened.
struct Lines {
    json: bool,
    last: Option<v1::Status>,
}

impl Lines {
    fn new(json: bool) -> Self {
        Self { json, last: None }
    }

    fn show(&mut self, news: News) -> anyhow::Result<()> {
        match news {
            News::Status(status) if self.is_news(&status) => show_status(&status, self.json),
            News::Status(_) => Ok(()),
            News::Lost(line) => {
                tell(&line);
                Ok(())
            }
        }
    }

    /// Whether there is anything to tell that was not told last time.
    fn is_news(&mut self, status: &v1::Status) -> bool {
        let told = without_clocks(status);
        let news = self.last.as_ref() != Some(&told);
        self.last = Some(told);
        news
    }
}

/// What of a status is news: not that time went by and averages with it.
fn without_clocks(status: &v1::Status) -> v1::Status {
    let mut news = status.clone();
    news.eta_seconds = None;
    news.solutions_per_second = 0.0;
    if let Some(coordinator) = &mut news.coordinator {
        coordinator.archive_behind_ms = None;
        coordinator.disk_free_bytes = None;
    }
    // As it is shown.
    news.fraction_done = (news.fraction_done * 1e4).round();
    for worker in &mut news.workers {
        worker.last_seen_ms_ago = 0;
        worker.cost_per_second = 0.0;
    }
    news
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happened_is_news() {
        let mut lines = Lines::new(false);
        let mut status = v1::Status {
            tasks_total: 10,
            workers: vec![v1::Worker::default()],
            coordinator: Some(v1::Coordinator::default()),
            ..v1::Status::default()
        };
        assert!(lines.is_news(&status));
        status.workers[0].last_seen_ms_ago = 1000;
        status.workers[0].cost_per_second = 5.0;
        status.eta_seconds = Some(3.0);
        let coordinator = status.coordinator.as_mut().unwrap();
        coordinator.archive_behind_ms = Some(4000);
        coordinator.disk_free_bytes = Some(1);
        status.solutions_per_second = 7.0;
        status.fraction_done = 0.000_01;
        assert!(!lines.is_news(&status), "time went by");
        status.tasks_done = 1;
        assert!(lines.is_news(&status));
        status.workers[0].state = "lost".to_owned();
        assert!(lines.is_news(&status));
        assert!(!lines.is_news(&status));
        status.fraction_done = 0.01;
        assert!(lines.is_news(&status));
    }
}
