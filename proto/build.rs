//! Compiles the `.proto` files without `protoc`.

use std::{env, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "queens/v1/work_queue.proto",
        "queens/v1/runs.proto",
        "queens/v1/tokens.proto",
    ];
    println!("cargo::rerun-if-changed=queens");
    let descriptors = protox::Compiler::new(["."])?
        .include_source_info(true)
        .include_imports(true)
        .open_files(files)?
        .file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(
        out.join("queens.v1.bin"),
        prost::Message::encode_to_vec(&descriptors),
    )?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
