//! Durations on the command line.

use std::{num::NonZeroU64, time::Duration};

/// Parses a time limit: a duration, or `0` for none.
pub fn time_limit(text: &str) -> Result<TimeLimit, String> {
    match text {
        "0" | "0s" => Ok(TimeLimit(None)),
        _ => duration(text).map(|limit| TimeLimit(Some(limit))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit(pub Option<Duration>);

/// Parses durations such as `3h`, `90m`, `45s`, `1h30m` and `2d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad =
        || format!("invalid duration '{text}': expected 1s to 366d, such as 3h, 90m, 45s or 1h30m");
    let mut seconds = 0u64;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = rest[..end].parse().map_err(|_| bad())?;
        let unit = match rest.as_bytes()[end] {
            b's' => 1,
            b'm' => 60,
            b'h' => 3_600,
            b'd' => 86_400,
            _ => return Err(bad()),
        };
        let part = number.checked_mul(unit).ok_or_else(bad)?;
        seconds = seconds.checked_add(part).ok_or_else(bad)?;
        rest = &rest[end + 1..];
    }
    // A year: longer than any scheduler's limit, and safe to add to a clock.
    if seconds == 0 || seconds > 366 * 86_400 {
        return Err(bad());
    }
    Ok(Duration::from_secs(seconds))
}

/// Formats whole seconds as [`duration`] parses them: `1h30m`.
pub fn format_duration(span: Duration) -> String {
    let mut remaining = span.as_secs();
    let mut text = String::new();
    for (unit, seconds) in [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)] {
        if remaining >= seconds {
            text += &format!("{}{unit}", remaining / seconds);
            remaining %= seconds;
        }
    }
    text
}

/// Parses the cost of a task in microseconds.
pub fn task_cost(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| {
        format!("invalid task cost '{text}': expected a whole number of microseconds, at least 1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, seconds) in
            [("45s", 45), ("90m", 5_400), ("3h", 10_800), ("1h30m", 5_400), ("2d", 172_800)]
        {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
            assert_eq!(duration(&format_duration(Duration::from_secs(seconds))), duration(text));
        }
        assert_eq!(format_duration(Duration::from_secs(93_784)), "1d2h3m4s");
        for bad in ["", "0s", "3", "h", "-3h", "1.5h", "3 h", "3w", "99999999999999999999s", "9é"]
        {
            let error = duration(bad).unwrap_err();
            assert!(error.starts_with(&format!("invalid duration '{bad}': ")), "{error}");
        }
    }
}
