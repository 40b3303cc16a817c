//! The conditions of a namespace that is being deleted: what remains of it, and why. Those that say the same as before
//! stay as they are.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;

use super::super::view::{Discovery, Found, View};
use coxswain_machinery::api::core::EndingNamespace;
use coxswain_machinery::api::kinds::ENDING_NAMESPACES;
use coxswain_machinery::model::conditions::{ConditionFields, Said, set};
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::{Key, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{WireError, path};

const CONDITIONS: ConditionFields = ConditionFields::of::<EndingNamespace>();

const TERMINATING: &str = "Terminating";

/// Type, reason and message of a condition while all is well.
struct Well(&'static str, &'static str, &'static str);

const DISCOVERY: Well =
    Well("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered");
/// Never otherwise: what the server calls its groups and versions is taken as it is.
const PARSING: Well = Well(
    "NamespaceDeletionGroupVersionParsingFailure",
    "ParsedGroupVersions",
    "All legacy kube types successfully parsed",
);
const DELETION: Well = Well(
    "NamespaceDeletionContentFailure",
    "ContentDeleted",
    "All content successfully deleted, may be waiting on finalization",
);
const CONTENT: Well = Well("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed");
const FINALIZERS: Well = Well(
    "NamespaceFinalizersRemaining",
    "ContentHasNoFinalizers",
    "All content-preserving finalizers finished",
);

/// The update that makes the conditions say what is the case; `None` when they do already.
pub(super) fn write(view: &View, errors: &[String], now: Timestamp) -> Result<Option<Write>, WireError> {
    let namespace = &view.namespace;
    let mut changed = Vec::new();
    for mut said in all(view, errors, now) {
        // Linear: there are five conditions to say.
        let held = namespace.status.conditions.iter().find(|held| held.r#type == said.kind);
        if held.is_some_and(|held| {
            held.status == said.status && held.reason == said.reason && held.message == said.message
        }) {
            continue;
        }
        let since = held.filter(|held| held.status == said.status).and_then(|held| held.last_transition_time);
        said.since = since.unwrap_or(said.since);
        changed.push(said);
    }
    if changed.is_empty() && namespace.status.phase == TERMINATING {
        return Ok(None);
    }
    let object = set(&namespace.raw, &CONDITIONS, &changed)?;
    let phase = Edit::set_text(path!(EndingNamespace, status.phase), TERMINATING);
    let verb = Verb::Update(Bytes::from(edit(&object, &[phase])?));
    let tolerate = Tolerate { absent: true, ..Tolerate::default() };
    let write = Write::new(&ENDING_NAMESPACES, Key::of(&namespace.metadata), verb).on("status");
    Ok(Some(Write { tolerate, ..write }))
}

/// What every condition has to say.
fn all(view: &View, errors: &[String], now: Timestamp) -> [Said; 5] {
    let say = |Well(kind, reason, message): Well, trouble: Option<(&'static str, String)>| {
        let status = if trouble.is_some() { "True" } else { "False" };
        let (reason, message) = trouble.unwrap_or_else(|| (reason, message.to_owned()));
        Said { kind, status, reason, message, since: now.into(), checked: None, generation: None }
    };
    let discovery = discovery_error(&view.discovery).map(|error| ("DiscoveryFailed", error));
    let deletion = (!errors.is_empty()).then(|| {
        let message =
            format!("Failed to delete all resource types, {} remaining: {}", errors.len(), errors.join(", "));
        ("ContentDeletionFailed", message)
    });
    let (content, finalizers) = remaining(view);
    [
        say(DISCOVERY, discovery),
        say(PARSING, None),
        say(DELETION, deletion),
        say(CONTENT, content.map(|message| ("SomeResourcesRemain", message))),
        say(FINALIZERS, finalizers.map(|message| ("SomeFinalizersRemain", message))),
    ]
}

/// What is wrong with discovery, in the original's words.
pub(super) fn discovery_error(discovery: &Discovery) -> Option<String> {
    match discovery {
        Discovery::Whole => None,
        Discovery::Failed(error) => Some(error.clone()),
        Discovery::Without(unknown) => {
            let each: Vec<String> =
                unknown.iter().map(|(group_version, why)| format!("{group_version}: {why}")).collect();
            Some(format!(
                "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
                unknown.len(),
                each.join(", ")
            ))
        }
    }
}

/// What is said of objects that remain, and of their finalizers.
fn remaining(view: &View) -> (Option<String>, Option<String>) {
    let mut kinds: Vec<String> = Vec::new();
    let mut finalizers: BTreeMap<&str, usize> = BTreeMap::new();
    for content in &view.content {
        let Found::Objects(objects) = &content.objects else { continue };
        let (resource, group) = (content.kind.resource, content.kind.group);
        kinds.push(format!("{resource}.{group} has {} resource instances", objects.len()));
        for finalizer in objects.iter().flat_map(|object| &object.meta().finalizers) {
            *finalizers.entry(finalizer).or_default() += 1;
        }
    }
    kinds.sort_unstable();
    let finalizers: Vec<String> =
        finalizers.into_iter().map(|(name, count)| format!("{name} in {count} resource instances")).collect();
    let said =
        |start: &str, all: Vec<String>| (!all.is_empty()).then(|| format!("{start}: {}", all.join(", ")));
    (
        said("Some resources are remaining", kinds),
        said("Some content in the namespace has finalizers remaining", finalizers),
    )
}
