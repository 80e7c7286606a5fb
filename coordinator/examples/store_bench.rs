//! Measures the disk store: durable records a second, and opening a large run after `kill -9`.
//!
//! `cargo run --release -p coordinator --example store_bench -- [TASKS [DIR]]`
//! fills a run of about TASKS tasks (1,000,000) in a new directory under DIR (the system's
//! temporary one; it must be on a disk, not in memory) and prints a table. With feature `postgres`,
//! `… -- postgres://… [TASKS]` does the same in an empty database.

use std::{
    error::Error,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use common::{
    board::Board,
    count::Orientation,
    kernel::KernelName,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    run::{Epoch, RunId, WorkerId},
};
use coordinator::store::{
    Change, DiskStore, Principal, Record, RunManifest, Store, TaskState, verify,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The driver's group commit.
const GROUP: usize = 128;
const RUN: RunId = RunId(1);

fn main() -> Outcome<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["fill", dir, tasks] => fill(Path::new(dir), tasks.parse()?),
        ["load", dir] => load(Path::new(dir)),
        #[cfg(feature = "postgres")]
        [url] if url.starts_with("postgres://") => database(url, 1_000_000),
        #[cfg(feature = "postgres")]
        [url, tasks] if url.starts_with("postgres://") => database(url, tasks.parse()?),
        [] => compare(1_000_000, &std::env::temp_dir()),
        [tasks] => compare(tasks.parse()?, &std::env::temp_dir()),
        [tasks, dir] => compare(tasks.parse()?, Path::new(dir)),
        _ => Err("usage: store_bench [TASKS [DIR]]".into()),
    }
}

fn compare(tasks: u64, parent: &Path) -> Outcome<()> {
    let dir = parent.join(format!("store-bench-{}", std::process::id()));
    fs::create_dir(&dir)?;
    let result = rates(&dir).and_then(|()| large(&dir.join("large"), tasks));
    fs::remove_dir_all(&dir)?;
    result
}

fn rates(dir: &Path) -> Outcome<()> {
    println!("| records in one apply | applies | durable records/s | ms/apply |");
    println!("|---:|---:|---:|---:|");
    for (group, applies) in [(1, 500), (16, 500), (GROUP, 300)] {
        let plan = plan_of(100_000)?;
        let mut store = DiskStore::open(&dir.join(format!("group-{group}")))?;
        store.create(&manifest(&plan))?;
        let tasks: Vec<_> = plan.handing_out_order().take(group * applies).collect();
        let leases: Vec<_> = tasks.iter().map(|task| leased(*task)).collect();
        for leases in leases.chunks(GROUP) {
            store.apply(leases)?;
        }
        let start = Instant::now();
        for tasks in tasks.chunks(group) {
            let group: Vec<_> = tasks.iter().map(|task| accepted(&plan, *task)).collect();
            store.apply(&group)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "| {group} | {applies} | {:.0} | {:.2} |",
            tasks.len() as f64 / seconds,
            1e3 * seconds / applies as f64
        );
    }
    let sync = bare_sync(&dir.join("bare"), 300)?;
    println!(
        "| (bare write of 48 kB + fdatasync) | 300 | | {:.2} |\n",
        sync.as_secs_f64() * 1e3
    );
    Ok(())
}

#[cfg(feature = "postgres")]
fn database(url: &str, tasks: u64) -> Outcome<()> {
    use coordinator::store::PgStore;

    let open = || {
        PgStore::open(url, "store_bench", &mut |_| {
            println!("waiting for a leader")
        })
    };
    let plan = plan_of(tasks)?;
    let mut store = open()?;
    store.create(&manifest(&plan))?;
    // One task is left open: the counts are invented, and a complete run's total is checked.
    let order: Vec<_> = plan.handing_out_order().skip(1).collect();
    let mut rest = order.as_slice();
    println!("| records in one apply | applies | durable records/s | ms/apply |");
    println!("|---:|---:|---:|---:|");
    for (group, applies) in [(1, 500), (16, 500), (GROUP, 300), (GROUP, usize::MAX)] {
        let (tasks, after) = rest.split_at(rest.len().min(group.saturating_mul(applies)));
        rest = after;
        let applies = tasks.len().div_ceil(group);
        let start = Instant::now();
        for tasks in tasks.chunks(group) {
            let group: Vec<_> = tasks.iter().map(|task| accepted(&plan, *task)).collect();
            store.apply(&group)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "| {group} | {applies} | {:.0} | {:.2} |",
            tasks.len() as f64 / seconds,
            1e3 * seconds / applies as f64
        );
    }
    drop(store);
    let start = Instant::now();
    let store = open()?;
    scan(&store, start.elapsed())
}

/// The mean time of what no store that keeps its word can save.
fn bare_sync(path: &Path, times: u32) -> io::Result<Duration> {
    let mut file = fs::File::create(path)?;
    let text = vec![b'x'; 48_000];
    let start = Instant::now();
    for _ in 0..times {
        file.write_all(&text)?;
        file.sync_data()?;
    }
    Ok(start.elapsed() / times)
}

fn large(dir: &Path, tasks: u64) -> Outcome<()> {
    let program = std::env::current_exe()?;
    let mut child = Command::new(&program)
        .args(["fill".as_ref(), dir.as_os_str(), tasks.to_string().as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("a pipe was asked for")?;
    let mut filled = String::new();
    BufReader::new(output).read_line(&mut filled)?;
    // Killed while it has the store open: what it did not hand to the system is lost.
    child.kill()?;
    child.wait()?;
    print!("filled, then killed: {filled}");
    for (name, prepare) in [
        ("opened after the kill", None),
        ("opened again", None),
        ("opened without sled", Some("db")),
    ] {
        if let Some(lost) = prepare {
            fs::remove_dir_all(dir.join(lost))?;
        }
        let loaded = Command::new(&program)
            .args(["load".as_ref(), dir.as_os_str()])
            .output()?;
        io::stderr().write_all(&loaded.stderr)?;
        print!("{name}: {}", String::from_utf8(loaded.stdout)?);
    }
    let journal = fs::metadata(journal(dir))?.len();
    println!(
        "journal {} MB, sled {} MB",
        journal >> 20,
        size(&dir.join("db"))? >> 20
    );
    let start = Instant::now();
    let report = verify(dir)?;
    println!(
        "verified {} lines in {:.2} s",
        report.runs[0].lines,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn fill(dir: &Path, tasks: u64) -> Outcome<()> {
    let plan = plan_of(tasks)?;
    let mut store = DiskStore::open(dir)?;
    store.create(&manifest(&plan))?;
    let start = Instant::now();
    // One task is left open: the counts are invented, and a complete run's total is checked.
    let order: Vec<_> = plan.handing_out_order().skip(1).collect();
    for tasks in order.chunks(GROUP) {
        let leases: Vec<_> = tasks.iter().map(|task| leased(*task)).collect();
        store.apply(&leases)?;
        let group: Vec<_> = tasks.iter().map(|task| accepted(&plan, *task)).collect();
        store.apply(&group)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} tasks leased and done in {seconds:.1} s, {:.0}/s, peak memory {} MB",
        order.len(),
        order.len() as f64 / seconds,
        peak_memory()? >> 20
    );
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn load(dir: &Path) -> Outcome<()> {
    let start = Instant::now();
    let store = DiskStore::open(dir)?;
    scan(&store, start.elapsed())
}

/// Reads every task of a store, and says how long that and opening it took.
fn scan(store: &dyn Store, opened: Duration) -> Outcome<()> {
    let mut done = 0u64;
    let start = Instant::now();
    store.scan(RUN, &mut |row| {
        done += u64::from(matches!(row.state, TaskState::Done { .. }));
    })?;
    println!(
        "{done} tasks done; open {:.2} s, scan {:.2} s, peak memory {} MB",
        opened.as_secs_f64(),
        start.elapsed().as_secs_f64(),
        peak_memory()? >> 20
    );
    Ok(())
}

/// A plan of at least so many tasks, and few more.
fn plan_of(tasks: u64) -> Outcome<Plan> {
    let spec = |task_cost| PlanSpec {
        board: Board::new(20).expect("a board"),
        layout: Layout::FirstRows,
        task_cost,
    };
    let (mut enough, mut too_few) = (1, u64::MAX / 2);
    while too_few - enough > 1 {
        let middle = enough.midpoint(too_few);
        match Plan::new(spec(middle)) {
            Ok(plan) if plan.tasks() < tasks => too_few = middle,
            _ => enough = middle,
        }
    }
    Ok(Plan::new(spec(enough))?)
}

fn manifest(plan: &Plan) -> RunManifest {
    RunManifest {
        run: RUN,
        spec: *plan.spec(),
        plan: plan.hash(),
        plan_version: plan.spec().version(),
        priority: 0,
        created_unix_ms: 1_700_000_000_000,
        key: None,
    }
}

fn leased(task: TaskId) -> Change {
    Change::Leased {
        run: RUN,
        task,
        worker: WorkerId(7),
        epoch: Epoch(1),
        until_unix_ms: 1_700_000_300_000,
    }
}

fn accepted(plan: &Plan, task: TaskId) -> Change {
    Change::Accepted(Record {
        run: RUN,
        task,
        epoch: Epoch(1),
        count: plan.task_limit(task) / 3,
        worker: WorkerId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
        principal: Principal::new(7, Some("lab-7")),
        version: "0.1.0".to_owned(),
        kernel: KernelName::Avx512,
        orientation: Orientation::Upright,
        duration_us: 61_000_000,
        accepted_unix_ms: 1_700_000_100_000,
        elapsed_ms: 100_000,
    })
}

fn journal(dir: &Path) -> PathBuf {
    dir.join("runs").join(RUN.to_string()).join("journal.jsonl")
}

fn size(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let data = entry?.metadata()?;
        bytes += if data.is_file() { data.len() } else { 0 };
    }
    Ok(bytes)
}

/// The most memory this process ever had in RAM, in bytes (Linux).
fn peak_memory() -> Outcome<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let words = line.ok_or("no VmHWM")?.split_whitespace().next();
    Ok(words.ok_or("no number")?.parse::<u64>()? << 10)
}
