//! What users leave open or ask for by name: method, prefix and kernel.

use std::str::FromStr;

use crate::{
    board::Board,
    count::SetupError,
    crews::{Crews, Machine},
    kernel::{Kernel, KernelName, MissingKernel},
    method::{Layout, Method, UnknownName},
    plan::{Plan, PlanSpec},
};

/// What `--method` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodChoice {
    /// The faster one for the board.
    Auto,
    /// This one.
    Fixed(Method),
}

/// What `--prefix` takes: a layout of method `rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// See [`Layout::FirstRows`].
    FirstRows,
    /// See [`Layout::Border`].
    Border,
}

/// What `--kernel` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelChoice {
    /// The best one that the CPU has.
    Auto,
    /// This one.
    Fixed(KernelName),
}

/// What was asked for cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadChoice {
    /// A prefix was asked for with method `frames`, which has none.
    #[error("--prefix divides the board for method rows; leave it out with method frames")]
    PrefixOfFrames,
    /// The only method that would come to an end has too little memory.
    #[error(
        "N = {board} takes method frames, which needs at least {least} bytes of memory and has \
         {given}; method rows needs less and would take centuries (--method rows asks for it)"
    )]
    Memory {
        /// The board.
        board: Board,
        /// The budget given, in bytes for all threads together.
        given: u64,
        /// The smallest budget that works, in bytes for all threads together.
        least: u64,
    },
}

/// The layout for a method and a prefix asked for.
///
/// ```
/// use common::{board::Board, choice::*, method::{Layout, Method}};
///
/// let rows = MethodChoice::Fixed(Method::Rows);
/// let choice = choose(Board::new(14)?, rows, Some(Prefix::FirstRows), None)?;
/// assert_eq!(choice.layout, Layout::FirstRows);
/// let frames = MethodChoice::Fixed(Method::Frames);
/// let refused = choose(Board::new(14)?, frames, Some(Prefix::Border), None);
/// assert_eq!(refused, Err(BadChoice::PrefixOfFrames));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If method `frames` was asked for with a prefix, or is the only one for a board and lacks memory.
pub fn choose(
    board: Board,
    method: MethodChoice,
    prefix: Option<Prefix>,
    machine: Option<Machine>,
) -> Result<Choice, BadChoice> {
    let layout = match (method, prefix) {
        (MethodChoice::Fixed(Method::Frames), Some(_)) => {
            return Err(BadChoice::PrefixOfFrames);
        }
        (MethodChoice::Auto | MethodChoice::Fixed(Method::Rows), Some(prefix)) => match prefix {
            Prefix::FirstRows => Layout::FirstRows,
            Prefix::Border => Layout::Border,
        },
        (MethodChoice::Fixed(method), None) => method.usual_layout(),
        (MethodChoice::Auto, None) => return auto(board, machine),
    };
    Ok(Choice {
        layout,
        reason: "as asked for".to_owned(),
    })
}

/// A layout that was chosen for the user, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The layout.
    pub layout: Layout,
    /// The reason, for one line of a log.
    pub reason: String,
}

/// The layout that counts `board` soonest on a machine; on those to come, where it is not known.
///
/// Measured on one core, `rows` is faster below N = 16 and `frames` from there on, by a factor that
/// grows with N (`docs/benchmarks.md`); but `frames` needs room for its lists.
///
/// ```
/// use common::{board::Board, choice::auto, method::Layout};
///
/// assert_eq!(auto(Board::new(12)?, None)?.layout, Layout::Border);
/// let choice = auto(Board::new(20)?, None)?;
/// assert_eq!(choice.layout, Layout::Frames);
/// assert_eq!(choice.reason, "method frames: the faster one from N = 16 on");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If that room is missing and `rows` would take far too long instead.
pub fn auto(board: Board, machine: Option<Machine>) -> Result<Choice, BadChoice> {
    let choice = |method: Method, reason| Choice {
        layout: method.usual_layout(),
        reason,
    };
    if board.n() < FRAMES_FROM {
        let reason = format!("method rows: the faster one below N = {FRAMES_FROM}");
        return Ok(choice(Method::Rows, reason));
    }
    let frames = || {
        let reason = format!("method frames: the faster one from N = {FRAMES_FROM} on");
        choice(Method::Frames, reason)
    };
    // Making the plan, which takes seconds for the largest boards, is spared those who do not count.
    let Some(machine) = machine else {
        return Ok(frames());
    };
    // Lists do not depend on how units are put into tasks; one task is the quickest to make.
    let spec = PlanSpec {
        board,
        layout: Layout::Frames,
        task_cost: u64::MAX,
    };
    let plan = match Plan::new(spec) {
        Ok(plan) => plan,
        Err(error) => return Ok(choice(Method::Rows, format!("method rows: {error}"))),
    };
    match Crews::new(&plan, machine) {
        Ok(_) => Ok(frames()),
        Err(SetupError::Memory { given, least }) if board.n() > ROWS_UP_TO => {
            Err(BadChoice::Memory {
                board,
                given,
                least,
            })
        }
        Err(error) => {
            let reason = format!("method rows, which is slower: {error} for method frames");
            Ok(choice(Method::Rows, reason))
        }
    }
}

/// From this N on `frames` is the faster method.
const FRAMES_FROM: u8 = 16;

/// Up to this N `rows` comes to an end within days on one machine.
const ROWS_UP_TO: u8 = 20;

impl KernelChoice {
    /// The kernel.
    ///
    /// # Errors
    /// If this CPU lacks the one asked for.
    pub fn kernel(self) -> Result<Kernel, MissingKernel> {
        match self {
            Self::Auto => Ok(Kernel::best()),
            Self::Fixed(name) => Kernel::new(name),
        }
    }
}

impl FromStr for MethodChoice {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        auto_or(text, Self::Auto, Self::Fixed, "auto, rows, frames")
    }
}

impl FromStr for KernelChoice {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let expected = "auto, scalar, avx2, avx512, neon";
        auto_or(text, Self::Auto, Self::Fixed, expected)
    }
}

impl FromStr for Prefix {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "first-rows" => Ok(Self::FirstRows),
            "border" => Ok(Self::Border),
            _ => Err(UnknownName {
                what: "prefix",
                given: text.to_owned(),
                expected: "first-rows, border",
            }),
        }
    }
}

/// `auto`, or the name of one.
fn auto_or<T: FromStr<Err = UnknownName>, C>(
    text: &str,
    auto: C,
    fixed: impl FnOnce(T) -> C,
    expected: &'static str,
) -> Result<C, UnknownName> {
    if text == "auto" {
        return Ok(auto);
    }
    let named = text.parse().map(fixed);
    named.map_err(|unknown| UnknownName {
        expected,
        ..unknown
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    /// Two threads with so much memory.
    fn with(memory_bytes: u64) -> Option<Machine> {
        Some(Machine {
            threads: NonZeroU16::new(2).unwrap(),
            memory_bytes,
            crews: None,
        })
    }

    #[test]
    fn auto_needs_memory_for_frames() {
        let choose = |n, machine| auto(Board::new(n).unwrap(), machine).map(|choice| choice.layout);
        assert_eq!(choose(8, None), Ok(Layout::Border));
        assert_eq!(choose(8, with(1)), Ok(Layout::Border));
        assert_eq!(choose(20, None), Ok(Layout::Frames));
        assert_eq!(choose(20, with(1 << 30)), Ok(Layout::Frames));
        assert_eq!(choose(20, with(1 << 10)), Ok(Layout::Border));
        assert_eq!(choose(32, None), Ok(Layout::Frames));
    }

    #[test]
    fn above_20_too_little_memory_is_refused_with_what_it_takes() {
        for n in [21, 26, 28] {
            let board = Board::new(n).unwrap();
            let given = with(1 << 10);
            let Err(BadChoice::Memory { least, .. }) = auto(board, given) else {
                panic!("N = {n}: rows would take centuries");
            };
            assert!(auto(board, with(least - 1)).is_err());
            assert_eq!(auto(board, with(least)).unwrap().layout, Layout::Frames);
            let rows = choose(board, MethodChoice::Fixed(Method::Rows), None, given);
            assert_eq!(rows.unwrap().layout, Layout::Border, "who insists gets it");
        }
    }

    #[test]
    fn names_are_read_and_unknown_ones_refused() {
        assert_eq!("auto".parse(), Ok(MethodChoice::Auto));
        assert_eq!("rows".parse(), Ok(MethodChoice::Fixed(Method::Rows)));
        assert_eq!("auto".parse(), Ok(KernelChoice::Auto));
        let error = "sse".parse::<KernelChoice>().unwrap_err().to_string();
        assert!(
            error.contains("'sse'") && error.contains("auto, scalar"),
            "{error}"
        );
        assert!("frames".parse::<Prefix>().is_err());
    }

    #[test]
    fn a_prefix_decides_the_layout_of_rows_only() {
        let choose = |method, prefix| choose(Board::new(20).unwrap(), method, prefix, None);
        let frames = MethodChoice::Fixed(Method::Frames);
        assert_eq!(
            choose(frames, Some(Prefix::Border)),
            Err(BadChoice::PrefixOfFrames)
        );
        let choice = choose(MethodChoice::Auto, Some(Prefix::FirstRows)).unwrap();
        assert_eq!(choice.layout, Layout::FirstRows);
    }
}
