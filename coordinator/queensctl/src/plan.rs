//! `queensctl plan`.

use std::path::{Path, PathBuf};

use clap::Args;
use common::{
    board::Board,
    choice::{MethodChoice, choose},
    forecast::{Range, SECOND_COUNTS_MILLIONTHS, disk_bytes},
    plan::{Plan, PlanSpec},
};
use serde_json::{Value, json};
use worker::memory::MemorySize;

use super::{
    fleet::{Fleet, Forecast, Group},
    output::print,
};
use coordinator::{
    exit::Exit,
    text::{Column, plural, span, stdout_width, table, tell},
};

/// Options of `plan`.
#[derive(Clone, Debug, Args)]
pub(super) struct PlanOptions {
    /// The board's side, 1 to 32
    #[arg(long, allow_hyphen_values = true)]
    n: Board,

    /// How to count: auto, rows or frames
    #[arg(long, default_value = "auto")]
    method: MethodChoice,

    /// The machines, in TOML, or in JSON if it ends in .json: a `[[machine]]` for each kind, with name,
    /// count, cores, memory, and speed, rate or estimate
    #[arg(long, value_name = "FILE")]
    fleet: PathBuf,

    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn plan(options: &PlanOptions) -> anyhow::Result<Exit> {
    let fleet = Fleet::read(&options.fleet)?;
    let choice = choose(options.n, options.method, None, None)?;
    let plan = Plan::new(PlanSpec::new(options.n, choice.layout))?;
    let dir = options.fleet.parent().unwrap_or_else(|| Path::new("."));
    let forecast = fleet.forecast(&plan, dir)?;
    match options.json {
        true => print(&as_json(&plan, &forecast).to_string())?,
        false => print(&as_text(&plan, &forecast))?,
    }
    if forecast.seconds.is_some() {
        return Ok(Exit::Success);
    }
    tell("error: none of these machines can join: give them more memory");
    Ok(Exit::Error)
}

fn second_counts() -> f64 {
    f64::from(SECOND_COUNTS_MILLIONTHS) / 1e6
}

fn range(range: Range) -> Value {
    json!({ "low": range.low, "expected": range.expected, "high": range.high })
}

fn as_json(plan: &Plan, forecast: &Forecast) -> Value {
    let spec = plan.spec();
    let group = |group: &Group| {
        let crews = group.crews.as_ref();
        json!({
            "name": group.name,
            "count": group.count,
            "cores": group.cores,
            "memory_bytes": group.memory.bytes(),
            "memory_whole_bytes": group.whole.bytes(),
            "joins": crews.is_ok(),
            "reason": crews.err().map(ToString::to_string),
            "crews": crews.ok().map(|crews| crews.number()),
            "in_pieces": group.is_cut(),
            "speed": range(group.speed),
            "measured": group.is_measured,
            "share": share(group, forecast),
        })
    };
    json!({
        "n": spec.board.n(),
        "method": spec.layout.method().name(),
        "tasks": plan.tasks(),
        "second_counts": second_counts(),
        "seconds": forecast.seconds.map(range),
        "energy_kwh": forecast.energy_kwh.map(range),
        "disk_bytes": disk_bytes(plan.tasks(), second_counts()),
        "machines": forecast.groups.iter().map(group).collect::<Vec<_>>(),
    })
}

/// Which part of the work falls to a group, 0 to 1.
fn share(group: &Group, forecast: &Forecast) -> f64 {
    match forecast.pace.expected > 0.0 {
        true => group.pace().expected / forecast.pace.expected,
        false => 0.0,
    }
}

fn as_text(plan: &Plan, forecast: &Forecast) -> String {
    let columns = [
        Column::name("MACHINE"),
        Column::numbers("COUNT"),
        Column::numbers("CORES"),
        Column::words("MEMORY"),
        Column::words("CREWS"),
        Column::numbers("SPEED"),
        Column::numbers("SHARE"),
    ];
    let row = |group: &Group| {
        vec![
            group.name.clone(),
            group.count.to_string(),
            group.cores.to_string(),
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
    lines.push("SPEED of one core, beside one of the reference machine".to_owned());
    for group in &forecast.groups {
        if let Err(why) = &group.crews {
            lines.push(format!("{} cannot join: {why}", group.name));
        }
        if group.is_cut() {
            lines.push(format!(
                "{}: its lists do not stay whole below {}, and it is slower than elsewhere for that",
                group.name, group.whole
            ));
        }
    }
    let spec = plan.spec();
    let (tasks, twice) = (plural(plan.tasks(), "task"), second_counts() * 100.0);
    let what = format!("N = {}, method {}", spec.board, spec.layout.method());
    lines.push(format!("{what}: {tasks}, {twice} % of them counted twice"));
    if let Some(Range {
        low,
        expected,
        high,
    }) = forecast.seconds
    {
        let measured = forecast.groups.iter().any(|group| group.is_measured);
        let all = forecast.groups.iter().all(|group| group.is_measured);
        let range = match (measured, all) {
            (true, true) => format!("{} to {}", span(low), span(high)),
            (true, false) => format!("{} to {}, where measured", span(low), span(high)),
            (false, _) => "speeds as given: no range".to_owned(),
        };
        lines.push(format!("time    {} ({range})", span(expected)));
    }
    if let Some(energy) = forecast.energy_kwh {
        let kwh = energy.expected;
        lines.push(format!("energy  {kwh:.1} kWh, by the watts given"));
    }
    let disk = MemorySize::at_least(disk_bytes(plan.tasks(), second_counts()));
    lines.push(format!("disk    {disk} at the coordinator"));
    lines.join("\n")
}
