//! Why a request is answered, waits or goes, in words. Decides nothing.

use std::sync::Arc;

use jiff::Timestamp;

use super::cleanup::is_old;
use super::plan::{incomplete, told, waits_for};
use super::view::View;
use coxswain_machinery::api::resource::ResourcePoolStatusRequest;
use coxswain_machinery::model::words::{count, names, time, verb};

pub(super) fn of_request(view: &View, now: Timestamp) -> Vec<String> {
    let mut reasons: Vec<String> = incomplete(view)
        .map(|(name, pool)| {
            format!(
                "Of the pool {name} {} of {} slices of generation {} are there.",
                pool.observed, pool.expected, pool.generation
            )
        })
        .collect();
    if let Some(left) = waits_for(view, now) {
        reasons.push(format!("The request is answered when all are there, or in {}.", time(left)));
    } else {
        let (all, told) = (view.pools.len(), told(view).count());
        let driver = &view.request.spec.driver;
        reasons.push(format!(
            "{} of the driver {driver} {} asked about: the answer tells of {told}.",
            count(all, "pool"),
            verb(all, "is", "are"),
        ));
    }
    reasons
}

pub(super) fn of_cleanup(requests: &[Arc<ResourcePoolStatusRequest>], now: Timestamp) -> Vec<String> {
    let old: Vec<&str> = requests
        .iter()
        .filter(|request| is_old(request, now))
        .map(|request| request.metadata.name.as_str())
        .collect();
    if old.is_empty() {
        return vec!["No request was answered an hour ago or has waited for a day: none goes.".to_owned()];
    }
    let goes = verb(old.len(), "goes", "go");
    vec![format!("{} {goes}: answered an hour ago or more, or left without an answer for a day.", names(old))]
}
