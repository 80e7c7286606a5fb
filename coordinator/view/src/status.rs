//! The status and the result of a run as text.

use anyhow::anyhow;
use common::messages::run::RunId;
use proto::v1::{self, CheckOutcome, Published};
use serde_json::{Value, json};

use super::{History, RunView, json, run_of, workers_table};
use crate::text::{
    check_name, check_text, disputed_number, durations, labeled, labeled_rows, method_name, plural,
    prose, thousands,
};

/// Formats the status of a run and its workers within `width`.
/// For a finished run, formats only the two result lines and the rechecks in progress, unless `verbose`.
pub fn status_text(
    status: &v1::Status,
    width: Option<usize>,
    verbose: bool,
    now_ms: u64,
) -> anyhow::Result<String> {
    let message = status.run.as_ref().ok_or_else(|| anyhow!("run: must be set"))?;
    let run = run_of(message)?;
    let mut lines = Vec::new();
    if let Some(result) = result_lines(status, false) {
        let rechecking = (!status.reason.is_empty()).then(|| status.reason.clone());
        let texts: Vec<_> = result.into_iter().chain(rechecking).collect();
        lines.push(prose(&texts.join("\n"), width));
        if !verbose {
            return Ok(lines.remove(0));
        }
    }
    let (board, method) = (run.board, method_name(run.layout));
    lines.push(format!("run {}: N = {board}, method {method}, {}", run.run, run.state_text));
    let view = RunView::new(status, &History::default(), now_ms);
    let mut rows = view.rows();
    if status.result.is_none() {
        let times = durations(status.counting_seconds, status.waiting_seconds);
        rows.extend([("Time", times), ("Leader", view.figures.leader.short.clone())]);
    }
    if let Some(result) = &status.result {
        // The two lines above have the rest.
        rows.retain(|(label, _)| ["Alerts", "Mean rate"].contains(label));
        rows.extend(classes(result).map(|classes| ("Classes", classes)));
    }
    lines.extend(labeled_rows(rows, width));
    lines.extend(status.result.iter().flat_map(|result| &result.checks).map(check_line));
    if status.result.is_some() {
        // What the workers do now is about other runs.
        return Ok(lines.join("\n"));
    }
    let total = status.worker_totals.unwrap_or_default().workers;
    if status.workers.is_empty() {
        lines.extend(labeled_rows([("Machines", view.figures.machines.full().to_owned())], width));
    } else {
        lines.extend([String::new(), workers_table(&status.workers, width)]);
    }
    match total.saturating_sub(status.workers.len() as u64) {
        0 => {}
        more => lines.push(format!(
            "and {} more: `queensctl workers` lists them all",
            thousands(more.into())
        )),
    }
    Ok(lines.join("\n"))
}

/// Returns the JSON object of `coordinator --json`.
/// It has a total only if all tasks are counted and none is disputed.
pub fn outcome_json(status: &v1::Status) -> Value {
    let run = status.run.clone().unwrap_or_default();
    let mut object = json!({
        "run": RunId(run.run).to_string(),
        "n": run.spec.unwrap_or_default().n,
        "method": run_of(&run).map_or("unknown", |run| run.layout.method().name()),
    });
    let incomplete = status.result.as_ref().is_none_or(|result| !result.disputed_tasks.is_empty());
    if incomplete {
        object["complete"] = json!(false);
        object["solutions_so_far"] = json!(status.solutions_so_far);
    }
    let Some(result) = &status.result else {
        object["tasks"] = json!(status.tasks_total);
        object["tasks_done"] = json!(status.tasks_done);
        return object;
    };
    let result = serde_json::to_value(json::Result::from(result)).expect("a result is plain data");
    for (key, value) in result.as_object().expect("a result is an object") {
        if key == "seconds" {
            object["tasks"] = json!(status.tasks_total);
        }
        let is_left_out = match key.as_str() {
            "solutions" | "fundamental" | "classes" | "published" => incomplete,
            "disputed_tasks" => !incomplete,
            _ => false,
        };
        if !is_left_out {
            object[key] = value.clone();
        }
    }
    object
}

/// Formats a result in two lines: counts; checks, tasks, rechecks and times.
/// Replaces rechecks by a note if only the coordinator's own worker counts (`is_local`).
pub fn result_lines(status: &v1::Status, is_local: bool) -> Option<[String; 2]> {
    let result = status.result.as_ref()?;
    let n = status.run.as_ref().and_then(|run| run.spec).unwrap_or_default().n;
    let has_others = status.worker_totals.is_some_and(|totals| totals.workers > 1);
    let rechecks = match is_local && !has_others {
        true => "not rechecked: one machine".to_owned(),
        false => rechecks(status.tasks_confirmed, status.tasks_recounted),
    };
    let (verified, tasks) = (verified(result), plural(status.tasks_total, "task"));
    let times = durations(result.seconds, result.waiting_seconds);
    Some([counted(n, result), format!("{verified}, {tasks}, {rechecks} · {times}")])
}

/// Formats the number of `confirmed` tasks, `recounted` of them by the referee.
pub(crate) fn rechecks(confirmed: u64, recounted: u64) -> String {
    let rechecked = confirmed.saturating_sub(recounted);
    let [recheck, recount] = [rechecked, recounted].map(|number| thousands(number.into()));
    match (rechecked, recounted) {
        (0, 0) => "none rechecked".to_owned(),
        (_, 0) => format!("{recheck} rechecked"),
        (0, _) => format!("{recount} recounted by the referee"),
        _ => format!("{recheck} rechecked, {recount} recounted by the referee"),
    }
}

/// Formats a check in at most 80 columns per line.
pub fn check_line(check: &v1::Check) -> String {
    labeled("check:", &check_text(&check.name, &check.outcome().to_string(), &check.reason))
}

/// Returns the number of passed checks and the names of the failed ones.
/// Checks that were not possible count as neither.
pub(crate) fn checks(result: &v1::Result) -> (usize, Vec<&str>) {
    let with_outcome = |outcome| {
        let checks = result.checks.iter().filter(move |check| check.outcome() == outcome);
        checks.map(|check| check.name.as_str())
    };
    (with_outcome(CheckOutcome::Passed).count(), with_outcome(CheckOutcome::Failed).collect())
}

/// Formats the symmetry classes; `None` if the total contradicts them.
pub(crate) fn classes(result: &v1::Result) -> Option<String> {
    (!result.fundamental.is_empty()).then(|| {
        format!(
            "{} asymmetric, {} half-turn, {} quarter-turn",
            grouped(&result.asymmetric),
            grouped(&result.half_turn),
            grouped(&result.quarter_turn)
        )
    })
}

/// Why a total that no check contradicts is not verified.
pub(crate) const NO_EVIDENCE: &str =
    "no total is published, and no random recount bounds how many counts are wrong";

/// Advice for a run whose disputed tasks no referee counts.
pub(crate) const RESOLVE: &str =
    "start a worker with a trusted token, or restart the coordinator with --referee 1";

fn counted(n: u32, result: &v1::Result) -> String {
    let solutions = grouped(&result.solutions);
    if !result.disputed_tasks.is_empty() {
        return format!(
            "N = {n}: DISPUTED (no total): {} with conflicting counts; the remaining tasks sum to \
             {solutions}; {RESOLVE}",
            disputed_number(&result.disputed_tasks)
        );
    }
    let noun = if result.solutions == "1" { "solution" } else { "solutions" };
    let fundamental = match result.fundamental.as_str() {
        "" => "which contradicts the symmetric solutions".to_owned(),
        fundamental => format!("{} fundamental", grouped(fundamental)),
    };
    let published = match result.published() {
        Published::Matches => "matches the published count",
        Published::Differs => "DIFFERS from the published count",
        Published::None | Published::Unspecified => "no published count",
    };
    format!("N = {n}: {solutions} {noun} ({fundamental}), {published}")
}

fn verified(result: &v1::Result) -> String {
    let (passed, failed) = checks(result);
    let made = match result.checks.len() - passed - failed.len() {
        0 => format!("{} passed", plural(passed as u64, "check")),
        others => format!("{} passed ({others} not made)", plural(passed as u64, "check")),
    };
    match (failed.as_slice(), result.disputed_tasks.is_empty()) {
        ([], true) if result.verified => format!("verified: {made}"),
        ([], true) => format!("NOT verified: {made}; {NO_EVIDENCE}"),
        ([], false) => format!("NOT verified: {made}"),
        (failed, _) => {
            let failed: Vec<_> = failed.iter().map(|name| check_name(name)).collect();
            format!("NOT verified: {made}, failed: {}", failed.join(", "))
        }
    }
}

/// Groups the digits of a number in a message.
pub fn grouped(decimal: &str) -> String {
    decimal.parse().map_or_else(|_| decimal.to_owned(), thousands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::WIDTH;

    #[test]
    fn the_largest_figures_fit_eighty_columns() {
        let large = u128::MAX.to_string();
        let status = v1::Status {
            run: Some(v1::Run {
                run: u64::MAX,
                spec: Some(v1::PlanSpec {
                    n: 32,
                    layout: v1::Layout::FirstRows.into(),
                    task_cost: 1,
                }),
                state: v1::RunState::Contradicted.into(),
                ..v1::Run::default()
            }),
            tasks_total: 4_000_000,
            tasks_done: 1_000_001,
            tasks_leased: 999_999,
            tasks_pending: 1_999_999,
            tasks_parked: 1,
            solutions_so_far: large.clone(),
            estimate: Some(v1::Estimate {
                solutions: large.clone(),
                low: large.clone(),
                high: large,
                confidence: 0.95,
            }),
            eta_seconds: Some(1e9),
            solutions_per_second: 1e15,
            rechecks: Some(v1::Rechecks {
                disputed_tasks: (1_000_000..1_000_100).collect(),
                ..v1::Rechecks::default()
            }),
            reason: "every worker that could count this ".repeat(7),
            coordinator: Some(v1::Coordinator {
                name: "queens-coordinator-7.cluster.local (process 4194304)".to_owned(),
                since_unix_ms: u64::MAX,
                term: u64::MAX,
                archive_behind_ms: Some(u64::MAX),
                disk_free_bytes: Some(1),
            }),
            ..v1::Status::default()
        };
        let text = status_text(&status, Some(WIDTH), false, 0).unwrap();
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        let unwrapped = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "method rows (first-rows)",
            "95 % confidence",
            "Conflicting counts for tasks 1000000",
            "1 parked",
            "disk is nearly full: 1.0 B left",
        ] {
            assert!(unwrapped.contains(part), "'{part}' in\n{text}");
        }
    }

    fn check(name: &str, outcome: CheckOutcome) -> v1::Check {
        v1::Check { name: name.to_owned(), outcome: outcome.into(), reason: String::new() }
    }

    /// Returns the status of a finished run of N = 20, after `change`.
    fn twenty(change: impl FnOnce(&mut v1::Result)) -> v1::Status {
        let mut result = v1::Result {
            solutions: "39029188884".to_owned(),
            fundamental: "4878666808".to_owned(),
            published: Published::Matches.into(),
            verified: true,
            seconds: 39.0,
            waiting_seconds: 20.0,
            checks: vec![
                check("journal", CheckOutcome::Passed),
                check("matches the", CheckOutcome::Passed),
                check("assigned", CheckOutcome::NotPossible),
            ],
            ..v1::Result::default()
        };
        change(&mut result);
        let spec = v1::PlanSpec { n: 20, layout: v1::Layout::Frames.into(), task_cost: 1 };
        v1::Status {
            run: Some(v1::Run { run: 0xabc, spec: Some(spec), ..v1::Run::default() }),
            solutions_so_far: result.solutions.clone(),
            tasks_total: 401,
            tasks_confirmed: 41,
            tasks_recounted: 40,
            result: Some(result),
            ..v1::Status::default()
        }
    }

    #[test]
    fn a_result_takes_two_lines() {
        let lines = |is_local, change: fn(&mut v1::Result)| {
            result_lines(&twenty(change), is_local).unwrap()
        };
        let [counted, verified] = lines(false, |_| {});
        let solutions = "N = 20: 39,029,188,884 solutions";
        assert_eq!(
            counted,
            format!("{solutions} (4,878,666,808 fundamental), matches the published count")
        );
        let of_rechecks = "401 tasks, 1 rechecked, 40 recounted by the referee";
        let times = "39 s counting, 20 s waiting";
        assert_eq!(
            verified,
            format!("verified: 2 checks passed (1 not made), {of_rechecks} · {times}")
        );
        // Other machines may join a coordinator that counts itself.
        let worker_totals = Some(v1::WorkerTotals { workers: 2, ..v1::WorkerTotals::default() });
        let joined = v1::Status { worker_totals, ..twenty(|_| {}) };
        assert_eq!(result_lines(&joined, true).unwrap()[1], verified);
        let [counted, verified] = lines(true, |result| {
            (result.published, result.fundamental) = (Published::Differs.into(), String::new());
            result.checks.push(check("symmetry", CheckOutcome::Failed));
        });
        let bad = "(which contradicts the symmetric solutions), DIFFERS from the published count";
        assert_eq!(counted, format!("{solutions} {bad}"));
        assert!(verified.starts_with(
            "NOT verified: 2 checks passed (1 not made), failed: symmetry, 401 tasks, not rechecked: one machine"
        ));
        let [counted, verified] = lines(false, |result| result.disputed_tasks = vec![3, 5]);
        assert!(counted.contains("DISPUTED (no total): 2 tasks with"), "{counted}");
        assert!(
            verified.starts_with("NOT verified: 2 checks passed (1 not made), 401 tasks"),
            "{verified}"
        );
        assert_eq!(rechecks(0, 0), "none rechecked");
    }

    #[test]
    fn a_finished_run_is_described_once() {
        let mut status = twenty(|_| {});
        status.workers = vec![v1::Worker { name: "busy".to_owned(), ..v1::Worker::default() }];
        let text = status_text(&status, Some(WIDTH), true, 0).unwrap();
        for once in [
            "39,029,188,884",
            "4,878,666,808",
            "fundamental",
            "published",
            "rechecked",
            "Mean rate",
        ] {
            assert_eq!(text.matches(once).count(), 1, "'{once}' in\n{text}");
        }
        assert!(!text.contains("busy"), "{text}");
    }

    #[test]
    fn the_object_of_a_disputed_run_has_no_total() {
        let complete = outcome_json(&twenty(|_| {}));
        assert_eq!((&complete["tasks"], &complete["disputed_tasks"]), (&json!(401), &Value::Null));
        assert_eq!((&complete["n"], &complete["method"]), (&json!(20), &json!("frames")));
        let disputed = outcome_json(&twenty(|result| result.disputed_tasks = vec![7]));
        assert_eq!((&disputed["solutions"], &disputed["published"]), (&Value::Null, &Value::Null));
        assert_eq!(disputed["solutions_so_far"], "39029188884");
        assert_eq!(disputed["complete"], false);
        assert_eq!(disputed["disputed_tasks"], json!([7]));
    }
}
