//! The coordinator: its groups, its crashes, its clock.

use std::sync::atomic::Ordering::Relaxed;

use common::{run::RunId, sync::SyncRequest};
use coordinator::{
    driver::Clock,
    sched::Command,
    store::{RunManifest, RunState},
};
use rand::RngExt;

use super::{
    super::{
        HOUR, MINUTE, SECOND, Time,
        coordinator::{Coordinator, Way},
        tally::Fault,
    },
    World,
    events::Event,
};

/// Runs begin on so many disks at most.
const MOST_DISKS: u64 = 4;

/// The time between two looks at everything the scheduler holds, in steps of the driver.
const COMPARE_EVERY: u64 = 16;

impl World {
    pub(super) fn befall_coordinator(&mut self, event: Event) {
        let faults = self.scenario.faults.clone();
        let mean = match event {
            Event::CoordinatorCrash => {
                if self.coordinator.is_some() {
                    self.count(Fault::CoordinatorCrash);
                    self.coordinator_crash();
                }
                faults.coordinator_crash
            }
            Event::DiskLoss => {
                self.coordinator_crash();
                self.disk.disk().lose();
                // A run that is slower than its disks are lost would never end.
                match self.runs < MOST_DISKS {
                    true => faults.disk_loss,
                    false => Time::MAX,
                }
            }
            Event::ClockLeap => {
                self.leap();
                faults.clock_leap
            }
            Event::Pause => {
                self.command(Command::Pause);
                let long = self.rng.random_range(SECOND..20 * MINUTE);
                self.after(long, Event::Resume);
                return;
            }
            Event::Resume => {
                if self.command(Command::Resume) {
                    return self.some_time(faults.pause, Event::Pause);
                }
                return self.after(MINUTE, Event::Resume);
            }
            Event::Ghost => {
                self.ghost();
                faults.ghost
            }
            _ => unreachable!("handled before"),
        };
        self.some_time(mean, event);
    }

    pub(super) fn serve(&mut self, way: Way, request: SyncRequest) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        self.outcome.messages += 1;
        coordinator.post(way, request);
        self.step_soon();
    }

    /// The driver gets to it as soon as the disk has written the group before.
    pub(super) fn step_soon(&mut self) {
        let slow = self.chance(0.01);
        let wait = self.rng.random_range(1..if slow { 2 * SECOND } else { 50 });
        self.step_by(self.now + wait);
    }

    /// One step is enough if it is early enough: it plans the next.
    pub(super) fn step_by(&mut self, at: Time) {
        if at < self.step_at {
            self.step_at = at;
            self.after(at - self.now, Event::CoordinatorStep);
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
        // A step may answer nobody: it was time for something.
        match answered.len() as u64 {
            0 => {}
            1 => self.outcome.groups += 1,
            several => {
                self.outcome.groups += 1;
                self.outcome.shared += several;
            }
        }
        if self.steps.is_multiple_of(COMPARE_EVERY) {
            let run = coordinator.run();
            self.disk
                .disk()
                .ledger
                .compare(coordinator.scheduler(), run);
        }
        self.note_state();
        for (way, reply) in answered {
            self.send(Event::Reply(way, Box::new(reply)));
        }
        self.plan_step();
    }

    pub(super) fn note_state(&mut self) {
        let state = self.coordinator.as_ref().map(Coordinator::state);
        self.complete = matches!(state, Some(RunState::Complete | RunState::Contradicted));
        // Enough is known of a plant once one of it is found.
        self.complete |= self.scenario.faults.planted > 0 && self.disk.disk().ledger.conflicts > 0;
    }

    pub(super) fn plan_step(&mut self) {
        let Some(coordinator) = &self.coordinator else {
            return;
        };
        if coordinator.is_waited_for() {
            return self.step_soon();
        }
        if let Some(timeout) = coordinator.next_timeout() {
            let at = timeout.0.saturating_sub(self.clock_ahead);
            self.step_by(at.max(self.now + 1));
        }
    }

    pub(super) fn set_clock(&self) {
        self.clock.store(self.now + self.clock_ahead, Relaxed);
    }

    /// Starts with what is on the disk; on an empty one, an operator submits the board again.
    pub(super) fn coordinator_start(&mut self) {
        if self.coordinator.is_some() {
            return;
        }
        self.outcome.starts += 1;
        self.set_clock();
        let known = self.disk.disk().run();
        let run = known.unwrap_or_else(|| self.submit());
        let (jitter, clock) = (self.rng.random(), Clock::told(self.clock));
        let started = Coordinator::start(&self.disk, (run, self.seed()), jitter, clock);
        let Ok(coordinator) = started else {
            // It died in its first write.
            return self.coordinator_crash();
        };
        self.coordinator = Some(coordinator);
        self.note_state();
        self.step_soon();
    }

    pub(super) fn submit(&mut self) -> RunId {
        self.runs += 1;
        let plan = &self.scenario.truth.plan;
        let manifest = RunManifest {
            run: RunId(0x51 + self.runs),
            spec: *plan.spec(),
            plan: plan.hash(),
            plan_version: plan.spec().version(),
            priority: 0,
            created_unix_ms: 0,
            key: None,
        };
        self.disk.disk().create(&manifest, &self.scenario);
        manifest.run
    }

    pub(super) fn coordinator_crash(&mut self) {
        self.coordinator = None;
        self.disk.disk().crash();
        self.step_at = Time::MAX;
        let down = self.rng.random_range(SECOND..15 * MINUTE);
        self.after(down, Event::CoordinatorStart);
    }

    /// Whether there was a coordinator to hear it.
    pub(super) fn command(&mut self, command: Command) -> bool {
        let Some(coordinator) = &mut self.coordinator else {
            return false;
        };
        coordinator.command(command);
        self.step_soon();
        true
    }

    pub(super) fn leap(&mut self) {
        self.count(Fault::CoordinatorClock);
        let by = self.rng.random_range(SECOND..6 * HOUR);
        if self.chance(0.5) {
            self.clock_ahead += by;
        } else {
            self.clock_ahead = self.clock_ahead.saturating_sub(by);
        }
        self.plan_step();
    }
}
