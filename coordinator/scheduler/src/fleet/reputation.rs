//! Reputation of a machine.

use crate::ledger::Confirmation;

/// Number of a machine's first counts that are rechecked if the run can afford it.
const INITIAL_RECHECKS: u32 = 10;

/// Number of a machine's first counts that are rechecked in any case.
/// Otherwise a machine that joins late would never be checked.
const GUARANTEED_RECHECKS: u32 = 2;

/// Reputation of a machine, which outlives the processes of worker and coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reputation {
    /// Number of the machine's counts with which another machine agreed.
    agreed: u32,
    /// Number of the machine's first counts that were selected for a recheck.
    pub(crate) selected: u32,
    pub(crate) has_counted: bool,
    /// Whether another token or the referee has agreed with a count of the machine.
    pub(crate) is_checked: bool,
}

impl Reputation {
    /// Returns whether the next count is rechecked if the run can afford it.
    pub(crate) fn is_new(self) -> bool {
        self.selected.max(self.agreed) < INITIAL_RECHECKS
    }

    /// Returns whether the next count is rechecked in any case.
    pub(crate) fn is_guaranteed_recheck(self) -> bool {
        self.selected.max(self.agreed) < GUARANTEED_RECHECKS
    }

    /// Returns whether first counts were selected for rechecks and none is confirmed.
    pub(crate) fn awaits_first_recheck(self) -> bool {
        self.selected > 0 && self.agreed == 0
    }

    /// Notes that another count confirmed a count of the machine.
    pub(crate) fn confirm(&mut self, by: Confirmation) {
        self.agreed = self.agreed.saturating_add(u32::from(by.elsewhere()));
        self.is_checked |= by >= Confirmation::OtherToken;
    }

    /// Forgets the confirmations after a failed self-test.
    pub(crate) fn reset(&mut self) {
        self.agreed = 0;
        self.is_checked = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_first_counts_are_rechecked_and_two_of_them_in_any_case() {
        let by_selection = |reputation: &mut Reputation| reputation.selected += 1;
        let by_others = |reputation: &mut Reputation| reputation.confirm(Confirmation::SameToken);
        for step in [by_selection, by_others] {
            let mut reputation = Reputation::default();
            for number in 0..20 {
                assert_eq!(reputation.is_new(), number < INITIAL_RECHECKS);
                assert_eq!(reputation.is_guaranteed_recheck(), number < GUARANTEED_RECHECKS);
                step(&mut reputation);
            }
        }
    }

    #[test]
    fn another_token_or_the_referee_checks_a_machine_until_a_self_test_fails() {
        for by in Confirmation::ALL {
            let mut reputation = Reputation::default();
            reputation.confirm(by);
            assert_eq!(reputation.agreed > 0, by.elsewhere());
            assert_eq!(reputation.is_checked, by >= Confirmation::OtherToken);
            reputation.reset();
            assert_eq!(reputation, Reputation::default());
        }
    }
}
