//! Several threads at one piece of work.
//!
//! Threads live as long as one step of a count, whose work its members divide among themselves; a
//! step of a millisecond does not notice what starting them takes, and shorter ones are done by the
//! leader alone. Only the leader, the thread that asked for the count, talks to whoever watches it.

use std::{
    ops::ControlFlow,
    panic::resume_unwind,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

/// Told how much was done since the call before; `Break` stops the work.
pub(crate) type OnDone<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// What members know of each other.
#[derive(Debug, Default)]
struct Signals {
    stop: AtomicBool,
    /// What helpers did that the leader has not told yet.
    done: AtomicU64,
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

/// Lets every member do `work` with what is its own, the first of them on this thread, and returns
/// what each made of it; `Break` if `on_done` did. The members take their parts from something
/// shared: a thread that cannot be started is not missed.
///
/// # Panics
/// As a member did, once all have ended.
pub(crate) fn run<S: Send, R: Send>(
    members: &mut [S],
    on_done: OnDone<'_>,
    work: impl Fn(&mut S, &mut Tell<'_>) -> R + Sync,
) -> ControlFlow<(), Vec<R>> {
    let signals = Signals::default();
    let (leader, helpers) = members.split_first_mut().expect("a crew has a leader");
    let results = thread::scope(|scope| {
        let (work, signals) = (&work, &signals);
        let start = |member| {
            let help = move || {
                let _guard = StopOnPanic(signals);
                let on_done = None;
                work(member, &mut Tell { signals, on_done })
            };
            thread::Builder::new().spawn_scoped(scope, help).ok()
        };
        let helpers: Vec<_> = helpers.iter_mut().filter_map(start).collect();
        let own = {
            let _guard = StopOnPanic(signals);
            let on_done: Option<OnDone<'_>> = Some(&mut *on_done);
            work(leader, &mut Tell { signals, on_done })
        };
        let mut results = vec![own];
        for helper in helpers {
            match helper.join() {
                Ok(result) => results.push(result),
                Err(panic) => resume_unwind(panic),
            }
        }
        results
    });
    if signals.stop.into_inner() || on_done(signals.done.into_inner()).is_break() {
        return ControlFlow::Break(());
    }
    ControlFlow::Continue(results)
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
            let results = run(&mut members, &mut on_done, |own, tell| {
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
        assert!(run(&mut [(); 3], stop, until_told).is_break());
    }

    #[test]
    fn a_panic_stops_the_others_and_is_passed_on() {
        for bad in 0..3 {
            let mut members = [0, 1, 2];
            let go_on: OnDone<'_> = &mut |_| ControlFlow::Continue(());
            let panic = catch_unwind(AssertUnwindSafe(|| {
                run(&mut members, go_on, |own, tell| {
                    assert!(*own != bad, "member {own}");
                    while tell.done(1).is_continue() {}
                })
            }));
            let panic = panic.unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&format!("member {bad}")));
        }
    }
}
