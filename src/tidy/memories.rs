//! Memories of a controller end with its instance, so that a restore of etcd ends them too. ADR 0088 lists all of them, with what a
//! restore makes of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{CONTROLLERS, MACHINERY, code, complain, sources};

const RECORD: &str = "docs/adr/0088-restore-ends-an-epoch.md";
/// Types and statics that outlive instances.
const RUNTIME: &str = "crates/machinery/src/framework/instance.rs";
/// Types that hold values that change.
const HOLDERS: &[&str] =
    &["Mutex<", "RwLock<", "Atomic", "OnceLock<", "OnceCell<", "RefCell<", " Cell<", "ArcSwap<"];
/// Modules of the machinery of which each instance has its own.
const OF_INSTANCES: &[&str] = &["executor", "framework", "queue"];

fn is_for_tests(path: &Path) -> bool {
    let is_rig = path.ends_with("framework/rig.rs");
    is_rig || path.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs")))
}

fn is_static(line: &str) -> bool {
    let line = line.trim_start();
    let item =
        line.strip_prefix("pub").map_or(line, |rest| rest.split_once(' ').map_or(rest, |(_, item)| item));
    item.starts_with("static ")
}

/// Returns the values that change and outlive an instance.
fn outliving(text: &str) -> Vec<usize> {
    let is_memory = |line: &str| {
        line.contains("thread_local!")
            || (is_static(line) && HOLDERS.iter().any(|holder| line.contains(holder)))
    };
    code(text).filter(|(_, line)| is_memory(line)).map(|(at, _)| at + 1).collect()
}

/// Returns whether a source holds something between reconciles. Metrics count what happened, which stays true.
fn remembers(path: &Path, text: &str) -> bool {
    let is_metrics = path.starts_with(root().join(CONTROLLERS)) && path.ends_with("metrics.rs");
    let holds = |(_, line): (usize, &str)| line.contains("Mutex<") || line.contains("RwLock<");
    !is_metrics && code(text).any(holds)
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn named(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Returns the names of the fields of `Runtime`.
fn fields(text: &str) -> BTreeSet<String> {
    let body = text.split_once("pub struct Runtime {").expect("the runtime").1;
    let lines = body.lines().take_while(|line| *line != "}");
    let field = |line: &str| Some(line.trim().strip_prefix("pub ")?.split_once(':')?.0.to_owned());
    lines.filter_map(field).collect()
}

#[test]
fn nothing_outlives_an_instance_unless_the_record_of_restores_names_it() {
    let record = fs::read_to_string(root().join(RECORD)).expect("the record");
    let framework: Vec<_> =
        OF_INSTANCES.iter().flat_map(|module| sources(&format!("{MACHINERY}/{module}"))).collect();
    let mut complaints = Vec::new();
    for (path, text) in sources(CONTROLLERS).iter().chain(&framework) {
        if !is_for_tests(path) {
            let at =
                outliving(text).into_iter().map(|line| format!("{}:{line}: outlives a restore", named(path)));
            complaints.extend(at);
        }
    }
    let listed = sources(&format!("{MACHINERY}/framework"));
    for (path, text) in sources(CONTROLLERS).iter().chain(&listed) {
        if !is_for_tests(path) && remembers(path, text) && !record.contains(&format!("| `{}` |", named(path)))
        {
            complaints.push(format!("{}: {RECORD} does not say what a restore makes of it", named(path)));
        }
    }
    let runtime = fs::read_to_string(root().join(RUNTIME)).expect("the runtime");
    let fields = fields(&runtime);
    assert!(fields.len() > 10, "{fields:?}");
    let unlisted = fields.into_iter().filter(|field| !record.contains(&format!("`Runtime::{field}`")));
    complaints
        .extend(unlisted.map(|field| format!("{RECORD} does not say what becomes of Runtime::{field}")));
    complain(&complaints);
}

#[test]
fn memory_that_outlives_an_instance_is_found() {
    let text = "static FIRST: Mutex<u64> = Mutex::new(0);\nstatic NAMES: &[&str] = &[];\n\
                pub(super) static SECOND: LazyLock<RwLock<u64>> = LazyLock::new(RwLock::default);\n\
                struct Held(Mutex<u64>);\nthread_local! {\n}\n";
    assert_eq!(outliving(text), [1, 3, 5]);
    let room = root().join(CONTROLLERS).join("nodes/ttl/memory.rs");
    assert!(remembers(&room, "struct Held(Mutex<u64>);"));
    assert!(!remembers(&room, "struct Plain(u64);\n#[cfg(test)]\nmod tests { type Held = Mutex<u64>; }"));
    assert!(!remembers(&room.with_file_name("metrics.rs"), "struct Held(Mutex<u64>);"));
    assert_eq!(
        fields(
            "pub struct Runtime {\n    /// One.\n    pub one: u64,\n}\npub struct B {\n    pub b: u64,\n}"
        ),
        ["one".to_owned()].into()
    );
}
