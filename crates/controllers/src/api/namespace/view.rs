//! What there is of a namespace that is being deleted, read live. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use super::{Controller, FINALIZER};
use crate::live_reads::{NAMESPACE_CONTENT, NAMESPACE_DISCOVERY, NAMESPACE_ITSELF};
use coxswain_machinery::api::core::EndingNamespace;
use coxswain_machinery::api::kinds::ENDING_NAMESPACES;
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::executor::WriteEffect;
use coxswain_machinery::framework::{
    ApiError, ApiResource, ApiResources, DeclaredRead, Observation, ObserveError, Read, Reads,
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
    /// Deletes of earlier looks of this reconcile that have failed.
    pub(super) failed: Vec<Failure>,
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
    /// Whether it was tried a moment ago to delete what can be deleted of it.
    pub(super) swept: bool,
    pub(super) objects: Found,
}

/// What is known of a kind's objects.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// There are these.
    Objects(Vec<AnyObject>),
    /// The server lists no such objects. Once the collection was deleted there are none, as far as anybody can tell.
    Unlisted,
    /// The list failed, for this reason; whether the server answered at all.
    Failed { why: String, answered: bool },
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
            NAMESPACE_ITSELF.of(Read::Object(&ENDING_NAMESPACES, key.clone())),
            NAMESPACE_DISCOVERY.of(Read::LatestResources),
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
        failed: failures.iter().filter(|failure| is_of_content(failure)).cloned().collect(),
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
        let listed = kinds.iter().filter(|resource| resource.supports(&["list"]));
        let missing: Vec<DeclaredRead> = listed
            .map(|resource| resource.metadata_kind())
            .filter(|kind| read.list(kind, &key.name).is_none())
            .map(|kind| NAMESPACE_CONTENT.of(Read::List(kind, key.name.clone())))
            .collect();
        if !missing.is_empty() {
            return Ok(Observation::Needs(missing));
        }
        let found = kinds.into_iter().filter_map(|resource| content(&view.failed, resource, key, read));
        let found: Vec<Content> = found.collect();
        view.content.extend(found);
        // Linear: the content is a number for each kind of the cluster.
        if view.content.iter().any(|content| view.waits_for(content)) {
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

/// Kinds of objects that are in namespaces and can be deleted: all that there are, or one by one where they are listed.
fn deletable(resources: &ApiResources) -> impl Iterator<Item = &ApiResource> {
    let preferred = resources.preferred().into_iter();
    preferred.filter(|resource| {
        let can = |verb| resource.supports(&[verb]);
        resource.namespaced && can("delete") && (can("list") || can("deletecollection"))
    })
}

fn is_of_content(failure: &Failure) -> bool {
    matches!(failure.verb, "delete" | "deletecollection")
}

fn is_pods(resource: &ApiResource) -> bool {
    resource.group.is_empty() && resource.resource == "pods"
}

/// What was read of a kind, if there is anything that is to be deleted or waited for.
fn content(failed: &[Failure], resource: &ApiResource, key: &Key, read: &Reads) -> Option<Content> {
    let kind = resource.metadata_kind();
    let objects = match read.list(kind, &key.name) {
        Some(Ok(objects)) if objects.is_empty() => return None,
        Some(Ok(objects)) => match objects.metadata() {
            Ok(objects) => Found::Objects(objects),
            Err(error) => Found::Failed { why: error.to_string(), answered: true },
        },
        // The kind can't be listed after all, or has gone meanwhile, and its objects with it. Other answers, such as 406 of a gateway, say
        // nothing about objects.
        Some(Err(error)) if matches!(error.code(), 404 | 405) => Found::Unlisted,
        Some(Err(error)) => Found::Failed { why: ApiError::message(error), answered: error.code() != 0 },
        None => Found::Unlisted,
    };
    let (mut unsupported, mut swept) = (false, failed.iter().any(|failure| failure.kind == kind));
    for effect in
        read.written().iter().filter(|effect| effect.kind == kind && effect.key.namespace == key.name)
    {
        if effect.key.name.is_empty() && effect.change == WriteEffect::Nothing {
            unsupported = true;
        } else {
            swept = true;
        }
    }
    // When pods end must be known: they are not deleted unseen.
    let seen = matches!(objects, Found::Objects(_));
    let at_once = resource.supports(&["deletecollection"]) && !unsupported && (seen || !is_pods(resource));
    let content = Content { kind, at_once, swept, objects };
    let has_gone = matches!(content.objects, Found::Unlisted) && (swept || !at_once);
    (!has_gone).then_some(content)
}

impl View {
    /// Whether all else waits for these: for pods that are there, unless the server refuses to list or to delete them. What
    /// it did not answer says nothing.
    fn waits_for(&self, content: &Content) -> bool {
        match &content.objects {
            Found::Objects(_) => !self.failures_of(content.kind).any(|failure| failure.code != 0),
            Found::Failed { answered, .. } => !answered,
            Found::Unlisted => false,
        }
    }

    /// Deletes of such objects that have failed.
    pub(super) fn failures_of(&self, kind: &Kind) -> impl Iterator<Item = &Failure> {
        self.failed.iter().filter(move |failure| failure.kind == kind)
    }
}
