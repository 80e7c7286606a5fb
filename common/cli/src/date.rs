//! Dates and times of day in UTC.

use chrono::DateTime;

/// Formats Unix milliseconds as a date.
pub fn date(unix_ms: u64) -> String {
    utc(unix_ms, "%F")
}

/// Formats Unix milliseconds as `2026-12-12 09:30 UTC`.
pub fn moment(unix_ms: u64) -> String {
    utc(unix_ms, "%F %R UTC")
}

/// Formats like [`moment`], without the time zone; with the year if `with_year`.
pub fn minute(unix_ms: u64, with_year: bool) -> String {
    utc(unix_ms, if with_year { "%F %R" } else { "%m-%d %R" })
}

fn utc(unix_ms: u64, format: &str) -> String {
    let at = i64::try_from(unix_ms).ok().and_then(DateTime::from_timestamp_millis);
    at.map_or_else(|| "never".to_owned(), |at| at.format(format).to_string())
}
