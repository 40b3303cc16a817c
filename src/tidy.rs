//! Keeps the house: rules about the sources that no compiler checks.

mod decisions;
mod differences;
mod flags;
mod gates;
mod json;
mod layers;
mod loops;
mod manifests;
mod manual;
mod memories;
mod reads;
mod references;
mod requests;
mod times;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use differences::page as differences_page;
pub(crate) use gates::OWNERS;

/// A longer file no longer reads in one sitting.
const MAX_LINES: usize = 700;

/// What has no place in a `plan.rs`, nor in the modules beside it that a plan is made of: a plan is pure.
const IMPURE: &[&str] = &[
    "async ",
    ".await",
    "kube::",
    "tokio::",
    "rand::",
    "Instant",
    "SystemTime",
    "Timestamp::now",
    "crate::client",
    "coxswain_machinery::client",
    "std::fs",
    "std::env",
];

/// Where the sources of the manager are: each crate's.
const CRATES: [&str; 4] = ["src", MACHINERY, CONTROLLERS, CEL_CHECK];
const MACHINERY: &str = "crates/machinery/src";
const CONTROLLERS: &str = "crates/controllers/src";
const CEL_CHECK: &str = "crates/cel-check/src";
/// Beside the manager: what its tests talk to.
const APISERVER_MODEL: &str = "crates/apiserver-model/src";
/// What is beside the areas in the controllers' crate.
const REGISTRY: &str = "registry";
/// Folders within areas that are no rooms: several rooms share them.
const SHARED: &[&str] = &["identity/requests"];

/// What rooms leave to the framework.
const NOT_IN_ROOMS: &[&str] = &[
    "coxswain_machinery::client",
    "coxswain_machinery::queue",
    "tokio::spawn",
    "coxswain_machinery::executor::Executor",
];

fn sources(root: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(root);
    let mut found = Vec::new();
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "there are sources");
    found
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let of_tests = [APISERVER_MODEL, "tests/differential", "tests/integration", "tests/simulation"];
    CRATES.into_iter().chain(of_tests).flat_map(sources).collect()
}

fn model() -> Vec<(PathBuf, String)> {
    sources(&format!("{MACHINERY}/model"))
}

fn complain(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The lines of code: no comments, and nothing from the file's test module on.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn files_read_in_one_sitting() {
    let long = all_sources().into_iter().filter_map(|(path, text)| {
        let lines = text.lines().count();
        (lines > MAX_LINES).then(|| format!("{}: {lines} lines, at most {MAX_LINES}", path.display()))
    });
    complain(&long.collect::<Vec<_>>());
}

#[test]
fn every_module_says_what_it_is_for() {
    let silent = all_sources().into_iter().filter(|(_, text)| !text.starts_with("//!"));
    complain(&silent.map(|(path, _)| format!("{}: no module comment", path.display())).collect::<Vec<_>>());
}

fn found(path: &Path, text: &str, words: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (at, line) in code(text) {
        for word in words.iter().filter(|word| line.contains(**word)) {
            complaints.push(format!("{}:{}: {word:?} has no place here", path.display(), at + 1));
        }
    }
    complaints
}

#[test]
fn plans_are_pure() {
    let is_plan = |path: &Path| {
        path.file_name().is_some_and(|name| name == "plan.rs") || {
            path.parent().is_some_and(|folder| folder.ends_with("plan"))
        }
    };
    let in_controllers = sources(CONTROLLERS).into_iter().filter(|(path, _)| is_plan(path));
    let pure = in_controllers.chain(model().into_iter().filter(|(path, _)| !path.ends_with("clock.rs")));
    complain(&pure.flat_map(|(path, text)| found(&path, &text, IMPURE)).collect::<Vec<_>>());
}

#[test]
fn rooms_leave_the_machinery_to_the_framework() {
    let rooms = sources(CONTROLLERS).into_iter();
    complain(&rooms.flat_map(|(path, text)| found(&path, &text, NOT_IN_ROOMS)).collect::<Vec<_>>());
}

/// Controllers that another one's room serves, by what they call of it.
const SERVED_BY_ANOTHER: &[(&str, &str)] = &[("replicationcontroller", "replicaset::keep")];

/// The rooms' folders, each within that of its area.
fn rooms() -> Vec<PathBuf> {
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).expect("a folder").flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    let areas = folders(&Path::new(env!("CARGO_MANIFEST_DIR")).join(CONTROLLERS));
    let areas = areas.iter().filter(|area| !area.ends_with(REGISTRY));
    let is_room = |folder: &PathBuf| !SHARED.iter().any(|shared| folder.ends_with(shared));
    let rooms: Vec<_> = areas.flat_map(|area| folders(area)).filter(is_room).collect();
    assert!(!rooms.is_empty(), "there are rooms");
    rooms
}

/// The rooms that are one file, each in the folder of its area.
fn small_rooms() -> Vec<PathBuf> {
    let files = sources(CONTROLLERS).into_iter().filter(|(path, text)| {
        text.contains("pub const DESCRIPTOR: Descriptor") && !path.ends_with("mod.rs")
    });
    files.map(|(path, _)| path).collect()
}

#[test]
fn every_room_has_the_same_shape() {
    let mut complaints = Vec::new();
    for room in small_rooms() {
        let text = fs::read_to_string(&room).expect("a room");
        for part in ["struct View", "fn observe", "fn plan", "mod tests"] {
            if !text.contains(part) {
                complaints.push(format!("{}: no {part}", room.display()));
            }
        }
    }
    for room in rooms() {
        let served = SERVED_BY_ANOTHER.iter().find(|(name, _)| room.ends_with(name));
        let parts: &[&str] = match served {
            Some((_, call)) => {
                let text = fs::read_to_string(room.join("mod.rs")).expect("a room");
                assert!(text.contains(call), "{}: no {call}", room.display());
                &["mod.rs", "tests.rs"]
            }
            None => &["mod.rs", "view.rs", "plan.rs", "tests.rs"],
        };
        for part in parts {
            let folder = part.trim_end_matches(".rs");
            if !room.join(part).is_file() && !room.join(folder).join("mod.rs").is_file() {
                complaints.push(format!("{}: no {part}", room.display()));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn every_room_is_registered() {
    let registry =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(CONTROLLERS).join("registry.rs"))
            .expect("the registry");
    let mut complaints = Vec::new();
    for room in rooms().into_iter().chain(small_rooms()) {
        let name = room.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if !registry.contains(&format!("{name}::DESCRIPTOR")) {
            complaints.push(format!("registry.rs has no row {name}::DESCRIPTOR"));
        }
    }
    complain(&complaints);
}

/// tokio looks at the branches of a `select!` in an order of its own dice, which nobody can seed, unless they are in order.
#[test]
fn branches_are_looked_at_in_order() {
    let is_test = |path: &Path| {
        path.ends_with("tidy.rs")
            || path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
    };
    let of_the_manager = CRATES.into_iter().flat_map(sources).filter(|(path, _)| !is_test(path));
    let complaints = of_the_manager.flat_map(|(path, text)| {
        let lines: Vec<&str> = text.lines().collect();
        let begins = |line: &str| line.contains("select! {");
        let unordered =
            lines.windows(2).enumerate().filter(|(_, pair)| begins(pair[0]) && pair[1].trim() != "biased;");
        unordered.map(|(at, _)| format!("{}:{}: say `biased;`", path.display(), at + 1)).collect::<Vec<_>>()
    });
    complain(&complaints.collect::<Vec<_>>());
}

/// Numbers of fields are looked up by name (`path!`, `field!`), so that a test can hold them against upstream's definitions.
#[test]
fn field_numbers_are_looked_up() {
    let starts_with_digit = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    let is_number = |line: &str| {
        let follows = |marker: &str| line.split(marker).skip(1).any(starts_with_digit);
        let writes = ["Edit::", "put_bytes(", "put_varint_field(", "retain_items(", "get("];
        follows(": u32 = ")
            || line.contains(": [u32; ") && follows("= [")
            || writes.iter().any(|write| line.contains(write)) && (follows("&[") || follows("vec!["))
            || line.contains("put_")
                && line.split("(&mut ").skip(1).any(|rest| {
                    rest.split_once(", ").is_some_and(|(_, argument)| starts_with_digit(argument))
                })
    };
    let is_test = |path: &Path| {
        path.components().any(|part| {
            ["tests", "tests.rs", "objects.rs"].map(std::ffi::OsStr::new).contains(&part.as_os_str())
        })
    };
    let of_rooms = sources(CONTROLLERS).into_iter().chain(model());
    let spliced = of_rooms.filter(|(path, text)| text.contains("wire::splice") && !is_test(path));
    let complaints = spliced.flat_map(|(path, text)| {
        let lines: Vec<_> = code(&text).filter(|(_, line)| is_number(line)).map(|(at, _)| at + 1).collect();
        lines.into_iter().map(move |at| format!("{}:{at}: a field number by hand", path.display()))
    });
    complain(&complaints.collect::<Vec<_>>());
}

/// The text of a cached string is not its bytes if these are not valid UTF-8 (`wire::text`): `put_text`, `Edit::set_text` and
/// `Edit::push_text` write the bytes.
#[test]
fn strings_are_encoded_as_their_bytes() {
    let writes = ["put_bytes(", "put_entry(", "Edit::SetBytes(", "Edit::MapSetBytes(", "Edit::Push("];
    let is_mixed =
        |line: &str| line.contains(".as_bytes()") && writes.iter().any(|write| line.contains(write));
    let is_exempt = |path: &Path| {
        let is_test = path.components().any(|part| {
            ["tests", "tests.rs", "objects.rs"].map(std::ffi::OsStr::new).contains(&part.as_os_str())
        });
        // It writes text that it reads from JSON.
        is_test || path.ends_with("revisions/template.rs")
    };
    let sources = sources(CONTROLLERS).into_iter().chain(model()).filter(|(path, _)| !is_exempt(path));
    let complaints = sources.flat_map(|(path, text)| {
        let lines: Vec<_> = code(&text).filter(|(_, line)| is_mixed(line)).map(|(at, _)| at + 1).collect();
        lines
            .into_iter()
            .map(move |at| format!("{}:{at}: text is encoded as if it were bytes", path.display()))
    });
    complain(&complaints.collect::<Vec<_>>());
}
