//! The two independent ways to the count, and how each divides a board into units.

use std::{fmt, str::FromStr};

/// A way of counting. Both give the same number.
///
/// ```
/// use common::method::{Layout, Method};
///
/// assert_eq!("frames".parse(), Ok(Method::Frames));
/// assert_eq!(Method::Rows.usual_layout(), Layout::Border);
/// assert_eq!(Layout::FirstRows.method(), Method::Rows);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Backtracking over bitmasks from a prefix of placed queens.
    Rows,
    /// Parts Assembly Approach: quarter boards joined frame by frame.
    Frames,
}

/// How a method divides the board into units of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// `rows`: a unit is a placement of the first rows, one of each mirror pair.
    FirstRows,
    /// `rows`: a unit is a placement of the outermost rows and columns, one of each orbit of eight.
    Border,
    /// `frames`: a unit is a frame.
    Frames,
}

/// A word that names no method, layout or kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} '{given}', expected one of: {expected}")]
pub struct UnknownName {
    /// What kind of thing was to be named.
    pub what: &'static str,
    /// What was given.
    pub given: String,
    /// The names there are.
    pub expected: &'static str,
}

impl Layout {
    /// The method that this layout belongs to.
    pub const fn method(self) -> Method {
        match self {
            Self::FirstRows | Self::Border => Method::Rows,
            Self::Frames => Method::Frames,
        }
    }

    /// The name used on the command line, on the wire and in the journal.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FirstRows => "first-rows",
            Self::Border => "border",
            Self::Frames => "frames",
        }
    }
}

impl Method {
    /// The layout that the method uses when its user names none.
    pub const fn usual_layout(self) -> Layout {
        match self {
            Self::Rows => Layout::Border,
            Self::Frames => Layout::Frames,
        }
    }

    /// The name used on the command line, on the wire and in the journal.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Frames => "frames",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Method {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "rows" => Ok(Self::Rows),
            "frames" => Ok(Self::Frames),
            _ => Err(UnknownName {
                what: "method",
                given: text.to_owned(),
                expected: "rows, frames",
            }),
        }
    }
}

impl FromStr for Layout {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "first-rows" => Ok(Self::FirstRows),
            "border" => Ok(Self::Border),
            "frames" => Ok(Self::Frames),
            _ => Err(UnknownName {
                what: "layout",
                given: text.to_owned(),
                expected: "first-rows, border, frames",
            }),
        }
    }
}
