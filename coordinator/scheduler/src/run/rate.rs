//! Rate at which results arrive.

use std::collections::VecDeque;

use crate::clock::Ticks;

const BUCKET_MS: u64 = 5_000;
const BUCKETS: u64 = 60;

/// Results of the last five minutes.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    /// Number of the bucket, solutions and cost, also that of rechecks; ascending.
    buckets: VecDeque<(u64, f64, f64)>,
    /// Time of the first grant.
    first_grant: Option<Ticks>,
}

impl Rate {
    pub(crate) fn begin(&mut self, now: Ticks) {
        self.first_grant.get_or_insert(now);
    }

    pub(crate) fn add(&mut self, count: u64, cost: u64, now: Ticks) {
        self.begin(now);
        let bucket = now / BUCKET_MS;
        while self.buckets.front().is_some_and(|&(old, ..)| old + BUCKETS <= bucket) {
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

    /// Returns solutions and cost per second.
    pub(crate) fn per_second(&self, now: Ticks) -> (f64, f64) {
        let oldest = (now / BUCKET_MS).saturating_sub(BUCKETS - 1);
        let recent = self.buckets.iter().filter(|&&(at, ..)| at >= oldest);
        let (solutions, cost) =
            recent.fold((0.0, 0.0), |sum, bucket| (sum.0 + bucket.1, sum.1 + bucket.2));
        let seconds = self.window_ms(now) as f64 / 1e3;
        (solutions / seconds, cost / seconds)
    }

    /// Returns the time over which results are averaged.
    pub(crate) fn window_ms(&self, now: Ticks) -> Ticks {
        let oldest = (now / BUCKET_MS).saturating_sub(BUCKETS - 1);
        let first_grant = self.first_grant.unwrap_or(now).max(oldest * BUCKET_MS);
        now.saturating_sub(first_grant).max(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_averaged_over_the_last_five_minutes() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(7_000), (0.0, 0.0));
        // The first task was granted ten seconds before its result.
        rate.begin(2_000);
        rate.add(1_000, 50, 12_000);
        assert_eq!(rate.per_second(12_000), (100.0, 5.0));
        rate.add(1_000, 150, 22_000);
        assert_eq!(rate.per_second(22_000), (100.0, 10.0));
        // Later grants do not restart the time.
        rate.begin(22_000);
        assert_eq!(rate.per_second(42_000), (50.0, 5.0));
        // The first result is in the bucket from 10 s on: it counts until 310 s, and the time spans the
        // remaining buckets.
        assert_eq!(rate.per_second(309_999), (2_000.0 / 299.999, 200.0 / 299.999));
        assert_eq!(rate.per_second(310_000), (1_000.0 / 295.0, 150.0 / 295.0));
        assert_eq!(rate.per_second(330_000), (0.0, 0.0));
    }

    #[test]
    fn a_time_below_one_second_counts_as_one_and_old_buckets_are_dropped() {
        let mut rate = Rate::default();
        rate.add(30, 10, 4_000);
        rate.add(40, 20, 4_100);
        assert_eq!(rate.per_second(4_100), (70.0, 30.0));
        for at in 1..1_000 {
            rate.add(1, 1, at * BUCKET_MS);
            rate.add(1, 1, at * BUCKET_MS + 1);
            assert!(rate.buckets.len() <= 60, "{} buckets", rate.buckets.len());
        }
        assert_eq!(rate.buckets.len(), 60);
    }
}
