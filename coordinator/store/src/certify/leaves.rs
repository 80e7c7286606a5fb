//! The counts of a certificate: the signed leaves, and the file of all counts.
//!
//! The leaf of a task is the SHA-256 of a zero byte and these bytes (numbers big-endian, texts after
//! their length in one byte): board (1), layout, version of the plan's rules, which fix the units'
//! weights (2), first unit (8), unit after the last (8), count (8), origin; then 0, or 1 and the origin
//! of a recheck. An origin is: worker (16), principal, kernel, orientation (0 upright, 1 rotated; plus 2
//! for the referee's count). The tree over the leaves is that of RFC 6962, section 2.1: a node is the
//! SHA-256 of a byte 1, its left child and its right child. Of n leaves, the left child holds the
//! largest power of two below n.
//!
//! The file of counts contains, after `MAGIC`: the number of counters, each with its worker (16 bytes)
//! and principal; the number of counts, each with its number of units, its count, its counter's index
//! and `Origin::byte`, then, if there is a recheck, its counter's index and byte. Numbers are in
//! base 128, lowest digit first. The units of consecutive counts are consecutive, from 0.
//!
//! A personal certificate leaves out the counts of other contributors. Instead of each largest subtree that contains
//! only such counts, its file has a 0, their number, the number of their units and the hash of the subtree. So the
//! root can still be computed, which proves that the other counts are at their places in the tree.

use std::{collections::HashMap, iter::Peekable, ops::Range, slice::Iter};

use common::{
    compute::kernel::KernelName,
    count::Orientation,
    messages::run::WorkerId,
    plan::{Plan, PlanSpec},
};
use scheduler::ledger::{Confirmation, Principal};
use sha2::{Digest as _, Sha256};

use crate::journal_store::rows::take;

pub(crate) const MAGIC: &[u8] = b"queens counts 1\n";

/// A SHA-256 digest.
pub(crate) type Hash = [u8; 32];

/// The origin of a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) worker: WorkerId,
    pub(crate) principal: String,
    pub(crate) kernel: KernelName,
    pub(crate) orientation: Orientation,
    /// Whether the referee counted.
    pub(crate) referee: bool,
}

/// The count of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// The task's units in the plan.
    pub(crate) units: Range<u64>,
    pub(crate) count: u64,
    pub(crate) first: Origin,
    /// The origin of an equal count, if there is one.
    pub(crate) second: Option<Origin>,
}

/// A part of the tree over a certificate's counts, in the order of the units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subtree {
    Leaf(Leaf),
    /// One whose counts were left out.
    Omitted {
        units: Range<u64>,
        counts: u64,
        hash: Hash,
    },
}

/// An invalid file of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file does not contain the counts of a certificate, or not all of them")]
pub struct BadCounts;

impl Origin {
    /// Encodes the kernel's code (bits 0, 1 and 5), rotated (2), `more` (3) and referee (4).
    fn byte(&self, more: bool) -> u8 {
        let (kernel, orientation) = (self.kernel.code(), self.orientation.code());
        let kernel = kernel & 3 | (kernel & 4) << 3;
        kernel | orientation << 2 | u8::from(more) << 3 | u8::from(self.referee) << 4
    }

    fn feed(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.worker.0.to_be_bytes());
        text(bytes, &self.principal);
        text(bytes, self.kernel.as_str());
        bytes.push(self.orientation.code() | u8::from(self.referee) << 1);
    }
}

/// Appends a text after its length; at most 255 bytes of it.
fn text(bytes: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(usize::from(u8::MAX));
    bytes.push(u8::try_from(end).expect("at most 255"));
    bytes.extend(&text.as_bytes()[..end]);
}

impl Leaf {
    /// Returns how well its count is confirmed.
    pub(crate) fn level(&self) -> Confirmation {
        let first = Principal::from_stored(&self.first.principal);
        let second = self.second.as_ref();
        match second.is_some_and(|second| second.referee) || self.first.referee {
            true => Confirmation::Referee,
            false => second.map_or(Confirmation::None, |second| {
                first.confirmed_by(&Principal::from_stored(&second.principal))
            }),
        }
    }

    /// Returns whether a contributor, or a machine with a token of this name, made the count that stands.
    pub(crate) fn is_by(&self, contributor: &str) -> bool {
        let principal = Principal::from_stored(&self.first.principal);
        principal.as_str() == contributor || principal.token() == Some(contributor)
    }

    /// Returns the leaf's hash for a plan of `spec` under rules of `version`.
    fn hash(&self, spec: &PlanSpec, version: u16) -> Hash {
        let mut bytes = vec![0, spec.board.n()];
        text(&mut bytes, spec.layout.name());
        bytes.extend(version.to_be_bytes());
        for number in [self.units.start, self.units.end, self.count] {
            bytes.extend(number.to_be_bytes());
        }
        self.first.feed(&mut bytes);
        match &self.second {
            None => bytes.push(0),
            Some(second) => {
                bytes.push(1);
                second.feed(&mut bytes);
            }
        }
        Sha256::digest(bytes).into()
    }
}

impl Subtree {
    pub(crate) const fn leaf(&self) -> Option<&Leaf> {
        match self {
            Self::Leaf(leaf) => Some(leaf),
            Self::Omitted { .. } => None,
        }
    }

    pub(crate) const fn units(&self) -> &Range<u64> {
        match self {
            Self::Leaf(Leaf { units, .. }) | Self::Omitted { units, .. } => units,
        }
    }

    const fn counts(&self) -> u64 {
        match self {
            Self::Leaf(_) => 1,
            Self::Omitted { counts, .. } => *counts,
        }
    }
}

/// Returns the number of counts, those left out included.
pub(crate) fn counts(parts: &[Subtree]) -> u64 {
    parts.iter().map(Subtree::counts).fold(0, u64::saturating_add)
}

/// Returns the root of the tree over `parts`; `None` if one of them is not a subtree of it.
pub(crate) fn root(parts: &[Subtree], spec: &PlanSpec, version: u16) -> Option<Hash> {
    if parts.is_empty() {
        return Some(Sha256::digest([]).into());
    }
    let mut rest = parts.iter().peekable();
    let root = subtree(&mut rest, counts(parts), &|leaf| leaf.hash(spec, version));
    root.filter(|_| rest.next().is_none())
}

/// Returns the hash of the next subtree, which has this number of counts.
fn subtree(
    rest: &mut Peekable<Iter<'_, Subtree>>,
    counts: u64,
    hash: &impl Fn(&Leaf) -> Hash,
) -> Option<Hash> {
    if let Some(part) = rest.next_if(|part| part.counts() == counts) {
        return Some(match part {
            Subtree::Leaf(leaf) => hash(leaf),
            Subtree::Omitted { hash, .. } => *hash,
        });
    }
    let left = left_of(counts)?;
    let mut node = Sha256::new_with_prefix([1]);
    node.update(subtree(rest, left, hash)?);
    node.update(subtree(rest, counts - left, hash)?);
    Some(node.finalize().into())
}

/// Returns the number of counts of the left child of a node with this number; `None` for a leaf.
fn left_of(counts: u64) -> Option<u64> {
    let depth = counts.checked_sub(1)?.checked_ilog2()?;
    Some(1 << depth)
}

/// Leaves out the counts that are not `kept`.
pub(crate) fn keep(
    parts: &[Subtree],
    kept: &impl Fn(&Leaf) -> bool,
    (spec, version): (&PlanSpec, u16),
    into: &mut Vec<Subtree>,
) {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return };
    if !parts.iter().any(|part| part.leaf().is_some_and(kept)) {
        let hash = root(parts, spec, version).expect("the parts are a subtree");
        let units = first.units().start..last.units().end;
        into.push(Subtree::Omitted { units, counts: counts(parts), hash });
    } else if let Some(left) = left_of(parts.len() as u64) {
        let (left, right) = parts.split_at(usize::try_from(left).expect("less than the length"));
        keep(left, kept, (spec, version), into);
        keep(right, kept, (spec, version), into);
    } else {
        into.push(first.clone());
    }
}

/// Describes the first gap or overlap of units; `None` for exactly those of `plan`.
pub(crate) fn gap(parts: &[Subtree], plan: &Plan) -> Option<String> {
    let mut next = 0;
    for units in parts.iter().map(Subtree::units) {
        if units.start != next || units.end <= units.start {
            return Some(format!("units {units:?} where unit {next} is expected"));
        }
        next = units.end;
    }
    (next != plan.units()).then(|| format!("{next} units of {}", plan.units()))
}

/// Encodes the file of counts.
pub(crate) fn encode(parts: &[Subtree]) -> Vec<u8> {
    let mut counters = Vec::new();
    let mut numbers = HashMap::new();
    let leaves = parts.iter().filter_map(Subtree::leaf);
    let all = leaves.flat_map(|leaf| [Some(&leaf.first), leaf.second.as_ref()]);
    for origin in all.flatten() {
        let counter = (origin.worker, origin.principal.as_str());
        numbers.entry(counter).or_insert_with(|| {
            counters.push(counter);
            counters.len() as u64 - 1
        });
    }
    let mut bytes = MAGIC.to_vec();
    number(&mut bytes, counters.len() as u64);
    for (worker, principal) in counters {
        bytes.extend(worker.0.to_be_bytes());
        text(&mut bytes, principal);
    }
    number(&mut bytes, parts.len() as u64);
    let index = |origin: &Origin| numbers[&(origin.worker, origin.principal.as_str())];
    for part in parts {
        let units = part.units().end - part.units().start;
        let leaf = match part {
            Subtree::Leaf(leaf) => leaf,
            Subtree::Omitted { counts, hash, .. } => {
                [0, *counts, units].into_iter().for_each(|of| number(&mut bytes, of));
                bytes.extend(hash);
                continue;
            }
        };
        number(&mut bytes, units);
        number(&mut bytes, leaf.count);
        number(&mut bytes, index(&leaf.first));
        bytes.push(leaf.first.byte(leaf.second.is_some()));
        if let Some(second) = &leaf.second {
            number(&mut bytes, index(second));
            bytes.push(second.byte(false));
        }
    }
    bytes
}

fn number(bytes: &mut Vec<u8>, mut value: u64) {
    loop {
        let digit = (value & 127) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(digit);
            return;
        }
        bytes.push(digit | 128);
    }
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<Subtree>, BadCounts> {
    decode_all(bytes).ok_or(BadCounts)
}

/// Takes a text after its length in one byte.
fn take_text<'a>(input: &mut &'a [u8]) -> Option<&'a str> {
    let [length] = take(input)?;
    let (text, rest) = input.split_at_checked(length.into())?;
    *input = rest;
    std::str::from_utf8(text).ok()
}

fn decode_all(bytes: &[u8]) -> Option<Vec<Subtree>> {
    let input = &mut bytes.strip_prefix(MAGIC)?;
    let mut counters = Vec::new();
    for _ in 0..take_number(input)? {
        let worker = WorkerId(u128::from_be_bytes(take(input)?));
        counters.push((worker, take_text(input)?));
    }
    let mut parts = Vec::new();
    let mut next = 0u64;
    for _ in 0..take_number(input)? {
        let (units, count) = (take_number(input)?, take_number(input)?);
        let part = if units == 0 {
            let units = next..next.checked_add(take_number(input)?)?;
            Subtree::Omitted {
                units,
                counts: Some(count).filter(|&of| of > 0)?,
                hash: take(input)?,
            }
        } else {
            let units = next..next.checked_add(units)?;
            let (first, more) = take_origin(input, &counters)?;
            let second = if more { Some(take_origin(input, &counters)?.0) } else { None };
            Subtree::Leaf(Leaf { units, count, first, second })
        };
        next = part.units().end;
        parts.push(part);
    }
    input.is_empty().then_some(parts)
}

fn take_number(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let [byte] = take(input)?;
        let digit = u64::from(byte & 127);
        if digit << shift >> shift != digit {
            return None;
        }
        value |= digit << shift;
        if byte < 128 {
            return Some(value);
        }
    }
    None
}

/// Returns the next origin, and whether that of a recheck follows.
fn take_origin(input: &mut &[u8], counters: &[(WorkerId, &str)]) -> Option<(Origin, bool)> {
    let (worker, principal) = counters.get(usize::try_from(take_number(input)?).ok()?)?;
    let [byte] = take(input)?;
    let origin = Origin {
        worker: *worker,
        principal: (*principal).to_owned(),
        kernel: KernelName::from_code(byte & 3 | byte >> 3 & 4)?,
        orientation: Orientation::ALL[usize::from(byte >> 2 & 1)],
        referee: byte & 16 != 0,
    };
    (byte < 64).then_some((origin, byte & 8 != 0))
}

#[cfg(test)]
mod tests {
    use common::{board::Board, method::Layout};

    use super::*;

    fn leaves(number: u64) -> Vec<Subtree> {
        let how = |worker: u64| Origin {
            worker: WorkerId(worker.into()),
            principal: format!("lab {worker}"),
            kernel: if worker == 7 { KernelName::OpenCl } else { KernelName::Avx512 },
            orientation: Orientation::Rotated,
            referee: worker == 7,
        };
        (0..number)
            .map(|task| {
                Subtree::Leaf(Leaf {
                    units: task * 3..task * 3 + 3,
                    count: task * 1_000_003,
                    first: how(task % 3),
                    second: (task % 4 == 0).then(|| how(7)),
                })
            })
            .collect()
    }

    fn spec() -> PlanSpec {
        PlanSpec::new(Board::new(10).unwrap(), Layout::Frames)
    }

    #[test]
    fn counts_round_trip() {
        for number in [0, 1, 2, 300] {
            let leaves = leaves(number);
            let bytes = encode(&leaves);
            assert_eq!(decode(&bytes), Ok(leaves));
            for end in 0..bytes.len() {
                assert_eq!(decode(&bytes[..end]), Err(BadCounts), "cut at {end}");
            }
        }
    }

    /// Each kept count proves its place: the root is that of all counts.
    #[test]
    fn counts_can_be_left_out_without_changing_the_root() {
        for number in [1, 2, 5, 64, 300] {
            let all = leaves(number);
            for (worker, most) in [(0, 2), (1, 2), (2, 2), (7, 0)] {
                let kept = |leaf: &Leaf| leaf.first.worker == WorkerId(worker);
                let mut parts = Vec::new();
                keep(&all, &kept, (&spec(), 4), &mut parts);
                assert_eq!(root(&parts, &spec(), 4), root(&all, &spec(), 4));
                assert_eq!(counts(&parts), number);
                let left: Vec<_> = parts.iter().filter(|part| part.leaf().is_some()).collect();
                let expected: Vec<_> =
                    all.iter().filter(|part| part.leaf().is_some_and(kept)).collect();
                assert_eq!(left, expected);
                // Each run of other counts is at most two subtrees here.
                assert!(parts.len() - left.len() <= 1 + most * left.len(), "{parts:?}");
                assert_eq!(decode(&encode(&parts)), Ok(parts));
            }
        }
    }

    /// Any change of a leaf changes the root, and so does a missing or moved leaf.
    #[test]
    fn the_root_binds_every_byte() {
        let original: Vec<_> = leaves(5).iter().filter_map(Subtree::leaf).cloned().collect();
        let root = |leaves: &[Leaf], version| {
            let parts: Vec<_> = leaves.iter().cloned().map(Subtree::Leaf).collect();
            root(&parts, &spec(), version).unwrap()
        };
        let of = |leaves: &[Leaf]| root(leaves, 4);
        let mut seen = vec![of(&original)];
        let changes: [fn(&mut Vec<Leaf>); 9] = [
            |leaves| leaves[3].first.referee = true,
            |leaves| leaves[2].count += 1,
            |leaves| leaves[2].units.end += 1,
            |leaves| leaves[4].first.worker.0 += 1,
            |leaves| leaves[4].first.principal.push('x'),
            |leaves| leaves[1].first.orientation = Orientation::Upright,
            |leaves| leaves[0].second = None,
            |leaves| leaves.swap(0, 1),
            |leaves| drop(leaves.pop()),
        ];
        for change in changes {
            let mut changed = original.clone();
            change(&mut changed);
            seen.push(of(&changed));
        }
        seen.push(root(&original, 5));
        let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), seen.len());
    }

    /// The tree of RFC 6962 over five leaves, by hand.
    #[test]
    fn the_tree_conforms_to_rfc_6962() {
        let leaf = |byte| -> Hash { Sha256::digest([0, byte]).into() };
        let node = |left: Hash, right: Hash| -> Hash {
            Sha256::digest([&[1u8][..], &left, &right].concat()).into()
        };
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(leaf);
        let part = |(counts, hash)| Subtree::Omitted { units: 0..1, counts, hash };
        let of = |parts: &[(u64, Hash)]| {
            root(&parts.iter().copied().map(part).collect::<Vec<_>>(), &spec(), 4)
        };
        let whole = node(node(node(a, b), node(c, d)), e);
        assert_eq!(of(&[a, b, c, d, e].map(|hash| (1, hash))), Some(whole));
        assert_eq!(of(&[a, b, c].map(|hash| (1, hash))), Some(node(node(a, b), c)));
        assert_eq!(of(&[]), Some(Sha256::digest([]).into()));
        assert_eq!(of(&[(1, a), (1, b), (2, node(c, d)), (1, e)]), Some(whole));
        assert_eq!(of(&[(1, a), (2, node(b, c)), (1, d), (1, e)]), None, "not a subtree");
        assert_eq!(of(&[(u64::MAX, a), (1, b)]), None);
        let many = of(&[(1 << 63, a), (1, b)]);
        assert_eq!(many, Some(node(a, b)));
    }
}
