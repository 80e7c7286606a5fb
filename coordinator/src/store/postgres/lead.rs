//! Who may write: one coordinator at a time leads. Others wait until it is silent, and take over by
//! raising the term, which is what every transaction of the old one runs against.
//!
//! Nobody's clock is compared with anybody's: the one that leads counts up every second, and who
//! waits takes over once the number has stood still for [`SILENCE`] by its own clock. A leader that
//! was only slow has lost nothing but its place.

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::{
    super::{Leader, StoreError},
    link::{Link, Server},
};

/// The time between two signs of life.
const BEAT: Duration = Duration::from_secs(1);

/// A leader that gives none for so long is replaced.
const SILENCE: Duration = Duration::from_secs(6);

/// How often one that waits looks.
const LOOK: Duration = Duration::from_millis(500);

/// What a term began with.
pub(super) struct Begun {
    pub(super) leader: Leader,
    /// Commits of all terms before.
    pub(super) commits: i64,
}

const LOOK_SQL: &str = "SELECT term, name, since_unix_ms, leads, \
     (SELECT beats FROM queens.beat) FROM queens.leader";

/// Nobody else has taken over, and the one that leads has given no sign of life.
const TAKE_SQL: &str = "UPDATE queens.leader SET term = term + 1, name = $1, leads = true, \
     since_unix_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint \
     WHERE term = $2 AND (NOT leads OR (SELECT beats FROM queens.beat) = $3) \
     RETURNING term, commits, since_unix_ms";

const BEAT_SQL: &str = "UPDATE queens.beat SET beats = beats + 1 \
     WHERE (SELECT term FROM queens.leader) = $1 RETURNING beats";

const NAME_SQL: &str = "SELECT name, term FROM queens.leader";

const LEAVE_SQL: &str = "UPDATE queens.leader SET leads = false WHERE term = $1";

/// Waits until nobody leads, or the one that does is silent, and takes over. `waits` is told who is
/// waited for, whenever that is somebody else.
pub(super) fn take(
    link: &mut Link,
    name: &str,
    waits: &mut dyn FnMut(&Leader),
) -> Result<Begun, StoreError> {
    let mut seen: Option<((i64, i64), Instant)> = None;
    let mut told = None;
    loop {
        let row = link
            .call(async |session| session.query(LOOK_SQL, &[]).await)?
            .and_then(|mut rows| rows.pop());
        let row = row.ok_or_else(|| {
            link.server.failed(
                "its table queens.leader is empty".to_owned(),
                "restore it from a backup",
            )
        })?;
        let (term, beats): (i64, i64) = (row.get(0), row.get(4));
        let leads: bool = row.get(3);
        let still = match seen {
            Some((before, since)) if before == (term, beats) => since,
            _ => Instant::now(),
        };
        seen = Some(((term, beats), still));
        if !leads || still.elapsed() >= SILENCE {
            let taken = link
                .call(async |session| session.query(TAKE_SQL, &[&name, &term, &beats]).await)?
                .and_then(|mut rows| rows.pop());
            // Where an answer was lost this looks like somebody else's term, which falls silent.
            if let Some(row) = taken {
                let leader = Leader {
                    name: name.to_owned(),
                    term: unsigned(row.get(0)),
                    since_unix_ms: unsigned(row.get(2)),
                };
                return Ok(Begun {
                    leader,
                    commits: row.get(1),
                });
            }
            seen = None;
        } else if told != Some(term) {
            told = Some(term);
            waits(&Leader {
                name: row.get(1),
                term: unsigned(term),
                since_unix_ms: unsigned(row.get(2)),
            });
        }
        thread::sleep(LOOK);
    }
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Gives signs of life on a connection of its own, until it is dropped: then it leaves.
pub(super) struct Heart {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Who leads instead, once somebody does.
    pub(super) replaced: watch::Receiver<Option<Arc<str>>>,
}

impl Heart {
    pub(super) fn start(server: &Server, term: i64) -> Result<Self, StoreError> {
        // It waits for the database as long as it takes: who serves decides when that is too long.
        let mut link = Link::new(server.clone(), Duration::MAX)?;
        link.quiet = true;
        let (stop, stopped) = mpsc::channel();
        let (tell, replaced) = watch::channel(None);
        let thread = thread::Builder::new()
            .name("heart".to_owned())
            .spawn(move || {
                while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(BEAT) {
                    match beat(&mut link, term) {
                        Ok(None) => {}
                        Ok(Some(by)) => {
                            tell.send_replace(Some(by.into()));
                            return;
                        }
                        Err(error) => tracing::warn!("no sign of life: {error}"),
                    }
                }
                // It does not wait for a database that is away: the others will.
                link.patience = Duration::ZERO;
                let _ = link.call(async |session| session.query(LEAVE_SQL, &[&term]).await);
            })
            .map_err(|error| {
                server.failed(
                    error.to_string(),
                    "raise the limit of threads and start again",
                )
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
            replaced,
        })
    }
}

/// Who leads instead, if somebody does.
fn beat(link: &mut Link, term: i64) -> Result<Option<String>, StoreError> {
    let beaten = link.call(async |session| session.query(BEAT_SQL, &[&term]).await)?;
    if beaten.is_some_and(|rows| !rows.is_empty()) {
        return Ok(None);
    }
    let leads = link
        .call(async |session| session.query(NAME_SQL, &[]).await)?
        .and_then(|mut rows| rows.pop());
    Ok(leads.filter(|row| row.get::<_, i64>(1) != term).map(|row| {
        format!(
            "{} leads in term {}",
            row.get::<_, String>(0),
            row.get::<_, i64>(1)
        )
    }))
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It may be waiting for a database that is away: nobody waits for that here.
            let patience = Instant::now();
            while !thread.is_finished() && patience.elapsed() < Duration::from_secs(2) {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
