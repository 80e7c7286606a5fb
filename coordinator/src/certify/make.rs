//! From a data directory to a certificate.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use common::{
    run::{RunId, WorkerId},
    tally::Counts,
};

use super::{
    certificate::{Certificate, Check, Share, hex},
    leaves::{self, How, Leaf},
};
use crate::{
    checks,
    ledger::{JournalEntry, Record, SymmetricCounts},
    store::{self, Checks, RunReport, VerifyError},
};

/// A certificate with the counts that it is of.
#[derive(Clone, Debug)]
pub struct Certified {
    /// The signed text.
    pub text: String,
    /// The file of counts.
    pub counts: Vec<u8>,
    /// What the text says.
    pub certificate: Certificate,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertifyError {
    /// The directory cannot be read, or is not right.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// Not all is counted.
    #[error(
        "run {run} has {done} of {total} tasks: only a whole run is certified; count it to its end \
         first"
    )]
    Partial {
        /// The run.
        run: RunId,
        /// Tasks that are counted.
        done: u64,
        /// All.
        total: u64,
    },
}

/// Certifies a whole run of a data directory, after every line of it was checked.
pub fn certify(dir: &Path, run: RunId) -> Result<Certified, CertifyError> {
    let mut tally = Tally::default();
    let report = store::verify_run(dir, run, &mut |units, entry| tally.take(units, entry))?;
    let partial = || CertifyError::Partial {
        run,
        done: report.tasks_done,
        total: report.tasks_total,
    };
    let checked = report.checks.ok_or_else(partial)?;
    let kept = store::kept_symmetric(dir, run).map_err(VerifyError::from)?;
    let symmetric = symmetric(&checked, kept);
    let leaves: Vec<_> = tally.leaves.into_values().collect();
    let manifest = &report.manifest;
    let counts = symmetric
        .and_then(|symmetric| {
            let SymmetricCounts {
                half_turn,
                quarter_turn,
            } = symmetric;
            Counts::new(report.solutions, half_turn, quarter_turn).ok()
        })
        .or(checked.counts);
    let certificate = Certificate {
        format: Certificate::FORMAT,
        n: manifest.spec.board.n(),
        run: run.to_string(),
        created_unix_ms: manifest.created_unix_ms,
        layout: manifest.spec.layout.name().to_owned(),
        task_cost: manifest.spec.task_cost,
        plan_version: manifest.plan_version,
        plan_hash: manifest.plan.to_string(),
        solutions: report.solutions.to_string(),
        unique: counts.map(|counts| counts.unique().to_string()),
        half_turn: counts.map(|counts| counts.half_turn().to_string()),
        quarter_turn: counts.map(|counts| counts.quarter_turn().to_string()),
        seconds: report.elapsed_ms as f64 / 1000.0,
        checks: checks(&report, counts.as_ref()),
        workers: tally.shares.into_values().map(Sum::share).collect(),
        counts: leaves.len() as u64,
        merkle_root: hex(&leaves::root(
            &leaves,
            &manifest.spec,
            manifest.plan_version,
        )),
        program: concat!("queensctl ", env!("CARGO_PKG_VERSION")).to_owned(),
        public_key: String::new(),
    };
    let secret = store::signing_key(dir).map_err(VerifyError::from)?;
    let text = certificate.sign(&secret);
    let certificate = Certificate::read(&text).expect("it was signed just now");
    Ok(Certified {
        text,
        counts: leaves::encode(&leaves),
        certificate,
    })
}

fn symmetric(checked: &Checks, kept: Option<SymmetricCounts>) -> Option<SymmetricCounts> {
    let counts = checked.counts.map(|counts| SymmetricCounts {
        half_turn: counts.half_turn(),
        quarter_turn: counts.quarter_turn(),
    });
    counts.or(kept)
}

/// Everything that the journal says of the counts that stand.
#[derive(Default)]
struct Tally {
    /// By first unit.
    leaves: BTreeMap<u64, Leaf>,
    shares: BTreeMap<(WorkerId, String), Sum>,
}

/// What one worker gave, as it comes.
#[derive(Clone, Default)]
struct Sum {
    worker: Option<WorkerId>,
    principal: String,
    kernels: BTreeSet<&'static str>,
    versions: BTreeSet<String>,
    counts: u64,
    confirmed: u64,
    duration_us: u64,
}

impl Tally {
    /// Takes the next line; lines come in the order of the journal, whose grammar was checked.
    fn take(&mut self, units: std::ops::Range<u64>, entry: &JournalEntry) {
        match entry {
            JournalEntry::Accepted(record) => {
                let share = self.share(record);
                share.counts += 1;
                share.duration_us = share.duration_us.saturating_add(record.duration_us);
                let leaf = Leaf {
                    units: units.clone(),
                    count: record.count,
                    first: how(record),
                    second: None,
                };
                self.leaves.insert(units.start, leaf);
            }
            JournalEntry::Confirmed(record) => {
                self.share(record).confirmed += 1;
                if let Some(leaf) = self.leaves.get_mut(&units.start) {
                    let better = |second: &How| second.principal == leaf.first.principal;
                    // Another machine's word says more than the same one's.
                    if leaf.second.as_ref().is_none_or(better) {
                        leaf.second = Some(how(record));
                    }
                }
            }
            JournalEntry::Quarantined(_) => {
                if let Some(leaf) = self.leaves.remove(&units.start) {
                    let of = (leaf.first.worker, leaf.first.principal);
                    if let Some(share) = self.shares.get_mut(&of) {
                        share.counts -= 1;
                    }
                }
            }
        }
    }

    fn share(&mut self, record: &Record) -> &mut Sum {
        let of = (record.worker, record.principal.to_string());
        let share = self.shares.entry(of).or_insert_with(|| Sum {
            worker: Some(record.worker),
            principal: record.principal.to_string(),
            ..Sum::default()
        });
        share.kernels.insert(record.kernel.as_str());
        share.versions.insert(record.version.clone());
        share
    }
}

impl Sum {
    fn share(self) -> Share {
        Share {
            worker: self
                .worker
                .map(|worker| worker.to_string())
                .unwrap_or_default(),
            principal: self.principal,
            kernels: self.kernels.into_iter().map(str::to_owned).collect(),
            versions: self.versions.into_iter().collect(),
            counts: self.counts,
            confirmed: self.confirmed,
            core_seconds: self.duration_us / 1_000_000,
        }
    }
}

fn how(record: &Record) -> How {
    How {
        worker: record.worker,
        principal: record.principal.to_string(),
        kernel: record.kernel,
        orientation: record.orientation,
    }
}

/// What the result proves, in the words in which the coordinator tells it. None of it failed:
/// otherwise there is no certificate.
fn checks(report: &RunReport, counts: Option<&Counts>) -> Vec<Check> {
    let board = report.manifest.spec.board;
    let published = report.checks.is_some_and(|checked| checked.published);
    let symmetric = counts.copied().map(Ok);
    let proofs = [
        checks::of_counts(&report.evidence),
        checks::of_journal(report.lines, report.tasks_done),
        checks::of_total(board, symmetric.as_ref(), published.then_some(true)),
        vec![report.canaries.clone(), checks::of_independence()],
    ];
    let stated = |proof: checks::Check| Check {
        name: proof.name.to_owned(),
        outcome: proof.outcome.name().to_owned(),
        reason: proof.reason,
    };
    proofs.into_iter().flatten().map(stated).collect()
}
