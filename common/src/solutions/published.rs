//! Published counts, which check finished runs and never produce a result.
//!
//! Sources: OEIS A000170 (all), A002562 (fundamental), A032522 (fixed by a half turn), A033148 (fixed by
//! a quarter turn). N = 27: Preußer and Engelhardt 2016, confirmed in arXiv 2511.12009 (2025).

use crate::{board::Board, solutions::tally::Counts};

/// Returns the published counts of a board; `None` from N = 28 on.
pub fn published_counts(board: Board) -> Option<Counts> {
    let (all, half_turn, quarter_turn) = *PUBLISHED.get(usize::from(board.n()) - 1)?;
    let counts = Counts::new(all, half_turn, quarter_turn);
    Some(counts.expect("a test checks every row by Burnside's lemma"))
}

/// Maximum error of an extrapolated total for each board beyond the published ones.
const EXTRAPOLATION_ERROR: f64 = 0.03;

/// Returns the plausible range of all(N): the published count, or an extrapolation with its error.
///
/// ln(all(N) / N!) is nearly linear in N; the line through the last six published boards is extended.
pub fn plausible_total(board: Board) -> (f64, f64) {
    let published = PUBLISHED.map(|(all, ..)| all as f64);
    let n = usize::from(board.n());
    if let Some(&all) = published.get(n - 1) {
        return (all, all);
    }
    let all = extrapolated(&published, n);
    let error = EXTRAPOLATION_ERROR * (n - published.len()) as f64;
    (all * (1.0 - error), all * (1.0 + error))
}

/// Extends the line through the last six of these counts to all(N).
fn extrapolated(counts: &[f64], n: usize) -> f64 {
    let ln_factorial = |n: usize| (1..=n).map(|factor| (factor as f64).ln()).sum::<f64>();
    let points = (1..=counts.len()).zip(counts).skip(counts.len() - 6);
    let points: Vec<_> = points.map(|(n, all)| (n as f64, all.ln() - ln_factorial(n))).collect();
    let mean =
        |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (middle, height) = (mean(|point| point.0), mean(|point| point.1));
    let rise: f64 = points.iter().map(|(x, y)| (x - middle) * (y - height)).sum();
    let run: f64 = points.iter().map(|(x, _)| (x - middle).powi(2)).sum();
    (height + rise / run * (n as f64 - middle) + ln_factorial(n)).exp()
}

/// all(N), half(N), quarter(N) for N = 1, 2, …
const PUBLISHED: [(u128, u64, u64); 27] = [
    (1, 1, 1),
    (0, 0, 0),
    (0, 0, 0),
    (2, 2, 2),
    (10, 2, 2),
    (4, 4, 0),
    (40, 8, 0),
    (92, 4, 0),
    (352, 16, 0),
    (724, 12, 0),
    (2_680, 48, 0),
    (14_200, 80, 8),
    (73_712, 136, 8),
    (365_596, 420, 0),
    (2_279_184, 1_240, 0),
    (14_772_512, 3_000, 64),
    (95_815_104, 8_152, 128),
    (666_090_624, 18_104, 0),
    (4_968_057_848, 44_184, 0),
    (39_029_188_884, 144_620, 480),
    (314_666_222_712, 375_664, 704),
    (2_691_008_701_644, 1_250_692, 0),
    (24_233_937_684_440, 3_581_240, 0),
    (227_514_171_973_736, 11_675_080, 3_328),
    (2_207_893_435_808_352, 34_132_592, 3_264),
    (22_317_699_616_364_044, 115_718_268, 0),
    (234_907_967_154_122_528, 320_403_024, 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_obeys_burnside() {
        for n in 1..=27 {
            published_counts(Board::new(n).unwrap()).unwrap();
        }
        assert_eq!(published_counts(Board::new(28).unwrap()), None);
    }

    #[test]
    fn the_extrapolation_agrees_with_the_published_counts_within_its_error() {
        let published = PUBLISHED.map(|(all, ..)| all as f64);
        for known in 22..27 {
            for n in known + 1..=27 {
                let ratio = extrapolated(&published[..known], n) / published[n - 1];
                let error = EXTRAPOLATION_ERROR * (n - known) as f64;
                assert!((ratio - 1.0).abs() < error / 2.0, "N = {n} from {known}: {ratio}");
            }
        }
        let (low, high) = plausible_total(Board::new(28).unwrap());
        assert!((low / 2.567e18 / 0.97 - 1.0).abs() < 1e-3, "{low}");
        assert!((high / 2.567e18 / 1.03 - 1.0).abs() < 1e-3, "{high}");
        assert_eq!(plausible_total(Board::new(8).unwrap()), (92.0, 92.0));
    }
}
