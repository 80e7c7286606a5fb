//! Memory sizes, available memory, and memory reserved for counts.
//!
//! Free memory that two processes see at the same moment is the same memory. So a process that needs much of
//! it takes it in small steps, and looks at what is left before each step.

use std::{
    fmt, fs,
    str::FromStr,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use bytesize::ByteSize;
use common::text::NAME_BYTES;
use sysinfo::{MemoryRefreshKind, ProcessRefreshKind, ProcessesToUpdate, System};

/// A memory size in bytes, at least 1.
///
/// As text: a number, alone (bytes) or followed by `K`, `M`, `G`, `T` or `KB`, `MB`, `GB`, `TB`
/// (powers of 1000), or `KiB`, `MiB`, `GiB`, `TiB` (powers of 1024); case-insensitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemorySize(u64);

/// An invalid memory size, or one that is more than this process can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadMemorySize(String);

impl MemorySize {
    /// Creates a size; `None` for 0.
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes == 0 { None } else { Some(Self(bytes)) }
    }

    /// Creates a size of `bytes`, at least 1.
    pub const fn at_least(bytes: u64) -> Self {
        Self(if bytes == 0 { 1 } else { bytes })
    }

    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Formats the size as an option value, rounded up: `1.6GiB`.
    pub fn as_option(self) -> String {
        let (unit, factor) = self.unit();
        let tenths = (u128::from(self.0) * 10).div_ceil(u128::from(factor));
        format!("{}.{}{unit}", tenths / 10, tenths % 10)
    }

    /// Returns the largest binary unit that does not exceed the size.
    fn unit(self) -> (&'static str, u64) {
        [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
            .into_iter()
            .find(|(_, factor)| self.0 >= *factor)
            .unwrap_or(("B", 1))
    }

    /// Parses an option; fails if this machine or control group has less memory.
    pub fn of_option(text: &str) -> Result<Self, BadMemorySize> {
        let size: Self = text.parse()?;
        AvailableMemory::of_this_process().check(size, text)?;
        Ok(size)
    }

    /// Fails if the address space of this process is limited to less than `least`.
    ///
    /// A program whose allocation fails aborts.
    pub fn check_address_space(least: Self) -> Result<(), BadMemorySize> {
        let limit = address_space().map_or(u64::MAX, |(limit, _)| limit);
        if limit >= least.0 {
            return Ok(());
        }
        Err(BadMemorySize(format!(
            "the address space of this process is limited to {} (ulimit -v), but {least} is needed: \
             raise the limit",
            Self::at_least(limit)
        )))
    }

    /// Returns a referee's default: a quarter of the total memory, at most 1 GiB.
    pub fn of_a_referee() -> Self {
        AvailableMemory::of_this_process().quarter()
    }

    /// Returns the default limit for counting: 80 % of the free memory.
    ///
    /// The machine and the control group limit the free memory. If unknown, the result is 1 GiB.
    pub fn of_this_machine() -> Self {
        let free = AvailableMemory::of_this_process().free().unwrap_or(5 << 28);
        Self((free - free / FREE_PART).max(1))
    }
}

/// Total and free memory in bytes; `None` if unknown or unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AvailableMemory {
    machine: Option<(u64, u64)>,
    /// The minimum over this process's control group and the parents of that group.
    group: Option<(u64, u64)>,
    /// The address space of this process, if limited (`ulimit -v`).
    process: Option<(u64, u64)>,
}

impl AvailableMemory {
    fn of_this_process() -> Self {
        let Ok(mut system) = System::new() else {
            return Self::default();
        };
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let total = system.total_memory();
        let group = sysinfo::get_current_pid().ok().and_then(|pid| {
            let this = ProcessesToUpdate::Some(&[pid]);
            system.refresh_processes_specifics(this, true, ProcessRefreshKind::nothing());
            system.process(pid)?.cgroup_limits()
        });
        Self {
            machine: (total > 0).then(|| (total, system.available_memory())),
            group: group.map(|limits| {
                let free = limits.free_memory.saturating_add(page_cache());
                (limits.total_memory, free.min(limits.total_memory))
            }),
            process: address_space(),
        }
    }

    /// Returns the free memory.
    fn free(self) -> Option<u64> {
        let all = [self.machine, self.group, self.process];
        all.into_iter().flatten().map(|(_, free)| free).min()
    }

    /// Returns a quarter of the total, at most 1 GiB; if unknown, a quarter of 1 GiB.
    fn quarter(self) -> MemorySize {
        let total = |(total, _): (u64, u64)| total;
        let total = [self.machine, self.group, self.process].into_iter().flatten().map(total).min();
        MemorySize((total.unwrap_or(1 << 30) / 4).clamp(1, 1 << 30))
    }

    fn check(self, size: MemorySize, given: &str) -> Result<(), BadMemorySize> {
        let machine = self.machine.map(|(total, _)| (total, "this machine"));
        let group = self.group.map(|(total, _)| (total, "its control group"));
        let process = self.process.map(|(total, _)| (total, "its address space (ulimit -v)"));
        let least = machine.into_iter().chain(group).chain(process).min();
        match least.and_then(|(total, owner)| Some((MemorySize::new(total)?, owner))) {
            Some((limit, owner)) if size > limit => Err(BadMemorySize(format!(
                "'{given}' is more than this process may use: {owner} has {limit}"
            ))),
            Some(_) | None => Ok(()),
        }
    }
}

/// Returns the limit of this process's address space, and the part of it that is not used.
#[cfg(target_os = "linux")]
fn address_space() -> Option<(u64, u64)> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let used = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB"));
    let used: u64 = used.and_then(|kibibytes| kibibytes.trim().parse().ok()).unwrap_or(0);
    Some((limit, limit.saturating_sub(used << 10)))
}

#[cfg(not(target_os = "linux"))]
fn address_space() -> Option<(u64, u64)> {
    None
}

/// Returns the page cache of this process's control group (version 2) in bytes: used, but reclaimable.
fn page_cache() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(path) = groups.lines().find_map(|line| line.strip_prefix("0::")) else { return 0 };
    let stat = fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.stat")).unwrap_or_default();
    let fields = stat.lines().filter_map(|line| line.split_once(' '));
    let files = fields.filter(|(key, _)| ["active_file", "inactive_file"].contains(key));
    files.filter_map(|(_, bytes)| bytes.parse::<u64>().ok()).sum()
}

impl FromStr for MemorySize {
    type Err = BadMemorySize;

    fn from_str(text: &str) -> Result<Self, BadMemorySize> {
        let bad = || {
            BadMemorySize(format!(
                "invalid memory size '{text}': give a number of bytes such as 8589934592, or one with a \
                 unit such as 8GiB, 1.5G or 500MB"
            ))
        };
        let too_large = || BadMemorySize(format!("memory size '{text}' exceeds 64 bits"));
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let size: ByteSize = text.trim().parse().map_err(|_| match is_number {
            true => too_large(),
            false => bad(),
        })?;
        match size.as_u64() {
            // The library saturates here.
            u64::MAX => Err(too_large()),
            bytes => Self::new(bytes).ok_or_else(bad),
        }
    }
}

impl fmt::Display for MemorySize {
    /// Formats the size in its largest binary unit, with one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = self.unit();
        let tenths = u128::from(self.0) * 10 / u128::from(factor);
        write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// Divisor of the free memory: the part that a count leaves to others.
const FREE_PART: u64 = 5;

/// Bytes that are left in any case, but at most a quarter of the total.
const MIN_LEFT: u64 = 16 * STEP;

/// Bytes that a process takes at a time.
const STEP: u64 = 16 << 20;

/// The least bytes that are reserved: smaller counts cannot exhaust a machine.
const LARGE: u64 = 4 * STEP;

/// Interval at which reserved memory is exchanged for that of counts.
const EXCHANGE_INTERVAL: Duration = Duration::from_millis(50);

/// Memory that this process holds until its counts allocate as much.
#[derive(Debug)]
struct Reserve {
    /// The process's memory before its first reservation.
    before: Option<u64>,
    wanted: u64,
    steps: Vec<Vec<u8>>,
    exchanging: bool,
}

static RESERVE: Mutex<Reserve> =
    Mutex::new(Reserve { before: None, wanted: 0, steps: Vec::new(), exchanging: false });

fn reserve_of_process() -> MutexGuard<'static, Reserve> {
    RESERVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reserves memory for counts that use up to `wanted` bytes together; returns how much they may use.
///
/// It is less if the process would leave less than a fifth of the free memory to others, or less than the smaller of
/// 256 MiB and a quarter of the total. What other processes reserve meanwhile is not free.
pub fn reserve(wanted: u64) -> u64 {
    let Some(resident) = resident().filter(|_| wanted >= LARGE) else { return wanted };
    let mut reserve = reserve_of_process();
    let before = *reserve.before.get_or_insert(resident);
    let held = || self::resident().unwrap_or(u64::MAX).saturating_sub(before);
    let free = || AvailableMemory::of_this_process().free();
    let MemorySize(quarter) = AvailableMemory::of_this_process().quarter();
    let given = take_steps(wanted, MIN_LEFT.min(quarter), held, free, || {
        // Written, because the system hands out memory when it is first written.
        reserve.steps.push(vec![1; usize::try_from(STEP).unwrap_or(usize::MAX)]);
    });
    reserve.wanted = given;
    if !reserve.exchanging && !reserve.steps.is_empty() {
        reserve.exchanging =
            thread::Builder::new().name("memory".to_owned()).spawn(exchange).is_ok();
        if !reserve.exchanging {
            reserve.steps.clear();
        }
    }
    given
}

/// Frees what is still reserved.
pub fn end_reservation() {
    reserve_of_process().steps.clear();
}

/// Frees reserved memory as the process allocates other memory, until none is left.
fn exchange() {
    loop {
        thread::sleep(EXCHANGE_INTERVAL);
        let mut reserve = reserve_of_process();
        let most = reserve.before.unwrap_or(0).saturating_add(reserve.wanted);
        let excess = resident().unwrap_or(u64::MAX).saturating_sub(most);
        let steps = usize::try_from(excess.div_ceil(STEP)).unwrap_or(usize::MAX);
        let remaining = reserve.steps.len().saturating_sub(steps);
        reserve.steps.truncate(remaining);
        if reserve.steps.is_empty() {
            reserve.exchanging = false;
            return;
        }
    }
}

/// Takes steps until the process holds `wanted` bytes, or would leave too little; returns the bytes.
fn take_steps(
    wanted: u64,
    min_left: u64,
    held: impl Fn() -> u64,
    free: impl Fn() -> Option<u64>,
    mut take: impl FnMut(),
) -> u64 {
    // Several processes may take a step of the same memory before they see each other.
    let Some(left) = free().map(|free| (free / FREE_PART).max(min_left)) else { return wanted };
    loop {
        let held = held();
        if held >= wanted {
            return wanted;
        }
        if free().is_none_or(|free| free < left.saturating_add(STEP)) {
            return held;
        }
        take();
    }
}

/// Returns the resident memory of this process in bytes, if known.
fn resident() -> Option<u64> {
    let mut system = System::new().ok()?;
    let pid = sysinfo::get_current_pid().ok()?;
    let fields = ProcessRefreshKind::nothing().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, fields);
    Some(system.process(pid)?.memory())
}

/// Returns `name`, `name-2`, …, truncated to the maximum length.
pub fn numbered(name: &str, number: u32) -> String {
    let end = if number == 1 { String::new() } else { format!("-{number}") };
    format!("{}{end}", &name[..name.floor_char_boundary(NAME_BYTES - end.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown_with_their_units() {
        for (text, bytes) in [
            ("1", 1),
            ("8589934592", 8 << 30),
            ("8GiB", 8 << 30),
            ("8 gib", 8 << 30),
            ("8G", 8_000_000_000),
            ("8g", 8_000_000_000),
            ("8Gi", 8 << 30),
            ("1.5GiB", 3 << 29),
            ("0.5TiB", 1 << 39),
            ("500MB", 500_000_000),
            ("2TiB", 2 << 40),
            ("64B", 64),
        ] {
            let read = text.parse::<MemorySize>();
            assert_eq!(read.map(MemorySize::bytes), Ok(bytes), "{text}");
        }
        for bad in ["", "0", "GiB", "-1", "8 apples", "0KiB", "1.2.3GiB", "NaN"] {
            let error = bad.parse::<MemorySize>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("invalid memory size '{bad}': ")), "{error}");
        }
        for large in ["99999999999999999999", "99999999999TiB"] {
            let error = large.parse::<MemorySize>().unwrap_err().to_string();
            assert_eq!(error, format!("memory size '{large}' exceeds 64 bits"));
        }
        assert_eq!(MemorySize(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(MemorySize(1).to_string(), "1.0 B");
    }

    #[test]
    fn sizes_in_hints_are_rounded_up() {
        for bytes in [1, 1023, 1025, 57_000_000, 1 << 30, (1 << 30) + 1] {
            let size = MemorySize(bytes);
            let read: MemorySize = size.as_option().parse().unwrap();
            assert!(read >= size && read.bytes() - bytes <= bytes / 10 + 1, "{read}");
        }
        assert_eq!(MemorySize(57_000_000).as_option(), "54.4MiB");
    }

    #[test]
    fn a_referee_gets_a_quarter_and_at_most_1_gib() {
        let available = AvailableMemory {
            machine: Some((32 << 30, 20 << 30)),
            group: Some((2 << 30, 1 << 30)),
            process: None,
        };
        assert_eq!(available.quarter(), MemorySize(512 << 20));
        assert_eq!(AvailableMemory { group: None, ..available }.quarter(), MemorySize(1 << 30));
        assert_eq!(AvailableMemory::default().quarter(), MemorySize(256 << 20));
    }

    #[test]
    fn more_memory_than_the_machine_or_its_group_has_is_refused() {
        let available = AvailableMemory {
            machine: Some((32 << 30, 20 << 30)),
            group: Some((4 << 30, 3 << 30)),
            process: None,
        };
        let error = available.check(MemorySize(5 << 30), "5GiB").unwrap_err();
        assert_eq!(
            error.to_string(),
            "'5GiB' is more than this process may use: its control group has 4.0 GiB"
        );
        assert_eq!(available.check(MemorySize(4 << 30), "4GiB"), Ok(()));
        assert_eq!(available.free(), Some(3 << 30));
        let limited = AvailableMemory { process: Some((3 << 30, 1 << 30)), ..available };
        let error = limited.check(MemorySize(5 << 30), "5GiB").unwrap_err();
        assert!(error.to_string().contains("(ulimit -v) has 3.0 GiB"), "{error}");
        assert_eq!(limited.free(), Some(1 << 30));
        assert_eq!(limited.quarter(), MemorySize(768 << 20));
        let alone = AvailableMemory { group: None, ..available };
        let error = alone.check(MemorySize(100 << 40), "100TiB").unwrap_err();
        assert!(error.to_string().contains("this machine has 32.0 GiB"), "{error}");
        assert_eq!(alone.free(), Some(20 << 30));
        assert_eq!(AvailableMemory::default().free(), None);
        assert_eq!(AvailableMemory::default().check(MemorySize(1 << 50), "1024TiB"), Ok(()));
    }

    /// The free memory of a machine with this total, and the bytes that processes get which reserve at the same moment.
    fn reserved_at_once(total: u64, wanted: &[u64]) -> (u64, Vec<u64>) {
        use std::sync::{
            Barrier,
            atomic::{AtomicU64, Ordering::SeqCst},
        };
        let (free, start) = (AtomicU64::new(total), Barrier::new(wanted.len()));
        let given = thread::scope(|scope| {
            let processes: Vec<_> = wanted
                .iter()
                .map(|&wanted| {
                    let (free, start, held) = (&free, &start, AtomicU64::new(0));
                    scope.spawn(move || {
                        start.wait();
                        let take = || {
                            held.fetch_add(STEP, SeqCst);
                            free.fetch_sub(STEP, SeqCst);
                        };
                        let min_left = MIN_LEFT.min(total / 4);
                        let (held, free) = (|| held.load(SeqCst), || Some(free.load(SeqCst)));
                        take_steps(wanted, min_left, held, free, take)
                    })
                })
                .collect();
            processes.into_iter().map(|process| process.join().unwrap()).collect()
        });
        (free.into_inner(), given)
    }

    #[test]
    fn processes_that_reserve_at_the_same_moment_do_not_overcommit() {
        const TOTAL: u64 = 20 << 30;
        for number in [1, 2, 6] {
            let (left, given) = reserved_at_once(TOTAL, &vec![16 << 30; number]);
            assert_eq!(left + given.iter().sum::<u64>(), TOTAL, "all that is used was free");
            // Each may take a step after another saw the same memory.
            assert!(left + number as u64 * STEP >= MIN_LEFT, "{left}: {given:?}");
            assert!(given.iter().any(|given| *given > 0), "{given:?}");
        }
        // Processes that need little get it.
        assert_eq!(reserved_at_once(TOTAL, &[1 << 30; 6]).1, [1 << 30; 6]);
    }

    #[test]
    fn a_small_container_has_memory_for_a_small_count() {
        assert_eq!(reserved_at_once(280 << 20, &[100 << 20]).1, [100 << 20]);
        let (left, given) = reserved_at_once(280 << 20, &[280 << 20]);
        assert!(left >= 70 << 20 && given[0] > 100 << 20, "{left}: {given:?}");
    }

    #[test]
    fn reserved_memory_is_resident_until_it_ends() {
        let held = || reserve_of_process().steps.len() as u64 * STEP;
        let given = reserve(LARGE);
        assert!(given <= LARGE && held() <= LARGE + STEP, "{given}");
        end_reservation();
        assert_eq!(held(), 0);
        assert_eq!(reserve(LARGE - 1), LARGE - 1, "small counts need none");
        assert_eq!(held(), 0);
    }

    #[test]
    fn names_are_numbered_within_their_maximum_length() {
        assert_eq!(numbered("node", 1), "node");
        assert_eq!(numbered("node", 12), "node-12");
        assert_eq!(numbered(&"n".repeat(64), 12), "n".repeat(61) + "-12");
    }

    #[test]
    fn this_machine_has_memory() {
        let available = AvailableMemory::of_this_process();
        let (total, free) = available.machine.unwrap();
        assert!(0 < free && free <= total, "{available:?}");
        let size = MemorySize::of_this_machine();
        assert!(size.bytes() > 1 && size.bytes() < total, "{size}");
    }
}
