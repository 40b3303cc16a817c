//! Rules about CronJobs.

use jiff::{SignedDuration, Timestamp};

use super::jobs::has_ended;
use super::{Look, controller_of};
use apiserver_model::text;

/// By how much clocks of managers may be wrong.
const SKEW: SignedDuration = SignedDuration::from_secs(6);

/// A Job is made: there never was another for this time, even if it is gone by now.
pub(super) fn once(look: &Look<'_>) -> Result<(), String> {
    let made = look.memory.activated(look.after());
    if look.makes("jobs") && made > 1 {
        return Err(format!("{} is number {made} for its time", look.named()));
    }
    Ok(())
}

/// A Job is made: its time has come.
pub(super) fn not_early(look: &Look<'_>) -> Result<(), String> {
    if !look.makes("jobs") {
        return Ok(());
    }
    let annotations = &look.after()["metadata"]["annotations"];
    let time = annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"].as_str().unwrap_or_default();
    match time.parse::<Timestamp>() {
        Ok(time) if time <= look.change.at + SKEW + look.memory.ahead => Ok(()),
        _ => Err(format!("{} is made for {time:?}", look.named())),
    }
}

/// A Job is made: where none may run beside another, none does.
pub(super) fn alone(look: &Look<'_>) -> Result<(), String> {
    if !look.makes("jobs") {
        return Ok(());
    }
    let owner = controller_of(look.after());
    let namespace = text(look.after(), "/metadata/namespace");
    let schedule = look.model.look("cronjobs", namespace, text(owner, "/name"));
    if schedule["metadata"]["uid"] != owner["uid"] || schedule["spec"]["concurrencyPolicy"] != "Forbid" {
        return Ok(());
    }
    let uid = text(look.after(), "/metadata/uid");
    let own = look.model.all("jobs", namespace).filter(|job| controller_of(&job.json)["uid"] == owner["uid"]);
    let others = own.filter(|job| text(&job.json, "/metadata/uid") != uid);
    // One that is being deleted is as good as ended.
    let runs = |job: &&std::sync::Arc<apiserver_model::Stored>| {
        !has_ended(&job.json) && job.json["metadata"]["deletionTimestamp"].is_null()
    };
    match others.into_iter().find(runs) {
        Some(other) => Err(format!("{} is made while {} runs", look.named(), other.place.name)),
        None => Ok(()),
    }
}
