//! Self-test: known answers that check a thread's processor, memory and kernel.
//!
//! Counts small boards with both methods, and small frames of large boards with lowered limits of
//! the join, so that every optimization runs on small lists. Both orientations are counted.

use std::sync::{Arc, OnceLock};

use crate::{
    board::Board,
    compute::kernel::Kernel,
    count::{CountError, Counter, CounterConfig, NoProgress, Orientation, SetupError},
    frames,
    method::Layout,
    plan::{Plan, PlanSpec},
    solutions::published::published_counts,
};

/// A wrong or missing count: the results of this thread cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelfTestError {
    #[error("{what}: counted {found} instead of {known}")]
    Count { what: String, found: u64, known: u64 },
    #[error("{what}: {error}")]
    Failed { what: String, error: CountError },
    /// Not enough memory.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// Boards of which all units are counted.
const BOARDS: [(u8, Layout); 5] = [
    (11, Layout::FirstRows),
    (12, Layout::Border),
    (10, Layout::Frames),
    (12, Layout::Frames),
    (13, Layout::Frames),
];

/// N, a unit of method `frames`, and its count.
const FRAMES: [(u8, u64, u64); 5] = [
    (20, 40_000, 989_156),
    (21, 119_446, 6_049_772),
    (24, 458_564, 6_016),
    (27, 2_599_643, 548),
    (28, 10_034_043, 23_520),
];

/// Approximate keys per piece with lowered limits.
const KEYS: usize = 1 << 15;

/// More memory than the small lists ever need.
const MEMORY_BYTES: u64 = 1 << 40;

/// Maximum memory of a self-test in bytes: the quarter lists of N = 28.
pub const PEAK_BYTES: u64 = 48 << 20;

/// Plans and frames of the self-test, created once for all threads.
struct Cases {
    boards: Vec<Plan>,
    frames: Vec<(Arc<frames::Division>, u64, u64)>,
}

fn cases() -> &'static Cases {
    static CASES: OnceLock<Cases> = OnceLock::new();
    CASES.get_or_init(|| {
        let board = |n| Board::new(n).expect("a board that is listed above");
        let plan = |(n, layout)| {
            Plan::new(PlanSpec::new(board(n), layout)).expect("a plan that is listed above")
        };
        let frame = |(n, unit, known)| {
            let division = frames::Division::without_tasks(board(n));
            (Arc::new(division), unit, known)
        };
        Cases {
            boards: BOARDS.into_iter().map(plan).collect(),
            frames: FRAMES.into_iter().map(frame).collect(),
        }
    })
}

/// Runs the self-test on this thread with `kernel`, in a fraction of a second.
pub fn run(kernel: Kernel) -> Result<(), SelfTestError> {
    let cases = cases();
    for orientation in Orientation::ALL {
        let config = CounterConfig { kernel, orientation, ..CounterConfig::best(MEMORY_BYTES) };
        for plan in &cases.boards {
            test_board(plan, &config)?;
        }
        for (index, (division, unit, known)) in cases.frames.iter().enumerate() {
            test_frame(division, *unit, *known, index, &config)?;
        }
    }
    Ok(())
}

fn test_board(plan: &Plan, config: &CounterConfig) -> Result<(), SelfTestError> {
    let PlanSpec { board, layout, .. } = *plan.spec();
    let known = published_counts(board).map_or(0, |counts| counts.all());
    let what = || format!("N = {board}, {layout}, {}", describe(config));
    let counted = Counter::new(plan, config)?.count(0..plan.units(), &NoProgress);
    check(counted, u64::try_from(known).unwrap_or(u64::MAX), what)
}

/// Counts one frame with lowered limits; if upright, also with the normal limits.
fn test_frame(
    division: &Arc<frames::Division>,
    unit: u64,
    known: u64,
    index: usize,
    config: &CounterConfig,
) -> Result<(), SelfTestError> {
    let mut counter = frames::Counter::new(division.clone(), config)?;
    let normal = (config.orientation == Orientation::Upright).then_some(false);
    for lowered in normal.into_iter().chain([true]) {
        if lowered {
            counter.lower_limits(KEYS, 1 + index % 3);
        }
        let what = || {
            let lowered = if lowered { ", lowered limits" } else { "" };
            let n = division.board_side();
            format!("N = {n}, frame {unit}, {}{lowered}", describe(config))
        };
        check(counter.count(unit..unit + 1, &NoProgress), known, what)?;
    }
    Ok(())
}

fn describe(config: &CounterConfig) -> String {
    let rotated = match config.orientation {
        Orientation::Upright => "",
        Orientation::Rotated => ", rotated by 180°",
    };
    format!("kernel {}{rotated}", config.kernel)
}

fn check(
    counted: Result<u64, CountError>,
    known: u64,
    what: impl Fn() -> String,
) -> Result<(), SelfTestError> {
    match counted {
        Ok(found) if found == known => Ok(()),
        Ok(found) => Err(SelfTestError::Count { what: what(), found, known }),
        Err(error) => Err(SelfTestError::Failed { what: what(), error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::fault;

    #[test]
    fn every_kernel_of_this_machine_passes() {
        for kernel in Kernel::available() {
            assert_eq!(run(kernel), Ok(()));
        }
    }

    #[test]
    fn a_flipped_bit_in_a_table_is_detected() {
        for kernel in Kernel::available() {
            for (word, bit) in [(0, 0), (1, 63), (7, 31), (8, 5), (20, 40), (40, 1)] {
                fault::set(Some((word, bit)));
                let result = run(kernel);
                fault::set(None);
                assert!(
                    matches!(result, Err(SelfTestError::Count { .. })),
                    "{kernel}, word {word}, bit {bit}: {result:?}"
                );
            }
            assert_eq!(run(kernel), Ok(()), "passes without the flipped bit");
        }
    }
}
