//! What is kept in two places is compared: each kind of error in the books is named.

use super::{
    super::worker::{Lease, Purpose},
    *,
};

/// Books with something of everything.
struct Books {
    scheduler: Scheduler,
    /// A task that one worker alone holds and has begun.
    alone: TaskIx,
    /// One that nobody has had yet.
    pending: TaskIx,
    /// One that is counted, of which nothing more is wanted.
    done: TaskIx,
    /// One whose second count is under way.
    second: TaskIx,
    /// One that somebody is asked to decide.
    contested: TaskIx,
}

/// The numbers of the two workers in [`Books`], and of a third that holds nothing and called before the second.
const FIRST: WorkerIx = 0;
const SECOND: WorkerIx = 2;
const THIRD: WorkerIx = 1;

fn index(grant: &Grant) -> TaskIx {
    run::index(grant.task.task)
}

fn books() -> Books {
    let mut scheduler = rechecked(Recheck::All);
    let [mut first, mut second, third] = [1, 2, 3].map(Puppet::new);
    first.info.threads = 4;
    first.sync(&mut scheduler, 0);
    let counted: Vec<_> = first.held.drain(..5).collect();
    for grant in &counted {
        first.say(&mut scheduler, grant, truth(grant.task));
    }
    // One of them is contested, and one confirmed; the second worker is given the others, and decides.
    third.say(&mut scheduler, &counted[0], truth(counted[0].task) + 1);
    third.say(&mut scheduler, &counted[1], truth(counted[1].task));
    second.sync(&mut scheduler, 0);
    let given = |grant: &&Grant| counted[2..].iter().any(|one| one.task == grant.task);
    let asked = *second.held.iter().find(given).unwrap();
    assert!(second.held.iter().any(|one| one.task == counted[0].task));
    // What is under way has got on, in two tasks.
    let request = SyncRequest {
        held: first
            .held
            .iter()
            .map(|grant| HeldLease {
                task: grant.task,
                epoch: grant.epoch,
                cost_done: 1,
                started: true,
            })
            .collect(),
        seconds_wanted: 0.0,
        ..first.request()
    };
    assert!(request.held.len() > 2);
    scheduler.sync(&request, Millis(0));
    scheduler.audit().unwrap();
    let pending = scheduler.runs[0].upcoming().last().unwrap();
    Books {
        alone: index(&first.held[0]),
        pending,
        done: index(&counted[1]),
        second: index(&asked),
        contested: index(&counted[0]),
        scheduler,
    }
}

/// The lease of a worker.
fn lease_of(scheduler: &mut Scheduler, worker: WorkerIx, task: TaskIx) -> &mut Lease {
    let leases = &mut scheduler.workers.get_mut(worker).leases;
    leases.get_mut(&(0, task)).unwrap()
}

/// It is no longer known as one that a single worker holds.
fn unindex(scheduler: &mut Scheduler, task: TaskIx) {
    let lease = lease_of(scheduler, FIRST, task);
    let since = (lease.granted, lease.started);
    scheduler.runs[0].unindex_alone(task, since);
}

/// Another worker has the first one's lease too.
fn copy(scheduler: &mut Scheduler, task: TaskIx, to: WorkerIx) {
    let lease = Lease {
        cost_done: 0,
        ..lease_of(scheduler, FIRST, task).clone()
    };
    let known = scheduler.workers.get_mut(to);
    known.leases.insert((0, task), lease);
    scheduler.runs[0].add_holder(task, to);
}

/// What the audit says once the books were changed.
fn audited(change: impl FnOnce(&mut Books)) -> String {
    let mut books = books();
    change(&mut books);
    match books.scheduler.audit() {
        Ok(()) => "all is well".to_owned(),
        Err(imbalance) => imbalance.to_string(),
    }
}

#[test]
fn workers_without_a_deadline_or_with_too_many_leases_are_named() {
    let said = audited(|books| books.scheduler.workers.get_mut(FIRST).deadline = None);
    assert_eq!(said, "worker 0 holds leases without a deadline");
    let said = audited(|books| books.scheduler.workers.get_mut(THIRD).deadline = None);
    assert_eq!(said, "all is well", "it holds none");
    let most = |books: &Books, worker| books.scheduler.workers.get(worker).leases.len();
    let held = most(&books(), FIRST).max(most(&books(), SECOND));
    let said = audited(|books| books.scheduler.config.leases_per_worker = held);
    assert_eq!(said, "all is well");
    let said = audited(|books| books.scheduler.config.leases_per_worker = held - 1);
    assert!(said.ends_with("holds too many leases"), "{said}");
    let said = audited(|books| books.scheduler.workers.get_mut(FIRST).info.threads += 1);
    assert_eq!(said, "live threads: 6 kept, 7 counted");
}

#[test]
fn leases_that_are_not_the_runs_are_named() {
    let said = audited(|books| books.scheduler.runs[0].park(books.alone, 0));
    assert_eq!(said, "stage of a leased task: Parked kept, Leased counted");
    let of = |books: &Books| format!("task {} is leased under no epoch of its own", books.alone);
    for epoch in [0, 2] {
        let said = audited(|books| {
            lease_of(&mut books.scheduler, FIRST, books.alone).epoch = epoch;
        });
        assert_eq!(said, of(&books()), "epoch {epoch}");
    }
    let said = audited(|books| books.scheduler.runs[0].progress(0, 5));
    let done = books().scheduler.runs[0].cost_under_way();
    let kept = done + 5;
    assert_eq!(said, format!("cost under way: {kept} kept, {done} counted"));
    let said = audited(|books| unindex(&mut books.scheduler, books.alone));
    assert!(said.starts_with("tasks held by one worker: "), "{said}");
}

#[test]
fn holders_that_hold_nothing_or_too_many_are_named() {
    let held = books().scheduler.runs[0].held().len();
    let said = audited(|books| books.scheduler.runs[0].add_holder(books.done, THIRD));
    let more = held + 1;
    assert_eq!(said, format!("leased tasks: {more} kept, {held} counted"));
    let said = audited(|books| {
        unindex(&mut books.scheduler, books.alone);
        books.scheduler.runs[0].add_holder(books.alone, THIRD);
    });
    assert_eq!(said, "holders: {0, 1} kept, {0} counted");
    let many = format!(
        "task {} is held by too many, or twice by one",
        books().alone
    );
    let said = audited(|books| {
        unindex(&mut books.scheduler, books.alone);
        books.scheduler.runs[0].add_holder(books.alone, FIRST);
    });
    assert_eq!(said, many);
    for (copies, expected) in [
        (&[SECOND][..], "all is well"),
        (&[SECOND, THIRD], many.as_str()),
    ] {
        let said = audited(|books| {
            unindex(&mut books.scheduler, books.alone);
            for &to in copies {
                copy(&mut books.scheduler, books.alone, to);
            }
        });
        assert_eq!(said, expected);
    }
}

#[test]
fn tasks_that_are_not_where_their_stage_wants_them_are_named() {
    let said = |change: fn(&mut Books)| audited(change);
    let of = |task: TaskIx, how: &str| format!("task {task} {how}");
    let plain = books();
    assert_eq!(
        said(|books| books.scheduler.runs[0].contest(books.pending)),
        of(plain.pending, "is not quarantined")
    );
    assert_eq!(
        said(|books| books.scheduler.runs[0].contest(books.contested)),
        "holders of a contested task: true kept, false counted"
    );
    assert_eq!(
        said(|books| {
            let again = (1, Purpose::Recheck);
            books.scheduler.runs[0].begin(books.done, again, 0);
        }),
        of(plain.done, "is rechecked by nobody")
    );
    assert_eq!(
        said(|books| books.scheduler.runs[0].add_holder(books.pending, THIRD)),
        of(plain.pending, "is pending, and held or lost")
    );
    assert_eq!(
        said(|books| books.scheduler.runs[0].drop_holder(books.alone, FIRST, 0)),
        of(plain.alone, "is leased, and nobody holds it")
    );
    assert_eq!(
        said(|books| books.scheduler.runs[0].drop_holder(books.contested, SECOND, 0)),
        of(plain.contested, "is contested, and nobody decides it")
    );
    let said = said(|books| books.scheduler.runs[0].drop_holder(books.second, SECOND, 0));
    assert!(said.starts_with("tasks held by one worker: "), "{said}");
}
