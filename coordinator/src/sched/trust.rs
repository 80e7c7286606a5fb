//! What a worker's counts have shown of it.

/// So many of a worker's counts, each agreed with by another machine, make its word weigh more than
/// that of identities that nobody has seen before.
const SEASONED: u32 = 3;

/// Of the counts of a worker that was found wrong so many that follow are all compared.
const PROBATION: u32 = 100;

/// First counts of a worker that are compared.
const FIRSTS: u32 = 10;

/// A worker's standing: it outlives the worker's process, and the coordinator's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Counts of its own on which another machine has agreed.
    compared: u32,
    /// First counts that were chosen to be compared.
    firsts: u32,
    /// Times that it was found wrong.
    faults: u32,
    /// Of its next counts so many are all compared.
    probation: u32,
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

    /// Whether its next count is compared because of what it did before.
    pub(super) fn on_probation(&mut self) -> bool {
        let on = self.probation > 0;
        self.probation = self.probation.saturating_sub(1);
        on
    }

    /// Whether its next count would be among the first that are compared.
    pub(super) fn is_new(self) -> bool {
        self.firsts.max(self.compared) < FIRSTS
    }

    /// A first count was chosen to be compared.
    pub(super) fn chosen(&mut self) {
        self.firsts += 1;
    }

    /// First counts of it wait to be compared, and none was yet.
    pub(super) fn awaits_comparison(self) -> bool {
        self.firsts > 0 && self.compared == 0
    }

    pub(super) fn is_seasoned(self) -> bool {
        self.trusted || (self.compared >= SEASONED && self.faults == 0)
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
            self.probation = PROBATION;
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
        self.probation = PROBATION;
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
