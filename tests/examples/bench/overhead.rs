//! Overhead of a cluster: `coordinator --local` compared with `worker count`.

use std::process::{self, Command};

use anyhow::Context as _;
use tests::{
    load::core_seconds,
    process::{Process, coordinator, worker},
};

/// Overhead of a cluster: `coordinator --local` compared with `worker count`.
#[derive(clap::Args)]
pub(super) struct Options {
    #[arg(default_value = "17")]
    n: String,
    #[arg(default_value = "rows")]
    method: String,
    #[arg(default_value = "2")]
    threads: String,
    #[arg(default_value_t = 5)]
    repeats: u32,
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let Options { n, method, threads, repeats } = options;
    let run = ["--n", n, "--method", method, "--threads", threads, "--json"];
    // A board of one task: the time from the creation of a run to its first record.
    let mut start_up = f64::INFINITY;
    for _ in 0..*repeats {
        let (seconds, _) =
            local(&["--n", "8", "--method", method, "--threads", threads, "--json"])?;
        start_up = start_up.min(seconds);
    }
    println!(
        "N = {n}, {method}, {threads} threads; the cluster's start-up of {start_up} s excluded"
    );
    println!("{:>24} {:>24}", "seconds", "seconds of one core");
    println!("{:>12}{:>12} {:>12}{:>12}", "alone", "cluster", "alone", "cluster");
    let mut least = [f64::INFINITY; 4];
    for _ in 0..*repeats {
        let alone = seconds(worker(&["count"]).args(run))?;
        let cluster = local(&run)?;
        let row = [alone.0, cluster.0 - start_up, alone.1, cluster.1];
        print_row(row);
        for (least, new) in least.iter_mut().zip(row) {
            *least = least.min(new);
        }
    }
    println!("minimum:");
    print_row(least);
    let [alone, cluster, alone_core, cluster_core] = least;
    println!(
        "{:>23.2}% {:>23.2}%",
        (cluster / alone - 1.0) * 100.0,
        (cluster_core / alone_core - 1.0) * 100.0
    );
    Ok(())
}

/// Returns the [`seconds`] of `coordinator --local` in a new data directory.
fn local(run: &[&str]) -> anyhow::Result<(f64, f64)> {
    let dir = tempfile::tempdir()?;
    let mut command = coordinator(run);
    command.args(["--local", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path().join("data"));
    seconds(&mut command)
}

fn print_row([alone, cluster, alone_core, cluster_core]: [f64; 4]) {
    println!("{alone:>12.3}{cluster:>12.3} {alone_core:>12.2}{cluster_core:>12.2}");
}

/// Returns the seconds that the program reports, and its CPU seconds.
/// A cluster reports the time from the creation of the run to its last record.
fn seconds(command: &mut Command) -> anyhow::Result<(f64, f64)> {
    let of_children = || core_seconds(process::id()).map_or(f64::NAN, |(_, children)| children);
    let before = of_children();
    let result = Process::run(command).json();
    let seconds = result["seconds"].as_f64();
    Ok((seconds.context("no seconds in the result")?, of_children() - before))
}
