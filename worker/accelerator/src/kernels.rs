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

impl Code {
    pub(crate) const ALL: [Self; 9] = [
        Self::Arrange,
        Self::HalfBoards,
        Self::ScanSums,
        Self::ScanBlocks,
        Self::ScanWrite,
        Self::ListLengths,
        Self::ChooseKinds,
        Self::JoinEveryPair,
        Self::JoinByTables,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Arrange => "arrange",
            Self::HalfBoards => "half_boards",
            Self::ScanSums => "scan_sums",
            Self::ScanBlocks => "scan_blocks",
            Self::ScanWrite => "scan_write",
            Self::ListLengths => "list_lengths",
            Self::ChooseKinds => "choose_kinds",
            Self::JoinEveryPair => "join_every_pair",
            Self::JoinByTables => "join_by_tables",
        }
    }

    /// Returns the threads of a group.
    pub(crate) const fn threads(self) -> usize {
        match self {
            Self::JoinEveryPair | Self::JoinByTables => 128,
            _ => 256,
        }
    }
}
