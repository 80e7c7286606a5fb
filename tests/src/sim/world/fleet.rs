//! What befalls workers, and what they do.

use common::sync::SyncReply;
use rand::RngExt;

use super::{
    super::{
        HOUR, MINUTE, SECOND,
        coordinator::Way,
        tally::Fault,
        worker::{Act, Nature, Worker},
    },
    NOBODY, World,
    events::Event,
};

impl World {
    pub(super) fn befall_worker(&mut self, event: Event) {
        let faults = self.scenario.faults.clone();
        let now = self.now;
        let long = self.rng.random_range(SECOND..20 * MINUTE);
        let mean = match event {
            Event::Crash(worker) => {
                self.crash(worker);
                faults.worker_crash
            }
            Event::Freeze(worker) => {
                self.workers[worker].frozen_until = now + long;
                self.count(Fault::WorkerFrozen);
                faults.worker_freeze
            }
            Event::CutOff(worker) => {
                self.workers[worker].cut_off_until = now + long;
                self.count(Fault::Partition);
                faults.partition
            }
            Event::Drain(worker) => {
                if self.workers[worker].up {
                    self.workers[worker].drain(now);
                    self.count(Fault::WorkerStopped);
                    self.wake_at_once(worker);
                }
                faults.worker_drain
            }
            Event::WorkerPause(worker) => {
                self.count(Fault::WorkerPaused);
                self.pause(worker, Some("on battery"));
                return self.after(long, Event::WorkerGoesOn(worker));
            }
            Event::WorkerGoesOn(worker) => {
                self.pause(worker, None);
                return self.some_time(faults.worker_pause, Event::WorkerPause(worker));
            }
            Event::Canaries(worker) => {
                if self.workers[worker].up && self.workers[worker].canaries(now, &mut self.rng) {
                    self.count(Fault::Canary);
                    self.wake_at_once(worker);
                }
                HOUR
            }
            Event::WorkerClock(worker) => {
                self.workers[worker].leap(&mut self.rng);
                self.count(Fault::WorkerClock);
                if self.workers[worker].up {
                    self.wake_at_once(worker);
                }
                faults.worker_clock
            }
            _ => unreachable!("handled before"),
        };
        self.some_time(mean, event);
    }

    /// Its rules say that it is to pause, or to go on.
    fn pause(&mut self, number: usize, why: Option<&'static str>) {
        self.workers[number].pause(why, self.now);
        if self.workers[number].up {
            self.wake_at_once(number);
        }
    }

    pub(super) fn wake(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        if !worker.up || worker.wake_at != self.now {
            return;
        }
        if worker.frozen_until > self.now {
            self.wake_soon(number);
            return;
        }
        let mut nature = Nature {
            now: self.now,
            scenario: &self.scenario,
            rng: &mut self.rng,
            tally: &mut self.outcome.faults,
            planted: &mut self.planted,
        };
        let act = worker.act(&mut nature);
        let (worker, life) = (number, worker.life);
        match act {
            Some(Act::Call(call, request)) => {
                let way = Way { worker, life, call };
                if self.chance(self.scenario.faults.repeat) {
                    self.count(Fault::MessageRepeated);
                    self.send(Event::Request(way, request.clone()));
                }
                self.send(Event::Request(way, request));
                self.wake_soon(number);
            }
            Some(Act::Exit) => self.come_back(number),
            None => self.wake_soon(number),
        }
    }

    /// Plans the worker's next wake; an earlier plan is forgotten.
    pub(super) fn wake_soon(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        let at = worker.next(self.now).max(worker.frozen_until);
        worker.wake_at = at;
        self.after(at - self.now, Event::Wake(number));
    }

    pub(super) fn wake_at_once(&mut self, number: usize) {
        self.workers[number].wake_at = self.now + 1;
        self.after(1, Event::Wake(number));
    }

    /// A machine asks for work and is never heard of again.
    pub(super) fn ghost(&mut self) {
        self.count(Fault::Ghost);
        let id = u128::from(self.rng.random::<u64>()) << 64;
        let mut nature = Nature {
            now: self.now,
            scenario: &self.scenario,
            rng: &mut self.rng,
            tally: &mut self.outcome.faults,
            planted: &mut self.planted,
        };
        let mut ghost = Worker::new(id, None, &mut nature);
        ghost.start(1, self.now);
        if let Some(Act::Call(call, request)) = ghost.act(&mut nature) {
            let way = Way {
                worker: NOBODY,
                life: 0,
                call,
            };
            self.send(Event::Request(way, request));
        }
    }

    pub(super) fn deliver(&mut self, way: Way, reply: Box<SyncReply>) {
        let Some(worker) = self.workers.get_mut(way.worker) else {
            return;
        };
        if !worker.up || worker.life != way.life {
            return;
        }
        if worker.frozen_until > self.now {
            let wait = worker.frozen_until - self.now;
            self.after(wait, Event::Reply(way, reply));
            return;
        }
        worker.answered(way.call, *reply, self.now);
        self.wake_at_once(way.worker);
    }

    pub(super) fn crash(&mut self, number: usize) {
        if !self.workers[number].up {
            return;
        }
        self.count(Fault::WorkerCrash);
        let loses_spool = self.chance(self.scenario.faults.spool_loss);
        // A liar keeps its name: under two names it would be two liars in agreement.
        let loses_spool = loses_spool && self.workers[number].is_honest();
        if loses_spool {
            self.count(Fault::SpoolLost);
        }
        let new_id = loses_spool.then(|| u128::from(self.rng.random::<u64>()) << 32);
        self.workers[number].crash(new_id, &mut self.rng);
        self.come_back(number);
    }

    pub(super) fn come_back(&mut self, number: usize) {
        let long = self.rng.random_range(SECOND..10 * MINUTE);
        self.after(long, Event::Start(number));
    }

    pub(super) fn start(&mut self, number: usize) {
        let session = self.rng.random();
        self.workers[number].start(session, self.now);
        self.wake_at_once(number);
    }
}
