//! The human-readable event logs of the runs and of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use common::messages::run::{RunId, WorkerId};
use scheduler::{Command, REFEREE};
use store::{Change, EntryKind, Event, EventLog, LeaseEvent, Note, RunState, StoreError, Trust};
use view::text::thousands;

use super::{Driver, request::By};

/// Maximum number of events of one kind per group; further ones are summarized.
const MAX_ALIKE: usize = 3;

/// An event and its run; `None` for the cluster.
pub type RunEvent = (Option<RunId>, Event);

/// The event logs, and which of them are to be stored.
#[derive(Debug, Default)]
pub(super) struct Notes {
    logs: BTreeMap<Option<RunId>, EventLog>,
    changed: BTreeSet<Option<RunId>>,
    /// The highest sequence number.
    last: u64,
}

impl Notes {
    fn add(&mut self, run: Option<RunId>, event: Event) {
        self.last += 1;
        self.logs.entry(run).or_default().add(Event { sequence: self.last, ..event });
        self.changed.insert(run);
    }
}

impl Driver {
    /// Reads the stored logs, and from them the tokens that cancelled runs.
    pub(super) fn restore_notes(&mut self) -> Result<(), StoreError> {
        let runs = self.scheduler.snapshot().runs().into_iter().map(|run| Some(run.manifest.run));
        for run in std::iter::once(None).chain(runs) {
            let Some(text) = self.store.note(run, Note::Events)? else { continue };
            let log = EventLog::decode(&text);
            for event in log.events() {
                self.notes.last = self.notes.last.max(event.sequence);
            }
            let last_cancel = log.events().rev().find(|event| event.kind == "cancelled");
            if let (Some(run), Some(event)) = (run, last_cancel)
                && !event.by.is_empty()
            {
                self.cancelled_by.insert(run, event.by.as_str().into());
            }
            self.notes.logs.insert(run, log);
        }
        Ok(())
    }

    pub(super) fn note(&mut self, run: Option<RunId>, (kind, text): (&str, &str), by: &By) {
        let event = Event::new(self.clock.now().0, kind, text).by(by.as_deref());
        self.notes.add(run, event);
        self.status_changed = true;
    }

    /// Adds the event of an operator's command.
    pub(super) fn note_command(&mut self, run: RunId, command: Command, by: &By) {
        let (kind, text) = match command {
            Command::Pause => ("paused", "paused".to_owned()),
            Command::Resume => ("resumed", "resumed".to_owned()),
            Command::Cancel => ("cancelled", "cancelled".to_owned()),
            Command::Unpark => ("retried", "parked tasks are retried".to_owned()),
            Command::Recheck(part) => ("recheck", format!("recheck set to {part}")),
            Command::Priority(to) => ("priority", format!("priority set to {to}")),
        };
        self.note(Some(run), (kind, &text), by);
    }

    /// Adds the events of durable changes.
    pub(super) fn note_changes(&mut self, durable: &[Change]) {
        let mut texts_by_kind = BTreeMap::<(Option<RunId>, &str), Vec<String>>::new();
        for change in durable {
            if let Some((run, kind, text)) = self.event_of(change) {
                texts_by_kind.entry((run, kind)).or_default().push(text);
            }
        }
        for ((run, kind), texts) in texts_by_kind {
            for text in texts.iter().take(MAX_ALIKE) {
                self.note(run, (kind, text), &None);
            }
            if texts.len() > MAX_ALIKE {
                let more =
                    format!("{} more like these", thousands((texts.len() - MAX_ALIKE) as u128));
                self.note(run, (kind, &more), &None);
            }
        }
    }

    /// Returns the event of a change, if the log shows it.
    fn event_of(&self, change: &Change) -> Option<(Option<RunId>, &'static str, String)> {
        match change {
            Change::Recorded(entry) => {
                let record = &entry.record;
                let (task, count) = (record.task.0, thousands(record.count.into()));
                let conflicts = || self.has_conflict(record.run, task);
                let (kind, text) = match entry.kind {
                    EntryKind::Disputed => {
                        let name = self.name_of(record.worker);
                        ("conflict", format!("task {task}: {name} counted {count}, which differs"))
                    }
                    EntryKind::Recounted if conflicts() => {
                        ("referee", format!("task {task}: the referee counted {count}, not final"))
                    }
                    EntryKind::Settled if conflicts() => {
                        ("referee", format!("task {task}: the referee settled the count {count}"))
                    }
                    EntryKind::Voided => {
                        let name = self.name_of(record.worker);
                        ("voided", format!("task {task}: the count of {name} is void"))
                    }
                    EntryKind::Accepted
                    | EntryKind::Confirmed
                    | EntryKind::Recounted
                    | EntryKind::Settled => return None,
                };
                Some((Some(record.run), kind, text))
            }
            Change::Lease { run, task, event, .. } => {
                let (kind, text) = match event {
                    LeaseEvent::Failed(worker) => {
                        let name = self.name_of(*worker);
                        ("worker_lost", format!("{name} lost the lease of task {}", task.0))
                    }
                    LeaseEvent::Parked => {
                        ("parked", format!("task {} parked after repeated failures", task.0))
                    }
                    LeaseEvent::Leased | LeaseEvent::Released | LeaseEvent::Unparked => {
                        return None;
                    }
                };
                Some((Some(*run), kind, text))
            }
            Change::State { run, state } => {
                let text = match state {
                    RunState::Complete => "complete; no check failed",
                    RunState::Contradicted => "contradicted: a check fails",
                    RunState::Disputed => "disputed: counts conflict and there is no referee",
                    RunState::Running => "reopened: a count or a check of the run is in question",
                    RunState::Paused | RunState::Cancelled => return None,
                };
                Some((Some(*run), state.name(), text.to_owned()))
            }
            Change::Trust(record) => {
                let kind = match record.trust {
                    Trust::Barred => "barred",
                    Trust::SelfTestFailed { .. } => "self_test",
                    // The operator's command is the event of a readmission.
                    Trust::Trusted | Trust::SelfTestPassed { .. } => return None,
                };
                let text = match record.reason.as_str() {
                    "" => record.name.clone(),
                    reason => format!("{}: {reason}", record.name),
                };
                Some((None, kind, text))
            }
            Change::Settings { .. } => None,
        }
    }

    /// Returns whether a task had a conflict; recounts of other tasks are not events.
    fn has_conflict(&self, run: RunId, task: u64) -> bool {
        let prefix = format!("task {task}: ");
        let of_task = |event: &Event| event.kind == "conflict" && event.text.starts_with(&prefix);
        self.notes.logs.get(&Some(run)).is_some_and(|log| log.events().any(of_task))
    }

    pub(super) fn name_of(&self, worker: WorkerId) -> String {
        match self.scheduler.snapshot().worker_name(worker) {
            _ if worker == REFEREE => "the referee".to_owned(),
            Some(name) => name.to_owned(),
            None => format!("worker {worker}"),
        }
    }

    /// Stores the changed logs; errors are only logged.
    pub(super) fn store_notes(&mut self) {
        for run in std::mem::take(&mut self.notes.changed) {
            let Some(log) = self.notes.logs.get(&run) else { continue };
            if let Err(error) = self.store.keep_note(run, Note::Events, &log.encode()) {
                tracing::warn!("cannot store an event: {error}");
            }
        }
    }

    /// Drops the log of a deleted run.
    pub(super) fn forget_notes(&mut self, run: RunId) {
        self.notes.logs.remove(&Some(run));
        self.notes.changed.remove(&Some(run));
    }

    /// Returns the sequence number of the newest event; 0 without events.
    pub(super) fn last_event(&self) -> u64 {
        self.notes.last
    }

    /// Returns later events of one run, or of all runs and the cluster, oldest first.
    pub(super) fn events(&self, run: Option<RunId>, after: u64) -> Vec<RunEvent> {
        let logs = self.notes.logs.iter().filter(|(of, _)| run.is_none() || **of == run);
        let events = logs.flat_map(|(of, log)| log.events().map(|event| (*of, event)));
        let new = events.filter(|(_, event)| event.sequence > after);
        let mut events: Vec<_> = new.map(|(of, event)| (of, event.clone())).collect();
        events.sort_by_key(|(_, event)| event.sequence);
        events
    }
}
