//! What there is of a namespace that is being deleted, read live. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use super::{Controller, FINALIZER};
use coxswain_machinery::api::core::EndingNamespace;
use coxswain_machinery::api::kinds::ENDING_NAMESPACES;
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::framework::{
    ApiError, ApiResource, ApiResources, Observation, ObserveError, Read, Reads,
};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::{Failure, Key};

/// A namespace whose content is to go.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) namespace: Arc<EndingNamespace>,
    pub(super) discovery: Discovery,
    /// What there is, by kind; of pods alone as long as they go first.
    pub(super) content: Vec<Content>,
    /// What the first plan met; empty on the first pass.
    pub(super) failures: Vec<Failure>,
    pub(super) sync_period: Duration,
}

/// Whether the kinds of objects that the API has are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Discovery {
    /// All of them.
    Whole,
    /// All but those of these group versions, and why.
    Without(Vec<(String, String)>),
    /// None, and why.
    Failed(String),
}

/// What there is of one kind.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) kind: &'static Kind,
    /// Whether the whole collection can be deleted with one request.
    pub(super) at_once: bool,
    /// Whether what could be deleted of it was deleted a moment ago.
    pub(super) swept: bool,
    /// The objects, or why they are not known.
    pub(super) objects: Result<Vec<AnyObject>, String>,
}

pub(super) fn observe(
    room: &Controller,
    key: &Key,
    failures: &[Failure],
    read: &Reads,
) -> Result<Observation<View>, ObserveError> {
    if room.namespaces.get(key).is_none_or(|cached| !cached.metadata.is_deleting()) {
        return Ok(Observation::Nothing);
    }
    let (Some(found), Some(resources)) = (read.object(&ENDING_NAMESPACES, key), read.resources()) else {
        return Ok(Observation::Needs(vec![
            Read::Object(&ENDING_NAMESPACES, key.clone()),
            Read::LatestResources,
        ]));
    };
    let found = found.map_err(|error| ObserveError::Retry(error.to_string()))?;
    let Some(namespace) =
        found.cloned().and_then(downcast::<EndingNamespace>).filter(|found| is_ending(found))
    else {
        return Ok(Observation::Nothing);
    };
    let mut view = View {
        namespace,
        discovery: Discovery::Whole,
        content: Vec::new(),
        failures: failures.to_vec(),
        sync_period: room.sync_period,
    };
    let resources = match resources {
        Ok(resources) => resources,
        Err(error) => {
            view.discovery = Discovery::Failed(error.message());
            return Ok(Observation::View(view));
        }
    };
    view.discovery = discovery(resources);
    let (pods, others): (Vec<&ApiResource>, Vec<&ApiResource>) =
        deletable(resources).partition(|resource| room.pods_first && is_pods(resource));
    for kinds in [pods, others] {
        let missing = kinds.iter().map(|resource| resource.metadata_kind());
        let missing: Vec<Read> = missing
            .filter(|kind| read.list(kind, &key.name).is_none())
            .map(|kind| Read::List(kind, key.name.clone()))
            .collect();
        if !missing.is_empty() {
            return Ok(Observation::Needs(missing));
        }
        view.content.extend(kinds.into_iter().filter_map(|resource| content(resource, key, read)));
        if !view.content.is_empty() {
            break;
        }
    }
    Ok(Observation::View(view))
}

/// Whether it is being deleted and its content is still to be taken care of.
fn is_ending(namespace: &EndingNamespace) -> bool {
    namespace.metadata.is_deleting() && namespace.spec.finalizers.iter().any(|held| held == FINALIZER)
}

fn discovery(resources: &ApiResources) -> Discovery {
    let mut unknown: Vec<(String, String)> =
        resources.failures().map(|failure| (failure.group_version().to_owned(), failure.why())).collect();
    unknown.sort_unstable();
    if unknown.is_empty() { Discovery::Whole } else { Discovery::Without(unknown) }
}

/// Kinds of objects that are in namespaces and can be deleted. What can't be listed is nobody's to see.
fn deletable(resources: &ApiResources) -> impl Iterator<Item = &ApiResource> {
    let preferred = resources.preferred().into_iter();
    preferred.filter(|resource| resource.namespaced && resource.supports(&["delete", "list"]))
}

fn is_pods(resource: &ApiResource) -> bool {
    resource.group.is_empty() && resource.resource == "pods"
}

/// What was read of a kind, if there is anything.
fn content(resource: &ApiResource, key: &Key, read: &Reads) -> Option<Content> {
    let kind = resource.metadata_kind();
    let objects = match read.list(kind, &key.name)? {
        Ok([]) => return None,
        Ok(objects) => Ok(objects.to_vec()),
        // The kind has gone meanwhile, and its objects with it, or can't be listed after all.
        Err(error) if matches!(error.code(), 404 | 405) => return None,
        Err(error) => Err(ApiError::message(error)),
    };
    let at_once = resource.supports(&["deletecollection"]);
    Some(Content { kind, at_once, swept: read.has_written(kind, &key.name), objects })
}
