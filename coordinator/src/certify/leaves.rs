//! The counts of a certificate: what is signed of each, and the file that holds them all.
//!
//! The leaf of a task is SHA-256 of a zero byte and these bytes (numbers big-endian, texts after
//! their length in one byte): board (1), layout, version of the plan's rules, which fix the units'
//! weights (2), first unit (8), unit after the last (8), count (8); who counted: worker (16),
//! principal, kernel, orientation; 0, or 1 and who counted a second time, in the same way. The tree
//! over the leaves is that of RFC 6962, section 2.1: a node is SHA-256 of a one byte, its left and
//! its right child; the left one holds the largest power of two of the leaves that is less than all.
//!
//! The file begins with `MAGIC`, then numbers in base 128, lowest digit first: how many counters
//! there are, each with its worker (16 bytes) and principal; how many counts there are, each with
//! its number of units, its count, its counter, and how it was counted (see `How::byte`); where
//! there was a second count its counter and how. Counts follow one another by their units, from 0.

use std::{collections::HashMap, ops::Range};

use common::{
    count::Orientation,
    kernel::KernelName,
    plan::{Plan, PlanSpec},
    run::WorkerId,
};
use sha2::{Digest as _, Sha256};

/// The start of a file of counts.
pub(super) const MAGIC: &[u8] = b"queens counts 1\n";

/// A SHA-256.
pub(super) type Hash = [u8; 32];

/// Who counted and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct How {
    /// The worker.
    pub(super) worker: WorkerId,
    /// On whose word.
    pub(super) principal: String,
    /// With which instruction set.
    pub(super) kernel: KernelName,
    /// Through which data.
    pub(super) orientation: Orientation,
}

/// The count of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// Its units, among those of the plan.
    pub(super) units: Range<u64>,
    /// The weighted number of their solutions.
    pub(super) count: u64,
    /// The count that was accepted.
    pub(super) first: How,
    /// One that agreed, if there was one.
    pub(super) second: Option<How>,
}

/// A file that holds no counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it holds no counts of a certificate, or not all of them")]
pub struct BadCounts;

impl How {
    /// Bits 0 and 1: the kernel (scalar, avx2, avx512, neon); bit 2: turned; bit 3: `more`.
    fn byte(&self, more: bool) -> u8 {
        let kernel = match self.kernel {
            KernelName::Scalar => 0,
            KernelName::Avx2 => 1,
            KernelName::Avx512 => 2,
            KernelName::Neon => 3,
        };
        let turned = match self.orientation {
            Orientation::Upright => 0,
            Orientation::Turned => 4,
        };
        kernel | turned | if more { 8 } else { 0 }
    }

    fn feed(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.worker.0.to_be_bytes());
        text(bytes, &self.principal);
        text(bytes, self.kernel.as_str());
        bytes.push(match self.orientation {
            Orientation::Upright => 0,
            Orientation::Turned => 1,
        });
    }
}

/// Texts are cut long before they come here.
fn text(bytes: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(usize::from(u8::MAX));
    bytes.push(u8::try_from(end).expect("at most 255"));
    bytes.extend(&text.as_bytes()[..end]);
}

impl Leaf {
    /// The leaf's hash in the tree of a plan of `spec`, under rules of `version`.
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

/// The root of the tree over `leaves`.
pub(super) fn root(leaves: &[Leaf], spec: &PlanSpec, version: u16) -> Hash {
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

/// The units that leaves leave out, hold twice or have beyond those of `plan`; none of a whole run.
pub(super) fn gap(leaves: &[Leaf], plan: &Plan) -> Option<String> {
    let mut next = 0;
    for Leaf { units, .. } in leaves {
        if units.start != next || units.end <= units.start {
            return Some(format!("units {units:?} follow unit {next}"));
        }
        next = units.end;
    }
    (next != plan.units()).then(|| format!("{next} units of {}", plan.units()))
}

/// The bytes of the file of counts.
pub(super) fn encode(leaves: &[Leaf]) -> Vec<u8> {
    let mut counters = Vec::new();
    let mut numbers = HashMap::new();
    let all = leaves
        .iter()
        .flat_map(|leaf| [Some(&leaf.first), leaf.second.as_ref()]);
    for how in all.flatten() {
        let counter = (how.worker, how.principal.as_str());
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
    let of = |how: &How| numbers[&(how.worker, how.principal.as_str())];
    for leaf in leaves {
        number(&mut bytes, leaf.units.end - leaf.units.start);
        number(&mut bytes, leaf.count);
        number(&mut bytes, of(&leaf.first));
        bytes.push(leaf.first.byte(leaf.second.is_some()));
        if let Some(second) = &leaf.second {
            number(&mut bytes, of(second));
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

/// Reads a file of counts.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Leaf>, BadCounts> {
    let mut input = Input(bytes.strip_prefix(MAGIC).ok_or(BadCounts)?);
    let mut counters = Vec::new();
    for _ in 0..input.number()? {
        let worker = WorkerId(u128::from_be_bytes(input.array()?));
        counters.push((worker, input.text()?));
    }
    let mut leaves = Vec::new();
    let mut next = 0u64;
    for _ in 0..input.number()? {
        let end = next.checked_add(input.number()?).ok_or(BadCounts)?;
        let count = input.number()?;
        let (first, more) = input.how(&counters)?;
        let second = match more {
            true => Some(input.how(&counters)?.0),
            false => None,
        };
        leaves.push(Leaf {
            units: next..end,
            count,
            first,
            second,
        });
        next = end;
    }
    match input.0 {
        [] => Ok(leaves),
        _ => Err(BadCounts),
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadCounts> {
        let (head, rest) = self.0.split_first_chunk().ok_or(BadCounts)?;
        self.0 = rest;
        Ok(*head)
    }

    fn number(&mut self) -> Result<u64, BadCounts> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let digit = u64::from(byte & 127);
            if digit << shift >> shift != digit {
                return Err(BadCounts);
            }
            value |= digit << shift;
            if byte < 128 {
                return Ok(value);
            }
        }
        Err(BadCounts)
    }

    fn text(&mut self) -> Result<String, BadCounts> {
        let [length] = self.array()?;
        let (head, rest) = self
            .0
            .split_at_checked(usize::from(length))
            .ok_or(BadCounts)?;
        self.0 = rest;
        String::from_utf8(head.to_vec()).map_err(|_| BadCounts)
    }

    fn how(&mut self, counters: &[(WorkerId, String)]) -> Result<(How, bool), BadCounts> {
        let counter = usize::try_from(self.number()?).map_err(|_| BadCounts)?;
        let (worker, principal) = counters.get(counter).ok_or(BadCounts)?;
        let [byte] = self.array()?;
        let kernel = [
            KernelName::Scalar,
            KernelName::Avx2,
            KernelName::Avx512,
            KernelName::Neon,
        ][usize::from(byte & 3)];
        let orientation = match byte & 4 {
            0 => Orientation::Upright,
            _ => Orientation::Turned,
        };
        if byte >= 16 {
            return Err(BadCounts);
        }
        let how = How {
            worker: *worker,
            principal: principal.clone(),
            kernel,
            orientation,
        };
        Ok((how, byte & 8 != 0))
    }
}

#[cfg(test)]
mod tests {
    use common::{board::Board, method::Layout};

    use super::*;

    fn leaves(number: u64) -> Vec<Leaf> {
        let how = |worker: u64| How {
            worker: WorkerId(worker.into()),
            principal: format!("lab {worker}"),
            kernel: KernelName::Avx512,
            orientation: Orientation::Turned,
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
    fn counts_are_read_as_they_were_written() {
        for number in [0, 1, 2, 300] {
            let leaves = leaves(number);
            let bytes = encode(&leaves);
            assert_eq!(decode(&bytes), Ok(leaves));
            for end in 0..bytes.len() {
                assert_eq!(decode(&bytes[..end]), Err(BadCounts), "cut at {end}");
            }
        }
    }

    /// A change anywhere in any leaf changes the root, and so does a leaf more, less or elsewhere.
    #[test]
    fn the_root_binds_every_byte() {
        let original = leaves(5);
        let of = |leaves: &[Leaf]| root(leaves, &spec(), 4);
        let mut seen = vec![of(&original)];
        let changes: [fn(&mut Vec<Leaf>); 8] = [
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
    fn the_tree_is_the_one_of_the_standard() {
        let leaf = |byte| -> Hash { Sha256::digest([0, byte]).into() };
        let node = |left: Hash, right: Hash| -> Hash {
            Sha256::digest([&[1u8][..], &left, &right].concat()).into()
        };
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(leaf);
        assert_eq!(
            root_of(&[a, b, c, d, e]),
            node(node(node(a, b), node(c, d)), e)
        );
        assert_eq!(root_of(&[a, b, c]), node(node(a, b), c));
        assert_eq!(root_of(&[]), Hash::from(Sha256::digest([])));
    }
}
