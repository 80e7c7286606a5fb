//! Where the keys of a list come from.

/// Makes the keys of a list, group by group, whenever they are wanted: a long list need not be held
/// beside its sorted rests.
pub trait KeyMaker: Sync {
    /// How many groups there are.
    fn groups(&self) -> usize;

    /// How many keys all groups have together.
    fn keys(&self) -> usize;

    /// Adds the keys of a group.
    fn make(&self, group: usize, keys: &mut Vec<u64>);

    /// Adds about one in 64 of the keys of a group, all of them as likely.
    fn make_some(&self, group: usize, keys: &mut Vec<u64>);
}

/// The keys of a list.
#[derive(Clone, Copy)]
pub enum Keys<'a> {
    /// All of them.
    List(&'a [u64]),
    /// As they are made.
    Made(&'a dyn KeyMaker),
}

impl Keys<'_> {
    /// How many there are.
    pub fn number(self) -> usize {
        match self {
            Self::List(keys) => keys.len(),
            Self::Made(maker) => maker.keys(),
        }
    }
}

/// Keys enough for any choice that goes by a sample.
const MOST_TYPICAL: usize = 1 << 17;

/// Keys that are typical of a list of so many.
#[derive(Clone, Copy)]
pub(crate) struct Typical<'a> {
    pub(crate) keys: &'a [u64],
    pub(crate) of: usize,
}

impl<'a> Typical<'a> {
    /// Of these keys, those made for it in `memory`.
    pub(crate) fn new(keys: Keys<'a>, memory: &'a mut Vec<u64>) -> Self {
        let of = keys.number();
        let keys = match keys {
            Keys::List(keys) => keys,
            Keys::Made(maker) => {
                memory.clear();
                let step = (of / 64).div_ceil(MOST_TYPICAL).max(1);
                for group in (0..maker.groups()).step_by(step) {
                    maker.make_some(group, memory);
                }
                memory
            }
        };
        Self { keys, of }
    }
}

/// A list, made group by group.
pub(crate) struct Slices<'a>(pub(crate) &'a [u64]);

impl Slices<'_> {
    const LENGTH: usize = 1 << 14;

    fn group(&self, group: usize) -> &[u64] {
        let start = group * Self::LENGTH;
        &self.0[start..self.0.len().min(start + Self::LENGTH)]
    }
}

impl KeyMaker for Slices<'_> {
    fn groups(&self) -> usize {
        self.0.len().div_ceil(Self::LENGTH)
    }

    fn keys(&self) -> usize {
        self.0.len()
    }

    fn make(&self, group: usize, keys: &mut Vec<u64>) {
        keys.extend_from_slice(self.group(group));
    }

    fn make_some(&self, group: usize, keys: &mut Vec<u64>) {
        keys.extend(self.group(group).iter().step_by(64));
    }
}
