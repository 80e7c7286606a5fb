//! What a result proves.

mod bound;

pub use bound::{CONFIDENCE, most_wrong};
