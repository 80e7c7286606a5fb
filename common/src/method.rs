//! The two counting methods, and their divisions of a board into units.

/// A counting method. Both give the same number.
///
/// ```
/// use common::method::{Layout, Method};
///
/// assert_eq!("frames".parse(), Ok(Method::Frames));
/// assert_eq!(Method::Rows.default_layout(), Layout::Border);
/// assert_eq!(Layout::FirstRows.method(), Method::Rows);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Backtracking over bitmasks from a prefix of placed queens.
    Rows,
    /// Parts Assembly Approach: quarter boards joined frame by frame.
    Frames,
}

/// Division of the board into units of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// `rows`: a unit is a placement of the first rows, one of each mirror pair.
    FirstRows,
    /// `rows`: a unit is a placement of the outermost rows and columns, one per orbit.
    Border,
    /// `frames`: a unit is a frame.
    Frames,
}

/// An unknown name of a method, layout, kernel or the like.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} '{given}', expected one of: {expected}")]
pub struct UnknownName {
    pub what: &'static str,
    pub given: String,
    /// Valid names.
    pub expected: String,
}

/// Implements the names of an enum: a getter, `Display` and `FromStr`.
#[macro_export]
macro_rules! named {
    ($type:ident, $what:literal, $name:ident, $($variant:ident = $text:literal),+ $(,)?) => {
        impl $type {
            /// Returns the name used in flags, messages and files.
            pub const fn $name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.$name())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::method::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err($crate::method::UnknownName {
                        what: $what,
                        given: text.to_owned(),
                        expected: [$($text),+].join(", "),
                    }),
                }
            }
        }
    };
}

named!(Method, "method", name, Rows = "rows", Frames = "frames");
named!(Layout, "layout", name, FirstRows = "first-rows", Border = "border", Frames = "frames",);

impl Layout {
    pub const fn method(self) -> Method {
        match self {
            Self::FirstRows | Self::Border => Method::Rows,
            Self::Frames => Method::Frames,
        }
    }
}

impl Method {
    pub const fn default_layout(self) -> Layout {
        match self {
            Self::Rows => Layout::Border,
            Self::Frames => Layout::Frames,
        }
    }
}
