//! Keeps the generated parts of the documentation as the code has them. `make docs` rewrites them.

use std::fmt::Write;
use std::path::Path;

use crate::framework::DefaultState;
use crate::registry::REGISTRY;

const BEGIN: &str = "<!-- controllers: generated from the registry by `make docs` -->\n";
const END: &str = "<!-- /controllers -->";

fn controllers() -> String {
    let built = REGISTRY.iter().filter(|row| row.build.is_some()).count();
    let mut table = format!(
        "{built} of {} are built.\n\n| controller | alias | state |\n|---|---|---|\n",
        REGISTRY.len()
    );
    for row in REGISTRY {
        let mut state = if row.build.is_some() { "**built**".to_owned() } else { "not yet".to_owned() };
        if row.default == DefaultState::Off {
            state.push_str(", off by default");
        }
        if row.cloud {
            state.push_str(", left to a cloud controller manager");
        }
        if !row.gates.is_empty() {
            let _ = write!(state, ", behind {}", row.gates.join(", "));
        }
        let _ = writeln!(table, "| {} | {} | {state} |", row.name, row.aliases.join(", "));
    }
    table
}

#[test]
fn the_readme_lists_the_controllers_as_they_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = std::fs::read_to_string(&path).expect("the README");
    let (before, rest) = text.split_once(BEGIN).expect("the beginning of the table");
    let (held, after) = rest.split_once(END).expect("the end of the table");
    let expected = controllers();
    if std::env::var_os("COXSWAIN_REGENERATE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}"))
            .expect("the README is written");
        return;
    }
    assert_eq!(held, expected, "README.md is out of date: run `make docs`");
}
