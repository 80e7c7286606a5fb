//! Who may write.

/// The one coordinator that serves the runs of a store, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The machine and the process.
    pub name: String,
    /// Its term.
    pub term: u64,
    /// Since when, in milliseconds since 1970: by the database's clock, where there is one.
    pub since_unix_ms: u64,
}
