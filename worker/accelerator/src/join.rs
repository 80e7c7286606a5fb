//! The join of one frame at a time on a device.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    count::CountError,
    join::{DisjointPairs, Keys, OnProgress, Part, Side},
};

use crate::{
    Device,
    kernels::{Code, MAX_SORTED, SCAN_WORDS, SCRATCH_WORDS},
    layout::Layout,
    opencl::{Argument, DeviceError, Memory, Queue, Result},
};

/// A join on a device, with a queue of its own.
#[derive(Debug)]
pub(crate) struct DeviceJoin {
    device: Arc<Device>,
    queue: Queue,
    /// Layout of the frame, or why it has none.
    layout: Result<Layout>,
    planted: Planted,
    grids: [[Option<Grid>; 2]; 2],
    /// Time per leaf of the last launches, by kind.
    leaf_time: [Duration; 2],
}

/// The keys of one part, sorted by cell.
#[derive(Debug)]
struct Grid {
    /// Start of each cell, of the planted keys, and the end.
    offsets: Memory,
    keys: Memory,
    /// Length of the list of each leaf, then of the planted one.
    lengths: Memory,
    number: usize,
}

/// Lists of keys with a known number of disjoint pairs, joined in every launch.
#[derive(Debug, Default)]
struct Planted {
    key_mask: u32,
    lists: [Vec<u32>; 2],
    pairs: i64,
}

/// Lengths of the planted lists: enough for sorting, and for more than one block of tables.
const PLANTED: [usize; 2] = [400, 1100];

impl Planted {
    /// Makes lists of keys with these bits.
    ///
    /// The first key of the first list is disjoint from every key; the first one of the second has all bits.
    fn set(&mut self, key_mask: u32) {
        if self.key_mask == key_mask && self.pairs != 0 {
            return;
        }
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        for (list, length) in self.lists.iter_mut().zip(PLANTED) {
            list.clear();
            // A bit is set with probability 1/8, so that many pairs are disjoint.
            list.extend((0..length).map(|_| random() & random() & random() & key_mask));
        }
        let [top, bottom] = &mut self.lists;
        (top[0], bottom[0], self.key_mask) = (0, key_mask, key_mask);
        let disjoint = |key: u32| bottom.iter().filter(|other| key & *other == 0).count();
        self.pairs = top.iter().map(|&key| disjoint(key)).sum::<usize>() as i64;
    }
}

/// Quarter boards as [`Code::HalfBoards`] takes them.
#[derive(Debug, Default)]
struct Quarters {
    boards: Vec<u64>,
    /// First and number of left boards, first and number of right ones.
    tasks: Vec<[u32; 4]>,
    /// Place in `boards` of each slice.
    places: HashMap<usize, u32>,
}

/// Groups of a launch per unit of a GPU.
const GROUPS: usize = 9;

/// Number of leaves of the first launch, and the time of the others.
const FIRST_LEAVES: u32 = 1 << 16;
const LAUNCH: Duration = Duration::from_millis(50);

/// Keys of a list per task.
const LIST_KEYS: usize = 1 << 12;

impl Quarters {
    /// Returns the place of a list, which is copied when it is first seen.
    fn place(&mut self, list: &[u64]) -> u32 {
        let Self { boards, places, .. } = self;
        *places.entry(list.as_ptr() as usize).or_insert_with(|| {
            let at = narrow(boards.len());
            boards.extend_from_slice(list);
            at
        })
    }

    fn add(&mut self, left: &[u64], right: &[u64]) {
        if left.is_empty() || right.is_empty() {
            return;
        }
        // The threads of a group share the right list.
        let (left, right) = if left.len() > right.len() { (right, left) } else { (left, right) };
        let (first, second) = (self.place(left), self.place(right));
        self.tasks.push([first, narrow(left.len()), second, narrow(right.len())]);
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("lists with fewer than 2^32 keys")
}

impl DeviceJoin {
    pub(crate) fn new(device: Arc<Device>) -> Result<Self> {
        Ok(Self {
            queue: device.queue()?,
            device,
            layout: Err(DeviceError::Unfit("no frame was started".to_owned())),
            planted: Planted::default(),
            grids: Default::default(),
            leaf_time: [Duration::ZERO; 2],
        })
    }

    /// Makes half boards and sorts them by cell.
    fn grid(&self, side: Side, quarters: &Quarters) -> Result<Grid> {
        let (queue, layout) = (&self.queue, self.layout.as_ref().map_err(Clone::clone)?);
        let planted = &self.planted.lists[side as usize];
        let (x1, x2) = layout.cells();
        let (minor, major) = match side {
            Side::Top => (x2, x1),
            Side::Bottom => (x1, x2),
        };
        let cells = 1_usize << (x1 + x2);
        let Quarters { boards, tasks, .. } = quarters;
        let of_boards = queue.memory(8 * boards.len())?;
        queue.write(&of_boards, 0, boards)?;
        let of_tasks = queue.memory(16 * tasks.len())?;
        queue.write(&of_tasks, 0, tasks)?;
        let moves = queue.memory(4 * 64)?;
        queue.write(&moves, 0, &layout.moves(side))?;
        use Argument::{Memory, Word};
        let groups = boards.len().div_ceil(Code::Arrange.threads());
        let arguments = [Memory(&of_boards), Word(narrow(boards.len())), Memory(&moves)];
        queue.launch(Code::Arrange, groups, &arguments)?;
        // The planted keys are one more cell.
        let words = cells + 1;
        let counts = queue.memory(4 * words)?;
        queue.clear(&counts)?;
        queue.write(&counts, cells, &[narrow(planted.len())])?;
        let half_boards = |cells_of: &_, keys: &_, places| {
            let arguments = [
                Memory(&of_boards),
                Memory(&of_tasks),
                Word(layout.key_mask),
                Word(narrow(cells - 1)),
                Memory(cells_of),
                Memory(keys),
                Word(places),
            ];
            queue.launch(Code::HalfBoards, tasks.len(), &arguments)
        };
        half_boards(&counts, &counts, 0)?;
        let blocks = words.div_ceil(SCAN_WORDS);
        let sums = queue.memory(4 * (blocks + 1))?;
        let arguments = [Memory(&counts), Word(narrow(words)), Memory(&sums)];
        queue.launch(Code::ScanSums, blocks, &arguments)?;
        queue.launch(Code::ScanBlocks, 1, &[Memory(&sums), Word(narrow(blocks))])?;
        let offsets = queue.memory(4 * (words + 1))?;
        let arguments = [
            Memory(&counts),
            Word(narrow(words)),
            Memory(&sums),
            Memory(&offsets),
            Memory(&counts),
        ];
        queue.launch(Code::ScanWrite, blocks, &arguments)?;
        let [all] = queue.read::<u32, 1>(&offsets, words)?;
        let all = all as usize;
        let number = all.checked_sub(planted.len());
        let number = number.ok_or_else(|| DeviceError::Wrong("the keys of a grid".to_owned()))?;
        let keys = queue.memory(4 * all)?;
        half_boards(&counts, &keys, 1)?;
        queue.write(&keys, number, planted)?;
        let lengths = queue.memory(4 * words)?;
        let arguments = [Memory(&offsets), Word(minor), Memory(&lengths)];
        queue.launch(Code::ListLengths, 1 << major, &arguments)?;
        queue.write(&lengths, cells, &[narrow(planted.len())])?;
        Ok(Grid { offsets, keys, lengths, number })
    }

    fn set_part(
        &mut self,
        side: Side,
        part: Part,
        keys: Keys<'_>,
        progress: OnProgress<'_>,
    ) -> Result<()> {
        self.grids[side as usize][part as usize] = None;
        let mut quarters = Quarters::default();
        match keys {
            Keys::List(list) => {
                list.chunks(LIST_KEYS).for_each(|keys| quarters.add(&[0], keys));
            }
            Keys::Made(maker) => {
                for group in 0..maker.groups() {
                    maker.quarters(group, &mut |left, right| quarters.add(left, right));
                    if group % 64 == 0 && progress(0.0).is_break() {
                        return Err(DeviceError::Cancelled);
                    }
                }
            }
        }
        self.grids[side as usize][part as usize] = Some(self.grid(side, &quarters)?);
        Ok(())
    }

    /// Counts the pairs of two grids.
    fn count(&mut self, top: Part, bottom: Part, progress: OnProgress<'_>) -> Result<u64> {
        let layout = self.layout.as_ref().map_err(Clone::clone)?;
        let (x1, x2) = layout.cells();
        let [above, below] = &self.grids;
        let (Some(top), Some(bottom)) = (&above[top as usize], &below[bottom as usize]) else {
            return Ok(0);
        };
        if top.number == 0 || bottom.number == 0 {
            return Ok(0);
        }
        let (queue, device) = (&self.queue, &self.device);
        let cells = 1_usize << (x1 + x2);
        let numbers = queue.memory(4 * 3)?;
        queue.clear(&numbers)?;
        let leaves = [queue.memory(4 * cells)?, queue.memory(4 * cells)?];
        use Argument::{Memory, Word};
        let build = if device.has_tables() { device.tuning.build_cycles } else { u32::MAX / 4096 };
        let units = device.description.units as usize;
        let arguments = [
            Memory(&top.lengths),
            Memory(&bottom.lengths),
            Word(x1),
            Word(x2),
            Word(build),
            Memory(&numbers),
            Memory(&leaves[0]),
            Memory(&leaves[1]),
        ];
        queue.launch(Code::ChooseKinds, 8 * units, &arguments)?;
        let [every_pair, by_tables, longest] = queue.read::<u32, 3>(&numbers, 0)?;
        let room = narrow((longest as usize).clamp(PLANTED[1], MAX_SORTED)) + 4;
        let groups = if device.description.is_cpu { units } else { GROUPS * units };
        let words = groups * (2 * room as usize + SCRATCH_WORDS);
        let scratch = queue.memory(if by_tables > 0 { 4 * words } else { 0 })?;
        let [one_by_one, tables] = &leaves;
        let grids = [
            Memory(&top.offsets),
            Memory(&top.keys),
            Memory(&bottom.offsets),
            Memory(&bottom.keys),
            Word(x1),
            Word(x2),
            Memory(&top.lengths),
            Memory(&bottom.lengths),
        ];
        let lists = [Word(layout.nz), Word(device.tuning.sort_from), Memory(&scratch), Word(room)];
        let kinds = [
            (Code::JoinEveryPair, one_by_one, every_pair, &lists[..0]),
            (Code::JoinByTables, tables, by_tables, &lists[..]),
        ];
        let share = 1.0 / (f64::from(every_pair) + f64::from(by_tables));
        let mut total = 0;
        for ((code, leaves, number, lists), leaf_time) in kinds.into_iter().zip(&mut self.leaf_time)
        {
            let mut launches = Launches { queue, code, groups, leaf_time };
            let arguments = |to| [&grids[..], &[Memory(leaves), Word(to)], lists].concat();
            let report = &mut |leaves| progress(f64::from(leaves) * share);
            total += launches.count(number, self.planted.pairs, &arguments, report)?;
        }
        u64::try_from(total).map_err(|_| DeviceError::Wrong(format!("{total} pairs")))
    }

    /// Keeps a failure of the device, and removes all keys.
    fn end<T>(&mut self, result: Result<T>) -> std::result::Result<T, CountError> {
        result.map_err(|error| {
            self.grids = Default::default();
            if error == DeviceError::Cancelled {
                return CountError::Cancelled;
            }
            self.device.fail(error);
            CountError::Device
        })
    }
}

/// Launches of one kernel over the leaves of its kind, of about [`LAUNCH`] each.
struct Launches<'a> {
    queue: &'a Queue,
    code: Code,
    groups: usize,
    /// Time per leaf of the last launch.
    leaf_time: &'a mut Duration,
}

impl Launches<'_> {
    /// Counts the pairs of `number` leaves.
    ///
    /// `arguments` returns those of a launch up to a leaf, without the last two.
    fn count<'a>(
        &mut self,
        number: u32,
        planted_pairs: i64,
        arguments: &dyn Fn(u32) -> Vec<Argument<'a>>,
        report: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<i64> {
        if number == 0 {
            return Ok(0);
        }
        let Self { queue, code, groups, .. } = *self;
        let mut found = vec![0_i64; groups + code.threads()];
        let counts = queue.memory(size_of_val(&*found))?;
        queue.clear(&counts)?;
        let next = queue.memory(4)?;
        let (mut from, mut launches) = (0, 0);
        while from < number {
            let to = number.min(from.saturating_add(self.leaves()));
            queue.write(&next, 0, &[from])?;
            let started = Instant::now();
            let mut arguments = arguments(to);
            arguments.extend([Argument::Memory(&next), Argument::Memory(&counts)]);
            queue.launch(code, groups, &arguments)?;
            let [end] = queue.read::<u32, 1>(&next, 0)?;
            // The planted leaf is one more; then each group finds none left.
            if end as usize != to as usize + 1 + groups {
                let wrong = format!("a launch took {end} leaves instead of {to}");
                return Err(DeviceError::Wrong(wrong));
            }
            // Short launches measure the overhead, so their successors grow step by step.
            let each = started.elapsed().div_f64(f64::from(to - from));
            *self.leaf_time = each.max(self.leaf_time.div_f64(4.0)).max(Duration::from_nanos(1));
            launches += 1;
            if report(to - from).is_break() {
                return Err(DeviceError::Cancelled);
            }
            from = to;
        }
        queue.read_to(&counts, 0, &mut found)?;
        let planted: i64 = found.drain(groups..).sum();
        let expected = launches * planted_pairs;
        if planted != expected {
            let wrong = format!("{planted} planted pairs found instead of {expected}");
            return Err(DeviceError::Wrong(wrong));
        }
        Ok(found.iter().sum())
    }

    /// Returns the number of leaves of the next launch.
    fn leaves(&self) -> u32 {
        match self.leaf_time.as_nanos() {
            0 => FIRST_LEAVES,
            each => u32::try_from(LAUNCH.as_nanos() / each).unwrap_or(u32::MAX).max(1),
        }
    }
}

impl DisjointPairs for DeviceJoin {
    fn start(&mut self, shared_bits: u64, top: Keys<'_>, bottom: Keys<'_>) {
        self.grids = Default::default();
        self.layout = Layout::new(shared_bits, top, bottom);
        if let Ok(layout) = &self.layout {
            self.planted.set(layout.key_mask);
        }
    }

    fn set(
        &mut self,
        side: Side,
        part: Part,
        keys: Keys<'_>,
        progress: OnProgress<'_>,
    ) -> std::result::Result<(), CountError> {
        let set = self.set_part(side, part, keys, progress);
        self.end(set)
    }

    fn join(
        &mut self,
        top: Part,
        bottom: Part,
        progress: OnProgress<'_>,
    ) -> std::result::Result<u64, CountError> {
        let counted = self.count(top, bottom, progress);
        self.end(counted)
    }
}
