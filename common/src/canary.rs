//! Known answers by which a thread proves that it counts right: that its processor and its memory do
//! what this program takes them to do, with the kernel that counts.
//!
//! Small boards whole, by both methods, against the known counts; and small frames of large boards,
//! with the limits of the join lowered, so that every mechanism that large frames go through runs on
//! small lists. All in both orientations. The counts of single frames were found equal by every kernel
//! and through either orientation, with all limits; the test of this module does so again.

use std::{
    num::NonZeroU16,
    sync::{Arc, OnceLock},
};

use crate::{
    board::Board,
    count::{CountError, Counter, Orientation, Setup, SetupError, Unwatched},
    frames,
    kernel::Kernel,
    known::known_counts,
    method::Layout,
    plan::{Plan, PlanSpec},
};

/// A count that is known came out wrong, or not at all: nothing that this thread counts can be
/// trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Another number came out.
    #[error("{what}: {found} counted where {known} are known")]
    Count {
        /// What was counted.
        what: String,
        /// What came out.
        found: u64,
        /// What is known.
        known: u64,
    },
    /// No number came out.
    #[error("{what}: {error}")]
    Failed {
        /// What was counted.
        what: String,
        /// Why.
        error: CountError,
    },
    /// There is no memory to count with.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// Boards counted whole.
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

/// Keys a piece where limits are lowered.
const KEYS: usize = 1 << 15;

/// More than the small lists of a canary ever take.
const MEMORY_BYTES: u64 = 1 << 40;

/// The most memory that a thread takes while it proves itself, in bytes: for the quarter lists of N = 28.
pub const PEAK_BYTES: u64 = 48 << 20;

const BOTH: [Orientation; 2] = [Orientation::Upright, Orientation::Turned];

/// What canaries count, made once for all threads.
struct Nest {
    boards: Vec<Plan>,
    frames: Vec<(Arc<frames::Division>, u64, u64)>,
}

fn nest() -> &'static Nest {
    static NEST: OnceLock<Nest> = OnceLock::new();
    NEST.get_or_init(|| {
        let board = |n| Board::new(n).expect("a board that is listed above");
        let plan = |(n, layout)| {
            Plan::new(PlanSpec::new(board(n), layout)).expect("a plan that is listed above")
        };
        let frame = |(n, unit, known)| {
            let division = frames::Division::without_tasks(board(n));
            (Arc::new(division), unit, known)
        };
        Nest {
            boards: BOARDS.into_iter().map(plan).collect(),
            frames: FRAMES.into_iter().map(frame).collect(),
        }
    })
}

/// Counts everything that is known on this thread with this kernel: a fraction of a second.
///
/// ```
/// common::canary::prove(common::kernel::Kernel::best()).expect("sound memory");
/// ```
pub fn prove(kernel: Kernel) -> Result<(), Wrong> {
    let nest = nest();
    for orientation in BOTH {
        let setup = Setup {
            kernel,
            threads: NonZeroU16::MIN,
            memory_bytes: MEMORY_BYTES,
            orientation,
        };
        for plan in &nest.boards {
            board(plan, &setup)?;
        }
        for (index, (division, unit, known)) in nest.frames.iter().enumerate() {
            frame(division, *unit, *known, index, &setup)?;
        }
    }
    Ok(())
}

fn board(plan: &Plan, setup: &Setup) -> Result<(), Wrong> {
    let PlanSpec { board, layout, .. } = *plan.spec();
    let known = known_counts(board).map_or(0, |counts| counts.all());
    let what = || format!("N = {board}, {layout}, {}", described(setup));
    let counted = Counter::new(plan, setup)?.count(0..plan.units(), &Unwatched);
    check(counted, u64::try_from(known).unwrap_or(u64::MAX), what)
}

/// One frame as it is, and in both orientations as if it were a large one.
fn frame(
    division: &Arc<frames::Division>,
    unit: u64,
    known: u64,
    index: usize,
    setup: &Setup,
) -> Result<(), Wrong> {
    let mut counter = frames::Counter::new(division.clone(), setup)?;
    let as_it_is = (setup.orientation == Orientation::Upright).then_some(false);
    for lowered in as_it_is.into_iter().chain([true]) {
        if lowered {
            counter.lower_limits(KEYS, 1 + index % 3);
        }
        let what = || {
            let lowered = if lowered { ", lowered limits" } else { "" };
            let n = division.board_side();
            format!("N = {n}, frame {unit}, {}{lowered}", described(setup))
        };
        check(counter.count(unit..unit + 1, &Unwatched), known, what)?;
    }
    Ok(())
}

fn described(setup: &Setup) -> String {
    let orientation = match setup.orientation {
        Orientation::Upright => "upright",
        Orientation::Turned => "turned",
    };
    format!("kernel {}, {orientation}", setup.kernel)
}

fn check(
    counted: Result<u64, CountError>,
    known: u64,
    what: impl Fn() -> String,
) -> Result<(), Wrong> {
    match counted {
        Ok(found) if found == known => Ok(()),
        Ok(found) => Err(Wrong::Count {
            what: what(),
            found,
            known,
        }),
        Err(error) => Err(Wrong::Failed {
            what: what(),
            error,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::hjoin::fault;

    #[test]
    fn every_kernel_of_this_machine_proves_itself() {
        for kernel in Kernel::available() {
            assert_eq!(prove(kernel), Ok(()));
        }
    }

    #[test]
    fn the_known_frames_are_the_same_with_all_limits() {
        for &(ref division, unit, known) in &nest().frames {
            for (orientation, x3_bits) in BOTH.into_iter().zip([2, 3]) {
                let setup = Setup {
                    kernel: Kernel::best(),
                    threads: NonZeroU16::MIN,
                    memory_bytes: MEMORY_BYTES,
                    orientation,
                };
                let mut counter = frames::Counter::new(division.clone(), &setup).unwrap();
                counter.lower_limits(KEYS / 3, x3_bits);
                let counted = counter.count(unit..unit + 1, &Unwatched);
                assert_eq!(counted, Ok(known), "N = {}", division.board_side());
            }
        }
    }

    #[test]
    fn a_flipped_bit_in_a_table_is_found() {
        for kernel in Kernel::available() {
            for (word, bit) in [(0, 0), (1, 63), (7, 31), (8, 5), (20, 40), (40, 1)] {
                fault::set(Some((word, bit)));
                let proof = prove(kernel);
                fault::set(None);
                assert!(
                    matches!(proof, Err(Wrong::Count { .. })),
                    "{kernel}, word {word}, bit {bit}: {proof:?}"
                );
            }
            assert_eq!(prove(kernel), Ok(()), "the memory is whole again");
        }
    }
}
