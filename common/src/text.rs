//! Formatting of numbers and times, checks of names, escaping of untrusted text.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

use crate::method::Layout;

/// Maximum length of a name in bytes.
pub const NAME_BYTES: usize = 64;

/// Returns whether `text` is a valid name of a worker or token.
///
/// Valid names have 1 to 64 ASCII letters, digits, `.`, `_` and `-`.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_BYTES).contains(&text.len()) && text.bytes().all(plain)
}

/// An invalid worker name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid worker name '{}': expected 1 to {NAME_BYTES} letters (A to Z), digits, '.', '_' or '-'",
    Escaped(.0)
)]
pub struct BadName(String);

/// Returns `text` if it is a valid worker name.
pub fn worker_name(text: &str) -> Result<String, BadName> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        // Limits the length of the message.
        false => Err(BadName(text.chars().take(NAME_BYTES).collect())),
    }
}

/// Text on one line, with invisible characters escaped as in Rust: `\u{202e}`.
///
/// The invisible characters are control, line separator, bidirectional, zero-width, combining, tag,
/// private and unassigned ones.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

/// Returns whether [`Escaped`] leaves `character` unescaped.
pub fn is_visible(character: char) -> bool {
    matches!(character, '\'' | '"' | '\\') || character.escape_debug().len() == 1
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match is_visible(character) {
            true => f.write_char(character),
            false => write!(f, "{}", character.escape_debug()),
        })
    }
}

/// Escapes each line of `text` as [`Escaped`] does.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character, safe| write!(safe, "{}", character.escape_debug()))
}

/// Escapes invisible characters in a JSON text without changing its value.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    escaped(json, |character, safe| {
        let mut units = [0; 2];
        let mut units = character.encode_utf16(&mut units).iter();
        units.try_for_each(|unit| write!(safe, "\\u{unit:04x}"))
    })
}

/// Escapes the invisible characters of `text`, except line breaks, with `escape`.
fn escaped(text: &str, escape: impl Fn(char, &mut String) -> fmt::Result) -> Cow<'_, str> {
    let is_plain = |character| character == '\n' || is_visible(character);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        match is_plain(character) {
            true => safe.push(character),
            false => escape(character, &mut safe).expect("writing to a string cannot fail"),
        }
    }
    Cow::Owned(safe)
}

/// Formats a number with its noun: "1 task", "2 tasks", "1,683 tasks".
pub fn plural(number: impl TryInto<u128>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u128::MAX);
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", thousands(number))
}

/// Formats a number in groups of three digits: "14,772,512".
pub fn thousands(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number, marked with ~ if it is an estimate.
pub fn estimated(value: f64, sampled: bool) -> String {
    let mark = if sampled { "~" } else { "" };
    if value >= 1e9 {
        return format!("{mark}{value:.3e}");
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 1e9")]
    let whole = value.round() as u128;
    // Means of whole numbers may differ from a whole number by a rounding error.
    match (value - value.round()).abs() < 1e-6 || value >= 1e4 {
        true => format!("{mark}{}", thousands(whole)),
        false => format!("{mark}{value:.2}"),
    }
}

/// Formats a duration: "1.2 s", "3 min 20 s", "5 h 12 min", "4 d 6 h".
pub fn span(seconds: f64) -> String {
    // An approximation is enough; `as` saturates, and NaN becomes 0.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = seconds.round() as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{minutes} min {} s", whole % 60),
        3600..86_400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Returns the method's name, with the layout if it is not the method's default.
pub fn method_name(layout: Layout) -> String {
    let method = layout.method();
    if layout == method.default_layout() {
        method.to_string()
    } else {
        format!("{method} ({layout})")
    }
}

/// Formats a number, from a million on as four digits and a word: "314.7 billion".
pub fn abbreviated(number: u128) -> String {
    const UNITS: [&str; 7] = [
        "million",
        "billion",
        "trillion",
        "quadrillion",
        "quintillion",
        "sextillion",
        "septillion",
    ];
    // Values that round to 1,000 of a unit are shown in the next unit.
    #[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
    let mut value = number as f64 / 1e6;
    if value < 0.999_95 {
        return thousands(number);
    }
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    let digits = match value {
        ..9.9995 => 3,
        ..99.995 => 2,
        _ => 1,
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Formats a fraction between 0 and 1, rounded down: "48.85 %".
///
/// Below 0.01 %, the result has two significant digits: "0.000048 %" is one task of N = 28.
pub fn percent(part: f64) -> String {
    let percent = part.clamp(0.0, 1.0) * 100.0;
    let digits = (2..9)
        .find(|&digits| percent >= if digits == 2 { 0.01 } else { 10f64.powi(1 - digits) })
        .unwrap_or(2);
    let steps = 10f64.powi(digits);
    // Floating-point errors may make a whole number of steps slightly too small.
    let whole = (percent * steps + 1e-6).floor() / steps;
    format!("{whole:.*} %", digits.unsigned_abs() as usize)
}

/// Formats a range of durations in one unit: "14 to 19 min", "about 1 h".
pub fn rough(low: f64, high: f64) -> String {
    let (unit, seconds) = match high {
        ..90.0 => ("s", 1.0),
        ..5400.0 => ("min", 60.0),
        ..172_800.0 => ("h", 3600.0),
        _ => ("d", 86_400.0),
    };
    // For display only; `as` saturates.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let [low, high] = [(low / seconds).floor() as u64, (high / seconds).ceil() as u64];
    match (low, high.saturating_sub(low)) {
        (0, _) => format!("under {high} {unit}"),
        (_, 0) => format!("about {high} {unit}"),
        _ => format!("{} to {} {unit}", thousands(low.into()), thousands(high.into())),
    }
}

/// Formats the work of one core, rounded in one unit: "about 9 core-minutes".
pub fn core_time(seconds: f64) -> String {
    let (unit, length) = match seconds {
        ..120.0 => ("core-second", 1.0),
        ..7200.0 => ("core-minute", 60.0),
        ..172_800.0 => ("core-hour", 3600.0),
        ..63_072_000.0 => ("core-day", 86_400.0),
        _ => ("core-year", 31_536_000.0),
    };
    // For display only; `as` saturates.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    match (seconds / length).round() as u64 {
        0 => format!("under 1 {unit}"),
        whole => format!("about {}", plural(whole, unit)),
    }
}

/// Formats the span between two moments, without repeating the day or the zone.
pub fn between(first: &str, last: &str) -> String {
    match (first.split_once(' '), last.split_once(' ')) {
        _ if first == last => first.to_owned(),
        (Some((day, _)), Some((same, time))) if day == same => {
            format!("{} to {time}", first.trim_end_matches(" UTC"))
        }
        _ => format!("{} to {last}", first.trim_end_matches(" UTC")),
    }
}

/// Formats the counting time of a run, and its waiting time if longer than the start of a worker.
pub fn durations(counting: f64, waiting: f64) -> String {
    let shown = |seconds: f64| match seconds {
        ..0.05 => "under 0.1 s".to_owned(),
        9.95..59.5 => format!("{seconds:.0} s"),
        _ => span(seconds),
    };
    match waiting < 5.0 {
        true => format!("{} counting", shown(counting)),
        false => format!("{} counting, {} waiting", shown(counting), shown(waiting)),
    }
}

/// Formats an elapsed time in its largest unit: "3 s", "5 min", "7 h", "4 d".
pub fn age(seconds: f64) -> String {
    // As in `span`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min", whole / 60),
        3600..86_400 => format!("{} h", whole / 3600),
        _ => format!("{} d", whole / 86_400),
    }
}

/// Default width of a terminal in columns.
pub const WIDTH: usize = 80;

/// Returns the display name of a check; `name` is the one in signed certificates, of which the oldest have "canaries".
pub fn check_name(name: &str) -> String {
    match name {
        "canaries" | "self_tests" => "self-tests".to_owned(),
        "bound" => "error bound".to_owned(),
        "second_counts" => "rechecks".to_owned(),
        other => other.replace('_', " "),
    }
}

/// Returns the display text of a check's outcome.
pub fn check_outcome(outcome: &str) -> &str {
    match outcome {
        "failed" => "FAILED",
        "not_possible" => "not checked",
        "not_applicable" => "not applicable",
        other => other,
    }
}

/// Formats a check with its outcome and reason.
pub fn check_text(name: &str, outcome: &str, reason: &str) -> String {
    format!("{} {}: {reason}", check_name(name), check_outcome(outcome))
}

/// Formats `text` after a label, wrapped and indented within [`WIDTH`].
pub fn labeled(label: &str, text: &str) -> String {
    const INDENT: usize = 11;
    let lines = wrapped(text, WIDTH - INDENT);
    format!("{label:<INDENT$}{}", lines.join(&format!("\n{:INDENT$}", "")))
}

/// Wraps `text` at spaces within `width`; longer words stay whole.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut column = 0;
    for (place, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        let line = lines.last_mut().expect("there is always one");
        if place > 0 && column + 1 + length > width {
            lines.push(word.to_owned());
            column = length;
            continue;
        }
        if place > 0 {
            line.push(' ');
            column += 1;
        }
        line.push_str(word);
        column += length;
    }
    lines
}

/// Shortens `text` to `most` characters with an ellipsis in the middle.
///
/// Numbered names differ at either end, so both ends are preserved.
pub fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let visible = most.saturating_sub(1);
    let (first, last) = (visible / 2, visible - visible / 2);
    let start = text.chars().take(first);
    let end = text.chars().skip(length - last);
    start.chain(['…']).chain(end).collect()
}

/// Removes a leading byte order mark, which some editors write into text files.
pub fn without_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters that hide or move text or control a terminal, each in a word.
    const HOSTILE: [(&str, &str); 10] = [
        ("a\u{1b}[2Jb", r"a\u{1b}[2Jb"),
        ("a\u{9b}31mb", r"a\u{9b}31mb"),
        ("a\r\nb", r"a\r\nb"),
        ("a\u{202e}b", r"a\u{202e}b"),
        ("a\u{2066}b", r"a\u{2066}b"),
        ("a\u{200b}b", r"a\u{200b}b"),
        ("a\u{2028}b", r"a\u{2028}b"),
        ("a\u{feff}b", r"a\u{feff}b"),
        ("a\u{e0041}b", r"a\u{e0041}b"),
        ("a\u{ad}b", r"a\u{ad}b"),
    ];

    #[test]
    fn invisible_characters_are_escaped() {
        for (text, shown) in HOSTILE {
            assert_eq!(Escaped(text).to_string(), shown);
            assert_eq!(escaped_lines(&text.replace('\n', "")), shown.replace("\\n", ""));
            let json = serde_json::to_string(text).unwrap();
            let safe = escaped_json(&json);
            assert!(safe.chars().all(is_visible), "{safe}");
            assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), text);
        }
        for plain in ["", "it's \"so\" in C:\\", "N = 8, 100 %: Zürich, 東京, 😀 …"] {
            assert_eq!(Escaped(plain).to_string(), plain);
            assert_eq!(escaped_lines(plain), plain);
        }
        assert_eq!(escaped_lines("two\nlines"), "two\nlines");
    }

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "rack-7.node_12", &"n".repeat(NAME_BYTES)] {
            assert_eq!(worker_name(good).as_deref(), Ok(good));
        }
        let hostile = HOSTILE.map(|(text, _)| text);
        for bad in
            ["", " ", "a b", "é", "a/b", &"n".repeat(NAME_BYTES + 1)].into_iter().chain(hostile)
        {
            let error = worker_name(bad).unwrap_err().to_string();
            assert!(error.contains("invalid worker name"), "{error}");
            assert!(error.chars().all(is_visible) && error.len() < 300, "{error}");
        }
    }

    #[test]
    fn numbers_and_times_are_formatted_for_display() {
        for (shown, expected) in [
            (plural(0, "task"), "0 tasks"),
            (plural(1, "task"), "1 task"),
            (plural(1683, "task"), "1,683 tasks"),
            (thousands(0), "0"),
            (thousands(999), "999"),
            (thousands(1000), "1,000"),
            (thousands(14_772_512), "14,772,512"),
            (thousands(234_907_967_154_122_528), "234,907,967,154,122,528"),
            // The two largest units.
            (span(1.24), "1.2 s"),
            (span(59.4), "59.4 s"),
            (span(200.0), "3 min 20 s"),
            (span(18_720.0), "5 h 12 min"),
            (span(367_200.0), "4 d 6 h"),
            // The largest unit.
            (age(0.2), "0 s"),
            (age(59.0), "59 s"),
            (age(200.0), "3 min"),
            (age(1e5), "1 d"),
            // Four digits and a word.
            (abbreviated(0), "0"),
            (abbreviated(365_596), "365,596"),
            (abbreviated(999_949), "999,949"),
            (abbreviated(999_950), "1.000 million"),
            (abbreviated(2_279_184), "2.279 million"),
            (abbreviated(39_029_188_884), "39.03 billion"),
            (abbreviated(314_666_222_712), "314.7 billion"),
            (abbreviated(999_949_999_999), "999.9 billion"),
            (abbreviated(999_950_000_000), "1.000 trillion"),
            (abbreviated(234_907_967_154_122_528), "234.9 quadrillion"),
            (abbreviated(10u128.pow(27)), "1000.0 septillion"),
            // One unit for both ends.
            (rough(13.2, 19.3), "13 to 20 s"),
            (rough(80.0, 100.0), "1 to 2 min"),
            (rough(30.0, 100.0), "under 2 min"),
            (rough(3_600.0, 5_400.0), "1 to 2 h"),
            (rough(86_400.0, 172_800.0), "1 to 2 d"),
            (rough(60.0, 60.0), "about 60 s"),
            (rough(1e9, 1.2e9), "11,574 to 13,889 d"),
            (core_time(0.2), "under 1 core-second"),
            (core_time(540.0), "about 9 core-minutes"),
            (core_time(2.04e12), "about 64,688 core-years"),
            // Rounded down; small fractions have two significant digits.
            (percent(0.0), "0.00 %"),
            (percent(1.0 / 2_074_046.0), "0.000048 %"),
            (percent(1e-30), "0.00 %"),
            (percent(0.000_1), "0.01 %"),
            (percent(0.000_099_99), "0.0099 %"),
            (percent(0.000_012), "0.0012 %"),
            (percent(0.07), "7.00 %"),
            (percent(0.488_57), "48.85 %"),
            (percent(0.57), "57.00 %"),
            (percent(2_074_045.0 / 2_074_046.0), "99.99 %"),
            (percent(1.0), "100.00 %"),
            // Layouts other than the default are named.
            (method_name(Layout::Border), "rows"),
            (method_name(Layout::FirstRows), "rows (first-rows)"),
            (method_name(Layout::Frames), "frames"),
        ] {
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn long_texts_are_wrapped_next_to_their_label() {
        assert_eq!(labeled("waiting:", "for a worker"), "waiting:   for a worker");
        let text = labeled("tasks:", &"1234567 ".repeat(20));
        assert!(text.lines().count() > 1);
        for (place, line) in text.lines().enumerate() {
            assert!(line.chars().count() <= WIDTH, "{line}");
            let start = if place == 0 { "tasks:     1" } else { "           1" };
            assert!(line.starts_with(start), "{line}");
        }
    }
}
