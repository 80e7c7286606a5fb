//! `queensctl forecast`: time, disk and energy of a run on a fleet of machines.

use std::{
    fs,
    num::{NonZeroU16, NonZeroU32},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use cli::{
    exit::{BadUsage, Exit},
    memory::MemorySize,
    threads::{Threads, TooLittleMemory, crews},
};
use common::{
    board::Board,
    choice::{MethodChoice, choose},
    crew_layout::{Crews, PlanNeeds},
    estimate::forecast::{RECHECK_FRACTION, Range, core_seconds, disk_bytes},
    plan::{Plan, PlanSpec},
    text::without_bom,
};
use serde::Deserialize;
use serde_json::{Value, json};
use view::text::{Column, eprint_line, one_line, plural, span, stdout_width, table};

use super::output::{print, print_json};

#[derive(Clone, Debug, Args)]
pub(super) struct ForecastOptions {
    /// Board size, 1 to 32
    #[arg(long, allow_hyphen_values = true)]
    n: Board,

    /// Counting method: auto, rows or frames
    #[arg(long, default_value = "auto")]
    method: MethodChoice,

    /// File of the machines, in TOML, or in JSON if its name ends in .json: a `[[machine]]` for each kind,
    /// with name, count, cores, memory, and speed, rate or estimate
    #[arg(long, value_name = "FILE")]
    fleet: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn forecast(options: &ForecastOptions) -> anyhow::Result<Exit> {
    let fleet = Fleet::read(&options.fleet)?;
    let choice = choose(options.n, options.method, None, None)?;
    let plan = Plan::new(PlanSpec::new(options.n, choice.layout))?;
    let dir = options.fleet.parent().unwrap_or_else(|| Path::new("."));
    let forecast = fleet.forecast(&plan, dir)?;
    match options.json {
        true => print_json(&as_json(&plan, &forecast))?,
        false => print(&as_text(&plan, &forecast))?,
    }
    if forecast.seconds.is_some() {
        return Ok(Exit::Success);
    }
    eprint_line("error: no machine in this fleet has enough memory for the run");
    Ok(Exit::Error)
}

fn as_json(plan: &Plan, forecast: &Forecast) -> Value {
    let spec = plan.spec();
    let group = |group: &Group| {
        let crews = group.crews.as_ref();
        json!({
            "name": group.kind.name,
            "count": group.kind.count,
            "cores": group.kind.cores,
            "memory_bytes": group.memory.bytes(),
            "memory_whole_bytes": group.whole.bytes(),
            "joins": crews.is_ok(),
            "reason": crews.err().map(ToString::to_string),
            "crews": crews.ok().map(|crews| crews.number()),
            "in_chunks": group.is_chunked(),
            "speed": group.speed,
            "measured": group.is_measured(),
            "share": share(group, forecast),
        })
    };
    json!({
        "n": spec.board.n(),
        "method": spec.layout.method().name(),
        "tasks": plan.tasks(),
        "recheck_fraction": RECHECK_FRACTION,
        "seconds": forecast.seconds,
        "energy_kwh": forecast.energy_kwh,
        "disk_bytes": disk_bytes(plan.tasks()),
        "machines": forecast.groups.iter().map(group).collect::<Vec<_>>(),
    })
}

/// Returns a group's share of the work, 0 to 1.
fn share(group: &Group, forecast: &Forecast) -> f64 {
    if forecast.pace.expected > 0.0 { group.pace().expected / forecast.pace.expected } else { 0.0 }
}

fn as_text(plan: &Plan, forecast: &Forecast) -> String {
    let columns = [
        Column::name("Machine"),
        Column::numbers("Count"),
        Column::numbers("Cores"),
        Column::words("Memory"),
        Column::words("Crews"),
        Column::numbers("Speed"),
        Column::numbers("Share"),
    ];
    let row = |group: &Group| {
        vec![
            group.kind.name.clone(),
            group.kind.count.to_string(),
            group.kind.cores.to_string(),
            group.memory.to_string(),
            match &group.crews {
                Ok(crews) => crews.to_string(),
                Err(_) => "cannot join".to_owned(),
            },
            format!("{:.2}", group.speed.expected),
            format!("{:.1} %", share(group, forecast) * 100.0),
        ]
    };
    let rows: Vec<_> = forecast.groups.iter().map(row).collect();
    let mut lines = vec![table(&columns, &rows, stdout_width())];
    lines.push("SPEED of one core in reference cores".to_owned());
    for group in &forecast.groups {
        if let Err(why) = &group.crews {
            lines.push(format!("{} cannot join: {why}", group.kind.name));
        }
        if group.is_chunked() {
            lines.push(format!(
                "{}: below {} its lists are processed in chunks, which is slower",
                group.kind.name, group.whole
            ));
        }
    }
    let spec = plan.spec();
    let (tasks, percent) = (plural(plan.tasks(), "task"), RECHECK_FRACTION * 100.0);
    let what = format!("N = {}, method {}", spec.board, spec.layout.method());
    lines.push(format!("{what}: {tasks}, {percent} % of them rechecked"));
    if let Some(Range { low, expected, high }) = forecast.seconds {
        let any_measured = forecast.groups.iter().any(Group::is_measured);
        let all_measured = forecast.groups.iter().all(Group::is_measured);
        let range = match (any_measured, all_measured) {
            (true, true) => format!("{} to {}", span(low), span(high)),
            (true, false) => format!("{} to {}, partly measured", span(low), span(high)),
            (false, _) => "given speeds have no range".to_owned(),
        };
        lines.push(format!("time    {} ({range})", span(expected)));
    }
    if let Some(energy) = forecast.energy_kwh {
        let kwh = energy.expected;
        lines.push(format!("energy  {kwh:.1} kWh, from the given watts"));
    }
    let disk = MemorySize::at_least(disk_bytes(plan.tasks()));
    lines.push(format!("disk    {disk} on the coordinator"));
    lines.join("\n")
}

/// A fleet: the machines of each kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fleet {
    machine: Vec<Kind>,
}

/// Identical machines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    name: String,
    #[serde(default = "one")]
    count: NonZeroU32,
    /// Counting threads.
    cores: NonZeroU16,
    /// Memory limit for counting.
    memory: String,
    crews: Option<NonZeroU16>,
    /// Speed of one core in reference cores.
    speed: Option<f64>,
    /// Speed of the whole machine in reference cores, as `queensctl workers` shows it.
    rate: Option<f64>,
    /// A file with the output of `worker estimate --json`.
    estimate: Option<PathBuf>,
    /// Power consumption of one machine while it counts.
    watts: Option<f64>,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// The fields of an estimate that a forecast uses.
#[derive(Deserialize)]
struct Estimate {
    n: u8,
    speed: Range,
}

/// The forecast of a run on a fleet.
#[derive(Clone, Debug)]
struct Forecast {
    groups: Vec<Group>,
    /// Speed of all machines that can join, in reference cores.
    pace: Range,
    /// Duration with rechecks; `None` if no machine can join.
    seconds: Option<Range>,
    /// Energy of the machines with known power; `None` without any.
    energy_kwh: Option<Range>,
}

/// The forecast for the machines of one kind.
#[derive(Clone, Debug)]
struct Group {
    kind: Kind,
    memory: MemorySize,
    /// Speed of one core in reference cores.
    speed: Range,
    /// Crews of each machine, or the reason why it cannot join.
    crews: Result<Crews, TooLittleMemory>,
    /// Least memory with which lists are not processed in chunks.
    whole: MemorySize,
}

impl Group {
    /// Returns the speed of all its machines in reference cores; 0 if they cannot join.
    fn pace(&self) -> Range {
        match self.crews {
            Ok(_) => self.speed.scaled(self.kind.machines() * f64::from(self.kind.cores.get())),
            Err(_) => Range::exactly(0.0),
        }
    }

    /// Returns whether the speed was measured on this board.
    fn is_measured(&self) -> bool {
        self.kind.estimate.is_some()
    }

    /// Returns whether lists are processed in chunks, which is slower.
    fn is_chunked(&self) -> bool {
        self.crews.is_ok() && self.memory < self.whole
    }
}

/// Formats a TOML error as one line with the line number of the mistake.
fn with_line_number(text: &str, error: &toml::de::Error) -> String {
    let why = error.message().replace('\n', ", ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {why}", before.matches('\n').count() + 1),
        None => why,
    }
}

impl Fleet {
    /// Reads a file in TOML, or in JSON if its name ends in `.json`.
    fn read(path: &Path) -> anyhow::Result<Self> {
        let place = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {place}"))?;
        let text = without_bom(&text);
        let is_json = path.extension().is_some_and(|end| end == "json");
        let read = match is_json {
            true => serde_json::from_str(text).map_err(|error| error.to_string()),
            false => toml::from_str(text).map_err(|error| with_line_number(text, &error)),
        };
        let fleet: Self = read.map_err(|why| {
            BadUsage(format!(
                "invalid fleet {place}: {why}; it needs a [[machine]] with name, count, cores, memory \
                 and speed, rate or estimate for each kind"
            ))
        })?;
        match fleet.machine.is_empty() {
            true => Err(BadUsage(format!("invalid fleet {place}: it has no machine")).into()),
            false => Ok(fleet),
        }
    }

    /// Forecasts `plan` on the fleet, whose file names are relative to `dir`.
    fn forecast(&self, plan: &Plan, dir: &Path) -> anyhow::Result<Forecast> {
        let needs = PlanNeeds::new(plan);
        let groups = self.machine.iter().map(|kind| {
            let bad = |why: anyhow::Error| {
                BadUsage(format!("machine '{}': {}", kind.name, one_line(&why)))
            };
            kind.group(plan, &needs, dir).map_err(bad)
        });
        let groups: Vec<Group> = groups.collect::<Result<_, _>>()?;
        let none = Range::exactly(0.0);
        let pace = groups.iter().map(Group::pace).fold(none, |sum, pace| sum.plus(pace));
        let seconds = (pace.low > 0.0)
            .then(|| pace.recip_scaled(core_seconds(plan) * (1.0 + RECHECK_FRACTION)));
        let joined = groups.iter().filter(|group| group.crews.is_ok());
        let watts: Vec<f64> =
            joined.filter_map(|group| Some(group.kind.watts? * group.kind.machines())).collect();
        let kilowatts = watts.iter().sum::<f64>() / 1000.0;
        let energy_kwh = seconds.filter(|_| !watts.is_empty());
        Ok(Forecast {
            energy_kwh: energy_kwh.map(|seconds| seconds.scaled(kilowatts / 3600.0)),
            groups,
            pace,
            seconds,
        })
    }
}

/// Checks that a figure is above 0.
fn positive(what: &str, value: f64) -> anyhow::Result<f64> {
    let is_positive = value > 0.0 && value.is_finite();
    ensure!(is_positive, "invalid {what} {value}: expected a number above 0");
    Ok(value)
}

impl Kind {
    /// Returns the number of machines as a float.
    fn machines(&self) -> f64 {
        f64::from(self.count.get())
    }

    fn group(&self, plan: &Plan, needs: &PlanNeeds, dir: &Path) -> anyhow::Result<Group> {
        let memory: MemorySize = self.memory.parse().context("memory")?;
        let threads: Threads = self.cores.to_string().parse().context("cores")?;
        let speed = match (self.speed, self.rate, &self.estimate) {
            (Some(speed), None, None) => Range::exactly(positive("speed", speed)?),
            (None, Some(rate), None) => {
                Range::exactly(positive("rate", rate)? / f64::from(self.cores.get()))
            }
            (None, None, Some(file)) => measured(plan, &dir.join(file))?,
            _ => bail!(
                "give one of speed (of a core, in reference cores), rate (SPEED in `queensctl \
                 workers`) or estimate (a file from `worker estimate --json`)"
            ),
        };
        self.watts.map_or(Ok(0.0), |watts| positive("watts", watts))?;
        let crews = crews(plan, memory, threads, self.crews);
        let number = crews.as_ref().map_or(1, Crews::number);
        let members = crews.as_ref().map_or(self.cores, |crews| crews.crew(0).threads);
        let whole = needs.of(members).whole.saturating_mul(number.into());
        Ok(Group { kind: self.clone(), memory, speed, crews, whole: MemorySize::at_least(whole) })
    }
}

/// Returns the speed in an estimate of the same board.
fn measured(plan: &Plan, file: &Path) -> anyhow::Result<Range> {
    let (path, board) = (file.display(), plan.spec().board);
    let advice = format!("write it with `worker estimate --n {board} --json` on such a machine");
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {path}"))?;
    let Estimate { n, speed } = serde_json::from_str(without_bom(&text))
        .map_err(|why| anyhow!("invalid estimate {path}: {why}; {advice}"))?;
    ensure!(n == board.n(), "{path} is an estimate of N = {n}, not of {board}; {advice}");
    let Range { low, expected, high } = speed;
    let is_range = 0.0 < low && low <= expected && expected <= high && high.is_finite();
    ensure!(is_range, "invalid range of speeds in {path}; {advice}");
    Ok(speed)
}

#[cfg(test)]
mod tests {
    use common::{crew_layout::Machine, method::Layout};

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
        assert!(
            (seconds.expected * both.pace.expected / (1.02 * core_seconds(&plan(20))) - 1.0).abs()
                < 1e-9
        );
        let kwh = both.energy_kwh.unwrap().expected;
        assert!((kwh - seconds.expected * 0.6 / 3600.0).abs() < 1e-12, "only fast has watts");
        let paces = both.groups.iter().map(|group| group.pace().expected);
        assert!((paces.sum::<f64>() - both.pace.expected).abs() < 1e-9);
    }

    #[test]
    fn machines_join_by_the_rule_of_workers() {
        let plan = plan(24);
        let threads = NonZeroU16::new(16).unwrap();
        let least = PlanNeeds::new(&plan).of(threads).least;
        for (bytes, joins) in [(least - 1, false), (least, true), (least * 100, true)] {
            let text =
                format!("[[machine]]\nname = \"m\"\ncores = 16\nmemory = \"{bytes}\"\nspeed = 1");
            let forecast = fleet(&text).forecast(&plan, Path::new(".")).unwrap();
            let machine = Machine { threads, memory_bytes: bytes, crews: None };
            let group = &forecast.groups[0];
            assert_eq!(group.crews.ok(), Crews::new(&plan, machine).ok());
            assert_eq!((group.crews.is_ok(), forecast.seconds.is_some()), (joins, joins));
            if let Err(why) = &group.crews {
                assert!(why.to_string().contains("N = 24 needs at least --memory"), "{why}");
            }
        }
    }

    #[test]
    fn measured_speeds_give_the_time_a_range() {
        let dir = tempfile::tempdir().unwrap();
        let write = |n: u8| {
            let text =
                format!(r#"{{"n":{n},"speed":{{"low":1.0,"expected":2.0,"high":4.0}},"x":1}}"#);
            fs::write(dir.path().join("rack.json"), text).unwrap();
        };
        let text =
            "[[machine]]\nname = \"m\"\ncores = 2\nmemory = \"1GiB\"\nestimate = \"rack.json\"";
        write(20);
        let seconds = fleet(text).forecast(&plan(20), dir.path()).unwrap().seconds.unwrap();
        assert!((seconds.high / seconds.low - 4.0).abs() < 1e-9);
        write(21);
        let other = fleet(text).forecast(&plan(20), dir.path()).unwrap_err();
        assert!(other.to_string().contains("N = 21, not of 20"), "{other}");
        let upside_down = r#"{"n":20,"speed":{"low":4.0,"expected":2.0,"high":1.0}}"#;
        fs::write(dir.path().join("rack.json"), upside_down).unwrap();
        let none = fleet(text).forecast(&plan(20), dir.path()).unwrap_err();
        assert!(none.to_string().contains("invalid range of speeds"), "{none}");
    }

    #[test]
    fn invalid_figures_are_named_with_their_machine() {
        for (line, says) in [
            ("memory = \"lots\"\nspeed = 1", "'m': memory: invalid memory size 'lots'"),
            ("memory = \"1GiB\"", "give one of speed"),
            ("memory = \"1GiB\"\nspeed = 1\nrate = 2", "give one of speed"),
            ("memory = \"1GiB\"\nspeed = -1", "invalid speed -1"),
            ("memory = \"1GiB\"\nspeed = 1\nwatts = 0", "invalid watts 0"),
            ("memory = \"1GiB\"\nestimate = \"none.json\"", "cannot read"),
        ] {
            let text = format!("[[machine]]\nname = \"m\"\ncores = 2\n{line}");
            let error = fleet(&text).forecast(&plan(16), Path::new("/nowhere")).unwrap_err();
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
