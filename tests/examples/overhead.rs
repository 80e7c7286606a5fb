//! What the cluster costs: `coordinator --local` against `worker count` on the same run.
//!
//! `cargo run --release -p tests --example overhead -- [N] [METHOD] [THREADS] [REPEATS]`

use std::{
    env,
    process::{self, Command},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tests::{binaries::binaries, load::core_seconds, process::Process};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let argument = |place: usize, usual: &str| {
        let given = arguments.get(place);
        given.cloned().unwrap_or_else(|| usual.to_owned())
    };
    let (n, method, threads) = (argument(0, "17"), argument(1, "rows"), argument(2, "2"));
    let repeats: u32 = argument(3, "5").parse().context("REPEATS")?;
    let run = [
        "--n",
        &n,
        "--method",
        &method,
        "--threads",
        &threads,
        "--json",
    ];
    // A board of one task: from the creation of the run over the server, the worker and its first
    // call to the record.
    let mut start_up = f64::INFINITY;
    for _ in 0..repeats {
        let (seconds, _) = local(&[
            "--n",
            "8",
            "--method",
            &method,
            "--threads",
            &threads,
            "--json",
        ])?;
        start_up = start_up.min(seconds);
    }
    println!(
        "N = {n}, {method}, {threads} threads; the cluster's start-up of {start_up} s excluded"
    );
    println!("{:>24} {:>24}", "seconds", "seconds of one core");
    println!(
        "{:>12}{:>12} {:>12}{:>12}",
        "alone", "cluster", "alone", "cluster"
    );
    let mut least = [f64::INFINITY; 4];
    for _ in 0..repeats {
        let mut count = Command::new(&binaries().worker);
        let alone = seconds("worker count", count.arg("count").args(run))?;
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

/// `coordinator --local` in a new data directory.
fn local(run: &[&str]) -> anyhow::Result<(f64, f64)> {
    let dir = tempfile::tempdir()?;
    let mut command = Command::new(&binaries().coordinator);
    command
        .args(run)
        .args(["--local", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path().join("data"));
    seconds("coordinator --local", &mut command)
}

fn print_row([alone, cluster, alone_core, cluster_core]: [f64; 4]) {
    println!("{alone:>12.3}{cluster:>12.3} {alone_core:>12.2}{cluster_core:>12.2}");
}

/// What the program says it took, without its start (in a cluster from the creation of the run to
/// its last accepted record), and the time of one core that it used in all.
fn seconds(name: &str, command: &mut Command) -> anyhow::Result<(f64, f64)> {
    let of_children = || core_seconds(process::id()).map_or(f64::NAN, |(_, children)| children);
    let before = of_children();
    let end = Process::run(name, command);
    ensure!(end.code == Some(0), "{end:#?}");
    let result: Value = serde_json::from_str(&end.stdout)?;
    let seconds = result["seconds"].as_f64();
    Ok((
        seconds.context("no seconds in the result")?,
        of_children() - before,
    ))
}
