//! Tests of the scheduler's rules: most by scripts, others by calculations.

mod audit;
mod bench;
mod rules;
mod scripts;
