//! What is left of a StorageVersion without the entries of API servers that are gone, and what follows from that.

use bytes::Bytes;
use coxswain_machinery::api::Among;
use jiff::Timestamp;

use super::view::{LeaseView, VersionView};
use coxswain_machinery::api::kinds::STORAGE_VERSIONS;
use coxswain_machinery::api::system::{ServerStorageVersion, StorageVersion};
use coxswain_machinery::model::conditions::{self, ConditionFields, Said};
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get, retain_items};
use coxswain_machinery::wire::{Message as _, Str, Time, Value, WireError, field, path};

const CONDITIONS: ConditionFields = ConditionFields::of::<StorageVersion>();
const ALL_EQUAL: &str = "AllEncodingVersionsEqual";

pub(super) fn of_lease(view: &LeaseView, now: Timestamp) -> Plan {
    let gone = std::slice::from_ref(&view.server);
    let (mut writes, mut plan) = (Vec::new(), Plan::default());
    for version in &view.versions {
        match without(version, gone, now) {
            Ok(write) => writes.push(write),
            Err(error) => plan.retry = Some(malformed(version, &error)),
        }
    }
    if !writes.is_empty() {
        plan.steps.push(Step::Each(writes));
    }
    plan
}

pub(super) fn of_version(view: &VersionView, now: Timestamp) -> Plan {
    if view.gone.is_empty() {
        return Plan::default();
    }
    match without(&view.version, &view.gone, now) {
        Ok(write) => Plan { steps: vec![Step::Write(write)], ..Plan::default() },
        Err(error) => Plan { retry: Some(malformed(&view.version, &error)), ..Plan::default() },
    }
}

fn malformed(version: &StorageVersion, error: &WireError) -> String {
    format!("storage version {}: {error}", version.metadata.name)
}

/// The version in which all of these store, if they agree.
pub(super) fn common<'a>(entries: impl IntoIterator<Item = &'a ServerStorageVersion>) -> Option<&'a Str> {
    let mut versions = entries.into_iter().map(|entry| &entry.encoding_version);
    let first = versions.next()?;
    versions.all(|version| version == first).then_some(first)
}

/// The write by which the entries of those that are gone leave: an update of what is left, or a delete if nothing is.
fn without(version: &StorageVersion, gone: &[Str], now: Timestamp) -> Result<Write, WireError> {
    let meta = &version.metadata;
    let named = Among::of(gone);
    let stays = |entry: &&ServerStorageVersion| !named.contains(&entry.api_server_id);
    let left: Vec<&ServerStorageVersion> = version.status.storage_versions.iter().filter(stays).collect();
    if left.is_empty() {
        // An API server may have announced itself meanwhile.
        let delete = Verb::delete_as_seen(meta);
        let tolerate = Tolerate { absent: true, ..Tolerate::default() };
        return Ok(Write { tolerate, ..Write::new(&STORAGE_VERSIONS, Key::of(meta), delete) });
    }
    let common = common(left);
    let object = shortened(version, gone, common)?;
    let object = conditions::set(&object, &CONDITIONS, &[said(version, common, now)])?;
    Ok(Write::new(&STORAGE_VERSIONS, Key::of(meta), Verb::Update(object.into())).on("status"))
}

fn shortened(version: &StorageVersion, gone: &[Str], common: Option<&Str>) -> Result<Vec<u8>, WireError> {
    const ENTRIES: u32 = field!(StorageVersion, status.storageVersions);
    let raw = &version.raw.0;
    let status = get(raw, path!(StorageVersion, status))?.map(Value::bytes).transpose()?.unwrap_or_default();
    let gone = Among::of(gone);
    // One that can't be read is of nobody who is gone.
    let stays = |entry: &[u8]| {
        ServerStorageVersion::decode(&Bytes::copy_from_slice(entry))
            .map_or(true, |entry| !gone.contains(&entry.api_server_id))
    };
    let status = retain_items(status, ENTRIES, stays)?;
    let at = path!(StorageVersion, status.commonEncodingVersion);
    let common = match common {
        Some(common) => Edit::set_text(at, common),
        None => Edit::Clear(at),
    };
    edit(raw, &[Edit::SetBytes(path!(StorageVersion, status), status), common])
}

/// Whether all store in one version. The time moves with the status, and when one common version takes the place of another.
fn said(version: &StorageVersion, common: Option<&Str>, now: Timestamp) -> Said {
    let (status, reason, message) = match common {
        Some(_) => ("True", "CommonEncodingVersionSet", "Common encoding version set"),
        None => ("False", "CommonEncodingVersionUnset", "Common encoding version unset"),
    };
    let before = &version.status.common_encoding_version;
    let is_another = common.is_some() && before.is_some() && before.as_ref() != common;
    let held = version.status.conditions.iter().find(|held| held.r#type == ALL_EQUAL);
    let same = held.filter(|held| held.status == status && !is_another);
    Said {
        kind: ALL_EQUAL,
        status,
        reason,
        message: message.to_owned(),
        since: same.and_then(|held| held.last_transition_time).unwrap_or_else(|| Time::from(now)),
        checked: None,
        generation: Some(version.metadata.generation),
    }
}
