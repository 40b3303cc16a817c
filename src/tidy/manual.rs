//! Checks the manual: the summary lists every page, every link has a target, and every alert has a page with the facts of its rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde_yaml_ng::Value;

use super::complain;

/// Pages under `docs/` that are not part of the manual: documents for maintainers, and the summary itself.
const APART: &[&str] = &["SUMMARY.md", "adr/", "behaviour/", "contributing/", "style.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the pages of the manual by their paths relative to `docs/`.
fn pages() -> BTreeMap<String, String> {
    let docs = root().join("docs");
    let (mut pages, mut folders) = (BTreeMap::new(), vec![docs.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&docs).expect("below docs").to_str().expect("text").to_owned();
            let is_page = path.extension().is_some_and(|extension| extension == "md");
            if is_page && !APART.iter().any(|apart| name.starts_with(apart)) {
                pages.insert(name, fs::read_to_string(&path).expect("a page"));
            }
        }
    }
    assert!(pages.len() > 50, "there are pages");
    pages
}

/// Returns the targets of links outside of code blocks.
fn links(page: &str) -> Vec<&str> {
    let (mut found, mut is_code) = (Vec::new(), false);
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with("    ") {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            found.extend(targets.map(|(target, _)| target));
        }
    }
    found
}

/// Returns the anchors of a page, as GitHub and mdBook form them from headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let (mut found, mut is_code) = (BTreeSet::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && line.starts_with('#') {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|each| each.is_alphanumeric() || " -_".contains(*each));
            found.insert(kept.map(|each| if each == ' ' { '-' } else { each }).collect());
        }
    }
    found
}

/// Resolves `..` without a look at the disk.
fn resolve(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            resolved.pop();
        } else {
            resolved.push(part);
        }
    }
    resolved
}

/// Returns what is wrong with the links of a page, whose path is relative to the root of the repository.
fn broken_links(name: &str, page: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for link in links(page).into_iter().filter(|link| !link.contains("://")) {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = match path {
            "" => root().join(name),
            _ => resolve(&root().join(name).parent().expect("a folder").join(path)),
        };
        let is_page = target.extension().is_some_and(|extension| extension == "md");
        let has_anchor = || anchors(&fs::read_to_string(&target).unwrap_or_default()).contains(anchor);
        if !target.exists() {
            broken.push(format!("{name}: {link} does not exist"));
        } else if is_page && !anchor.is_empty() && !has_anchor() {
            broken.push(format!("{name}: {link} has no such heading"));
        }
    }
    broken
}

#[test]
fn summary_lists_every_page_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("the summary");
    let mut listed: Vec<&str> = links(&summary);
    listed.sort_unstable();
    let pages: Vec<String> = pages().into_keys().collect();
    assert_eq!(listed, pages, "docs/SUMMARY.md and the pages under docs/");
}

#[test]
fn every_link_of_the_manual_has_a_target() {
    let mut broken = Vec::new();
    for (name, page) in pages() {
        broken.extend(broken_links(&format!("docs/{name}"), &page));
    }
    for name in ["README.md", "deploy/helm/coxswain/README.md"] {
        broken.extend(broken_links(name, &fs::read_to_string(root().join(name)).expect("a page")));
    }
    complain(&broken);
}

#[test]
fn broken_links_and_headings_are_found() {
    let page = "# A `b`: c\n[x](#a-b-c) [y](#d) [z](nowhere.md) [w](https://example.com/nowhere)\n```\n[v](nowhere.md)\n```\n";
    assert_eq!(anchors(page), BTreeSet::from(["a-b-c".to_owned()]));
    assert_eq!(links(page), ["#a-b-c", "#d", "nowhere.md", "https://example.com/nowhere"]);
    assert_eq!(broken_links("docs/page.md", "[z](nowhere.md)"), ["docs/page.md: nowhere.md does not exist"]);
    let broken = broken_links("docs/page.md", "[z](README.md#nowhere)");
    assert_eq!(broken, ["docs/page.md: README.md#nowhere has no such heading"]);
}

/// Returns the words for the time before an alert fires.
fn delay(pending: &str) -> String {
    let (count, unit) = pending.split_at(pending.len() - 1);
    let unit = match unit {
        "m" => "minute",
        "h" => "hour",
        "d" => "day",
        other => panic!("{other} is no unit of the rules"),
    };
    match count {
        "0" => "at once".to_owned(),
        "1" => format!("after 1 {unit}"),
        _ => format!("after {count} {unit}s"),
    }
}

/// The facts of an alert's rules that its page repeats.
#[derive(Default)]
struct AlertFacts<'a> {
    severities: Vec<&'a str>,
    delays: Vec<String>,
}

#[test]
fn every_alert_has_a_page_with_the_facts_of_its_rule() {
    let rules = fs::read_to_string(root().join("deploy/prometheus/rules.yaml")).expect("the rules");
    let rules: Value = serde_yaml_ng::from_str(&rules).expect("YAML");
    let rules = rules["groups"].as_sequence().expect("groups").iter();
    let rules = rules.flat_map(|group| group["rules"].as_sequence().expect("rules"));
    let mut pages = pages();
    let index = pages.remove("operations-alerts.md").expect("the list of alerts");
    let mut facts: BTreeMap<&str, AlertFacts<'_>> = BTreeMap::new();
    let mut complaints = Vec::new();
    for rule in rules {
        let Some(alert) = rule["alert"].as_str() else { continue };
        let file = format!("alerts/{}.md", alert.to_lowercase());
        let page = pages.get(&file).map_or("", String::as_str);
        let url = rule["annotations"]["runbook_url"].as_str().unwrap_or_default();
        if !url.ends_with(&format!("/docs/{file}")) {
            complaints.push(format!("{alert}: runbook_url is {url}, not the page docs/{file}"));
        }
        let facts = facts.entry(alert).or_default();
        facts.severities.push(rule["labels"]["severity"].as_str().expect("a severity"));
        let delay = delay(rule["for"].as_str().unwrap_or("0m"));
        // Linear: an alert has at most two rules.
        if !facts.delays.contains(&delay) {
            facts.delays.push(delay);
        }
        for due in [&format!("# {alert}\n"), "| Impact | ", "## Check", "## Fix"] {
            if !page.contains(due) {
                complaints.push(format!("docs/{file} lacks {due:?}"));
            }
        }
    }
    for (alert, AlertFacts { severities, delays }) in &facts {
        let (file, severities) = (format!("alerts/{}.md", alert.to_lowercase()), severities.join(", "));
        let page = pages.get(&file).map_or("", String::as_str);
        for row in [format!("| Severity | {severities} |"), format!("| Fires | {} |", delays.join(", "))] {
            if !page.contains(&row) {
                complaints.push(format!("docs/{file} lacks {row:?}"));
            }
        }
        if !index.contains(&format!("| [{alert}]({file}) | {severities} |")) {
            complaints.push(format!("docs/operations-alerts.md lacks {alert}, {severities}"));
        }
    }
    let count = pages.keys().filter(|name| name.starts_with("alerts/")).count();
    assert_eq!(count, facts.len(), "pages of alerts that do not exist");
    complain(&complaints);
}
