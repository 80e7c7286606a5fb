//! What a run looked like over time, in few enough points to be drawn.

use std::collections::VecDeque;

use proto::v1;
use serde_json::{Value, json};

/// Points that are kept: when there are more, every other one goes.
const MOST: usize = 720;

/// The state of a run at one time. Numbers are doubles: they are drawn, not counted with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// Done, of its cost, 0 to 1.
    pub fraction: f64,
    /// Solutions a second.
    pub per_second: f64,
    /// Low end, middle and high end of the estimate, where there is one.
    pub estimate: Option<[f64; 3]>,
}

impl Point {
    /// What a status says, at this time.
    pub fn of(status: &v1::Status, unix_ms: u64) -> Self {
        let number = |text: &str| text.parse().unwrap_or(f64::NAN);
        Self {
            unix_ms,
            fraction: status.fraction_done,
            per_second: status.solutions_per_second,
            estimate: status.estimate.as_ref().map(|estimate| {
                [&estimate.low, &estimate.solutions, &estimate.high].map(|text| number(text))
            }),
        }
    }
}

/// Points in the order of time, evenly thinned out.
#[derive(Clone, Debug)]
pub struct History {
    points: VecDeque<Point>,
    /// Points are at least so far apart.
    apart_ms: u64,
}

impl Default for History {
    fn default() -> Self {
        Self {
            points: VecDeque::new(),
            apart_ms: 1_000,
        }
    }
}

impl History {
    /// Adds a point, unless one as late was added lately.
    pub fn add(&mut self, point: Point) {
        let last = self.points.back();
        if last.is_some_and(|last| point.unix_ms < last.unix_ms + self.apart_ms) {
            return;
        }
        self.points.push_back(point);
        if self.points.len() > MOST {
            let mut place = 0;
            self.points.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.apart_ms *= 2;
        }
    }

    /// In the order of time.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.points.iter()
    }

    /// Work left divided by how fast it went, over the last `1/n` of the history for several n: the
    /// shortest and the longest, in seconds.
    pub fn left(&self) -> Option<(f64, f64)> {
        let last = self.points.back()?;
        let mut range = None::<(f64, f64)>;
        for part in [1, 2, 4, 8] {
            let Some(first) = self
                .points
                .get(self.points.len() - self.points.len() / part)
            else {
                continue;
            };
            let first = if part == 1 {
                self.points.front()?
            } else {
                first
            };
            let moved = last.fraction - first.fraction;
            let seconds = last.unix_ms.saturating_sub(first.unix_ms) as f64 / 1e3;
            if moved > 0.0 && seconds > 0.0 {
                let left = (1.0 - last.fraction) * seconds / moved;
                let (low, high) = range.unwrap_or((left, left));
                range = Some((low.min(left), high.max(left)));
            }
        }
        range
    }

    /// Columns, as charts want them.
    pub fn json(&self) -> Value {
        let column = |pick: &dyn Fn(&Point) -> Value| self.points.iter().map(pick).collect();
        let part = |at: usize| -> Vec<Value> {
            column(&|point| point.estimate.map_or(Value::Null, |parts| json!(parts[at])))
        };
        let seconds: Vec<Value> = column(&|point| json!(point.unix_ms / 1000));
        let fraction: Vec<Value> = column(&|point| json!(point.fraction));
        let per_second: Vec<Value> = column(&|point| json!(point.per_second));
        json!({
            "unix_seconds": seconds,
            "fraction_done": fraction,
            "solutions_per_second": per_second,
            "estimate_low": part(0),
            "estimate": part(1),
            "estimate_high": part(2),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, fraction: f64) -> Point {
        Point {
            unix_ms: seconds * 1000,
            fraction,
            per_second: 1.0,
            estimate: None,
        }
    }

    #[test]
    fn weeks_fit_into_few_points_and_keep_their_ends() {
        let mut history = History::default();
        for seconds in 0..1_000_000 {
            history.add(at(seconds, 0.0));
        }
        assert!((MOST / 2..=MOST).contains(&history.points.len()));
        assert_eq!(history.points[0].unix_ms, 0);
        let last = history.points.back().unwrap();
        assert!(last.unix_ms + history.apart_ms >= 999_999_000);
    }

    #[test]
    fn what_is_left_lies_between_the_fastest_and_the_slowest_stretch() {
        let mut history = History::default();
        assert_eq!(history.left(), None);
        for seconds in 0..=100u64 {
            // Twice as fast in the second half.
            let fraction = seconds as f64 * 0.002 + seconds.saturating_sub(50) as f64 * 0.002;
            history.add(at(seconds, fraction));
        }
        let (low, high) = history.left().unwrap();
        // 0.3 is done; at 0.004 a second the rest takes 175 s, at 0.003 on average 233 s.
        assert!(
            (low - 175.0).abs() < 1.0 && (high - 233.3).abs() < 1.0,
            "{low} {high}"
        );
    }
}
