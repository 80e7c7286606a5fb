//! Audits of certificates, without a coordinator.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    num::NonZeroU16,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use common::{
    board::Board,
    compute::kernel::Kernel,
    count::{Counter, CounterConfig, NoProgress, Orientation},
    method::Method,
    plan::Plan,
    solutions::{
        published::published_counts,
        tally::{self, Counts},
    },
    text::{Escaped, percent, plural, thousands},
};
use rand::{SeedableRng as _, rngs::StdRng, seq::index};
use scheduler::{
    checks::{Check, CheckOutcome, Sample, at_most_wrong_if_size_is_fixed},
    ledger::Confirmation,
};

use crate::certify::{
    certificate::{BadCertificate, Certificate, Contributor, Levels, Recounts},
    leaves::{self, BadCounts, Leaf},
};

#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// Tasks to recount; all if there are fewer.
    pub tasks: u64,
    /// The seed of the random selection of tasks.
    pub seed: u64,
    /// The key that the coordinator printed, if the auditor knows it.
    pub key: Option<String>,
    pub kernel: Kernel,
    pub threads: NonZeroU16,
    /// The memory budget of counting.
    pub memory_bytes: u64,
}

/// A certificate that cannot be audited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Certificate(#[from] BadCertificate),
    #[error("invalid counts: {0}")]
    Counts(#[from] BadCounts),
}

/// Maximum number of contributors that an audit prints; a certificate lists all.
const MAX_NAMES: usize = 10;

/// The reason for a check's outcome: `Ok` if it passed, `Err` if it failed.
type Checked = Result<String, String>;

fn finding(name: &'static str, checked: Checked) -> Check {
    match checked {
        Ok(reason) => Check { name, outcome: CheckOutcome::Passed, reason },
        Err(reason) => Check { name, outcome: CheckOutcome::Failed, reason },
    }
}

fn not_possible(name: &'static str, reason: String) -> Check {
    Check { name, outcome: CheckOutcome::NotPossible, reason }
}

fn not_applicable(name: &'static str, reason: String) -> Check {
    Check { name, outcome: CheckOutcome::NotApplicable, reason }
}

/// A progress report of an audit.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// The certificate, once its signature is verified, and whether the expected
    /// key was given: otherwise anyone may have signed it.
    Signed(&'a Certificate, bool),
    Found(&'a Check),
}

/// Audits a certificate and reports each part; returns the worst outcome.
pub fn audit(
    (text, counts): (&str, &[u8]),
    options: &AuditOptions,
    report: &mut dyn FnMut(Part<'_>),
) -> Result<CheckOutcome, AuditError> {
    let certificate = Certificate::read(text)?;
    let parts = leaves::decode(counts)?;
    let leaves: Vec<_> = parts.iter().filter_map(leaves::Subtree::leaf).collect();
    let is_personal = leaves.len() < parts.len();
    report(Part::Signed(&certificate, options.key.is_some()));
    let mut worst = CheckOutcome::Passed;
    let mut note = |found: Check| {
        worst = worst.max(found.outcome);
        report(Part::Found(&found));
    };
    note(finding("signature", signature(&certificate, options)));
    let spec = certificate.spec()?;
    let root = certificate.root()?;
    let signed = leaves::root(&parts, &spec, certificate.plan_version) == Some(root)
        && leaves::counts(&parts) == certificate.counts;
    let counts = plural(certificate.counts, "count");
    let own = thousands(leaves.len() as u128);
    note(finding(
        "merkle",
        match signed {
            true if is_personal => Ok(format!("{own} of {counts}, at their signed places")),
            true => Ok(format!("{counts}, exactly the signed ones")),
            false => Err("the counts differ from the signed ones".to_owned()),
        },
    ));
    if is_personal {
        note(finding("credits", credits(&certificate, &leaves)));
        let left_out = "a personal certificate leaves out the counts of others".to_owned();
        note(not_applicable("sum", left_out));
    } else {
        note(finding("sum", sum(&certificate, &leaves)));
        note(finding("confirmed", confirmed(&certificate, &leaves)));
        note(named(&certificate, &leaves));
    }
    note(classes(&certificate));
    note(published(&certificate, spec.board));
    match Plan::new(spec) {
        Ok(plan) if plan.hash() == certificate.plan()? => {
            // Units beyond the plan cannot be counted.
            if let Some(gap) = leaves::gap(&parts, &plan) {
                note(finding("coverage", Err(gap)));
            } else {
                let units = plural(plan.units(), "unit");
                let covered = format!("the counts cover all {units} of the plan, each once");
                if !is_personal {
                    note(finding("coverage", Ok(covered)));
                }
                note(recount(&plan, &leaves, options));
            }
        }
        Ok(plan) if certificate.plan_version == spec.version() => {
            let Certificate { plan_hash, n, layout, task_cost, .. } = &certificate;
            let other = format!(
                "the certificate names plan {plan_hash}, but N = {n}, layout {layout} and task cost \
                 {task_cost} give plan {}",
                plan.hash()
            );
            note(finding("plan", Err(other)));
        }
        Err(bad) if certificate.plan_version == spec.version() => {
            note(finding("plan", Err(bad.to_string())));
        }
        Ok(_) | Err(_) => {
            let other = format!(
                "the plan follows version {} of the rules, but this program supports version {}: use the \
                 program that created the certificate, {}",
                certificate.plan_version,
                spec.version(),
                certificate.program
            );
            note(not_possible("recount", other));
        }
    }
    Ok(worst)
}

fn signature(certificate: &Certificate, options: &AuditOptions) -> Checked {
    let key = &certificate.public_key;
    match &options.key {
        Some(expected) if expected == key => Ok(format!("valid, by the given key {key}")),
        Some(expected) => Err(format!("by key {key}, not by {expected}")),
        None => Ok(format!(
            "valid, by key {key}; compare it with the key that the coordinator printed (--key)"
        )),
    }
}

fn sum(certificate: &Certificate, leaves: &[&Leaf]) -> Checked {
    let total = tally::total(leaves.iter().map(|leaf| leaf.count));
    let total = total.map_err(|error| error.to_string())?;
    match &certificate.solutions {
        certified if total.to_string() == *certified => {
            Ok(format!("{} solutions, as certified", thousands(total)))
        }
        certified => Err(format!("the counts add up to {total}, not to {certified}")),
    }
}

/// Describes the counts of a personal certificate.
fn credits(certificate: &Certificate, leaves: &[&Leaf]) -> Checked {
    let solutions: u128 = leaves.iter().map(|leaf| u128::from(leaf.count)).sum();
    let all = certificate.solutions.parse().unwrap_or(0);
    if solutions > all {
        return Err(format!("the counts add up to {solutions}, more than the certified {all}"));
    }
    let names: BTreeSet<_> = leaves.iter().map(|leaf| leaf.first.principal.as_str()).collect();
    let by = match (names.first(), names.len()) {
        (None, _) => return Err("the file contains no count".to_owned()),
        (Some(name), 1) => Escaped(name).to_string(),
        (Some(name), more) => format!("{more} contributors such as {}", Escaped(name)),
    };
    let confirmed = leaves.iter().filter(|leaf| leaf.level() != Confirmation::None).count();
    Ok(format!(
        "{} with {} solutions, {} of the total, {} confirmed, by {by}",
        plural(leaves.len(), "count"),
        thousands(solutions),
        percent(solutions as f64 / all.max(1) as f64),
        thousands(confirmed as u128),
    ))
}

/// Recomputes the confirmations of the counts, and the bound on wrong ones.
fn confirmed(certificate: &Certificate, leaves: &[&Leaf]) -> Checked {
    let levels = Levels::of(leaves.iter().copied());
    if certificate.confirmed != levels {
        return Err(format!("the signed counts are confirmed differently: {levels:?}"));
    }
    let counts = leaves.len() as u64;
    let bound = |recounts: &Recounts| {
        let Recounts { random, wrong, .. } = *recounts;
        let possible = wrong <= random && random <= levels.referee;
        let open = counts - levels.referee;
        let sample = Sample { recounts: random, wrong, missing: 0 };
        possible.then(|| sample.at_most_wrong(counts).min(open))
    };
    // The bound also includes tasks of the sample without a recount, and counts that replaced voided ones,
    // which the certificate does not state.
    let follows =
        |recounts: &Recounts| bound(recounts).is_some_and(|least| least <= recounts.at_most_wrong);
    match &certificate.recounts {
        Some(recounts) if !follows(recounts) => {
            Err(format!("the bound does not follow from {recounts:?}"))
        }
        Some(recounts) => Ok(format!(
            "as claimed; {} limit the wrong counts to {}, if the recounts were selected at random",
            plural(recounts.random, "recount"),
            thousands(recounts.at_most_wrong.into())
        )),
        None => Ok("as claimed; no bound is claimed".to_owned()),
    }
}

/// Recomputes the parts of the contributors who want to be named.
fn named(certificate: &Certificate, leaves: &[&Leaf]) -> Check {
    let mut all = Contributor::all(leaves.iter().copied());
    if all != certificate.contributors {
        let other = "the named contributors did not make the counts that are listed".to_owned();
        return finding("named", Err(other));
    }
    if all.is_empty() {
        return not_applicable("named", "no contributor wants to be named".to_owned());
    }
    all.sort_by_key(|of| Reverse(of.counts));
    let part =
        |of: &Contributor| format!("{} by {}", plural(of.counts, "count"), Escaped(&of.name));
    let mut parts: Vec<_> = all.iter().take(MAX_NAMES).map(part).collect();
    if all.len() > MAX_NAMES {
        parts.push(format!("and those of {} more", all.len() - MAX_NAMES));
    }
    finding("named", Ok(parts.join(", ")))
}

fn classes(certificate: &Certificate) -> Check {
    let Certificate { solutions, fundamental, half_turn, quarter_turn, .. } = certificate;
    let checked = match (fundamental, half_turn, quarter_turn) {
        (Some(fundamental), Some(half), Some(quarter)) => {
            claimed(solutions, [fundamental, half, quarter])
        }
        (None, None, None) => {
            let reason = "no fundamental solutions are claimed".to_owned();
            return not_applicable("classes", reason);
        }
        _ => Err("only some of the symmetric solutions are claimed".to_owned()),
    };
    finding("classes", checked)
}

/// Recomputes the fundamental solutions from the total and the symmetric solutions.
fn claimed(solutions: &str, [fundamental, half_turn, quarter_turn]: [&String; 3]) -> Checked {
    let (Ok(all), Ok(half), Ok(quarter)) =
        (solutions.parse(), half_turn.parse(), quarter_turn.parse())
    else {
        return Err("the counts are not decimal numbers".to_owned());
    };
    let counts = Counts::new(all, half, quarter).map_err(|bad| bad.to_string())?;
    match counts.fundamental() {
        computed if computed.to_string() == *fundamental => {
            Ok(format!("{} fundamental solutions, as claimed", thousands(computed)))
        }
        computed => Err(format!(
            "the total gives {computed} fundamental solutions, but {fundamental} are claimed"
        )),
    }
}

/// Compares the total with the published count of the board, if any.
fn published(certificate: &Certificate, board: Board) -> Check {
    let solutions = &certificate.solutions;
    let Some(known) = published_counts(board).map(|known| known.all().to_string()) else {
        return not_applicable("published", format!("no count is published for N = {board}"));
    };
    let checked = match known == *solutions {
        true => Ok(format!("the total is the published one for N = {board}")),
        false => Err(format!("the published count for N = {board} is {known}, not {solutions}")),
    };
    finding("published", checked)
}

/// Recounts random tasks, each in the orientation that its count did not have.
fn recount(plan: &Plan, leaves: &[&Leaf], options: &AuditOptions) -> Check {
    let wanted = usize::try_from(options.tasks).unwrap_or(usize::MAX);
    let mut rng = StdRng::seed_from_u64(options.seed);
    let selected = index::sample(&mut rng, leaves.len(), wanted.min(leaves.len())).into_vec();
    if selected.is_empty() {
        return not_applicable("recount", "no count was selected (--tasks)".to_owned());
    }
    let (all, again) = (leaves.len() as u64, selected.len() as u64);
    let wrong = match wrong_counts(plan, (leaves, selected), options) {
        Ok(wrong) => wrong,
        Err(why) => return not_possible("recount", why),
    };
    let what = format!(
        "{} of {}, selected with --seed {} and recounted in the other orientation on {}",
        thousands(again.into()),
        plural(all, "count"),
        options.seed,
        options.kernel
    );
    let checked = match wrong.first() {
        None => Ok(format!(
            "{what}: all agree; with 95 % confidence at most {} of the other {} are wrong",
            thousands(at_most_wrong_if_size_is_fixed(all, again).into()),
            thousands((all - again).into())
        )),
        Some((at, count)) => Err(format!(
            "{what}: {} wrong; the first has units {:?}: {} certified, {count} recounted",
            wrong.len(),
            leaves[*at].units,
            leaves[*at].count
        )),
    };
    finding("recount", checked)
}

/// Recounts leaves in the other orientation; returns wrong ones with the recounts.
fn wrong_counts(
    plan: &Plan,
    (leaves, mut selected): (&[&Leaf], Vec<usize>),
    options: &AuditOptions,
) -> Result<Vec<(usize, u64)>, String> {
    // All threads count each frame together, in shared memory; prefixes are counted by single threads.
    let (lanes, crew) = match plan.spec().layout.method() {
        Method::Rows => (options.threads.get(), NonZeroU16::MIN),
        Method::Frames => (1, options.threads),
    };
    // Groups leaves by orientation, since a counter has one orientation.
    selected.sort_by_key(|&at| (leaves[at].first.orientation == Orientation::Rotated, at));
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    let lane = || -> Result<(), String> {
        let mut cached: Option<(Orientation, Counter)> = None;
        while let Some(&at) = selected.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Leaf { units, first, .. } = &leaves[at];
            let orientation = first.orientation.rotated();
            if cached.as_ref().is_none_or(|(of, _)| *of != orientation) {
                drop(cached.take());
                let config = CounterConfig {
                    kernel: options.kernel,
                    threads: crew,
                    memory_bytes: options.memory_bytes / u64::from(lanes),
                    orientation,
                };
                let counter = Counter::new(plan, &config).map_err(|error| error.to_string())?;
                cached = Some((orientation, counter));
            }
            let (_, counter) = cached.as_mut().expect("created above");
            let count = counter.count(units.clone(), &NoProgress);
            let count = count.map_err(|error| format!("units {units:?}: {error}"))?;
            if count != leaves[at].count {
                wrong.lock().expect("no lane panics").push((at, count));
            }
        }
        Ok(())
    };
    let ended = thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().expect("counting does not panic"))
    });
    let mut wrong = wrong.into_inner().expect("no lane panics");
    wrong.sort_unstable();
    // A wrong count matters more than one that could not be recounted.
    if wrong.is_empty() { ended.map(|()| wrong) } else { Ok(wrong) }
}
