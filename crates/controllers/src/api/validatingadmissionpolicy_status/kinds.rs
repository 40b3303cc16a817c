//! Which kinds a policy is checked against. Pure: what rules name, found among what the API has.
//!
//! Rules are for requests, and need not name a kind at all. What names one beyond doubt is taken: neither wildcards nor
//! subresources do. Nothing else of a rule matters, nor do exclusions and selectors.

use std::collections::BTreeSet;

use coxswain_machinery::api::system::{AdmissionRule, ValidatingAdmissionPolicySpec};
use coxswain_machinery::framework::{ApiResource, ApiResources};
use coxswain_machinery::wire::Str;

/// A rule that has named so many kinds is the last one that is looked at, and its further kinds are not.
const MOST: usize = 10;
/// So many combinations of a policy's rules are looked at. Lists of some thousand names have more than could ever be.
const MOST_COMBINATIONS: usize = 100_000;
/// A group or version with one anywhere, such as `*.k8s.io`, names none.
const WILDCARD: &str = "*";

/// A kind of objects, in the order in which warnings name them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CheckedKind {
    pub(super) group: Str,
    pub(super) version: Str,
    pub(super) kind: Str,
}

/// What rules lead to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Matched {
    /// The kinds, each once, in order.
    pub(super) kinds: BTreeSet<CheckedKind>,
    /// Whether something is named that the API does not have.
    pub(super) has_unknown: bool,
}

/// Whether rules name anything that could be found.
pub(super) fn names_any(spec: &ValidatingAdmissionPolicySpec) -> bool {
    rules(spec).any(|rule| named(rule).next().is_some())
}

/// The kinds that a policy names.
pub(super) fn matched(spec: &ValidatingAdmissionPolicySpec, resources: &ApiResources) -> Matched {
    let mut matched = Matched::default();
    let mut left = MOST_COMBINATIONS;
    for rule in rules(spec) {
        let mut hits = 0;
        for (group, version, resource) in named(rule) {
            let Some(fewer) = left.checked_sub(1) else { return matched };
            left = fewer;
            let name = resource.to_lowercase();
            let mut is_known = false;
            for found in resources.all().filter(|found| is_named(found, group, version, &name)) {
                is_known = true;
                matched.kinds.insert(CheckedKind {
                    group: found.group.clone(),
                    version: found.version.clone(),
                    kind: found.kind.clone(),
                });
                hits += 1;
                if hits == MOST {
                    return matched;
                }
            }
            matched.has_unknown |= !is_known;
        }
    }
    matched
}

fn rules(spec: &ValidatingAdmissionPolicySpec) -> impl Iterator<Item = &AdmissionRule> {
    let constraints = spec.match_constraints.iter();
    constraints.flat_map(|all| &all.resource_rules).map(|rule| &rule.rule_with_operations.rule)
}

/// What a rule names: all combinations of group, version and resource, in order.
fn named(rule: &AdmissionRule) -> impl Iterator<Item = (&Str, &Str, &Str)> {
    let has_wildcard =
        [&rule.api_groups, &rule.api_versions].into_iter().flatten().any(|each| each.contains(WILDCARD));
    let groups = if has_wildcard { Vec::new() } else { sorted(&rule.api_groups) };
    let versions = sorted(&rule.api_versions);
    let mut resources = sorted(&rule.resources);
    resources.retain(|resource| !resource.contains(['*', '/']));
    // They are counted and not listed: their number is the product of three lengths.
    let count = groups.len().saturating_mul(versions.len()).saturating_mul(resources.len());
    (0..count).map(move |at| {
        let (rest, resource) = (at / resources.len(), at % resources.len());
        (groups[rest / versions.len()], versions[rest % versions.len()], resources[resource])
    })
}

fn sorted(texts: &[Str]) -> Vec<&Str> {
    let mut sorted: Vec<&Str> = texts.iter().collect();
    sorted.sort_unstable();
    sorted
}

/// Whether a resource of the API is what is named. No group is any group, as where users name resources to the API's clients.
fn is_named(found: &ApiResource, group: &Str, version: &Str, name: &str) -> bool {
    let is_called = |called: &Str| called.eq_ignore_ascii_case(name);
    found.version == *version
        && (group.is_empty() || found.group == *group)
        && (is_called(&found.resource)
            || if found.singular.is_empty() { is_called(&found.kind) } else { is_called(&found.singular) })
}
