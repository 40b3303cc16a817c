//! Which signatures there are to be, and the ConfigMap with these in place of all others.

use jiff::Timestamp;

use super::jws::sign;
use super::view::{Token, View};
use coxswain_machinery::api::core::ConfigMap;
use coxswain_machinery::api::kinds::CONFIG_MAPS;
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::words::{count, names, verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Labels, path};

/// The data key of what is signed.
const CONTENT: &str = "kubeconfig";
/// What the data keys of signatures begin with, before the token's id.
const SIGNATURE: &str = "jws-kubeconfig-";

pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    let data = &view.config_map.data;
    let Some(content) = data.get(CONTENT) else { return Plan::default() };
    let signing = signing(view, now);
    let others = data.iter().filter(|(key, _)| !key.starts_with(SIGNATURE));
    let others = others.map(|(key, value)| (key.to_string(), value.to_string()));
    let signatures = signing
        .iter()
        .map(|token| (format!("{SIGNATURE}{}", token.id), sign(content, &token.id, token.secret_part())));
    let wanted: Vec<(String, String)> = others.chain(signatures).collect();
    let mut plan = Plan {
        requeue_after: signing.iter().filter_map(|token| token.expiry.left(now)).min(),
        ..Plan::default()
    };
    let as_labels: Labels = wanted.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    if as_labels == *data {
        return plan;
    }
    // The kept bytes are without data: what is set here is all there is.
    let edits = wanted.into_iter().map(|(key, value)| Edit::MapSet(path!(ConfigMap, data), key, value));
    match edit(&view.config_map.raw, &edits.collect::<Vec<_>>()) {
        Ok(object) => plan.steps.push(Step::Write(Write {
            // It has changed or is gone: the cache will tell.
            tolerate: Tolerate { absent: true, conflict: true, ..Tolerate::default() },
            ..Write::new(&CONFIG_MAPS, Key::of(&view.config_map.metadata), Verb::Update(object.into()))
        })),
        Err(error) => plan.retry = Some(error.to_string()),
    }
    plan
}

/// The tokens that sign now.
fn signing(view: &View, now: Timestamp) -> Vec<&Token> {
    view.tokens.iter().filter(|token| !token.expiry.is_over(now)).collect()
}

/// By whom it is signed, in words.
pub(super) fn reasons(view: &View, now: Timestamp) -> Vec<String> {
    if !view.config_map.data.contains_key(CONTENT) {
        return vec!["The ConfigMap has no kubeconfig to sign; existing signatures are kept.".to_owned()];
    }
    let signing = signing(view, now);
    let over = view.tokens.len() - signing.len();
    let mut told = vec![match signing.len() {
        0 => "No bootstrap token signs the kubeconfig; all signatures are removed.".to_owned(),
        number => format!(
            "{} {} the kubeconfig: {}.",
            count(number, "bootstrap token"),
            verb(number, "signs", "sign"),
            names(signing.iter().map(|token| &token.id))
        ),
    }];
    if over > 0 {
        let (has, does) = (verb(over, "has", "have"), verb(over, "does", "do"));
        told.push(format!(
            "{} for signing {has} expired and {does} not sign.",
            count(over, "bootstrap token")
        ));
    }
    told
}
