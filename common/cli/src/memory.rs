//! Memory sizes, available memory, and memory claimed by this machine's workers.
//!
//! A new worker uses memory that no other worker has claimed. A file of this user in the temporary
//! directory has an entry per worker. Without the file, a worker uses the memory that is free when it
//! starts, although others may have claimed and not yet allocated it.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    path::PathBuf,
    process,
    str::FromStr,
    thread,
    time::Duration,
};

use bytesize::ByteSize;
use common::text::{NAME_BYTES, plural};
use serde::{Deserialize, Serialize};
use sysinfo::{MemoryRefreshKind, Pid, Process, ProcessRefreshKind, ProcessesToUpdate, System};

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

    /// Returns the default for counting: 80 % of the free memory that is not claimed.
    ///
    /// The machine and the control group limit the free memory. If unknown, the result is 1 GiB.
    pub fn of_this_machine() -> Self {
        Self::of_free(Taken::by_others())
    }

    /// Returns the default for counting, given the claims of other workers.
    pub(crate) fn of_free(taken: Taken) -> Self {
        let free = AvailableMemory::of_this_process().free(taken).unwrap_or(5 << 28);
        Self((free / 5 * 4).max(1))
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

    /// Returns the free memory that is not claimed.
    fn free(self, taken: Taken) -> Option<u64> {
        let machine = self.machine.map(|(_, free)| free.saturating_sub(taken.machine));
        let group = self.group.map(|(_, free)| free.saturating_sub(taken.group));
        let process = self.process.map(|(_, free)| free);
        machine.into_iter().chain(group).chain(process).min()
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

/// A worker of this machine and its memory limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    process: u32,
    /// Start time (see [`started`]); makes the process number unique.
    started: u64,
    name: String,
    memory_bytes: u64,
}

/// Name and memory of a worker that shares its machine with others.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The requested name, or the machine's with an unused number.
    pub name: String,
    /// The requested or the default memory.
    pub memory: MemorySize,
    /// Other workers, if they reduce the default.
    pub others: Option<String>,
}

/// Claims memory and a name for a worker of this process.
///
/// The defaults are 80 % of the free memory that is not claimed, and `host`, numbered if it is taken.
pub fn claim(name: Option<&str>, host: &str, memory: Option<MemorySize>) -> Claimed {
    let without_file = |_: io::Error| Claimed {
        name: name.unwrap_or(host).to_owned(),
        memory: memory.unwrap_or_else(|| MemorySize::of_free(Taken::default())),
        others: None,
    };
    try_claim(name, host, memory).unwrap_or_else(without_file)
}

/// Memory that other workers have claimed and not allocated yet, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes on the whole machine.
    pub(crate) machine: u64,
    /// The part of these bytes in the control group of this process.
    pub(crate) group: u64,
}

impl Taken {
    pub(crate) fn by_others() -> Self {
        let read = locked().and_then(|mut file| read(&mut file));
        read.ok()
            .and_then(|claims| active(&claims))
            .map_or_else(Self::default, |active| active.taken)
    }
}

fn try_claim(name: Option<&str>, host: &str, memory: Option<MemorySize>) -> io::Result<Claimed> {
    let mut file = locked()?;
    let ActiveClaims { mut claims, taken, started } =
        active(&read(&mut file)?).ok_or(io::ErrorKind::Unsupported)?;
    let is_free = |name: &String| claims.iter().all(|other| other.name != *name);
    let name = match name {
        Some(name) => name.to_owned(),
        None => {
            (1..=u32::MAX).map(|number| numbered(host, number)).find(is_free).unwrap_or_default()
        }
    };
    let others = (memory.is_none() && taken.machine > 0).then(|| describe(&claims));
    let memory = memory.unwrap_or_else(|| MemorySize::of_free(taken));
    let claimed = Claimed { name, memory, others };
    claims.push(Claim {
        process: process::id(),
        started,
        name: claimed.name.clone(),
        memory_bytes: memory.bytes(),
    });
    let text = serde_json::to_vec(&claims)?;
    file.rewind()?;
    file.write_all(&text)?;
    file.set_len(text.len() as u64)?;
    Ok(claimed)
}

fn describe(claims: &[Claim]) -> String {
    let bytes = claims.iter().map(|claim| claim.memory_bytes).fold(0, u64::saturating_add);
    let names: Vec<_> = claims.iter().take(3).map(|claim| claim.name.as_str()).collect();
    let more = if claims.len() > names.len() { ", …" } else { "" };
    format!(
        "{} on this machine ({}{more}) may use {}",
        plural(claims.len(), "other worker"),
        names.join(", "),
        MemorySize::at_least(bytes)
    )
}

/// Claims of other processes that are still running.
struct ActiveClaims {
    claims: Vec<Claim>,
    taken: Taken,
    /// Start time of this process.
    started: u64,
}

/// Returns claims of running processes; `None` if the system does not list them.
fn active(claims: &[Claim]) -> Option<ActiveClaims> {
    let own = process::id();
    let pids = claims.iter().map(|claim| claim.process).chain([own]);
    let pids: Vec<_> = pids.map(Pid::from_u32).collect();
    let mut system = System::new().ok()?;
    let fields = ProcessRefreshKind::nothing().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&pids), true, fields);
    let process = |number| system.process(Pid::from_u32(number));
    let group = |process: u32| fs::read_to_string(format!("/proc/{process}/cgroup")).ok();
    let own_group = group(own);
    let started_at = started(process(own)?);
    let mut active =
        ActiveClaims { claims: Vec::new(), taken: Taken::default(), started: started_at };
    for claim in claims.iter().filter(|claim| claim.process != own) {
        if let Some(process) = process(claim.process)
            && started(process) == claim.started
        {
            let unused = claim.memory_bytes.saturating_sub(process.memory());
            active.taken.machine = active.taken.machine.saturating_add(unused);
            if own_group.is_some() && group(claim.process) == own_group {
                active.taken.group = active.taken.group.saturating_add(unused);
            }
            active.claims.push(claim.clone());
        }
    }
    Some(active)
}

/// Returns a process's start time in seconds since 1970; on Linux since boot, because there the time since
/// 1970 changes when the clock is set.
fn started(process: &Process) -> u64 {
    let origin = if cfg!(target_os = "linux") { System::boot_time() } else { Ok(0) };
    process.start_time().saturating_sub(origin.unwrap_or(0))
}

/// Returns the claims in the file; none if it is invalid.
fn read(file: &mut File) -> io::Result<Vec<Claim>> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

/// Returns `name`, `name-2`, …, truncated to the maximum length.
pub fn numbered(name: &str, number: u32) -> String {
    let end = if number == 1 { String::new() } else { format!("-{number}") };
    format!("{}{end}", &name[..name.floor_char_boundary(NAME_BYTES - end.len())])
}

/// Opens the claims file, locked until it is closed; workers hold it only briefly.
fn locked() -> io::Result<File> {
    const ATTEMPTS: u32 = 100;
    const PAUSE: Duration = Duration::from_millis(10);
    let path = directory()?.join("claims.json");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    for _ in 0..ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) => thread::sleep(PAUSE),
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Returns a directory that only this user can write.
#[cfg(unix)]
fn directory() -> io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};

    let user = rustix::process::geteuid().as_raw();
    let directory = std::env::temp_dir().join(format!("queens-workers-{user}"));
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // An existing directory may belong to another user.
    let metadata = fs::symlink_metadata(&directory)?;
    match metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o022 == 0 {
        true => Ok(directory),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Returns a directory in the temporary directory, which is separate for each user.
#[cfg(not(unix))]
fn directory() -> io::Result<PathBuf> {
    let directory = std::env::temp_dir().join("queens-workers");
    fs::create_dir_all(&directory)?;
    Ok(directory)
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
        assert_eq!(available.free(Taken::default()), Some(3 << 30));
        let taken = |machine: u64, group: u64| Taken { machine: machine << 30, group: group << 30 };
        assert_eq!(available.free(taken(18, 0)), Some(2 << 30));
        assert_eq!(available.free(taken(2, 2)), Some(1 << 30));
        assert_eq!(available.free(taken(30, 0)), Some(0));
        let limited = AvailableMemory { process: Some((3 << 30, 1 << 30)), ..available };
        let error = limited.check(MemorySize(5 << 30), "5GiB").unwrap_err();
        assert!(error.to_string().contains("(ulimit -v) has 3.0 GiB"), "{error}");
        assert_eq!(limited.free(Taken::default()), Some(1 << 30));
        assert_eq!(limited.quarter(), MemorySize(768 << 20));
        let alone = AvailableMemory { group: None, ..available };
        let error = alone.check(MemorySize(100 << 40), "100TiB").unwrap_err();
        assert!(error.to_string().contains("this machine has 32.0 GiB"), "{error}");
        assert_eq!(alone.free(Taken::default()), Some(20 << 30));
        assert_eq!(AvailableMemory::default().free(taken(1, 1)), None);
        assert_eq!(AvailableMemory::default().check(MemorySize(1 << 50), "1024TiB"), Ok(()));
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
