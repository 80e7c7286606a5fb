//! Single boards: solutions as values, their symmetry, and how they are read and drawn.
//!
//! [`Solution`] is a proof: whoever holds one holds queens that do not attack each other.
//!
//! ```text
//! text ─► read ─► Diagram ─► Solution ─► style (text), svg
//!                               ▲
//!         enumerate (all, the K-th), crate::place (one of a huge board)
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
