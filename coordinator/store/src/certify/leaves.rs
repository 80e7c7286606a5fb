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

use std::{collections::HashMap, ops::Range};

use common::{
    count::Orientation,
    kernel::KernelName,
    plan::{Plan, PlanSpec},
    run::WorkerId,
};
use scheduler::ledger::{Confirmation, Principal};
use sha2::{Digest as _, Sha256};

use crate::journal_store::rows::{take, take_text};

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

/// Returns the root of the tree over `leaves`.
pub(crate) fn root(leaves: &[Leaf], spec: &PlanSpec, version: u16) -> Hash {
    let hashes: Vec<_> = leaves.iter().map(|leaf| leaf.hash(spec, version)).collect();
    root_of(&hashes)
}

fn root_of(hashes: &[Hash]) -> Hash {
    match hashes {
        [] => Sha256::digest([]).into(),
        [leaf] => *leaf,
        _ => {
            let (left, right) = hashes.split_at(hashes.len().next_power_of_two() / 2);
            let mut node = Sha256::new_with_prefix([1]);
            node.update(root_of(left));
            node.update(root_of(right));
            node.finalize().into()
        }
    }
}

/// Describes the first gap or overlap of units; `None` for exactly those of `plan`.
pub(crate) fn gap(leaves: &[Leaf], plan: &Plan) -> Option<String> {
    let mut next = 0;
    for Leaf { units, .. } in leaves {
        if units.start != next || units.end <= units.start {
            return Some(format!("units {units:?} where unit {next} is expected"));
        }
        next = units.end;
    }
    (next != plan.units()).then(|| format!("{next} units of {}", plan.units()))
}

/// Encodes the file of counts.
pub(crate) fn encode(leaves: &[Leaf]) -> Vec<u8> {
    let mut counters = Vec::new();
    let mut numbers = HashMap::new();
    let all = leaves.iter().flat_map(|leaf| [Some(&leaf.first), leaf.second.as_ref()]);
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
    number(&mut bytes, leaves.len() as u64);
    let index = |origin: &Origin| numbers[&(origin.worker, origin.principal.as_str())];
    for leaf in leaves {
        number(&mut bytes, leaf.units.end - leaf.units.start);
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

pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<Leaf>, BadCounts> {
    decode_all(bytes).ok_or(BadCounts)
}

fn decode_all(bytes: &[u8]) -> Option<Vec<Leaf>> {
    let input = &mut bytes.strip_prefix(MAGIC)?;
    let mut counters = Vec::new();
    for _ in 0..take_number(input)? {
        let worker = WorkerId(u128::from_be_bytes(take(input)?));
        counters.push((worker, take_text(input)?));
    }
    let mut leaves = Vec::new();
    let mut next = 0u64;
    for _ in 0..take_number(input)? {
        let end = next.checked_add(take_number(input)?)?;
        let count = take_number(input)?;
        let (first, more) = take_origin(input, &counters)?;
        let second = if more { Some(take_origin(input, &counters)?.0) } else { None };
        leaves.push(Leaf { units: next..end, count, first, second });
        next = end;
    }
    input.is_empty().then_some(leaves)
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

    fn leaves(number: u64) -> Vec<Leaf> {
        let how = |worker: u64| Origin {
            worker: WorkerId(worker.into()),
            principal: format!("lab {worker}"),
            kernel: if worker == 7 { KernelName::OpenCl } else { KernelName::Avx512 },
            orientation: Orientation::Rotated,
            referee: worker == 7,
        };
        (0..number)
            .map(|task| Leaf {
                units: task * 3..task * 3 + 3,
                count: task * 1_000_003,
                first: how(task % 3),
                second: (task % 4 == 0).then(|| how(7)),
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

    /// Any change of a leaf changes the root, and so does a missing or moved leaf.
    #[test]
    fn the_root_binds_every_byte() {
        let original = leaves(5);
        let of = |leaves: &[Leaf]| root(leaves, &spec(), 4);
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
        seen.push(root(&original, &spec(), 5));
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
        assert_eq!(root_of(&[a, b, c, d, e]), node(node(node(a, b), node(c, d)), e));
        assert_eq!(root_of(&[a, b, c]), node(node(a, b), c));
        assert_eq!(root_of(&[]), Hash::from(Sha256::digest([])));
    }
}
