//! Threads that share one piece of work.
//!
//! A count consists of steps, and the members of a crew divide each step among themselves. Helper
//! threads live as long as their crew and sleep between steps; the leader does short steps (less than
//! a millisecond) alone. Only the leader, the thread that requested the count, reports progress.

use std::{
    ops::ControlFlow,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread::{self, Thread},
};

use rayon_core::{ThreadPool, ThreadPoolBuilder};

/// Callback for the work done since the previous call; `Break` stops the work.
pub(crate) type OnDone<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// A group of threads that work on one step: the caller, which leads, and helpers.
#[derive(Debug)]
pub(crate) struct Crew {
    size: usize,
    /// `None` if the leader works alone.
    helpers: Option<ThreadPool>,
}

/// Shared state of the members during one step.
#[derive(Debug)]
struct Signals {
    stop: AtomicBool,
    /// Work of helpers that the leader has not reported yet.
    done: AtomicU64,
    /// Helpers still running.
    helping: AtomicUsize,
    leader: Thread,
}

/// Handle through which a member reports progress and learns whether to continue.
pub(crate) struct ProgressReporter<'a> {
    signals: &'a Signals,
    on_done: Option<OnDone<'a>>,
}

impl ProgressReporter<'_> {
    /// Reports work done since the previous call; `Break` if another member stopped.
    pub(crate) fn done(&mut self, amount: u64) -> ControlFlow<()> {
        if let Some(on_done) = &mut self.on_done {
            let helpers = self.signals.done.swap(0, Relaxed);
            if on_done(amount + helpers).is_break() {
                self.signals.stop.store(true, Relaxed);
            }
        } else {
            self.signals.done.fetch_add(amount, Relaxed);
            // Wakes the leader, which may be parked until there is progress to report.
            self.signals.leader.unpark();
        }
        if self.signals.stop.load(Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Guard that marks a helper as finished, and stops all members if one panics.
struct MemberGuard<'a> {
    signals: &'a Signals,
    is_helper: bool,
}

impl Drop for MemberGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.signals.stop.store(true, Relaxed);
        }
        if self.is_helper {
            self.signals.helping.fetch_sub(1, Relaxed);
            self.signals.leader.unpark();
        }
    }
}

impl Crew {
    /// Creates a crew of up to `size` threads; fewer if the system cannot start them.
    ///
    /// Work is pulled from a shared counter, so a smaller crew still completes it.
    pub(crate) fn new(size: usize) -> Self {
        let pool = |helpers| {
            let name = |helper| format!("crew-{}", helper + 1);
            let pool = ThreadPoolBuilder::new().num_threads(helpers);
            pool.thread_name(name).build().ok()
        };
        let helpers = (1..size).rev().find_map(pool);
        Self { size, helpers }
    }

    /// Returns the intended number of members.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Runs `work` once per member, the first on this thread, and returns the results.
    ///
    /// Returns `Break` if `on_done` did. Members take work from shared state; some may find none.
    ///
    /// # Panics
    /// If a member panics, after all have ended.
    pub(crate) fn run<S: Send, R: Send>(
        &self,
        members: &mut [S],
        on_done: OnDone<'_>,
        work: impl Fn(&mut S, &mut ProgressReporter<'_>) -> R + Sync,
    ) -> ControlFlow<(), Vec<R>> {
        let (leader, others) = members.split_first_mut().expect("a crew has a leader");
        let signals = Signals {
            stop: AtomicBool::new(false),
            done: AtomicU64::new(0),
            helping: AtomicUsize::new(0),
            leader: thread::current(),
        };
        let mut lead = |on_done: OnDone<'_>| {
            let signals = &signals;
            let _guard = MemberGuard { signals, is_helper: false };
            let mut reporter = ProgressReporter { signals, on_done: Some(on_done) };
            let own = work(leader, &mut reporter);
            // Helpers finish the remaining work, which is still reported here.
            while signals.helping.load(Relaxed) > 0 {
                thread::park();
                let _ = reporter.done(0);
            }
            own
        };
        let mut results = Vec::with_capacity(1 + others.len());
        match &self.helpers {
            Some(helpers) if !others.is_empty() => {
                let (work, signals, helped) = (&work, &signals, Mutex::new(Vec::new()));
                signals.helping.store(others.len(), Relaxed);
                let own = helpers.in_place_scope(|scope| {
                    for member in others {
                        let helped = &helped;
                        scope.spawn(move |_| {
                            let _guard = MemberGuard { signals, is_helper: true };
                            let on_done = None;
                            let result = work(member, &mut ProgressReporter { signals, on_done });
                            let mut helped = helped.lock().unwrap_or_else(PoisonError::into_inner);
                            helped.push(result);
                        });
                    }
                    lead(&mut *on_done)
                });
                results.push(own);
                results.append(&mut helped.into_inner().unwrap_or_else(PoisonError::into_inner));
            }
            _ => {
                results.push(lead(&mut *on_done));
                for member in others {
                    let (signals, on_done) = (&signals, None);
                    results.push(work(member, &mut ProgressReporter { signals, on_done }));
                }
            }
        }
        if signals.stop.into_inner() || on_done(signals.done.into_inner()).is_break() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(results)
    }

    /// Runs `work` for each part; members take the next unclaimed part.
    ///
    /// Returns `Break` if `on_done` or `work` did.
    ///
    /// # Panics
    /// If a member panics, after all have ended.
    pub(crate) fn share<T>(
        &self,
        parts: impl Iterator<Item = T> + Send,
        on_done: OnDone<'_>,
        work: impl Fn(T, &mut ProgressReporter<'_>) -> ControlFlow<()> + Sync,
    ) -> ControlFlow<()> {
        let parts = Mutex::new(parts);
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        let done = self.run(&mut vec![(); self.size], on_done, |(), reporter| {
            while let Some(part) = next() {
                work(part, reporter)?;
            }
            ControlFlow::Continue(())
        })?;
        done.into_iter().find(ControlFlow::is_break).unwrap_or(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::Barrier,
    };

    #[test]
    fn all_members_work_and_the_leader_reports_it() {
        for size in 1..=4 {
            let (mut members, together) = (vec![0_u64; size], Barrier::new(size));
            let mut reported = 0;
            let mut on_done = |amount| {
                reported += amount;
                ControlFlow::Continue(())
            };
            let results = Crew::new(size).run(&mut members, &mut on_done, |own, reporter| {
                together.wait();
                for _ in 0..1000 {
                    assert!(reporter.done(3).is_continue());
                }
                *own += 1;
                7
            });
            assert_eq!(results, ControlFlow::Continue(vec![7; size]));
            assert_eq!((reported, members), (3000 * size as u64, vec![1; size]));
        }
    }

    #[test]
    fn a_break_stops_all_members() {
        let stop: OnDone<'_> = &mut |_| ControlFlow::Break(());
        let until_stopped = |_: &mut (), reporter: &mut ProgressReporter<'_>| {
            while reporter.done(1).is_continue() {}
        };
        assert!(Crew::new(3).run(&mut [(); 3], stop, until_stopped).is_break());
    }

    #[test]
    fn a_panic_stops_the_others_and_is_passed_on() {
        for bad in 0..3 {
            let mut members = [0, 1, 2];
            let go_on: OnDone<'_> = &mut |_| ControlFlow::Continue(());
            let panic = catch_unwind(AssertUnwindSafe(|| {
                Crew::new(3).run(&mut members, go_on, |own, reporter| {
                    assert!(*own != bad, "member {own}");
                    while reporter.done(1).is_continue() {}
                })
            }));
            let panic = panic.unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&format!("member {bad}")));
        }
    }
}
