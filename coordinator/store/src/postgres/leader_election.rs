//! Leader election: one coordinator at a time writes.
//! When the leader's heartbeat stops, a standby increments the term, which fences the old leader's writes.
//!
//! No two clocks are compared: the leader increments a number every second, and a standby takes over
//! once the number has not changed for [`LEADER_TIMEOUT`] by its own clock. A slow leader loses its
//! leadership, but no data.

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{
    Leader, Observed, StoreError,
    postgres::{
        connection::{DbConnection, Server},
        tables::unsigned,
    },
};

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// The time without a heartbeat after which a leader is replaced.
const LEADER_TIMEOUT: Duration = Duration::from_secs(6);

/// The time that dropping a heartbeat waits for its thread.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval at which a standby polls.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

const LOOK_SQL: &str = "SELECT term, name, since_unix_ms, leads, \
     (SELECT beats FROM queens.beat) FROM queens.leader";

/// The take-over; fails after a heartbeat or the take-over of another standby.
const TAKE_SQL: &str = "UPDATE queens.leader SET term = term + 1, name = $1, leads = true, \
     since_unix_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint \
     WHERE term = $2 AND (NOT leads OR (SELECT beats FROM queens.beat) = $3) \
     RETURNING term, commits, since_unix_ms";

const BEAT_SQL: &str = "UPDATE queens.beat SET beats = beats + 1 \
     WHERE (SELECT term FROM queens.leader) = $1 RETURNING beats";

const NAME_SQL: &str = "SELECT name, term FROM queens.leader";

const LEAVE_SQL: &str = "UPDATE queens.leader SET leads = false WHERE term = $1";

/// Waits until there is no leader, or its heartbeat stops, and takes over.
/// Reports another leader to `waits` at each poll. Returns the new leader and the number of commits so far.
pub(super) fn lead(
    link: &mut DbConnection,
    name: &str,
    waits: &mut dyn FnMut(&Observed),
) -> Result<(Leader, i64), StoreError> {
    let mut seen: Option<((i64, i64), Instant)> = None;
    loop {
        let row = link.query(LOOK_SQL, &[])?.pop().ok_or_else(|| link.server.without_leader())?;
        let (term, beats): (i64, i64) = (row.get(0), row.get(4));
        let leads: bool = row.get(3);
        let unchanged_since = match seen {
            Some((before, since)) if before == (term, beats) => since,
            _ => Instant::now(),
        };
        seen = Some(((term, beats), unchanged_since));
        if !leads || unchanged_since.elapsed() >= LEADER_TIMEOUT {
            let taken = link.query(TAKE_SQL, &[&name, &term, &beats])?.pop();
            // If the answer was lost, this process appears as a leader without a heartbeat.
            if let Some(row) = taken {
                return Ok((leader(name.to_owned(), row.get(0), row.get(2)), row.get(1)));
            }
            seen = None;
        } else {
            let leader = leader(row.get(1), term, row.get(2));
            waits(&Observed { leader, heard: unchanged_since });
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn leader(name: String, term: i64, since_unix_ms: i64) -> Leader {
    Leader { name, term: unsigned(term), since_unix_ms: unsigned(since_unix_ms) }
}

/// A heartbeat on a separate connection. Dropping it gives up the leadership.
pub(super) struct Heartbeat {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The next leader, once there is one.
    pub(super) replaced: watch::Receiver<Option<Arc<str>>>,
}

impl Heartbeat {
    pub(super) fn start(server: &Server, term: i64) -> Result<Self, StoreError> {
        // The heartbeat retries forever: the store's connection decides when to give up.
        let mut link = DbConnection::new(server.clone(), Duration::MAX)?;
        link.quiet = true;
        let (stop, stopped) = mpsc::channel();
        let (report, replaced) = watch::channel(None);
        let thread = thread::Builder::new()
            .name("heartbeat".to_owned())
            .spawn(move || {
                while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(HEARTBEAT_INTERVAL)
                {
                    match beat(&mut link, term) {
                        Ok(None) => {}
                        Ok(Some(by)) => {
                            report.send_replace(Some(by.into()));
                            return;
                        }
                        Err(error) => tracing::warn!("heartbeat failed: {error}"),
                    }
                }
                // If the database is unavailable, the standby's timeout ends the leadership instead.
                link.retry_timeout = Duration::ZERO;
                let _ = link.query(LEAVE_SQL, &[&term]);
            })
            .map_err(|error| {
                server.failed(error.to_string(), "raise the limit of threads and start again")
            })?;
        Ok(Self { stop: Some(stop), thread: Some(thread), replaced })
    }
}

/// Sends a heartbeat; returns the next leader, if there is one.
fn beat(link: &mut DbConnection, term: i64) -> Result<Option<String>, StoreError> {
    if !link.query(BEAT_SQL, &[&term])?.is_empty() {
        return Ok(None);
    }
    let leads = link.query(NAME_SQL, &[])?.pop();
    Ok(leads
        .filter(|row| row.get::<_, i64>(1) != term)
        .map(|row| format!("{} leads in term {}", row.get::<_, String>(0), row.get::<_, i64>(1))))
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The thread may be waiting for an unavailable database.
            let began = Instant::now();
            while !thread.is_finished() && began.elapsed() < EXIT_TIMEOUT {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
