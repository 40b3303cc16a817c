//! StorageVersions as they were read live, and whose API servers are gone. Decides nothing.

use crate::live_reads::{SERVER_LEASE, SERVER_VERSION, SERVER_VERSIONS};
use coxswain_machinery::api::{IndexKeys, distinct};
use std::sync::Arc;

use super::{NAMESPACE, Versions, is_of_server};
use coxswain_machinery::api::kinds::{IDENTITY_LEASES, STORAGE_VERSIONS};
use coxswain_machinery::api::system::StorageVersion;
use coxswain_machinery::framework::{ApiError, Observation, ObserveError, Read, Reads};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// An API server whose Lease was deleted.
#[derive(Debug)]
pub(super) struct LeaseView {
    /// Its name.
    pub(super) server: Str,
    /// Whether it has a Lease again.
    pub(super) is_back: bool,
    /// The StorageVersions that name it.
    pub(super) versions: Vec<Arc<StorageVersion>>,
}

/// A StorageVersion.
#[derive(Debug)]
pub(super) struct VersionView {
    pub(super) version: Arc<StorageVersion>,
    /// The API servers in it that have no Lease.
    pub(super) gone: Vec<Str>,
}

pub(super) fn observe_lease(key: &Key, read: &Reads) -> Result<Observation<LeaseView>, ObserveError> {
    let server = key.name.clone();
    let at = Key::new(NAMESPACE, server.clone());
    let found = match read.object(&IDENTITY_LEASES, &at) {
        None => return Ok(Observation::Needs(vec![SERVER_LEASE.of(Read::Object(&IDENTITY_LEASES, at))])),
        Some(Err(error)) => return Err(retry(&format!("lease {at}"), error)),
        Some(Ok(found)) => found,
    };
    // Whoever has a Lease of this name now: its entries stay.
    if found.is_some() {
        return Ok(Observation::View(LeaseView { server, is_back: true, versions: Vec::new() }));
    }
    let all = match read.list(&STORAGE_VERSIONS, &Str::EMPTY) {
        None => {
            return Ok(Observation::Needs(vec![
                SERVER_VERSIONS.of(Read::List(&STORAGE_VERSIONS, Str::EMPTY)),
            ]));
        }
        Some(Err(error)) => return Err(retry("storage versions", error)),
        Some(Ok(all)) => all.readable(),
    };
    let names_it = |version: &Arc<StorageVersion>| {
        version.status.storage_versions.iter().any(|entry| entry.api_server_id == server)
    };
    let versions = all.iter().cloned().filter_map(downcast::<StorageVersion>).filter(names_it).collect();
    Ok(Observation::View(LeaseView { server, is_back: false, versions }))
}

pub(super) fn observe_version(
    room: &Versions,
    key: &Key,
    read: &Reads,
) -> Result<Observation<VersionView>, ObserveError> {
    // While the caches know nobody who is gone, there is nothing to read.
    let Some(cached) = room.versions.get(key) else { return Ok(Observation::Nothing) };
    if servers(&cached).iter().all(|server| room.has_lease(server)) {
        return Ok(Observation::View(VersionView { version: cached, gone: Vec::new() }));
    }
    let version = match read.object(&STORAGE_VERSIONS, key) {
        None => {
            return Ok(Observation::Needs(vec![
                SERVER_VERSION.of(Read::Object(&STORAGE_VERSIONS, key.clone())),
            ]));
        }
        Some(Err(error)) => return Err(retry(&format!("storage version {key}"), error)),
        Some(Ok(None)) => return Ok(Observation::Nothing),
        Some(Ok(Some(live))) => live.clone(),
    };
    let Some(version) = downcast::<StorageVersion>(version) else { return Ok(Observation::Nothing) };
    let (mut gone, mut unknown) = (Vec::new(), Vec::new());
    for server in servers(&version) {
        let at = Key::new(NAMESPACE, server.clone());
        match read.object(&IDENTITY_LEASES, &at) {
            None => unknown.push(SERVER_LEASE.of(Read::Object(&IDENTITY_LEASES, at))),
            Some(Err(error)) => return Err(retry(&format!("lease {at}"), error)),
            Some(Ok(Some(lease))) if is_of_server(lease.meta()) => {}
            Some(Ok(_)) => gone.push(server),
        }
    }
    Ok(if unknown.is_empty() {
        Observation::View(VersionView { version, gone })
    } else {
        Observation::Needs(unknown)
    })
}

impl Versions {
    fn has_lease(&self, server: &Str) -> bool {
        let lease = self.leases.get(&Key::new(NAMESPACE, server.clone()));
        lease.is_some_and(|lease| is_of_server(&lease.metadata))
    }
}

/// The API servers that a StorageVersion names, each once.
fn servers(version: &StorageVersion) -> IndexKeys {
    distinct(version.status.storage_versions.iter().map(|entry| entry.api_server_id.clone()))
}

fn retry(what: &str, error: &ApiError) -> ObserveError {
    ObserveError::Retry(format!("live read of {what} failed: {}", error.message()))
}
