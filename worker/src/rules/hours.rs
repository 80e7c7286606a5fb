//! Hours of the day, as people write them: `19:00-07:00,12:00-13:00`.

use std::{fmt, str::FromStr};

/// A minute of the day, 0 to 24:00, which only ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minute(u16);

const DAY: Minute = Minute::at(24, 0);

impl Minute {
    /// So many hours and minutes after midnight.
    ///
    /// # Panics
    /// If a day has no such time.
    pub const fn at(hour: u16, minute: u16) -> Self {
        assert!(hour <= 24 && minute < 60 && hour * 60 + minute <= 24 * 60);
        Self(hour * 60 + minute)
    }
}

impl fmt::Display for Minute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// Hours of a day, every day: one span or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hours(Vec<Span>);

/// From its start until its end, which is on the next day where it is not later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: Minute,
    end: Minute,
}

/// Hours that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' are no hours: give such as 19:00-07:00, in local time from 00:00 to 24:00, or several with commas"
)]
pub struct BadHours(String);

impl Span {
    fn has(self, now: Minute) -> bool {
        match self.start < self.end {
            true => self.start <= now && now < self.end,
            false => self.start <= now || now < self.end,
        }
    }
}

impl Hours {
    /// When they begin again, if `now` is none of them.
    pub(super) fn closed_until(&self, now: Minute) -> Option<Minute> {
        if self.0.iter().any(|span| span.has(now)) {
            return None;
        }
        let starts = || self.0.iter().map(|span| span.start);
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
    let (start, end) = text.trim().split_once('-')?;
    let (start, end) = (minute(start)?, minute(end)?);
    // A span that ends where it begins is nothing, or everything: nobody knows.
    (start != end && start < DAY).then_some(Span { start, end })
}

fn minute(text: &str) -> Option<Minute> {
    let (hour, minute) = text.trim().split_once(':')?;
    let number = |digits: &str, most: usize| {
        let right =
            (1..=most).contains(&digits.len()) && digits.bytes().all(|d| d.is_ascii_digit());
        right.then(|| digits.parse::<u16>().ok())?
    };
    let (hour, minute) = (number(hour, 2)?, number(minute, 2)?);
    (hour <= 24 && minute < 60 && hour * 60 + minute <= DAY.0).then(|| Minute::at(hour, minute))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_read_and_anything_else_is_not() {
        let hours: Hours = " 9:05-17:00, 22:30-24:00 ".parse().unwrap();
        let spans = [((9, 5), (17, 0)), ((22, 30), (24, 0))];
        let spans = spans.map(|(start, end)| Span {
            start: Minute::at(start.0, start.1),
            end: Minute::at(end.0, end.1),
        });
        assert_eq!(hours, Hours(spans.to_vec()));
        for bad in [
            "",
            "19:00",
            "19-07",
            "19:00-25:00",
            "19:60-20:00",
            "24:00-07:00",
            "24:01-07:00",
            "07:00-07:00",
            "19:00-07:00,",
            "-1:00-07:00",
            "19:00-+7:00",
            "019:00-07:00",
            "a:b-c:d",
            "19:00–07:00",
        ] {
            assert_eq!(bad.parse::<Hours>(), Err(BadHours(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn a_span_ends_before_its_end_and_may_pass_midnight() {
        let closed = |hours: &str, hour, minute| {
            let hours: Hours = hours.parse().unwrap();
            hours
                .closed_until(Minute::at(hour, minute))
                .map(|until| until.to_string())
        };
        let night = "19:00-07:00";
        for (hour, minute) in [(19, 0), (23, 59), (0, 0), (6, 59)] {
            assert_eq!(closed(night, hour, minute), None, "{hour}:{minute}");
        }
        for (hour, minute) in [(7, 0), (12, 0), (18, 59)] {
            assert_eq!(closed(night, hour, minute).as_deref(), Some("19:00"));
        }
        let whole_day = "00:00-24:00";
        assert!((0..24).all(|hour| closed(whole_day, hour, 59).is_none()));
        assert_eq!(
            closed("08:00-09:00", 23, 0).as_deref(),
            Some("08:00"),
            "tomorrow"
        );
        assert_eq!(closed("20:00-00:00", 23, 59), None);
        assert_eq!(closed("20:00-00:00", 0, 0).as_deref(), Some("20:00"));
    }
}
