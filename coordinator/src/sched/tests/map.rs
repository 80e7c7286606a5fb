//! Where each task stands, as people look at it.

use super::*;

/// A scheduler with tasks in every stage, and which they are: leased, done, confirmed, contested, parked.
fn in_every_stage() -> (Scheduler, Vec<Grant>) {
    let mut scheduler = rechecked(Recheck::Millionths(0));
    let mut worker = Puppet::new(1);
    worker.info.threads = 3;
    worker.sync(&mut scheduler, 0);
    let grants = worker.held.clone();
    let [_, done, confirmed, contested, parked, ..] = grants[..] else {
        panic!("{grants:?}");
    };
    for grant in [done, confirmed, contested] {
        worker.say(&mut scheduler, &grant, truth(grant.task));
    }
    let other = Puppet::new(2);
    other.say(&mut scheduler, &confirmed, truth(confirmed.task));
    other.say(&mut scheduler, &contested, truth(contested.task) + 1);
    let task = run::index(parked.task.task);
    scheduler.remove_all(0, task);
    scheduler.runs[0].note_failed(task, 0);
    scheduler.runs[0].park(task, 0);
    scheduler.audit().unwrap();
    (scheduler, grants)
}

fn view(scheduler: &Scheduler, grant: &Grant) -> TaskView {
    scheduler.task_view(RUN, grant.task.task).unwrap()
}

#[test]
fn every_task_stands_somewhere_and_cells_add_them_up() {
    let (scheduler, grants) = in_every_stage();
    let (plan, standings) = scheduler.standings(RUN).unwrap();
    assert_eq!(plan.hash(), TRUTH.plan.hash());
    assert_eq!(standings.len() as u64, plan.tasks());
    let at = |grant: &Grant| standings[usize::try_from(grant.task.task.0).unwrap()];
    let expected = [
        Standing::Leased,
        Standing::Done,
        Standing::Confirmed,
        Standing::Contested,
        Standing::Parked,
    ];
    for (grant, standing) in grants.iter().zip(expected) {
        assert_eq!(at(grant), standing);
    }
    assert!(standings.contains(&Standing::Waiting));
    let tasks = plan.tasks();
    for (wanted, cells) in [
        (0..tasks, tasks),
        (0..u64::MAX, 3),
        (2..7, 2),
        (2..7, 5),
        (3..4, 0),
        (tasks..u64::MAX, 4),
    ] {
        let map = scheduler.task_map(RUN, wanted.clone(), cells).unwrap();
        assert_eq!(map.tasks, wanted.start..wanted.end.min(tasks));
        assert!(map.cells.len() as u64 <= cells.max(1), "{map:?}");
        let mut told = map.tasks.clone();
        for cell in &map.cells {
            let mut sum = MapCell::default();
            for task in told.by_ref().take(usize::try_from(map.per_cell).unwrap()) {
                sum.add(standings[usize::try_from(task).unwrap()]);
            }
            assert_eq!(*cell, sum);
        }
        assert_eq!(told.next(), None, "all of them are in a cell");
    }
    let cells = scheduler.task_map(RUN, 0..tasks, 1).unwrap().cells;
    let [all] = cells[..] else {
        panic!("{cells:?}")
    };
    assert_eq!(
        (all.done, all.confirmed, all.parked, all.contested),
        (1, 1, 1, 1)
    );
    assert_eq!(
        u64::from(all.waiting + all.leased + all.done + all.confirmed + all.parked + all.contested),
        tasks
    );
    // As fine as they may be.
    assert_eq!(scheduler.task_map(RUN, 2..7, 2).unwrap().per_cell, 3);
    assert_eq!(scheduler.task_map(RunId(99), 0..1, 1), None);
    assert!(scheduler.standings(RunId(99)).is_none());
}

#[test]
fn a_task_tells_who_has_it_and_what_it_came_to() {
    let (scheduler, grants) = in_every_stage();
    let told = |grant: &Grant| {
        let TaskView {
            state,
            count,
            workers,
            failed,
            reports,
            ..
        } = view(&scheduler, grant);
        (state, count, workers, failed, reports)
    };
    let by = |name: &str| vec![name.to_owned()];
    let right = |at: usize| truth(grants[at].task);
    assert_eq!(
        told(&grants[0]),
        ("leased", None, by("worker-1"), 0, vec![])
    );
    assert_eq!(
        told(&grants[1]),
        ("done", Some(right(1)), by("worker-1"), 0, vec![])
    );
    assert_eq!(
        told(&grants[2]),
        ("confirmed", Some(right(2)), by("worker-1"), 0, vec![])
    );
    let reports = vec![right(3), right(3) + 1];
    assert_eq!(told(&grants[3]), ("contested", None, vec![], 0, reports));
    assert_eq!(told(&grants[4]), ("parked", None, vec![], 1, vec![]));
    let (_, standings) = scheduler.standings(RUN).unwrap();
    let waiting = standings
        .iter()
        .position(|standing| *standing == Standing::Waiting);
    let waiting = TaskId(waiting.unwrap() as u64);
    let seen = scheduler.task_view(RUN, waiting).unwrap();
    assert_eq!((seen.task, seen.state), (waiting, "waiting"));
    assert_eq!(seen.units, TRUTH.plan.task_units(waiting));
    assert_eq!(seen.cost, TRUTH.plan.task_cost(waiting));
    let beyond = TaskId(TRUTH.plan.tasks());
    assert_eq!(scheduler.task_view(RUN, beyond), None);
    assert_eq!(scheduler.task_view(RunId(99), waiting), None);
}

#[test]
fn whoever_counted_a_task_is_told_after_a_restart_too() {
    let (mut scheduler, grants) = in_every_stage();
    let second = restarted(&mut scheduler, Config::default());
    let seen = view(&second, &grants[1]);
    assert_eq!(seen.state, "done");
    // Its name comes with its next call.
    assert_eq!(seen.workers, ["worker 00000000"]);
}
