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
            "No migration of {} is running; the oldest pending one, {}, starts.",
            resource_key(migration),
            migration.metadata.name
        ),
        Turn::Finish(migration) => {
            format!("{} has ended; the next migration of its resource can start.", migration.metadata.name)
        }
    };
    let definition = view.definition.as_ref().map(|definition| {
        format!("The status of the CustomResourceDefinition {} is updated too.", definition.metadata.name)
    });
    [said].into_iter().chain(definition).collect()
}

pub(super) fn of_version(view: &VersionView, now: Timestamp) -> Vec<String> {
    vec![match &view.found {
        Found::Unserved => unserved(&view.migration, now),
        Found::Unfit(resource) => {
            format!(
                "The resource {} must support list, patch and update, but does not support all three; the \
                 migration fails.",
                resource.resource
            )
        }
        Found::Version(_, version) if is_comparable(version) => {
            format!("The resourceVersion is {version}; objects written after it need no migration.")
        }
        Found::Version(resource, _) => {
            format!("Resource versions of {} cannot be compared; the migration fails.", resource.resource)
        }
    }]
}

pub(super) fn of_migration(view: &MigratorView, now: Timestamp) -> Vec<String> {
    let began = &view.migration.status.resource_version;
    vec![match &view.progress {
        Progress::Unserved => unserved(&view.migration, now),
        Progress::Refused(why) => format!("The API server rejected a patch: {why}. The migration fails."),
        Progress::Page(page) => match due(page, began) {
            Err(why) => format!("Resource versions cannot be compared ({why}); the migration fails."),
            Ok(due) => {
                let all = page.objects.len();
                let then = if page.next.is_empty() { "This is the last page" } else { "More pages follow" };
                format!(
                    "{} of {} on this page {} not newer than version {began} and will be rewritten. {then}.",
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
        format!(
            "The API server does not serve {resource}; the migration fails if this is still the case 1 minute after \
             its creation."
        )
    } else {
        format!(
            "The API server does not serve {resource}, and the migration is older than 1 minute; the migration fails."
        )
    }
}
