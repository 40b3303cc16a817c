//! Why the plan for one Deployment is what it is, in words. Decides nothing.

use jiff::Timestamp;

use super::super::view::{RECREATE, View};
use super::bounds::deadline;
use super::claims::Claims;
use super::conditions::{self, PROGRESSING, TIMED_OUT};
use super::draft::Draft;
use super::member::Member;
use super::{rollback, scale};
use coxswain_machinery::model::words::{count, names, verb};

pub(in super::super) fn reasons(view: &View, now: Timestamp) -> Vec<String> {
    if view.selector.is_empty() {
        return vec![
            "The selector is empty and would match every ReplicaSet; the Deployment is ignored.".to_owned(),
        ];
    }
    let claims = Claims::of(view);
    let draft = match Draft::new(view, &claims, now) {
        Ok(draft) => draft,
        Err(error) => return vec![format!("The Deployment cannot be reconciled: {error}.")],
    };
    let mut reasons = vec![counts(&draft)];
    reasons.extend(claims.told());
    if claims.adopts() {
        reasons.push("Further steps follow after that.".to_owned());
        return reasons;
    }
    if view.deployment.metadata.is_deleting() {
        reasons.push("The Deployment is being deleted; its ReplicaSets are not scaled.".to_owned());
        return reasons;
    }
    if draft.spec().paused {
        reasons
            .push("The Deployment is paused; it is scaled, but its template is not rolled out.".to_owned());
        return reasons;
    }
    if rollback::wanted(&draft).is_some() {
        reasons.push(
            "An annotation requests a rollback; the earlier template is written to the Deployment first."
                .to_owned(),
        );
        return reasons;
    }
    if scale::is_due(&draft) {
        reasons.push(
            "spec.replicas has changed; all ReplicaSets are scaled in proportion before the rollout continues."
                .to_owned(),
        );
        return reasons;
    }
    reasons.extend(rollout(&draft));
    reasons.extend(progress(&draft));
    reasons
}

fn counts(draft: &Draft<'_>) -> String {
    let wanted = usize::try_from(draft.bounds.replicas).unwrap_or(0);
    let held: i32 = draft.members.iter().map(|member| member.object.status.replicas).sum();
    let available: i32 = draft.members.iter().map(|member| member.object.status.available_replicas).sum();
    let new = match draft.newest() {
        Some(new) => format!("{} of the current template in {}", new.object.status.replicas, new.name()),
        None => "none of the current template yet".to_owned(),
    };
    format!("{} desired, {held} existing: {new}, {available} available.", count(wanted, "replica"))
}

fn rollout(draft: &Draft<'_>) -> Vec<String> {
    let Some(new) = draft.newest() else {
        return vec!["No ReplicaSet has the current template; one is created.".to_owned()];
    };
    let old: Vec<&Member> = draft.active_old().into_iter().map(|at| &draft.members[at]).collect();
    let mut reasons = Vec::new();
    if draft.spec().strategy.r#type == RECREATE {
        let left = draft.view.running.iter().filter(|uid| **uid != new.object.metadata.uid).count();
        if !old.is_empty() || left > 0 {
            reasons.push(format!(
                "Pods of {} still run; the strategy is Recreate, so pods of the current template are created only \
                 after the old pods are deleted.",
                count(left.max(old.len()), "earlier ReplicaSet")
            ));
        }
    } else if !old.is_empty() {
        reasons.push(format!(
            "{} {} pods of an earlier template; during the rollout, at most {} may exist (maxSurge) and at least {} \
             must be available (maxUnavailable).",
            names(old.iter().map(|member| member.name())),
            verb(old.len(), "has", "have"),
            count(usize::try_from(draft.bounds.most()).unwrap_or(0), "pod"),
            draft.bounds.least_available()
        ));
        let available: i32 = draft.members.iter().map(|member| member.object.status.available_replicas).sum();
        if draft.total() >= draft.bounds.most() && available <= draft.bounds.least_available() {
            reasons.push(
                "The limits maxSurge and maxUnavailable are reached; the next step waits until a new pod is \
                 available."
                    .to_owned(),
            );
        }
    }
    let unobserved: Vec<_> =
        draft.members.iter().filter(|member| !member.is_observed()).map(Member::name).collect();
    if !unobserved.is_empty() {
        reasons.push(format!(
            "{} {} not observed the last change yet.",
            names(&unobserved),
            verb(unobserved.len(), "has", "have")
        ));
    }
    reasons
}

/// Whether it is in time.
fn progress(draft: &Draft<'_>) -> Option<String> {
    let seconds = deadline(draft.spec())?;
    let condition = conditions::get(&draft.status, PROGRESSING)?;
    (condition.reason == TIMED_OUT).then(|| {
        format!("No progress for more than {seconds}s (progressDeadlineSeconds); the rollout continues.")
    })
}
