//! Checks the expressions of a policy against each of its kinds, and says in its status what was found.

use cel_check::{Checked, ExpressionWarning, Params, Policy, PolicyValidation, PolicyVariable, Schema};
use serde_json::{Value, json};

use super::FIELD_MANAGER;
use super::documents::Learned;
use super::kinds::CheckedKind;
use super::view::{View, is_checked};
use coxswain_machinery::api::kinds::VALIDATING_ADMISSION_POLICIES;
use coxswain_machinery::model::plan::{Patch, Tolerate, Verb};
use coxswain_machinery::model::words::{count, names};
use coxswain_machinery::model::{Key, Plan, Step, Write};

pub(super) fn plan(view: &View) -> Plan<Learned> {
    if is_checked(&view.policy) {
        return Plan::default().with_note(Learned::default());
    }
    let policy = &view.policy.metadata;
    let object = json!({
        "apiVersion": VALIDATING_ADMISSION_POLICIES.api_version(),
        "kind": VALIDATING_ADMISSION_POLICIES.kind,
        // Another policy of the name is another one's work.
        "metadata": { "name": policy.name.as_str(), "uid": policy.uid.to_string() },
        "status": { "observedGeneration": policy.generation, "typeChecking": type_checking(&warnings(view)) },
    });
    let apply = Verb::Patch(Patch::Apply { manager: FIELD_MANAGER, force: true, object });
    let write = Write {
        // By force there is no conflict but that the policy is another one now, or gone: the cache will tell.
        tolerate: Tolerate { absent: true, conflict: true, ..Tolerate::default() },
        ..Write::new(&VALIDATING_ADMISSION_POLICIES, Key::of(policy), apply).on("status")
    };
    Plan { steps: vec![Step::Write(write)], ..Plan::default() }.with_note(view.learned.clone())
}

/// What is wrong with its expressions. Kinds without a schema are left out.
fn warnings(view: &View) -> Vec<ExpressionWarning> {
    let spec = &view.policy.spec;
    let policy = Policy {
        variables: spec
            .variables
            .iter()
            .map(|variable| PolicyVariable { name: &variable.name, expression: &variable.expression })
            .collect(),
        validations: spec
            .validations
            .iter()
            .map(|validation| PolicyValidation {
                expression: &validation.expression,
                message_expression: &validation.message_expression,
            })
            .collect(),
    };
    let params = match (&spec.param_kind, &view.params) {
        (None, _) => Params::None,
        (Some(_), None) => Params::Unknown,
        (Some(param), Some(schema)) => Params::Of { kind: &param.kind, schema },
    };
    let kinds = view.kinds.iter().filter_map(|(kind, schema)| {
        let schema = schema.as_ref()?;
        Some(Checked { group: &kind.group, version: &kind.version, kind: &kind.kind, schema })
    });
    policy.warnings(params, &kinds.collect::<Vec<_>>())
}

/// The field of the status. It is there when there is nothing to warn of, too: that says that all was checked.
fn type_checking(warnings: &[ExpressionWarning]) -> Value {
    if warnings.is_empty() {
        return json!({});
    }
    let entry =
        |warning: &ExpressionWarning| json!({ "fieldRef": warning.field_ref, "warning": warning.warning });
    json!({ "expressionWarnings": warnings.iter().map(entry).collect::<Vec<_>>() })
}

/// What was checked, and what came of it, in words.
pub(super) fn reasons(view: &View) -> Vec<String> {
    let generation = view.policy.metadata.generation;
    if is_checked(&view.policy) {
        return vec![format!(
            "Generation {generation} of the policy has been checked; the policy is checked again when its spec changes."
        )];
    }
    let (known, unknown): (Vec<_>, Vec<_>) = view.kinds.iter().partition(|(_, schema)| schema.is_some());
    let told = |kinds: &[&(CheckedKind, Option<Schema>)]| {
        let mut told: Vec<&str> = kinds.iter().map(|(kind, _)| kind.kind.as_str()).collect();
        told.dedup();
        names(told)
    };
    let against = match known.len() {
        0 => "cannot be type-checked, because no kind in the policy's rules has a known schema".to_owned(),
        number => format!("are checked against {} ({})", count(number, "kind"), told(&known)),
    };
    let found = match warnings(view).len() {
        0 => "no warnings".to_owned(),
        number => format!("{} found", count(number, "warning")),
    };
    let mut reasons =
        vec![format!("Generation {generation} of the policy is new; its expressions {against}: {found}.")];
    if !unknown.is_empty() {
        reasons.push(format!(
            "The schema of {} is unknown, so the expressions are not checked against it.",
            told(&unknown)
        ));
    }
    reasons
}
