//! Notes: the events of a run or the cluster, and a run's history.
//! They are bounded, stored outside the journals' hash chains, and may be lost without changing a total.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Maximum number of events stored per run, and for the cluster.
const MAX_EVENTS: usize = 300;

/// Maximum number of characters of an event's text.
const MAX_CHARS: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// An [`EventLog`].
    Events,
    /// Points of charts, and workers' shares.
    History,
}

impl Note {
    pub const ALL: [Self; 2] = [Self::Events, Self::History];

    /// Returns the note's file name in the run's folder or the data directory.
    pub(crate) const fn file(self) -> &'static str {
        match self {
            Self::Events => "events.jsonl",
            Self::History => "history.json",
        }
    }
}

/// An event of a run or the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Higher than the sequence of every earlier event.
    pub sequence: u64,
    pub unix_ms: u64,
    /// `submitted`, `conflict`, …
    pub kind: String,
    pub text: String,
    /// The name of the token that caused the event; empty if none did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

impl Event {
    /// Creates an event without a sequence number.
    pub fn new(unix_ms: u64, kind: &str, text: &str) -> Self {
        let text = text.chars().take(MAX_CHARS).collect();
        Self { unix_ms, kind: kind.to_owned(), text, ..Self::default() }
    }

    /// Sets the token that caused the event.
    pub fn by(self, name: Option<&str>) -> Self {
        Self { by: name.unwrap_or_default().to_owned(), ..self }
    }
}

/// The last events of a run or of the cluster, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventLog(VecDeque<Event>);

impl EventLog {
    /// Decodes a log; skips damaged lines.
    pub fn decode(text: &str) -> Self {
        Self(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    pub fn encode(&self) -> String {
        let line = |event| serde_json::to_string(event).unwrap_or_default();
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Adds an event. If there are too many, the oldest of the most frequent kind is dropped:
    /// machines that come and go displace no rare event.
    pub fn add(&mut self, event: Event) {
        self.0.push_back(event);
        if self.0.len() > MAX_EVENTS {
            let alike = |of: &Event| self.0.iter().filter(|event| event.kind == of.kind).count();
            let most = self.0.iter().map(alike).max();
            let oldest = self.0.iter().position(|event| Some(alike(event)) == most);
            self.0.remove(oldest.unwrap_or(0));
        }
    }

    /// Returns its events, oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequent_kind_displaces_no_rare_one() {
        let mut log = EventLog::default();
        log.add(Event::new(0, "barred", "a machine"));
        for unix_ms in 1..1_000 {
            let kind = if unix_ms % 2 == 0 { "joined" } else { "lost" };
            log.add(Event::new(unix_ms, kind, "a machine"));
        }
        let times: Vec<_> = log.events().map(|event| event.unix_ms).collect();
        assert!(times[0] == 0 && times[1..].iter().copied().eq(701..1_000), "{times:?}");
    }

    #[test]
    fn a_log_is_bounded_and_survives_damage() {
        let mut log = EventLog::default();
        for sequence in 0..400 {
            let event = Event::new(sequence, "conflict", "a \"text\"\nof two lines");
            log.add(Event { sequence, ..event.by(Some("anna")) });
        }
        assert_eq!(log.events().count(), MAX_EVENTS);
        assert_eq!(EventLog::decode(&log.encode()), log);
        let damaged = log.encode().replacen("\"kind\"", "\"kin", 1);
        assert_eq!(EventLog::decode(&damaged).events().count(), MAX_EVENTS - 1);
        assert_eq!(log.events().next().map(|event| event.sequence), Some(100));
    }
}
