//! What the cluster costs: `coordinator --local` against `worker count` on the same run.
//!
//! `cargo run --release -p tests --example overhead -- [N] [METHOD] [THREADS] [REPEATS]`

use std::{env, process::Command};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tests::{binaries::binaries, process::Process};

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
    let (mut alone, mut cluster) = (f64::INFINITY, f64::INFINITY);
    println!("N = {n}, {method}, {threads} threads: seconds");
    println!("{:>12} {:>12}", "alone", "cluster");
    for _ in 0..repeats {
        let mut count = Command::new(&binaries().worker);
        let one = seconds("worker count", count.arg("count").args(run))?;
        let dir = tempfile::tempdir()?;
        let mut local = Command::new(&binaries().coordinator);
        local
            .args(run)
            .args(["--local", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir.path().join("data"));
        let other = seconds("coordinator --local", &mut local)?;
        println!("{one:>12.3} {other:>12.3}");
        (alone, cluster) = (alone.min(one), cluster.min(other));
    }
    println!(
        "{alone:>12.3} {cluster:>12.3}  minimum: {:+.2} %",
        (cluster / alone - 1.0) * 100.0
    );
    Ok(())
}

/// What the program says it took, without its start: in a cluster from the creation of the run to
/// its last accepted record.
fn seconds(name: &str, command: &mut Command) -> anyhow::Result<f64> {
    let end = Process::run(name, command);
    ensure!(end.code == Some(0), "{end:#?}");
    let result: Value = serde_json::from_str(&end.stdout)?;
    result["seconds"]
        .as_f64()
        .context("no seconds in the result")
}
