//! Single boards: solutions as values, their symmetry, reading and drawing.
//!
//! A [`Solution`] proves that its queens do not attack each other.
//!
//! ```text
//! text ─► read ─► Diagram ─► Solution ─► style (text), svg
//!                               ▲
//!         enumerate (all, the K-th), crate::local_search (one of a huge board)
//! ```

mod enumerate;
mod read;
mod solution;
mod style;
mod svg;
mod symmetry;

pub use enumerate::{Solutions, nth};
pub use read::{Diagram, Unreadable, read};
pub use solution::{Flaw, Line, Solution, Square};
pub use style::{Style, diagonals};
pub use svg::{CROWN, svg};
pub use symmetry::{IMAGES, Symmetry};
