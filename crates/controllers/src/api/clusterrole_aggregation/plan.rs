//! Joins the rules of what is selected, and applies them if they are not what the role has.

use coxswain_machinery::random::HashSet;
use serde_json::{Map, Value, json};

use super::FIELD_MANAGER;
use super::view::View;
use coxswain_machinery::api::kinds::CLUSTER_ROLES;
use coxswain_machinery::api::rbac::PolicyRule;
use coxswain_machinery::model::plan::{Patch, Tolerate, Verb};
use coxswain_machinery::model::words::{count, names};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::Str;

pub(super) fn plan(view: &View) -> Plan {
    let wanted = joined(view);
    let role = &view.role.metadata;
    if wanted.iter().copied().eq(&view.role.rules) {
        return Plan::default();
    }
    let mut object = json!({
        "apiVersion": CLUSTER_ROLES.api_version(),
        "kind": CLUSTER_ROLES.kind,
        // One that was deleted meanwhile is not to be made by this.
        "metadata": { "name": role.name.as_str(), "uid": role.uid.to_string() },
    });
    // Without the field, rules that somebody else gave the role stay.
    if !wanted.is_empty() {
        object["rules"] = wanted.into_iter().map(document).collect();
    }
    let apply = Verb::Patch(Patch::Apply { manager: FIELD_MANAGER, force: true, object });
    let write = Write {
        // By force there is no conflict but that the role is another one now, or gone: the cache will tell.
        tolerate: Tolerate { absent: true, conflict: true, ..Tolerate::default() },
        ..Write::new(&CLUSTER_ROLES, Key::of(role), apply)
    };
    Plan { steps: vec![Step::Write(write)], ..Plan::default() }
}

/// The rules of all that is selected, each once, in the order of selectors, names and lists.
fn joined(view: &View) -> Vec<&PolicyRule> {
    let rules = view.selected.iter().flatten().flat_map(|role| &role.rules);
    let lists = |rule: &PolicyRule| {
        let PolicyRule { verbs, api_groups, resources, resource_names, non_resource_urls, .. } = rule.clone();
        [verbs, api_groups, resources, resource_names, non_resource_urls]
    };
    let mut seen = HashSet::default();
    rules.filter(|rule| seen.insert(lists(rule))).collect()
}

fn document(rule: &PolicyRule) -> Value {
    let lists: [(&str, &[Str]); 5] = [
        ("verbs", &rule.verbs),
        ("apiGroups", &rule.api_groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.resource_names),
        ("nonResourceURLs", &rule.non_resource_urls),
    ];
    let held = lists.into_iter().filter(|(_, list)| !list.is_empty());
    held.map(|(name, list)| (name.to_owned(), list.iter().map(Str::as_str).collect()))
        .collect::<Map<String, Value>>()
        .into()
}

/// Why the role has the rules that it has, in words.
pub(super) fn reasons(view: &View) -> Vec<String> {
    let mut selected: Vec<&str> =
        view.selected.iter().flatten().map(|role| role.metadata.name.as_str()).collect();
    selected.sort_unstable();
    selected.dedup();
    let wanted = joined(view);
    let roles = match selected.len() {
        0 => "no other ClusterRole".to_owned(),
        number => format!("{} ({})", count(number, "ClusterRole"), names(selected)),
    };
    let rules = count(wanted.len(), "distinct rule");
    let what = if wanted.iter().copied().eq(&view.role.rules) {
        "the aggregated ClusterRole already has exactly these rules".to_owned()
    } else if wanted.is_empty() {
        "the rules of the aggregated ClusterRole are removed".to_owned()
    } else {
        "these rules replace the rules of the aggregated ClusterRole".to_owned()
    };
    vec![format!("The aggregationRule selects {roles} with {rules} in total: {what}.")]
}
