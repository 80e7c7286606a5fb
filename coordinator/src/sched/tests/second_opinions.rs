//! Whom a second count waits for, and which way round it is asked for.

use super::*;

/// How many tasks that the first worker has counted are among these.
fn of_first(scheduler: &Scheduler, grants: &[Grant]) -> usize {
    let counted = |grant: &&Grant| {
        let done = scheduler.runs[0].tasks().done(run::index(grant.task.task));
        done.is_some_and(|done| scheduler.workers.id(done.worker) == WorkerId(1))
    };
    grants.iter().filter(counted).count()
}

/// A worker counts one task, in so many microseconds.
fn count_one(scheduler: &mut Scheduler, worker: &mut Puppet, duration_us: u64) {
    worker.sync(scheduler, 0);
    let grant = worker.held[0];
    worker.held.clear();
    let request = SyncRequest {
        partials: vec![Partial {
            duration_us,
            ..worker.partial(&grant, truth(grant.task))
        }],
        seconds_wanted: 0.0,
        ..worker.request()
    };
    scheduler.sync_by(worker.token.as_ref(), &request, Millis(0));
}

#[test]
fn a_second_count_waits_a_minute_for_another_token() {
    for (token, now, given) in [
        ("a", 1_000, false),
        ("a", 59_999, false),
        ("a", 60_000, true),
        ("b", 1_000, true),
    ] {
        let mut scheduler = rechecked(Recheck::All);
        let [mut first, mut second, mut other] = [1, 2, 3].map(Puppet::new);
        first.token = Some(Arc::from("a"));
        second.token = Some(Arc::from(token));
        other.token = Some(Arc::from("b"));
        other.say_nothing(&mut scheduler);
        count_one(&mut scheduler, &mut first, 1_000);
        let grants = second.sync(&mut scheduler, now).grants;
        let number = of_first(&scheduler, &grants);
        assert_eq!(number > 0, given, "token {token} after {now} ms");
    }
}

#[test]
fn another_kernel_is_waited_for_where_a_thread_of_it_is_about_as_fast() {
    for (duration_us, waited_for) in [(1_400, true), (2_000, false)] {
        let mut scheduler = rechecked(Recheck::All);
        let [mut first, mut same, mut other] = [1, 2, 3].map(Puppet::new);
        other.info.kernel = KernelName::Avx2;
        // How many threads it has is nothing to one task.
        other.info.threads = 10;
        count_one(&mut scheduler, &mut same, 1_000);
        count_one(&mut scheduler, &mut other, duration_us);
        count_one(&mut scheduler, &mut first, 1_000);
        let grants = same.sync(&mut scheduler, 1_000).grants;
        let number = of_first(&scheduler, &grants);
        assert_eq!(number == 0, waited_for, "{duration_us} us");
    }
}

#[test]
fn who_decides_is_asked_for_the_other_way_round_unless_its_kernel_is_another() {
    for (kernel, orientation) in [
        (KernelName::Scalar, Orientation::Turned),
        (KernelName::Avx2, Orientation::Upright),
    ] {
        let mut scheduler = rechecked(Recheck::Millionths(0));
        let [mut first, second, mut third] = [1, 2, 3].map(Puppet::new);
        first.sync(&mut scheduler, 0);
        let grant = Grant {
            orientation: Orientation::Upright,
            ..first.held[0]
        };
        first.say(&mut scheduler, &grant, truth(grant.task));
        second.say(&mut scheduler, &grant, truth(grant.task) + 1);
        third.info.kernel = kernel;
        let asked = third.sync(&mut scheduler, 0).grants;
        let asked = asked.iter().find(|asked| asked.task == grant.task);
        assert_eq!(asked.unwrap().orientation, orientation, "{kernel:?}");
    }
}
