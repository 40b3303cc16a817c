//! The patches of a page, and the end of a migration.
//!
//! A patch without content changes nothing. But the API server writes the object anew where its stored bytes are not what it would
//! write today.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::super::memory::{Note, Position};
use super::super::migration::{SUCCEEDED, is_young};
use super::super::view::{MigratorView, Page, Progress};
use super::status::{Says, failed, malformed, only, said, waits};
use super::version::is_comparable;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::system::StorageVersionMigration;
use coxswain_machinery::model::plan::{Patch, Tolerate, Verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};

/// Under which name objects are applied. It is the original's, and shows nowhere: nothing is applied.
const FIELD_MANAGER: &str = "storage-version-migrator-controller";
/// Patches that are under way together. What is refused of one is mostly refused of all: the rest is not tried.
const TOGETHER: usize = 8;

pub(in super::super) fn plan(view: &MigratorView, now: Timestamp) -> Plan<Note> {
    let MigratorView { migration, progress } = view;
    match progress {
        Progress::Unserved if is_young(migration, now) => waits(migration).with_note(None),
        Progress::Unserved => fails(migration, "unable to obtain GVR from discovery", now).with_note(None),
        Progress::Refused(why) => Plan { end: true, ..fails(migration, why, now) }.with_note(None),
        Progress::Page(page) => match due(page, &migration.status.resource_version) {
            Ok(objects) => turned(migration, page, &objects, now),
            Err(why) => fails(migration, &why, now).with_note(None),
        },
    }
}

fn fails(migration: &StorageVersionMigration, why: &str, now: Timestamp) -> Plan {
    let message = format!("migration encountered unhandled error: {why}");
    only(migration, failed(migration, message, now))
}

/// The objects of a page that nobody has written since the migration began.
pub(in super::super) fn due<'a>(page: &'a Page, began: &str) -> Result<Vec<&'a ObjectMeta>, String> {
    let comparable = |version: &str| {
        let number = version.parse::<u64>().ok().filter(|_| is_comparable(version));
        number
            .ok_or_else(|| format!("error comparing resource versions: {version:?} is not a positive number"))
    };
    let began = comparable(began)?;
    let mut due = Vec::new();
    for meta in page.objects.iter().map(|object| object.meta()) {
        if comparable(&meta.resource_version)? <= began {
            due.push(meta);
        }
    }
    Ok(due)
}

/// The patches of a page, and what comes after it: the next one, or the end.
fn turned(
    migration: &StorageVersionMigration,
    page: &Page,
    objects: &[&ObjectMeta],
    now: Timestamp,
) -> Plan<Note> {
    let mut steps = Vec::new();
    if let Some((first, others)) = objects.split_first() {
        let patch = |meta: &&ObjectMeta| rewrite(page.kind, meta);
        steps.push(Step::Write(patch(first)));
        steps
            .extend(others.chunks(TOGETHER).map(|together| Step::Each(together.iter().map(patch).collect())));
    }
    if !page.next.is_empty() {
        let position = Position { uid: migration.metadata.uid.clone(), page: page.next.clone() };
        // A server that answers with the page that was asked for leads nowhere.
        let has_more = page.next != page.after;
        let plan = Plan { steps, requeue_after: Some(Duration::ZERO), has_more, ..Plan::default() };
        return plan.with_note(Some(position));
    }
    let says = Says {
        kind: SUCCEEDED,
        status: "True",
        reason: "StorageVersionMigrationSucceeded",
        message: String::new(),
        with_generation: false,
    };
    match said(migration, says, now) {
        Ok(write) => {
            steps.push(Step::Write(write));
            Plan { steps, ..Plan::default() }.with_note(None)
        }
        Err(error) => malformed(migration, &error).with_note(None),
    }
}

/// The patch that says nothing of an object but which one is meant, in which state.
fn rewrite(kind: &'static Kind, meta: &ObjectMeta) -> Write {
    let object = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "metadata": { "uid": meta.uid.to_string(), "resourceVersion": meta.resource_version.as_str() },
    });
    let apply = Verb::Patch(Patch::Apply { manager: FIELD_MANAGER, force: false, object });
    Write {
        // It was written since, or is gone, or is another one: there is nothing left to rewrite.
        tolerate: Tolerate { conflict: true, ..Tolerate::default() },
        ..Write::new(kind, Key::of(meta), apply)
    }
}
