//! A join without a grid: every pair is looked at.

use super::{
    join::{parts::Part, progress::OnProgress},
    layout::{keys::Keys, roles::Side},
    pairs::DisjointPairs,
};
use crate::setup::CountError;

/// Looks at every pair of keys: faster for the shortest lists, and what other joins are tested against.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use common::frames::hjoin::{DisjointPairs, Keys, Part, PlainJoin, Side};
///
/// let (top, bottom) = ([0b001, 0b110], [0b010, 0b100, 0b001]);
/// let mut join = PlainJoin::default();
/// join.start(0b111, Keys::List(&top), Keys::List(&bottom));
/// let go_on = &mut |_| ControlFlow::Continue(());
/// join.set(Side::Top, Part::Inner, Keys::List(&top), go_on)?;
/// join.set(Side::Bottom, Part::Inner, Keys::List(&bottom), go_on)?;
/// assert_eq!(join.join(Part::Inner, Part::Inner, go_on)?, 3);
/// # Ok::<(), common::count::CountError>(())
/// ```
#[derive(Debug, Default)]
pub struct PlainJoin {
    /// The keys of both parts of both halves.
    keys: [[Vec<u64>; 2]; 2],
}

/// Keys of the top half between two calls of [`OnProgress`].
const TOPS_A_CALL: usize = 1 << 10;

impl DisjointPairs for PlainJoin {
    fn start(&mut self, _contested: u64, _top: Keys<'_>, _bottom: Keys<'_>) {
        self.keys.as_flattened_mut().iter_mut().for_each(Vec::clear);
    }

    fn set(
        &mut self,
        side: Side,
        part: Part,
        keys: Keys<'_>,
        progress: OnProgress<'_>,
    ) -> Result<(), CountError> {
        let held = &mut self.keys[side as usize][part as usize];
        held.clear();
        match keys {
            Keys::List(keys) => held.extend_from_slice(keys),
            Keys::Made(maker) => {
                for group in 0..maker.groups() {
                    maker.make(group, held);
                    if progress(0.0).is_break() {
                        return Err(CountError::Cancelled);
                    }
                }
            }
        }
        Ok(())
    }

    fn join(
        &mut self,
        top: Part,
        bottom: Part,
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        let top = &self.keys[Side::Top as usize][top as usize];
        let bottom = &self.keys[Side::Bottom as usize][bottom as usize];
        let mut count = 0;
        for tops in top.chunks(TOPS_A_CALL) {
            for u in tops {
                count += bottom.iter().filter(|&v| u & v == 0).count() as u64;
            }
            if progress(tops.len() as f64 / top.len() as f64).is_break() {
                return Err(CountError::Cancelled);
            }
        }
        if top.is_empty() && progress(1.0).is_break() {
            return Err(CountError::Cancelled);
        }
        Ok(count)
    }
}
