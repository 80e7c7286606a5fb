//! Tests of the whole engine by scripts of events.

use std::{
    collections::BTreeMap,
    io::{Read as _, Seek as _},
    str::SplitWhitespace,
    sync::Arc,
};

use common::messages::run::{Epoch, RunId, TaskRef};

use super::*;
use crate::testing::{
    acknowledge, grant, lease, plan, quiet, result, sample_partial, settings, work,
};

/// An engine, its time, and its plans.
struct Bench {
    engine: WorkerEngine,
    now: Instant,
    plans: [Plan; 2],
}

impl Bench {
    fn new(settings: Settings) -> Self {
        let now = Instant::now();
        let mut engine = WorkerEngine::new(settings, now);
        engine.handle_self_test_passed();
        Self { engine, now, plans: [10, 9].map(plan) }
    }

    fn task(&self, name: &str) -> (&Plan, u64) {
        match name.strip_prefix('b') {
            Some(number) => (&self.plans[1], number.parse().unwrap()),
            None => (&self.plans[0], name.parse().unwrap()),
        }
    }

    /// Makes the next call when it is due.
    fn call(&mut self) -> SyncRequest {
        loop {
            if let Some(request) = self.engine.poll_call(self.now) {
                return request;
            }
            if self.engine.poll_spool(self.now).is_some() {
                self.engine.handle_spooled(true, self.now);
            }
            let next = self.engine.poll_timeout(self.now).unwrap();
            assert!(next > self.now, "nothing happens");
            self.now = next;
            self.engine.handle_timeout(self.now);
        }
    }

    /// Reads a reply: words that name a field, each followed by tasks.
    fn reply(&self, words: SplitWhitespace<'_>) -> SyncReply {
        let mut reply = quiet();
        let mut field = "";
        for word in words {
            let key = |name: &str| {
                let (plan, task) = self.task(name);
                lease(plan, task)
            };
            match (field, word) {
                (_, "finished") => reply.all_runs_finished = true,
                (_, "drain") => reply.drain = true,
                (_, "ignored") => reply.self_test_stored = false,
                (_, "no-work") => reply.reason = "every task is counted".to_owned(),
                (_, word) if word.starts_with(|c: char| c.is_ascii_lowercase() && c != 'b') => {
                    field = word;
                }
                ("grant", task) => {
                    let (plan, task) = self.task(task);
                    reply.grants.push(grant(plan, task));
                }
                ("revoke", task) => {
                    reply.revoked.push(Revocation { lease: key(task), reason: String::new() });
                }
                (verdict, task) => {
                    let verdict = match verdict {
                        "accept" => Verdict::Accepted,
                        "duplicate" => Verdict::Duplicate,
                        "conflict" => Verdict::Conflict,
                        "refuse" => Verdict::Refused,
                        "keep" => Verdict::RefusedKeep,
                        other => panic!("{other}"),
                    };
                    reply.acknowledgements.push(acknowledge(&key(task), verdict));
                }
            }
        }
        reply
    }

    /// Takes one step and describes its outcome.
    fn step(&mut self, step: &str) -> String {
        let mut words = step.split_whitespace();
        let before = self.now;
        let (verb, now) = (words.next().unwrap(), self.now);
        let mut outcome = Vec::new();
        match verb {
            "take" => {
                let tasks: Vec<_> = words.collect();
                self.step(&format!("sync grant {}", tasks.join(" ")));
                let counts: Vec<_> = tasks.iter().map(|task| format!("count {task}")).collect();
                assert_eq!(self.step("plan"), counts.join(", "));
            }
            "call" => {
                let request = self.call();
                outcome.push(self.describe(&request));
            }
            "sync" => {
                let reply = self.reply(words);
                let request = self.call();
                outcome.push(self.describe(&request));
                self.engine.handle_reply(reply, self.now);
            }
            "reply" => self.engine.handle_reply(self.reply(words), now),
            "lost" => {
                let jitter = words.next().map_or(0.0, |word| word.parse().unwrap());
                let wait = self.engine.handle_lost_call(jitter, now);
                outcome.push(format!("retry {} in {wait:?}", self.engine.failures()));
            }
            "plan" => {
                let plan = self.plans[usize::from(words.next() == Some("b"))].clone();
                self.engine.handle_plan(*plan.spec(), Ok(plan), now);
            }
            "no-plan" => {
                let spec = *self.plans[usize::from(words.next() == Some("b"))].spec();
                self.engine.handle_plan(spec, Err("making it panicked".to_owned()), now);
            }
            "progress" => {
                let work = work(&self.plans[0], words.next().unwrap().parse().unwrap());
                self.engine.handle_progress(work.lease, work.cost + 1);
            }
            "wait" => {
                self.now += Duration::from_secs_f64(words.next().unwrap().parse().unwrap());
                self.engine.handle_timeout(self.now);
            }
            "stop" => self.engine.handle_stop(now),
            "pause" => self.engine.handle_pause(Some(words.next().unwrap().to_owned()), now),
            "resume" => self.engine.handle_pause(None, now),
            "passed" => self.engine.handle_self_test_passed(),
            "failed" => {
                let ago = words.next().map(|word| word.parse().unwrap());
                let last = ago.map(|seconds| now - Duration::from_secs(seconds));
                self.engine.handle_self_test_failed(last, now);
            }
            "spool" => outcome.push(written(self.engine.poll_spool(now))),
            "last-write" => outcome.push(written(self.engine.poll_last_write())),
            "spooled" => self.engine.handle_spooled(true, now),
            "spool-failed" => self.engine.handle_spooled(false, now),
            "spool-lost" => self.engine.handle_spool_lost(),
            "next" => {
                let next = self.engine.poll_timeout(now);
                outcome.push(next.map_or("never".to_owned(), |at| format!("in {:?}", at - now)));
            }
            "state" => outcome.push(self.state()),
            _ => words.for_each(|word| {
                let (plan, task) = self.task(word);
                let memory = SetupError::Memory { given: 1 << 20, least: 1 << 30 };
                let of = |outcome| result(plan, task, outcome);
                let result = match verb {
                    "start" => return self.engine.handle_started(lease(plan, task), now),
                    "count" => of(JobOutcome::Counted(task + 100)),
                    "cancelled" => of(JobOutcome::Cancelled),
                    "overflow" => of(JobOutcome::Failed(Failure::Overflow)),
                    "panic" => of(JobOutcome::Failed(Failure::Panic("a bug".to_owned()))),
                    "no-memory" => of(JobOutcome::Failed(Failure::Setup(memory))),
                    other => panic!("{other}"),
                };
                self.engine.handle_job_finished(result, now);
            }),
        }
        if self.now > before {
            outcome.insert(0, format!("{:?} later", self.now - before));
        }
        while let Some(command) = self.engine.poll_command() {
            outcome.push(match command {
                PoolCommand::Count(work) => format!("count {}", work.lease.task.task),
                PoolCommand::Stop(lease) => format!("stop {}", lease.task.task),
                PoolCommand::MakePlan(spec) => format!("plan {}", spec.board),
            });
        }
        outcome.extend(self.engine.poll_end(self.now).map(|reason| format!("end {reason:?}")));
        outcome.join(", ")
    }

    /// Describes a request: leases, results, and the rest.
    ///
    /// Leases have a `*` if started, and `!` if finished or `?` if in progress.
    fn describe(&self, request: &SyncRequest) -> String {
        let mut text = "call".to_owned();
        for held in &request.held {
            let started = if held.failed { "-" } else { ["", "*"][usize::from(held.started)] };
            let progress = match held.cost_done {
                0 => "",
                cost if cost == self.plans[0].task_cost(held.lease.task.task) => "!",
                _ => "?",
            };
            text += &format!(" {}{started}{progress}", held.lease.task.task);
        }
        for partial in &request.partials {
            text += &format!(" {}={}", partial.lease.task.task, partial.count);
        }
        if request.seconds_wanted > 0.0 {
            text += " wants";
        }
        if request.draining {
            text += " draining";
        }
        if !request.paused.is_empty() {
            text += &format!(" paused {}", request.paused);
        }
        let tests = request.self_test;
        if tests.failed_threads > 0 {
            text +=
                &format!(" failed {} since {} ms", tests.failed_threads, tests.suspect_window_ms);
        }
        // `Self::new` reports the first one.
        if tests.tests_passed > 1 {
            text += &format!(" passed {}", tests.tests_passed - 1);
        }
        text
    }

    /// Describes the nonzero numbers of the state.
    fn state(&self) -> String {
        let summary = self.engine.summary();
        let numbers = [
            (self.engine.held() as u64, "held"),
            (self.engine.unsaved() as u64, "unsaved"),
            (summary.counted, "counted"),
            (summary.accepted, "accepted"),
            (summary.duplicates, "duplicate"),
            (summary.conflicts, "in conflict"),
            (summary.refused, "refused"),
            (summary.kept, "of them kept"),
            (summary.revoked, "revoked"),
            (summary.released, "released"),
            (summary.unacknowledged, "unacknowledged"),
        ];
        let nonzero = numbers.iter().filter(|(number, _)| *number > 0);
        nonzero.map(|(number, what)| format!("{number} {what}")).collect::<Vec<_>>().join(", ")
    }
}

fn written(write: Option<SpoolWrite>) -> String {
    let Some(SpoolWrite { keep, forget }) = write else { return "nothing".to_owned() };
    let mut text = "write".to_owned();
    keep.iter().for_each(|partial| text += &format!(" {}", partial.lease.task.task));
    forget.iter().for_each(|lease| text += &format!(" -{}", lease.task.task));
    text
}

/// Takes the steps of a script; returns its title and outcomes if one differs.
fn difference(script: &str) -> Option<String> {
    let mut log = tempfile::tempfile().unwrap();
    let writer = Arc::new(log.try_clone().unwrap());
    let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut logged = |text: &str| {
        let mut content = String::new();
        log.rewind().unwrap();
        log.read_to_string(&mut content).unwrap();
        content.matches(text).count().to_string()
    };
    let (title, steps) = script.split_once('\n').unwrap();
    // Shown if a step panics.
    println!("# {title}");
    let (options, steps): (Vec<_>, Vec<_>) = steps
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .partition(|line| line.starts_with("with "));
    let mut settings = settings(None);
    for line in options {
        match line.split_whitespace().skip(1).collect::<Vec<_>>()[..] {
            ["spool", ref tasks @ ..] => {
                let spooled = tasks.iter().map(|task| sample_partial(task.parse().unwrap(), 1));
                settings.unacknowledged = Some(spooled.collect());
            }
            ["drain-limit", seconds] => {
                settings.drain_limit = Duration::from_secs(seconds.parse().unwrap());
            }
            ["no-idle-timeout"] => settings.idle_timeout = None,
            _ => panic!("{line}"),
        }
    }
    let mut bench = Bench::new(settings);
    let (mut actual, mut expected) = (String::new(), String::new());
    for line in steps {
        let (step, outcome) = line.split_once(" => ").unwrap_or((line, ""));
        let (times, step) = step.split_once(" x ").unwrap_or(("1", step));
        for _ in 0..times.parse().unwrap() {
            let response = match step.strip_prefix("logged ") {
                Some(text) => logged(text),
                None => bench.step(step),
            };
            actual += &format!("{step} => {response}\n");
            expected += &format!("{step} => {outcome}\n");
        }
    }
    (actual != expected).then(|| format!("# {title}\n{actual}"))
}

#[test]
fn the_engine_follows_every_script() {
    let scripts = include_str!("scripts.txt").split("\n# ").skip(1);
    let different: Vec<_> = scripts.filter_map(difference).collect();
    assert!(different.is_empty(), "this happened:\n{}", different.join("\n"));
}

#[test]
fn an_acknowledgement_of_another_lease_drops_nothing() {
    let mut bench = Bench::new(settings(None));
    for step in ["sync grant 1", "plan", "count 1", "call"] {
        bench.step(step);
    }
    let right = lease(&bench.plans[0], 1);
    let other_epoch = LeaseKey { epoch: Epoch(8), ..right };
    let other_run = LeaseKey { task: TaskRef { run: RunId(1), ..right.task }, ..right };
    let others = [other_epoch, other_run].map(|lease| acknowledge(&lease, Verdict::Accepted));
    let reply = SyncReply { acknowledgements: others.to_vec(), ..quiet() };
    bench.engine.handle_reply(reply, bench.now);
    assert_eq!(bench.state(), "1 unsaved, 1 counted, 1 unacknowledged");
}

#[test]
fn many_results_travel_in_several_calls_and_their_leases_stay_held() {
    let results = limits::PARTIALS as u64 + 100;
    let spooled = (0..results).map(|task| sample_partial(task, 1)).collect();
    let mut bench = Bench::new(settings(Some(spooled)));
    let mut sizes = Vec::new();
    while bench.engine.unacknowledged() > 0 {
        let request = bench.call();
        let sent: BTreeMap<_, _> = request.partials.iter().map(|p| (p.lease, p)).collect();
        for listed in &request.held {
            assert!(listed.started && listed.cost_done == 0);
            assert!(!sent.contains_key(&listed.lease));
        }
        sizes.push((request.partials.len(), request.held.len()));
        let answers = sent.keys().map(|lease| acknowledge(lease, Verdict::Accepted));
        let reply = SyncReply { acknowledgements: answers.collect(), ..quiet() };
        bench.engine.handle_reply(reply, bench.now);
    }
    assert_eq!(sizes, [(limits::PARTIALS, 100), (100, 0)]);
}

#[test]
fn a_worker_whose_leases_fill_a_message_requests_no_more() {
    let full = limits::HELD - limits::GRANTS;
    for (held, wants) in [(full, true), (full + 1, false)] {
        let spooled = (0..held as u64).map(|task| sample_partial(task, 1)).collect();
        let request = Bench::new(settings(Some(spooled))).call();
        assert_eq!(request.seconds_wanted > 0.0, wants, "{held}");
    }
}

#[test]
fn a_worker_requests_work_once_a_thread_has_passed_its_self_test() {
    let now = Instant::now();
    let mut engine = WorkerEngine::new(settings(None), now);
    let first = engine.poll_call(now).expect("the first call is due");
    assert_eq!(first.seconds_wanted, 0.0);
    engine.handle_reply(quiet(), now);
    engine.handle_self_test_passed();
    let soon = engine.poll_timeout(now).expect("a call");
    assert!(soon < now + Duration::from_secs(1), "{:?}", soon - now);
    assert!(engine.poll_call(soon).expect("it is due").seconds_wanted > 0.0);
}

#[test]
fn a_failed_thread_reduces_the_requested_work() {
    let wanted = |failed: u32| {
        let mut bench = Bench::new(settings(None));
        let tasks = |tasks: std::ops::Range<u64>| {
            tasks.map(|task| task.to_string()).collect::<Vec<_>>().join(" ")
        };
        let first = tasks(0..20);
        let steps = [format!("sync grant {first}"), "plan".to_owned(), format!("count {first}")];
        steps.iter().for_each(|step| drop(bench.step(step)));
        (0..failed).for_each(|_| bench.engine.handle_self_test_failed(None, bench.now));
        bench.step(&format!("sync grant {}", tasks(20..30)));
        assert!(bench.engine.cores() > 0.0);
        bench.call().seconds_wanted
    };
    // The same backlog lasts longer for half the slots.
    assert!(wanted(1) < wanted(0), "{} and {}", wanted(1), wanted(0));
}

#[test]
fn a_partial_describes_its_count() {
    let mut bench = Bench::new(settings(None));
    for step in ["sync grant 0", "plan", "start 0", "count 0"] {
        bench.step(step);
    }
    let partial = Partial {
        lease: lease(&bench.plans[0], 0),
        count: 100,
        orientation: common::count::Orientation::Upright,
        duration_us: 1_500_000,
        ..sample_partial(0, 1)
    };
    assert_eq!(bench.call().partials, [partial]);
}
