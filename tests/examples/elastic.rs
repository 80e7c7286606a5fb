//! Cost of churn in a fleet of real processes, by wall time and by CPU time.
//! Compares the share of time in accepted counts while no worker leaves and while halves are replaced.
//! `cargo run --release -p tests --example elastic -- [WORKERS] [MINUTES] [SECONDS] [N]`
//!
//! WORKERS processes of one thread (by default one per core) count the board of N for MINUTES, then for the same
//! time while every SECONDS the older half of them gets SIGTERM and is replaced.

use std::{
    collections::VecDeque,
    process, thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tests::{
    cluster::{Cluster, journal},
    load::{argument, core_seconds},
    process::Process,
};

fn main() -> anyhow::Result<()> {
    let (workers, minutes) =
        (argument(0, thread::available_parallelism()?.get())?, argument(1, 10)?);
    let (seconds, n) = (argument(2, 60)?, argument(3, 23)?);
    let (span, every) = (Duration::from_secs(minutes * 60), Duration::from_secs(seconds));

    let cluster = Cluster::new(&["--n", &n.to_string(), "--no-http"]);
    let coordinator = cluster.start(&[]);
    let mut fleet = Fleet { cluster, workers: VecDeque::new(), started: 0 };
    (0..workers).for_each(|_| fleet.start_worker());
    // Start-up is not measured.
    for worker in &fleet.workers {
        worker.stderr_line("by method");
    }
    let (steady, _) = fleet.measure(span, span)?;
    println!("{workers} workers, N = {n}, {minutes} minutes each");
    println!("steady                 {}", steady.text());
    let (elastic, left) = fleet.measure(span, every)?;
    println!("half of it every {seconds:>3} s {}", elastic.text());
    println!("                       {left} left");
    let loss = |of: fn(&Usage) -> f64| 100.0 * (1.0 - of(&elastic) / of(&steady));
    println!(
        "cost of churn: {:.2} % of the fleet's time, {:.2} % of the work per core second, {:.2} % of \
         the work per second",
        loss(|usage| usage.first_counts / usage.thread_seconds),
        loss(|usage| usage.done / usage.core_seconds),
        loss(|usage| usage.done / usage.seconds),
    );
    fleet.check(coordinator)
}

/// Resources and results of a fleet since its start, or in a time span.
struct Usage {
    seconds: f64,
    thread_seconds: f64,
    core_seconds: f64,
    /// Seconds of accepted first counts.
    first_counts: f64,
    /// Seconds of rechecks that agreed.
    rechecks: f64,
    /// Finished part of the run's cost.
    done: f64,
}

impl Usage {
    fn text(&self) -> String {
        format!(
            "{:.2} % of its time in first counts, {:.2} % in rechecks; {:.1} core seconds, {:.3} % of the run",
            100.0 * self.first_counts / self.thread_seconds,
            100.0 * self.rechecks / self.thread_seconds,
            self.core_seconds,
            100.0 * self.done,
        )
    }
}

struct Fleet {
    cluster: Cluster,
    /// The oldest first.
    workers: VecDeque<Process>,
    started: usize,
}

impl Fleet {
    fn start_worker(&mut self) {
        self.started += 1;
        let arguments = ["--threads", "1", "--idle-timeout", "0"];
        let name = format!("worker-{}", self.started);
        let command = self.cluster.worker_command(&self.cluster.connection(), &name, &arguments);
        self.workers.push_back(Process::start(command));
    }

    /// Replaces half of the fleet per interval; returns usage and number of leavers.
    fn measure(&mut self, span: Duration, every: Duration) -> anyhow::Result<(Usage, usize)> {
        let (began, before) = (Instant::now(), self.usage()?);
        let workers = self.workers.len();
        let mut leaving = Vec::new();
        let mut next = every;
        while next < span {
            thread::sleep((began + next).saturating_duration_since(Instant::now()));
            next += every;
            for _ in 0..workers / 2 {
                let oldest = self.workers.pop_front().context("there is a fleet")?;
                oldest.signal("TERM");
                leaving.push(oldest);
                self.start_worker();
            }
        }
        thread::sleep((began + span).saturating_duration_since(Instant::now()));
        let left = leaving.len();
        leaving.into_iter().for_each(|worker| drop(worker.end().ok()));
        let after = self.usage()?;
        let seconds = began.elapsed().as_secs_f64();
        let usage = Usage {
            seconds,
            thread_seconds: workers as f64 * seconds,
            core_seconds: after.core_seconds - before.core_seconds,
            first_counts: after.first_counts - before.first_counts,
            rechecks: after.rechecks - before.rechecks,
            done: after.done - before.done,
        };
        Ok((usage, left))
    }

    fn usage(&self) -> anyhow::Result<Usage> {
        let (_, mut cores) = core_seconds(process::id()).context("no /proc")?;
        for worker in &self.workers {
            cores += core_seconds(worker.id()).context("a worker is gone")?.0;
        }
        let lines = journal(&self.cluster.data_dir());
        let seconds = |kind: &str| -> f64 {
            let lines = lines.iter().filter(|line| line["kind"] == kind);
            lines.map(|line| line["duration_us"].as_f64().unwrap_or(0.0) / 1e6).sum()
        };
        let done = self.status()["fraction_done"].as_f64().context("fraction_done")?;
        Ok(Usage {
            seconds: 0.0,
            thread_seconds: 0.0,
            core_seconds: cores,
            first_counts: seconds("accepted"),
            rechecks: seconds("confirmed"),
            done,
        })
    }

    fn status(&self) -> Value {
        self.cluster.queensctl(&["status", "--json"]).json()
    }

    /// Checks that nothing is parked or in conflict, and verifies the data directory.
    fn check(self, coordinator: Process) -> anyhow::Result<()> {
        let status = self.status();
        let number = |pointer: &str| status.pointer(pointer).and_then(Value::as_u64);
        let (parked, conflicts) = (number("/tasks/parked"), number("/rechecks/conflicts"));
        drop(self.workers);
        coordinator.terminate();
        let verified = self.cluster.verify().ok();
        println!("{parked:?} tasks parked, {conflicts:?} conflicts; verify: {}", verified.stdout);
        ensure!((parked, conflicts) == (Some(0), Some(0)), "something was lost: {status:#}");
        Ok(())
    }
}
