//! What this machine is like: its clock, its power, what other programs use.

use std::{fs, path::Path};

use chrono::Timelike as _;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::{Minute, Rules, Seen};

/// Where Linux tells of power supplies.
#[cfg(target_os = "linux")]
const POWER_SUPPLIES: Option<&str> = Some("/sys/class/power_supply");
#[cfg(not(target_os = "linux"))]
const POWER_SUPPLIES: Option<&str> = None;

/// Looks at the machine, as far as there are rules about it.
#[derive(Debug)]
pub(crate) struct Senses {
    rules: Rules,
    load: Option<Load>,
}

impl Senses {
    /// Says so where the system does not tell what there is a rule about.
    pub(crate) fn new(rules: &Rules) -> Self {
        let senses = Self {
            rules: rules.clone(),
            load: rules.others.and_then(|_| Load::new()),
        };
        if rules.spare_battery && senses.on_battery().is_none() {
            tracing::warn!(
                "--pause-on-battery: this system does not tell whether it runs on battery; counting goes \
                 on there"
            );
        }
        if rules.others.is_some() && senses.load.is_none() {
            tracing::warn!(
                "--pause-on-load: this system does not tell what other programs use; counting goes on \
                 beside them"
            );
        }
        senses
    }

    pub(crate) fn look(&mut self) -> Seen {
        let now = chrono::Local::now().time();
        let small = |part: u32| u16::try_from(part).unwrap_or_default();
        Seen {
            minute: Minute::at(small(now.hour()), small(now.minute())),
            on_battery: self
                .rules
                .spare_battery
                .then(|| self.on_battery())
                .flatten(),
            others: self.load.as_mut().map(Load::of_others),
        }
    }

    fn on_battery(&self) -> Option<bool> {
        let usual = || POWER_SUPPLIES.map(Path::new);
        let directory = self.rules.power_supplies.as_deref().or_else(usual)?;
        // A machine without the directory has no battery that its kernel knows.
        Some(fs::read_dir(directory).is_ok_and(|supplies| {
            let supplies = supplies
                .flatten()
                .map(|supply| Supply::read(&supply.path()));
            let supplies: Vec<_> = supplies.collect();
            supplies.contains(&Supply::Discharging) && !supplies.contains(&Supply::Mains)
        }))
    }
}

/// What one of Linux's power supplies does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    /// Power comes in.
    Mains,
    /// A battery of the machine gives power.
    Discharging,
    /// Anything else: a full battery, a cable without power, the battery of a mouse.
    Other,
}

impl Supply {
    fn read(directory: &Path) -> Self {
        let word = |file: &str| {
            let read = fs::read_to_string(directory.join(file)).unwrap_or_default();
            read.trim().to_owned()
        };
        match word("type").as_str() {
            "Battery" if word("scope") == "Device" => Self::Other,
            "Battery" if word("status") == "Discharging" => Self::Discharging,
            "Mains" | "USB" | "Wireless" if word("online") == "1" => Self::Mains,
            _ => Self::Other,
        }
    }
}

/// What all programs use, and what this one does.
#[derive(Debug)]
struct Load {
    system: System,
    this: Pid,
}

impl Load {
    fn new() -> Option<Self> {
        let mut load = Self {
            system: System::new().ok()?,
            this: sysinfo::get_current_pid().ok()?,
        };
        // Loads are those since the look before.
        load.of_others();
        Some(load)
    }

    /// Cores that other programs have used since the look before.
    fn of_others(&mut self) -> f64 {
        let Self { system, this } = self;
        system.refresh_cpu_usage();
        let only = ProcessesToUpdate::Some(&[*this]);
        system.refresh_processes_specifics(only, true, ProcessRefreshKind::nothing().with_cpu());
        // Hundredths of one core each.
        let own = system.process(*this).map_or(0.0, |this| this.cpu_usage());
        let all: f32 = system.cpus().iter().map(sysinfo::Cpu::usage).sum();
        f64::from((all - own).max(0.0)) / 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supply(home: &Path, name: &str, files: &[(&str, &str)]) {
        fs::create_dir_all(home.join(name)).unwrap();
        for (file, word) in files {
            fs::write(home.join(name).join(file), format!("{word}\n")).unwrap();
        }
    }

    fn on_battery(home: &Path) -> Option<bool> {
        let rules = Rules {
            spare_battery: true,
            power_supplies: Some(home.to_owned()),
            ..Rules::default()
        };
        Senses::new(&rules).look().on_battery
    }

    #[test]
    fn a_laptop_runs_on_battery_when_its_cable_is_out() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        assert_eq!(on_battery(&home.join("none")), Some(false), "a desktop");
        assert_eq!(on_battery(home), Some(false), "without a battery");
        supply(
            home,
            "mouse",
            &[
                ("type", "Battery"),
                ("scope", "Device"),
                ("status", "Discharging"),
            ],
        );
        assert_eq!(on_battery(home), Some(false), "the mouse's");
        supply(home, "AC", &[("type", "Mains"), ("online", "0")]);
        supply(
            home,
            "BAT0",
            &[("type", "Battery"), ("status", "Discharging")],
        );
        assert_eq!(on_battery(home), Some(true));
        supply(home, "AC", &[("online", "1")]);
        assert_eq!(on_battery(home), Some(false), "a weak cable is one");
        supply(home, "AC", &[("online", "0")]);
        supply(home, "BAT0", &[("status", "Full")]);
        assert_eq!(on_battery(home), Some(false));
    }

    #[test]
    fn nothing_is_looked_at_without_a_rule() {
        let seen = Senses::new(&Rules::default()).look();
        assert_eq!((seen.on_battery, seen.others), (None, None));
    }

    #[test]
    fn what_others_use_is_at_most_what_there_is() {
        let rules = Rules {
            others: Some(1.0),
            ..Rules::default()
        };
        let seen = Senses::new(&rules).look();
        let cores = std::thread::available_parallelism().unwrap().get();
        // A container may be given less than the machine's load is of.
        let most = 64.0 * cores as f64;
        assert!(
            seen.others.is_some_and(|used| (0.0..=most).contains(&used)),
            "{seen:?}"
        );
    }
}
