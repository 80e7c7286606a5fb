//! Scripts of steps, and the descriptions of their outcomes.

use std::{fmt::Write as _, time::Duration};

use common::{
    count::Orientation,
    messages::{
        run::WorkerId,
        sync::{Grant, HeldLease, PackageRequest, SelfTestReport, SyncReply, SyncRequest},
    },
    plan::TaskId,
};

use super::{
    super::*,
    bench::{Bench, RUN, read},
};
use crate::{
    Recount, RunStatus, RunSummary, WorkerStatus, WorkersPart,
    ledger::{Confirmation, EntryKind, Recheck, Settings, Trust, TrustRecord, test_records},
};

impl Bench {
    /// Takes steps, and describes their outcomes.
    pub(super) fn steps(&mut self, steps: &str) -> String {
        let outcomes =
            steps.split(", ").map(|step| self.step(step)).filter(|outcome| !outcome.is_empty());
        outcomes.collect::<Vec<_>>().join("; ")
    }

    /// Takes one step and describes its outcome.
    fn step(&mut self, step: &str) -> String {
        let words: Vec<_> = step.split_whitespace().collect();
        let mut outcome = Vec::new();
        match (words[0].parse(), &words[1..]) {
            (Ok(id), [verb, words @ ..]) => outcome.extend(self.worker_step(id, verb, words)),
            (_, after) => outcome.extend(match words[0] {
                "wait" | "leap" | "drive" | "count-all" | "die" => self.pass(words[0], after),
                "referee" | "recount" | "recounts" | "settle" | "abandon" => {
                    self.referee_step(words[0], after)
                }
                verb => self.run_step(verb, after),
            }),
        }
        outcome.extend(self.decisions());
        outcome.retain(|part| !part.is_empty());
        outcome.join("; ")
    }

    fn worker_step(&mut self, id: u128, verb: &str, words: &[&str]) -> Vec<String> {
        let worker = self.worker(id).clone();
        let request = worker.request();
        let quiet = SyncRequest { seconds_wanted: 0.0, ..request.clone() };
        let request = match verb {
            "set" => {
                words.iter().for_each(|word| self.worker(id).set(word));
                return Vec::new();
            }
            "drop" | "keep" => {
                let tasks: Vec<_> = words.iter().map(|word| self.task(read(word))).collect();
                let keeps = |grant: &Grant| {
                    !tasks.is_empty() && tasks.contains(&grant.lease.task) == (verb == "keep")
                };
                self.worker(id).held.retain(keeps);
                return Vec::new();
            }
            "hold" => {
                let grants: Vec<_> = words.iter().map(|word| self.count(id, word).0).collect();
                self.worker(id).held.extend(grants);
                return Vec::new();
            }
            "finish" => return described(&self.finish(id)),
            // Each count in a separate call, without leases of these tasks.
            "submit" => {
                let counts: Vec<_> = words.iter().map(|word| self.count(id, word)).collect();
                let is_sent =
                    |grant: &Grant| counts.iter().any(|(of, _)| of.lease.task == grant.lease.task);
                self.worker(id).held.retain(|grant| !is_sent(grant));
                let mut all = SyncReply::default();
                for (grant, count) in counts {
                    let partials = vec![self.partial(id, &grant, count)];
                    let request = SyncRequest {
                        partials,
                        seconds_wanted: 0.0,
                        ..self.workers[&id].request()
                    };
                    let reply = self.call(id, &request);
                    all.acknowledgements.extend(reply.acknowledgements);
                    all.revoked.extend(reply.revoked);
                }
                return described(&all);
            }
            "sync" => request,
            // The worker never gets the reply.
            "lost" => {
                let reply = self.call(id, &request);
                self.workers.insert(id, worker);
                return described(&reply);
            }
            "names" => quiet,
            // The worker cannot count these tasks.
            "fails" => {
                let (failed, held): (Vec<_>, Vec<_>) =
                    quiet.held.iter().copied().partition(|held| {
                        words.iter().any(|word| held.lease.task.task == TaskId(read(word)))
                    });
                let failed: Vec<_> = failed
                    .into_iter()
                    .map(|held: HeldLease| HeldLease { failed: true, ..held })
                    .collect();
                let is_kept = |grant: &Grant| failed.iter().all(|gone| gone.lease != grant.lease);
                self.worker(id).held.retain(is_kept);
                SyncRequest { held: [failed, held].concat(), ..quiet }
            }
            "drains" => SyncRequest { draining: true, ..request },
            // Tasks for a package, seconds until its promised return, and the run.
            "packs" => {
                let package = PackageRequest {
                    run: words.get(2).map_or_else(String::new, |&run| run.to_owned()),
                    away_ms: ms(words[1]),
                    tasks: read(words[0]),
                    core_seconds: 1e9,
                };
                SyncRequest { package: Some(package), ..quiet }
            }
            "pauses" => SyncRequest { draining: true, paused: words.join(" "), ..quiet },
            // Failed threads, milliseconds for which counts are suspect, and counts.
            "tests" => {
                let suspect_window_ms = if words[1] == "all" { u64::MAX } else { read(words[1]) };
                let failed_threads = read(words[0]);
                let self_test =
                    SelfTestReport { failed_threads, suspect_window_ms, tests_passed: 0 };
                let partials = words[2..].iter().map(|word| {
                    let (grant, count) = self.count(id, word);
                    self.partial(id, &grant, count)
                });
                SyncRequest { self_test, partials: partials.collect(), ..quiet }
            }
            other => panic!("{other}"),
        };
        described(&self.call(id, &request))
    }

    /// Lets time pass.
    fn pass(&mut self, verb: &str, words: &[&str]) -> Option<String> {
        match verb {
            "wait" => self.wait(ms(words[0])),
            // The clock is set, forwards or backwards.
            "leap" => {
                self.now = match words[0].strip_prefix('-') {
                    Some(back) => self.now - ms(back),
                    None => self.now + ms(words[0]),
                };
                self.scheduler.advance(Millis(self.now));
            }
            "drive" => {
                let is_over = |bench: &mut Self| bench.scheduler.poll_finished().is_some();
                return Some(self.drive(words, true, is_over));
            }
            "count-all" => {
                let is_counted = |bench: &mut Self| {
                    let tasks = bench.run().tasks();
                    tasks.number(Stage::Done) == tasks.size()
                };
                return Some(self.drive(words, false, is_counted));
            }
            // Workers are lost one after the other, each with a task that it has started.
            _ => {
                let (task, ids) = words.split_first().unwrap();
                for id in ids {
                    let starts = format!("{id} keep {task}, {id} set wants=0 started, {id} sync");
                    self.steps(&format!("{id} sync, {starts}"));
                    self.wait(300_000);
                }
            }
        }
        None
    }

    /// Takes a step of the coordinator's referee.
    fn referee_step(&mut self, verb: &str, words: &[&str]) -> Option<String> {
        match verb {
            "referee" => {
                self.threads = read(words[0]);
                self.scheduler.set_referee(self.threads, 1 << 30);
            }
            "recount" => {
                let recount = self.assign(words == ["urgent"]);
                self.recounts.extend(recount);
                return Some(recount.map_or("nothing".to_owned(), |recount| recounted(&recount)));
            }
            "recounts" => {
                let mut groups = Grouped::default();
                while let Some(recount) = self.assign(false) {
                    let what = format!("{:?} {:?}", recount.purpose, recount.orientation);
                    groups.add(what.to_lowercase(), recount.task.to_string());
                    if words != ["begin"] {
                        self.settle(&recount, 0);
                    }
                }
                return Some(groups.lines().join(", "));
            }
            "settle" => {
                let Some(recount) = self.recounts.pop() else {
                    return Some("nothing is assigned".to_owned());
                };
                let (limit, truth) = (self.plan.task_limit(recount.task), self.truth(recount.task));
                let wrong = match words {
                    [] => 0,
                    ["most"] => limit - truth,
                    ["more"] => limit + 1 - truth,
                    [wrong, ..] => read(wrong),
                };
                self.settle(&recount, wrong);
            }
            _ => {
                let Some(recount) = self.recounts.pop() else {
                    return Some("nothing is assigned".to_owned());
                };
                self.scheduler.recount_abandoned(&recount, words == ["memory"]);
            }
        }
        None
    }

    /// Takes a step of an operator, or of the scheduler's owner.
    fn run_step(&mut self, verb: &str, words: &[&str]) -> Option<String> {
        let command = match verb {
            "pause" => Command::Pause,
            "resume" => Command::Resume,
            "cancel" => Command::Cancel,
            "retry" => Command::Unpark,
            "recheck" => Command::Recheck(read(words[0])),
            "priority" if words.is_empty() => {
                return Some(self.run().settings().priority.to_string());
            }
            "priority" => Command::Priority(read(words[0])),
            "bar" | "suspect" => {
                let failed = Trust::SelfTestFailed { from_unix_ms: 0 };
                let trust = if verb == "bar" { Trust::Barred } else { failed };
                let record = test_records::trust(read(words[0]), trust, 1_000);
                self.history.push(Change::Trust(record.clone()));
                self.scheduler.restore_trust(&record);
                return None;
            }
            "trust" => {
                let is_referee = words == ["referee"];
                self.scheduler.readmit(if is_referee { REFEREE } else { WorkerId(read(words[0])) });
                return None;
            }
            "drain" => return Some(self.scheduler.drain(WorkerId(read(words[0]))).to_string()),
            "restart" => {
                self.decisions();
                self.restart();
                return None;
            }
            "undo" => {
                self.scheduler.undo_command();
                return None;
            }
            "conclude" => {
                let state = self.scheduler.conclude(RUN, words == ["agrees"]);
                return Some(state.map_or("", RunState::name).to_owned());
            }
            "finished" => return Some(self.scheduler.poll_finished().is_some().to_string()),
            verb => return Some(self.shown(verb, words)),
        };
        let done = self.scheduler.control(RUN, command, Millis(self.now));
        Some(done.map_or_else(|error| error.to_string(), |state| state.name().to_owned()))
    }

    /// Describes a part of the state.
    fn shown(&self, what: &str, words: &[&str]) -> String {
        let status = self.status();
        match what {
            "state" => self.state(),
            "total" => self.total(),
            "why" => status.reason,
            "times" => format!(
                "counting {} s, waiting {} s, {:.6} done",
                status.run.counting_seconds, status.waiting_seconds, status.run.fraction_done
            ),
            "forecast" => {
                let eta = [status.run.eta_seconds, self.scheduler.snapshot().runs()[0].eta_seconds];
                let eta =
                    eta.map(|eta| eta.map_or("never".to_owned(), |eta| format!("in {eta:.1} s")));
                let total = status.estimate.map(|of| format!("total {} to {}, ", of.low, of.high));
                let total = total.unwrap_or_default();
                format!("{}, {total}{} so far", eta.join(" "), status.solutions_so_far)
            }
            "workers" => self.shown_workers(),
            "task" => self.shown_task(TaskId(read(words[0]))),
            "selected" => {
                let tasks = self.run().all_tasks().filter(|&task| self.run().is_selected(task));
                tasks.map(|task| task.to_string()).collect::<Vec<_>>().join(" ")
            }
            "next" => {
                let next = self.scheduler.next_timeout().map(|at| (at.0 - self.now) as f64 / 1e3);
                next.map_or("never".to_owned(), |seconds| format!("in {seconds} s"))
            }
            "record" => {
                let record = self.history.iter().rev().find_map(|change| match change {
                    Change::Recorded(entry) => Some(entry.bounded().record),
                    _ => None,
                });
                let record = record.unwrap();
                let own = env!("CARGO_PKG_VERSION");
                format!(
                    "task {} by {} of {} in {} us, after {} ms",
                    record.task,
                    record.principal,
                    match record.version == own {
                        true => "the coordinator's version".to_owned(),
                        false => format!("version {}", record.version),
                    },
                    record.duration_us,
                    record.elapsed_ms
                )
            }
            other => panic!("{other}"),
        }
    }

    /// Describes every number that is not zero.
    pub(super) fn state(&self) -> String {
        let RunStatus { run, rechecks, referee, .. } = self.status();
        let RunSummary { state, tasks, .. } = run;
        let levels = ["same_machine", "same_token", "other_token", "referee"];
        let levels = Confirmation::ALL[1..].iter().zip(levels);
        let confirmed = |&level| self.run().tasks().number_confirmed(level);
        let levels: Vec<_> = levels.map(|(level, name)| (confirmed(level), name)).collect();
        let all = [
            (tasks.pending, "pending"),
            (tasks.leased, "leased"),
            (tasks.parked, "parked"),
            (tasks.disputed, "disputed"),
            (tasks.done, "done"),
        ];
        let others = [
            (self.run().awaited_rechecks() as u64, "to be rechecked"),
            (rechecks.agreed, "agreed"),
            (rechecks.conflicts, "in conflict"),
            (referee.counting, "being recounted"),
            (referee.broken.into(), "broken referee"),
        ];
        let all = all.iter().chain(&levels).chain(&others).filter(|(number, _)| *number > 0);
        let all: Vec<_> = all.map(|(number, what)| format!("{number} {what}")).collect();
        let recheck = match self.run().recheck() {
            Recheck::Millionths(0) => String::new(),
            recheck => format!(", recheck {recheck}"),
        };
        format!("{}{recheck}: {}", state.name(), all.join(", "))
    }

    /// Describes the known workers: their states, leases and failed threads.
    fn shown_workers(&self) -> String {
        let all = WorkersPart::ById { after: None, most: usize::MAX };
        let shown = |worker: &WorkerStatus| {
            let mut text = format!("{} {}", worker.id.0, worker.state.name());
            for (number, what) in
                [(worker.leases, "leased"), (worker.failed_threads.into(), "failed")]
            {
                if number > 0 {
                    write!(text, " {number} {what}").unwrap();
                }
            }
            if let Some((task, ms)) = worker.current_task {
                write!(text, " on {task} for {} s", ms / 1_000).unwrap();
            }
            text
        };
        let workers = self.scheduler.snapshot().workers(&all, Millis(self.now)).workers;
        workers.iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    fn shown_task(&self, task: TaskId) -> String {
        let Some(view) = self.scheduler.snapshot().task_view(RUN, task, Millis(self.now)) else {
            return "none".to_owned();
        };
        let correctness = |count: u64| match count - self.truth(task) {
            0 => "right".to_owned(),
            wrong => format!("wrong by {wrong}"),
        };
        let mut parts = vec![view.state.name().to_owned()];
        parts.extend(view.count.map(correctness));
        parts.extend(view.workers.iter().map(|name| format!("by {name}")));
        parts.extend(view.confirmed_by.map(|by| format!("confirmed by {by}")));
        parts.extend(view.accepted_ms_ago.map(|ms| format!("{} s ago", ms / 1_000)));
        parts.extend((view.failed > 0).then(|| format!("{} failed", view.failed)));
        parts.extend(view.reports.into_iter().map(correctness));
        parts.join(", ")
    }

    /// Describes the decisions to be stored, except for leases and accepted counts.
    pub(super) fn decisions(&mut self) -> Vec<String> {
        let mut groups = Grouped::default();
        while let Some(change) = self.scheduler.poll_change() {
            let task = match &change {
                Change::Lease { task, .. } => task.to_string(),
                Change::Recorded(entry) => entry.record.task.to_string(),
                _ => String::new(),
            };
            let what = match &change {
                Change::Lease { event, .. } => match event {
                    LeaseEvent::Leased => None,
                    LeaseEvent::Released => Some("released".to_owned()),
                    LeaseEvent::Failed(worker) => Some(format!("failed by {}", name(*worker))),
                    LeaseEvent::Parked => Some("parked".to_owned()),
                    LeaseEvent::Unparked => Some("unparked".to_owned()),
                },
                Change::Recorded(entry) => (entry.kind != EntryKind::Accepted).then(|| {
                    format!("{:?} by {}", entry.kind, name(entry.record.worker)).to_lowercase()
                }),
                Change::State { state, .. } => Some(format!("run {}", state.name())),
                Change::Settings { settings: Settings { recheck, priority: 0 }, .. } => {
                    Some(format!("recheck {recheck}"))
                }
                Change::Settings { settings, .. } => {
                    Some(format!("priority {}", settings.priority))
                }
                Change::Trust(TrustRecord { worker, trust, reason, .. }) => {
                    Some(format!("{} {trust:?} ({reason})", name(*worker)))
                }
            };
            if let Some(what) = what {
                groups.add(what, task);
            }
            self.history.push(change);
        }
        groups.lines()
    }
}

/// Reads seconds, as milliseconds.
fn ms(word: &str) -> u64 {
    Duration::from_secs_f64(read(word)).as_millis().try_into().unwrap()
}

fn name(worker: WorkerId) -> String {
    if worker == REFEREE { "the referee".to_owned() } else { worker.0.to_string() }
}

fn recounted(recount: &Recount) -> String {
    let Recount { task, orientation, purpose, is_urgent, again, .. } = recount;
    let mut text = format!("{purpose:?} {task} {orientation:?}").to_lowercase();
    for (is_so, word) in [(*is_urgent, " urgent"), (*again, " again")] {
        text += if is_so { word } else { "" };
    }
    text
}

/// Describes a reply, except for its times.
fn described(reply: &SyncReply) -> Vec<String> {
    let mut groups = Grouped::default();
    for answer in &reply.acknowledgements {
        let verdict = format!("{:?}", answer.verdict).to_lowercase();
        let what = match answer.reason.as_str() {
            "" => verdict,
            reason => format!("{verdict} ({reason})"),
        };
        groups.add(what, answer.lease.task.task.to_string());
    }
    for gone in &reply.revoked {
        groups.add(format!("revoked ({})", gone.reason), gone.lease.task.task.to_string());
    }
    for grant in &reply.grants {
        let rotated = if grant.orientation == Orientation::Rotated { "r" } else { "" };
        let epoch = match grant.lease.epoch.0 {
            1 => String::new(),
            epoch => format!("@{epoch}"),
        };
        groups.add("granted".to_owned(), format!("{}{rotated}{epoch}", grant.lease.task.task));
    }
    let mut lines = groups.lines();
    lines.push(reply.reason.clone());
    lines.extend(reply.drain.then(|| "drain".to_owned()));
    lines.extend(reply.all_runs_finished.then(|| "all runs finished".to_owned()));
    lines
}

/// Tasks grouped by outcome.
#[derive(Default)]
struct Grouped(Vec<(String, Vec<String>)>);

impl Grouped {
    fn add(&mut self, what: String, task: String) {
        match self.0.iter_mut().find(|(known, _)| *known == what) {
            Some((_, tasks)) => tasks.push(task),
            None => self.0.push((what, vec![task])),
        }
    }

    /// Describes each group, with consecutive tasks as a range.
    fn lines(self) -> Vec<String> {
        let line = |(what, tasks): (String, Vec<String>)| {
            let mut ranges: Vec<(String, String)> = Vec::new();
            for task in tasks {
                let follows =
                    |last: &str| Some(last.parse::<u64>().ok()? + 1 == task.parse::<u64>().ok()?);
                match ranges.last_mut() {
                    Some((_, last)) if follows(last) == Some(true) => *last = task,
                    _ => ranges.push((task.clone(), task)),
                }
            }
            if ranges.len() > 30 {
                return format!("{what} {} tasks", ranges.len());
            }
            let range = |(first, last): (String, String)| match first == last {
                true => first,
                false => format!("{first}-{last}"),
            };
            let ranges = ranges.into_iter().map(range).collect::<Vec<_>>().join(" ");
            format!("{what} {ranges}").trim_end().to_owned()
        };
        self.0.into_iter().map(line).collect()
    }
}

const SCRIPTS: &str = include_str!("scripts.txt");

/// Takes the steps of a script; returns the script with their outcomes.
fn played(script: &str) -> String {
    // Shown if a step panics.
    println!("# {}", script.lines().next().unwrap());
    let settings: Vec<_> = script.lines().filter_map(|line| line.strip_prefix("with ")).collect();
    let mut bench = Bench::new(&settings);
    let mut actual = Vec::new();
    for (number, line) in script.lines().enumerate() {
        let is_step =
            number > 0 && !line.is_empty() && !line.starts_with("//") && !line.starts_with("with ");
        if !is_step {
            actual.push(line.to_owned());
            continue;
        }
        let step = line.split_once(" => ").map_or(line, |(step, _)| step);
        let (times, one) = step.split_once(" x ").unwrap_or(("1", step));
        let outcome = (0..read(times)).map(|_| bench.steps(one)).last().unwrap();
        actual.push(match outcome.as_str() {
            "" => step.to_owned(),
            outcome => format!("{step} => {outcome}"),
        });
    }
    actual.join("\n")
}

/// Compares the outcomes; `QUEENS_SCRIPTS=write` writes them instead.
#[test]
fn the_scheduler_follows_every_script() {
    let (head, scripts) = SCRIPTS.split_once("\n# ").unwrap();
    let played: Vec<_> = scripts.trim_end().split("\n\n# ").map(played).collect();
    let actual = format!("{head}\n# {}\n", played.join("\n\n# "));
    if std::env::var("QUEENS_SCRIPTS").is_ok_and(|mode| mode == "write") {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/scheduling/tests/scripts.txt");
        return std::fs::write(path, actual).unwrap();
    }
    let different =
        actual.split("\n\n# ").zip(SCRIPTS.split("\n\n# ")).filter(|(is, was)| is != was);
    let different: Vec<_> = different.map(|(is, _)| is).collect();
    assert!(different.is_empty(), "this happened:\n\n# {}", different.join("\n\n# "));
}
