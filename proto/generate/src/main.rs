//! The generator of `src/generated` in crate `proto` from the `.proto` files.
//! With `--check`, it only checks that the generated files are current. It needs no `protoc`.

use std::{env, fs, path::Path, process::ExitCode};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

/// The `.proto` files, relative to crate `proto`, in the order of hashing.
const FILES: [&str; 4] = [
    "queens/v1/types.proto",
    "queens/v1/work_queue.proto",
    "queens/v1/runs.proto",
    "queens/v1/tokens.proto",
];

/// What decides about the output besides them, hashed after them.
const GENERATOR: [&str; 2] = ["generate/src/main.rs", "generate/Cargo.lock"];

fn main() -> anyhow::Result<ExitCode> {
    let check = match env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => anyhow::bail!("invalid argument '{other}': give --check or no argument"),
    };
    let proto =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("this crate has no parent folder")?;
    let (out, scratch) = (proto.join("src/generated"), env::temp_dir());
    let scratch = scratch.join(format!("queens-generate-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let compiled = compile(proto, &scratch);
    fs::remove_dir_all(&scratch)?;
    for (name, bytes) in compiled? {
        let path = out.join(name);
        if !check {
            fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        } else if fs::read(&path).ok().as_ref() != Some(&bytes) {
            eprintln!(
                "{}: out of date with the .proto files; run: cargo run --manifest-path proto/generate/Cargo.toml",
                path.display()
            );
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the names and contents of the generated files.
fn compile(proto: &Path, scratch: &Path) -> anyhow::Result<[(&'static str, Vec<u8>); 3]> {
    let descriptors = protox::Compiler::new([proto])?
        .include_source_info(true)
        .include_imports(true)
        .open_files(FILES.map(|file| proto.join(file)))?
        .file_descriptor_set();
    let encoded = prost::Message::encode_to_vec(&descriptors);
    tonic_prost_build::configure().out_dir(scratch).compile_fds(descriptors)?;
    let code = fs::read(scratch.join("queens.v1.rs"))?;
    let mut sources = Sha256::new();
    for file in FILES.iter().chain(&GENERATOR) {
        sources.update(fs::read(proto.join(file))?);
    }
    sources.update(&code);
    sources.update(&encoded);
    let hash: String = sources.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Ok([
        ("queens.v1.rs", code),
        ("queens.v1.bin", encoded),
        ("sources.sha256", format!("{hash}\n").into_bytes()),
    ])
}
