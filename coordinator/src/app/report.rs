//! The last words of a run, for people and for programs.

use std::io::{self, Write as _};

use anyhow::Context as _;
use common::{
    board::Board,
    method::Method,
    tally::{Classes, Counts},
};
use serde_json::{Value, json};

use crate::{
    checks,
    driver::{DriverHandle, Known, Outcome, StatusReport, Stopped},
    sched::RunStatus,
    text::{WIDTH, span, thousands, wrapped},
};

/// A completed run, ready to be told.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its board.
    pub board: Board,
    /// Its method.
    pub method: Method,
    /// How many tasks it had.
    pub tasks: u64,
    /// What came out.
    pub outcome: Outcome,
}

impl Report {
    /// Of a run that came to `outcome`; `None` if it was deleted meanwhile.
    pub(super) async fn of(
        driver: &DriverHandle,
        outcome: Outcome,
    ) -> Result<Option<Self>, Stopped> {
        let status = driver.status(Some(outcome.run)).await?;
        Ok(status.map(|StatusReport { status, .. }| Self {
            board: status.manifest.spec.board,
            method: status.manifest.spec.layout.method(),
            tasks: status.tasks.total,
            outcome,
        }))
    }

    /// The result, and below it what it proves.
    pub fn text(&self) -> String {
        let label = self.label();
        let room = WIDTH - label.len();
        let parts = self.parts().join(",\n");
        let lines = parts.lines().flat_map(|part| wrapped(part, room));
        let lines: Vec<_> = lines.collect();
        let result = lines.join(&format!("\n{}", " ".repeat(label.len())));
        let checks = self.outcome.checks.iter().map(checks::shown);
        let lines: Vec<_> = std::iter::once(format!("{label}{result}"))
            .chain(checks)
            .collect();
        lines.join("\n")
    }

    /// The result in one line, however long.
    pub fn line(&self) -> String {
        format!("{}{}", self.label(), self.parts().join(", "))
    }

    fn label(&self) -> String {
        format!("N = {}: ", self.board)
    }

    /// What was counted, and what is known of that.
    fn parts(&self) -> Vec<String> {
        if !self.outcome.disputed.is_empty() {
            return vec![format!(
                "DISPUTED, no total: the counts of some tasks contradict each other, the others add \
                 up to {}; let another machine count, or see `queensctl status`",
                thousands(self.outcome.solutions),
            )];
        }
        let Outcome {
            solutions,
            counts,
            known,
            seconds,
            ..
        } = &self.outcome;
        let classes = match counts {
            Ok(counts) => classes_text(counts),
            Err(contradiction) => format!("which cannot be right: {contradiction}"),
        };
        let check = match known {
            Known::Matches => "matches the known count",
            Known::Differs => "DIFFERS from the known count",
            Known::Unknown => "no known count to compare with",
        };
        let solutions = format!(
            "{} {}, {classes}",
            thousands(*solutions),
            if *solutions == 1 {
                "solution"
            } else {
                "solutions"
            },
        );
        vec![solutions, format!("{check}, {}", span(*seconds))]
    }

    /// The JSON object of `--json`; `unique` and `classes` are null when the counts contradict
    /// each other.
    pub fn json(&self) -> Value {
        let outcome = &self.outcome;
        let checks: Vec<_> = outcome.checks.iter().map(checks::json).collect();
        if !outcome.disputed.is_empty() {
            let disputed: Vec<_> = outcome.disputed.iter().map(|task| task.0).collect();
            return json!({
                "run": outcome.run.to_string(),
                "n": self.board.n(),
                "method": self.method.name(),
                "complete": false,
                "solutions_so_far": outcome.solutions.to_string(),
                "disputed_tasks": disputed,
                "checks": checks,
                "tasks": self.tasks,
                "seconds": outcome.seconds,
            });
        }
        let counts = outcome.counts.as_ref().ok();
        json!({
            "run": outcome.run.to_string(),
            "n": self.board.n(),
            "method": self.method.name(),
            "solutions": outcome.solutions.to_string(),
            "unique": counts.map(|counts| counts.unique().to_string()),
            "classes": counts.map(|counts| classes_json(&counts.classes())),
            "known": outcome.known.name(),
            "checks": checks,
            "tasks": self.tasks,
            "seconds": outcome.seconds,
        })
    }
}

/// The JSON object of a run that was interrupted: nothing that could be taken for a result.
pub(super) fn partial_json(status: &RunStatus) -> Value {
    let spec = &status.manifest.spec;
    json!({
        "run": status.manifest.run.to_string(),
        "n": spec.board.n(),
        "method": spec.layout.method().name(),
        "complete": false,
        "solutions_so_far": status.solutions_so_far.to_string(),
        "tasks": status.tasks.total,
        "tasks_done": status.tasks.done,
    })
}

/// Writes a line to stdout.
pub(super) fn print_line(line: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.context(
        "cannot write the result to standard output (it is kept: the same command prints it again)",
    )
}

fn classes_text(counts: &Counts) -> String {
    let Classes {
        asymmetric,
        half_turn,
        quarter_turn,
    } = counts.classes();
    format!(
        "{} unique ({} asymmetric, {} half-turn and {} quarter-turn classes)",
        thousands(counts.unique()),
        thousands(asymmetric),
        thousands(half_turn),
        thousands(quarter_turn),
    )
}

fn classes_json(classes: &Classes) -> Value {
    json!({
        "asymmetric": classes.asymmetric.to_string(),
        "half_turn": classes.half_turn.to_string(),
        "quarter_turn": classes.quarter_turn.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use common::{run::RunId, tally::Counts};

    use super::*;

    fn report(solutions: u128, known: Known) -> Report {
        Report {
            board: Board::new(16).unwrap(),
            method: Method::Rows,
            tasks: 40,
            outcome: Outcome {
                run: RunId(0xabc),
                solutions,
                counts: Counts::new(solutions, 3000, 64),
                known,
                seconds: 1.25,
                checks: Vec::new(),
                disputed: Vec::new(),
            },
        }
    }

    #[test]
    fn sixteen_reads_as_promised() {
        let report = report(14_772_512, Known::Matches);
        assert_eq!(
            report.line(),
            "N = 16: 14,772,512 solutions, 1,846,955 unique (1,846,189 asymmetric, 734 half-turn \
             and 32 quarter-turn classes), matches the known count, 1.2 s"
        );
        assert_eq!(
            report.text(),
            "N = 16: 14,772,512 solutions, 1,846,955 unique (1,846,189 asymmetric, 734\n        \
             half-turn and 32 quarter-turn classes),\n        matches the known count, 1.2 s"
        );
        let json = report.json().to_string();
        for part in [
            r#""run":"0000000000000abc""#,
            r#""n":16"#,
            r#""method":"rows""#,
            r#""solutions":"14772512""#,
            r#""unique":"1846955""#,
            r#""asymmetric":"1846189""#,
            r#""half_turn":"734""#,
            r#""quarter_turn":"32""#,
            r#""known":"matches""#,
            r#""tasks":40"#,
            r#""seconds":1.25"#,
        ] {
            assert!(json.contains(part), "{part} in {json}");
        }
    }

    #[test]
    fn a_contradiction_is_said() {
        let report = report(14_772_513, Known::Differs);
        let line = report.line();
        assert!(
            line.contains("cannot be right") && line.contains("DIFFERS"),
            "{line}"
        );
        assert_eq!(report.json()["unique"], Value::Null);
    }
}
