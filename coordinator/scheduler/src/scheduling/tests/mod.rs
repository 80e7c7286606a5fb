//! Each rule of the scheduler: most by a script, others by a calculation.

mod audit;
mod bench;
mod rules;
mod scripts;
