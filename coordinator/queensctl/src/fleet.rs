//! A fleet, read from a file, and what a run takes on it.

use std::{
    fs, io,
    num::{NonZeroU16, NonZeroU32},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use common::{
    board::Board,
    crews::{Crews, PlanNeeds},
    forecast::{Range, SECOND_COUNTS_MILLIONTHS},
    plan::Plan,
};
use serde::Deserialize;
use worker::{
    config::{BadThreads, Threads, TooLittleMemory, crews},
    memory::{BadMemorySize, MemorySize},
};

use super::client::BadUsage;

/// Machines of each kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fleet {
    machine: Vec<Kind>,
}

/// Machines that are alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    name: String,
    #[serde(default = "one")]
    count: NonZeroU32,
    /// Threads that count.
    cores: NonZeroU16,
    /// What counting may hold.
    memory: String,
    crews: Option<NonZeroU16>,
    /// Of one core, in cores of the reference machine.
    speed: Option<f64>,
    /// Of the whole machine, as `queensctl workers` shows it.
    rate: Option<f64>,
    /// A file with what `worker estimate --json` said on one.
    estimate: Option<PathBuf>,
    /// What one draws while it counts.
    watts: Option<f64>,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// What is read of an estimate.
#[derive(Deserialize)]
struct Estimate {
    n: u8,
    speed: Speed,
}

#[derive(Deserialize)]
struct Speed {
    low: f64,
    expected: f64,
    high: f64,
}

/// A machine whose figures make no sense.
#[derive(Debug, thiserror::Error)]
enum BadKind {
    #[error("memory: {0}")]
    Memory(#[from] BadMemorySize),
    #[error("cores: {0}")]
    Cores(#[from] BadThreads),
    #[error("{what} is {value}, and a number above 0 is wanted")]
    NotPositive { what: &'static str, value: f64 },
    #[error(
        "give one of speed (a core beside the reference machine's), rate (SPEED in `queensctl \
         workers`) and estimate (a file by `worker estimate --json`)"
    )]
    Speed,
    #[error("cannot read {}: {why}", path.display())]
    Unread { path: PathBuf, why: io::Error },
    #[error("{} is no estimate: {why}; {}", path.display(), estimate_of(*board))]
    NoEstimate {
        path: PathBuf,
        why: serde_json::Error,
        board: Board,
    },
    #[error("{} is an estimate of N = {n}, not of {board}; {}", path.display(), estimate_of(*board))]
    OtherBoard { path: PathBuf, n: u8, board: Board },
    #[error("{} is of no range of speeds; {}", path.display(), estimate_of(*board))]
    NoRange { path: PathBuf, board: Board },
}

/// What makes an estimate.
fn estimate_of(board: Board) -> String {
    format!("write it with `worker estimate --n {board} --json` on such a machine")
}

/// What a run takes on a fleet.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    pub(super) groups: Vec<Group>,
    /// Of all machines that can join, in cores of the reference machine.
    pub(super) pace: Range,
    /// With second counts; `None` where no machine can join.
    pub(super) seconds: Option<Range>,
    /// Of the machines whose watts are known; `None` where nothing is.
    pub(super) energy_kwh: Option<Range>,
}

/// One kind of machines.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) count: u32,
    pub(super) cores: u16,
    pub(super) memory: MemorySize,
    /// Of one core, in cores of the reference machine.
    pub(super) speed: Range,
    /// Whether the speed was measured on this board, and not only given.
    pub(super) is_measured: bool,
    pub(super) watts: Option<f64>,
    /// How they count; or why they cannot join.
    pub(super) crews: Result<Crews, TooLittleMemory>,
    /// With so much memory the lists would stay whole.
    pub(super) whole: MemorySize,
}

impl Group {
    /// Of all its machines, in cores of the reference machine; nothing where they cannot join.
    pub(super) fn pace(&self) -> Range {
        match self.crews {
            Ok(_) => self
                .speed
                .times(f64::from(self.count) * f64::from(self.cores)),
            Err(_) => Range::exactly(0.0),
        }
    }

    /// Whether its lists are cut into pieces, which takes longer.
    pub(super) fn is_cut(&self) -> bool {
        self.crews.is_ok() && self.memory < self.whole
    }
}

impl Fleet {
    /// Reads TOML; JSON where the file's name ends in `.json`.
    ///
    /// # Errors
    /// If it cannot be read, or makes no sense.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let place = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {place}"))?;
        let is_json = path.extension().is_some_and(|end| end == "json");
        let read = match is_json {
            true => serde_json::from_str(&text).map_err(|error| error.to_string()),
            false => toml::from_str(&text).map_err(|error| error.to_string()),
        };
        let fleet: Self = read.map_err(|why| {
            BadUsage(format!(
                "{place} names no fleet: {}; it has a [[machine]] with name, count, cores, memory and \
                 speed, rate or estimate for each kind",
                why.trim().replace('\n', " ")
            ))
        })?;
        match fleet.machine.is_empty() {
            true => Err(BadUsage(format!("{place} names no machine")).into()),
            false => Ok(fleet),
        }
    }

    /// What `plan` takes on it; names of files in it are of `dir`.
    ///
    /// # Errors
    /// If a machine's figures make no sense.
    pub(super) fn forecast(&self, plan: &Plan, dir: &Path) -> anyhow::Result<Forecast> {
        let needs = PlanNeeds::new(plan);
        let groups = self.machine.iter().map(|kind| {
            let bad = |why| BadUsage(format!("machine '{}': {why}", kind.name));
            kind.group(plan, &needs, dir).map_err(bad)
        });
        let groups: Vec<Group> = groups.collect::<Result<_, _>>()?;
        let none = Range::exactly(0.0);
        let pace = groups
            .iter()
            .map(Group::pace)
            .fold(none, |sum, pace| sum.plus(pace));
        let seconds = (pace.low > 0.0).then(|| pace.dividing(work(plan)));
        let joined = groups.iter().filter(|group| group.crews.is_ok());
        let watts: Vec<f64> = joined
            .filter_map(|group| Some(group.watts? * f64::from(group.count)))
            .collect();
        let kilowatts = watts.iter().sum::<f64>() / 1000.0;
        let energy_kwh = seconds.filter(|_| !watts.is_empty());
        Ok(Forecast {
            energy_kwh: energy_kwh.map(|seconds| seconds.times(kilowatts / 3600.0)),
            groups,
            pace,
            seconds,
        })
    }
}

/// Seconds of one core of the reference machine, with second counts.
fn work(plan: &Plan) -> f64 {
    let cost: f64 = plan.task_costs().map(|cost| cost as f64 / 1e6).sum();
    cost * (1.0 + f64::from(SECOND_COUNTS_MILLIONTHS) / 1e6)
}

/// A figure that is above 0.
fn positive(what: &'static str, value: f64) -> Result<f64, BadKind> {
    match value > 0.0 && value.is_finite() {
        true => Ok(value),
        false => Err(BadKind::NotPositive { what, value }),
    }
}

impl Kind {
    fn group(&self, plan: &Plan, needs: &PlanNeeds, dir: &Path) -> Result<Group, BadKind> {
        let memory: MemorySize = self.memory.parse()?;
        let threads: Threads = self.cores.to_string().parse()?;
        let speed = match (self.speed, self.rate, &self.estimate) {
            (Some(speed), None, None) => Range::exactly(positive("speed", speed)?),
            (None, Some(rate), None) => {
                Range::exactly(positive("rate", rate)? / f64::from(self.cores.get()))
            }
            (None, None, Some(file)) => measured(plan, &dir.join(file))?,
            _ => return Err(BadKind::Speed),
        };
        let watts = self.watts.map(|watts| positive("watts", watts));
        let watts = watts.transpose()?;
        let crews = crews(plan, memory, threads, self.crews);
        let number = crews.as_ref().map_or(1, Crews::number);
        let members = crews
            .as_ref()
            .map_or(self.cores, |crews| crews.crew(0).threads);
        let whole = needs.whole_bytes(members).saturating_mul(number.into());
        Ok(Group {
            name: self.name.clone(),
            count: self.count.get(),
            cores: self.cores.get(),
            memory,
            speed,
            is_measured: self.estimate.is_some(),
            watts,
            crews,
            whole: MemorySize::at_least(whole),
        })
    }
}

/// The speed that an estimate of the same board found.
fn measured(plan: &Plan, file: &Path) -> Result<Range, BadKind> {
    let (path, board) = (file.to_owned(), plan.spec().board);
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(why) => return Err(BadKind::Unread { path, why }),
    };
    let Estimate { n, speed } = match serde_json::from_str(&text) {
        Ok(read) => read,
        Err(why) => return Err(BadKind::NoEstimate { path, why, board }),
    };
    if n != board.n() {
        return Err(BadKind::OtherBoard { path, n, board });
    }
    let Speed {
        low,
        expected,
        high,
    } = speed;
    match 0.0 < low && low <= expected && expected <= high && high.is_finite() {
        true => Ok(Range {
            low,
            expected,
            high,
        }),
        false => Err(BadKind::NoRange { path, board }),
    }
}

#[cfg(test)]
mod tests {
    use common::{board::Board, crews::Machine, method::Layout, plan::PlanSpec};

    use super::*;

    fn plan(n: u8) -> Plan {
        Plan::new(PlanSpec::new(Board::new(n).unwrap(), Layout::Frames)).unwrap()
    }

    fn fleet(text: &str) -> Fleet {
        toml::from_str(text).unwrap()
    }

    fn forecast(n: u8, text: &str) -> Forecast {
        fleet(text).forecast(&plan(n), Path::new(".")).unwrap()
    }

    const TWO: &str = r#"
        [[machine]]
        name = "fast"
        count = 3
        cores = 16
        memory = "8GiB"
        speed = 1.5
        watts = 200
        [[machine]]
        name = "slow"
        cores = 4
        memory = "1GiB"
        rate = 2.0
    "#;

    #[test]
    fn a_fleet_is_as_fast_as_its_machines_together() {
        let both = forecast(20, TWO);
        assert!((both.pace.expected - (3.0 * 16.0 * 1.5 + 2.0)).abs() < 1e-9);
        let seconds = both.seconds.unwrap();
        assert!((seconds.expected * both.pace.expected / work(&plan(20)) - 1.0).abs() < 1e-9);
        let kwh = both.energy_kwh.unwrap().expected;
        assert!(
            (kwh - seconds.expected * 0.6 / 3600.0).abs() < 1e-12,
            "only fast has watts"
        );
        let paces = both.groups.iter().map(|group| group.pace().expected);
        assert!((paces.sum::<f64>() - both.pace.expected).abs() < 1e-9);
    }

    #[test]
    fn more_machines_take_less_time_and_more_queens_more() {
        let one = |count: u32| TWO.replace("count = 3", &format!("count = {count}"));
        let seconds = |n, text: &str| forecast(n, text).seconds.unwrap().expected;
        assert!(seconds(20, &one(6)) < seconds(20, &one(3)));
        assert!(seconds(20, &one(3)) < seconds(22, &one(3)));
    }

    /// Who can join is decided by the very rule by which a worker makes its crews.
    #[test]
    fn who_lacks_memory_is_told_by_the_workers_rule() {
        let plan = plan(24);
        let threads = NonZeroU16::new(16).unwrap();
        let least = PlanNeeds::new(&plan).least_bytes(threads);
        for (bytes, joins) in [(least - 1, false), (least, true), (least * 100, true)] {
            let text =
                format!("[[machine]]\nname = \"m\"\ncores = 16\nmemory = \"{bytes}\"\nspeed = 1");
            let forecast = fleet(&text).forecast(&plan, Path::new(".")).unwrap();
            let machine = Machine {
                threads,
                memory_bytes: bytes,
                crews: None,
            };
            let group = &forecast.groups[0];
            assert_eq!(group.crews.ok(), Crews::new(&plan, machine).ok());
            assert_eq!(
                (group.crews.is_ok(), forecast.seconds.is_some()),
                (joins, joins)
            );
            if let Err(why) = &group.crews {
                assert!(
                    why.to_string().contains("N = 24 needs at least --memory"),
                    "{why}"
                );
            }
        }
    }

    #[test]
    fn measured_speeds_bring_their_range() {
        let dir = tempfile::tempdir().unwrap();
        let write = |n: u8| {
            let text =
                format!(r#"{{"n":{n},"speed":{{"low":1.0,"expected":2.0,"high":4.0}},"x":1}}"#);
            fs::write(dir.path().join("rack.json"), text).unwrap();
        };
        let text =
            "[[machine]]\nname = \"m\"\ncores = 2\nmemory = \"1GiB\"\nestimate = \"rack.json\"";
        write(20);
        let seconds = fleet(text)
            .forecast(&plan(20), dir.path())
            .unwrap()
            .seconds
            .unwrap();
        assert!((seconds.high / seconds.low - 4.0).abs() < 1e-9);
        write(21);
        let other = fleet(text).forecast(&plan(20), dir.path()).unwrap_err();
        assert!(other.to_string().contains("N = 21, not of 20"), "{other}");
        let upside_down = r#"{"n":20,"speed":{"low":4.0,"expected":2.0,"high":1.0}}"#;
        fs::write(dir.path().join("rack.json"), upside_down).unwrap();
        let none = fleet(text).forecast(&plan(20), dir.path()).unwrap_err();
        assert!(none.to_string().contains("of no range of speeds"), "{none}");
    }

    #[test]
    fn figures_that_make_no_sense_are_named_with_their_machine() {
        for (line, says) in [
            ("memory = \"lots\"\nspeed = 1", "'m': memory: 'lots'"),
            ("memory = \"1GiB\"", "give one of speed"),
            (
                "memory = \"1GiB\"\nspeed = 1\nrate = 2",
                "give one of speed",
            ),
            ("memory = \"1GiB\"\nspeed = -1", "speed is -1"),
            ("memory = \"1GiB\"\nspeed = 1\nwatts = 0", "watts is 0"),
            ("memory = \"1GiB\"\nestimate = \"none.json\"", "cannot read"),
        ] {
            let text = format!("[[machine]]\nname = \"m\"\ncores = 2\n{line}");
            let error = fleet(&text)
                .forecast(&plan(16), Path::new("/nowhere"))
                .unwrap_err();
            assert!(error.to_string().contains(says), "{line}: {error}");
        }
        for bad in [
            "machine = 3",
            "[[machine]]\nname = \"m\"\ncors = 2",
            "[[machine]]\nname=\"m\"\ncores=0\nmemory=\"1\"",
        ] {
            assert!(toml::from_str::<Fleet>(bad).is_err(), "{bad}");
        }
    }
}
