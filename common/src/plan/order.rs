//! A keyed permutation of `0..size` that needs no table.

/// Rounds of the Feistel network. Four suffice to look random; the order is no secret.
const ROUNDS: u64 = 6;

/// Where `index` goes under the permutation of `0..size` that `key` names.
///
/// A Feistel network permutes the smallest power of four that is at least `size`; an image outside
/// is permuted again until it falls inside ("cycle walking"), four steps at most on average.
///
/// # Panics
/// If `index` is not below `size`.
pub(super) fn permute(key: u64, size: u64, index: u64) -> u64 {
    assert!(index < size, "position {index} of {size}");
    let half_bits = (64 - (size - 1).leading_zeros()).div_ceil(2);
    let half_mask = (1u64 << half_bits) - 1;
    let mut image = index;
    loop {
        let (mut left, mut right) = (image >> half_bits, image & half_mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ mix(key ^ mix(round ^ right << 8)) & half_mask);
        }
        image = left << half_bits | right;
        if image < size {
            return image;
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection whose bits all look random.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_permuted() {
        for size in (1..300).chain([1000, 4096, 4097, 65_537]) {
            let mut seen = vec![false; size];
            for index in 0..size {
                let image = permute(0x5eed, size as u64, index as u64);
                let image = usize::try_from(image).unwrap();
                assert!(
                    !std::mem::replace(&mut seen[image], true),
                    "size {size}, index {index}"
                );
            }
        }
    }

    #[test]
    fn the_order_is_frozen_and_depends_on_the_key() {
        let first = |key| {
            (0..8)
                .map(|index| permute(key, 1000, index))
                .collect::<Vec<_>>()
        };
        assert_eq!(first(1), FROZEN_FOR_KEY_1);
        assert_ne!(first(1), first(2));
    }

    /// Printed by the first version of this file: handing out another order needs a new plan version.
    const FROZEN_FOR_KEY_1: [u64; 8] = [342, 691, 375, 359, 230, 871, 231, 491];
}
