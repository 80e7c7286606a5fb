//! User choices of method, layout and kernel, by name or automatic.

use std::str::FromStr;

use crate::{
    board::Board,
    compute::kernel::{Kernel, KernelName, MissingKernel},
    count::SetupError,
    crew_layout::{Crews, Machine},
    method::{Layout, Method, UnknownName},
    plan::{Plan, PlanSpec},
};

/// A choice that may be left to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoOr<T> {
    Auto,
    Fixed(T),
}

pub type MethodChoice = AutoOr<Method>;

pub type KernelChoice = AutoOr<KernelName>;

/// Value of `--layout`: a layout of method `rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsLayout {
    FirstRows,
    Border,
}

crate::named!(RowsLayout, "layout", name, FirstRows = "first-rows", Border = "border");

/// An impossible choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadChoice {
    /// A layout was requested with method `frames`, which has none.
    #[error("--layout divides the board for method rows; leave it out with method frames")]
    LayoutOfFrames,
    /// The only method fast enough needs at least this many bytes for all threads together.
    #[error("method frames needs at least {least} bytes of memory")]
    Memory { least: u64 },
}

/// Chooses a layout from the requested method and `rows` layout.
///
/// # Errors
/// If `frames` was requested with a layout, or if only `frames` is fast enough but lacks memory.
pub fn choose(
    board: Board,
    method: MethodChoice,
    layout: Option<RowsLayout>,
    machine: Option<Machine>,
) -> Result<Choice, BadChoice> {
    let layout = match (method, layout) {
        (MethodChoice::Fixed(Method::Frames), Some(_)) => {
            return Err(BadChoice::LayoutOfFrames);
        }
        (MethodChoice::Auto | MethodChoice::Fixed(Method::Rows), Some(layout)) => match layout {
            RowsLayout::FirstRows => Layout::FirstRows,
            RowsLayout::Border => Layout::Border,
        },
        (MethodChoice::Fixed(method), None) => method.default_layout(),
        (MethodChoice::Auto, None) => return auto(board, machine),
    };
    Ok(Choice { layout, reason: "as requested".to_owned() })
}

/// A layout and the reason for choosing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub layout: Layout,
    /// Reason, for one line of a log.
    pub reason: String,
}

/// Returns the fastest layout for `board` that fits `machine`, if one is given.
///
/// Measured on one core, `rows` is faster below N = 16 and `frames` from there on, by a factor that
/// grows with N (`docs/benchmarks.md`), but `frames` needs memory for its lists.
///
/// ```
/// use common::{board::Board, choice::auto, method::Layout};
///
/// assert_eq!(auto(Board::new(12)?, None)?.layout, Layout::Border);
/// let choice = auto(Board::new(20)?, None)?;
/// assert_eq!(choice.layout, Layout::Frames);
/// assert_eq!(choice.reason, "method frames: faster than rows from N = 16 on");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If memory is missing and `rows` would take far too long.
pub fn auto(board: Board, machine: Option<Machine>) -> Result<Choice, BadChoice> {
    let choice = |method: Method, reason| Choice { layout: method.default_layout(), reason };
    if board.n() < FRAMES_FROM {
        let reason = format!("method rows: faster than frames below N = {FRAMES_FROM}");
        return Ok(choice(Method::Rows, reason));
    }
    let frames = || {
        let reason = format!("method frames: faster than rows from N = {FRAMES_FROM} on");
        choice(Method::Frames, reason)
    };
    // Creating the plan takes seconds for large boards, so it is skipped if no machine is given.
    let Some(machine) = machine else {
        return Ok(frames());
    };
    // The lists do not depend on the tasks, and a plan with one task is created fastest.
    let spec = PlanSpec { board, layout: Layout::Frames, task_cost: u64::MAX };
    let plan = match Plan::new(spec) {
        Ok(plan) => plan,
        Err(error) => return Ok(choice(Method::Rows, format!("method rows: {error}"))),
    };
    match Crews::new(&plan, machine) {
        Ok(_) => Ok(frames()),
        Err(SetupError::Memory { least, .. }) if board.n() > ROWS_UP_TO => {
            Err(BadChoice::Memory { least })
        }
        Err(error) => {
            let reason = format!("method rows, which is slower; for method frames, {error}");
            Ok(choice(Method::Rows, reason))
        }
    }
}

/// Smallest N for which `frames` is faster.
const FRAMES_FROM: u8 = 16;

/// Largest N that `rows` counts within days on one machine.
const ROWS_UP_TO: u8 = 20;

impl KernelChoice {
    /// Returns the requested kernel, or for `Auto` the best one of this CPU.
    ///
    /// # Errors
    /// If this CPU lacks the requested kernel.
    pub fn kernel(self) -> Result<Kernel, MissingKernel> {
        match self {
            Self::Auto => Ok(Kernel::best()),
            Self::Fixed(name) => Kernel::new(name),
        }
    }
}

impl<T: FromStr<Err = UnknownName>> FromStr for AutoOr<T> {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Fixed).map_err(|unknown: UnknownName| UnknownName {
            expected: format!("auto, {}", unknown.expected),
            ..unknown
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU16;

    /// Returns a machine with two threads and this memory.
    fn machine_with(memory_bytes: u64) -> Option<Machine> {
        Some(Machine { threads: NonZeroU16::new(2).unwrap(), memory_bytes, crews: None })
    }

    #[test]
    fn auto_needs_memory_for_frames() {
        let choose = |n, machine| auto(Board::new(n).unwrap(), machine).map(|choice| choice.layout);
        assert_eq!(choose(8, machine_with(1)), Ok(Layout::Border));
        assert_eq!(choose(20, machine_with(1 << 30)), Ok(Layout::Frames));
        assert_eq!(choose(20, machine_with(1 << 10)), Ok(Layout::Border));
        assert_eq!(choose(32, None), Ok(Layout::Frames));
        // Above N = 20, too little memory is an error that states the minimum.
        for n in [21, 26, 28] {
            let board = Board::new(n).unwrap();
            let given = machine_with(1 << 10);
            let Err(BadChoice::Memory { least, .. }) = auto(board, given) else {
                panic!("N = {n}: rows would take centuries");
            };
            assert!(auto(board, machine_with(least - 1)).is_err());
            assert_eq!(auto(board, machine_with(least)).unwrap().layout, Layout::Frames);
            let rows = super::choose(board, MethodChoice::Fixed(Method::Rows), None, given);
            assert_eq!(rows.unwrap().layout, Layout::Border, "an explicit choice is accepted");
        }
    }

    #[test]
    fn names_are_read_and_unknown_ones_refused() {
        assert_eq!("auto".parse(), Ok(MethodChoice::Auto));
        assert_eq!("rows".parse(), Ok(MethodChoice::Fixed(Method::Rows)));
        assert_eq!("auto".parse(), Ok(KernelChoice::Auto));
        let error = "sse".parse::<KernelChoice>().unwrap_err().to_string();
        assert!(error.contains("'sse'") && error.contains("auto, scalar"), "{error}");
        assert!("frames".parse::<RowsLayout>().is_err());
        // Layouts apply to method rows only.
        let choose = |method, layout| choose(Board::new(20).unwrap(), method, layout, None);
        let frames = MethodChoice::Fixed(Method::Frames);
        assert_eq!(choose(frames, Some(RowsLayout::Border)), Err(BadChoice::LayoutOfFrames));
        let choice = choose(MethodChoice::Auto, Some(RowsLayout::FirstRows)).unwrap();
        assert_eq!(choice.layout, Layout::FirstRows);
    }
}
