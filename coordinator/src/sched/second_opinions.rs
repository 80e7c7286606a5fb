//! Whom to ask for a second count, and for one that decides between counts that contradict.

use common::count::Orientation;

use super::{
    Scheduler,
    clock::Ticks,
    grants::{Choice, SCAN},
    index::{RunIx, TaskIx, WorkerIx},
    run::Report,
    worker::Purpose,
};

/// How long a second count waits for a worker that says more: one with another token, or another
/// kernel.
const PATIENCE_MS: Ticks = 60_000;

/// How much slower than the worker at hand a thread with another kernel may be.
const KERNEL_SLOWDOWN: f64 = 1.5;

const WAYS: [Orientation; 2] = [Orientation::Upright, Orientation::Turned];

pub(super) fn opposite(orientation: Orientation) -> Orientation {
    match orientation {
        Orientation::Upright => Orientation::Turned,
        Orientation::Turned => Orientation::Upright,
    }
}

impl Scheduler {
    /// A done task of another machine that wants a second count: the other way round, by the holder of
    /// another token if there is one, and with another kernel if the fleet has one that is fast
    /// enough.
    pub(super) fn choose_second(&self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        let now = self.clock.ticks();
        let in_run = &self.runs[run];
        let others = in_run
            .seconds()
            .waiting()
            .filter(|&(first, _)| !self.workers.same_machine(first, worker));
        let mut tasks = others
            .flat_map(|(first, tasks)| tasks.iter().take(SCAN).map(move |task| (first, task)))
            .take(SCAN * SCAN);
        let (_, (&task, _)) = tasks.find(|&(first, (&task, &since))| {
            let patient = now < since + PATIENCE_MS;
            !patient
                || !(self.another_token_would_do(run, first, worker)
                    || self.another_kernel_would_do((run, task), first, worker))
        })?;
        Some(self.second(run, task))
    }

    /// With nothing else to do, and nobody else there who could: the worker's own counts, the other way
    /// round. That finds errors that come and go, not those that stay.
    pub(super) fn choose_own_second(&self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        let in_run = &self.runs[run];
        let own = in_run
            .seconds()
            .waiting()
            .filter(|&(first, _)| self.workers.same_machine(first, worker));
        let nobody_else = |first| self.elsewhere(run, first).next().is_none();
        let (_, tasks) = own.into_iter().find(|&(first, _)| nobody_else(first))?;
        let task = tasks.keys().next()?;
        Some(self.second(run, *task))
    }

    /// The second count of a done task.
    pub(super) fn second(&self, run: RunIx, task: TaskIx) -> Choice {
        let done = self.runs[run].tasks().done(task);
        let first = done.expect("rechecked tasks are done").how.orientation;
        Choice {
            task,
            purpose: Purpose::Recheck,
            orientation: opposite(first),
        }
    }

    /// Whether a worker came with the first one's token, and somebody else is there with another.
    fn another_token_would_do(&self, run: RunIx, first: WorkerIx, worker: WorkerIx) -> bool {
        let token = self.workers.token(first);
        self.workers.token(worker) == token
            && self
                .elsewhere(run, first)
                .take(SCAN)
                .any(|other| self.workers.token(other) != token)
    }

    /// Whether a worker counts as the first one did, and another could do it otherwise, about as
    /// fast.
    fn another_kernel_would_do(
        &self,
        (run, task): (RunIx, TaskIx),
        first: WorkerIx,
        worker: WorkerIx,
    ) -> bool {
        let how = self.runs[run].tasks().done(task).map(|done| done.how);
        let mine = &self.workers.get(worker).info;
        if how.is_none_or(|how| how.kernel != mine.kernel) {
            return false;
        }
        let of_a_thread = |worker: WorkerIx| {
            let known = self.workers.get(worker);
            let threads = f64::from(known.info.threads.max(1));
            known.cost_per_second().map(|speed| speed / threads)
        };
        let Some(my_speed) = of_a_thread(worker) else {
            return false;
        };
        self.elsewhere(run, first).take(SCAN).any(|other| {
            self.workers.get(other).info.kernel != mine.kernel
                && of_a_thread(other).is_some_and(|speed| speed * KERNEL_SLOWDOWN >= my_speed)
        })
    }

    /// A contested task to which this worker's count could add something, of the next few: with each call
    /// that finds none it comes to others.
    pub(super) fn choose_contested(&mut self, run: RunIx, worker: WorkerIx) -> Option<Choice> {
        let next = self.runs[run].next_contested(worker, SCAN);
        let choice = next
            .iter()
            .find_map(|&task| self.deciding(run, task, worker));
        if choice.is_none() {
            self.runs[run].look_on(worker, &next);
        }
        choice
    }

    /// A contested task for a worker whose count could add something to it, if possible through other
    /// data than the counts there are.
    fn deciding(&self, run: RunIx, task: TaskIx, worker: WorkerIx) -> Option<Choice> {
        let in_run = &self.runs[run];
        let reports = in_run.reports(task);
        let own = self.word_of(worker, reports);
        let agrees = self
            .decided_count(run, task)
            .is_some_and(|count| own.is_some_and(|own| own.count == count));
        if !agrees && self.has_counted(worker, reports) && self.others_wait(run, task, worker) {
            return None;
        }
        let last = own.or(reports.last()).map(|report| report.how);
        let same_kernel =
            last.is_some_and(|how| how.kernel == self.workers.get(worker).info.kernel);
        let first = match last {
            Some(how) if same_kernel => opposite(how.orientation),
            Some(_) | None => Orientation::Upright,
        };
        let new = |way: &Orientation| !in_run.has_tried(task, (worker, *way));
        let orientation = match agrees {
            true => first,
            false => [first, opposite(first)].into_iter().find(new)?,
        };
        Some(Choice {
            task,
            purpose: Purpose::Decide,
            orientation,
        })
    }

    /// Whether a worker's machine is among those that have counted.
    fn has_counted(&self, worker: WorkerIx, reports: &[Report]) -> bool {
        let mut by = reports.iter().map(|report| report.worker);
        by.any(|by| self.workers.same_machine(by, worker))
    }

    /// Whether somebody on another machine than this worker's has no count of a contested task yet, and
    /// can still be asked for one.
    pub(super) fn others_wait(&self, run: RunIx, task: TaskIx, worker: WorkerIx) -> bool {
        let in_run = &self.runs[run];
        let reports = in_run.reports(task);
        self.elsewhere(run, worker).any(|other| {
            let new = |way| !in_run.has_tried(task, (other, way));
            !self.has_counted(other, reports) && WAYS.into_iter().any(new)
        })
    }

    /// What a worker has said last of a contested task, or one that had another identity on its machine.
    fn word_of<'a>(&self, worker: WorkerIx, reports: &'a [Report]) -> Option<&'a Report> {
        let own = reports.iter().rfind(|report| report.worker == worker);
        let same = |report: &&Report| self.workers.same_machine(report.worker, worker);
        own.or_else(|| reports.iter().rfind(same))
    }

    /// Whether a count of a contested task by this worker could tell something new.
    pub(super) fn may_decide(&self, run: RunIx, task: TaskIx, worker: WorkerIx) -> bool {
        let in_run = &self.runs[run];
        let idle = self.workers.get(worker).draining || self.workers.standing(worker).is_barred();
        let new = |way| !in_run.has_tried(task, (worker, way));
        let agrees = || {
            let count = self.decided_count(run, task);
            let own = self.word_of(worker, in_run.reports(task));
            count.is_some() && own.map(|own| own.count) == count
        };
        !idle && (WAYS.into_iter().any(new) || agrees())
    }
}
