//! Counting the disjoint pairs of two short lists of rests: the only room where pairs are counted.

#[cfg(test)]
pub(crate) mod fault;
mod few;
pub(crate) mod sliced;
mod tables;
mod words;
mod zeros;
