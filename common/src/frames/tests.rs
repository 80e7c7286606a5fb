//! Tests of the whole method against reference data.

use std::{collections::BTreeMap, num::NonZeroU16, ops::ControlFlow, sync::Arc};

use super::{Effort, Survey, parts::Parts, plan::Division, quarter::QuarterCache};
use crate::{
    board::Board,
    compute::{
        crew::{Crew, OnDone},
        kernel::Kernel,
    },
    count::{Counter, CounterConfig, NoProgress, Orientation, SetupError},
    method::Layout,
    test_fixture::{plan, published, random_from, task_counts},
};

/// A line of the reference files: unweighted solutions of a frame.
#[derive(serde::Deserialize)]
struct CountedFrame {
    /// Column of the middle-row queen and row of the middle-column queen (odd N).
    #[serde(default)]
    x: u32,
    #[serde(default)]
    y: u32,
    #[serde(rename = "A")]
    a: u32,
    #[serde(rename = "C")]
    c: u32,
    count: u64,
}

/// Reads the frames that a brute-force search over all solutions found.
fn reference(n: u8) -> Vec<CountedFrame> {
    let path = format!("{}/../tests/data/frames_n{n}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    // The first line describes the file.
    text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_frame_has_the_solutions_of_a_brute_force_search() {
    for n in [8, 9, 10, 11] {
        let side = u32::from(n) / 2;
        let mut expected = BTreeMap::new();
        // Reflections map all other middle queens of type II to these.
        let is_counted = |line: &CountedFrame| line.x < side && line.y < side || line.x == line.y;
        for line in reference(n).into_iter().filter(is_counted) {
            *expected.entry((line.a, line.c)).or_insert(0) += line.count;
        }
        let mut survey = Survey::new(Board::new(n).unwrap(), 1 << 20).unwrap();
        let mut found = BTreeMap::new();
        for (a, c) in (0..1 << side).flat_map(|a| (0..1 << side).map(move |c| (a, c))) {
            let Some(group) = survey.group_of(a, c) else { continue };
            let everything = Effort { halves: usize::MAX, pairs: usize::MAX };
            let lists = survey.lists(group, a, c, everything, &mut random_from(1));
            assert!(!lists.sampled);
            if lists.solutions > 0.0 {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                found.insert((a, c), lists.solutions.round() as u64);
            }
        }
        assert_eq!(found, expected, "N = {n}");
    }
}

#[test]
fn crews_and_pieces_of_any_size_give_the_same_count() {
    for n in [10, 11, 13] {
        let division = Arc::new(Division::without_tasks(Board::new(n).unwrap()));
        for limit in [1, 7, 100, usize::MAX] {
            for (threads, orientation) in
                [(1, Orientation::Rotated), (2, Orientation::Upright), (3, Orientation::Rotated)]
            {
                // One thread counts all frames, several threads only some: starting threads takes time.
                let step = usize::from(threads * threads);
                let threads = NonZeroU16::new(threads).unwrap();
                let config = CounterConfig { threads, orientation, ..CounterConfig::best(1 << 30) };
                let mut counter = super::Counter::new(division.clone(), &config).unwrap();
                counter.lower_limits(limit, config.threads.get().into());
                let mut whole = super::Counter::new(division.clone(), &config).unwrap();
                let mut total = 0;
                for unit in (0..division.units()).step_by(step) {
                    let count = counter.count(unit..unit + 1, &NoProgress).unwrap();
                    let expected = whole.count(unit..unit + 1, &NoProgress).unwrap();
                    let shape = format!("N = {n}, {limit} keys per piece, {threads} threads");
                    assert_eq!(count, expected, "{shape}, unit {unit}");
                    total += count;
                }
                if step == 1 {
                    assert_eq!(u128::from(total), published(n), "N = {n}, {limit} keys per piece");
                }
            }
        }
    }
}

#[test]
fn quarter_lists_are_no_longer_than_estimated() {
    for n in [16, 17, 20, 21] {
        let division = Division::without_tasks(Board::new(n).unwrap());
        let mut most = BTreeMap::new();
        for unit in (0..division.units()).step_by(1 + usize::from(n) * 7) {
            let frame = division.frame(unit);
            let mut parts = Parts::new(Kernel::best(), Arc::new(Crew::new(1)));
            let geometry = division.geometry(frame.kind, false);
            let go_on: OnDone<'_> = &mut |_| ControlFlow::Continue(());
            parts.set(frame, geometry, &division, &QuarterCache::new(0), go_on).unwrap();
            let most = most.entry(frame.class()).or_insert(0);
            *most = parts.held_bytes().max(*most);
        }
        for (class, most) in most {
            let estimated = division.quarter_bytes(class);
            assert!(most <= estimated, "N = {n}, {class:?}: {most} of {estimated} bytes");
        }
    }
}

#[test]
fn crews_of_every_size_count_in_any_memory() {
    for n in [12, 15] {
        let plan = plan(n, Layout::Frames);
        for threads in [1, 2, 3].map(|threads| NonZeroU16::new(threads).unwrap()) {
            let mut config = CounterConfig { threads, ..CounterConfig::best(1) };
            let Err(SetupError::Memory { least, .. }) = Counter::new(&plan, &config) else {
                panic!("N = {n} fits in one byte");
            };
            for memory_bytes in [least, 2 * least, 1 << 30] {
                config.memory_bytes = memory_bytes;
                let total: u64 = task_counts(&plan, &config).iter().sum();
                assert_eq!(u128::from(total), published(n), "N = {n}, {config:?}");
            }
        }
    }
}
