//! The machines over time: events of those that come and go, and what each did in the last 24 hours.

use std::collections::{BTreeMap, HashMap};

use common::messages::run::WorkerId;
use scheduler::{Millis, WorkerState};
use view::text::{some_of, thousands};

use super::Driver;

/// Interval at which the states of all workers are compared with the previous ones.
const WATCH_MS: u64 = 5_000;

/// The last state of a machine in the event log.
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
    /// Returns the presence of a worker; `None` for a barred one, which has its own event, and for a package.
    const fn of(state: WorkerState) -> Option<Self> {
        Some(match state {
            WorkerState::Working
            | WorkerState::Idle
            | WorkerState::Paused
            | WorkerState::Draining => Self::Here,
            WorkerState::Silent => Self::Silent,
            WorkerState::Stopped => Self::Left,
            WorkerState::Reconnecting => Self::Expected,
            WorkerState::Lost => Self::Lost,
            WorkerState::Barred | WorkerState::Away => return None,
        })
    }
}

/// Length of a slot of the last 24 hours.
pub const SLOT_MS: u64 = 900_000;

/// Number of slots.
const SLOTS: usize = 96;

/// Maximum number of machines that are remembered though the scheduler has forgotten them.
const MAX_GONE: usize = 1_000;

/// How often a machine was seen counting and waiting, by slot.
type Seen = [[u8; 2]; SLOTS];

#[derive(Debug)]
struct Machine {
    name: String,
    presence: Presence,
    seen: Box<Seen>,
}

/// The machines that the scheduler knows, and some that it has forgotten.
#[derive(Debug)]
pub(super) struct Fleet {
    watched: Millis,
    since: Option<Millis>,
    /// The number of the current slot since 1970.
    slot: u64,
    /// The number of observations, by slot.
    observed: [u8; SLOTS],
    machines: HashMap<WorkerId, Machine>,
}

impl Default for Fleet {
    fn default() -> Self {
        let (watched, since, observed) = (Millis::default(), None, [0; SLOTS]);
        Self { watched, since, slot: 0, observed, machines: HashMap::new() }
    }
}

/// Activity of a machine in the last 24 hours, oldest first: the parts of each slot in which it counted and waited.
pub type Strip = Vec<[f64; 2]>;

/// Activity of machines since the coordinator's start, for at most 24 hours.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    pub since_unix_ms: u64,
    /// One strip per requested machine.
    pub strips: Vec<Strip>,
    /// Machines that the scheduler has forgotten.
    pub gone: Vec<(WorkerId, String, Strip)>,
}

impl Fleet {
    /// Enters the slot of `now`, and empties it and those that were skipped.
    fn enter_slot(&mut self, now: Millis) -> usize {
        if now.0 / SLOT_MS + 1 < self.slot {
            // The clock was ahead: the strips begin again.
            (self.slot, self.since) = (0, None);
        }
        let slot = (now.0 / SLOT_MS).max(self.slot);
        self.since.get_or_insert(now);
        for stale in (self.slot + 1..=slot).rev().take(SLOTS) {
            let at = index(stale);
            self.observed[at] = 0;
            self.machines.values_mut().for_each(|machine| machine.seen[at] = [0; 2]);
        }
        self.slot = slot;
        let at = index(slot);
        self.observed[at] = self.observed[at].saturating_add(1);
        at
    }

    fn strip(&self, seen: &Seen) -> Strip {
        let part = |of: u8, all: u8| f64::from(of) / f64::from(all.max(1));
        let slots = (1..=SLOTS as u64).map(|after| index(self.slot + after));
        slots.map(|at| seen[at].map(|of| part(of, self.observed[at]))).collect()
    }
}

/// Returns the place of a slot in memory.
fn index(slot: u64) -> usize {
    usize::try_from(slot % SLOTS as u64).expect("fewer than SLOTS")
}

impl Driver {
    /// Adds the events of machines that came or went: one per kind, however many machines there are.
    pub(super) fn watch_fleet(&mut self, now: Millis) {
        if now.0.abs_diff(self.fleet.watched.0) < WATCH_MS {
            return;
        }
        self.fleet.watched = now;
        let slot = self.fleet.enter_slot(now);
        let mut before = std::mem::take(&mut self.fleet.machines);
        let mut changes = BTreeMap::<_, Vec<WorkerId>>::new();
        for (id, state) in self.scheduler.snapshot().worker_states(now) {
            let mut machine = before.remove(&id);
            let known = machine.as_ref().map(|machine| machine.presence);
            let Some(presence) = Presence::of(state).or(known) else { continue };
            let name = machine.as_mut().map(|machine| std::mem::take(&mut machine.name));
            let name = name.unwrap_or_else(|| self.name_of(id));
            let mut seen = machine.map_or_else(|| Box::new([[0; 2]; SLOTS]), |known| known.seen);
            let activity = match presence {
                Presence::Here if matches!(state, WorkerState::Working | WorkerState::Draining) => {
                    Some(0)
                }
                Presence::Here => Some(1),
                _ => None,
            };
            if let Some(activity) = activity {
                seen[slot][activity] = seen[slot][activity].saturating_add(1);
            }
            self.fleet.machines.insert(id, Machine { name, presence, seen });
            if known == Some(presence) {
                continue;
            }
            let change = match (known, presence) {
                // A package that returns was not here before.
                (_, Presence::Expected) | (None, Presence::Left) => continue,
                (None, Presence::Here) => ("joined", "joined"),
                (Some(_), Presence::Here) => ("back", "came back"),
                (_, Presence::Silent) => ("silent", "fell silent"),
                (_, Presence::Left) => ("left", "left"),
                (_, Presence::Lost) => ("lost", "stayed silent and lost the leases"),
            };
            changes.entry(change).or_default().push(id);
        }
        let gone = before.into_iter().filter(|(_, machine)| *machine.seen != [[0; 2]; SLOTS]);
        self.fleet.machines.extend(gone.take(MAX_GONE));
        for ((kind, what), ids) in changes {
            let mut names: Vec<_> = ids.iter().map(|id| self.name_of(*id)).collect();
            names.sort_unstable();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let who = some_of(&names, ids.len() as u64);
            let text = match ids.len() {
                1 => format!("{who} {what}"),
                number => format!("{} machines {what}: {who}", thousands(number as u128)),
            };
            self.note(None, (kind, &text), &None);
        }
    }

    /// Returns what these machines did, and the machines that the scheduler has forgotten.
    pub(super) fn activity(&self, of: &[WorkerId]) -> Activity {
        let known = |id: &WorkerId| self.fleet.machines.get(id);
        let strip = |id| known(id).map_or_else(Strip::new, |known| self.fleet.strip(&known.seen));
        let is_gone = |id: &WorkerId| self.scheduler.snapshot().worker_name(*id).is_none();
        let gone = self.fleet.machines.iter().filter(|(id, _)| is_gone(id));
        let mut gone: Vec<_> = gone
            .map(|(id, machine)| (*id, machine.name.clone(), self.fleet.strip(&machine.seen)))
            .collect();
        gone.sort_by(|one, other| (&one.1, one.0).cmp(&(&other.1, other.0)));
        let since_unix_ms = self.fleet.since.unwrap_or_default().0;
        Activity { since_unix_ms, strips: of.iter().map(strip).collect(), gone }
    }
}
