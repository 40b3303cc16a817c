//! Faults that were fixed, as patches that plant them again (`planted/ID.patch`). `scripts/planted.sh` shows whether the fuzzer finds one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tables::rows;

/// Each severe finding, and `patch` or a reason.
const FAULTS: &str = include_str!("planted/faults.tsv");

fn patches() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/planted");
    let files = std::fs::read_dir(folder).expect("the folder of patches");
    let files = files.map(|file| file.expect("a file").path());
    files.filter(|path| path.extension().is_some_and(|end| end == "patch")).collect()
}

#[test]
fn planted_faults_have_a_row_and_apply_to_the_code() {
    let is_planted = |how: &str| how == "patch" || how.starts_with("patch; not found: ");
    let planted = rows::<2>(FAULTS).into_iter().filter(|[_, how]| is_planted(how));
    let planted: BTreeSet<String> = planted.map(|[id, _]| id.to_owned()).collect();
    let patches = patches();
    let id = |path: &PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    assert_eq!(patches.iter().filter_map(id).collect::<BTreeSet<_>>(), planted);
    for patch in patches {
        let mut git = Command::new("git");
        git.arg("apply").arg("--check").arg(&patch).current_dir(env!("CARGO_MANIFEST_DIR"));
        let output = git.output().expect("git runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} no longer applies; regenerate it: {stderr}", patch.display());
    }
}
