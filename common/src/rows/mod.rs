//! Method `rows`: backtracking over bitmasks from a prefix of placed queens.

mod border;
mod classes;
mod cost;
mod counter;
mod division;
mod ground;
mod kernel;
mod prefix;
pub(crate) mod spec;
mod stream;

#[cfg(test)]
mod tests;

pub use classes::classes;
pub use counter::Counter;
pub(crate) use counter::memory_bytes;
pub use division::Division;
pub use prefix::completions;
