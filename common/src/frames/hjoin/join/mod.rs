//! Joining whole parts: walking over two grids, or over a short list and a grid, and telling of it.

pub(crate) mod parts;
pub(crate) mod progress;
pub(crate) mod sparse;
pub(crate) mod walk;
