//! Selection of the run that the command line requests.

use std::fs;

use anyhow::{anyhow, bail};
use cli::terminal::eprint_info;
use common::{
    choice::MethodChoice,
    plan::{Plan, PlanSpec},
};
use scheduler::{Command, Millis};
use store::{RunManifest, RunState, StoredRun};
use view::plan_text;

use super::Options;
use crate::driver::{DriverHandle, Submission, new_manifest};

/// Fails, before any write, if the program should exit when done but has no run.
pub(super) fn check_directory(options: &Options) -> anyhow::Result<()> {
    let is_empty =
        || !fs::read_dir(&options.data_dir).is_ok_and(|mut files| files.next().is_some());
    let starts_none = options.n.is_none() && options.store.is_none();
    match options.exits_when_done() && starts_none && is_empty() {
        true => Err(no_run(options)),
        false => Ok(()),
    }
}

fn no_run(options: &Options) -> anyhow::Error {
    anyhow!("{} holds no run; give --n to start one", options.storage_name())
}

/// Number of tasks from which their creation takes seconds.
const MANY_TASKS: u64 = 100_000;

#[derive(Debug)]
pub(super) struct SelectedRun {
    pub(super) manifest: RunManifest,
    new: Option<Plan>,
}

impl SelectedRun {
    /// Selects the requested run among the stored ones, or a new one with `plan`.
    /// Returns `None` to serve all stored runs.
    ///
    /// Open runs take precedence, then finished ones, then cancelled ones; the newest of each wins.
    pub(super) fn choose(
        options: &Options,
        plan: Option<Plan>,
        stored: &[StoredRun],
        now: Millis,
    ) -> anyhow::Result<Option<Self>> {
        let Some(plan) = plan else {
            return match stored {
                [] if options.exits_when_done() => Err(no_run(options)),
                _ => Ok(None),
            };
        };
        let newest = |states: &[RunState]| {
            let mut newest_first = stored.iter().rev().filter(|_| !options.new_run);
            newest_first
                .find(|run| is_requested(options, plan.spec(), run) && states.contains(&run.state))
        };
        let run = newest(&[RunState::Running, RunState::Paused])
            .or_else(|| newest(&[RunState::Complete, RunState::Contradicted, RunState::Disputed]))
            .or_else(|| newest(&[RunState::Cancelled]));
        match run {
            None => Ok(Some(Self { manifest: new_manifest(&plan, 0, now), new: Some(plan) })),
            Some(StoredRun { manifest, state: RunState::Cancelled, .. }) => {
                let (dir, run, n) = (options.storage_name(), manifest.run, manifest.spec.board);
                bail!(
                    "{dir} holds run {run} of N = {n}, which was cancelled; --new-run starts a new one"
                )
            }
            Some(run) => Ok(Some(Self { manifest: run.manifest.clone(), new: None })),
        }
    }

    /// Starts the run if it is new; otherwise applies `--recheck`, if given.
    pub(super) async fn begin(
        self,
        options: &Options,
        driver: &DriverHandle,
    ) -> anyhow::Result<()> {
        if let Some(plan) = self.new {
            if plan.tasks() >= MANY_TASKS {
                eprint_info(&format!("creating {}", plan_text(&plan)));
            }
            let recheck = options.recheck.unwrap_or_default();
            // `Self::choose` has already considered the stored runs.
            let new_run = true;
            let submission = Submission { manifest: self.manifest, plan, new_run, recheck };
            driver.submit(submission, None).await?;
        } else if let Some(recheck) = options.recheck {
            driver.control(self.manifest.run, Command::Recheck(recheck), None).await?;
        }
        Ok(())
    }
}

/// Returns whether the options, from which `spec` was made, describe a stored run.
fn is_requested(options: &Options, spec: &PlanSpec, stored: &StoredRun) -> bool {
    let PlanSpec { board, layout, task_cost } = stored.manifest.spec;
    // An automatic layout depends on the free memory.
    let is_automatic = options.method == MethodChoice::Auto && options.layout.is_none();
    board == spec.board
        && (is_automatic || layout == spec.layout)
        && options.task_cost.is_none_or(|requested| requested.get() == task_cost)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use common::{board::Board, method::Layout};
    use scheduler::ledger::Recheck;

    use super::*;

    fn stored(n: u8, layout: Layout, (created, state): (u64, RunState)) -> StoredRun {
        let plan = Plan::new(PlanSpec::new(Board::new(n).unwrap(), layout)).unwrap();
        let manifest = new_manifest(&plan, 0, Millis(created));
        StoredRun { state, ..StoredRun::new(manifest, Recheck::Auto) }
    }

    /// Returns the index in `runs` of the selected one; `None` for a new run.
    fn chosen(arguments: &[&str], runs: &[StoredRun]) -> anyhow::Result<Option<usize>> {
        let options = Options::parse_from([&["coordinator"], arguments].concat());
        let plan = options.plan().unwrap();
        let selected = SelectedRun::choose(&options, plan, runs, Millis(9))?;
        let index = |selected: SelectedRun| {
            runs.iter().position(|run| run.manifest.run == selected.manifest.run)
        };
        Ok(selected.and_then(index))
    }

    #[test]
    fn unspecified_parameters_match_any_run() {
        let runs = [stored(10, Layout::Frames, (1, RunState::Running))];
        for same in [&["--n", "10"][..], &["--n", "10", "--method", "frames"]] {
            assert_eq!(chosen(same, &runs).unwrap(), Some(0), "{same:?}");
        }
        for other in [
            &["--n", "10", "--method", "rows"][..],
            &["--n", "10", "--layout", "border"],
            &["--n", "10", "--task-cost", "77"],
        ] {
            assert_eq!(chosen(other, &runs).unwrap(), None, "{other:?}");
        }
    }

    #[test]
    fn an_open_run_takes_precedence_over_a_newer_finished_one() {
        use RunState::{Cancelled, Complete, Paused, Running};
        let run = |created, state| stored(8, Layout::Border, (created, state));
        let chosen = |states: &[RunState]| {
            let runs: Vec<_> = (1..).zip(states).map(|(at, state)| run(at, *state)).collect();
            chosen(&["--n", "8"], &runs)
        };
        assert_eq!(chosen(&[Running, Complete, Cancelled]).unwrap(), Some(0));
        assert_eq!(chosen(&[Running, Paused, Complete]).unwrap(), Some(1));
        assert_eq!(chosen(&[Complete, Complete, Cancelled]).unwrap(), Some(1));
        let refused = chosen(&[Cancelled, Cancelled]).unwrap_err().to_string();
        assert!(refused.contains("cancelled; --new-run"), "{refused}");
    }
}
