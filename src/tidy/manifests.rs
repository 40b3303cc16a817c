//! Manifests and the chart in `deploy/`: what their flags may name, and what a patch may append.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::options::TABLE;
use serde::Deserialize as _;
use serde_yaml_ng::Value;

use super::complain;

/// Where the kubelet projects `kube-root-ca.crt`, which `root-ca-certificate-publisher-controller` writes.
const PROJECTED: [&str; 2] =
    ["/var/run/secrets/kubernetes.io/serviceaccount", "/run/secrets/kubernetes.io/serviceaccount"];
/// Kinds of volumes whose content a controller of ours writes.
const WRITTEN_BY_CONTROLLERS: [&str; 3] = ["configMap:", "projected:", "clusterTrustBundle:"];
/// Types of flags that replace their value when they are repeated.
const REPLACED: [&str; 9] = ["bool", "duration", "float", "float32", "int", "int32", "int64", "ip", "string"];

/// Files of `deploy/` with these endings, by their paths in the repository.
fn files(endings: &[&str]) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.join("deploy")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| path.extension().is_some_and(|held| held == *ending)) {
                let text = fs::read_to_string(&path).expect("a text file");
                found.push((path.strip_prefix(root).expect("below it").display().to_string(), text));
            }
        }
    }
    assert!(found.len() > 20, "{found:?}");
    found
}

/// The flags in a text with values, by name.
fn flags(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices("--").filter_map(|(at, dashes)| {
        let flag = &text[at + dashes.len()..];
        let (name, value) = flag.split_once('=')?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        let end = value.find(|letter: char| letter.is_whitespace() || "\"',}|`".contains(letter));
        is_name.then(|| (name, &value[..end.unwrap_or(value.len())]))
    })
}

#[test]
fn no_flag_names_a_file_that_a_controller_produces() {
    let mut complaints = Vec::new();
    let files = files(&["yaml", "tpl", "txt"]);
    let mounts: Vec<&str> = files
        .iter()
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| line.split_once("mountPath: "))
        .map(|(_, at)| at.split([' ', ',']).next().unwrap_or(at))
        .collect();
    for (path, text) in &files {
        for (name, value) in flags(text).filter(|(name, value)| value.starts_with('/') && is_known(name)) {
            if PROJECTED.iter().any(|mount| value.starts_with(mount)) {
                complaints.push(format!("{path}: --{name}={value} is projected from kube-root-ca.crt"));
            }
            if !mounts.iter().any(|mount| value.starts_with(&format!("{mount}/"))) {
                complaints.push(format!("{path}: --{name}={value} is in no volume"));
            }
        }
        if text.contains("mountPath: ") {
            let written = WRITTEN_BY_CONTROLLERS.iter().filter(|kind| text.contains(*kind));
            complaints.extend(written.map(|kind| format!("{path}: a volume {kind} may hold what we write")));
        }
    }
    complain(&complaints);
}

fn is_known(name: &str) -> bool {
    TABLE.iter().any(|flag| flag.name() == name)
}

/// A list grows when its flag is repeated, so a patch that appends `--controllers` would keep the `*` of the base.
#[test]
fn a_patch_appends_no_flag_whose_list_grows() {
    let mut complaints = Vec::new();
    let mut appended = 0;
    for (path, text) in files(&["yaml"]) {
        for (_, after) in text.match_indices("/args/-").map(|(at, end)| text[at..].split_at(end.len())) {
            let Some((name, _)) = flags(after).next() else { continue };
            let Some(flag) = TABLE.iter().find(|flag| flag.name() == name) else {
                complaints.push(format!("{path}: there is no flag --{name}"));
                continue;
            };
            appended += 1;
            if !REPLACED.contains(&flag.kind) {
                complaints.push(format!("{path}: --{name} ({}) grows when it is repeated", flag.kind));
            }
        }
    }
    assert!(appended > 0, "no patch appends a flag");
    complain(&complaints);
}

/// A Lease of its own means that another manager runs beside it.
#[test]
fn orders_run_no_controller_of_a_manager_beside() {
    let mut found = 0;
    for (path, text) in files(&["yaml"]) {
        // Other files give the flag to the client.
        let is_of_the_manager = text.contains("kind: Deployment");
        if is_of_the_manager && flags(&text).any(|(name, _)| name == "leader-elect-resource-name") {
            found += 1;
            assert!(flags(&text).any(|flag| flag == ("admin-overrides", "disable-only")), "{path}");
        }
    }
    assert!(found > 1, "the overlay and the chart");
}

/// A token of another account in `kube-system`, such as that of a CSI driver, has rights that the manager lacks.
#[test]
fn manager_may_request_tokens_of_the_accounts_of_its_controllers_alone() {
    let accounts: BTreeSet<&str> = REGISTRY
        .iter()
        .filter(|descriptor| descriptor.build.is_some())
        .filter_map(|descriptor| descriptor.service_account)
        .collect();
    let mut complaints = Vec::new();
    let mut rules = 0;
    for (path, text) in files(&["yaml"]) {
        for (_, rule) in
            text.match_indices("resources: [serviceaccounts/token]").map(|(at, _)| text.split_at(at))
        {
            let rule = rule.split("verbs:").next().unwrap_or_default();
            let named: BTreeSet<&str> =
                rule.lines().filter_map(|line| line.trim().strip_prefix("- ")).collect();
            if !rule.contains("resourceNames:") || named != accounts {
                let differ: Vec<_> = named.symmetric_difference(&accounts).collect();
                complaints
                    .push(format!("{path}: the accounts of tokens differ from the registry in {differ:?}"));
            }
            rules += 1;
        }
    }
    assert_eq!(rules, 2, "the overlay and the chart");
    complain(&complaints);
}

/// A value such as `1e3` or `on` in a template becomes a number or a boolean unless it is quoted.
#[test]
fn chart_quotes_values_that_are_strings() {
    const NOT_STRINGS: [&str; 2] = [".Values.replicas", ".Values.networkPolicy.toPorts"];
    let mut complaints = Vec::new();
    for (path, text) in files(&["yaml"]).into_iter().filter(|(path, _)| path.contains("/templates/")) {
        let mut of_ports = false;
        for line in text.lines() {
            if line.contains("range ") || line.contains("end }}") {
                of_ports = line.contains(NOT_STRINGS[1]);
            }
            // Names in the middle of a text, such as a URL, cannot become numbers.
            let value = line.trim().trim_start_matches("- ");
            let value = value.split_once(": ").map_or(value, |(_, value)| value);
            let is_whole =
                value.starts_with("{{ .") && value.ends_with("}}") || value.starts_with("{{ $.Values");
            let is_exempt =
                of_ports || value.contains("quote") || NOT_STRINGS.iter().any(|held| value.contains(held));
            if is_whole && !is_exempt {
                complaints.push(format!("{path}: {line}"));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn deleting_a_manifest_deletes_no_namespace() {
    let is_namespace = |text: &str| text.lines().any(|line| line.trim_end() == "kind: Namespace");
    let found: Vec<String> =
        files(&["yaml"]).into_iter().filter(|(_, text)| is_namespace(text)).map(|(path, _)| path).collect();
    complain(&found);
}

/// Two files may be applied to one cluster: the second must not replace what the first has granted.
#[test]
fn no_object_is_defined_twice_with_different_content() {
    let mut defined: BTreeMap<String, (String, Value)> = BTreeMap::new();
    let mut found = Vec::new();
    for (path, text) in files(&["yaml"]) {
        // The chart is installed instead of the others, and its templates are no YAML.
        if path.starts_with("deploy/helm/") {
            continue;
        }
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let object = Value::deserialize(document).expect(&path);
            let field = |path: &[&str]| path.iter().try_fold(&object, |held, key| held.get(key));
            let (Some(kind), Some(name)) = (field(&["kind"]), field(&["metadata", "name"])) else { continue };
            let key = format!("{kind:?} {:?} {name:?}", field(&["metadata", "namespace"]));
            match defined.get(&key) {
                None => drop(defined.insert(key, (path.clone(), object))),
                Some((_, first)) if *first == object => {}
                Some((first, _)) => found.push(format!("{key}: {first} and {path}")),
            }
        }
    }
    assert!(defined.len() > 20, "{defined:?}");
    complain(&found);
}

/// The endpoints that are probed differ: the Deployment's probes ask `/livez` and `/readyz`, kubeadm's `/healthz`.
#[test]
fn rules_and_panels_select_health_checks_of_every_endpoint() {
    let mut selectors = 0;
    for (path, text) in files(&["yaml", "json"]) {
        if path.ends_with("rules.test.yaml") {
            continue;
        }
        for (_, after) in
            text.match_indices("kubernetes_healthcheck{").map(|(at, name)| text[at..].split_at(name.len()))
        {
            let selector = after.split('}').next().unwrap_or_default();
            assert!(!selector.contains("type="), "{path}: {selector}");
            selectors += 1;
        }
    }
    assert!(selectors > 1, "a rule and a panel");
}
