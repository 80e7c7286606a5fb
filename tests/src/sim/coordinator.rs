//! The coordinator's process: the driver as the program runs it, but for its thread.

use std::{
    collections::BTreeMap,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use common::{
    plan::TaskId,
    run::{Epoch, RunId},
    sync::{SyncReply, SyncRequest},
};
use coordinator::{
    driver::{Clock, Driver, DriverError, DriverHandle, Stopped},
    sched::{Command, Config, Millis, Scheduler},
    store::RunState,
};

use super::store::Shared;

/// A run of the coordinator's program, from start to crash.
pub(super) struct Coordinator {
    driver: Driver,
    handle: DriverHandle,
    calls: Vec<Call>,
    commands: Vec<Pin<Box<dyn Future<Output = ()>>>>,
    run: RunId,
    seed: u64,
}

/// A call that the driver has not answered yet.
struct Call {
    way: Way,
    counts: BTreeMap<(TaskId, Epoch), u64>,
    answer: Pin<Box<dyn Future<Output = Result<SyncReply, Stopped>>>>,
}

/// Where an answer goes: to which worker, in which life, to which call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) worker: usize,
    pub(super) life: u64,
    pub(super) call: u64,
}

fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T>>>) -> Poll<T> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

impl Coordinator {
    /// Loads everything from the disk, which has a run.
    pub(super) fn start(
        disk: &Shared,
        (run, seed): (RunId, u64),
        jitter: u64,
        clock: Clock,
    ) -> Result<Self, DriverError> {
        let mut rows = Vec::new();
        let settled = disk.disk().settled().scan(run, &mut |row| rows.push(row));
        settled.expect("a sound store");
        disk.disk().ledger.restarted(&rows);
        let scheduler = Scheduler::new(Config::default(), jitter);
        let (mut driver, handle) = Driver::new(scheduler, Box::new(disk.clone()), clock)?;
        disk.disk().ledger.compare(driver.scheduler(), run);
        driver.begin()?;
        Ok(Self {
            driver,
            handle,
            calls: Vec::new(),
            commands: Vec::new(),
            run,
            seed,
        })
    }

    /// A message came in; it waits for the next group.
    pub(super) fn post(&mut self, way: Way, request: SyncRequest) {
        let partials = request.partials.iter();
        let counts = partials
            .map(|partial| ((partial.task.task, partial.epoch), partial.count))
            .collect();
        let handle = self.handle.clone();
        self.calls.push(Call {
            way,
            counts,
            answer: Box::pin(async move { handle.sync(None, request).await }),
        });
    }

    /// An operator's word, for the next group.
    pub(super) fn command(&mut self, command: Command) {
        let (handle, run) = (self.handle.clone(), self.run);
        self.commands.push(Box::pin(async move {
            // A run that is over by now refuses; that is the operator's surprise, not a fault.
            let _ = handle.control(run, command).await;
        }));
    }

    /// One group; what is answered then. After an error the process is dead.
    pub(super) fn step(&mut self, disk: &Shared) -> Result<Vec<(Way, SyncReply)>, DriverError> {
        // The first time a request is looked at, it enters the queue.
        self.commands
            .retain_mut(|command| poll(command).is_pending());
        for call in &mut self.calls {
            assert!(poll(&mut call.answer).is_pending(), "nobody has decided");
        }
        self.driver.step()?;
        self.commands
            .retain_mut(|command| poll(command).is_pending());
        let mut answered = Vec::new();
        let seed = self.seed;
        self.calls.retain_mut(|call| match poll(&mut call.answer) {
            Poll::Pending => true,
            Poll::Ready(reply) => {
                let reply = reply.expect("the driver serves");
                disk.disk().ledger.acknowledged(&reply, &call.counts);
                assert!(
                    !reply.grants.is_empty() || !reply.reason.is_empty(),
                    "seed {seed}: nothing granted for no reason"
                );
                answered.push((call.way, reply));
                false
            }
        });
        Ok(answered)
    }

    /// Whether requests wait for a group.
    pub(super) fn is_waited_for(&self) -> bool {
        !(self.calls.is_empty() && self.commands.is_empty())
    }

    pub(super) fn next_timeout(&self) -> Option<Millis> {
        self.driver.next_timeout()
    }

    pub(super) fn scheduler(&self) -> &Scheduler {
        self.driver.scheduler()
    }

    pub(super) fn run(&self) -> RunId {
        self.run
    }

    pub(super) fn state(&self) -> RunState {
        self.scheduler().runs()[0].state
    }
}
