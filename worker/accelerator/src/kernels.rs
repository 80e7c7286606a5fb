//! The kernels: names and sizes.

/// Source of all kernels, in OpenCL C 1.2.
pub(crate) const SOURCES: [&str; 2] =
    [include_str!("../kernels/grid.cl"), include_str!("../kernels/leaf.cl")];

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Arrange,
    HalfBoards,
    ScanSums,
    ScanBlocks,
    ScanWrite,
    ListLengths,
    ChooseKinds,
    JoinEveryPair,
    JoinByTables,
}

/// Words that a group of [`Code::ScanSums`] adds up.
pub(crate) const SCAN_WORDS: usize = 4096;

/// Maximum keys that a group of [`Code::JoinByTables`] sorts at a time.
pub(crate) const MAX_SORTED: usize = 256 * 3072;

/// Local memory of a group of [`Code::JoinByTables`], in bytes.
pub(crate) const TABLES_BYTES: u64 = 4 * (4 * 64 * 32 + (2048 + 8 * 16) + 4 * 32 + 4 * 16 + 128);

/// Words of scratch memory of a group of [`Code::JoinByTables`], beside two lists.
pub(crate) const SCRATCH_WORDS: usize = 256 * 16;

/// Names of all kernels, as [`Code`] numbers them.
pub(crate) const NAMES: [&str; 9] = [
    "arrange",
    "half_boards",
    "scan_sums",
    "scan_blocks",
    "scan_write",
    "list_lengths",
    "choose_kinds",
    "join_every_pair",
    "join_by_tables",
];

impl Code {
    pub(crate) const fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Returns the threads of a group.
    pub(crate) const fn threads(self) -> usize {
        match self {
            Self::JoinEveryPair | Self::JoinByTables => 128,
            _ => 256,
        }
    }
}
