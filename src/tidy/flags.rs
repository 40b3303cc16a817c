//! Flags: each that is said to do something is read by something.

use std::path::Path;

use coxswain_machinery::options::{FlagEffect, TABLE};

use super::{CRATES, sources};

/// Flags that nothing has to read, and why.
const READ_BY_NOBODY: &[(&str, &str)] = &[("leader-elect-resource-lock", "may be `leases` and nothing else")];

/// What a flag changes is for the tests of who reads it.
#[test]
fn each_flag_that_is_built_is_read() {
    // Parsing, checking and showing a flag is nothing that follows from it.
    let is_other = |path: &Path| {
        let path = path.to_string_lossy();
        path.contains("tests")
            || ["options/flags.rs", "options/configz.rs"].iter().any(|end| path.ends_with(end))
            || path.contains("options/validate")
    };
    let sources: Vec<_> = CRATES.into_iter().flat_map(sources).filter(|(path, _)| !is_other(path)).collect();
    for flag in TABLE {
        let name = flag.name();
        let field = format!(".{}", name.replace('-', "_"));
        let reads = |source: &str| {
            source.match_indices(&field).any(|(at, _)| {
                let next = source[at + field.len()..].chars().next();
                next.is_none_or(|next| !next.is_alphanumeric() && next != '_')
            })
        };
        let is_read = sources.iter().any(|(_, source)| reads(source));
        let is_exempt = READ_BY_NOBODY.iter().any(|(held, _)| *held == name);
        let is_built = flag.effect == FlagEffect::Built;
        assert!(!is_built || is_read != is_exempt, "--{name} is said to be built, and is read: {is_read}");
    }
}
