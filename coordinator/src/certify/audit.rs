//! What anybody can find out about a certificate, without a coordinator.

use std::{
    num::NonZeroU16,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use common::{
    count::{Counter, Orientation, Setup, Unwatched},
    kernel::Kernel,
    method::Method,
    plan::Plan,
    tally,
};
use rand::{SeedableRng as _, rngs::StdRng, seq::index};

use super::{
    certificate::{BadCertificate, Certificate},
    leaves::{self, BadCounts, Leaf},
};
use crate::{
    checks::most_wrong,
    text::{plural, thousands},
};

/// How to audit.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// Counts to be made again; all if there are fewer.
    pub tasks: u64,
    /// By what they are drawn.
    pub seed: u64,
    /// The key that the coordinator printed, if it is known here.
    pub key: Option<String>,
    /// The instruction set.
    pub kernel: Kernel,
    /// Threads that count.
    pub threads: NonZeroU16,
    /// The most memory that counting may use, in bytes.
    pub memory_bytes: u64,
}

/// What one part of an audit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// How that came out.
    pub outcome: Outcome,
    /// In words.
    pub text: String,
}

/// How a part of an audit came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is right.
    Passed,
    /// It is wrong.
    Failed,
    /// It could not be looked at.
    NotPossible,
}

/// A certificate that cannot be audited at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    /// The text.
    #[error(transparent)]
    Certificate(#[from] BadCertificate),
    /// The counts.
    #[error("the counts: {0}")]
    Counts(#[from] BadCounts),
}

fn finding(name: &'static str, right: Result<String, String>) -> Finding {
    let (outcome, text) = match right {
        Ok(text) => (Outcome::Passed, text),
        Err(text) => (Outcome::Failed, text),
    };
    Finding {
        name,
        outcome,
        text,
    }
}

/// What an audit tells as it goes on.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// What was signed, once its signature is known to be right: what it says of the result is the
    /// coordinator's word.
    Signed(&'a Certificate),
    /// What was found here.
    Found(&'a Finding),
}

/// Checks the signature and the tree, and counts tasks drawn at random again. `told` hears of every
/// part as it comes.
pub fn audit(
    (text, counts): (&str, &[u8]),
    options: &AuditOptions,
    told: &mut dyn FnMut(Part<'_>),
) -> Result<Outcome, AuditError> {
    let certificate = Certificate::read(text)?;
    let leaves = leaves::decode(counts)?;
    told(Part::Signed(&certificate));
    let mut worst = Outcome::Passed;
    let mut tell = |finding: Finding| {
        if finding.outcome == Outcome::Failed {
            worst = Outcome::Failed;
        }
        told(Part::Found(&finding));
    };
    tell(signature(&certificate, options));
    let spec = certificate.spec()?;
    tell(tree(&certificate, &leaves)?);
    tell(sum(&certificate, &leaves));
    match Plan::new(spec) {
        Ok(plan) if Ok(plan.hash()) == certificate.plan() => {
            let gap = leaves::gap(&leaves, &plan);
            let whole = gap.is_none();
            let units = plural(plan.units(), "unit");
            let covered = format!("the counts are of all {units} of the plan, each once");
            tell(finding("cover", gap.map_or(Ok(covered), Err)));
            // Other units may not even be there to be counted.
            if whole {
                tell(recount(&plan, &leaves, options));
            }
        }
        _ => tell(Finding {
            name: "recount",
            outcome: Outcome::NotPossible,
            text: format!(
                "the plan is of version {} of its rules, this program makes version {}: take the \
                 program that made the certificate, {}",
                certificate.plan_version,
                spec.version(),
                certificate.program
            ),
        }),
    }
    Ok(worst)
}

fn signature(certificate: &Certificate, options: &AuditOptions) -> Finding {
    let key = &certificate.public_key;
    finding(
        "signature",
        match &options.key {
            Some(expected) if expected == key => Ok(format!("good, by the key given, {key}")),
            Some(expected) => Err(format!("by key {key}, not by {expected}")),
            None => Ok(format!(
                "good, by key {key}: whose it is, only the coordinator's own words can tell"
            )),
        },
    )
}

fn tree(certificate: &Certificate, leaves: &[Leaf]) -> Result<Finding, BadCertificate> {
    let spec = certificate.spec()?;
    let root = leaves::root(leaves, &spec, certificate.plan_version);
    let right = root == certificate.root()? && leaves.len() as u64 == certificate.counts;
    Ok(finding(
        "tree",
        match right {
            true => Ok(format!(
                "{}: they are the ones that were signed",
                plural(certificate.counts, "count")
            )),
            false => Err("the counts are not the ones that were signed".to_owned()),
        },
    ))
}

fn sum(certificate: &Certificate, leaves: &[Leaf]) -> Finding {
    let total = tally::total(leaves.iter().map(|leaf| leaf.count));
    finding(
        "sum",
        match total {
            Ok(total) if total.to_string() == certificate.solutions => {
                Ok(format!("{} solutions, as certified", thousands(total)))
            }
            Ok(total) => Err(format!(
                "the counts add up to {total}, not to {}",
                certificate.solutions
            )),
            Err(error) => Err(error.to_string()),
        },
    )
}

/// Counts tasks drawn at random again, turned where they were counted upright.
fn recount(plan: &Plan, leaves: &[Leaf], options: &AuditOptions) -> Finding {
    let wanted = usize::try_from(options.tasks).unwrap_or(usize::MAX);
    let mut rng = StdRng::seed_from_u64(options.seed);
    let mut drawn = index::sample(&mut rng, leaves.len(), wanted.min(leaves.len())).into_vec();
    drawn.sort_unstable();
    let wrong = match count_again(plan, (leaves, &drawn), options) {
        Ok(wrong) => wrong,
        Err(why) => {
            return Finding {
                name: "recount",
                outcome: Outcome::NotPossible,
                text: why,
            };
        }
    };
    let (all, again) = (leaves.len() as u64, drawn.len() as u64);
    let what = format!(
        "{} of {}, drawn with --seed {} and counted the other way round on {}",
        thousands(again.into()),
        plural(all, "count"),
        options.seed,
        options.kernel
    );
    finding(
        "recount",
        match wrong.first() {
            None => Ok(format!(
                "{what}: all agree; with 95 % confidence at most {} of the other {} are wrong",
                thousands(most_wrong(all - again, again).into()),
                thousands((all - again).into())
            )),
            Some((at, count)) => Err(format!(
                "{what}: {} wrong, the first of units {:?}: {} certified, {count} here",
                wrong.len(),
                leaves[*at].units,
                leaves[*at].count
            )),
        },
    )
}

/// Those of the leaves drawn whose count is another one here.
fn count_again(
    plan: &Plan,
    (leaves, drawn): (&[Leaf], &[usize]),
    options: &AuditOptions,
) -> Result<Vec<(usize, u64)>, String> {
    // Frames are counted by all threads together, one after the other, in one memory; prefixes by
    // each thread on its own.
    let (lanes, crew) = match plan.spec().layout.method() {
        Method::Rows => (options.threads.get(), NonZeroU16::MIN),
        Method::Frames => (1, options.threads),
    };
    let setup = Setup {
        kernel: options.kernel,
        threads: crew,
        memory_bytes: options.memory_bytes / u64::from(lanes),
        orientation: Orientation::Upright,
    };
    // Those of one orientation together: a counter is made for one.
    let mut order = drawn.to_vec();
    order.sort_by_key(|&at| leaves[at].first.orientation == Orientation::Turned);
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    let lane = || -> Result<(), String> {
        let mut counter = None;
        while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let leaf = &leaves[at];
            let count = other_way_round(plan, &setup, (leaf, &mut counter))?;
            if count != leaf.count {
                let mut wrong = wrong.lock().expect("no lane panics");
                wrong.push((at, count));
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        lanes
            .into_iter()
            .try_for_each(|lane| lane.join().expect("counting does not panic"))
    })?;
    let mut wrong = wrong.into_inner().expect("no lane panics");
    wrong.sort_unstable();
    Ok(wrong)
}

/// Counts the units of a leaf through the other data than it was counted.
fn other_way_round(
    plan: &Plan,
    setup: &Setup,
    (leaf, counter): (&Leaf, &mut Option<(Orientation, Counter)>),
) -> Result<u64, String> {
    let orientation = match leaf.first.orientation {
        Orientation::Upright => Orientation::Turned,
        Orientation::Turned => Orientation::Upright,
    };
    let made = match counter.take() {
        Some((made_for, made)) if made_for == orientation => made,
        _ => {
            let setup = Setup {
                orientation,
                ..*setup
            };
            Counter::new(plan, &setup).map_err(|error| error.to_string())?
        }
    };
    let (_, counter) = counter.insert((orientation, made));
    counter
        .count(leaf.units.clone(), &Unwatched)
        .map_err(|error| format!("units {:?}: {error}", leaf.units))
}
