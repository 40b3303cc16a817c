//! The files of a room form layers: none imports another that imports it, by whatever way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{code, complain, rooms};

/// A module within its room: the names on the way to it.
type Module = Vec<String>;

/// The modules of a room, without its tests.
fn modules(room: &Path) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![room.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()) {
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            if name == "tests" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let (Ok(below), Ok(text)) = (path.strip_prefix(room), fs::read_to_string(&path)) {
                let parts = below.with_extension("");
                let parts = parts.iter().map(|part| part.to_string_lossy().into_owned());
                found.insert(parts.filter(|part| part != "mod").collect(), text);
            }
        }
    }
    found
}

/// The paths that a file's `use` items name, from `super` or `self` on.
fn imports(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = code(text).map(|(_, line)| line).collect();
    let text = lines.join(" ");
    let items = text.split("use ").skip(1).filter_map(|item| item.split_once(';'));
    let own =
        items.map(|(item, _)| item).filter(|item| item.starts_with("super::") || item.starts_with("self::"));
    own.flat_map(expand).collect()
}

/// `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(item: &str) -> Vec<Vec<String>> {
    let path = |item: &str| item.trim().split("::").map(|part| part.trim().to_owned()).collect::<Vec<_>>();
    let Some((head, inner)) = item.split_once('{') else { return vec![path(item)] };
    let inner = inner.trim_end().trim_end_matches('}');
    let (mut parts, mut depth) = (vec![String::new()], 0_usize);
    for letter in inner.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("one at least").push(letter);
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expand(&format!("{head}{}", part.trim()))).collect()
}

/// The module of the room that a path leads to from `from`; `None` if it leads out of the room.
fn target(modules: &BTreeMap<Module, String>, from: &Module, path: &[String]) -> Option<Module> {
    let mut at = from.clone();
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "self" => {}
            "super" => {
                at.pop()?;
            }
            _ => break,
        }
        rest = after;
    }
    for part in rest {
        at.push(part.clone());
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
    }
    Some(at)
}

/// Those from which a way leads back to themselves.
fn circular(imported: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<&Module> {
    let leads_back = |from: &&Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![*from]);
        while let Some(at) = next.pop() {
            next.extend(imported.get(at).into_iter().flatten().filter(|to| seen.insert(*to)));
        }
        seen.contains(from)
    };
    imported.keys().filter(leads_back).collect()
}

#[test]
fn files_of_a_room_form_layers() {
    let mut complaints = Vec::new();
    for room in rooms() {
        let modules = modules(&room);
        let imported = modules.iter().map(|(from, text)| {
            let to = imports(text).into_iter().filter_map(|path| target(&modules, from, &path));
            (from.clone(), to.filter(|to| to != from).collect::<BTreeSet<_>>())
        });
        let imported = imported.collect();
        for module in circular(&imported) {
            let to: Vec<_> = imported[module].iter().map(|to| to.join("::")).collect();
            complaints.push(format!("{}: {} imports {}", room.display(), module.join("::"), to.join(", ")));
        }
    }
    complain(&complaints);
}

#[test]
fn circles_are_found() {
    let path = |text: &str| text.split("::").map(str::to_owned).collect::<Module>();
    let files = [
        ("plan", "use self::a::{A, b::B};"),
        ("plan::a", "use super::{b::C,\n c};"),
        ("plan::b", "use super::a;"),
    ];
    let modules: BTreeMap<_, _> = files.map(|(name, text)| (path(name), text.to_owned())).into();
    let imported: BTreeMap<_, BTreeSet<_>> = modules
        .iter()
        .map(|(from, text)| {
            let to = imports(text).into_iter().filter_map(|found| target(&modules, from, &found));
            (from.clone(), to.filter(|to| to != from).collect())
        })
        .collect();
    assert_eq!(imported[&path("plan")], [path("plan::a")].into());
    assert_eq!(imported[&path("plan::a")], [path("plan"), path("plan::b")].into());
    assert_eq!(circular(&imported).len(), 3);
    let straight: BTreeMap<_, BTreeSet<_>> =
        [(path("a"), [path("b")].into()), (path("b"), BTreeSet::new())].into();
    assert!(circular(&straight).is_empty());
}
