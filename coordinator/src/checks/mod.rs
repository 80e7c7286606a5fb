//! What a result proves: every check by name, with what came of it.

mod bound;
mod canaries;
mod evidence;

use common::{
    board::Board,
    tally::{BadTally, Counts},
};

pub use self::{
    bound::{CONFIDENCE, most_wrong},
    canaries::of_canaries,
    evidence::Evidence,
};
use serde_json::{Value, json};

use crate::text::{labelled, plural, thousands};

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// It holds.
    Passed,
    /// It does not: the result is not to be believed.
    Failed,
    /// It could not be made.
    NotPossible,
}

/// One thing that was checked of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// A stable name, for programs.
    pub name: &'static str,
    /// What came of it.
    pub outcome: CheckOutcome,
    /// What was compared with what, for people.
    pub reason: String,
}

impl CheckOutcome {
    /// The word used in JSON and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotPossible => "not_possible",
        }
    }

    /// The word for people.
    pub const fn shown(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::NotPossible => "not possible",
        }
    }
}

fn check(name: &'static str, outcome: CheckOutcome, reason: String) -> Check {
    Check {
        name,
        outcome,
        reason,
    }
}

/// A check for people, on as many lines as it takes.
pub(crate) fn shown(check: &Check) -> String {
    labelled(
        "check:",
        &format!("{} {}: {}", check.name, check.outcome.shown(), check.reason),
    )
}

/// A check for programs.
pub(crate) fn json(check: &Check) -> Value {
    json!({
        "name": check.name,
        "outcome": check.outcome.name(),
        "reason": check.reason,
    })
}

fn number(number: u64) -> String {
    thousands(number.into())
}

/// The checks of a run's counts against each other.
pub fn of_counts(evidence: &Evidence) -> Vec<Check> {
    vec![
        second_counts(evidence),
        bound_on_wrong_counts(evidence),
        disagreements(evidence),
    ]
}

fn second_counts(evidence: &Evidence) -> Check {
    let Evidence {
        elsewhere,
        here,
        unconfirmed,
        ..
    } = *evidence;
    let tokens = match evidence.tokens {
        true => format!(
            " ({} with another token, {} with the same token)",
            number(evidence.other_token),
            number(elsewhere - evidence.other_token)
        ),
        false => String::new(),
    };
    let reason = format!(
        "{} confirmed by another machine{tokens}, {} by the same one the other way round, {} \
         unconfirmed",
        plural(elsewhere, "count"),
        number(here),
        number(unconfirmed)
    );
    let outcome = match elsewhere + here {
        0 => CheckOutcome::NotPossible,
        _ => CheckOutcome::Passed,
    };
    check("second_counts", outcome, reason)
}

fn bound_on_wrong_counts(evidence: &Evidence) -> Check {
    // What the machine that made it has made again is no better than unconfirmed here: an error
    // that stays is made twice.
    let open = evidence.unconfirmed + evidence.here;
    let compared = evidence.drawn_elsewhere;
    if open == 0 {
        let reason = "every count was confirmed by another machine".to_owned();
        return check("bound", CheckOutcome::Passed, reason);
    }
    if compared == 0 {
        let reason = format!(
            "because no task drawn by lot was counted by another machine: nothing limits how many of \
             {} are wrong",
            plural(open, "count")
        );
        return check("bound", CheckOutcome::NotPossible, reason);
    }
    let reason = format!(
        "with 95 % confidence at most {} of the {} counts that no other machine confirmed are wrong, \
         as long as a wrong count and its second count do not agree and nobody could foresee which \
         were drawn",
        number(most_wrong(open, compared)),
        number(open)
    );
    check("bound", CheckOutcome::Passed, reason)
}

fn disagreements(evidence: &Evidence) -> Check {
    let name = "disagreements";
    if evidence.disputed_number > 0 {
        let tasks: Vec<_> = evidence.disputed.iter().map(ToString::to_string).collect();
        let reason = format!(
            "the counts of {} tasks contradict each other and nobody has decided them: tasks {}",
            number(evidence.disputed_number),
            tasks.join(", ")
        );
        return check(name, CheckOutcome::Failed, reason);
    }
    let reason = match evidence.disagreements {
        0 => "no two counts of a task disagreed".to_owned(),
        some => format!(
            "two counts of a task disagreed {} times; further machines decided each",
            number(some)
        ),
    };
    check(name, CheckOutcome::Passed, reason)
}

/// The check of the journal from which the counts were read: that every line was there, whole, in
/// its place in the chain.
pub fn of_journal(lines: u64, tasks: u64) -> Vec<Check> {
    let journal = format!(
        "{} read anew from the disk, each whole and naming the one before",
        plural(lines, "line")
    );
    let sum = format!(
        "the total is the sum of {}, one a task",
        plural(tasks, "accepted count")
    );
    vec![
        check("journal", CheckOutcome::Passed, journal),
        check("sum", CheckOutcome::Passed, sum),
    ]
}

/// The checks of a total by what is known of the board. `symmetric` is `None` where the symmetric
/// solutions were not counted, `published` where nobody has published the counts.
pub fn of_total(
    board: Board,
    symmetric: Option<&Result<Counts, BadTally>>,
    published: Option<bool>,
) -> Vec<Check> {
    let (outcome, reason) = match symmetric {
        Some(Ok(_)) => (
            CheckOutcome::Passed,
            "the total is the number of half-turn solutions modulo 8, as Burnside's formula wants; \
             errors that are multiples of 8 it cannot see"
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
        Some(true) => (
            CheckOutcome::Passed,
            format!("the counts are the published ones for N = {board}"),
        ),
        Some(false) => (
            CheckOutcome::Failed,
            format!("the counts are not the published ones for N = {board}"),
        ),
        None => (
            CheckOutcome::NotPossible,
            format!("because nobody has published counts for N = {board}"),
        ),
    };
    vec![symmetry, check("published", outcome, reason)]
}

/// What no check of this program can show: what first and second counts have in common.
pub fn of_independence() -> Check {
    check(
        "independence",
        CheckOutcome::NotPossible,
        "because first and second counts share the plan, the weights and the program: an error \
         there is in both"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(checks: &[Check], name: &str) -> (CheckOutcome, String) {
        let check = checks.iter().find(|check| check.name == name).unwrap();
        (check.outcome, check.reason.clone())
    }

    #[test]
    fn the_bound_is_said_with_its_numbers_or_why_there_is_none() {
        let evidence = Evidence {
            elsewhere: 500,
            here: 100,
            unconfirmed: 19_400,
            drawn_elsewhere: 400,
            ..Evidence::default()
        };
        let checks = of_counts(&evidence);
        let (outcome, text) = reason(&checks, "second_counts");
        assert_eq!(outcome, CheckOutcome::Passed);
        assert!(text.starts_with("500 counts confirmed by another machine, 100 by the same"));
        let with_tokens = Evidence {
            other_token: 300,
            tokens: true,
            ..evidence.clone()
        };
        let (_, text) = reason(&of_counts(&with_tokens), "second_counts");
        let said = "500 counts confirmed by another machine (300 with another token, 200 with the \
                    same token), 100 by the same one";
        assert!(text.starts_with(said), "{text}");
        let (outcome, text) = reason(&checks, "bound");
        assert_eq!(outcome, CheckOutcome::Passed);
        let most = most_wrong(19_500, 400);
        let start = format!("with 95 % confidence at most {most} of the 19,500 counts");
        assert!(text.starts_with(&start), "{text}");
        let nobody = Evidence {
            drawn_elsewhere: 0,
            ..evidence.clone()
        };
        assert_eq!(
            reason(&of_counts(&nobody), "bound").0,
            CheckOutcome::NotPossible
        );
        let all = Evidence {
            elsewhere: 20_000,
            here: 0,
            unconfirmed: 0,
            ..evidence
        };
        let (_, text) = reason(&of_counts(&all), "bound");
        assert!(text.starts_with("every count was confirmed"), "{text}");
    }

    #[test]
    fn a_dispute_fails_and_names_its_tasks() {
        let evidence = Evidence {
            disagreements: 3,
            disputed: vec![common::plan::TaskId(5), common::plan::TaskId(17)],
            disputed_number: 2,
            ..Evidence::default()
        };
        let (outcome, text) = reason(&of_counts(&evidence), "disagreements");
        assert_eq!(outcome, CheckOutcome::Failed);
        assert!(text.contains("tasks 5, 17"), "{text}");
    }
}
