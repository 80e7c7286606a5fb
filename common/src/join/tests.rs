use std::ops::ControlFlow;

use proptest::prelude::*;

use super::{DisjointPairs, HJoin, Keys, Optimization, Part, PlainJoin, Side};
use crate::{compute::kernel::Kernel, count::CountError};

/// Returns a key; the probability of a bit falls from `density` / 256 to half that.
fn key(seed: &mut u64, bits: u32, density: u64) -> u64 {
    (0..bits).fold(0, |key, bit| {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chance = density - density * u64::from(bit) / u64::from(2 * bits);
        key | u64::from(*seed >> 56 < chance) << bit
    })
}

fn list(seed: u64, length: usize, (bits, density): (u32, u64)) -> Vec<u64> {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    (0..length).map(|_| key(&mut state, bits, density)).collect()
}

fn naive(top: &[u64], bottom: &[u64]) -> u64 {
    let disjoint = |u: u64| bottom.iter().filter(|&&v| u & v == 0).count() as u64;
    top.iter().map(|&u| disjoint(u)).sum()
}

fn proceed(_: f64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Compares every kernel of this CPU with the double loop.
fn check(bits: u32, top: &[u64], bottom: &[u64]) {
    let expected = naive(top, bottom);
    for kernel in Kernel::available() {
        let mut join = HJoin::new(kernel, bits, 1);
        let lengths = (top.len(), bottom.len());
        for _ in 0..2 {
            let count = join.count(top, bottom, &mut proceed);
            assert_eq!(count, Ok(expected), "{kernel}, {bits} bits, {lengths:?} keys");
        }
        assert_eq!(
            join.count(bottom, top, &mut proceed),
            Ok(expected),
            "{kernel}, {bits} bits, swapped"
        );
        for x3_bits in 1..=3 {
            // Treats these lists as long; prefilters all rows, only rows with few keys, or none.
            let mut join = HJoin::new(kernel, bits, x3_bits);
            join.lower_limits(x3_bits);
            join.set_rounds(x3_bits);
            join.limits.prefilter_bytes = [usize::MAX, 400, 0][x3_bits - 1];
            assert_eq!(
                join.count(top, bottom, &mut proceed),
                Ok(expected),
                "{kernel}, {bits} bits, {lengths:?} keys, {x3_bits} bits of X3"
            );
        }
    }
}

#[test]
fn lengths_around_blocks_and_thresholds_are_counted_exactly() {
    let lengths =
        [0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 200, 255, 256, 257, 511, 512, 513, 700, 1100];
    for (seed, &top) in (1..).zip(&lengths) {
        for &bottom in &lengths {
            let shape = (30, 90);
            check(30, &list(seed, top, shape), &list(!seed, bottom, shape));
        }
    }
}

#[test]
fn keys_of_every_width_are_counted_exactly() {
    for bits in 1..=HJoin::MAX_BITS {
        for (seed, length) in [(1, 60), (2, 1500), (3, 6000)] {
            let shape = (bits, 110);
            let bottom = list(!seed, length / 2 + 300, shape);
            check(bits, &list(seed, length, shape), &bottom);
        }
    }
}

#[test]
fn lists_of_equal_keys_are_counted_exactly() {
    for bits in [14, 30, 38, 46, 62] {
        let full = (1 << bits) - 1;
        check(bits, &vec![0; 3000], &vec![full; 2000]);
        check(bits, &vec![0; 3000], &vec![0; 2000]);
        check(bits, &vec![full; 3000], &vec![full; 2000]);
        check(bits, &vec![1; 3000], &vec![full - 1; 700]);
    }
}

#[test]
fn one_join_serves_lists_of_all_sizes() {
    for kernel in Kernel::available() {
        let mut join = HJoin::new(kernel, 46, 1);
        for length in [20_000, 3, 0, 900, 8_000, 40] {
            let (top, bottom) = (list(5, length, (46, 120)), list(6, length + 1, (46, 120)));
            let count = join.count(&top, &bottom, &mut proceed);
            assert_eq!(count, Ok(naive(&top, &bottom)), "{kernel}");
        }
    }
}

#[test]
fn progress_adds_up_to_one_and_can_cancel() {
    let (top, bottom) = (list(1, 30_000, (40, 100)), list(2, 30_000, (40, 100)));
    let crews = Kernel::available().into_iter().flat_map(|kernel| [(kernel, 1), (kernel, 3)]);
    for (kernel, threads) in crews {
        let mut join = HJoin::new(kernel, 40, threads);
        (join.short_list, join.limits.max_pairs_alone) = (1 << 10, 0);
        let mut sum = 0.0;
        let add = &mut |done| {
            sum += done;
            ControlFlow::Continue(())
        };
        join.count(&top, &bottom, add).unwrap();
        assert!((sum - 1.0).abs() < 1e-9, "{kernel}, {threads}: {sum}");
        let stop = &mut |_| ControlFlow::Break(());
        assert_eq!(join.count(&top, &bottom, stop), Err(CountError::Cancelled));
    }
}

#[test]
fn parts_can_be_joined_repeatedly() {
    let parts = [Part::Inner, Part::Bound];
    let shape = (46, 110);
    let tops = [list(1, 9_000, shape), list(2, 70, shape)];
    let bottoms = [list(3, 8_000, shape), list(4, 40, shape)];
    let joins = Kernel::available().into_iter();
    let joins = joins.map(|kernel| -> (_, Box<dyn DisjointPairs>) {
        (kernel.to_string(), Box::new(HJoin::new(kernel, 46, 1)))
    });
    let plain: Box<dyn DisjointPairs> = Box::<PlainJoin>::default();
    for (kernel, mut join) in joins.chain([("plain".to_owned(), plain)]) {
        let start = (Keys::List(&tops[0]), Keys::List(&bottoms[0]));
        join.start((1 << 46) - 1, start.0, start.1);
        for (part, (top, bottom)) in parts.into_iter().zip(tops.iter().zip(&bottoms)) {
            for (side, keys) in [(Side::Top, top), (Side::Bottom, bottom)] {
                join.set(side, part, Keys::List(keys), &mut proceed).unwrap();
            }
        }
        for (top, above) in parts.into_iter().zip(&tops) {
            for (bottom, below) in parts.into_iter().zip(&bottoms) {
                let count = join.join(top, bottom, &mut proceed);
                assert_eq!(count, Ok(naive(above, below)), "{kernel}: {top:?}, {bottom:?}");
            }
        }
        join.start((1 << 46) - 1, start.0, start.1);
        assert_eq!(join.join(Part::Inner, Part::Inner, &mut proceed), Ok(0), "{kernel}: emptied");
    }
}

#[test]
fn memory_grows_with_the_lists() {
    let both = |longer, shorter| HJoin::memory_bytes(54, 1, longer, shorter, 1);
    let bytes = |keys| both(keys, keys);
    assert!(bytes(0) < 1 << 20);
    assert!(bytes(1_000) < bytes(100_000) && bytes(100_000) < bytes(10_000_000));
    // A key takes eight bytes while its list is sorted. Residual keys of both lists take eight
    // bytes with 2^21 cells, since 33 bits may remain, and four with 2^22.
    for (keys, bytes_each) in [(10_000_000, 8), (20_000_000, 4)] {
        let per_key = bytes(keys) / keys as u64;
        assert!(
            (8 + 2 * bytes_each..12 + 2 * bytes_each).contains(&per_key),
            "{keys} keys: {per_key} bytes each"
        );
        let removed = keys / 8;
        let saved = (bytes(keys) - both(keys, keys - removed)) / removed as u64;
        assert!((bytes_each..bytes_each + 2).contains(&saved), "{keys} keys: {saved}");
    }
}

#[test]
fn long_lists_have_one_count_with_and_without_each_optimization() {
    let shape = (40, 70);
    let (top, bottom) = (list(1, 30_000, shape), list(2, 20_000, shape));
    let expected = naive(&top, &bottom);
    check(40, &top, &bottom);
    for optimization in Optimization::ALL {
        let mut join = HJoin::new(Kernel::best(), 40, 1).without(optimization);
        assert_eq!(join.count(&top, &bottom, &mut proceed), Ok(expected), "no {optimization:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_lists_are_counted_exactly(
        bits in 1_u32..=HJoin::MAX_BITS, density in 20_u64..200, seed: u64,
        top in 0_usize..3000, bottom in 0_usize..3000,
    ) {
        let shape = (bits, density);
        check(bits, &list(seed, top, shape), &list(!seed, bottom, shape));
    }
}
