//! Packages: tasks that are taken away, and that return early, late, twice, in part or never.

use common::{
    compute::kernel::KernelName,
    messages::{
        run::{LeaseKey, Partial, SessionId, WorkerId},
        sync::{
            Grant, HeldLease, PackageRequest, SelfTestReport, SyncReply, SyncRequest, Verdict,
            WorkerInfo,
        },
    },
};
use rand::RngExt;

use super::{
    Fault, HOUR, MINUTE, SECOND, Time,
    world::{Sender, SimEvent, World},
};

/// First number of a package as a sender.
const FIRST_SENDER: usize = 1 << 32;

/// Time after which a call without a reply is repeated.
const RETRY: Time = 30 * SECOND;

/// Number of attempts at a step.
const ATTEMPTS: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    CheckOut,
    /// Tell the coordinator that the file is on disk.
    Name,
    Away,
    Return,
}

#[derive(Debug)]
pub(super) struct Package {
    id: WorkerId,
    info: WorkerInfo,
    step: Step,
    attempts: u32,
    tasks: u32,
    away_ms: Time,
    /// Tasks that the package holds.
    grants: Vec<Grant>,
    /// Results without an acknowledgement.
    results: Vec<Partial>,
}

impl Package {
    /// Returns the number of a package that is a sender.
    pub(super) fn number(sender: usize) -> Option<usize> {
        sender.checked_sub(FIRST_SENDER).filter(|number| *number < FIRST_SENDER)
    }

    /// Takes a reply to the call of the current step, or of an earlier one.
    pub(super) fn handle_reply(&mut self, reply: SyncReply) {
        let is_kept = |lease: &LeaseKey| {
            let mut answers = reply.acknowledgements.iter();
            let answer = answers.find(|answer| answer.lease == *lease);
            answer.is_none_or(|answer| answer.verdict == Verdict::RefusedKeep)
        };
        match self.step {
            Step::CheckOut if !reply.grants.is_empty() => {
                (self.grants, self.step) = (reply.grants, Step::Name);
            }
            Step::Name if reply.grants.is_empty() => self.step = Step::Away,
            Step::Return => self.results.retain(|of| is_kept(&of.lease)),
            Step::CheckOut | Step::Name | Step::Away => {}
        }
    }

    fn request(&self) -> SyncRequest {
        let (started, failed) = (false, false);
        let held = |grant: &Grant| HeldLease { lease: grant.lease, cost_done: 0, started, failed };
        let package = PackageRequest {
            run: String::new(),
            away_ms: self.away_ms,
            tasks: self.tasks,
            core_seconds: 1e9,
        };
        SyncRequest {
            worker: self.info.clone(),
            held: self.grants.iter().map(held).collect(),
            partials: self.results.clone(),
            seconds_wanted: 0.0,
            draining: self.step == Step::Return,
            self_test: SelfTestReport::default(),
            paused: String::new(),
            package: (self.step == Step::CheckOut).then_some(package),
        }
    }
}

impl World {
    /// Checks a package out.
    pub(super) fn check_out(&mut self) {
        let rng = &mut self.env.rng;
        let id = WorkerId(u128::from(rng.random::<u64>()) << 64 | 1);
        let info = WorkerInfo {
            session: SessionId(1),
            name: "package".to_owned(),
            version: "sim".to_owned(),
            kernel: KernelName::Scalar,
            device: String::new(),
            threads: 1,
            memory_bytes_per_thread: 0,
            machine: rng.random(),
        };
        let tasks = u32::try_from(self.env.scenario.truth.plan.tasks()).expect("small plans");
        self.packages.push(Package {
            id,
            info,
            step: Step::CheckOut,
            attempts: 0,
            tasks: rng.random_range(1..=tasks),
            away_ms: rng.random_range(MINUTE..72 * HOUR),
            grants: Vec::new(),
            results: Vec::new(),
        });
        self.package_step(self.packages.len() - 1);
    }

    /// Makes the call of a package's step, until it succeeds.
    pub(super) fn package_step(&mut self, number: usize) {
        let package = &mut self.packages[number];
        package.attempts += 1;
        match package.step {
            Step::Away => {
                self.count(Fault::Package);
                return self.take_away(number);
            }
            Step::Return if package.results.is_empty() => return self.take_away(number),
            _ if package.attempts > ATTEMPTS => return,
            Step::CheckOut | Step::Name | Step::Return => {}
        }
        let (id, worker, request) = (package.id, FIRST_SENDER + number, package.request());
        let sender = Sender { id, worker, incarnation: 0, call: package.attempts.into() };
        if self.chance(0.2) {
            self.send(SimEvent::Request(sender, Box::new(request.clone())));
        }
        self.send(SimEvent::Request(sender, Box::new(request)));
        self.after(RETRY, SimEvent::Package(number));
    }

    /// Lets a package return after a while or never, and keep the tasks that are not counted yet or release them.
    fn take_away(&mut self, number: usize) {
        let truth = self.env.scenario.truth;
        let is_lost = !self.env.scenario.faults.packages_return || self.chance(0.3);
        if is_lost || self.packages[number].grants.is_empty() {
            return;
        }
        let (id, away_ms) = (self.packages[number].id, self.packages[number].away_ms);
        let part = if self.env.rng.random_bool(0.5) { 1.0 } else { self.env.rng.random() };
        let result = |grant: &Grant| Partial {
            lease: grant.lease,
            count: truth.count(grant.lease.task.task),
            kernel: KernelName::Scalar,
            orientation: grant.orientation,
            duration_us: 1_000,
        };
        let package = &mut self.packages[number];
        let all: Vec<_> = package.grants.iter().map(result).collect();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let counted = (all.len() as f64 * part).ceil() as usize;
        package.results = all[..counted].to_vec();
        package.grants.drain(..counted);
        if self.env.rng.random_bool(0.5) {
            package.grants.clear();
        }
        (package.step, package.attempts) = (Step::Return, 0);
        let early = self.env.rng.random_bool(0.5);
        let most = if early { 30 * MINUTE } else { 2 * away_ms };
        let long = self.env.rng.random_range(SECOND..most);
        self.count(Fault::PackageReturned);
        self.after(long, SimEvent::Package(number));
        if self.chance(0.2) {
            self.count(Fault::PackageRevoked);
            self.revoke(id);
        }
    }
}
