//! Controllers for people.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::human::{NONE, age, ago, between, duration, duration_or_none, read_time, second};
use super::names;
use super::sheet::Sheet;
use super::table::table;
use super::{Format, clean};
use crate::admin::proto::{Controller, DesiredState, Override};

const HEADINGS: [&str; 9] =
    ["NAME", "DESIRED", "SOURCE", "PHASE", "HEALTH", "QUEUED", "SYNCS", "ERRORS", "AGE"];
const MORE: [&str; 6] = ["WORKERS", "OLDEST", "CACHED", "RESTARTS", "SERVICE-ACCOUNT", "REASON"];

/// The headings of the table.
pub(in crate::cli) fn headings(format: Format) -> Vec<String> {
    let more: &[&str] = if format.is_wide() { &MORE } else { &[] };
    HEADINGS.iter().chain(more).map(|heading| (*heading).to_owned()).collect()
}

/// A controller's row in the table.
pub(in crate::cli) fn row(controller: &Controller, format: Format, now: Timestamp) -> Vec<String> {
    let mut row = vec![
        clean(&controller.name),
        desired(controller).to_owned(),
        source(controller, now),
        names::phase(controller.phase),
        names::health(controller.health),
        controller.queue_depth.to_string(),
        controller.syncs.to_string(),
        controller.errors.to_string(),
        age(controller.phase_time.as_ref(), now),
    ];
    if format.is_wide() {
        let cached: i64 = controller.watched_resources.iter().map(|watched| watched.cached_objects).sum();
        row.extend([
            controller.workers.to_string(),
            duration_or_none(controller.oldest_queued_age.as_ref()),
            cached.to_string(),
            controller.restarts.to_string(),
            or_none(&controller.service_account),
            or_none(reason(controller)),
        ]);
    }
    row
}

fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { clean(text) }
}

/// Whether it is wanted.
pub(in crate::cli) fn desired(controller: &Controller) -> &'static str {
    word(controller.desired.as_ref().is_some_and(|desired| desired.enabled))
}

fn word(enabled: bool) -> &'static str {
    if enabled { "enabled" } else { "disabled" }
}

fn order(controller: &Controller) -> Option<&Override> {
    controller.desired.as_ref()?.r#override.as_ref()
}

/// Who says so, and for how much longer.
fn source(controller: &Controller, now: Timestamp) -> String {
    let Some(desired) = &controller.desired else { return NONE.to_owned() };
    let source = names::source(desired.source);
    match order(controller).and_then(|order| read_time(order.expire_time.as_ref())) {
        Some(end) => format!("{source} ({} left)", duration(between(now, end))),
        None => source,
    }
}

/// Why it is as it is, if there is anything to say.
fn reason(controller: &Controller) -> &str {
    let order = order(controller).map(|order| order.reason.as_str()).unwrap_or_default();
    let desired = controller.desired.as_ref();
    let invalid = desired.map(|desired| desired.invalid_override.as_str()).unwrap_or_default();
    let ineffective = desired.map(|desired| desired.ineffective_override.as_str()).unwrap_or_default();
    let reasons = [&controller.phase_reason, &controller.health_message, invalid, ineffective, order];
    reasons.into_iter().find(|reason| !reason.is_empty()).unwrap_or_default()
}

/// Everything about a controller.
pub(in crate::cli) fn sheet(controller: &Controller, now: Timestamp) -> String {
    let mut sheet = Sheet::default();
    sheet
        .fact("Name", &controller.name)
        .fact_if("Aliases", controller.aliases.join(", "))
        .fact_if("Description", &controller.description)
        .fact("Enabled by default", yes(controller.enabled_by_default));
    if controller.cloud_provider {
        sheet.fact("Cloud provider", "runs in a cloud controller manager if the cloud provider is external");
    }
    if controller.special_handling {
        sheet.fact("Special handling", "started before the other controllers");
    }
    if controller.critical {
        sheet.fact("Critical", "disabling it for more than 1h or without --for requires --force");
    }
    let gates = controller.required_feature_gates.iter();
    let gates: Vec<_> =
        gates.map(|gate| format!("{} ({})", gate.name, if gate.enabled { "on" } else { "off" })).collect();
    sheet.fact_if("Feature gates", gates.join(", "));
    if let Some(desired) = &controller.desired {
        add_desired(&mut sheet, desired, now);
    }
    sheet
        .fact("Phase", names::phase(controller.phase))
        .fact_if("Phase reason", &controller.phase_reason)
        .fact("Since", ago(controller.phase_time.as_ref(), now))
        .fact("Health", names::health(controller.health))
        .fact_if("Health message", &controller.health_message)
        .fact("Restarts", controller.restarts.to_string())
        .fact("Service account", or_none(&controller.service_account))
        .fact("Workers", controller.workers.to_string())
        .fact("Queued", controller.queue_depth.to_string())
        .fact("Oldest queued", duration_or_none(controller.oldest_queued_age.as_ref()))
        .fact("Syncs", controller.syncs.to_string())
        .fact("Errors", controller.errors.to_string());
    if let Some(error) = &controller.last_error {
        let key = error.object.as_ref().map(super::queues::key).unwrap_or_default();
        sheet.under("Last error", |sheet| {
            sheet.fact("Object", key).fact("Message", &error.message);
            sheet.fact("Time", ago(error.time.as_ref(), now));
        });
    }
    if !controller.watched_resources.is_empty() {
        let rows = controller.watched_resources.iter().map(|watched| {
            vec![
                clean(&watched.resource),
                watched.cached_objects.to_string(),
                yes(watched.synced).to_owned(),
                or_none(&watched.field_selector),
            ]
        });
        sheet.block("Watched resources", &table(&["RESOURCE", "CACHED", "SYNCED", "SELECTOR"], rows));
    }
    sheet.fact("Version", or_none(&controller.version));
    sheet.text()
}

fn add_desired(sheet: &mut Sheet, desired: &DesiredState, now: Timestamp) {
    sheet.fact("Desired", format!("{} by {}", word(desired.enabled), names::source(desired.source)));
    if let Some(order) = &desired.r#override {
        sheet.under("Override", |sheet| {
            sheet
                .fact("By", or_none(&order.user))
                .fact("Set", ago(order.create_time.as_ref(), now))
                .fact_if("Reason", &order.reason);
            if let Some(end) = read_time(order.expire_time.as_ref()) {
                sheet.fact("Ends", format!("{} (in {})", second(end), duration(between(now, end))));
            } else {
                sheet.fact("Ends", "when a request replaces or clears it");
            }
            if order.force {
                sheet.fact("Force", yes(true));
            }
            sheet.fact("Without override", word(desired.enabled_without_override));
        });
    }
    sheet.fact_if("Invalid override", &desired.invalid_override);
    sheet.fact_if("Ineffective override", &desired.ineffective_override);
}

/// Yes or no.
pub(in crate::cli) fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// What a request to enable or disable has come to.
pub(in crate::cli) fn toggled(
    controller: &Controller,
    changed: bool,
    dry_run: bool,
    now: Timestamp,
) -> String {
    let mut line = format!("{} {}", clean(&controller.name), desired(controller));
    if let Some(order) = order(controller) {
        match read_time(order.expire_time.as_ref()) {
            Some(end) => {
                let _ = write!(line, " until {} ({})", second(end), duration(between(now, end)));
            }
            None => line.push_str(" until changed"),
        }
    }
    if !changed {
        line.push_str(", unchanged");
    }
    if dry_run {
        line.push_str(" (dry run)");
    }
    line + "\n"
}
