//! The coordinator program.

fn main() {}
