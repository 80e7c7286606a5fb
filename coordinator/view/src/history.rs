//! The history of a run as a limited number of points for charts.

use std::collections::{BTreeMap, VecDeque};

use proto::v1;
use serde::{Deserialize, Serialize};

use super::{json, reference_value};

/// Maximum number of points; beyond it, every other point is dropped.
const MAX_POINTS: usize = 360;

/// Interval of the points of the last hour, independent of the length of the run.
const RECENT_INTERVAL_MS: u64 = 20_000;
const RECENT_MS: u64 = 60 * 60 * 1_000;

/// The state of a run at one time, in `f64` because the numbers are only plotted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// Completed fraction of the run's cost, 0 to 1.
    pub fraction: f64,
    pub per_second: f64,
    /// Lower end, middle and upper end of the estimate, if any.
    pub estimate: Option<[f64; 3]>,
    pub workers: u64,
    /// Solutions per second of each entry of [`History`]'s `machines` at that time.
    pub by_machine: Vec<f64>,
}

impl Point {
    pub fn of(status: &v1::Status, unix_ms: u64) -> Self {
        let number = |text: &str| text.parse().unwrap_or(f64::NAN);
        Self {
            unix_ms,
            fraction: status.fraction_done,
            per_second: status.solutions_per_second,
            estimate: status.estimate.as_ref().map(|estimate| {
                [&estimate.low, &estimate.solutions, &estimate.high].map(|text| number(text))
            }),
            workers: status.worker_totals.unwrap_or_default().workers,
            by_machine: Vec::new(),
        }
    }
}

/// Points in chronological order, evenly thinned out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    points: VecDeque<Point>,
    /// The last hour.
    recent: VecDeque<Point>,
    /// Minimum interval between points.
    apart_ms: u64,
    /// Machines with their own rate, then an entry for all others if there are more.
    machines: Vec<String>,
    /// The last known names of workers by identity.
    pub names: BTreeMap<String, String>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            points: VecDeque::new(),
            recent: VecDeque::new(),
            apart_ms: 1_000,
            machines: Vec::new(),
            names: BTreeMap::new(),
        }
    }
}

/// Maximum number of machines with their own rate.
const MAX_MACHINES: usize = 7;

/// Maximum number of stored worker names.
const MAX_NAMES: usize = 5_000;

impl History {
    /// Parses a stored history; returns an empty one if it is damaged.
    pub fn decode(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Formats the history for the store.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Adds the point of a status, with the rate of each machine.
    pub fn record(&mut self, status: &v1::Status, unix_ms: u64) {
        let mut point = Point::of(status, unix_ms);
        let total: f64 = status.workers.iter().map(|worker| worker.cost_per_second).sum();
        for worker in &status.workers {
            let rate = point.per_second * worker.cost_per_second / total.max(1.0);
            if rate > 0.0 {
                let index = self.machine_index(&worker.name);
                point.by_machine.resize(point.by_machine.len().max(index + 1), 0.0);
                point.by_machine[index] += rounded(rate);
            }
            let id = common::messages::hex::encode(&worker.id);
            if self.names.len() < MAX_NAMES {
                self.names.insert(id, worker.name.clone());
            }
        }
        self.add(point);
    }

    fn machine_index(&mut self, name: &str) -> usize {
        if let Some(index) = self.machines.iter().position(|known| known == name) {
            return index;
        }
        if self.machines.len() < MAX_MACHINES {
            self.machines.push(name.to_owned());
        } else if self.machines.len() == MAX_MACHINES {
            self.machines.push("others".to_owned());
        }
        self.machines.len() - 1
    }

    /// Adds a point, unless the last one is too recent.
    pub fn add(&mut self, point: Point) {
        // A clock that was ahead left points in the future, which would keep out all others.
        for points in [&mut self.points, &mut self.recent] {
            while points.pop_back_if(|last| last.unix_ms > point.unix_ms).is_some() {}
        }
        let last = self.recent.back();
        if last.is_none_or(|last| point.unix_ms >= last.unix_ms + RECENT_INTERVAL_MS) {
            self.recent.push_back(point.clone());
            let expired = |first: &Point| first.unix_ms + RECENT_MS < point.unix_ms;
            while self.recent.pop_front_if(|first| expired(first)).is_some() {}
        }
        let last = self.points.back();
        if last.is_some_and(|last| point.unix_ms < last.unix_ms + self.apart_ms) {
            return;
        }
        self.points.push_back(point);
        if self.points.len() > MAX_POINTS {
            let mut place = 0;
            self.points.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.apart_ms *= 2;
        }
    }

    /// Returns the points in chronological order.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        // The last hour has separate, finer points if the others are further apart.
        let recent = if self.apart_ms > RECENT_INTERVAL_MS { Some(&self.recent) } else { None };
        let first = recent.and_then(VecDeque::front).map_or(u64::MAX, |point| point.unix_ms);
        let before = self.points.iter().take_while(move |point| point.unix_ms < first);
        before.chain(recent.into_iter().flatten())
    }

    /// Returns the shortest and the longest estimate of the remaining seconds.
    /// Each estimate assumes the speed over the last `1/n` of the history, for several n.
    pub fn remaining_seconds(&self) -> Option<(f64, f64)> {
        let last = self.points.back()?;
        let mut range = None::<(f64, f64)>;
        for part in [1, 2, 4, 8] {
            let Some(first) = self.points.get(self.points.len() - self.points.len() / part) else {
                continue;
            };
            let first = if part == 1 { self.points.front()? } else { first };
            let progress = last.fraction - first.fraction;
            let seconds = last.unix_ms.saturating_sub(first.unix_ms) as f64 / 1e3;
            if progress > 0.0 && seconds > 0.0 {
                let remaining = (1.0 - last.fraction) * seconds / progress;
                let (low, high) = range.unwrap_or((remaining, remaining));
                range = Some((low.min(remaining), high.max(remaining)));
            }
        }
        range
    }

    /// Returns the points of a run of board size `n` as columns for charts.
    pub fn columns(&self, n: u32) -> json::History {
        let estimate =
            |at: usize| self.points().map(|point| Some(rounded(point.estimate?[at]))).collect();
        let machine = |(place, name): (usize, &String)| json::Machine {
            name: name.clone(),
            solutions_per_second: self
                .points()
                .map(|point| point.by_machine.get(place).copied().unwrap_or_default())
                .collect(),
        };
        let (solutions, published) = reference_value(n);
        let source = match published {
            Some(_) => json::ReferenceSource::Published,
            None => json::ReferenceSource::Extrapolated,
        };
        json::History {
            unix_seconds: self.points().map(|point| point.unix_ms / 1000).collect(),
            workers: self.points().map(|point| point.workers).collect(),
            machines: self.machines.iter().enumerate().map(machine).collect(),
            fraction_done: self.points().map(|point| rounded(point.fraction)).collect(),
            solutions_per_second: self.points().map(|point| rounded(point.per_second)).collect(),
            estimate_low: estimate(0),
            estimate: estimate(1),
            estimate_high: estimate(2),
            reference: json::Reference { solutions, source },
        }
    }
}

/// Rounds a number to the digits that a chart shows.
fn rounded(number: f64) -> f64 {
    format!("{number:.4e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, fraction: f64) -> Point {
        Point { unix_ms: seconds * 1000, fraction, per_second: 1.0, ..Point::default() }
    }

    #[test]
    fn weeks_fit_into_few_points_and_keep_their_ends() {
        let mut history = History::default();
        for seconds in 0..1_000_000 {
            history.add(at(seconds, 0.0));
        }
        assert!((MAX_POINTS / 2..=MAX_POINTS).contains(&history.points.len()));
        assert_eq!(history.points[0].unix_ms, 0);
        let last = history.points.back().unwrap();
        assert!(last.unix_ms + history.apart_ms >= 999_999_000);
        // The last hour has finer points.
        let points: Vec<_> = history.points().collect();
        assert!(points.is_sorted_by(|a, b| a.unix_ms < b.unix_ms));
        let last_hour = points.iter().filter(|point| point.unix_ms >= 999_999_000 - RECENT_MS);
        assert!(last_hour.count() >= 180);
    }

    #[test]
    fn a_corrected_clock_does_not_stop_the_history() {
        let mut history = History::default();
        // The clock is a day ahead for two points.
        for seconds in [0, 100, 86_500, 86_600, 200, 300] {
            history.add(at(seconds, 0.0));
        }
        let seconds = |points: &VecDeque<Point>| -> Vec<u64> {
            points.iter().map(|point| point.unix_ms / 1000).collect()
        };
        assert_eq!(seconds(&history.points), [0, 100, 200, 300]);
        assert_eq!(seconds(&history.recent), [200, 300], "the hour before the jump is over");
    }

    #[test]
    fn machine_rates_add_up_and_round_trip() {
        let worker = |number: u8| v1::Worker {
            id: vec![number; 16],
            name: format!("m{number}"),
            cost_per_second: 2e6,
            ..v1::Worker::default()
        };
        let status = v1::Status {
            solutions_per_second: 1e9,
            workers: (0..10).map(worker).collect(),
            ..v1::Status::default()
        };
        let mut history = History::default();
        history.record(&status, 1_000);
        let decoded = History::decode(&history.encode());
        assert_eq!(decoded.columns(20), history.columns(20));
        let others = &decoded.columns(20).machines[7];
        assert_eq!((others.name.as_str(), others.solutions_per_second[0]), ("others", 3e8));
        assert_eq!(decoded.names.len(), 10);
        assert_eq!(History::decode("damaged").points().count(), 0);
    }

    #[test]
    fn the_remaining_time_lies_between_the_fastest_and_the_slowest_part() {
        let mut history = History::default();
        assert_eq!(history.remaining_seconds(), None);
        for seconds in 0..=100u64 {
            // Twice as fast in the second half.
            let fraction = seconds as f64 * 0.002 + seconds.saturating_sub(50) as f64 * 0.002;
            history.add(at(seconds, fraction));
        }
        let (low, high) = history.remaining_seconds().unwrap();
        // 0.3 is done; at 0.004 per second the rest takes 175 s, at 0.003 on average 233 s.
        assert!((low - 175.0).abs() < 1.0 && (high - 233.3).abs() < 1.0, "{low} {high}");
    }
}
