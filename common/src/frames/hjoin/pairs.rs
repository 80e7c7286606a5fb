//! The seam: what counts the pairs of half boards that fit, and what it is told.

use super::{
    join::{parts::Part, progress::OnProgress},
    layout::{keys::Keys, roles::Side},
};
use crate::setup::CountError;

/// Counts the disjoint pairs of two halves' keys.
///
/// This is all that a frame asks of a join, and all that a device beside the CPU would have to offer;
/// `docs/accelerator.md` has the sizes. Per frame [`Self::start`] comes first, then the parts of
/// either half are set and joined in any order, and set again where a half comes in pieces.
pub trait DisjointPairs {
    /// Forgets all keys. The next ones are about as many as these and look like them, and only
    /// `contested` bits may be set in both a key of one half and one of the other.
    fn start(&mut self, contested: u64, top: Keys<'_>, bottom: Keys<'_>);

    /// Replaces one part of one half's keys: at most 2^31 of them, in any order.
    ///
    /// # Errors
    /// `Cancelled` when `progress` breaks.
    fn set(
        &mut self,
        side: Side,
        part: Part,
        keys: Keys<'_>,
        progress: OnProgress<'_>,
    ) -> Result<(), CountError>;

    /// The number of pairs of keys without a common bit, one of each of these parts.
    ///
    /// # Errors
    /// `Cancelled` when `progress` breaks, `Overflow` when the number passes 64 bits.
    fn join(
        &mut self,
        top: Part,
        bottom: Part,
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError>;
}
