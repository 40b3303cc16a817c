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
                "The pool {name} has {} of {} slices of generation {}.",
                pool.observed, pool.expected, pool.generation
            )
        })
        .collect();
    if let Some(left) = waits_for(view, now) {
        reasons.push(format!("The request is completed when all slices exist, or in {}.", time(left)));
    } else {
        let (all, told) = (view.pools.len(), told(view).count());
        let driver = &view.request.spec.driver;
        reasons.push(format!(
            "{} of the driver {driver} {} the request; the status lists {told}.",
            count(all, "pool"),
            verb(all, "matches", "match"),
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
        return vec![
            "All requests are kept: each was completed less than 1 hour ago, or has waited for less than 24 hours."
                .to_owned(),
        ];
    }
    let goes = verb(old.len(), "is", "are");
    vec![format!(
        "{} {goes} deleted: completed over 1 hour ago, or not completed within 24 hours.",
        names(old)
    )]
}
