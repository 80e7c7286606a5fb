//! A worker at a glance: what its status line says.

use std::{
    fmt,
    time::{Duration, Instant},
};

use common::board::Board;

use crate::summary::plural;

/// What a worker is doing now.
#[derive(Clone, Debug, PartialEq)]
pub struct Glance {
    /// Counting threads.
    pub threads: u32,
    /// The tasks that are being counted, each by a crew: board, task, and the part that is done,
    /// 0 to 1.
    pub tasks: Vec<(Board, u64, f64)>,
    /// Tasks that wait for a crew.
    pub waiting: usize,
    /// Tasks counted so far.
    pub counted: u64,
    /// Speed, in cores of the reference machine; 0 before anything was measured.
    pub cores: f64,
    /// Results that the coordinator has not acknowledged.
    pub unacknowledged: usize,
    /// When the coordinator answered last.
    pub answered: Option<Instant>,
    /// Calls that were lost since.
    pub failures: u32,
    /// It is stopping.
    pub draining: bool,
    /// Why it counts nothing for the time being.
    pub paused: Option<String>,
}

impl Glance {
    /// In a line, what matters most first: a terminal may not show it all.
    pub fn line(&self, now: Instant) -> String {
        At { glance: self, now }.to_string()
    }
}

struct At<'a> {
    glance: &'a Glance,
    now: Instant,
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Glance {
            threads,
            tasks,
            waiting,
            counted,
            cores,
            unacknowledged,
            answered,
            failures,
            draining,
            paused,
        } = self.glance;
        let crews = tasks.len() as u64;
        write!(
            f,
            "{} in {}",
            plural((*threads).into(), "thread"),
            plural(crews, "crew")
        )?;
        match tasks.first() {
            Some((board, task, part)) => {
                write!(f, ", N = {board} task {task} {:.0} %", part * 100.0)?;
            }
            None => write!(f, ", no task")?,
        }
        if *draining {
            write!(f, ", stopping")?;
        }
        if let Some(why) = paused {
            write!(f, ", pauses: {why}")?;
        }
        match (failures, answered) {
            (0, Some(at)) => {
                let ago = self.now.saturating_duration_since(*at);
                write!(f, " | link {} ago", whole(ago))?;
            }
            (0, None) => write!(f, " | connecting")?,
            (failures, _) => write!(f, " | no answer, {}", plural((*failures).into(), "attempt"))?,
        }
        write!(f, " | {cores:.2} cores | {counted} done, {waiting} waiting")?;
        write!(f, " | {unacknowledged} in spool")
    }
}

/// "3 s", "5 min".
fn whole(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_matters_first() {
        let now = Instant::now();
        let mut glance = Glance {
            threads: 16,
            tasks: vec![(Board::new(20).unwrap(), 1234, 0.561); 4],
            waiting: 12,
            counted: 99,
            cores: 15.25,
            unacknowledged: 3,
            answered: Some(now),
            failures: 0,
            draining: false,
            paused: None,
        };
        let later = now + Duration::from_secs(7);
        assert_eq!(
            glance.line(later),
            "16 threads in 4 crews, N = 20 task 1234 56 % | link 7 s ago | 15.25 cores | 99 done, \
             12 waiting | 3 in spool"
        );
        glance.failures = 2;
        glance.tasks.clear();
        glance.draining = true;
        let line = glance.line(now + Duration::from_secs(300));
        assert!(
            line.starts_with("16 threads in 0 crews, no task, stopping | no answer, 2 attempts |"),
            "{line}"
        );
        glance.paused = Some("on battery".to_owned());
        let line = glance.line(now);
        assert!(line.contains(", pauses: on battery | no"), "{line}");
        (glance.failures, glance.answered) = (0, None);
        assert!(glance.line(now).contains("| connecting |"));
    }
}
