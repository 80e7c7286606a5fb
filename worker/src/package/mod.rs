//! Packages: tasks in a file, for machines that cannot reach the coordinator.
//!
//! [`checkout`] fetches the tasks, [`run`](Count::open) counts them without a network or a secret, and [`Submission`]
//! reports the results. The secret of the identity that holds the leases stays beside the package.

mod file;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    num::NonZeroU64,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use cli::date::moment;
use common::{
    compute::kernel::Kernel,
    messages::{
        run::{LeaseKey, Partial, RunId, SessionId},
        sync::{
            Acknowledgement, Grant, HeldLease, PackageRequest, SelfTestReport, SyncReply,
            SyncRequest, Verdict, WorkerInfo,
        },
    },
    plan::{Plan, PlanSpec},
    text::{plural, worker_name},
};
use proto::{
    CallId,
    connect::{CoordinatorEndpoint, WorkerSecret},
};
use tokio::task::spawn_blocking;

pub use self::file::Lines;
pub(crate) use self::file::round_trip_of_line;

use self::file::{Contents, Header, Line, Results, SelfTests};
use crate::{
    config::{Coordinator, InProcess, machine_number},
    link::transport::Transport,
    spool::{
        self, Identity,
        line::{SealedLine as _, SpoolLine},
    },
};

/// Reason why a package cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PackageError(String);

impl PackageError {
    fn at(path: &Path, problem: impl fmt::Display) -> Self {
        Self(format!("{}: {problem}", path.display()))
    }
}

/// The calls of a package are one session, however many processes make them.
const SESSION: SessionId = SessionId(1);

/// Number of attempts to tell the coordinator that a package is on disk.
const ATTEMPTS: u32 = 3;

/// Interval of updates of the progress file.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two calls of the engine, which also updates the progress.
const CALL_INTERVAL_MS: u64 = 1_000;

fn now_unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a path with a suffix: `lab.package` and `.secret`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn secret_file(package: &Path) -> PathBuf {
    beside(package, ".secret")
}

/// Returns the hash that identifies a coordinator; empty if its connection does not identify it.
fn fingerprint(coordinator: &CoordinatorEndpoint) -> String {
    match coordinator {
        CoordinatorEndpoint::Token(join) => join.ca().to_string(),
        CoordinatorEndpoint::Plain(_) | CoordinatorEndpoint::MutualTls(_) => String::new(),
    }
}

/// The calls of one package.
struct Client {
    transport: Transport,
    info: WorkerInfo,
}

impl Client {
    fn new(coordinator: CoordinatorEndpoint, identity: Identity, package: &Path) -> Self {
        let stem = package.file_stem().and_then(|stem| worker_name(stem.to_str()?).ok());
        let info = WorkerInfo {
            session: SESSION,
            name: stem.unwrap_or_else(|| "package".to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: Kernel::available()[0].name(),
            device: String::new(),
            threads: 1,
            memory_bytes_per_thread: 0,
            machine: machine_number(),
        };
        Self { transport: Transport::new(Coordinator::Remote(coordinator), identity), info }
    }

    fn request(&self, held: impl IntoIterator<Item = LeaseKey>) -> SyncRequest {
        let held = held.into_iter();
        SyncRequest {
            worker: self.info.clone(),
            held: held
                .map(|lease| HeldLease { lease, cost_done: 0, started: false, failed: false })
                .collect(),
            partials: Vec::new(),
            seconds_wanted: 0.0,
            draining: false,
            self_test: SelfTestReport::default(),
            paused: String::new(),
            package: None,
        }
    }

    async fn call(&self, request: SyncRequest) -> Result<SyncReply, PackageError> {
        let reply = self.transport.sync(CallId(rand::random()), request).await;
        let coordinator = &self.transport.coordinator;
        reply.map_err(|error| PackageError(format!("coordinator {coordinator} {error}")))
    }
}

/// A new package.
#[derive(Debug)]
pub struct CheckedOut {
    pub run: RunId,
    pub spec: PlanSpec,
    pub tasks: u64,
    /// Work, in seconds of one reference core.
    pub core_seconds: f64,
    pub return_unix_ms: u64,
    /// The limit of the coordinator that reduced the package; empty if none did.
    pub reason: String,
}

/// Fetches tasks into a new file.
///
/// The coordinator considers the package away once it has been told that the file is on disk. If that fails, the
/// tasks are soon given to others.
pub async fn checkout(
    coordinator: CoordinatorEndpoint,
    request: PackageRequest,
    path: &Path,
) -> Result<CheckedOut, PackageError> {
    for file in [path, &secret_file(path)] {
        if file.exists() {
            return Err(PackageError::at(file, "the file exists: give another name with -o"));
        }
    }
    let at = |error: io::Error| PackageError::at(path, error);
    let (identity, fingerprint) = (Identity::default(), fingerprint(&coordinator));
    let client = Client::new(coordinator, identity.clone(), path);
    let reply = client.call(SyncRequest { package: Some(request), ..client.request([]) }).await?;
    let secret = identity.secret().filter(|_| !reply.grants.is_empty());
    let Some(secret) = secret else { return Err(PackageError(reply.reason)) };
    let header = Header::of(secret.worker(), fingerprint, &reply.grants).expect("it has tasks");
    let plan = plan(&header)?;
    spool::identity::write(&secret_file(path), &secret).map_err(at)?;
    spool::replace(path, &file::package(&header, &reply.grants)).map_err(at)?;
    let leases = || reply.grants.iter().map(|grant| grant.lease);
    let mut named = client.call(client.request(leases())).await;
    for _ in 1..ATTEMPTS {
        if named.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            named = client.call(client.request(leases())).await;
        }
    }
    let why = match named {
        Ok(named) => named.revoked.into_iter().next().map(|gone| gone.reason),
        Err(error) => Some(error.0),
    };
    if let Some(why) = why {
        return Err(PackageError(format!(
            "{why}; {} may be counted, but its tasks are soon given to others",
            path.display()
        )));
    }
    let cost: u64 = leases().map(|lease| plan.task_cost(lease.task.task)).sum();
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    let core_seconds = cost as f64 / 1e6;
    Ok(CheckedOut {
        run: header.run,
        spec: *plan.spec(),
        tasks: reply.grants.len() as u64,
        core_seconds,
        return_unix_ms: header.return_unix_ms,
        reason: reply.reason,
    })
}

/// Makes the plan of a package, which must be the coordinator's.
fn plan(header: &Header) -> Result<Plan, PackageError> {
    let plan = header.spec().and_then(|spec| Plan::new(spec).ok());
    plan.filter(|plan| plan.hash() == header.plan).ok_or_else(|| {
        PackageError(format!(
            "this program does not make plan {} of the package: install the coordinator's release",
            header.plan
        ))
    })
}

/// A part of a package: every `of`-th task from the `number`-th on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    number: u64,
    of: NonZeroU64,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(number, of)| {
            let part = Self { number: number.parse().ok()?, of: of.parse().ok()? };
            (1..=part.of.get()).contains(&part.number).then_some(part)
        });
        parsed.ok_or_else(|| {
            format!("invalid part '{text}': expected I/M with I from 1 to M, such as 3/10")
        })
    }
}

/// Returns the default file for the results of a package.
pub fn results_file(package: &Path, part: Option<Part>) -> PathBuf {
    match part {
        None => package.with_extension("results"),
        Some(Part { number, of }) => package.with_extension(format!("{number}-of-{of}.results")),
    }
}

/// A package that is being counted: answers the calls of the engine from the file.
#[derive(Debug)]
pub struct Count {
    plan: Plan,
    grants: Vec<Grant>,
    counted: BTreeSet<LeaseKey>,
    /// Tasks that this process could not count; another machine may.
    failed: BTreeSet<LeaseKey>,
    results: Results,
    /// Self-tests of this process that are in the results.
    self_tests: SelfTests,
    progress: Option<(PathBuf, Option<Instant>)>,
}

impl Count {
    /// Opens a package, or a part of it, and its results, which may have been begun; unless `late`, the promised
    /// return must not have passed.
    pub fn open(
        package: &Path,
        part: Option<Part>,
        results: &Path,
        progress: Option<PathBuf>,
        late: bool,
    ) -> Result<Self, PackageError> {
        let Contents { header, grants, damaged, is_torn, .. } = Contents::read(package)?;
        // A crash may tear the last line of results, but a torn package is an incomplete copy.
        if is_torn || !damaged.is_empty() {
            return Err(PackageError::at(package, "it is damaged: copy it again"));
        }
        if header.return_unix_ms <= now_unix_ms() && !late {
            let due = moment(header.return_unix_ms);
            let problem = format!(
                "its promised return was {due}, so its tasks are given to others: check out a new one, or \
                 count it with --late"
            );
            return Err(PackageError::at(package, problem));
        }
        let Part { number, of } = part.unwrap_or(Part { number: 1, of: NonZeroU64::MIN });
        let in_part = |(_, position): &(Grant, u64)| *position % of == number - 1;
        let grants = grants.into_iter().zip(0..).filter(in_part).map(|(grant, _)| grant).collect();
        let (results, counted) = Results::open(results, &header)?;
        let mut count = Self {
            plan: plan(&header)?,
            grants,
            counted,
            failed: BTreeSet::new(),
            results,
            self_tests: SelfTests::default(),
            progress: progress.map(|path| (path, None)),
        };
        count.show_progress(&[]).map_err(|error| PackageError(error.to_string()))?;
        Ok(count)
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the number of tasks without a result, and of all tasks.
    pub fn numbers(&self) -> (usize, usize) {
        (self.remaining().count(), self.grants.len())
    }

    /// Returns whether this process has tried every task.
    pub fn has_tried_all(&self) -> bool {
        self.countable().next().is_none()
    }

    fn remaining(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(|grant| !self.counted.contains(&grant.lease))
    }

    fn countable(&self) -> impl Iterator<Item = &Grant> {
        self.remaining().filter(|grant| !self.failed.contains(&grant.lease))
    }

    fn cost(&self, lease: &LeaseKey) -> u64 {
        self.plan.task_cost(lease.task.task)
    }

    /// Returns the coordinator in this process that grants the tasks and takes the counts.
    pub fn coordinator(this: &Arc<Mutex<Self>>) -> Coordinator {
        let this = this.clone();
        Coordinator::InProcess(InProcess::new(move |request| {
            let this = this.clone();
            async move {
                let answer = move || {
                    let mut count = this.lock().unwrap_or_else(PoisonError::into_inner);
                    let answer = count.answer(&request);
                    answer.map_err(|error| PackageError::at(&count.results.path, error))
                };
                let answered = spawn_blocking(answer).await.ok()?;
                answered.inspect_err(|error| tracing::error!("{error}")).ok()
            }
        }))
    }

    fn answer(&mut self, request: &SyncRequest) -> io::Result<SyncReply> {
        let mut lines = Vec::new();
        let new = request.partials.iter().filter(|of| !self.counted.contains(&of.lease));
        new.for_each(|partial| SpoolLine::finished(partial).write(&mut lines));
        let SelfTestReport { failed_threads: failed, tests_passed: passed, .. } = request.self_test;
        let before = std::mem::replace(&mut self.self_tests, SelfTests { passed, failed });
        if self.self_tests != before {
            let (passed, failed) =
                (passed.saturating_sub(before.passed), failed.saturating_sub(before.failed));
            Line::SelfTest(SelfTests { passed, failed }).write(&mut lines);
        }
        if !lines.is_empty()
            && let Err(error) = self.results.append(&lines)
        {
            self.self_tests = before;
            return Err(error);
        }
        self.counted.extend(request.partials.iter().map(|partial| partial.lease));
        self.failed.extend(request.held.iter().filter(|of| of.failed).map(|of| of.lease));
        self.show_progress(&request.held)?;
        let accepted = |partial: &Partial| Acknowledgement {
            lease: partial.lease,
            verdict: Verdict::Accepted,
            reason: String::new(),
        };
        Ok(SyncReply {
            acknowledgements: request.partials.iter().map(accepted).collect(),
            grants: self.grant(request),
            next_sync_ms: CALL_INTERVAL_MS,
            lease_ms: u64::MAX,
            reason: "every task of the package is counted or in progress".to_owned(),
            all_runs_finished: self.countable().next().is_none(),
            self_test_stored: true,
            ..SyncReply::default()
        })
    }

    /// Returns the tasks that the engine requests and does not hold, at least one per thread.
    fn grant(&self, request: &SyncRequest) -> Vec<Grant> {
        if request.draining || request.seconds_wanted <= 0.0 {
            return Vec::new();
        }
        let held: BTreeSet<_> = request.held.iter().map(|held| held.lease).collect();
        let threads = request.worker.threads;
        let least = (threads as usize).saturating_sub(held.len());
        let mut cost = request.seconds_wanted * f64::from(threads) * 1e6;
        let mut granted = 0;
        let free = self.countable().filter(|grant| !held.contains(&grant.lease));
        let takes = |grant: &&Grant| {
            let is_wanted = cost > 0.0 || granted < least;
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let task = self.cost(&grant.lease) as f64;
            (cost, granted) = (cost - task, granted + 1);
            is_wanted
        };
        free.take_while(takes).copied().collect()
    }

    /// Writes the counted part of the cost, 0 to 1, into the progress file.
    fn show_progress(&mut self, held: &[HeldLease]) -> io::Result<()> {
        let done = self.grants.iter().filter(|grant| self.counted.contains(&grant.lease));
        let done =
            done.map(|grant| self.cost(&grant.lease)).chain(held.iter().map(|of| of.cost_done));
        let done = done.fold(0, u64::saturating_add);
        let all =
            self.grants.iter().map(|grant| self.cost(&grant.lease)).fold(0, u64::saturating_add);
        let is_last = self.remaining().next().is_none();
        let Some((path, written)) = &mut self.progress else { return Ok(()) };
        if !is_last && written.is_some_and(|at| at.elapsed() < PROGRESS_INTERVAL) {
            return Ok(());
        }
        *written = Some(Instant::now());
        #[expect(clippy::cast_precision_loss, reason = "for display")]
        let part = if is_last { 1.0 } else { done as f64 / all.max(1) as f64 };
        let new = beside(path, ".new");
        fs::write(&new, format!("{part:.6}\n"))?;
        fs::rename(&new, path)
    }
}

/// The answers to the results of one package.
#[derive(Debug, Default)]
pub struct Submitted {
    pub accepted: u64,
    pub duplicates: u64,
    pub conflicts: u64,
    /// Reasons for refusals, with the number of each.
    pub refused: BTreeMap<String, u64>,
    /// Number of other tasks of the package that it holds, and of those that it does not.
    pub others: (usize, usize),
}

/// The results of one package in some files.
#[derive(Debug)]
pub struct Submission {
    header: Header,
    partials: Vec<Partial>,
    self_tests: SelfTests,
    /// The files, and the numbers of their damaged lines.
    pub files: Vec<(PathBuf, Vec<usize>)>,
}

impl Submission {
    /// Reads files of results, and returns the submissions of their packages; errors name the unusable files.
    pub fn read(files: &[PathBuf]) -> (Vec<Self>, Vec<PackageError>) {
        let (mut all, mut unusable) = (Vec::<Self>::new(), Vec::new());
        for path in files {
            let Contents { header, partials, self_tests, damaged, .. } = match Contents::read(path)
            {
                Ok(contents) => contents,
                Err(error) => {
                    unusable.push(error);
                    continue;
                }
            };
            let known = all.iter().position(|of| of.header == header).unwrap_or_else(|| {
                let (partials, self_tests) = (Vec::new(), SelfTests::default());
                all.push(Self { header, partials, self_tests, files: Vec::new() });
                all.len() - 1
            });
            let known = &mut all[known];
            // The same file may be given twice.
            let new = partials.iter().filter(|of| !known.partials.contains(of));
            let new: Vec<_> = new.copied().collect();
            known.partials.extend(new);
            known.self_tests.passed = known.self_tests.passed.max(self_tests.passed);
            known.self_tests.failed = known.self_tests.failed.max(self_tests.failed);
            known.files.push((path.clone(), damaged));
        }
        (all, unusable)
    }

    /// Finds the package beside its results or in the current directory.
    fn package(&self) -> Result<PathBuf, PackageError> {
        let folder = |path: &Path| match path.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let folders = self.files.iter().map(|(path, _)| folder(path)).chain([PathBuf::from(".")]);
        for folder in folders.collect::<BTreeSet<_>>() {
            let entries =
                fs::read_dir(&folder).map_err(|error| PackageError::at(&folder, error))?;
            for path in entries.flatten().map(|entry| entry.path()) {
                let is_package = path.extension().is_some_and(|extension| extension == "package");
                if is_package && Contents::read(&path).is_ok_and(|of| of.header == self.header) {
                    return Ok(path);
                }
            }
        }
        Err(PackageError(format!(
            "{}: its package is neither beside it nor here: give it with --package",
            self.files[0].0.display()
        )))
    }

    /// Submits the results. Releases the other tasks of the package, unless `keep`.
    pub async fn submit(
        &self,
        coordinator: CoordinatorEndpoint,
        package: Option<&Path>,
        keep: bool,
    ) -> Result<Submitted, PackageError> {
        let path = package.map_or_else(|| self.package(), |path| Ok(path.to_owned()))?;
        let Contents { header, grants, .. } = Contents::read(&path)?;
        let refuse = |why: &str| PackageError::at(&self.files[0].0, why);
        if header != self.header {
            return Err(refuse(&format!("results of another package than {}", path.display())));
        }
        if header.coordinator != fingerprint(&coordinator) {
            return Err(refuse(
                "results for another coordinator: give the join string of that one",
            ));
        }
        let secret_file = secret_file(&path);
        let secret = fs::read_to_string(&secret_file).map_err(|error| {
            let why = "copy it from where the package was checked out";
            PackageError::at(&secret_file, format!("{error}: {why}"))
        })?;
        let secret: WorkerSecret =
            secret.trim_end().parse().map_err(|error| PackageError::at(&secret_file, error))?;
        if secret.worker() != header.id {
            return Err(PackageError::at(&secret_file, "the secret of another package"));
        }
        let client = Client::new(coordinator, Identity::fixed(secret), &path);
        self.submit_by(&client, &grants, keep).await
    }

    /// Submits the results to the coordinator of a client.
    async fn submit_by(
        &self,
        client: &Client,
        grants: &[Grant],
        keep: bool,
    ) -> Result<Submitted, PackageError> {
        let counted: BTreeSet<_> = self.partials.iter().map(|partial| partial.lease).collect();
        let missing = grants.iter().map(|grant| grant.lease).filter(|of| !counted.contains(of));
        let missing: Vec<_> = missing.collect();
        let self_test = SelfTestReport {
            failed_threads: self.self_tests.failed,
            // It is not known which results are from the thread that failed.
            suspect_window_ms: if self.self_tests.failed > 0 { u64::MAX } else { 0 },
            tests_passed: self.self_tests.passed,
        };
        let mut submitted = Submitted::default();
        let mut parts = self.partials.chunks(common::messages::limits::PARTIALS).peekable();
        let mut is_first = true;
        while is_first || parts.peek().is_some() {
            is_first = false;
            let partials = parts.next().unwrap_or_default().to_vec();
            let sent = partials.len();
            let later = parts.clone().flatten().map(|partial| partial.lease);
            let held = client.request(missing.iter().copied().chain(later));
            let request = SyncRequest { partials, draining: true, self_test, ..held };
            let reply = client.call(request).await?;
            if reply.acknowledgements.len() < sent {
                // It answers each result of a package that it admits.
                let (coordinator, why) = (&client.transport.coordinator, reply.reason);
                return Err(PackageError(format!(
                    "coordinator {coordinator} did not take the results: {why}"
                )));
            }
            let is_revoked = |of: &&LeaseKey| reply.revoked.iter().any(|gone| gone.lease == **of);
            let gone = missing.iter().filter(is_revoked).count();
            submitted.others = (missing.len() - gone, gone);
            submitted.add(reply);
        }
        if !keep && submitted.others.0 > 0 {
            client.call(SyncRequest { draining: true, ..client.request([]) }).await?;
        }
        Ok(submitted)
    }
}

impl Submitted {
    fn add(&mut self, reply: SyncReply) {
        for Acknowledgement { verdict, reason, .. } in reply.acknowledgements {
            match verdict {
                Verdict::Accepted => self.accepted += 1,
                Verdict::Duplicate => self.duplicates += 1,
                Verdict::Conflict => self.conflicts += 1,
                Verdict::Refused | Verdict::RefusedKeep => {
                    *self.refused.entry(reason).or_default() += 1;
                }
            }
        }
    }
}

impl fmt::Display for Submitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} accepted", plural(self.accepted, "result"))?;
        let refused = self.refused.values().sum();
        for (number, what) in
            [(self.duplicates, "known"), (self.conflicts, "in conflict"), (refused, "refused")]
        {
            if number > 0 {
                write!(f, ", {number} {what}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use common::messages::{run::WorkerId, sync::Revocation};

    use super::*;
    use crate::{
        engine::{Failure, JobOutcome, PoolCommand, WorkerEngine},
        testing::{acknowledge, grant, plan, quiet, result, sample_partial, settings},
    };

    /// Returns the header of a package of three tasks, and its tasks.
    fn package() -> (Header, Vec<Grant>) {
        let plan = plan(10);
        let grants: Vec<_> = (0..3).map(|task| grant(&plan, task)).collect();
        (Header::of(WorkerId(1), String::new(), &grants).unwrap(), grants)
    }

    fn open(path: &Path, bytes: &[u8]) -> Result<Count, PackageError> {
        fs::write(path, bytes).unwrap();
        Count::open(path, None, &results_file(path, None), None, true)
    }

    #[test]
    fn a_package_that_was_copied_in_part_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lab.package");
        let (header, grants) = package();
        let whole = file::package(&header, &grants);
        let start = file::package(&header, &[]).len();
        for end in [start + 1, whole.len() - 20, whole.len() - 1] {
            let error = open(&path, &whole[..end]).unwrap_err().to_string();
            assert!(error.contains("damaged: copy it again"), "{error}");
        }
        assert_eq!(open(&path, &whole).unwrap().numbers(), (3, 3));
    }

    #[tokio::test]
    async fn results_that_the_coordinator_does_not_answer_are_not_submitted() {
        let (header, grants) = package();
        let partial = |grant: &Grant| Partial { lease: grant.lease, ..sample_partial(0, 1) };
        let partials = grants[..2].iter().map(partial).collect();
        let (self_tests, files) = (SelfTests::default(), Vec::new());
        let submission = Submission { header, partials, self_tests, files };
        for is_admitted in [false, true] {
            let coordinator = InProcess::new(move |request: SyncRequest| async move {
                let mut reply = SyncReply { reason: "a limit".to_owned(), ..quiet() };
                if is_admitted {
                    let sent = request.partials.iter();
                    let answers = sent.map(|of| acknowledge(&of.lease, Verdict::Accepted));
                    reply.acknowledgements = answers.collect();
                }
                Some(reply)
            });
            let coordinator = Coordinator::InProcess(coordinator);
            let transport = Transport::new(coordinator, Identity::default());
            let client = Client { transport, info: WorkerInfo::default() };
            let submitted = submission.submit_by(&client, &grants, false).await;
            match is_admitted {
                true => assert_eq!(submitted.unwrap().to_string(), "2 results accepted"),
                false => assert!(submitted.unwrap_err().to_string().ends_with(": a limit")),
            }
        }
    }

    /// Counts the tasks of a package, except for those that fail; returns the tried ones.
    fn tried(count: &mut Count, fails: impl Fn(u64) -> bool) -> Vec<u64> {
        let plan = count.plan().clone();
        let mut now = Instant::now();
        let latest = now + Duration::from_secs(3_600);
        let mut engine = WorkerEngine::new(settings(Some(Vec::new())), now);
        engine.handle_self_test_passed();
        let mut tried = Vec::new();
        while engine.poll_end(now).is_none() {
            if engine.poll_spool(now).is_some() {
                engine.handle_spooled(true, now);
            } else if let Some(request) = engine.poll_call(now) {
                let reply = count.answer(&request).unwrap();
                assert_eq!(reply.revoked, Vec::<Revocation>::new());
                engine.handle_reply(reply, now);
            } else if let Some(command) = engine.poll_command() {
                match command {
                    PoolCommand::MakePlan(spec) => engine.handle_plan(spec, Ok(plan.clone()), now),
                    PoolCommand::Count(work) => {
                        let task = work.lease.task.task.0;
                        tried.push(task);
                        let outcome = match fails(task) {
                            true => JobOutcome::Failed(Failure::Overflow),
                            false => JobOutcome::Counted(4),
                        };
                        engine.handle_job_finished(result(&plan, task, outcome), now);
                    }
                    PoolCommand::Stop(_) => {}
                }
            } else {
                now = engine.poll_timeout(now).expect("it continues");
                assert!(now < latest, "it ends");
                engine.handle_timeout(now);
            }
        }
        tried.sort_unstable();
        tried
    }

    #[test]
    fn a_task_that_a_machine_cannot_count_is_tried_once_and_left_out() {
        let home = tempfile::tempdir().unwrap();
        let (header, grants) = package();
        let bytes = file::package(&header, &grants);
        for (name, first_failing, failing) in [("one", 2, 1), ("all", 0, 3)] {
            let path = home.path().join(format!("{name}.package"));
            let mut count = open(&path, &bytes).unwrap();
            assert_eq!(tried(&mut count, |task| task >= first_failing), [0, 1, 2]);
            assert_eq!((count.numbers(), count.has_tried_all()), ((failing, 3), true), "{name}");
        }
    }
}
