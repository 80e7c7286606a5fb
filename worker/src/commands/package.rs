//! `worker checkout`, `worker run` and `worker submit`.

use std::{
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use cli::{
    date::moment,
    exit::Exit,
    terminal::{StatusBar, TerminalOptions, eprint_info, eprint_line},
    threads::{default_name, host_name},
};
use common::{
    messages::sync::PackageRequest,
    text::{core_time, plural},
};
use worker::package::{self, Count, Submission, results_file};

use super::{
    fail, finish,
    options::{Checkout, Run, Submit},
    print, serve,
};

pub(crate) async fn checkout(arguments: &Checkout) -> ExitCode {
    let Checkout { run, core_hours, tasks, expires, output, connection } = arguments;
    let coordinator = match connection.endpoint("worker") {
        Ok(coordinator) => coordinator,
        Err(error) => return fail(Exit::Usage, error),
    };
    let request = PackageRequest {
        run: run.clone(),
        away_ms: u64::try_from(expires.as_millis()).unwrap_or(u64::MAX),
        tasks: tasks.map_or(u32::MAX, Into::into),
        core_seconds: core_hours.map_or(f64::MAX, |hours| hours * 3_600.0),
    };
    let out = match package::checkout(coordinator, request, output).await {
        Ok(out) => out,
        Err(error) => return fail(Exit::Error, error),
    };
    if !out.reason.is_empty() {
        eprint_info(&out.reason);
    }
    finish(print(&format!(
        "{}: {} of run {} (N = {}), {}; promised return {}\n\
         Count it anywhere:  worker run {}\n\
         Then submit it:     worker submit {}",
        output.display(),
        plural(out.tasks, "task"),
        out.run,
        out.spec.board,
        core_time(out.core_seconds),
        moment(out.return_unix_ms),
        output.display(),
        results_file(output, None).display(),
    )))
}

pub(crate) async fn run(arguments: &Run, terminal: TerminalOptions) -> ExitCode {
    let Run { package, part, output, progress, late, engine } = arguments;
    let results = output.clone().unwrap_or_else(|| results_file(package, *part));
    let count = match Count::open(package, *part, &results, progress.clone(), *late) {
        Ok(count) => count,
        Err(error) => return fail(Exit::Error, error),
    };
    let plan = count.plan().clone();
    let (remaining, all) = count.numbers();
    let counted = format!("{}: {all} of {} counted", results.display(), plural(all as u64, "task"));
    if remaining == 0 {
        return finish(print(&counted));
    }
    let count = Arc::new(Mutex::new(count));
    let name = default_name(&host_name());
    let mut config = match engine.config(Count::coordinator(&count), name) {
        Ok(config) => config,
        Err(error) => return fail(Exit::Usage, error),
    };
    if let Err(error) = config.budget.crews(&plan) {
        return fail(Exit::Error, error);
    }
    serve::begin(engine, terminal);
    config.status_bar = StatusBar::message_only();
    let ended = serve::serve(config, engine.drain_after).await;
    let count = count.lock().unwrap_or_else(PoisonError::into_inner);
    let (remaining, _) = count.numbers();
    match ended {
        Err(error) => fail(Exit::Error, error),
        Ok(_) if remaining > 0 && count.has_tried_all() => fail(
            Exit::Error,
            format!(
                "{}: this machine could not count {} of {all}, see its log: repeat the command, here or on \
                 another machine",
                results.display(),
                plural(remaining as u64, "task")
            ),
        ),
        Ok(_) if remaining > 0 => {
            eprint_info(&format!(
                "{}: {} of {all} to count; the same command continues",
                results.display(),
                plural(remaining as u64, "task")
            ));
            Exit::Interrupted.into()
        }
        Ok(_) => finish(print(&counted)),
    }
}

pub(crate) async fn submit(arguments: &Submit) -> ExitCode {
    let Submit { results, package, keep, connection } = arguments;
    let coordinator = match connection.endpoint("worker") {
        Ok(coordinator) => coordinator,
        Err(error) => return fail(Exit::Usage, error),
    };
    let (submissions, unusable) = Submission::read(results);
    unusable.iter().for_each(|error| eprint_line(&format!("error: {error}")));
    let mut is_complete = unusable.is_empty();
    for submission in submissions {
        for (path, damaged) in &submission.files {
            for line in damaged {
                eprint_line(&format!("{}: line {line} is damaged and was skipped", path.display()));
            }
        }
        let names: Vec<_> =
            submission.files.iter().map(|(path, _)| path.display().to_string()).collect();
        let submitted = match submission
            .submit(coordinator.clone(), package.as_deref(), *keep)
            .await
        {
            Ok(submitted) => submitted,
            Err(error) => {
                eprint_line(&format!("error: {error}; nothing was lost, and it can be repeated"));
                is_complete = false;
                continue;
            }
        };
        for (reason, number) in &submitted.refused {
            eprint_line(&format!("error: {} refused: {reason}", plural(*number, "result")));
            is_complete = false;
        }
        let end = if *keep { "kept" } else { "released" };
        let others = match submitted.others {
            (1.., _) => format!("; {} {end}", plural(submitted.others.0 as u64, "other task")),
            (0, gone @ 1..) if *keep => {
                format!("; {} done or given to others", plural(gone as u64, "other task"))
            }
            (0, _) => String::new(),
        };
        if let Err(error) = print(&format!("{}: {submitted}{others}", names.join(", "))) {
            return finish(Err(error));
        }
    }
    if is_complete { Exit::Success.into() } else { Exit::Error.into() }
}
