//! `queensctl certify` and `queensctl audit`.

use std::{
    fs,
    num::NonZeroU16,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use common::choice::KernelChoice;
use worker::{config::Threads, memory::MemorySize};

use super::{output::print, verify::unreadable};
use coordinator::{
    certify::{self, AuditOptions as How, Certificate, CertifyError, Finding, Outcome, Part},
    exit::Exit,
    name::RunName,
    store::{self, VerifyError},
    text::{labelled, plural, tell, thousands},
};

/// Options of `certify`.
#[derive(Clone, Debug, Args)]
pub(super) struct CertifyOptions {
    /// The data directory
    dir: PathBuf,

    /// The run: the first digits of its name, or last
    #[arg(long, value_name = "RUN", default_value = "last")]
    run: RunName,

    /// Where to write the certificate; the counts go into the file of the same name with .counts
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Options of `audit`.
#[derive(Clone, Debug, Args)]
pub(super) struct AuditOptions {
    /// The certificate; its counts are in the file of the same name with .counts
    file: PathBuf,

    /// How many counts to make again
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    tasks: u64,

    /// By what those are drawn: the same seed draws the same [default: drawn by lot]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,

    /// The key that the coordinator printed: another one's certificate is refused
    #[arg(long, value_name = "HEX", value_parser = key)]
    key: Option<String>,

    /// Threads that count [default: all cores]
    #[arg(long, value_name = "T")]
    threads: Option<Threads>,

    /// Memory that counting may use, such as 8GiB [default: 80 % of what is free]
    #[arg(long, value_name = "BYTES")]
    memory: Option<MemorySize>,

    /// Kernel that counts: auto, scalar, avx2, avx512 or neon
    #[arg(long, value_name = "KERNEL", default_value = "auto")]
    kernel: KernelChoice,
}

pub(super) fn certify(options: &CertifyOptions) -> anyhow::Result<Exit> {
    let runs = store::runs_in(&options.dir).map_err(unreadable)?;
    let run = options.run.among(&runs)?;
    let certified = match certify::certify(&options.dir, run) {
        Ok(certified) => certified,
        Err(CertifyError::Verify(flawed @ VerifyError::Flawed(_))) => {
            tell(&format!("error: {flawed}"));
            return Ok(Exit::Contradicted);
        }
        Err(CertifyError::Verify(other)) => return Err(unreadable(other)),
        Err(partial @ CertifyError::Partial { .. }) => return Err(partial.into()),
    };
    let counts = counts_of(&options.out);
    write(&counts, &certified.counts)?;
    write(&options.out, certified.text.as_bytes())?;
    let certificate = &certified.certificate;
    print(&format!(
        "certificate of run {run}: N = {}, {} solutions, {}, in {} and {}\nsigned by key {}",
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
    let kernel = match options.kernel.kernel() {
        Ok(kernel) => kernel,
        Err(missing) => {
            tell(&format!("error: {missing}"));
            return Ok(Exit::Usage);
        }
    };
    let threads = options.threads.unwrap_or_else(Threads::of_this_machine);
    let memory = options.memory.unwrap_or_else(MemorySize::of_this_machine);
    let how = How {
        tasks: options.tasks,
        seed: options.seed.unwrap_or_else(rand::random),
        key: options.key.clone(),
        kernel,
        threads: u16::try_from(threads.get())
            .ok()
            .and_then(NonZeroU16::new)
            .ok_or_else(|| anyhow!("{threads} threads are too many"))?,
        memory_bytes: memory.bytes(),
    };
    let text = fs::read_to_string(&options.file).with_context(|| {
        format!(
            "cannot read {}: give a certificate that `queensctl certify` wrote",
            options.file.display()
        )
    })?;
    let beside = counts_of(&options.file);
    let counts = match (fs::read(&beside), Certificate::read(&text)) {
        (Ok(counts), _) => counts,
        // Nobody needs to look for the counts of what is no certificate.
        (Err(_), Err(_)) => Vec::new(),
        (Err(error), Ok(_)) => {
            return Err(error).with_context(|| {
                format!(
                    "cannot read {}: a certificate's counts lie beside it, give both",
                    beside.display()
                )
            });
        }
    };
    let mut printed = Ok(());
    let outcome = certify::audit((&text, &counts), &how, &mut |part| {
        if printed.is_ok() {
            printed = print(&match part {
                Part::Signed(certificate) => stated(certificate),
                Part::Found(finding) => found(finding),
            });
        }
    })
    .with_context(|| format!("{}", options.file.display()));
    printed?;
    match outcome {
        Ok(Outcome::Passed | Outcome::NotPossible) => Ok(Exit::Success),
        Ok(Outcome::Failed) => Ok(Exit::Contradicted),
        Err(error) => {
            tell(&format!("error: {}", coordinator::text::one_line(&error)));
            Ok(Exit::Contradicted)
        }
    }
}

/// What a certificate says of itself and of its result.
fn stated(certificate: &Certificate) -> String {
    let of = format!(
        "N = {}, layout {}, {} solutions, run {}, {} by {}",
        certificate.n,
        certificate.layout,
        thousands(certificate.solutions.parse().unwrap_or_default()),
        certificate.run,
        plural(certificate.counts, "count"),
        plural(certificate.workers.len(), "worker"),
    );
    let checks = certificate.checks.iter().map(|check| {
        let outcome = match check.outcome.as_str() {
            "not_possible" => "not possible",
            other => other,
        };
        let text = format!("{} {outcome}: {}", check.name, check.reason);
        labelled("stated", &text)
    });
    let lines: Vec<_> = std::iter::once(labelled("of", &of)).chain(checks).collect();
    lines.join("\n")
}

fn found(finding: &Finding) -> String {
    let outcome = match finding.outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "FAILED",
        Outcome::NotPossible => "not possible",
    };
    labelled(finding.name, &format!("{outcome}: {}", finding.text))
}

fn counts_of(certificate: &Path) -> PathBuf {
    let mut name = certificate.as_os_str().to_owned();
    name.push(".counts");
    name.into()
}

/// Whole or not at all: half a certificate over a good one would be a loss.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // It may not be there, which is as good.
        let _ = fs::remove_file(&part);
    }
    written.with_context(|| {
        format!(
            "cannot write {}; give a place that can be written and has room with --out",
            path.display()
        )
    })
}

/// A public key as the coordinator prints it.
fn key(text: &str) -> Result<String, String> {
    let digits = text.len() == 64 && text.chars().all(|digit| digit.is_ascii_hexdigit());
    match digits {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("a key has 64 hexadecimal digits, as the coordinator prints it".to_owned()),
    }
}
