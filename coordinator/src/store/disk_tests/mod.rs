//! What only a disk can do: be torn, altered, full, somebody else's, or at odds with itself.

mod damage;
mod directory;
mod failing;
mod model;
mod segments;

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use common::{plan::TaskId, run::RunId};
use proptest::prelude::*;

use super::{
    Change, DiskStore, MemoryStore, RunState, Store, StoreError, TaskRow, TaskState,
    conformance::{Bench, OnDisk, lines, manifest, record, rows},
    files::DataFiles,
    journal::{End, Medium},
    manifest as format,
    recover::{self, FoundRun},
    rows::Rows,
};
/// A closed directory with run 1, whose journal was written in the groups given.
fn closed(groups: &[&[Change]]) -> OnDisk {
    let mut disk = OnDisk::new();
    disk.store().create(&manifest(1)).unwrap();
    for group in groups {
        disk.store().apply(group).unwrap();
    }
    disk.close();
    disk
}

fn accepted(task: u64) -> Change {
    Change::Accepted(record(1, task, 1, task + 2))
}

fn journal_path(disk: &OnDisk) -> PathBuf {
    disk.dir()
        .join("runs")
        .join(RunId(1).to_string())
        .join("journal.jsonl")
}

fn found(disk: &OnDisk) -> FoundRun {
    let mut runs = recover::find_runs(&DataFiles::new(disk.dir())).unwrap();
    runs.remove(0)
}

fn walk(run: &FoundRun) -> Result<End, StoreError> {
    run.check(|_, _| Ok::<_, StoreError>(()))
}

fn done(store: &impl Store) -> Vec<u64> {
    rows(store, 1)
        .iter()
        .filter(|row| matches!(row.state, TaskState::Done { .. }))
        .map(|row| row.task.0)
        .collect()
}

/// The names beside `path` that start with its name and a suffix.
fn set_aside(path: &Path, suffix: &str) -> Vec<PathBuf> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let prefix = format!("{name}.{suffix}-");
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(&prefix)
        })
        .collect()
}
