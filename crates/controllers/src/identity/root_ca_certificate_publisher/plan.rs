//! Decides whether the copy must be created or put right.

use super::CONFIG_MAP;
use super::view::View;
use coxswain_machinery::api::core::ConfigMap;
use coxswain_machinery::api::kinds::CONFIG_MAPS;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::{Plan, Step, Tolerate, Verb, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Labels, Message, path};

/// The data key of the bundle.
const BUNDLE_KEY: &str = "ca.crt";
/// The annotation that says what the ConfigMap is for, and the text that the original gives it.
const DESCRIPTION_KEY: &str = "kubernetes.io/description";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";

/// Creates the ConfigMap, or restores its data and description.
pub(super) fn plan(view: &View) -> Plan {
    let mut plan = Plan::default();
    let data: Labels = [(BUNDLE_KEY, view.bundle.as_str())].into_iter().collect();
    let verb = match &view.published {
        None if !view.active => return plan,
        None => Verb::Create(new_config_map(view, data).into()),
        Some(published)
            if published.data == data
                // What somebody has made of it is left.
                && published.metadata.annotations.get(DESCRIPTION_KEY).is_some_and(|text| !text.is_empty()) =>
        {
            return plan;
        }
        Some(published) => match restored(published, view) {
            Ok(object) => Verb::Update(object.into()),
            Err(error) => {
                plan.retry = Some(error.to_string());
                return plan;
            }
        },
    };
    let creates = matches!(verb, Verb::Create(_));
    let mut write = Write::new(&CONFIG_MAPS, Key::new(view.namespace.clone(), CONFIG_MAP), verb);
    write.tolerate = Tolerate { absent: creates, namespace_terminating: creates, ..Tolerate::default() };
    plan.steps.push(Step::Write(write));
    plan
}

fn new_config_map(view: &View, data: Labels) -> Vec<u8> {
    let metadata = ObjectMeta {
        name: CONFIG_MAP.into(),
        namespace: view.namespace.clone(),
        annotations: [(DESCRIPTION_KEY, DESCRIPTION)].into_iter().collect(),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, data, ..ConfigMap::default() }.to_bytes()
}

/// The published ConfigMap with nothing but the bundle as its data. Its kept bytes are without data, see
/// [`CONFIG_MAPS`], so what is set here is all there is.
fn restored(published: &ConfigMap, view: &View) -> Result<Vec<u8>, coxswain_machinery::wire::WireError> {
    edit(
        &published.raw,
        &[
            Edit::MapSet(path!(ConfigMap, data), BUNDLE_KEY.to_owned(), view.bundle.to_string()),
            Edit::MapSet(
                path!(ConfigMap, metadata.annotations),
                DESCRIPTION_KEY.to_owned(),
                DESCRIPTION.to_owned(),
            ),
        ],
    )
}
