//! The texts of small files, sealed by a hash, and what can be wrong with them. Pure.
//!
//! Each is one JSON object with its struct's fields in their order, without spaces, then `check`: the
//! SHA-256 of all bytes before `,"check":`. (Lines of journals and spools, of which there are many,
//! end in a shorter check sum: `common::sealed`.)

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

use common::run::RunId;
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

/// The version of every small file but the directory's marker, which states that of the directory.
pub(super) const FILE_FORMAT: u32 = 1;

const CHECK_KEY: &str = r#","check":""#;

/// What is wrong with the text of a small file, or with a line of trust.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadText {
    /// Another program wrote it.
    #[error("it has format {found}, this program knows {known}")]
    Format {
        /// What it states.
        found: u32,
        /// The latest that can be read.
        known: u32,
    },
    /// Its end is no check hash.
    #[error("it does not end in a check hash")]
    Unsealed,
    /// The bytes are not those that were written.
    #[error("its check hash is {computed}, it says {stated}: bytes have changed")]
    Changed {
        /// Of the bytes there are.
        computed: String,
        /// What the text says.
        stated: String,
    },
    /// Not the fields that it should have.
    #[error("{0}")]
    Json(String),
    /// A field says nothing that it could.
    #[error(transparent)]
    Field(#[from] BadField),
    /// It belongs elsewhere.
    #[error("it is of run {found}, not {run}")]
    OtherRun {
        /// What it says.
        found: String,
        /// Where it was found.
        run: RunId,
    },
    /// A seal that belongs elsewhere.
    #[error("it is of segment {segment} of run {run}")]
    OtherSegment {
        /// What it says.
        segment: u64,
        /// What it says.
        run: String,
    },
    /// A marker of something else.
    #[error("it is of program '{0}'")]
    OtherProgram(String),
}

/// A field that cannot be what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub(crate) struct BadField {
    field: &'static str,
    why: String,
}

impl BadField {
    /// That of this name; `why` says what it says, and what that is not.
    pub(super) fn new(field: &'static str, why: impl Display) -> Self {
        let why = why.to_string();
        Self { field, why }
    }

    /// The value of a field.
    pub(super) fn parse<T: FromStr<Err: Display>>(
        field: &'static str,
        text: &str,
    ) -> Result<T, Self> {
        text.parse().map_err(|error| Self::new(field, error))
    }
}

/// JSON of `fields` with a check hash as its last field.
pub(super) fn seal(fields: &impl Serialize) -> String {
    let mut text = serde_json::to_string(fields).expect("strings and numbers become JSON");
    text.pop();
    let check = digest(&text);
    text + CHECK_KEY + &check + "\"}"
}

/// The fields of a text that [`seal`] made, if no byte has changed.
pub(super) fn unseal<T: DeserializeOwned>(text: &str) -> Result<T, BadText> {
    unseal_of(text, FILE_FORMAT..=FILE_FORMAT)
}

/// The same, where several versions can be read.
pub(super) fn unseal_of<T: DeserializeOwned>(
    text: &str,
    formats: RangeInclusive<u32>,
) -> Result<T, BadText> {
    if let Some(found) = format_of(text).filter(|format| !formats.contains(format)) {
        let known = *formats.end();
        return Err(BadText::Format { found, known });
    }
    let (body, check) = text
        .rsplit_once(CHECK_KEY)
        .and_then(|(body, tail)| Some((body, tail.strip_suffix("\"}")?)))
        .ok_or(BadText::Unsealed)?;
    let computed = digest(body);
    if computed != check {
        let stated = check.to_owned();
        return Err(BadText::Changed { computed, stated });
    }
    serde_json::from_str(&format!("{body}}}")).map_err(|error| BadText::Json(error.to_string()))
}

/// The format that a text of another version states: all versions have this field in common.
pub(super) fn format_of(text: &str) -> Option<u32> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    value.get("format")?.as_u64()?.try_into().ok()
}

/// A text whose check hash is right for what it says otherwise.
pub(super) fn resealed(text: &str) -> String {
    let body = text
        .rsplit_once(CHECK_KEY)
        .map_or(text.strip_suffix('}').unwrap_or(text), |(body, _)| body);
    format!("{body}{CHECK_KEY}{}\"}}", digest(body))
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
