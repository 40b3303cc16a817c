//! Why a migration begins, goes on, waits or ends, in words. Decides nothing.

use jiff::Timestamp;

use super::migration::{Turn, is_young, resource_key};
use super::plan::migrator::due;
use super::plan::version::is_comparable;
use super::view::{Found, MigratorView, Progress, RunnerView, VersionView};
use coxswain_machinery::api::system::StorageVersionMigration;
use coxswain_machinery::model::words::{count, verb};

pub(super) fn of_resource(view: &RunnerView) -> Vec<String> {
    let said = match &view.turn {
        Turn::Start(migration) => format!(
            "No migration of {} is running, and {} is the oldest that has not ended: it begins.",
            resource_key(migration),
            migration.metadata.name
        ),
        Turn::Finish(migration) => {
            format!("{} has ended: the next migration of its resource may begin.", migration.metadata.name)
        }
    };
    let definition = view.definition.as_ref().map(|definition| {
        format!("The definition {} of the resource says so as well.", definition.metadata.name)
    });
    [said].into_iter().chain(definition).collect()
}

pub(super) fn of_version(view: &VersionView, now: Timestamp) -> Vec<String> {
    vec![match &view.found {
        Found::Unserved => unserved(&view.migration, now),
        Found::Unfit(resource) => {
            format!("{} can't be listed, patched and updated: the migration fails.", resource.resource)
        }
        Found::Version(_, version) if is_comparable(version) => {
            format!("The API is at version {version}: what is written from now on needs no rewriting.")
        }
        Found::Version(resource, _) => {
            format!("Versions of {} can't be compared: the migration fails.", resource.resource)
        }
    }]
}

pub(super) fn of_migration(view: &MigratorView, now: Timestamp) -> Vec<String> {
    let began = &view.migration.status.resource_version;
    vec![match &view.progress {
        Progress::Unserved => unserved(&view.migration, now),
        Progress::Refused(why) => format!("A patch was refused: {why}. The migration fails."),
        Progress::Page(page) => match due(page, began) {
            Err(why) => format!("Versions can't be compared ({why}): the migration fails."),
            Ok(due) => {
                let all = page.objects.len();
                let then = if page.next.is_empty() { "Then it has succeeded" } else { "Others follow" };
                format!(
                    "{} of {} on this page {} not newer than version {began}: they are written anew. {then}.",
                    due.len(),
                    count(all, "object"),
                    verb(due.len(), "is", "are"),
                )
            }
        },
    }]
}

fn unserved(migration: &StorageVersionMigration, now: Timestamp) -> String {
    let resource = resource_key(migration);
    if is_young(migration, now) {
        format!("The API has no {resource}: it is waited for until the migration is a minute old.")
    } else {
        format!("The API has no {resource}, and the migration is older than a minute: it fails.")
    }
}
