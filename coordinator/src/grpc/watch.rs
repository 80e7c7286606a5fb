//! Streams of status messages.

use std::time::Duration;

use common::run::RunId;
use proto::v1;
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use tonic::Status;

use crate::render::Statuses;

/// One stream of status messages.
pub(super) struct StatusWatch {
    pub(super) statuses: Statuses,
    pub(super) closing: watch::Receiver<bool>,
    pub(super) sender: mpsc::Sender<Result<v1::Status, Status>>,
    pub(super) interval: Duration,
}

impl StatusWatch {
    /// Sends the status now and then every change, until the reader goes away, the run has its
    /// result, or the server closes. A reader that does not read is waited for, and costs nothing.
    pub(super) async fn send_all(mut self, run: RunId) {
        let mut changed = self.statuses.driver.changes();
        let mut closing = false;
        loop {
            changed.mark_unchanged();
            let status = match self.statuses.get(run).await {
                Ok(Some(status)) => status,
                Ok(None) => return,
                Err(stopped) => {
                    let _ = self.sender.send(Err(stopped.into())).await;
                    return;
                }
            };
            let last = status.result.is_some() || closing;
            let sent = self.sender.send(Ok((*status).clone())).await;
            if sent.is_err() || last {
                return;
            }
            closing = tokio::select! {
                () = sleep(self.interval) => false,
                _ = self.closing.wait_for(|closing| *closing) => true,
                () = self.sender.closed() => return,
            };
            if !closing {
                closing = tokio::select! {
                    changed = changed.changed() => match changed {
                        Ok(()) => false,
                        Err(_) => return,
                    },
                    _ = self.closing.wait_for(|closing| *closing) => true,
                    () = self.sender.closed() => return,
                };
            }
        }
    }
}
