//! Why a plan is what it is, in a user's words.

use jiff::Timestamp;

use super::super::view::View;
use super::counts::Counts;
use super::ends::{self, End};
use super::gang::{self, Gang};
use super::indexes::Indexes;
use super::managing::{Managing, wanted};
use super::members::{Members, is_strict};
use super::{after_these, has_known_mode};
use coxswain_machinery::model::words::{count, membership, time, verb};

/// The sentences, the most important first.
pub(in super::super) fn reasons(view: &View, now: Timestamp) -> Vec<String> {
    if let Some(said) = untouched(view) {
        return vec![said];
    }
    let job = &*view.job;
    let members = Members::of(view);
    let indexes = Indexes::of(job, &members);
    let counts = Counts::of(job, &members, indexes.as_ref());
    let end = ends::before_managing(view, &members, indexes.as_ref(), counts, now)
        .or_else(|| ends::after_managing(job, members.active().count(), counts));
    let mut said = match end {
        Some(end) => ending(&end, &members),
        None if job.metadata.is_deleting() => {
            vec!["The Job is being deleted; finished pods are counted, and no pods are created.".to_owned()]
        }
        None if job.spec.suspend => {
            let active = members.active().count();
            let (pods, are) = (count(active, "pod"), verb(active, "is", "are"));
            vec![format!("The Job is suspended; no pod may run, and {pods} {are} deleted.")]
        }
        None => {
            let backoff = after_these(view, &members, indexes.as_ref()).1;
            let indexes = indexes.as_ref();
            running(&Managing { view, members: &members, indexes, counts, backoff, group: None, now })
        }
    };
    if let Gang::Group(group) = gang::decide(view, &members) {
        said.push(format!("The pods of the Job are scheduled together in the PodGroup {group}."));
    }
    said.push(counted(view, counts));
    if let Some(left) = ends::until_deadline(job, now) {
        said.push(format!("The active deadline is reached in {}.", time(left)));
    }
    let has_ended = |member: &&super::members::Member<'_>| {
        member.is_tracked && (member.has_succeeded || member.has_failed)
    };
    let waiting = members.kept.iter().filter(has_ended).count();
    if waiting > 0 {
        let are = verb(waiting, "has finished and is", "have finished and are");
        said.push(format!("{} {are} not counted yet.", count(waiting, "pod")));
    }
    let adopted = members.adopted.iter().map(|pod| pod.metadata.name.as_str());
    let released = members.released.iter().map(|pod| pod.metadata.name.as_str());
    said.extend(membership(adopted, released));
    said
}

/// Why a Job is left alone, if it is.
fn untouched(view: &View) -> Option<String> {
    let job = &view.job;
    if view.is_external() {
        Some(format!(
            "The external controller {} manages this Job; the Job and its pods are ignored.",
            job.spec.managed_by
        ))
    } else if let Some(end) = job.end() {
        Some(format!("The Job is {} ({}); no work is left.", end.r#type, end.reason))
    } else if has_known_mode(job) {
        None
    } else {
        let mode = &job.spec.completion_mode;
        Some(format!("The completion mode {mode:?} is unknown; the Job is ignored."))
    }
}

fn ending(end: &End, members: &Members<'_>) -> Vec<String> {
    let what = if end.is_success { "has succeeded" } else { "has failed" };
    let mut said = vec![format!("The Job {what} ({}): {}.", end.reason, end.message)];
    let (active, terminating) = (members.active().count(), members.terminating());
    if active > 0 {
        let are = verb(active, "still runs and is", "still run and are");
        said.push(format!("{} {are} deleted.", count(active, "pod")));
    }
    if terminating > 0 {
        let are = verb(terminating, "is", "are");
        said.push(format!(
            "{} {are} terminating; the Job is marked as finished when none is left.",
            count(terminating, "pod")
        ));
    }
    said
}

fn running(managing: &Managing<'_, '_>) -> Vec<String> {
    let Managing { view, members, counts, .. } = managing;
    let active = members.active().count();
    let wanted = wanted(&view.job, counts.succeeded, active);
    let mut said =
        vec![format!("{} {}; {wanted} desired.", count(active, "pod"), verb(active, "runs", "run"))];
    let terminating = members.terminating();
    if is_strict(&view.job) && terminating > 0 && active < wanted {
        let are = verb(terminating, "is", "are");
        said.push(format!(
            "{} {are} terminating; a replacement is created after a pod has failed.",
            count(terminating, "pod")
        ));
    }
    if active < wanted
        && let Some(wait) = managing.wait()
    {
        let failures = count(usize::try_from(managing.backoff.failures).unwrap_or(usize::MAX), "pod");
        said.push(format!(
            "{failures} failed since the last success; the next pod is created in {} (backoff).",
            time(wait)
        ));
    }
    said
}

fn counted(view: &View, counts: Counts) -> String {
    let Counts { succeeded, failed } = counts;
    let limit = view.job.spec.backoff_limit.filter(|limit| *limit < i32::MAX);
    let limit = limit.map_or_else(String::new, |limit| format!(" (backoffLimit {limit})"));
    let of = view.job.spec.completions.map_or_else(String::new, |completions| format!(" of {completions}"));
    format!("{succeeded}{of} have succeeded, {failed} have failed{limit}.")
}
