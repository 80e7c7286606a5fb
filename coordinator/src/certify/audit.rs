//! What anybody can find out about a certificate, without a coordinator.

use std::{
    num::NonZeroU16,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use common::{
    count::{CountError, Counter, Orientation, Setup, SetupError, Unwatched},
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

/// Why counts cannot be made again here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum NoRecount {
    /// Not with this much memory.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Some units have no count.
    #[error("units {units:?}: {error}")]
    Units {
        /// Of the plan.
        units: Range<u64>,
        /// What the counter says.
        error: CountError,
    },
}

impl Finding {
    fn new(name: &'static str, outcome: Outcome, text: String) -> Self {
        Self {
            name,
            outcome,
            text,
        }
    }

    fn passed(name: &'static str, text: String) -> Self {
        Self::new(name, Outcome::Passed, text)
    }

    fn failed(name: &'static str, text: String) -> Self {
        Self::new(name, Outcome::Failed, text)
    }

    fn not_possible(name: &'static str, text: String) -> Self {
        Self::new(name, Outcome::NotPossible, text)
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
            // Other units may not even be there to be counted.
            if let Some(gap) = leaves::gap(&leaves, &plan) {
                tell(Finding::failed("cover", gap));
            } else {
                let units = plural(plan.units(), "unit");
                let covered = format!("the counts are of all {units} of the plan, each once");
                tell(Finding::passed("cover", covered));
                tell(recount(&plan, &leaves, options));
            }
        }
        _ => {
            let other = format!(
                "the plan is of version {} of its rules, this program makes version {}: take the \
                 program that made the certificate, {}",
                certificate.plan_version,
                spec.version(),
                certificate.program
            );
            tell(Finding::not_possible("recount", other));
        }
    }
    Ok(worst)
}

fn signature(certificate: &Certificate, options: &AuditOptions) -> Finding {
    const NAME: &str = "signature";
    let key = &certificate.public_key;
    match &options.key {
        Some(expected) if expected == key => {
            Finding::passed(NAME, format!("good, by the key given, {key}"))
        }
        Some(expected) => Finding::failed(NAME, format!("by key {key}, not by {expected}")),
        None => Finding::passed(
            NAME,
            format!("good, by key {key}: whose it is, only the coordinator's own words can tell"),
        ),
    }
}

fn tree(certificate: &Certificate, leaves: &[Leaf]) -> Result<Finding, BadCertificate> {
    let spec = certificate.spec()?;
    let root = leaves::root(leaves, &spec, certificate.plan_version);
    let right = root == certificate.root()? && leaves.len() as u64 == certificate.counts;
    let counts = plural(certificate.counts, "count");
    Ok(match right {
        true => Finding::passed(
            "tree",
            format!("{counts}: they are the ones that were signed"),
        ),
        false => Finding::failed(
            "tree",
            "the counts are not the ones that were signed".to_owned(),
        ),
    })
}

fn sum(certificate: &Certificate, leaves: &[Leaf]) -> Finding {
    match tally::total(leaves.iter().map(|leaf| leaf.count)) {
        Ok(total) if total.to_string() == certificate.solutions => {
            let solutions = thousands(total);
            Finding::passed("sum", format!("{solutions} solutions, as certified"))
        }
        Ok(total) => {
            let certified = &certificate.solutions;
            let sum = format!("the counts add up to {total}, not to {certified}");
            Finding::failed("sum", sum)
        }
        Err(error) => Finding::failed("sum", error.to_string()),
    }
}

/// Counts tasks drawn at random again, turned where they were counted upright.
fn recount(plan: &Plan, leaves: &[Leaf], options: &AuditOptions) -> Finding {
    let wanted = usize::try_from(options.tasks).unwrap_or(usize::MAX);
    let mut rng = StdRng::seed_from_u64(options.seed);
    let mut drawn = index::sample(&mut rng, leaves.len(), wanted.min(leaves.len())).into_vec();
    drawn.sort_unstable();
    let wrong = match count_again(plan, (leaves, &drawn), options) {
        Ok(wrong) => wrong,
        Err(why) => return Finding::not_possible("recount", why.to_string()),
    };
    let (all, again) = (leaves.len() as u64, drawn.len() as u64);
    let what = format!(
        "{} of {}, drawn with --seed {} and counted the other way round on {}",
        thousands(again.into()),
        plural(all, "count"),
        options.seed,
        options.kernel
    );
    match wrong.first() {
        None => Finding::passed(
            "recount",
            format!(
                "{what}: all agree; with 95 % confidence at most {} of the other {} are wrong",
                thousands(most_wrong(all - again, again).into()),
                thousands((all - again).into())
            ),
        ),
        Some((at, count)) => Finding::failed(
            "recount",
            format!(
                "{what}: {} wrong, the first of units {:?}: {} certified, {count} here",
                wrong.len(),
                leaves[*at].units,
                leaves[*at].count
            ),
        ),
    }
}

/// Those of the leaves drawn whose count is another one here.
fn count_again(
    plan: &Plan,
    (leaves, drawn): (&[Leaf], &[usize]),
    options: &AuditOptions,
) -> Result<Vec<(usize, u64)>, NoRecount> {
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
    let lane = || -> Result<(), NoRecount> {
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
) -> Result<u64, NoRecount> {
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
            Counter::new(plan, &setup)?
        }
    };
    let (_, counter) = counter.insert((orientation, made));
    counter
        .count(leaf.units.clone(), &Unwatched)
        .map_err(|error| NoRecount::Units {
            units: leaf.units.clone(),
            error,
        })
}
