//! Amounts of memory: as people write them, and as this machine has them.

use std::{fmt, fs, num::IntErrorKind, str::FromStr};

/// An amount of memory in bytes, at least 1.
///
/// As text: a whole number, alone (bytes) or followed by `KiB`, `MiB`, `GiB`, `TiB` (powers of
/// 1024) or `KB`, `MB`, `GB`, `TB` (powers of 1000).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemorySize(u64);

/// Text that is no amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMemorySize {
    /// The text has another form.
    #[error(
        "'{0}' is no amount of memory: give whole bytes such as 8589934592, or a number with a \
         unit such as 8GiB or 500MB"
    )]
    Form(String),
    /// The number passes 64 bits.
    #[error("'{0}' is more memory than 64 bits can count")]
    TooLarge(String),
}

const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

impl MemorySize {
    /// This many bytes; 0 is no amount.
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes == 0 { None } else { Some(Self(bytes)) }
    }

    /// In bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// What counting may use when nobody says: 80 % of what the machine, and the control group that
    /// this process runs in, have free at this moment; 1 GiB where that cannot be found out.
    pub fn of_this_machine() -> Self {
        let machine = fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| available_in_meminfo(&text));
        let group = free_in_group(
            fs::read_to_string("/sys/fs/cgroup/memory.max").ok(),
            fs::read_to_string("/sys/fs/cgroup/memory.current").ok(),
        );
        let free = machine.into_iter().chain(group).min();
        Self((free.unwrap_or(5 << 28) / 5 * 4).max(1))
    }
}

fn available_in_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// A group without a limit says "max", which is no number and so no bound.
fn free_in_group(limit: Option<String>, used: Option<String>) -> Option<u64> {
    let limit: u64 = limit?.trim().parse().ok()?;
    let used: u64 = used?.trim().parse().ok()?;
    Some(limit.saturating_sub(used))
}

impl FromStr for MemorySize {
    type Err = BadMemorySize;

    fn from_str(text: &str) -> Result<Self, BadMemorySize> {
        let bad = || BadMemorySize::Form(text.to_owned());
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = unit.trim_start();
        let (_, factor) = UNITS
            .into_iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .ok_or_else(bad)?;
        let number: u64 = number.parse().map_err(|e: std::num::ParseIntError| {
            if *e.kind() == IntErrorKind::PosOverflow {
                BadMemorySize::TooLarge(text.to_owned())
            } else {
                bad()
            }
        })?;
        let bytes = number
            .checked_mul(factor)
            .ok_or_else(|| BadMemorySize::TooLarge(text.to_owned()))?;
        Self::new(bytes).ok_or_else(bad)
    }
}

impl fmt::Display for MemorySize {
    /// The largest binary unit of which there is at least one, with one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = [
            ("TiB", 1u64 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
        ]
        .into_iter()
        .find(|(_, factor)| self.0 >= *factor)
        .unwrap_or(("B", 1));
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
            ("500MB", 500_000_000),
            ("2TiB", 2 << 40),
            ("64B", 64),
        ] {
            assert_eq!(text.parse::<MemorySize>().unwrap().bytes(), bytes, "{text}");
        }
        for bad in ["", "0", "GiB", "-1", "8Gi", "1.5GiB", "8 apples", "0KiB"] {
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
    fn free_memory_is_read_from_what_the_kernel_shows() {
        let meminfo = "MemTotal:       32 kB\nMemFree:  5 kB\nMemAvailable:      10 kB\n";
        assert_eq!(available_in_meminfo(meminfo), Some(10 << 10));
        assert_eq!(available_in_meminfo("MemTotal: 32 kB\n"), None);
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(free_in_group(text("100\n"), text("30\n")), Some(70));
        assert_eq!(free_in_group(text("100\n"), text("130\n")), Some(0));
        assert_eq!(free_in_group(text("max\n"), text("30\n")), None);
        assert_eq!(free_in_group(None, None), None);
        assert!(MemorySize::of_this_machine().bytes() > 0);
    }
}
