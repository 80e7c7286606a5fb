//! Amounts of memory: as people write them, and as this machine has them.

use std::{fmt, str::FromStr};

use bytesize::ByteSize;
use sysinfo::{MemoryRefreshKind, ProcessRefreshKind, ProcessesToUpdate, System};

/// Gives back to the system what was freed: glibc keeps some of it for every thread.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// An amount of memory in bytes, at least 1.
///
/// As text: a number, alone (bytes) or followed by `K`, `M`, `G`, `T` or `KB`, `MB`, `GB`, `TB`
/// (powers of 1000), or `KiB`, `MiB`, `GiB`, `TiB` (powers of 1024), in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemorySize(u64);

/// Text that is no amount of memory that counting may use here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMemorySize {
    /// The text has another form.
    #[error(
        "'{0}' is no amount of memory: give a number of bytes such as 8589934592, or one with a \
         unit such as 8GiB, 1.5G or 500MB"
    )]
    Form(String),
    /// The number passes 64 bits.
    #[error("'{0}' is more memory than 64 bits can count")]
    TooLarge(String),
    /// More than there is.
    #[error("'{given}' is more than this process may use: {owner} has {there_is}")]
    TooMuch {
        /// What was given.
        given: String,
        /// The machine or its control group.
        owner: &'static str,
        /// What that has in all.
        there_is: MemorySize,
    },
}

impl MemorySize {
    /// This many bytes; 0 is no amount.
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes == 0 { None } else { Some(Self(bytes)) }
    }

    /// This many bytes, or 1.
    pub const fn at_least(bytes: u64) -> Self {
        Self(if bytes == 0 { 1 } else { bytes })
    }

    /// In bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// As an option takes it, rounded up: `1.6GiB`.
    pub fn as_option(self) -> String {
        let (unit, factor) = self.unit();
        let tenths = (u128::from(self.0) * 10).div_ceil(u128::from(factor));
        format!("{}.{}{unit}", tenths / 10, tenths % 10)
    }

    /// The largest binary unit of which there is at least one.
    fn unit(self) -> (&'static str, u64) {
        [
            ("TiB", 1u64 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
        ]
        .into_iter()
        .find(|(_, factor)| self.0 >= *factor)
        .unwrap_or(("B", 1))
    }

    /// What an option gives: refused if this machine, or the control group that this process runs
    /// in, has less.
    pub fn of_option(text: &str) -> Result<Self, BadMemorySize> {
        let size: Self = text.parse()?;
        Room::of_this_process().check(size, text)?;
        Ok(size)
    }

    /// What counting may use when nobody says: 80 % of what the machine, and the control groups that
    /// this process runs in, have free at this moment; 1 GiB where that cannot be found out.
    pub fn of_this_machine() -> Self {
        let free = Room::of_this_process().free().unwrap_or(5 << 28);
        Self((free / 5 * 4).max(1))
    }
}

/// Memory in all and free, in bytes; `None` where it is unknown or unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Room {
    machine: Option<(u64, u64)>,
    /// The least of the control group that this process runs in and of all groups around it.
    group: Option<(u64, u64)>,
}

impl Room {
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
            group: group.map(|limits| (limits.total_memory, limits.free_memory)),
        }
    }

    fn free(self) -> Option<u64> {
        let free = |(_, free): (u64, u64)| free;
        self.machine
            .map(free)
            .into_iter()
            .chain(self.group.map(free))
            .min()
    }

    fn check(self, size: MemorySize, given: &str) -> Result<(), BadMemorySize> {
        let machine = self.machine.map(|(total, _)| (total, "this machine"));
        let group = self.group.map(|(total, _)| (total, "its control group"));
        let least = machine.into_iter().chain(group).min();
        match least.and_then(|(total, owner)| Some((MemorySize::new(total)?, owner))) {
            Some((there_is, owner)) if size > there_is => Err(BadMemorySize::TooMuch {
                given: given.to_owned(),
                owner,
                there_is,
            }),
            Some(_) | None => Ok(()),
        }
    }
}

impl FromStr for MemorySize {
    type Err = BadMemorySize;

    fn from_str(text: &str) -> Result<Self, BadMemorySize> {
        let bad = || BadMemorySize::Form(text.to_owned());
        let too_large = || BadMemorySize::TooLarge(text.to_owned());
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let size: ByteSize = text.trim().parse().map_err(|_| match is_number {
            true => too_large(),
            false => bad(),
        })?;
        match size.as_u64() {
            // Where the library saturates.
            u64::MAX => Err(too_large()),
            bytes => Self::new(bytes).ok_or_else(bad),
        }
    }
}

impl fmt::Display for MemorySize {
    /// The largest binary unit of which there is at least one, with one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = self.unit();
        let tenths = u128::from(self.0) * 10 / u128::from(factor);
        write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
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
            let error = bad.parse::<MemorySize>().unwrap_err();
            assert_eq!(error, BadMemorySize::Form(bad.to_owned()), "{bad}");
        }
        for large in ["99999999999999999999", "99999999999TiB"] {
            let error = large.parse::<MemorySize>().unwrap_err();
            assert_eq!(error, BadMemorySize::TooLarge(large.to_owned()));
        }
    }

    #[test]
    fn sizes_are_shown_with_one_decimal() {
        assert_eq!(MemorySize(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(MemorySize(1).to_string(), "1.0 B");
    }

    #[test]
    fn hints_name_sizes_that_are_read_back_as_no_less() {
        for bytes in [1, 1023, 1025, 57_000_000, 1 << 30, (1 << 30) + 1] {
            let size = MemorySize(bytes);
            let read: MemorySize = size.as_option().parse().unwrap();
            assert!(
                read >= size && read.bytes() - bytes <= bytes / 10 + 1,
                "{read}"
            );
        }
        assert_eq!(MemorySize(57_000_000).as_option(), "54.4MiB");
    }

    #[test]
    fn more_than_the_machine_or_its_group_has_is_refused() {
        let room = Room {
            machine: Some((32 << 30, 20 << 30)),
            group: Some((4 << 30, 3 << 30)),
        };
        let error = room.check(MemorySize(5 << 30), "5GiB").unwrap_err();
        assert_eq!(
            error.to_string(),
            "'5GiB' is more than this process may use: its control group has 4.0 GiB"
        );
        assert_eq!(room.check(MemorySize(4 << 30), "4GiB"), Ok(()));
        assert_eq!(room.free(), Some(3 << 30));
        let alone = Room {
            group: None,
            ..room
        };
        let error = alone.check(MemorySize(100 << 40), "100TiB").unwrap_err();
        assert!(
            error.to_string().contains("this machine has 32.0 GiB"),
            "{error}"
        );
        assert_eq!(alone.free(), Some(20 << 30));
        assert_eq!(Room::default().free(), None);
        assert_eq!(
            Room::default().check(MemorySize(1 << 50), "1024TiB"),
            Ok(())
        );
    }

    #[test]
    fn this_machine_has_memory() {
        let room = Room::of_this_process();
        let (total, free) = room.machine.unwrap();
        assert!(0 < free && free <= total, "{room:?}");
        let usual = MemorySize::of_this_machine();
        assert!(usual.bytes() > 1 && usual.bytes() < total, "{usual}");
    }
}
