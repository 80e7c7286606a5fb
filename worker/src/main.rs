//! The worker program.

fn main() {}
