//! Generates the admin API's code from `proto/` with a compiler in Rust: no `protoc` is needed.
//!
//! Messages and clients come first. Servers are generated separately, over the same messages, with one exception:
//! the answers of `StreamEvents` are types that hold their encoding, so that an event is encoded once and not once per
//! reader (see `admin::events::encoded`).

use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message as _;
use prost_types::FileDescriptorSet;

type AnyError = Box<dyn std::error::Error>;

const PROTO: &str = "proto/coxswain/admin/v1";
const PACKAGE: &str = ".coxswain.admin.v1";
const MESSAGES: &str = "crate::admin::proto";

fn main() -> Result<(), AnyError> {
    println!("cargo:rerun-if-changed={PROTO}");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let mut files = Vec::new();
    for entry in fs::read_dir(PROTO)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    files.sort();

    let described = compile(&files)?;
    tonic_prost_build::configure()
        .build_server(false)
        .emit_rerun_if_changed(false)
        .out_dir(folder(&out, "messages")?)
        .compile_fds(described.clone())?;
    tonic_prost_build::configure()
        .build_client(false)
        .emit_rerun_if_changed(false)
        .extern_path(PACKAGE, MESSAGES)
        .extern_path(format!("{PACKAGE}.StreamEventsResponse"), "crate::admin::events::EncodedResponse")
        .out_dir(folder(&out, "servers")?)
        .compile_fds(described.clone())?;

    // Reflection tells what there is, not what it is for.
    let mut reflected = described;
    for file in &mut reflected.file {
        file.source_code_info = None;
    }
    fs::write(out.join("coxswain.admin.v1.bin"), reflected.encode_to_vec())?;
    Ok(())
}

/// Everything that the files define and import, with comments.
fn compile(files: &[PathBuf]) -> Result<FileDescriptorSet, AnyError> {
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(files)?;
    Ok(FileDescriptorSet::decode(compiler.encode_file_descriptor_set().as_slice())?)
}

fn folder(out: &Path, name: &str) -> Result<PathBuf, AnyError> {
    let folder = out.join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
