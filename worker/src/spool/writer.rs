//! The spool's own thread, so that the disk never holds anything up.

use std::{
    io,
    sync::mpsc::{Receiver, Sender, channel},
    thread::Builder,
};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Spool;
use crate::machine::SpoolWrite;

/// A spool that is written by a thread of its own, one write at a time.
#[derive(Debug)]
pub(crate) struct Writer {
    orders: Sender<SpoolWrite>,
    /// Whether each write succeeded; closed when the thread has ended and the spool is closed.
    ended: UnboundedReceiver<bool>,
    busy: bool,
}

impl Writer {
    pub(crate) fn start(spool: Spool) -> io::Result<Self> {
        let (orders, received) = channel();
        let (sender, ended) = unbounded_channel();
        Builder::new()
            .name("spool".to_owned())
            .spawn(move || write_all(spool, &received, &sender))?;
        Ok(Self {
            orders,
            ended,
            busy: false,
        })
    }

    /// Begins a write, after the one before has ended.
    pub(crate) fn write(&mut self, write: SpoolWrite) {
        self.busy = true;
        // A thread that is gone has panicked: `ended` says so.
        let _ = self.orders.send(write);
    }

    /// Whether a write is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Whether the write under way succeeded, once it has ended; `None` if the thread is gone.
    pub(crate) async fn ended(&mut self) -> Option<bool> {
        let succeeded = self.ended.recv().await;
        self.busy = false;
        succeeded
    }

    /// Closes the spool.
    pub(crate) async fn close(mut self) {
        drop(self.orders);
        while self.ended.recv().await.is_some() {}
    }
}

fn write_all(mut spool: Spool, orders: &Receiver<SpoolWrite>, ended: &UnboundedSender<bool>) {
    let directory = spool.directory().display().to_string();
    let mut failing = false;
    for SpoolWrite { keep, forget } in orders {
        let written = spool.keep(&keep, &forget);
        let failed = written.is_err();
        match written {
            Ok(()) if failing => {
                tracing::info!("spool {directory} can be written again; every result is on disk")
            }
            Err(error) if !failing => tracing::error!(
                "spool {directory}: {error}; results are kept in memory until the coordinator has \
                 them or the disk has room: do not kill this worker, stop it"
            ),
            Ok(()) | Err(_) => {}
        }
        failing = failed;
        if ended.send(!failed).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use common::run::WorkerId;

    use super::*;
    use crate::{machine::LeaseKey, testing::sample_partial};

    fn kept(home: &std::path::Path) -> Vec<u64> {
        let spool = Spool::open(home, WorkerId(1)).unwrap();
        spool.unacknowledged().map(|p| p.task.task.0).collect()
    }

    #[tokio::test]
    async fn what_is_written_is_there_once_it_is_told_and_the_spool_is_closed() {
        let home = tempfile::tempdir().unwrap();
        let mut writer = Writer::start(Spool::open(home.path(), WorkerId(1)).unwrap()).unwrap();
        assert!(!writer.is_busy());
        for (keep, forget) in [(vec![1, 2], vec![]), (vec![3], vec![2])] {
            writer.write(SpoolWrite {
                keep: keep.iter().map(|task| sample_partial(*task, 1)).collect(),
                forget: forget
                    .iter()
                    .map(|task| LeaseKey::of(&sample_partial(*task, 1)))
                    .collect(),
            });
            assert!(writer.is_busy());
            assert_eq!(writer.ended().await, Some(true));
            assert!(!writer.is_busy());
        }
        writer.close().await;
        assert_eq!(kept(home.path()), [1, 3]);
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn a_full_disk_is_told() {
        let home = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(home.path(), WorkerId(1)).unwrap();
        spool.fill_disk();
        let mut writer = Writer::start(spool).unwrap();
        writer.write(SpoolWrite {
            keep: vec![sample_partial(1, 1)],
            forget: Vec::new(),
        });
        assert_eq!(writer.ended().await, Some(false));
    }
}
