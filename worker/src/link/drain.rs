//! A planned stop: no new work, what is nearly done is finished, every result is handed in.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::{Link, reply, transport::Call};
use crate::{pool::Job, summary::plural};

/// Between two calls that get on.
const AGAIN: Duration = Duration::from_millis(25);

/// Between two calls that do not.
const RETRY: Duration = Duration::from_secs(1);

impl Link {
    /// Ends within `limit`. Leases that nobody began are given back at once, and so are
    /// those that would outlast the grace; what could not be handed in stays in the outbox.
    pub(super) async fn drain(&mut self, mut call: Option<Call>, limit: Duration) {
        let start = Instant::now();
        let grace = limit * 2 / 5;
        self.give_back_what_takes_too_long(start, grace);
        tracing::info!(
            "stopping with {} under way and {} to hand in",
            plural(self.desk.held().count() as u64, "task"),
            plural(self.desk.outbox.len() as u64, "result")
        );
        // The coordinator has seen the whole inventory, in a call that began after its last change.
        let mut told = false;
        let mut told_by_call = false;
        let mut due = start;
        while !(self.desk.is_empty() && told) {
            let now = Instant::now();
            if now >= start + limit {
                break;
            }
            if now >= start + grace {
                self.give_up_running(|_| true);
            }
            let wake = if now < start + grace { grace } else { limit };
            tokio::select! {
                Some(left) = self.left.recv() => {
                    self.note(&left);
                    told = false;
                    told_by_call = false;
                }
                result = reply(&mut call) => {
                    call = None;
                    let before = self.desk.outbox.len();
                    let grants = self.answered(result);
                    if grants.is_none() && self.may_leave_unheard() {
                        break;
                    }
                    // Grants are not taken; absent from the next inventory, they are released.
                    told = told_by_call
                        && grants.as_ref().is_some_and(Vec::is_empty)
                        && !self.desk.has_news();
                    let progress = grants.is_some() && self.desk.outbox.len() <= before / 2;
                    due = Instant::now() + if progress { AGAIN } else { RETRY };
                }
                () = sleep_until(due.into()), if call.is_none() && !told => {
                    told_by_call = true;
                    call = Some(self.call(true));
                }
                () = sleep_until((start + wake).into()) => {}
            }
        }
    }

    /// Whether nothing is lost if the coordinator is not reached any more: its leases run out.
    fn may_leave_unheard(&self) -> bool {
        let running = self.desk.held().next().is_some();
        !running && (self.desk.outbox.len() == 0 || self.desk.outbox.is_on_disk())
    }

    fn give_back_what_takes_too_long(&mut self, now: Instant, grace: Duration) {
        for job in self.pool.take_all_back() {
            self.desk.give_up(job.lease);
        }
        let speed = self.demand.speed();
        self.give_up_running(|job| {
            #[allow(clippy::cast_precision_loss)] // An estimate.
            let left = (job.cost - job.cost_done()) as f64 / speed;
            // What has run for long and tells of no progress may be anywhere.
            let since_start = job
                .started()
                .map_or(Duration::ZERO, |started| now - started);
            left > grace.as_secs_f64() || job.cost_done() == 0 && since_start > grace
        });
    }

    fn give_up_running(&mut self, hopeless: impl Fn(&Job) -> bool) {
        let leases: Vec<_> = self
            .desk
            .held()
            .filter(|j| hopeless(j))
            .map(|j| j.lease)
            .collect();
        leases
            .into_iter()
            .for_each(|lease| self.desk.give_up(lease));
    }
}
