//! Lists sorted by the patterns of their most contested bits, and what is read from them: rows, narrowed
//! for a tile and divided into bands.

pub(crate) mod bands;
pub(crate) mod cells;
mod count;
pub(crate) mod gather;
pub(crate) mod portions;
pub(crate) mod scatter;
pub(crate) mod shortened;
pub(crate) mod sort;
pub(crate) mod sorting;
