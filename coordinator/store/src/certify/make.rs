//! Certification of a complete run.

use std::{collections::BTreeMap, path::Path};

use common::{
    messages::{
        hex,
        run::{RunId, WorkerId},
    },
    plan::{Plan, TaskId},
};
use scheduler::ledger::{Confirmation, Done, EntryKind, Fold, JournalEntry, TaskCount};

use crate::certify::{
    certificate::{Certificate, Check, Contributor, FORMAT, Levels, Recounts, Share},
    leaves::{self, Leaf, Origin, Subtree},
};
use crate::{Checks, RunState, VerifyError};

/// A certificate with its counts.
#[derive(Clone, Debug)]
pub struct Certified {
    pub text: String,
    /// The content of the file of counts.
    pub counts: Vec<u8>,
    pub certificate: Certificate,
}

/// A run that cannot be certified.
#[derive(Debug, thiserror::Error)]
pub enum CertifyError {
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error(
        "cannot certify run {run}: it is {}, with {done} of {total} tasks done, and not complete",
        .state.name()
    )]
    Partial { run: RunId, state: RunState, done: u64, total: u64 },
    #[error(
        "run {run} has no counts by '{contributor}'; give a contributor, or the name of its token, as `queensctl \
         credits` lists it"
    )]
    NoCounts { run: RunId, contributor: String },
}

/// Certifies a complete run of a data directory after verifying every line.
///
/// A personal certificate is that of the run with the counts of `contributor` only, a principal or a token.
pub fn certify(
    dir: &Path,
    run: RunId,
    contributor: Option<&str>,
) -> Result<Certified, CertifyError> {
    let mut shares = Shares::new();
    let (report, fold) = crate::verify_run(dir, run, &mut |entry| add(&mut shares, entry))?;
    let (state, done, total) = (report.state, report.tasks_done, report.evidence.tasks);
    let checks = report.checks.filter(|_| state == RunState::Complete);
    let Checks { counts, .. } = checks.ok_or(CertifyError::Partial { run, state, done, total })?;
    let manifest = &report.manifest;
    let plan = Plan::new(manifest.spec).expect("the run was verified");
    let leaves: Vec<_> = fold.done().map(|(task, done)| leaf(&plan, &fold, task, &done)).collect();
    let confirmed = Levels::of(&leaves);
    let contributors = Contributor::all(&leaves);
    for Leaf { first, .. } in &leaves {
        if let Some((share, _)) = shares.get_mut(&(first.worker, first.principal.clone())) {
            share.counts += 1;
        }
    }
    let parts: Vec<_> = leaves.into_iter().map(Subtree::Leaf).collect();
    let tree = (&manifest.spec, manifest.plan_version);
    let root = leaves::root(&parts, tree.0, tree.1).expect("without omitted parts");
    let checks = report.all_checks().into_iter().map(|check| Check {
        name: check.name.to_owned(),
        outcome: check.outcome.name().to_owned(),
        reason: check.reason,
    });
    let certificate = Certificate {
        format: FORMAT,
        n: manifest.spec.board.n(),
        run: run.to_string(),
        created_unix_ms: manifest.created_unix_ms,
        layout: manifest.spec.layout.name().to_owned(),
        task_cost: manifest.spec.task_cost,
        plan_version: manifest.plan_version,
        plan_hash: manifest.plan.to_string(),
        solutions: report.solutions.to_string(),
        fundamental: counts.map(|counts| counts.fundamental().to_string()),
        half_turn: counts.map(|counts| counts.half_turn().to_string()),
        quarter_turn: counts.map(|counts| counts.quarter_turn().to_string()),
        seconds: report.elapsed_ms as f64 / 1000.0,
        checks: checks.collect(),
        confirmed,
        recounts: report.evidence.at_most_wrong().map(|at_most_wrong| Recounts {
            random: report.evidence.sample.recounts,
            wrong: report.evidence.sample.wrong,
            at_most_wrong,
        }),
        workers: shares
            .into_values()
            .map(|(share, duration_us)| Share { core_seconds: duration_us / 1_000_000, ..share })
            .collect(),
        contributors,
        counts: parts.len() as u64,
        merkle_root: hex::encode(&root),
        program: concat!("queensctl ", env!("CARGO_PKG_VERSION")).to_owned(),
        public_key: String::new(),
    };
    let secret = crate::signing_key(dir).map_err(VerifyError::from)?;
    let text = certificate.sign(&secret);
    let certificate = Certificate::read(&text).expect("the text was just signed");
    let parts = match contributor {
        None => parts,
        Some(contributor) => {
            let mut own = Vec::new();
            leaves::keep(&parts, &|leaf| leaf.is_by(contributor), tree, &mut own);
            if own.iter().all(|part| part.leaf().is_none()) {
                return Err(CertifyError::NoCounts { run, contributor: contributor.to_owned() });
            }
            own
        }
    };
    Ok(Certified { text, counts: leaves::encode(&parts), certificate })
}

fn leaf(plan: &Plan, fold: &Fold, task: TaskId, done: &Done) -> Leaf {
    // The referee's count is the second, or the only one.
    let by_referee = done.confirmed == Confirmation::Referee;
    let second = done.second();
    Leaf {
        units: plan.task_units(task),
        count: done.first.count,
        first: origin(fold, &done.first, by_referee && second.is_none()),
        second: second.map(|second| origin(fold, &second, by_referee)),
    }
}

/// The contributions of workers, and their core time in microseconds.
type Shares = BTreeMap<(WorkerId, String), (Share, u64)>;

/// Adds the next line of the journal to the share of its worker.
fn add(shares: &mut Shares, JournalEntry { kind, record }: &JournalEntry) {
    let principal = record.principal.to_string();
    let key = (record.worker, principal.clone());
    let (share, duration_us) = shares.entry(key).or_insert_with(|| {
        (Share { worker: record.worker.to_string(), principal, ..Share::default() }, 0)
    });
    add_text(&mut share.kernels, record.kernel.as_str());
    if !record.version.is_empty() {
        add_text(&mut share.versions, &record.version);
    }
    match kind {
        EntryKind::Accepted => *duration_us = duration_us.saturating_add(record.duration_us),
        EntryKind::Confirmed | EntryKind::Settled => share.confirmed += 1,
        EntryKind::Disputed | EntryKind::Recounted | EntryKind::Voided => {}
    }
}

/// Inserts a text into a sorted list unless the list contains it.
fn add_text(sorted: &mut Vec<String>, text: &str) {
    if let Err(place) = sorted.binary_search_by(|known| known.as_str().cmp(text)) {
        sorted.insert(place, text.to_owned());
    }
}

fn origin(fold: &Fold, of: &TaskCount, referee: bool) -> Origin {
    let (worker, principal) = fold.author(of.author);
    Origin {
        worker: *worker,
        principal: principal.to_string(),
        kernel: of.kernel,
        orientation: of.orientation,
        referee,
    }
}
