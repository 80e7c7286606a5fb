//! How fast results arrive.

use std::collections::VecDeque;

use super::clock::Ticks;

const BUCKET_MS: u64 = 5_000;
const BUCKETS: u64 = 60;

/// Results of the last five minutes.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// (number of the bucket, solutions, cost), ascending.
    buckets: VecDeque<(u64, f64, f64)>,
    /// When the first task was granted.
    begun: Option<Ticks>,
}

impl Rate {
    pub(super) fn begin(&mut self, now: Ticks) {
        self.begun.get_or_insert(now);
    }

    pub(super) fn add(&mut self, count: u64, cost: u64, now: Ticks) {
        self.begin(now);
        let bucket = now / BUCKET_MS;
        while self
            .buckets
            .front()
            .is_some_and(|&(old, ..)| old + BUCKETS <= bucket)
        {
            self.buckets.pop_front();
        }
        match self.buckets.back_mut() {
            Some((last, solutions, sum)) if *last == bucket => {
                *solutions += count as f64;
                *sum += cost as f64;
            }
            Some(_) | None => self.buckets.push_back((bucket, count as f64, cost as f64)),
        }
    }

    /// Solutions and cost a second, over the recent past.
    pub(super) fn per_second(&self, now: Ticks) -> (f64, f64) {
        let oldest = (now / BUCKET_MS).saturating_sub(BUCKETS - 1);
        let recent = self.buckets.iter().filter(|&&(at, ..)| at >= oldest);
        let (solutions, cost) = recent.fold((0.0, 0.0), |sum, bucket| {
            (sum.0 + bucket.1, sum.1 + bucket.2)
        });
        let begun = self.begun.unwrap_or(now).max(oldest * BUCKET_MS);
        let seconds = (now.saturating_sub(begun).max(1_000)) as f64 / 1e3;
        (solutions / seconds, cost / seconds)
    }
}
