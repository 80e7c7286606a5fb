//! Method `rows`: backtracking over bitmasks from a prefix of placed queens.

mod border;
pub(crate) mod cost;
mod counter;
mod division;
mod search;

pub(crate) use counter::memory_bytes;
pub use counter::{Counter, completions};
pub use division::Division;
