//! Knows of a build that leaves traces out, for `benches/tracing.rs` to compare with.

use std::env;

fn main() {
    println!("cargo:rustc-check-cfg=cfg(coxswain_untraced)");
    println!("cargo:rerun-if-env-changed=COXSWAIN_UNTRACED");
    if env::var_os("COXSWAIN_UNTRACED").is_some() {
        println!("cargo:rustc-cfg=coxswain_untraced");
    }
}
