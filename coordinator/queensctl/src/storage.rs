//! Offline commands about data directories, databases and certificates:
//! `verify`, `copy`, `restore`, `certify` and `audit`.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use cli::{
    exit::{BadUsage, Exit},
    memory::MemorySize,
    threads::Threads,
};
use common::{choice::KernelChoice, text::Escaped};
use proto::connect::file_of;
use scheduler::{
    checks::{Check, CheckOutcome},
    ledger::Principal,
};
use store::{
    self, Examined, RunManifest, RunState, StoreError, StoreUrl, VerifyError, VerifyReport,
    certify::{
        self, AuditError, AuditOptions as How, BadCertificate, Certificate, CertifyError, Part,
        Share,
    },
};
use view::{
    RunSelector, SelectableRun,
    text::{check_outcome, check_text, eprint_line, labeled, one_line, plural, thousands},
};

use super::output::{Bar, print};

/// A data directory or a database.
#[derive(Clone, Debug)]
enum StorageLocation {
    Directory(PathBuf),
    /// A URL, or the file that contains it.
    Database(StoreUrl),
}

impl From<OsString> for StorageLocation {
    fn from(given: OsString) -> Self {
        let is_url = given.to_str().is_some_and(StoreUrl::is_url);
        let path = PathBuf::from(given);
        // A folder may have a name such as `@home`.
        match is_url || file_of(path.as_os_str()).is_some() && !path.is_dir() {
            true => Self::Database(path.into_os_string().into()),
            false => Self::Directory(path),
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(super) struct VerifyOptions {
    /// The coordinator's data directory, or the database of its --store
    #[arg(value_name = "DIR|URL|@FILE")]
    location: StorageLocation,
}

pub(super) fn verify(options: &VerifyOptions) -> anyhow::Result<Exit> {
    let bar = Bar::start("lines", true);
    let mut watch = |Examined { lines, part }| bar.show(lines, part);
    let verified = match &options.location {
        StorageLocation::Directory(dir) => store::verify_watched(dir, &mut watch),
        StorageLocation::Database(url) => {
            let secret = url.reveal(std::env::args_os())?;
            store::run_off_runtime(|| store::verify_database(&secret, &mut watch))
        }
    };
    drop(bar);
    report(verified)
}

/// Prints the result of a verification.
fn report(verified: Result<VerifyReport, VerifyError>) -> anyhow::Result<Exit> {
    match verified {
        Ok(report) => {
            print(&report.to_string())?;
            let is_wrong = |state| matches!(state, RunState::Disputed | RunState::Contradicted);
            Ok(match report.runs.iter().any(|run| is_wrong(run.state)) {
                true => Exit::Contradicted,
                false => Exit::Success,
            })
        }
        Err(flawed @ VerifyError::Flawed(_)) => {
            eprint_line(&format!("error: {flawed}"));
            Ok(Exit::Contradicted)
        }
        Err(other) => Err(unreadable(other)),
    }
}

/// Replaces the store's errors on reading a directory: their advice is for writers.
fn unreadable(error: VerifyError) -> anyhow::Error {
    match error {
        VerifyError::NotOurs(dir) => not_ours(&dir, "it has no format.json"),
        VerifyError::Unreadable(StoreError::ForeignDirectory { dir, found }) => {
            not_ours(&dir, &format!("it holds '{found}'"))
        }
        VerifyError::Unreadable(StoreError::Io { path, source, .. }) => {
            anyhow!("cannot read {}: {source}; check the path and its permissions", path.display())
        }
        VerifyError::Unreadable(StoreError::FormatVersion { dir, found, ours }) => anyhow!(
            "{} has the unsupported format {found} (this version supports {ours}): use the queensctl of \
             the release that created it",
            dir.display()
        ),
        other => other.into(),
    }
}

fn not_ours(dir: &Path, why: &str) -> anyhow::Error {
    anyhow!(
        "{} is not a coordinator's data directory: {why}; give the one that the coordinator prints at \
         its start",
        dir.display()
    )
}

#[derive(Clone, Debug, Args)]
pub(super) struct CopyOptions {
    /// The source: a data directory or a database
    #[arg(value_name = "DIR|URL|@FILE")]
    from: StorageLocation,

    /// The destination: an empty or new directory, or an empty database
    #[arg(value_name = "URL|@FILE|DIR")]
    to: StorageLocation,
}

pub(super) fn copy(options: &CopyOptions) -> anyhow::Result<Exit> {
    print(&format!(
        "copied {} with keys, tokens and secrets; serve them from one location only",
        plural(copy_runs(options)?, "run")
    ))?;
    Ok(Exit::Success)
}

fn copy_runs(CopyOptions { from, to }: &CopyOptions) -> anyhow::Result<usize> {
    use StorageLocation::{Database, Directory};
    match (from, to) {
        (Directory(dir), Database(url)) | (Database(url), Directory(dir)) => {
            let secret = url.reveal(std::env::args_os())?;
            let mut told = None;
            let waits = &mut |seen: &store::Observed| {
                if told.replace(seen.leader.clone()).as_ref() != Some(&seen.leader) {
                    eprint_line(&format!(
                        "waiting: {} is the leader of the database; stop its coordinators (Ctrl-C cancels)",
                        seen.leader.name
                    ));
                }
            };
            let copied = store::run_off_runtime(|| match from {
                Directory(_) => store::copy_to_database(dir, &secret, waits),
                Database(_) => store::copy_to_directory(&secret, dir, waits),
            });
            Ok(copied?)
        }
        (Directory(from), Directory(_)) if !from.is_dir() => {
            bail!("cannot copy {}: there is no such directory", from.display())
        }
        (Directory(_), Directory(_)) => {
            bail!("both are directories: copy all files except db and lock, for example with tar")
        }
        (Database(_), Database(_)) => {
            bail!("both are databases: copy them with pg_dump --schema=queens and pg_restore")
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(super) struct RestoreOptions {
    /// The archive of the coordinator's --archive
    #[arg(value_name = "DIR|s3://BUCKET/PREFIX")]
    archive: store::ArchivePlace,

    /// The destination: an empty or new directory
    dir: PathBuf,
}

pub(super) fn restore(options: &RestoreOptions) -> anyhow::Result<Exit> {
    store::run_off_runtime(|| store::restore(&options.archive, &options.dir))?;
    report(store::verify(&options.dir))
}

#[derive(Clone, Debug, Args)]
pub(super) struct CertifyOptions {
    /// The data directory
    #[arg(value_name = "DIR")]
    location: StorageLocation,

    /// Run: at least four digits of its id, N=22 for the newest of that board, or last
    #[arg(long, value_name = "RUN", default_value = "last")]
    run: RunSelector,

    /// Make a personal certificate: with the counts of this contributor or token only (`queensctl credits`)
    #[arg(long, value_name = "NAME")]
    contributor: Option<String>,

    /// The file for the certificate; the counts go into the file of the same name with .counts
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub(super) struct AuditOptions {
    /// The certificate; its counts are in the file of the same name with .counts
    file: PathBuf,

    /// Number of tasks to recount
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    tasks: u64,

    /// Random seed for choosing the tasks [default: random]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,

    /// The key that the coordinator printed; certificates signed with any other key are rejected
    #[arg(long, value_name = "HEX", value_parser = key)]
    key: Option<String>,

    /// Counting threads [default: all CPUs]
    #[arg(long, value_name = "T")]
    threads: Option<Threads>,

    /// Memory limit for all threads together, such as 8GiB [default: 80 % of the free memory]
    #[arg(long, value_name = "BYTES")]
    memory: Option<MemorySize>,

    /// Kernel: auto, scalar, avx2, avx512 or neon
    #[arg(long, value_name = "KERNEL", default_value = "auto")]
    kernel: KernelChoice,
}

pub(super) fn certify(options: &CertifyOptions) -> anyhow::Result<Exit> {
    let StorageLocation::Directory(dir) = &options.location else {
        // Does not repeat a URL, which may contain a password.
        return Err(BadUsage::of(
            "a certificate is made of a data directory: copy the database first (`queensctl copy @FILE \
             DIR`), then certify DIR",
        )
        .into());
    };
    let runs = store::runs_in(dir).map_err(unreadable)?;
    let selectable = |run: &RunManifest| SelectableRun {
        created_unix_ms: run.created_unix_ms,
        run: run.run,
        n: run.spec.board.n().into(),
    };
    let run = options.run.among(&runs.iter().map(selectable).collect::<Vec<_>>())?;
    let certified = match certify::certify(dir, run, options.contributor.as_deref()) {
        Ok(certified) => certified,
        Err(CertifyError::Verify(flawed @ VerifyError::Flawed(_))) => {
            eprint_line(&format!("error: {flawed}"));
            return Ok(Exit::Contradicted);
        }
        Err(CertifyError::Verify(other)) => return Err(unreadable(other)),
        Err(refused @ (CertifyError::Partial { .. } | CertifyError::NoCounts { .. })) => {
            return Err(refused.into());
        }
    };
    let counts = counts_of(&options.out);
    write(&counts, &certified.counts)?;
    write(&options.out, certified.text.as_bytes())?;
    let certificate = &certified.certificate;
    let only = options.contributor.as_deref();
    let only = only.map_or_else(String::new, |name| format!(" (only those by {})", Escaped(name)));
    print(&format!(
        "certificate of run {run}: N = {}, {} solutions, {}{only}, in {} and {}\nsigned by key {}",
        certificate.n,
        thousands(certificate.solutions.parse().unwrap_or_default()),
        plural(certificate.counts, "count"),
        options.out.display(),
        counts.display(),
        certificate.public_key,
    ))?;
    Ok(Exit::Success)
}

pub(super) fn audit(options: &AuditOptions) -> anyhow::Result<Exit> {
    let kernel = options.kernel.kernel().map_err(BadUsage::of)?;
    let threads = options.threads.unwrap_or_else(Threads::of_this_machine);
    let memory = options.memory.unwrap_or_else(MemorySize::of_this_machine);
    let how = How {
        tasks: options.tasks,
        seed: options.seed.unwrap_or_else(rand::random),
        key: options.key.clone(),
        kernel,
        threads: threads.non_zero(),
        memory_bytes: memory.bytes(),
    };
    let text = fs::read_to_string(&options.file).with_context(|| {
        format!(
            "cannot read {}: give a certificate that `queensctl certify` wrote",
            options.file.display()
        )
    })?;
    let counts_path = counts_of(&options.file);
    let counts = match (fs::read(&counts_path), Certificate::read(&text)) {
        (Ok(counts), _) => counts,
        // The invalid certificate is reported instead.
        (Err(_), Err(_)) => Vec::new(),
        (Err(error), Ok(_)) => {
            return Err(error).with_context(|| {
                format!(
                    "cannot read {}: an audit needs the counts file next to the certificate",
                    counts_path.display()
                )
            });
        }
    };
    let mut printed = Ok(());
    let outcome = certify::audit((&text, &counts), &how, &mut |part| {
        if printed.is_ok() {
            printed = print(&match part {
                Part::Signed(certificate, known) => claims(certificate, known),
                Part::Found(check) => check_line(check),
            });
        }
    })
    .with_context(|| format!("{}", options.file.display()));
    printed?;
    match outcome {
        Ok(CheckOutcome::Passed | CheckOutcome::NotApplicable) => Ok(Exit::Success),
        Ok(CheckOutcome::NotPossible) => {
            eprint_line("error: the audit is incomplete: see 'not checked' above");
            Ok(Exit::Error)
        }
        Ok(CheckOutcome::Failed) => Ok(Exit::Contradicted),
        Err(error) => {
            eprint_line(&format!("error: {}", one_line(&error)));
            match error.downcast_ref() {
                // Not a certificate, or one of a later version: no fault was found.
                Some(AuditError::Certificate(
                    BadCertificate::Form(_) | BadCertificate::Format(_),
                )) => Ok(Exit::Error),
                _ => Ok(Exit::Contradicted),
            }
        }
    }
}

fn claims(certificate: &Certificate, signer_is_known: bool) -> String {
    let signer = (!signer_is_known).then(|| {
        labeled("signer", "UNKNOWN: the signature does not identify anyone without --key")
    });
    let is_worker = |share: &&Share| !Principal::from_stored(&share.principal).is_referee();
    let workers = certificate.workers.iter().filter(is_worker);
    let subject = format!(
        "N = {}, layout {}, {} solutions, run {}, {} by {}",
        certificate.n,
        Escaped(&certificate.layout),
        thousands(certificate.solutions.parse().unwrap_or_default()),
        Escaped(&certificate.run),
        plural(certificate.counts, "count"),
        plural(workers.count(), "worker"),
    );
    let checks = certificate.checks.iter().map(|check| {
        let text = check_text(&check.name, &check.outcome, &check.reason);
        labeled("claims", &Escaped(&text).to_string())
    });
    let subject = labeled("subject", &subject);
    let lines: Vec<_> = signer.into_iter().chain([subject]).chain(checks).collect();
    lines.join("\n")
}

fn check_line(check: &Check) -> String {
    labeled(check.name, &format!("{}: {}", check_outcome(check.outcome.name()), check.reason))
}

fn counts_of(certificate: &Path) -> PathBuf {
    let mut name = certificate.as_os_str().to_owned();
    name.push(".counts");
    name.into()
}

/// Replaces a file atomically: an earlier certificate survives a failure.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // The file may not exist.
        let _ = fs::remove_file(&part);
    }
    written.with_context(|| {
        format!(
            "cannot write {}; give a writable location with free space with --out",
            path.display()
        )
    })
}

/// Parses a public key as the coordinator prints it.
fn key(text: &str) -> Result<String, String> {
    let is_key = text.len() == 64 && text.chars().all(|digit| digit.is_ascii_hexdigit());
    match is_key {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("expected 64 hexadecimal digits, as the coordinator prints them".to_owned()),
    }
}
