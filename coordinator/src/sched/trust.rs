//! What a worker's counts have shown of it.

/// So many of a machine's counts, each agreed with by another machine, make its word weigh more than
/// that of machines that nobody has seen before.
pub(super) const KNOWN: u32 = 3;

/// First counts of a worker that are compared while the run affords it.
const FIRSTS: u32 = 10;

/// First counts of a worker that are compared whatever those of others have cost: were none of it, who
/// comes late to a run would never be looked at. Whoever comes under many names gains nothing by that:
/// each name is looked at anew, and holds little until it was.
const OWED: u32 = 2;

/// A worker's standing: it outlives the worker's process, and the coordinator's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Counts of its own on which another machine has agreed.
    compared: u32,
    /// First counts that were chosen to be compared.
    firsts: u32,
    /// Times that it was found wrong.
    faults: u32,
    barred: bool,
    /// An operator has vouched for it.
    trusted: bool,
}

/// What follows from one more wrong count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consequence {
    /// Its unconfirmed counts are counted again, and its next ones compared.
    Doubted,
    /// It gets nothing more.
    Barred,
    /// It was barred before.
    Nothing,
}

impl Standing {
    pub(super) fn agreed(&mut self) {
        self.compared = self.compared.saturating_add(1);
    }

    /// Whether each of its counts is compared, since one was wrong: for good, or until an operator
    /// vouches for it. A machine that is wrong seldom is right a hundred times in between, and its next
    /// wrong count would stand.
    pub(super) fn is_doubted(self) -> bool {
        self.faults > 0
    }

    /// Whether its next count would be among the first that are compared.
    pub(super) fn is_new(self) -> bool {
        self.firsts.max(self.compared) < FIRSTS
    }

    /// Whether its next count is compared even if the run affords no more first counts.
    pub(super) fn is_owed(self) -> bool {
        self.firsts.max(self.compared) < OWED
    }

    /// A first count was chosen to be compared.
    pub(super) fn chosen(&mut self) {
        self.firsts += 1;
    }

    /// First counts of it wait to be compared, and none was yet.
    pub(super) fn awaits_comparison(self) -> bool {
        self.firsts > 0 && self.compared == 0
    }

    /// Whether an operator vouches for it, whatever it has counted.
    pub(super) fn is_trusted(self) -> bool {
        self.trusted
    }

    /// Counts of its own on which another machine has agreed.
    pub(super) fn compared(self) -> u32 {
        self.compared
    }

    pub(super) fn is_barred(self) -> bool {
        self.barred
    }

    pub(super) fn faults(self) -> u32 {
        self.faults
    }

    /// It was found wrong.
    pub(super) fn fault(&mut self) -> Consequence {
        self.trusted = false;
        self.faults = self.faults.saturating_add(1);
        if self.barred {
            return Consequence::Nothing;
        }
        if self.faults == 1 {
            return Consequence::Doubted;
        }
        self.barred = true;
        Consequence::Barred
    }

    /// Threads of it failed their canaries: that others have agreed with it says less.
    pub(super) fn unproven(&mut self) {
        self.trusted = false;
        self.compared = 0;
    }

    /// Found on disk: it was doubted.
    pub(super) fn restore_doubt(&mut self) {
        self.faults = self.faults.max(1);
    }

    /// Found on disk: it was barred.
    pub(super) fn restore_bar(&mut self) {
        self.faults = self.faults.max(2);
        self.barred = true;
    }

    /// An operator vouches for it, after a repair: a new start.
    pub(super) fn trust(&mut self) {
        *self = Self {
            compared: self.compared,
            firsts: self.firsts,
            trusted: true,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_first_counts_are_new_and_two_of_them_owed_whatever_came_of_them() {
        let by_choice = |standing: &mut Standing| standing.chosen();
        let by_others = |standing: &mut Standing| standing.agreed();
        for step in [by_choice, by_others] {
            let mut standing = Standing::default();
            for number in 0..20 {
                assert_eq!(standing.is_new(), number < FIRSTS);
                assert_eq!(standing.is_owed(), number < OWED);
                step(&mut standing);
            }
            standing.trust();
            assert!(!standing.is_new(), "a repair makes nobody a newcomer");
        }
    }

    #[test]
    fn failed_canaries_take_back_what_others_agreed_with() {
        let mut standing = Standing::default();
        standing.agreed();
        standing.trust();
        assert!(standing.is_trusted());
        standing.unproven();
        assert_eq!((standing.is_trusted(), standing.compared()), (false, 0));
    }

    #[test]
    fn a_worker_that_was_wrong_once_is_doubted_however_often_it_is_right_until_it_is_trusted() {
        let mut standing = Standing::default();
        assert!(!standing.is_doubted());
        assert_eq!(standing.fault(), Consequence::Doubted);
        for _ in 0..1_000 {
            standing.agreed();
        }
        assert!(standing.is_doubted() && !standing.is_barred());
        standing.trust();
        assert!(!standing.is_doubted() && standing.is_trusted());
        assert_eq!(
            standing.compared(),
            1_000,
            "what others agreed with stays so"
        );
        for consequence in [
            Consequence::Doubted,
            Consequence::Barred,
            Consequence::Nothing,
        ] {
            assert_eq!(standing.fault(), consequence);
            assert!(!standing.is_trusted());
        }
        assert_eq!((standing.faults(), standing.is_barred()), (3, true));
    }
}
