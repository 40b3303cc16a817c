//! What each loop sees: migrations from the cache, and definitions, the API's resources and objects as they were read live. Decides
//! nothing.

use std::sync::Arc;

use super::migration::{Turn, is_running, is_terminal, turn};
use super::{Migrator, Runner, Versions};
use crate::live_reads::{MIGRATION_DEFINITION, MIGRATION_DISCOVERY, MIGRATION_PAGE};
use coxswain_machinery::api::kinds::CUSTOM_RESOURCE_DEFINITIONS;
use coxswain_machinery::api::system::{CustomResourceDefinition, StorageVersionMigration};
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::framework::{
    ApiError, ApiResource, DeclaredRead, ObjectPage, Observation, ObserveError, PageQuery, Read, Reads,
};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::{Failure, Key};
use coxswain_machinery::wire::Str;

/// A namespace that can't be: a list of it is empty, and tells the present version all the same. It is the original's.
const NOWHERE: &str = "@fake:svm_ns!";
/// Objects of which the metadata are read at once, and which are one reconcile.
const PAGE: u32 = 500;
/// What must be possible with a resource.
const NEEDED: [&str; 3] = ["update", "patch", "list"];

/// A resource of which something begins or is over.
#[derive(Debug)]
pub(super) struct RunnerView {
    pub(super) turn: Turn,
    /// Its definition, if it is a custom resource.
    pub(super) definition: Option<Arc<CustomResourceDefinition>>,
}

/// A migration that runs and does not know the present version.
#[derive(Debug)]
pub(super) struct VersionView {
    pub(super) migration: Arc<StorageVersionMigration>,
    pub(super) found: Found,
}

/// What came of the question for the present version.
#[derive(Debug)]
pub(super) enum Found {
    /// The API has no such resource.
    Unserved,
    /// This resource can't be migrated.
    Unfit(ApiResource),
    /// The version that a list of this resource has.
    Version(ApiResource, Str),
}

/// A migration that knows the version.
#[derive(Debug)]
pub(super) struct MigratorView {
    pub(super) migration: Arc<StorageVersionMigration>,
    pub(super) progress: Progress,
}

/// How far it has come.
#[derive(Debug)]
pub(super) enum Progress {
    /// The API has no such resource.
    Unserved,
    /// The API server has refused a patch, for this reason.
    Refused(String),
    /// It is at this page.
    Page(Page),
}

/// A page of objects.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) kind: &'static Kind,
    pub(super) objects: Vec<AnyObject>,
    /// Where it begins; empty if it is the first.
    pub(super) after: Str,
    /// The page after it; empty if it is the last.
    pub(super) next: Str,
}

pub(super) fn observe_resource(
    room: &Runner,
    key: &Key,
    read: &Reads,
) -> Result<Observation<RunnerView>, ObserveError> {
    let mut migrations = room.migrations.filed(&key.to_string());
    migrations.sort_by(|one, other| {
        let age = |migration: &StorageVersionMigration| migration.metadata.creation_timestamp;
        (age(one), &one.metadata.name).cmp(&(age(other), &other.metadata.name))
    });
    let Some(turn) = turn(&migrations) else { return Ok(Observation::Nothing) };
    // What has no group is the API server's own.
    if key.namespace.is_empty() {
        return Ok(Observation::View(RunnerView { turn, definition: None }));
    }
    let at = Key::new("", format!("{}.{}", key.name, key.namespace));
    let definition = match read.object(&CUSTOM_RESOURCE_DEFINITIONS, &at) {
        None => {
            return Ok(Observation::Needs(vec![
                MIGRATION_DEFINITION.of(Read::Object(&CUSTOM_RESOURCE_DEFINITIONS, at)),
            ]));
        }
        Some(Err(error)) => return Err(unread(&format!("customresourcedefinition {at}"), error)),
        Some(Ok(found)) => found.cloned().and_then(downcast::<CustomResourceDefinition>),
    };
    Ok(Observation::View(RunnerView { turn, definition }))
}

pub(super) fn observe_version(
    room: &Versions,
    key: &Key,
    read: &Reads,
) -> Result<Observation<VersionView>, ObserveError> {
    let asks = |held: &Arc<StorageVersionMigration>| {
        is_running(held) && !is_terminal(held) && held.status.resource_version.is_empty()
    };
    let Some(migration) = room.migrations.get(key).filter(asks) else { return Ok(Observation::Nothing) };
    let found = |found| Ok(Observation::View(VersionView { migration: Arc::clone(&migration), found }));
    let resource = match search(&migration, read)? {
        Search::Needs(reads) => return Ok(Observation::Needs(reads)),
        Search::Unserved => return found(Found::Unserved),
        Search::Found(resource) => resource,
    };
    if !resource.supports(&NEEDED) {
        return found(Found::Unfit(resource));
    }
    let namespace = if resource.namespaced { NOWHERE } else { "" };
    let query = PageQuery {
        kind: resource.metadata_kind(),
        namespace: namespace.into(),
        limit: 1,
        after: Str::EMPTY,
    };
    match page(query, read)? {
        Listed::Needs(reads) => Ok(Observation::Needs(reads)),
        Listed::Page(page) => found(Found::Version(resource, page.resource_version.clone())),
    }
}

pub(super) fn observe_migration(
    room: &Migrator,
    key: &Key,
    failures: &[Failure],
    read: &Reads,
) -> Result<Observation<MigratorView>, ObserveError> {
    let works =
        |held: &Arc<StorageVersionMigration>| !is_terminal(held) && !held.status.resource_version.is_empty();
    let Some(migration) = room.migrations.get(key).filter(works) else { return Ok(Observation::Nothing) };
    let at = |progress| Ok(Observation::View(MigratorView { migration: Arc::clone(&migration), progress }));
    if !failures.is_empty() {
        // Everything else is tried again, and is nothing to write down.
        let refused = failures.iter().find(|failure| is_refusal(failure));
        return refused
            .map_or(Ok(Observation::Nothing), |refused| at(Progress::Refused(refused.message.clone())));
    }
    let resource = match search(&migration, read)? {
        Search::Needs(reads) => return Ok(Observation::Needs(reads)),
        Search::Unserved => return at(Progress::Unserved),
        Search::Found(resource) => resource,
    };
    let kind = resource.metadata_kind();
    let after = room.positions.page(key, &migration.metadata.uid);
    match page(PageQuery { kind, namespace: Str::EMPTY, limit: PAGE, after: after.clone() }, read)? {
        Listed::Needs(reads) => Ok(Observation::Needs(reads)),
        Listed::Page(page) => {
            let objects = page.objects.metadata().map_err(|error| ObserveError::Retry(error.to_string()))?;
            at(Progress::Page(Page { kind, objects, after, next: page.next.clone() }))
        }
    }
}

/// Whether the API server has refused a patch of an object for good. That it was busy, failed or did not answer says nothing about
/// the object.
pub(super) fn is_refusal(failure: &Failure) -> bool {
    let is_answer = failure.code != 0 && failure.code != 429 && failure.code < 500;
    failure.verb == "patch" && is_answer && !matches!(failure.reason.as_str(), "ServerTimeout" | "Timeout")
}

/// What came of the search for a migration's resource.
enum Search {
    Needs(Vec<DeclaredRead>),
    Unserved,
    Found(ApiResource),
}

/// The resource in the version that the API server names first.
fn search(migration: &StorageVersionMigration, read: &Reads) -> Result<Search, ObserveError> {
    let Some(resources) = read.resources() else {
        return Ok(Search::Needs(vec![MIGRATION_DISCOVERY.of(Read::Resources)]));
    };
    let resources = resources.map_err(|error| unread("API resources", error))?;
    let wanted = &migration.spec.resource;
    let is_wanted = |held: &&ApiResource| held.group == wanted.group && held.resource == wanted.resource;
    if let Some(found) = resources.all().find(is_wanted) {
        return Ok(Search::Found(found.clone()));
    }
    if read.latest_resources().is_none() {
        return Ok(Search::Needs(vec![MIGRATION_DISCOVERY.of(Read::LatestResources)]));
    }
    if resources.has_failed_group(&wanted.group) {
        let error = format!("discovery of the API group {:?} is incomplete", wanted.group.as_str());
        return Err(ObserveError::Retry(error));
    }
    Ok(Search::Unserved)
}

/// What came of a list.
enum Listed<'a> {
    Needs(Vec<DeclaredRead>),
    Page(&'a ObjectPage),
}

/// A page. Where the server has forgotten the state that the pages before were of, it goes on with the present one: what has changed
/// is newer than the version of the migration. A list of a resource that has gone meanwhile is a reason to look for it once more.
fn page(mut query: PageQuery, read: &Reads) -> Result<Listed<'_>, ObserveError> {
    for again in [false, true] {
        if let Some(Err(error)) = read.page(&query)
            && error.is_expired()
            && !query.after.is_empty()
        {
            // What is refused once more leaves but the beginning.
            query.after = if again { Str::EMPTY } else { error.next_page() };
        }
    }
    match read.page(&query) {
        None => Ok(Listed::Needs(vec![MIGRATION_PAGE.of(Read::Page(query))])),
        Some(Ok(page)) => Ok(Listed::Page(page)),
        Some(Err(error)) if error.is_not_found() && read.latest_resources().is_none() => {
            Ok(Listed::Needs(vec![MIGRATION_DISCOVERY.of(Read::LatestResources)]))
        }
        Some(Err(error)) => Err(unread(&format!("a page of {}", query.kind), error)),
    }
}

fn unread(what: &str, error: &ApiError) -> ObserveError {
    ObserveError::Retry(format!("live read of {what} failed: {}", error.message()))
}
