//! Counting threads, their crews, and names of workers.

use std::{fmt, num::NonZeroU16, str::FromStr, thread};

use common::{
    board::Board,
    count::SetupError,
    crew_layout::{Crews, Machine},
    messages::limits::THREADS,
    plan::Plan,
    text::{NAME_BYTES, is_name},
};

use crate::memory::MemorySize;

/// A number of counting threads, 1 to the limit of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads(NonZeroU16);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid number of threads '{0}': expected a whole number from 1 to {max}", max = THREADS)]
pub struct BadThreads(String);

impl Threads {
    /// Returns the available parallelism, as limited by CPU affinity and control group.
    pub fn of_this_machine() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let cores = u32::try_from(cores).map_or(THREADS, |cores| cores.min(THREADS));
        let cores = u16::try_from(cores).ok().and_then(NonZeroU16::new);
        Self(cores.unwrap_or(NonZeroU16::MIN))
    }

    pub fn get(self) -> u32 {
        self.0.get().into()
    }

    /// Returns the number in the type that crews use.
    pub fn non_zero(self) -> NonZeroU16 {
        self.0
    }
}

impl FromStr for Threads {
    type Err = BadThreads;

    fn from_str(text: &str) -> Result<Self, BadThreads> {
        let threads = text.parse().ok().map(Self).filter(|threads| threads.get() <= THREADS);
        threads.ok_or_else(|| BadThreads(text.to_owned()))
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parses a whole number of at least 1 into one of the `NonZero` types.
pub fn at_least_one<T: FromStr>(text: &str) -> Result<T, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_zero = text.bytes().all(|byte| byte == b'0');
    text.parse().map_err(|_| match is_number && !is_zero {
        true => format!("{text} is too large"),
        false => "expected a whole number, at least 1".to_owned(),
    })
}

/// A memory limit that is too small for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} at least --memory {} with --threads {threads}, but only {} is available: give more memory or \
     fewer threads",
    board.map_or_else(|| "any board needs".to_owned(), |board| format!("N = {board} needs")),
    least.as_option(),
    given.as_option()
)]
pub struct TooLittleMemory {
    /// The board to count; `None` if even the smallest board does not fit.
    pub board: Option<Board>,
    pub given: MemorySize,
    pub threads: Threads,
    pub least: MemorySize,
}

impl TooLittleMemory {
    /// Creates the error for `threads` that need `least_bytes` together.
    pub fn new(board: Board, given: MemorySize, threads: Threads, least_bytes: u64) -> Self {
        let least = MemorySize::at_least(least_bytes);
        Self { board: Some(board), given, threads, least }
    }
}

/// Divides threads and memory into `number` crews, by default as many as fit.
pub fn crews(
    plan: &Plan,
    memory: MemorySize,
    threads: Threads,
    number: Option<NonZeroU16>,
) -> Result<Crews, TooLittleMemory> {
    Crews::new(plan, machine(memory, threads, number)).map_err(
        |SetupError::Memory { least, .. }| {
            TooLittleMemory::new(plan.spec().board, memory, threads, least)
        },
    )
}

/// Returns the machine description of these threads and this memory.
pub fn machine(memory: MemorySize, threads: Threads, crews: Option<NonZeroU16>) -> Machine {
    Machine { threads: threads.non_zero(), memory_bytes: memory.bytes(), crews }
}

/// Returns the default name of a worker: `host`, with invalid characters replaced.
pub fn default_name(host: &str) -> String {
    let plain = |c: char| if is_name(c.encode_utf8(&mut [0; 4])) { c } else { '-' };
    let name: String = host.trim().chars().map(plain).collect();
    // A name with a leading '-' would be an option on a command line.
    let name: String = name.trim_start_matches('-').chars().take(NAME_BYTES).collect();
    if name.contains(|c: char| c.is_ascii_alphanumeric()) { name } else { "worker".to_owned() }
}

/// Returns the host name; empty if unknown.
pub fn host_name() -> String {
    // sysinfo returns no name of 64 bytes, Linux' maximum, and none that is not UTF-8.
    #[cfg(target_os = "linux")]
    if let Ok(name) = std::fs::read("/proc/sys/kernel/hostname") {
        return String::from_utf8_lossy(&name).trim().to_owned();
    }
    sysinfo::System::host_name().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_threads_are_within_the_protocols_bounds() {
        assert_eq!("4096".parse().map(Threads::get), Ok(4096));
        for bad in ["0", "-1", "4097", "two", ""] {
            assert_eq!(bad.parse::<Threads>(), Err(BadThreads(bad.to_owned())));
        }
        assert!(Threads::of_this_machine().get() >= 1);
    }

    #[test]
    fn numbers_are_at_least_one() {
        let parsed = at_least_one::<std::num::NonZeroU16>;
        assert_eq!(parsed("7").map(u16::from), Ok(7));
        for bad in ["0", "00", "", "-1", "1.5", "two"] {
            assert!(parsed(bad).unwrap_err().contains("at least 1"), "{bad}");
        }
        assert!(parsed("65536").unwrap_err().contains("too large"));
    }

    #[test]
    fn every_host_name_gives_a_valid_worker_name() {
        for (host, name) in [
            (" node-7.rack_2\n", "node-7.rack_2"),
            ("Zoë's PC", "Zo--s-PC"),
            ("", "worker"),
            (&"n".repeat(100), &"n".repeat(64)),
            ("-box", "box"),
            ("東京", "worker"),
            ("東京-7", "7"),
        ] {
            assert_eq!(default_name(host), name);
        }
        assert!(is_name(&default_name(&host_name())));
    }
}
