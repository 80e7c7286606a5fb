//! Which run of a data directory the command line means.

use std::path::Path;

use common::{method::Layout, plan::PlanSpec, run::RunId};

use super::Options;
use crate::store::{RunManifest, RunState, StoredRun};

/// The run that was asked for cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRun {
    /// It was given up.
    #[error("{dir} holds run {run} of N = {n}, which was cancelled; --again counts the board anew")]
    Cancelled {
        /// The directory.
        dir: String,
        /// The run.
        run: RunId,
        /// Its board.
        n: u8,
    },
    /// There is none at all, and none was asked for, by a command that ends with its run.
    #[error("{dir} holds no run; give --n to start one")]
    Nothing {
        /// The directory.
        dir: String,
    },
}

/// What the command line says of the run that it means.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// What it would be made from, if it were new.
    pub(super) spec: PlanSpec,
    /// The layout, unless the choice is the program's: that may depend on the memory of the day.
    pub(super) layout: Option<Layout>,
    /// The task cost, unless it is the usual one.
    pub(super) task_cost: Option<u64>,
}

impl Asked {
    fn is(&self, stored: &StoredRun) -> bool {
        let PlanSpec {
            board,
            layout,
            task_cost,
        } = stored.manifest.spec;
        board == self.spec.board
            && self.layout.is_none_or(|asked| asked == layout)
            && self.task_cost.is_none_or(|asked| asked == task_cost)
    }
}

/// The stored run to go on with; `None` for a new one, or when all that is there is to be served.
///
/// Of several the one last created, and rather one that is not over.
pub(super) fn choose(
    options: &Options,
    asked: Option<&Asked>,
    stored: &[StoredRun],
) -> Result<Option<RunManifest>, NoRun> {
    let dir = options.place();
    let Some(asked) = asked else {
        return match stored {
            [] if options.exits_when_done() => Err(NoRun::Nothing { dir }),
            _ => Ok(None),
        };
    };
    if options.again {
        return Ok(None);
    }
    let found = |states: &[RunState]| {
        let mut newest_first = stored.iter().rev();
        newest_first.find(|run| asked.is(run) && states.contains(&run.state))
    };
    let run = found(&[RunState::Running, RunState::Paused])
        .or_else(|| {
            found(&[
                RunState::Complete,
                RunState::Contradicted,
                RunState::Disputed,
            ])
        })
        .or_else(|| found(&[RunState::Cancelled]));
    match run {
        None => Ok(None),
        Some(run) if run.state == RunState::Cancelled => Err(NoRun::Cancelled {
            dir,
            run: run.manifest.run,
            n: run.manifest.spec.board.n(),
        }),
        Some(run) => Ok(Some(run.manifest.clone())),
    }
}

/// A path for people.
pub(super) fn shown(dir: &Path) -> String {
    dir.display().to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use common::{board::Board, plan::Plan};

    use super::*;
    use crate::{driver::new_manifest, sched::Millis};

    fn stored(n: u8, layout: Layout, (created, state): (u64, RunState)) -> StoredRun {
        let plan = Plan::new(PlanSpec::new(Board::new(n).unwrap(), layout)).unwrap();
        StoredRun {
            manifest: new_manifest(&plan, 0, Millis(created)),
            state,
            recheck: None,
            elapsed_ms: 0,
        }
    }

    /// The place in `runs` of the run that this command line means.
    fn chosen(arguments: &[&str], runs: &[StoredRun]) -> Result<Option<usize>, NoRun> {
        let options = Options::parse_from([&["coordinator"], arguments].concat());
        let plan = options.plan().unwrap();
        let asked = plan.map(|plan| options.asked(*plan.spec()));
        let chosen = choose(&options, asked.as_ref(), runs)?;
        Ok(chosen.map(|manifest| {
            let same = |run: &StoredRun| run.manifest.run == manifest.run;
            runs.iter().position(same).unwrap()
        }))
    }

    #[test]
    fn a_board_that_is_not_there_is_a_new_run() {
        use RunState::{Complete, Running};
        let runs = [
            stored(8, Layout::Border, (1, Complete)),
            stored(9, Layout::Border, (2, Running)),
        ];
        assert_eq!(chosen(&["--n", "10"], &runs), Ok(None));
        assert_eq!(chosen(&["--n", "8"], &runs), Ok(Some(0)));
        assert_eq!(chosen(&["--n", "9"], &runs), Ok(Some(1)));
        assert_eq!(chosen(&["--n", "9", "--again"], &runs), Ok(None));
        assert_eq!(chosen(&[], &runs), Ok(None));
    }

    #[test]
    fn what_is_left_open_goes_on_with_whatever_is_there() {
        let runs = [stored(10, Layout::Frames, (1, RunState::Running))];
        for same in [&["--n", "10"][..], &["--n", "10", "--method", "frames"]] {
            assert_eq!(chosen(same, &runs), Ok(Some(0)), "{same:?}");
        }
        for other in [
            &["--n", "10", "--method", "rows"][..],
            &["--n", "10", "--prefix", "border"],
            &["--n", "10", "--task-cost", "77"],
        ] {
            assert_eq!(chosen(other, &runs), Ok(None), "{other:?}");
        }
    }

    #[test]
    fn an_open_run_goes_before_a_later_one_that_is_over() {
        use RunState::{Cancelled, Complete, Paused, Running};
        let run = |created, state| stored(8, Layout::Border, (created, state));
        let chosen = |states: &[RunState]| {
            let runs: Vec<_> = (1..)
                .zip(states)
                .map(|(at, state)| run(at, *state))
                .collect();
            chosen(&["--n", "8"], &runs)
        };
        assert_eq!(chosen(&[Running, Complete, Cancelled]), Ok(Some(0)));
        assert_eq!(chosen(&[Running, Paused, Complete]), Ok(Some(1)));
        assert_eq!(chosen(&[Complete, Complete, Cancelled]), Ok(Some(1)));
        let refused = chosen(&[Cancelled, Cancelled]).unwrap_err().to_string();
        assert!(refused.contains("cancelled; --again"), "{refused}");
    }

    #[test]
    fn waiting_for_nothing_is_refused() {
        let refused = chosen(&["--exit-when-done"], &[]).unwrap_err().to_string();
        assert!(refused.contains("give --n"), "{refused}");
        assert_eq!(chosen(&[], &[]), Ok(None));
    }
}
