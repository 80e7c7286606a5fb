//! The kernels: names and sizes.

/// Source of all kernels, in OpenCL C 1.2.
pub(crate) const SOURCES: [&str; 2] =
    [include_str!("../kernels/grid.cl"), include_str!("../kernels/leaf.cl")];

/// Defines [`Code`], and the name and the threads of a group of each kernel.
macro_rules! kernels {
    ($($code:ident, $name:literal, $threads:literal;)+) => {
        /// A kernel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code { $($code),+ }

        impl Code {
            pub(crate) const ALL: &[Self] = &[$(Self::$code),+];

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$code => $name),+ }
            }

            pub(crate) const fn threads(self) -> usize {
                match self { $(Self::$code => $threads),+ }
            }
        }
    };
}

kernels! {
    Arrange, "arrange", 256;
    HalfBoards, "half_boards", 256;
    ScanSums, "scan_sums", 256;
    ScanBlocks, "scan_blocks", 256;
    ScanWrite, "scan_write", 256;
    ListLengths, "list_lengths", 256;
    ChooseKinds, "choose_kinds", 256;
    JoinEveryPair, "join_every_pair", 128;
    JoinByTables, "join_by_tables", 128;
}

/// Words that a group of [`Code::ScanSums`] adds up.
pub(crate) const SCAN_WORDS: usize = 4096;

/// Maximum keys that a group of [`Code::JoinByTables`] sorts at a time.
pub(crate) const MAX_SORTED: usize = 256 * 3072;

/// Local memory of a group of [`Code::JoinByTables`], in bytes.
pub(crate) const TABLES_BYTES: u64 = 4 * (4 * 64 * 32 + (2048 + 8 * 16) + 4 * 32 + 4 * 16 + 128);

/// Words of scratch memory of a group of [`Code::JoinByTables`], beside two lists.
pub(crate) const SCRATCH_WORDS: usize = 256 * 16;
