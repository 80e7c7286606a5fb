//! Code shared by the programs: terminal, log, environment, exit codes, resources.

pub mod date;
pub mod documents;
pub mod duration;
pub mod environment;
pub mod exit;
pub mod memory;
pub mod priority;
pub mod terminal;
pub mod threads;
