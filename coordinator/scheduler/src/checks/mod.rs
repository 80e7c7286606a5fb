//! Checks of a result, by name, with their outcomes.

mod evidence;
mod self_tests;

use common::{
    board::Board,
    solutions::tally::{BadTally, Counts},
    text::{plural, thousands},
};

pub use self::{
    evidence::{Evidence, Sample, at_most_wrong_if_size_is_fixed},
    self_tests::of_self_tests,
};

use crate::ledger::Confirmation;

/// Outcome of a check, ordered from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckOutcome {
    Passed,
    /// There was nothing to examine.
    NotApplicable,
    /// The check could not be carried out.
    NotPossible,
    /// The result is wrong.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// A stable name, stored and signed.
    pub name: &'static str,
    pub outcome: CheckOutcome,
    /// The finding, for display.
    pub reason: String,
}

impl CheckOutcome {
    /// Returns the outcome's name in JSON and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotPossible => "not_possible",
            Self::NotApplicable => "not_applicable",
        }
    }
}

fn check(name: &'static str, outcome: CheckOutcome, reason: impl Into<String>) -> Check {
    Check { name, outcome, reason: reason.into() }
}

fn number(number: u64) -> String {
    thousands(number.into())
}

/// Returns the checks of a run's counts against each other.
pub fn of_counts(evidence: &Evidence) -> Vec<Check> {
    vec![referee(evidence), rechecks(evidence), disputes(evidence)]
}

fn referee(evidence: &Evidence) -> Check {
    let name = "referee";
    let Evidence { tasks, sample, voided, .. } = *evidence;
    let Some(most) = evidence.at_most_wrong() else {
        let reason = "no task was recounted at random: nothing bounds how many counts are wrong";
        return check(name, CheckOutcome::NotApplicable, reason);
    };
    let again = match voided {
        0 => String::new(),
        some => format!(" ({} void and counted again)", plural(some, "count")),
    };
    let (made, missing) = match sample.missing {
        0 => (plural(sample.recounts, "random recount"), String::new()),
        some => {
            let all = plural(sample.recounts + some, "random recount");
            let missing = format!(", {} not made and taken as wrong", number(some));
            (format!("{} of {all} made", number(sample.recounts)), missing)
        }
    };
    let reason = format!(
        "{made}, {} wrong{again}{missing}; with 95 % confidence at most {} of {} are wrong, even if workers \
         collude",
        number(sample.wrong),
        number(most),
        plural(tasks, "count"),
    );
    check(name, CheckOutcome::Passed, reason)
}

fn rechecks(evidence: &Evidence) -> Check {
    let at = |level| number(evidence.at(level));
    let open: u64 = evidence.levels[..Confirmation::OtherToken as usize].iter().sum();
    // Such as visitors, who all share one.
    let missing = match evidence.tokens {
        1 if open > 0 => {
            "; all workers have the same token, so only the referee, or workers with another token, could \
                          confirm more"
        }
        _ => "",
    };
    let reason = format!(
        "{} confirmed by the referee, {} by another token, {} by the same token only (its holder could have \
         made them agree), {} by the same machine, {} not confirmed{missing}",
        at(Confirmation::Referee),
        at(Confirmation::OtherToken),
        at(Confirmation::SameToken),
        at(Confirmation::SameMachine),
        at(Confirmation::None),
    );
    let confirmed: u64 = evidence.levels[1..].iter().sum();
    let outcome = match confirmed {
        0 => CheckOutcome::NotApplicable,
        _ => CheckOutcome::Passed,
    };
    check("rechecks", outcome, reason)
}

fn disputes(evidence: &Evidence) -> Check {
    let confirmed: u64 = evidence.levels[1..].iter().sum();
    let (outcome, reason) = match evidence.disagreements {
        _ if evidence.disputed_number > 0 => {
            let tasks: Vec<_> = evidence.disputed.iter().map(ToString::to_string).collect();
            let reason = format!(
                "{} disputed, and no referee has counted them: tasks {}",
                plural(evidence.disputed_number, "task"),
                tasks.join(", ")
            );
            (CheckOutcome::Failed, reason)
        }
        0 if confirmed == 0 => {
            (CheckOutcome::NotApplicable, "no task was rechecked or recounted".to_owned())
        }
        0 => (CheckOutcome::Passed, "no task was disputed".to_owned()),
        some => (CheckOutcome::Passed, format!("{}, all ended", plural(some, "dispute"))),
    };
    check("disputes", outcome, reason)
}

/// Returns the checks that a fully read and verified journal has passed.
pub fn of_journal(lines: u64, tasks: u64) -> Vec<Check> {
    let journal = format!(
        "{} read back from disk; checksums and hash chain intact",
        plural(lines, "journal line")
    );
    let sum = format!("the total is the sum of {}, one per task", plural(tasks, "accepted count"));
    vec![check("journal", CheckOutcome::Passed, journal), check("sum", CheckOutcome::Passed, sum)]
}

/// Returns the checks of a total.
/// `symmetric` is `None` if symmetric solutions were not counted, and `published` if no counts are published.
pub fn of_total(
    board: Board,
    symmetric: Option<&Result<Counts, BadTally>>,
    published: Option<bool>,
) -> Vec<Check> {
    let (outcome, reason) = match symmetric {
        Some(Ok(_)) => (
            CheckOutcome::Passed,
            "consistent with Burnside's lemma: total ≡ half-turn solutions (mod 8); cannot detect errors \
             that are multiples of 8"
                .to_owned(),
        ),
        Some(Err(bad)) => (CheckOutcome::Failed, bad.to_string()),
        None => (
            CheckOutcome::NotPossible,
            "because the symmetric solutions were not counted".to_owned(),
        ),
    };
    let symmetry = check("symmetry", outcome, reason);
    let (outcome, reason) = match published {
        Some(true) => {
            (CheckOutcome::Passed, format!("the counts match the published ones for N = {board}"))
        }
        Some(false) => (
            CheckOutcome::Failed,
            format!("the counts differ from the published ones for N = {board}"),
        ),
        None => {
            (CheckOutcome::NotPossible, format!("because no counts are published for N = {board}"))
        }
    };
    vec![symmetry, check("published", outcome, reason)]
}

/// Returns the check for errors that counts and rechecks share: it is not possible.
pub fn of_independence() -> Check {
    check(
        "independence",
        CheckOutcome::NotPossible,
        "because first counts and rechecks share the plan, the weights and the program: an error \
         there is in both",
    )
}

#[cfg(test)]
mod tests {
    use common::text::{check_name, check_text};

    use super::*;

    fn reason(checks: &[Check], name: &str) -> (CheckOutcome, String) {
        let check = checks.iter().find(|check| check.name == name).unwrap();
        (check.outcome, check.reason.clone())
    }

    #[test]
    fn the_referee_check_states_the_bound_or_why_there_is_none() {
        let evidence = Evidence {
            tasks: 20_000,
            levels: [19_100, 100, 200, 200, 400],
            sample: Sample { recounts: 400, ..Sample::default() },
            ..Evidence::default()
        };
        let (outcome, text) = reason(&of_counts(&evidence), "referee");
        let expected = "400 random recounts, 0 wrong; with 95 % confidence at most 440 of 20,000";
        assert_eq!(outcome, CheckOutcome::Passed);
        assert!(text.starts_with(expected), "{text}");
        let sample = Sample { recounts: 400, wrong: 2, missing: 1 };
        let found = Evidence { sample, voided: 31, ..evidence.clone() };
        let (_, text) = reason(&of_counts(&found), "referee");
        assert!(
            text.starts_with(
                "400 of 401 random recounts made, 2 wrong (31 counts void and counted again), 1 not made and \
                 taken as wrong;"
            ),
            "{text}"
        );
        let none = Evidence { sample: Sample::default(), ..evidence.clone() };
        assert_eq!(reason(&of_counts(&none), "referee").0, CheckOutcome::NotApplicable);
        // Counts of the referee are not wrong.
        let refereed = Evidence { levels: [0, 0, 0, 3, 19_997], ..evidence };
        assert_eq!(refereed.at_most_wrong(), Some(3));
    }

    #[test]
    fn rechecks_are_listed_by_level_and_an_empty_check_does_not_pass() {
        let evidence = Evidence { levels: [5, 4, 3, 2, 1], ..Evidence::default() };
        let (outcome, text) = reason(&of_counts(&evidence), "rechecks");
        assert_eq!(outcome, CheckOutcome::Passed);
        let expected = "1 confirmed by the referee, 2 by another token, 3 by the same token only";
        assert!(text.starts_with(expected), "{text}");
        for (tokens, levels, is_missing) in
            [(1, [5, 4, 3, 0, 1], true), (1, [0, 0, 0, 0, 9], false), (2, [5, 4, 3, 0, 1], false)]
        {
            let evidence = Evidence { levels, tokens, ..Evidence::default() };
            let (_, text) = reason(&of_counts(&evidence), "rechecks");
            assert_eq!(text.contains("all workers have the same token"), is_missing, "{text}");
        }
        let no_dispute = (CheckOutcome::Passed, "no task was disputed".to_owned());
        assert_eq!(reason(&of_counts(&evidence), "disputes"), no_dispute);
        let nothing = Evidence { levels: [5, 0, 0, 0, 0], ..evidence };
        for check in of_counts(&nothing) {
            assert_eq!(check.outcome, CheckOutcome::NotApplicable, "{check:?}");
        }
    }

    #[test]
    fn a_dispute_fails_and_names_its_tasks() {
        let evidence = Evidence {
            disagreements: 3,
            disputed: vec![common::plan::TaskId(5), common::plan::TaskId(17)],
            disputed_number: 2,
            ..Evidence::default()
        };
        let (outcome, text) = reason(&of_counts(&evidence), "disputes");
        assert_eq!(outcome, CheckOutcome::Failed);
        assert!(text.contains("tasks 5, 17"), "{text}");
    }

    #[test]
    fn outcomes_and_checks_have_a_stored_name_and_one_for_display() {
        for (outcome, stored, display) in [
            (CheckOutcome::Passed, "passed", "passed"),
            (CheckOutcome::Failed, "failed", "FAILED"),
            (CheckOutcome::NotPossible, "not_possible", "not checked"),
            (CheckOutcome::NotApplicable, "not_applicable", "not applicable"),
        ] {
            assert_eq!(outcome.name(), stored);
            let shown = check_text("self_tests", stored, "two threads");
            assert_eq!(shown, format!("self-tests {display}: two threads"));
        }
        let names = ["second_counts", "bound", "sum"].map(check_name);
        assert_eq!(names, ["rechecks", "error bound", "sum"]);
    }

    #[test]
    fn a_total_fails_the_checks_that_contradict_it() {
        use CheckOutcome::{Failed, NotPossible, Passed};
        let outcomes = |checks: Vec<Check>| -> Vec<_> {
            checks.iter().map(|check| (check.name, check.outcome)).collect()
        };
        assert_eq!(outcomes(of_journal(9, 4)), [("journal", Passed), ("sum", Passed)]);
        let board = Board::new(8).unwrap();
        let wrong = Err(BadTally::Overflow);
        for (symmetric, published, expected) in [
            (Some(&wrong), Some(false), [Failed, Failed]),
            (None, Some(true), [NotPossible, Passed]),
            (None, None, [NotPossible, NotPossible]),
        ] {
            let [symmetry, of_published] = expected;
            let expected = [("symmetry", symmetry), ("published", of_published)];
            assert_eq!(outcomes(of_total(board, symmetric, published)), expected);
        }
    }
}
