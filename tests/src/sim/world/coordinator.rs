//! The coordinator's process: the real driver, without its thread, and its events.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    rc::Rc,
    sync::atomic::Ordering::Relaxed,
    task::{Context, Poll, Waker},
};

use common::{
    compute::kernel::KernelName,
    messages::{
        run::{LeaseKey, RunId, WorkerId},
        sync::{SyncReply, SyncRequest},
    },
};
use coordinator::driver::{Driver, DriverError, DriverHandle, Stopped, Submission};
use rand::RngExt;
use scheduler::{
    Command, Config, Millis, Recount, RunSummary, Scheduler, WorkerState, WorkersPart,
    checks::Evidence, ledger::Caller,
};
use store::{Clock, RunManifest, RunState};

use super::{
    super::{
        Fault, HOUR, MINUTE, SECOND, Time, scenario::Scenario, shared::Shared, worker::Served,
    },
    SimEvent, World,
};

/// Number of driver steps between two full comparisons of the scheduler.
const COMPARE_INTERVAL: u64 = 16;

const EVERY_WORKER: WorkersPart = WorkersPart::ById { after: None, most: usize::MAX };

/// One process of the coordinator, from start to crash.
pub(super) struct Coordinator {
    driver: Driver,
    handle: DriverHandle,
    calls: Vec<Call>,
    commands: Vec<Pin<Box<dyn Future<Output = ()>>>>,
    /// Packages that an operator revoked.
    revoked: Rc<RefCell<BTreeSet<WorkerId>>>,
    /// The referee's request for a task.
    recount: Option<NextRecount>,
    run: RunId,
    seed: u64,
}

type NextRecount = Pin<Box<dyn Future<Output = Result<Option<Recount>, Stopped>>>>;

/// A call that waits for its reply.
struct Call {
    sender: Sender,
    counts: BTreeMap<LeaseKey, u64>,
    answer: Pin<Box<dyn Future<Output = Result<SyncReply, Stopped>>>>,
}

/// A call of a worker's process.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Sender {
    pub(in super::super) id: WorkerId,
    pub(in super::super) worker: usize,
    pub(in super::super) incarnation: u64,
    pub(in super::super) call: u64,
}

fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T>>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

impl Coordinator {
    /// Starts with the run on the disk.
    pub(super) fn start(
        disk: &Shared,
        (run, scenario): (RunId, &Scenario),
        jitter: u64,
        clock: Clock,
    ) -> Result<Self, DriverError> {
        let mut scheduler = Scheduler::new(Config::default(), jitter);
        scheduler.set_referee(u32::from(scenario.referee), 1 << 30);
        let (mut driver, handle) = Driver::new(scheduler, Box::new(disk.clone()), clock)?;
        // A crash may leave counts of barred machines, which are voided first.
        driver.begin()?;
        disk.disk().checker.compare(driver.scheduler());
        let (calls, commands, seed) = (Vec::new(), Vec::new(), scenario.seed);
        let revoked = Rc::default();
        Ok(Self { driver, handle, calls, commands, revoked, recount: None, run, seed })
    }

    /// Adds a message to the next group.
    pub(super) fn post(&mut self, sender: Sender, caller: Caller, request: SyncRequest) {
        let partials = request.partials.iter();
        let counts = partials.map(|partial| (partial.lease, partial.count)).collect();
        let handle = self.handle.clone();
        self.calls.push(Call {
            sender,
            counts,
            answer: Box::pin(async move { handle.sync(caller, request).await }),
        });
    }

    /// Adds an operator's command to the next group.
    pub(super) fn command(&mut self, command: Command) {
        let (handle, run) = (self.handle.clone(), self.run);
        self.commands.push(Box::pin(async move {
            // A finished run refuses the command.
            let _ = handle.control(run, command, None).await;
        }));
    }

    /// Adds an operator's submission to the next group.
    fn submit(&mut self, submission: Submission) {
        let handle = self.handle.clone();
        self.commands.push(Box::pin(async move {
            handle.submit(submission, None).await.expect("a new run");
        }));
    }

    /// Adds an operator's revocation of a package to the next group.
    pub(super) fn revoke(&mut self, package: WorkerId) {
        let (handle, revoked) = (self.handle.clone(), self.revoked.clone());
        self.commands.push(Box::pin(async move {
            // The package may have returned.
            if handle.drain(package.to_string(), None).await.is_ok() {
                revoked.borrow_mut().insert(package);
            }
        }));
    }

    /// Submits what the referee counted, if anything, and requests its next task.
    pub(super) fn referee(&mut self, counted: Option<(Recount, u64)>) {
        let handle = self.handle.clone();
        self.recount = Some(Box::pin(async move {
            if let Some((recount, count)) = counted {
                handle.recounted(recount, count, KernelName::Scalar, 1).await?;
            }
            handle.next_recount(false).await
        }));
    }

    /// Returns the reply to the referee, if there is one.
    pub(super) fn take_recount(&mut self) -> Option<Option<Recount>> {
        match poll(self.recount.as_mut()?) {
            Poll::Pending => None,
            Poll::Ready(next) => {
                self.recount = None;
                Some(next.expect("the driver serves"))
            }
        }
    }

    /// Handles one group and returns the replies. An error ends the process.
    pub(super) fn step(&mut self, disk: &Shared) -> Result<Vec<(Sender, SyncReply)>, DriverError> {
        // The first poll queues a request.
        self.commands.retain_mut(|command| poll(command).is_pending());
        for call in &mut self.calls {
            assert!(poll(&mut call.answer).is_pending(), "the group is not decided yet");
        }
        if let Some(recount) = &mut self.recount {
            assert!(poll(recount).is_pending(), "the group is not decided yet");
        }
        self.driver.step()?;
        let seed = self.seed;
        if !self.revoked.borrow().is_empty() {
            let workers = self.scheduler().snapshot().workers(&EVERY_WORKER, Millis(0)).workers;
            let away = workers.iter().filter(|worker| worker.state == WorkerState::Away);
            let away = away.map(|worker| worker.id).collect();
            assert!(self.revoked.borrow().is_disjoint(&away), "seed {seed}: away after revocation");
        }
        self.commands.retain_mut(|command| poll(command).is_pending());
        let mut answered = Vec::new();
        self.calls.retain_mut(|call| match poll(&mut call.answer) {
            Poll::Pending => true,
            Poll::Ready(reply) => {
                let reply = reply.expect("the driver serves");
                let checker = &mut disk.disk().checker;
                checker.acknowledged(&reply, &call.counts);
                checker.granted(call.sender.id, &reply.grants);
                assert!(
                    !reply.grants.is_empty() || !reply.reason.is_empty(),
                    "seed {seed}: an empty grant without a reason"
                );
                answered.push((call.sender, reply));
                false
            }
        });
        Ok(answered)
    }

    pub(super) fn scheduler(&self) -> &Scheduler {
        self.driver.scheduler()
    }
}

impl World {
    pub(super) fn serve(&mut self, sender: Sender, request: SyncRequest) {
        let caller = self.caller(sender);
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        self.outcome.messages += 1;
        coordinator.post(sender, caller, request);
        self.step_soon();
    }

    /// Schedules a step for when the disk has written the previous group.
    pub(super) fn step_soon(&mut self) {
        let slow = self.chance(0.01);
        let wait = self.env.rng.random_range(1..if slow { 2 * SECOND } else { 50 });
        self.step_by(self.env.now + wait);
    }

    /// Schedules a step, unless an earlier one is scheduled.
    pub(super) fn step_by(&mut self, at: Time) {
        if at < self.step_at {
            self.step_at = at;
            self.after(at - self.env.now, SimEvent::CoordinatorStep);
        }
    }

    pub(super) fn step(&mut self) {
        self.set_clock();
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let Ok(answered) = coordinator.step(&self.disk) else {
            self.coordinator_crash();
            return;
        };
        self.steps += 1;
        // A step for a timeout has no replies.
        match answered.len() as u64 {
            0 => {}
            1 => self.outcome.groups += 1,
            several => {
                self.outcome.groups += 1;
                self.outcome.shared += several;
            }
        }
        if self.steps.is_multiple_of(COMPARE_INTERVAL) {
            self.disk.disk().checker.compare(coordinator.scheduler());
        }
        if let Some(next) = coordinator.take_recount() {
            self.begin_recount(next);
        }
        if self.steps >= self.bound_step {
            // A reading takes as long as some hundred steps.
            self.bound_step = self.steps + self.steps / 2 + COMPARE_INTERVAL;
            self.compare_bound();
        }
        self.note_state();
        for (sender, reply) in answered {
            self.send(SimEvent::Reply(sender, Box::new(reply)));
        }
        self.plan_step();
    }

    /// Notes whether more counts are wrong than the bound would state now.
    fn compare_bound(&mut self) {
        let Some(Coordinator { driver, run, .. }) = &self.coordinator else { return };
        if self.env.scenario.faults.liars == 0 {
            return;
        }
        let mut disk = self.disk.disk();
        let wrong = disk.checker.wrong();
        let fold = disk.store().refold(*run).expect("a sound store");
        let evidence =
            Evidence::of(&fold, |task| Some(driver.scheduler().snapshot().rank(*run, task)));
        self.outcome.exceeded |= evidence.at_most_wrong().is_some_and(|bound| wrong > bound);
    }

    pub(super) fn note_state(&mut self) {
        let Some(coordinator) = &self.coordinator else {
            self.complete = false;
            return;
        };
        let runs = coordinator.scheduler().snapshot().runs();
        // Without a referee, a run stays disputed.
        let ends = [RunState::Complete, RunState::Contradicted, RunState::Disputed];
        let is_over = |run: &RunSummary| ends.contains(&run.state);
        self.complete = runs.len() == self.env.scenario.runs.len() && runs.iter().all(is_over);
        // Of one run, none goes first.
        for run in runs.into_iter().filter(|_| self.env.scenario.runs.len() > 1) {
            let (id, now) = (run.manifest.run, self.env.now);
            let served = self.env.served.entry(id).or_insert(Served::new(run.priority));
            let is_pending = run.state == RunState::Running && run.tasks.pending > 0;
            served.pending = is_pending.then(|| served.pending.unwrap_or(now));
            served.idle = (is_pending && run.tasks.leased == 0).then(|| served.idle.unwrap_or(now));
            if served.idle.is_some_and(|since| now > since + MINUTE) {
                let status =
                    coordinator.scheduler().snapshot().status(id, Millis(now + self.clock_ahead));
                let reason = status.expect("the run is known").reason;
                assert!(
                    !reason.is_empty(),
                    "seed {}: run {id} waits without a reason",
                    self.seed()
                );
            }
        }
    }

    pub(super) fn plan_step(&mut self) {
        let Some(Coordinator { driver, calls, commands, recount, .. }) = &self.coordinator else {
            return;
        };
        // Requests wait for a group.
        if !(calls.is_empty() && commands.is_empty() && recount.is_none()) {
            return self.step_soon();
        }
        if let Some(timeout) = driver.next_timeout() {
            let at = timeout.0.saturating_sub(self.clock_ahead);
            self.step_by(at.max(self.env.now + 1));
        }
    }

    pub(super) fn set_clock(&self) {
        self.clock.store(self.env.now + self.clock_ahead, Relaxed);
    }

    /// Starts with the run on the disk; on an empty disk, submits the board again.
    pub(super) fn coordinator_start(&mut self) {
        if self.coordinator.is_some() {
            return;
        }
        self.outcome.starts += 1;
        self.set_clock();
        let known = self.disk.disk().runs().first().copied();
        let run = known.unwrap_or_else(|| {
            let manifest = self.manifest(self.env.scenario.runs[0].0);
            self.disk.disk().create(&manifest, self.env.scenario.recheck);
            manifest.run
        });
        let (jitter, clock) = (self.env.rng.random(), Clock::Simulated(self.clock));
        let started = Coordinator::start(&self.disk, (run, &self.env.scenario), jitter, clock);
        let Ok(coordinator) = started else {
            // The coordinator crashed in its first write.
            return self.coordinator_crash();
        };
        self.coordinator = Some(coordinator);
        self.recounting = None;
        if self.env.scenario.referee {
            self.after(SECOND, SimEvent::Recounted(self.outcome.starts));
        }
        self.note_state();
        self.step_soon();
    }

    /// Submits a run while others are counted.
    pub(super) fn submit(&mut self, priority: i32) {
        let manifest = self.manifest(priority);
        let Scenario { truth, recheck, .. } = self.env.scenario;
        let (plan, new_run) = (truth.plan.clone(), true);
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.submit(Submission { manifest, plan, new_run, recheck });
            self.step_soon();
        }
    }

    fn manifest(&mut self, priority: i32) -> RunManifest {
        self.runs += 1;
        RunManifest::new(RunId(0x51 + self.runs), &self.env.scenario.truth.plan, priority, 0)
    }

    pub(super) fn coordinator_crash(&mut self) {
        self.coordinator = None;
        self.disk.disk().crash();
        self.step_at = Time::MAX;
        let down = self.env.rng.random_range(SECOND..15 * MINUTE);
        self.after(down, SimEvent::CoordinatorStart);
    }

    /// Starts a recount, or schedules the next request of the referee.
    fn begin_recount(&mut self, next: Option<Recount>) {
        self.recounting = next;
        let takes = next.map_or(5 * SECOND, |recount| {
            let cost = self.env.scenario.truth.plan.task_cost(recount.task);
            self.env.scenario.duration(recount.task, cost)
        });
        self.after(takes, SimEvent::Recounted(self.outcome.starts));
    }

    /// Submits the recount, if there is one, and requests the next.
    pub(super) fn recounted(&mut self, start: u64) {
        if start != self.outcome.starts {
            return;
        }
        let wrong = self.chance(self.env.scenario.faults.referee_error);
        let error = if wrong { self.env.rng.random_range(1..100) } else { 0 };
        let recount = self.recounting.take();
        let counted =
            recount.map(|recount| (recount, self.env.scenario.truth.count(recount.task) + error));
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.referee(counted);
            self.step_soon();
        }
    }

    /// Lets an operator revoke a package, if the coordinator is up.
    pub(in super::super) fn revoke(&mut self, package: WorkerId) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.revoke(package);
            self.step_soon();
        }
    }

    /// Sends an operator's command; returns whether the coordinator was up.
    pub(super) fn command(&mut self, command: Command) -> bool {
        let Some(coordinator) = &mut self.coordinator else {
            return false;
        };
        coordinator.command(command);
        self.step_soon();
        true
    }

    pub(super) fn jump_clock(&mut self) {
        self.count(Fault::CoordinatorClock);
        let by = self.env.rng.random_range(SECOND..6 * HOUR);
        if self.chance(0.5) {
            self.clock_ahead += by;
        } else {
            self.clock_ahead = self.clock_ahead.saturating_sub(by);
        }
        self.plan_step();
    }
}
