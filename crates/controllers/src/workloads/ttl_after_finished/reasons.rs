//! Why a Job is deleted or waits, in words. Decides nothing.

use std::time::Duration;

use super::view::View;
use coxswain_machinery::model::words::time;

/// `left` is how long it waits; `None` if its time is over.
pub(super) fn reasons(view: &View, left: Option<Duration>) -> Vec<String> {
    let Some(finished_at) = view.finished_at else {
        return vec!["The Job has finished without a finish time, so its TTL cannot start.".to_owned()];
    };
    let ttl = time(Duration::from_secs(u64::try_from(view.ttl_seconds).unwrap_or(0)));
    let what = match left {
        Some(left) => format!("it is deleted in {}", time(left)),
        None => "it is deleted now, its pods first".to_owned(),
    };
    vec![format!(
        "The Job finished at {finished_at} and is kept for {ttl} (ttlSecondsAfterFinished); {what}."
    )]
}
