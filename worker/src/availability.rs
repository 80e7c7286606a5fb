//! Rules for counting on a machine with other uses: hours, battery and load.
//!
//! `PausePolicy` decides, without I/O and without a clock; `PauseMonitor` observes the machine.

use std::{
    fs,
    path::{Path, PathBuf},
    str::FromStr,
    time::{Duration, Instant},
};

use chrono::{Local, NaiveTime};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};
use tokio::{sync::watch, time::sleep};

/// Time of high load before a pause; longer than a program takes to start.
const BUSY_FOR: Duration = Duration::from_secs(20);

/// Time that the load must stay low before counting resumes; users pause to think.
const QUIET_FOR: Duration = Duration::from_secs(60);

/// Restrictions that the machine's owner sets; none by default.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Other uses of this machine")]
pub struct Rules {
    /// Count only at these hours, in local time, such as 19:00-07:00 or 12:00-13:00,19:00-07:00.
    #[arg(long, value_name = "HOURS")]
    pub between: Option<Hours>,
    /// Pause while the machine runs on battery.
    #[arg(long)]
    pub pause_on_battery: bool,
    /// Pause while other programs use more than this number of cores.
    #[arg(long, value_name = "CORES", allow_hyphen_values = true, value_parser = cores)]
    pub pause_on_load: Option<f64>,
    /// Directory of Linux power supplies.
    #[arg(long, value_name = "DIR", hide = true)]
    pub power_supplies: Option<PathBuf>,
}

fn cores(text: &str) -> Result<f64, &'static str> {
    let cores = text.parse().ok().filter(|cores: &f64| *cores > 0.0 && cores.is_finite());
    cores.ok_or("expected a number above 0, such as 1.5")
}

impl Rules {
    /// Returns whether any restriction is set.
    fn restrict(&self) -> bool {
        self.between.is_some() || self.pause_on_battery || self.pause_on_load.is_some()
    }
}

/// The state of the machine.
#[derive(Clone, Copy, Debug)]
struct HostState {
    time: NaiveTime,
    /// `None` if unknown.
    on_battery: Option<bool>,
    /// Cores that other programs use; `None` if unknown.
    load: Option<f64>,
}

/// The state machine that decides when counting pauses; times never decrease.
#[derive(Debug, Default)]
struct PausePolicy {
    rules: Rules,
    /// Whether other programs are busy.
    is_busy: bool,
    /// Time since which the load contradicts [`Self::is_busy`].
    contradicted_since: Option<Instant>,
}

impl PausePolicy {
    /// Returns the reason to pause now, if any.
    fn evaluate(&mut self, host: HostState, now: Instant) -> Option<String> {
        let Rules { between, pause_on_battery, pause_on_load, .. } = &self.rules;
        let closed = between.as_ref().and_then(|hours| hours.closed_until(host.time));
        let on_battery = *pause_on_battery && host.on_battery == Some(true);
        let limit = *pause_on_load;
        if let (Some(used), Some(limit)) = (host.load, limit) {
            self.note_load(used > limit, now);
        }
        if let Some(until) = closed {
            return Some(format!("outside the --between hours until {}", until.format("%H:%M")));
        }
        if on_battery {
            return Some("on battery".to_owned());
        }
        let limit = limit.filter(|_| self.is_busy)?;
        let unit = if limit == 1.0 { "core" } else { "cores" };
        Some(format!("other programs use more than {limit} {unit}"))
    }

    /// Changes [`Self::is_busy`] once the load has contradicted it for long enough.
    fn note_load(&mut self, is_high: bool, now: Instant) {
        if is_high == self.is_busy {
            self.contradicted_since = None;
            return;
        }
        let since = *self.contradicted_since.get_or_insert(now);
        let needed = if is_high { BUSY_FOR } else { QUIET_FOR };
        if now.saturating_duration_since(since) >= needed {
            self.is_busy = is_high;
            self.contradicted_since = None;
        }
    }
}

const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Observer of the machine that publishes the reason to pause.
#[derive(Debug)]
pub(crate) struct PauseMonitor {
    policy: PausePolicy,
    load: Option<Load>,
    pauses: watch::Sender<Option<String>>,
}

impl PauseMonitor {
    /// Creates a monitor and observes the machine once; warns of rules without effect.
    pub(crate) fn new(rules: Rules, pauses: watch::Sender<Option<String>>) -> Self {
        let load = rules.pause_on_load.and_then(|_| Load::new());
        let warn_no_effect =
            |flag, what| tracing::warn!("{flag} has no effect: this system does not report {what}");
        if rules.pause_on_load.is_some() && load.is_none() {
            warn_no_effect("--pause-on-load", "the load of other programs");
        }
        let policy = PausePolicy { rules, ..PausePolicy::default() };
        let mut monitor = Self { policy, load, pauses };
        let host = monitor.observe();
        if monitor.policy.rules.pause_on_battery && host.on_battery.is_none() {
            warn_no_effect("--pause-on-battery", "whether it runs on battery");
        }
        monitor.publish(host);
        monitor
    }

    /// Observes only the values that the rules need.
    fn observe(&mut self) -> HostState {
        let Rules { pause_on_battery, power_supplies, .. } = &self.policy.rules;
        HostState {
            time: Local::now().time(),
            on_battery: pause_on_battery.then(|| on_battery(power_supplies.as_deref())).flatten(),
            load: self.load.as_mut().map(Load::of_others),
        }
    }

    fn publish(&mut self, host: HostState) {
        let reason = self.policy.evaluate(host, Instant::now());
        self.pauses.send_if_modified(|known| {
            let is_new = *known != reason;
            *known = reason;
            is_new
        });
    }

    /// Observes the machine forever.
    pub(crate) async fn run<T>(&mut self) -> T {
        while self.policy.rules.restrict() {
            sleep(POLL_INTERVAL).await;
            let host = self.observe();
            self.publish(host);
        }
        std::future::pending().await
    }
}

/// Daily hours in local time: `19:00-07:00,12:00-13:00`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hours(Vec<Span>);

/// Start and end of a span; past midnight unless the end is after the start.
type Span = (NaiveTime, NaiveTime);

/// Error for a text that is not a list of hours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid hours '{0}': expected local time such as 19:00-07:00, or several spans separated by commas"
)]
pub struct BadHours(String);

impl Hours {
    /// Returns when the next span starts, if `now` is in none.
    fn closed_until(&self, now: NaiveTime) -> Option<NaiveTime> {
        let contains = |&(start, end): &Span| match start < end {
            true => start <= now && now < end,
            false => start <= now || now < end,
        };
        if self.0.iter().any(contains) {
            return None;
        }
        let starts = || self.0.iter().map(|(start, _)| *start);
        let today = starts().filter(|start| *start > now).min();
        today.or_else(|| starts().min())
    }
}

impl FromStr for Hours {
    type Err = BadHours;

    fn from_str(text: &str) -> Result<Self, BadHours> {
        let spans: Option<Vec<_>> = text.split(',').map(span).collect();
        spans.map(Self).ok_or_else(|| BadHours(text.to_owned()))
    }
}

fn span(text: &str) -> Option<Span> {
    let (start, end) = text.split_once('-')?;
    let time = |text: &str| {
        let text = text.trim();
        let is_one_word = !text.contains(char::is_whitespace);
        is_one_word.then(|| NaiveTime::parse_from_str(text, "%H:%M").ok())?
    };
    let start = time(start)?;
    let end = match end.trim() {
        "24:00" => NaiveTime::MIN,
        // A span that ends at its start is ambiguous: nothing, or the whole day.
        end => time(end).filter(|end| *end != start)?,
    };
    Some((start, end))
}

/// Default directory of power supplies.
#[cfg(target_os = "linux")]
const POWER_SUPPLIES: Option<&str> = Some("/sys/class/power_supply");
#[cfg(not(target_os = "linux"))]
const POWER_SUPPLIES: Option<&str> = None;

/// Returns whether this machine runs on battery; `None` if unknown.
fn on_battery(directory: Option<&Path>) -> Option<bool> {
    let directory = directory.or_else(|| POWER_SUPPLIES.map(Path::new))?;
    // Without the directory the kernel has no battery driver.
    let supplies = fs::read_dir(directory).into_iter().flatten().flatten();
    let supplies: Vec<[String; 4]> = supplies
        .map(|supply| {
            ["type", "scope", "status", "online"].map(|file| {
                let value = fs::read_to_string(supply.path().join(file)).unwrap_or_default();
                value.trim().to_owned()
            })
        })
        .collect();
    // Excludes full batteries and batteries of devices such as a mouse.
    let discharges = |[kind, scope, status, _]: &[String; 4]| {
        kind == "Battery" && scope != "Device" && status == "Discharging"
    };
    // Excludes unpowered cables.
    let is_mains = |[kind, _, _, online]: &[String; 4]| {
        ["Mains", "USB", "Wireless"].contains(&kind.as_str()) && online == "1"
    };
    Some(supplies.iter().any(discharges) && !supplies.iter().any(is_mains))
}

/// The load of all programs and of this one.
#[derive(Debug)]
struct Load {
    system: System,
    this: Pid,
}

impl Load {
    fn new() -> Option<Self> {
        let mut load = Self { system: System::new().ok()?, this: sysinfo::get_current_pid().ok()? };
        // The first observation has no interval.
        load.of_others();
        Some(load)
    }

    /// Returns the cores that other programs used since the previous call.
    fn of_others(&mut self) -> f64 {
        let Self { system, this } = self;
        system.refresh_cpu_usage();
        let only = ProcessesToUpdate::Some(&[*this]);
        system.refresh_processes_specifics(only, true, ProcessRefreshKind::nothing().with_cpu());
        // Both loads are in hundredths of a core.
        let own = system.process(*this).map_or(0.0, |this| this.cpu_usage());
        let total: f32 = system.cpus().iter().map(sysinfo::Cpu::usage).sum();
        f64::from((total - own).max(0.0)) / 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: HostState = HostState {
        time: NaiveTime::from_hms_opt(12, 0, 0).unwrap(),
        on_battery: Some(false),
        load: Some(0.0),
    };

    fn policy(rules: Rules) -> PausePolicy {
        PausePolicy { rules, ..PausePolicy::default() }
    }

    fn second(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn without_rules_nothing_pauses_or_is_observed() {
        let worst = HostState { on_battery: Some(true), load: Some(64.0), ..NOON };
        let (mut policy, start) = (PausePolicy::default(), Instant::now());
        for passed in [0, 100, 1_000] {
            assert_eq!(policy.evaluate(worst, start + second(passed)), None);
        }
        assert!(!Rules::default().restrict());
        let seen = PauseMonitor::new(Rules::default(), watch::channel(None).0).observe();
        assert_eq!((seen.on_battery, seen.load), (None, None));
    }

    #[test]
    fn counting_pauses_outside_the_hours() {
        let hours: Hours = "19:00-07:00,12:30-13:00".parse().unwrap();
        let mut policy = policy(Rules { between: Some(hours), ..Rules::default() });
        let mut at = |time| policy.evaluate(HostState { time, ..NOON }, Instant::now());
        assert_eq!(at(NOON.time).as_deref(), Some("outside the --between hours until 12:30"));
        assert_eq!(at(time("12:30")), None);
    }

    #[test]
    fn battery_pauses_if_a_rule_requires_it_and_the_state_is_known() {
        for (pause_on_battery, on_battery, why) in [
            (true, Some(true), Some("on battery")),
            (true, Some(false), None),
            (true, None, None),
            (false, Some(true), None),
        ] {
            let mut policy = policy(Rules { pause_on_battery, ..Rules::default() });
            let seen = HostState { on_battery, ..NOON };
            assert_eq!(policy.evaluate(seen, Instant::now()).as_deref(), why);
        }
    }

    #[test]
    fn load_must_last_before_a_pause_and_stay_low_after_it() {
        let mut policy = policy(Rules { pause_on_load: Some(1.0), ..Rules::default() });
        let start = Instant::now();
        for (passed, load, pauses) in [
            // Two programs start, one after the other.
            (0, Some(2.0), false),
            (19, Some(2.0), false),
            (20, Some(0.5), false),
            (21, Some(2.0), false),
            (40, Some(2.0), false),
            // Busy for twenty seconds; a missing observation changes nothing.
            (41, Some(2.0), true),
            (42, None, true),
            // Quiet for a moment, then for a minute.
            (50, Some(0.5), true),
            (109, Some(1.0), true),
            (109, Some(1.1), true),
            (120, Some(0.0), true),
            (179, Some(0.0), true),
            (180, Some(0.0), false),
            // The load must last again.
            (200, Some(5.0), false),
            (219, None, false),
            (220, Some(5.0), true),
        ] {
            let why = policy.evaluate(HostState { load, ..NOON }, start + second(passed));
            let expected = pauses.then_some("other programs use more than 1 core");
            assert_eq!(why.as_deref(), expected, "after {passed} s");
        }
    }

    fn time(text: &str) -> NaiveTime {
        text.parse().unwrap()
    }

    #[test]
    fn valid_hours_are_parsed_and_others_are_errors() {
        let hours: Hours = " 9:05-17:00, 22:30-24:00 ".parse().unwrap();
        let spans = [("09:05", "17:00"), ("22:30", "00:00")];
        let spans = spans.map(|(start, end)| (time(start), time(end)));
        assert_eq!(hours, Hours(spans.to_vec()));
        let bad = "|19:00|19: 00-07:00|19-07|19:00-25:00|19:60-20:00|24:00-07:00|24:01-07:00|07:00-24:01|\
                   07:00-07:00|19:00-07:00,|-1:00-07:00|19:00-+7:00|019:00-07:00|a:b-c:d|\
                   19:00–07:00";
        for bad in bad.split('|') {
            assert_eq!(bad.parse::<Hours>(), Err(BadHours(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn a_span_excludes_its_end_and_may_pass_midnight() {
        for (hours, now, until) in [
            ("19:00-07:00", "19:00", None),
            ("19:00-07:00", "23:59", None),
            ("19:00-07:00", "00:00", None),
            ("19:00-07:00", "06:59", None),
            ("19:00-07:00", "07:00", Some("19:00")),
            ("19:00-07:00", "12:00", Some("19:00")),
            ("19:00-07:00", "18:59", Some("19:00")),
            ("00:00-24:00", "00:00", None),
            ("00:00-24:00", "12:59", None),
            ("00:00-24:00", "23:59", None),
            // Tomorrow.
            ("08:00-09:00", "23:00", Some("08:00")),
            ("20:00-00:00", "23:59", None),
            ("20:00-00:00", "00:00", Some("20:00")),
            // The next of several spans.
            ("19:00-07:00,12:30-13:00", "07:00", Some("12:30")),
            ("19:00-07:00,12:30-13:00", "12:30", None),
            ("19:00-07:00,12:30-13:00", "13:00", Some("19:00")),
            ("19:00-07:00,12:30-13:00", "19:00", None),
        ] {
            let closed = hours.parse::<Hours>().unwrap().closed_until(time(now));
            assert_eq!(closed, until.map(time), "{hours} at {now}");
        }
    }

    #[test]
    fn a_laptop_runs_on_battery_when_its_cable_is_out() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        assert_eq!(on_battery(Some(&home.join("none"))), Some(false), "a desktop");
        // Each step writes files of one supply.
        for (step, expected) in [
            ("mouse type=Battery scope=Device status=Discharging", false),
            ("AC type=Mains online=0", false),
            ("BAT0 type=Battery status=Discharging", true),
            ("AC online=1", false),
            ("AC online=0", true),
            ("BAT0 status=Full", false),
        ] {
            let (supply, files) = step.split_once(' ').unwrap();
            fs::create_dir_all(home.join(supply)).unwrap();
            for (file, value) in files.split(' ').filter_map(|file| file.split_once('=')) {
                fs::write(home.join(supply).join(file), format!("{value}\n")).unwrap();
            }
            assert_eq!(on_battery(Some(home)), Some(expected), "{step}");
        }
    }

    #[test]
    fn the_load_of_others_is_at_most_that_of_all_cores() {
        let cores = std::thread::available_parallelism().unwrap().get();
        // A container may have fewer cores than the machine.
        let most = 64.0 * cores as f64;
        assert!((0.0..=most).contains(&Load::new().unwrap().of_others()));
    }
}
