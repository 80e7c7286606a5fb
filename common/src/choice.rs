//! What users leave open or ask for by name: method, prefix and kernel.

use std::str::FromStr;

use crate::{
    board::Board,
    count::{Counter, Orientation, Setup},
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

/// A prefix was asked for with method `frames`, which has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--prefix divides the board for method rows; leave it out with method frames")]
pub struct PrefixOfFrames;

/// The layout for a method and a prefix asked for.
///
/// # Errors
/// If method `frames` was asked for with a prefix.
pub fn choose(
    board: Board,
    method: MethodChoice,
    prefix: Option<Prefix>,
    memory_bytes_per_thread: u64,
) -> Result<Choice, PrefixOfFrames> {
    let layout = match (method, prefix) {
        (MethodChoice::Fixed(Method::Frames), Some(_)) => return Err(PrefixOfFrames),
        (MethodChoice::Auto | MethodChoice::Fixed(Method::Rows), Some(prefix)) => match prefix {
            Prefix::FirstRows => Layout::FirstRows,
            Prefix::Border => Layout::Border,
        },
        (MethodChoice::Fixed(method), None) => method.usual_layout(),
        (MethodChoice::Auto, None) => return Ok(auto(board, memory_bytes_per_thread)),
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

/// The layout that counts `board` soonest on workers with this much memory a thread.
///
/// Measured on one core, `rows` is faster below N = 16 and `frames` from there on, by a factor that
/// grows with N (`docs/benchmarks.md`); but `frames` needs room for its lists.
pub fn auto(board: Board, memory_bytes_per_thread: u64) -> Choice {
    let rows = |reason| Choice {
        layout: Method::Rows.usual_layout(),
        reason,
    };
    if board.n() < FRAMES_FROM {
        return rows(format!(
            "method rows: the faster one below N = {FRAMES_FROM}"
        ));
    }
    let setup = Setup {
        kernel: Kernel::best(),
        threads: std::num::NonZeroU16::MIN,
        memory_bytes: memory_bytes_per_thread,
        orientation: Orientation::Upright,
    };
    let plan = Plan::new(PlanSpec::new(board, Layout::Frames));
    match plan.map(|plan| Counter::new(&plan, &setup)) {
        Ok(Ok(_)) => Choice {
            layout: Layout::Frames,
            reason: format!("method frames: the faster one from N = {FRAMES_FROM} on"),
        },
        Ok(Err(error)) => rows(format!("method rows: {error} for method frames")),
        Err(error) => rows(format!("method rows: {error}")),
    }
}

/// From this N on `frames` is the faster method.
const FRAMES_FROM: u8 = 16;

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
    use super::*;

    #[test]
    fn auto_needs_memory_for_frames() {
        let choose = |n, memory| auto(Board::new(n).unwrap(), memory).layout;
        assert_eq!(choose(8, u64::MAX), Layout::Border);
        assert_eq!(choose(20, u64::MAX), Layout::Frames);
        assert_eq!(choose(20, 1 << 10), Layout::Border);
        assert_eq!(choose(32, u64::MAX), Layout::Frames);
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
        let choose = |method, prefix| choose(Board::new(20).unwrap(), method, prefix, u64::MAX);
        let frames = MethodChoice::Fixed(Method::Frames);
        assert_eq!(choose(frames, Some(Prefix::Border)), Err(PrefixOfFrames));
        let choice = choose(MethodChoice::Auto, Some(Prefix::FirstRows)).unwrap();
        assert_eq!(choice.layout, Layout::FirstRows);
    }
}
