//! Several threads at one piece of work.
//!
//! A count is made in steps, and the members of a crew divide the work of each among themselves. The
//! helpers live as long as their crew and sleep between its steps; work of less than a millisecond is
//! done by the leader alone. Only the leader, the thread that asked for the count, talks to whoever
//! watches it.

use std::{
    ops::ControlFlow,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread::{self, Thread},
};

use rayon_core::{ThreadPool, ThreadPoolBuilder};

/// Told how much was done since the call before; `Break` stops the work.
pub(crate) type OnDone<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// Threads that work together: the one that asks for a step, which leads it, and helpers.
#[derive(Debug)]
pub(crate) struct Crew {
    size: usize,
    /// None where the leader works alone.
    helpers: Option<ThreadPool>,
}

/// What members know of each other in one step.
#[derive(Debug)]
struct Signals {
    stop: AtomicBool,
    /// What helpers did that the leader has not told yet.
    done: AtomicU64,
    /// Helpers that have not ended yet.
    helping: AtomicUsize,
    leader: Thread,
}

/// Through which a member says what it did, and learns whether to go on.
pub(crate) struct Tell<'a> {
    signals: &'a Signals,
    /// The leader's alone.
    on_done: Option<OnDone<'a>>,
}

impl Tell<'_> {
    /// So much was done since the call before. `Break`: stop, others did.
    pub(crate) fn done(&mut self, amount: u64) -> ControlFlow<()> {
        if let Some(on_done) = &mut self.on_done {
            let helpers = self.signals.done.swap(0, Relaxed);
            if on_done(amount + helpers).is_break() {
                self.signals.stop.store(true, Relaxed);
            }
        } else {
            self.signals.done.fetch_add(amount, Relaxed);
            // It may have nothing left to do but to tell what others did.
            self.signals.leader.unpark();
        }
        if self.signals.stop.load(Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Stops the other members when this one panics, so that the panic is reported soon.
struct StopOnPanic<'a>(&'a Signals);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop.store(true, Relaxed);
        }
    }
}

/// Says that a helper has ended, however it did.
struct Helps<'a>(&'a Signals);

impl Drop for Helps<'_> {
    fn drop(&mut self) {
        self.0.helping.fetch_sub(1, Relaxed);
        self.0.leader.unpark();
    }
}

impl Crew {
    /// A crew of so many threads, or of as many as the system has for it: work is never given to
    /// members by number, so that one that is missing is not missed.
    pub(crate) fn new(size: usize) -> Self {
        let pool = |helpers| {
            let name = |helper| format!("crew-{}", helper + 1);
            let pool = ThreadPoolBuilder::new().num_threads(helpers);
            pool.thread_name(name).build().ok()
        };
        let helpers = (1..size).rev().find_map(pool);
        Self { size, helpers }
    }

    /// How many members there are to be.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Lets every member do `work` with what is its own, the first of them on this thread, and returns
    /// what each made of it; `Break` if `on_done` did. The members take their parts from something
    /// shared, and each may find nothing left to do.
    ///
    /// # Panics
    /// As a member did, once all have ended.
    pub(crate) fn run<S: Send, R: Send>(
        &self,
        members: &mut [S],
        on_done: OnDone<'_>,
        work: impl Fn(&mut S, &mut Tell<'_>) -> R + Sync,
    ) -> ControlFlow<(), Vec<R>> {
        let (leader, others) = members.split_first_mut().expect("a crew has a leader");
        let signals = Signals {
            stop: AtomicBool::new(false),
            done: AtomicU64::new(0),
            helping: AtomicUsize::new(0),
            leader: thread::current(),
        };
        let mut lead = |on_done: OnDone<'_>| {
            let _guard = StopOnPanic(&signals);
            let signals = &signals;
            let mut tell = Tell {
                signals,
                on_done: Some(on_done),
            };
            let own = work(leader, &mut tell);
            // What is left is done by others, but still told here.
            while signals.helping.load(Relaxed) > 0 {
                thread::park();
                let _ = tell.done(0);
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
                            let _guards = (StopOnPanic(signals), Helps(signals));
                            let on_done = None;
                            let result = work(member, &mut Tell { signals, on_done });
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
                    results.push(work(member, &mut Tell { signals, on_done }));
                }
            }
        }
        if signals.stop.into_inner() || on_done(signals.done.into_inner()).is_break() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(results)
    }

    /// Lets the members do `work` for all of these, each for the next that nobody has taken. `Break` if
    /// `on_done` did, or whoever worked.
    ///
    /// # Panics
    /// As a member did, once all have ended.
    pub(crate) fn share<T>(
        &self,
        parts: impl Iterator<Item = T> + Send,
        on_done: OnDone<'_>,
        work: impl Fn(T, &mut Tell<'_>) -> ControlFlow<()> + Sync,
    ) -> ControlFlow<()> {
        let parts = Mutex::new(parts);
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        let done = self.run(&mut vec![(); self.size], on_done, |(), tell| {
            while let Some(part) = next() {
                work(part, tell)?;
            }
            ControlFlow::Continue(())
        })?;
        done.into_iter()
            .find(ControlFlow::is_break)
            .unwrap_or(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::Barrier,
    };

    use super::*;

    #[test]
    fn all_members_work_and_the_leader_tells_of_it() {
        for size in 1..=4 {
            let (mut members, together) = (vec![0_u64; size], Barrier::new(size));
            let mut told = 0;
            let mut on_done = |amount| {
                told += amount;
                ControlFlow::Continue(())
            };
            let results = Crew::new(size).run(&mut members, &mut on_done, |own, tell| {
                together.wait();
                for _ in 0..1000 {
                    assert!(tell.done(3).is_continue());
                }
                *own += 1;
                7
            });
            assert_eq!(results, ControlFlow::Continue(vec![7; size]));
            assert_eq!((told, members), (3000 * size as u64, vec![1; size]));
        }
    }

    #[test]
    fn nobody_goes_on_once_the_watch_says_stop() {
        let stop: OnDone<'_> = &mut |_| ControlFlow::Break(());
        let until_told = |_: &mut (), tell: &mut Tell<'_>| while tell.done(1).is_continue() {};
        assert!(Crew::new(3).run(&mut [(); 3], stop, until_told).is_break());
    }

    #[test]
    fn a_panic_stops_the_others_and_is_passed_on() {
        for bad in 0..3 {
            let mut members = [0, 1, 2];
            let go_on: OnDone<'_> = &mut |_| ControlFlow::Continue(());
            let panic = catch_unwind(AssertUnwindSafe(|| {
                Crew::new(3).run(&mut members, go_on, |own, tell| {
                    assert!(*own != bad, "member {own}");
                    while tell.done(1).is_continue() {}
                })
            }));
            let panic = panic.unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&format!("member {bad}")));
        }
    }
}
