//! How many wrong counts random second counts may have missed.

/// How sure a bound is: it fails in one of twenty cases at most.
pub const CONFIDENCE: f64 = 0.95;

/// The most of `unconfirmed` counts that can be wrong, with [`CONFIDENCE`], when `compared` others
/// were drawn at random from the same tasks, counted again, and found right.
///
/// Exact, by the hypergeometric distribution: `k` wrong counts among all `u + n` would have escaped a
/// random draw of `n` with probability C(u, k) / C(u + n, k). The result is the largest `k` for which
/// that is more than 1 − [`CONFIDENCE`], 0 when even a single one would have been found.
///
/// Nothing is assumed of how wrong counts are spread; what is assumed is that a wrong count does not
/// agree with its second count, and that whoever counted could not know which tasks were drawn.
pub fn most_wrong(unconfirmed: u64, compared: u64) -> u64 {
    if compared == 0 {
        return unconfirmed;
    }
    let all = unconfirmed as f64 + compared as f64;
    let mut escape = 1.0;
    for wrong in 0..unconfirmed {
        // The next wrong count, too, is among those that were not drawn.
        escape *= (unconfirmed - wrong) as f64 / (all - wrong as f64);
        if escape <= 1.0 - CONFIDENCE {
            return wrong;
        }
    }
    unconfirmed
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::index::sample};

    use super::*;

    #[test]
    fn fractions_buy_what_the_documentation_says() {
        let table = include_str!("../../../docs/trust.md");
        for (percent, wrong) in [
            (1, 298),
            (2, 148),
            (5, 58),
            (10, 28),
            (20, 13),
            (50, 4),
            (95, 0),
        ] {
            // So many tasks that drawing without returning makes no difference.
            let all = 100_000_000;
            let compared = all / 100 * percent;
            assert_eq!(most_wrong(all - compared, compared), wrong, "{percent} %");
            let row = format!("| {percent} % | {wrong} |");
            assert!(table.contains(&row), "{row} in docs/trust.md");
        }
    }

    #[test]
    fn ends_are_exact() {
        assert_eq!(most_wrong(0, 0), 0);
        assert_eq!(most_wrong(0, 50), 0);
        assert_eq!(most_wrong(50, 0), 50);
        // One of 20 escapes with probability 1/20, which is just not more than 5 %.
        assert_eq!(most_wrong(1, 19), 0);
        assert_eq!(most_wrong(1, 18), 1);
        // C(3, 2) / C(8, 2) = 3/28; C(3, 3) / C(8, 3) = 1/56.
        assert_eq!(most_wrong(3, 5), 2);
    }

    #[test]
    fn one_more_wrong_count_than_the_bound_is_found_in_95_of_100_draws() {
        let mut rng = StdRng::seed_from_u64(20);
        for (all, compared) in [(730usize, 15usize), (5_000, 500), (400, 200), (78, 2)] {
            let unconfirmed = (all - compared) as u64;
            let planted = most_wrong(unconfirmed, compared as u64) + 1;
            let wrong: Vec<_> = sample(&mut rng, all, usize::try_from(planted).unwrap()).into_vec();
            let found = (0..1_000)
                .filter(|_| {
                    let drawn = sample(&mut rng, all, compared);
                    drawn.iter().any(|task| wrong.contains(&task))
                })
                .count();
            assert!(
                found >= 930,
                "{planted} of {all}, {compared} drawn: {found} of 1000"
            );
            let _ = rng.random::<u64>();
        }
    }
}
