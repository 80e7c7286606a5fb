//! `queensctl status`: once, or again and again.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use anyhow::anyhow;
use clap::Args;
use common::run::RunId;
use proto::v1::{self, GetStatusRequest, RunState, WatchStatusRequest};
use tokio::time::sleep;
use tonic::{Code, Status, Streaming};

use super::{
    client::{Client, Connection, Unreachable},
    output::print,
};
use crate::{
    exit::Exit,
    name::RunName,
    render,
    text::{stdout_width, tell},
};

/// Between two attempts of `status --watch` to reach a coordinator that was there before.
const RETRY: Duration = Duration::from_secs(1);

/// Options of `status`.
#[derive(Clone, Debug, Args)]
pub(super) struct StatusOptions {
    /// The run: the first digits of its name, or last [default: the one served first]
    run: Option<RunName>,

    /// Shows it again whenever it changes, until the run is done
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
    options: &StatusOptions,
) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let run = match &options.run {
        Some(name) => Some(name.find(connection, &mut client).await?),
        None => None,
    };
    if options.watch {
        let mut screen = Screen::new(options.json);
        return follow(connection, (client, run), &mut |status| screen.show(status)).await;
    }
    let request = GetStatusRequest { run };
    let status = connection.ask(client.get_status(request)).await?;
    show_status(&status, options.json)?;
    Ok(Exit::Success)
}

pub(super) async fn wait(connection: &Connection, options: &WaitOptions) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let run = options.run.find(connection, &mut client).await?;
    let mut told = false;
    let mut show = |status: &v1::Status| {
        if ended(status).is_some() {
            return show_end(status, options.json);
        }
        if !told {
            told = true;
            tell(&format!(
                "waiting for run {}: {:.2} % of the work is done",
                RunId(run),
                status.fraction_done * 100.0
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

fn show_status(status: &v1::Status, json: bool) -> anyhow::Result<()> {
    match json {
        true => print(&render::status_json(status)?.to_string()),
        false => print(&render::status_text(status, stdout_width())?),
    }
}

/// What `--watch` draws on.
struct Screen {
    json: bool,
    /// A terminal shows one text, which changes; a file or a pipe gets one after the other.
    terminal: bool,
    last: Option<v1::Status>,
    /// Lines on the terminal that the next text replaces.
    drawn: usize,
}

impl Screen {
    fn new(json: bool) -> Self {
        Self {
            json,
            terminal: !json && io::stdout().is_terminal(),
            last: None,
            drawn: 0,
        }
    }

    fn show(&mut self, status: &v1::Status) -> anyhow::Result<()> {
        if self.terminal {
            return self.redraw(&render::status_text(status, stdout_width())?);
        }
        match self.is_news(status) {
            true => show_status(status, self.json),
            false => Ok(()),
        }
    }

    /// Whether there is anything to tell that was not told last time.
    fn is_news(&mut self, status: &v1::Status) -> bool {
        let told = without_clocks(status);
        let news = self.last.as_ref() != Some(&told);
        self.last = Some(told);
        news
    }

    /// Puts a text where the last one stands. What was on the terminal before stays there.
    fn redraw(&mut self, text: &str) -> anyhow::Result<()> {
        let rows = console::Term::stdout().size_checked();
        // The cursor stays below the last line.
        let most = rows.map_or(usize::MAX, |(rows, _)| usize::from(rows).saturating_sub(1));
        let lines: Vec<_> = text.lines().take(most).collect();
        let back = match self.drawn {
            0 => String::new(),
            // Up, and clear from there on.
            lines => format!("\x1b[{lines}F\x1b[J"),
        };
        self.drawn = lines.len();
        print(&format!("{back}{}", lines.join("\n")))
    }
}

/// What of a status is news: not that time went by and averages with it.
fn without_clocks(status: &v1::Status) -> v1::Status {
    let mut news = status.clone();
    news.eta_seconds = None;
    news.solutions_per_second = 0.0;
    // As it is shown.
    news.fraction_done = (news.fraction_done * 1e4).round();
    for worker in &mut news.workers {
        worker.last_seen_ms_ago = 0;
        worker.cost_per_second = 0.0;
    }
    news
}

/// Follows a run over restarts of the coordinator until it is over.
async fn follow(
    connection: &Connection,
    (mut client, mut run): (Client, Option<u64>),
    show: &mut dyn FnMut(&v1::Status) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let mut stream = watch(connection, &mut client, run).await?;
    loop {
        let lost = match stream.message().await {
            Ok(Some(status)) => {
                show(&status)?;
                run = status.run.as_ref().map(|run| run.run);
                match ended(&status) {
                    Some(exit) => return Ok(exit),
                    None => continue,
                }
            }
            Ok(None) => Status::unavailable("the coordinator went away"),
            Err(status) => status,
        };
        if !matches!(
            lost.code(),
            Code::Unavailable | Code::Unknown | Code::Cancelled
        ) {
            return Err(connection.plain(&lost).await);
        }
        tell(&format!(
            "{} does not answer; trying again every second",
            connection.url()
        ));
        stream = loop {
            sleep(RETRY).await;
            let again = match connection.connect().await {
                Ok(mut client) => watch(connection, &mut client, run).await,
                Err(error) => Err(error),
            };
            match again {
                Err(error) if error.is::<Unreachable>() => {}
                Err(error) => return Err(error),
                Ok(stream) => break stream,
            }
        };
    }
}

async fn watch(
    connection: &Connection,
    client: &mut Client,
    run: Option<u64>,
) -> anyhow::Result<Streaming<v1::Status>> {
    let request = WatchStatusRequest {
        run,
        interval_ms: 1000,
    };
    connection.ask(client.watch_status(request)).await
}

/// How to exit when nothing more will change.
fn ended(status: &v1::Status) -> Option<Exit> {
    let run = status.run.as_ref()?;
    match run.state() {
        RunState::Complete => status.result.is_some().then_some(Exit::Success),
        RunState::Contradicted => status.result.is_some().then_some(Exit::Contradicted),
        RunState::Disputed => Some(Exit::Contradicted),
        RunState::Cancelled => Some(Exit::Error),
        RunState::Running | RunState::Paused | RunState::Unspecified => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happened_is_news() {
        let mut screen = Screen {
            json: false,
            terminal: false,
            last: None,
            drawn: 0,
        };
        let mut status = v1::Status {
            tasks_total: 10,
            workers: vec![v1::Worker::default()],
            ..v1::Status::default()
        };
        assert!(screen.is_news(&status));
        status.workers[0].last_seen_ms_ago = 1000;
        status.workers[0].cost_per_second = 5.0;
        status.eta_seconds = Some(3.0);
        status.solutions_per_second = 7.0;
        status.fraction_done = 0.000_01;
        assert!(!screen.is_news(&status), "time went by");
        status.tasks_done = 1;
        assert!(screen.is_news(&status));
        status.workers[0].state = "lost".to_owned();
        assert!(screen.is_news(&status));
        assert!(!screen.is_news(&status));
        status.fraction_done = 0.01;
        assert!(screen.is_news(&status));
    }
}
