//! Published counts, which check finished runs and never produce a result.
//!
//! Sources: OEIS A000170 (all), A002562 (unique), A032522 (fixed by a half turn), A033148 (fixed by
//! a quarter turn). N = 27: Preußer and Engelhardt 2016, confirmed in arXiv 2511.12009 (2025).

use crate::{board::Board, tally::Counts};

/// Returns the published counts of a board; `None` from N = 28 on.
pub fn published_counts(board: Board) -> Option<Counts> {
    let (all, half_turn, quarter_turn) = *PUBLISHED.get(usize::from(board.n()) - 1)?;
    let counts = Counts::new(all, half_turn, quarter_turn);
    Some(counts.expect("a test checks every row by Burnside's lemma"))
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
}
