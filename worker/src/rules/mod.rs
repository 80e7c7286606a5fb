//! When a machine that has other things to do may count: at which hours, on which power, beside which
//! load.
//!
//! `Referee` decides, without I/O and without a clock; `senses` says what the machine is like.

mod hours;
mod senses;

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::sleep};

pub use hours::{BadHours, Hours, Minute};
use senses::Senses;

/// Other programs have to be busy for so long before counting makes way for them: starting one is none.
const BUSY_FOR: Duration = Duration::from_secs(20);

/// And quiet for so long before it goes on: who works at a machine thinks now and then.
const QUIET_FOR: Duration = Duration::from_secs(60);

/// What a machine's owner allows. By default everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Counting is for these hours alone.
    pub between: Option<Hours>,
    /// No counting on battery.
    pub spare_battery: bool,
    /// No counting while other programs use more than so many cores.
    pub others: Option<f64>,
    /// Where Linux tells of power supplies: `/sys/class/power_supply`, unless this says otherwise.
    pub power_supplies: Option<PathBuf>,
}

impl Rules {
    /// Whether counting may have to pause at all.
    pub(crate) fn ask_anything(&self) -> bool {
        self.between.is_some() || self.spare_battery || self.others.is_some()
    }
}

/// What a machine is like now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    /// By the clock on its wall.
    pub(crate) minute: Minute,
    /// `None`: the system does not tell.
    pub(crate) on_battery: Option<bool>,
    /// Cores that other programs use; `None`: the system does not tell.
    pub(crate) others: Option<f64>,
}

/// Why counting pauses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Why {
    /// It is outside of its hours, until then.
    Hours(Minute),
    /// On battery.
    Battery,
    /// Other programs use more than so many cores.
    Others(f64),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hours(until) => write!(f, "outside of its hours until {until}"),
            Self::Battery => write!(f, "on battery"),
            Self::Others(cores) => write!(f, "other programs use more than {cores} cores"),
        }
    }
}

/// Decides when counting pauses: told what the machine is like, and the time, which never goes back.
#[derive(Debug)]
pub(crate) struct Referee {
    rules: Rules,
    others: Others,
}

/// What other programs do.
#[derive(Clone, Copy, Debug)]
enum Others {
    /// Too little to make way; if too much, since then.
    Quiet { busy_since: Option<Instant> },
    /// Too much; if no more, since then.
    Busy { quiet_since: Option<Instant> },
}

impl Referee {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            others: Others::Quiet { busy_since: None },
        }
    }

    /// Why counting pauses now, if it does.
    pub(crate) fn judge(&mut self, seen: Seen, now: Instant) -> Option<Why> {
        self.watch_others(seen.others, now);
        let Rules {
            between,
            spare_battery,
            others,
            power_supplies: _,
        } = &self.rules;
        if let Some(hours) = between
            && let Some(until) = hours.closed_until(seen.minute)
        {
            return Some(Why::Hours(until));
        }
        if *spare_battery && seen.on_battery == Some(true) {
            return Some(Why::Battery);
        }
        match self.others {
            Others::Busy { .. } => others.map(Why::Others),
            Others::Quiet { .. } => None,
        }
    }

    fn watch_others(&mut self, used: Option<f64>, now: Instant) {
        let (Some(used), Some(most)) = (used, self.rules.others) else {
            return;
        };
        let too_much = used > most;
        let lasts = |since: Instant, long: Duration| now.saturating_duration_since(since) >= long;
        self.others = match self.others {
            Others::Quiet { busy_since } if too_much => {
                let since = busy_since.unwrap_or(now);
                match lasts(since, BUSY_FOR) {
                    true => Others::Busy { quiet_since: None },
                    false => Others::Quiet {
                        busy_since: Some(since),
                    },
                }
            }
            Others::Quiet { .. } => Others::Quiet { busy_since: None },
            Others::Busy { quiet_since } if !too_much => {
                let since = quiet_since.unwrap_or(now);
                match lasts(since, QUIET_FOR) {
                    true => Others::Quiet { busy_since: None },
                    false => Others::Busy {
                        quiet_since: Some(since),
                    },
                }
            }
            Others::Busy { .. } => Others::Busy { quiet_since: None },
        };
    }
}

/// How often the machine is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Looks at the machine and tells when counting is to pause, and why.
#[derive(Debug)]
pub(crate) struct Watchman {
    /// Nobody, where there is nothing to look for.
    at_work: Option<(Referee, Senses)>,
    pauses: watch::Sender<Option<String>>,
}

impl Watchman {
    /// One that has looked once.
    pub(crate) fn new(rules: Rules, pauses: watch::Sender<Option<String>>) -> Self {
        let at_work = rules
            .ask_anything()
            .then(|| (Referee::new(rules.clone()), Senses::new(&rules)));
        let mut watchman = Self { at_work, pauses };
        watchman.look();
        watchman
    }

    fn look(&mut self) {
        if let Some((referee, senses)) = &mut self.at_work {
            let why = referee.judge(senses.look(), Instant::now());
            let why = why.map(|why| why.to_string());
            self.pauses.send_if_modified(|told| {
                let news = *told != why;
                *told = why;
                news
            });
        }
    }

    /// Looks for ever.
    pub(crate) async fn watch<T>(&mut self) -> T {
        if self.at_work.is_none() {
            return std::future::pending().await;
        }
        loop {
            sleep(LOOK).await;
            self.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Seen = Seen {
        minute: Minute::at(12, 0),
        on_battery: Some(false),
        others: Some(0.0),
    };

    fn second(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn without_rules_nothing_pauses() {
        let mut referee = Referee::new(Rules::default());
        let worst = Seen {
            on_battery: Some(true),
            others: Some(64.0),
            ..NOON
        };
        let start = Instant::now();
        for passed in [0, 100, 1_000] {
            assert_eq!(referee.judge(worst, start + second(passed)), None);
        }
        assert!(!Rules::default().ask_anything());
    }

    #[test]
    fn a_day_of_hours() {
        let hours: Hours = "19:00-07:00,12:30-13:00".parse().unwrap();
        let mut referee = Referee::new(Rules {
            between: Some(hours),
            ..Rules::default()
        });
        let start = Instant::now();
        let mut changes = Vec::new();
        let mut before = None;
        for minute in 0..24 * 60u16 {
            let seen = Seen {
                minute: Minute::at(minute / 60, minute % 60),
                ..NOON
            };
            let why = referee.judge(seen, start + second(60 * u64::from(minute)));
            let why = why.map(|why| why.to_string());
            if minute == 0 || why != before {
                changes.push(format!(
                    "{} {:?}",
                    seen.minute,
                    why.as_deref().unwrap_or("counts")
                ));
            }
            before = why;
        }
        assert_eq!(
            changes,
            [
                "00:00 \"counts\"",
                "07:00 \"outside of its hours until 12:30\"",
                "12:30 \"counts\"",
                "13:00 \"outside of its hours until 19:00\"",
                "19:00 \"counts\"",
            ]
        );
    }

    #[test]
    fn battery_pauses_where_it_is_spared_and_known() {
        let spare = Rules {
            spare_battery: true,
            ..Rules::default()
        };
        let start = Instant::now();
        for (rules, on_battery, why) in [
            (spare.clone(), Some(true), Some(Why::Battery)),
            (spare.clone(), Some(false), None),
            (spare, None, None),
            (Rules::default(), Some(true), None),
        ] {
            let seen = Seen { on_battery, ..NOON };
            assert_eq!(Referee::new(rules).judge(seen, start), why);
        }
    }

    #[test]
    fn others_have_to_last_and_to_be_gone_for_a_while() {
        let mut referee = Referee::new(Rules {
            others: Some(1.0),
            ..Rules::default()
        });
        let start = Instant::now();
        let mut pauses = |passed, others| {
            let seen = Seen {
                others: Some(others),
                ..NOON
            };
            referee.judge(seen, start + second(passed)).is_some()
        };
        // A start of a program, and one more.
        assert!(!pauses(0, 2.0) && !pauses(19, 2.0) && !pauses(20, 0.5));
        assert!(!pauses(21, 2.0) && !pauses(40, 2.0));
        assert!(pauses(41, 2.0), "for twenty seconds");
        // A moment's rest, and the rest of a minute.
        assert!(pauses(50, 0.5) && pauses(109, 1.0) && pauses(109, 1.1));
        assert!(pauses(120, 0.0) && pauses(179, 0.0));
        assert!(!pauses(180, 0.0), "for a minute");
        assert!(!pauses(200, 5.0), "it has to last again");
        assert!(pauses(220, 5.0));
    }

    #[test]
    fn what_is_not_seen_for_once_changes_nothing() {
        let mut referee = Referee::new(Rules {
            others: Some(1.0),
            ..Rules::default()
        });
        let start = Instant::now();
        let mut judge = |passed, others| {
            let seen = Seen { others, ..NOON };
            referee.judge(seen, start + second(passed))
        };
        assert_eq!(judge(0, Some(3.0)), None);
        assert_eq!(judge(25, None), None);
        assert_eq!(judge(26, Some(3.0)), Some(Why::Others(1.0)));
        assert_eq!(judge(200, None), Some(Why::Others(1.0)));
    }
}
