//! The text of a run's manifest. Pure.
//!
//! One JSON object with the fields of [`Fields`] in that order, without spaces, then `check`: the
//! SHA-256 of all bytes before `,"check":`. Frozen by a test; a change raises [`FORMAT`].

use common::{board::Board, plan::PlanSpec};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::RunManifest;

/// The version of everything that the data directory holds.
pub(crate) const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    format: u32,
    run: String,
    n: u8,
    layout: String,
    task_cost: u64,
    plan: String,
    plan_version: u16,
    priority: i32,
    created_unix_ms: u64,
}

impl RunManifest {
    /// By what runs are ordered: creation, then name.
    pub(crate) const fn age(&self) -> (u64, u64) {
        (self.created_unix_ms, self.run.0)
    }
}

/// The text of a manifest, without a line end.
pub(crate) fn encode(manifest: &RunManifest) -> String {
    let fields = Fields {
        format: FORMAT,
        run: manifest.run.to_string(),
        n: manifest.spec.board.n(),
        layout: manifest.spec.layout.name().to_owned(),
        task_cost: manifest.spec.task_cost,
        plan: manifest.plan.to_string(),
        plan_version: manifest.plan_version,
        priority: manifest.priority,
        created_unix_ms: manifest.created_unix_ms,
    };
    seal(&fields)
}

/// Reads a manifest without its line end; says what is wrong with it otherwise.
pub(crate) fn decode(text: &str) -> Result<RunManifest, String> {
    let fields: Fields = unseal(text)?;
    if fields.format != FORMAT {
        return Err(format!(
            "it has format {}, this program knows {FORMAT}",
            fields.format
        ));
    }
    let spec = PlanSpec {
        board: Board::new(fields.n).map_err(|error| error.to_string())?,
        layout: fields.layout.parse().map_err(|error| format!("{error}"))?,
        task_cost: fields.task_cost,
    };
    Ok(RunManifest {
        run: fields
            .run
            .parse()
            .map_err(|error| format!("run: {error}"))?,
        spec,
        plan: fields
            .plan
            .parse()
            .map_err(|error| format!("plan: {error}"))?,
        plan_version: fields.plan_version,
        priority: fields.priority,
        created_unix_ms: fields.created_unix_ms,
    })
}

const CHECK_KEY: &str = r#","check":""#;

/// JSON of `fields` with a check hash as its last field.
pub(crate) fn seal(fields: &impl Serialize) -> String {
    let mut text = serde_json::to_string(fields).expect("strings and numbers become JSON");
    text.pop();
    let check = digest(&text);
    text + CHECK_KEY + &check + "\"}"
}

/// The fields of a text that [`seal`] made, if no byte has changed.
pub(crate) fn unseal<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let (body, check) = text
        .rsplit_once(CHECK_KEY)
        .and_then(|(body, tail)| Some((body, tail.strip_suffix("\"}")?)))
        .ok_or("it does not end in a check hash")?;
    let computed = digest(body);
    if computed != check {
        return Err(format!(
            "its check hash is {computed}, it says {check}: bytes have changed"
        ));
    }
    serde_json::from_str(&format!("{body}}}")).map_err(|error| error.to_string())
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
