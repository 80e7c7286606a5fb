//! The machines over time: the events of those that come and go.

use std::collections::{BTreeMap, HashMap};

use common::run::WorkerId;
use scheduler::{Millis, WorkerState};
use view::text::{some_of, thousands};

use super::Driver;

/// Interval at which the states of all workers are compared with the previous ones.
const WATCH_MS: u64 = 5_000;

/// What the event log last said of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// Known only from its stored leases.
    Expected,
    Here,
    Silent,
    Left,
    Lost,
}

impl Presence {
    /// Returns the presence of a worker; `None` for a barred one, which has its own event.
    const fn of(state: WorkerState) -> Option<Self> {
        Some(match state {
            WorkerState::Working
            | WorkerState::Idle
            | WorkerState::Paused
            | WorkerState::Draining => Self::Here,
            WorkerState::Silent => Self::Silent,
            WorkerState::Stopped | WorkerState::Away => Self::Left,
            WorkerState::Reconnecting => Self::Expected,
            WorkerState::Lost => Self::Lost,
            WorkerState::Barred => return None,
        })
    }
}

/// The machines that the scheduler knows.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    watched: Millis,
    machines: HashMap<WorkerId, Presence>,
}

impl Driver {
    /// Adds the events of machines that came or went: one per kind, however many machines there are.
    pub(super) fn watch_fleet(&mut self, now: Millis) {
        if now.0.abs_diff(self.fleet.watched.0) < WATCH_MS {
            return;
        }
        self.fleet.watched = now;
        let before = std::mem::take(&mut self.fleet.machines);
        let mut changes = BTreeMap::<_, Vec<WorkerId>>::new();
        for (id, _, state) in self.scheduler.worker_states(now) {
            let known = before.get(&id).copied();
            let Some(presence) = Presence::of(state).or(known) else { continue };
            self.fleet.machines.insert(id, presence);
            if known == Some(presence) {
                continue;
            }
            let change = match (known, presence) {
                (_, Presence::Expected) => continue,
                (None, Presence::Here) => ("joined", "joined"),
                (Some(_), Presence::Here) => ("back", "came back"),
                (_, Presence::Silent) => ("silent", "fell silent"),
                (_, Presence::Left) => ("left", "left"),
                (_, Presence::Lost) => ("lost", "stayed silent and lost the leases"),
            };
            changes.entry(change).or_default().push(id);
        }
        for ((kind, what), ids) in changes {
            let names: Vec<_> = ids.iter().take(3).map(|id| self.name_of(*id)).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let who = some_of(&names, ids.len() as u64);
            let text = match ids.len() {
                1 => format!("{who} {what}"),
                number => format!("{} machines {what}: {who}", thousands(number as u128)),
            };
            self.note(None, (kind, &text), &None);
        }
    }
}
