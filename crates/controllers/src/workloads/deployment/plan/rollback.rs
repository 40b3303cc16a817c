//! Rolling back to a revision that an annotation names: its ReplicaSet's template and annotations become the Deployment's,
//! and the annotation goes, also where there is nothing to roll back to.
//!
//! Which revision is the last but one is only known when the present template has its own. So its ReplicaSet comes first,
//! with whatever else [`super::revisions`] has to write, and brings the Deployment back.

use std::collections::BTreeMap;

use super::super::view::RECREATE;
use super::annotations::ROLLBACK_TO;
use super::draft::Draft;
use super::error::Unplannable;
use super::member::Member;
use super::revisions::NOT_INHERITED;
use super::{bytes, revisions, rolling};
use coxswain_machinery::api::kinds::DEPLOYMENTS;
use coxswain_machinery::model::plan::{EventSpec, Regarding, Verb};
use coxswain_machinery::model::template::Template;
use coxswain_machinery::model::{Key, Plan, Step, Write};

/// What becomes of the Deployment.
enum Outcome<'a> {
    To(&'a Member, i64),
    /// It has that template already.
    Unchanged,
    NotFound(&'static str),
}

/// The revision that the annotation names, 0 for the one before the present. (The API server lets nothing else pass.)
pub(super) fn wanted(draft: &Draft<'_>) -> Option<i64> {
    draft.view.deployment.metadata.annotations.get(ROLLBACK_TO)?.parse().ok()
}

/// Plans the writes that must precede the rollback, or else the rollback; the releases in either case.
pub(super) fn roll_back(mut draft: Draft<'_>, to: i64) -> Result<Plan, Unplannable> {
    if draft.new.is_none() {
        // The strategy holds for this one, too: where it is Recreate, it has no pods beside the old ones.
        if draft.spec().strategy.r#type == RECREATE {
            revisions::create(&mut draft);
        } else {
            rolling::create(&mut draft);
        }
        return draft.into_plan();
    }
    let rollback = update(&draft, to)?;
    // They come first, and where a refusal is tolerated they would come first for ever.
    let releases = draft.take_releases();
    let before = draft.into_plan()?;
    let mut plan = if before.steps.is_empty() { rollback } else { before };
    plan.steps.splice(..0, releases.into_iter().map(Step::Write));
    Ok(plan)
}

/// The update of the Deployment, and its event.
fn update(draft: &Draft<'_>, to: i64) -> Result<Plan, Unplannable> {
    let deployment = &draft.view.deployment;
    let event = |warning, reason, message| EventSpec {
        regarding: Regarding::of(&DEPLOYMENTS, &deployment.metadata),
        warning,
        reason,
        message,
    };
    let mut annotations = own(draft, |_| true);
    let (template, event) = match outcome(draft, to)? {
        Outcome::To(member, revision) => {
            annotations = own(draft, |key| NOT_INHERITED.contains(&key));
            let theirs = member.object.metadata.annotations.iter();
            let theirs = theirs.filter(|(key, _)| !NOT_INHERITED.contains(&key.as_str()));
            annotations.extend(theirs.map(|(key, value)| (key.as_str(), value.as_str())));
            let name = &deployment.metadata.name;
            let message = format!("Rolled back deployment {name:?} to revision {revision}");
            let template = Template::unlabeled(&member.object.spec.template)?;
            (Some(template), event(false, "DeploymentRollback", message))
        }
        Outcome::Unchanged => {
            let name = &deployment.metadata.name;
            let message =
                format!("The rollback revision contains the same template as current deployment {name:?}");
            (None, event(true, "DeploymentRollbackTemplateUnchanged", message))
        }
        Outcome::NotFound(message) => {
            (None, event(true, "DeploymentRollbackRevisionNotFound", message.to_owned()))
        }
    };
    annotations.remove(ROLLBACK_TO);
    let body = bytes::rolled_back(deployment, template, &annotations)?;
    let write = Write::new(&DEPLOYMENTS, Key::of(&deployment.metadata), Verb::Update(body.into()));
    Ok(Plan { steps: vec![Step::Write(Write { on_success: Some(event), ..write })], ..Plan::default() })
}

/// Annotations of the Deployment.
fn own<'a>(draft: &Draft<'a>, keep: impl Fn(&str) -> bool) -> BTreeMap<&'a str, &'a str> {
    let all = draft.view.deployment.metadata.annotations.iter();
    all.map(|(key, value)| (key.as_str(), value.as_str())).filter(|(key, _)| keep(key)).collect()
}

fn outcome<'a>(draft: &'a Draft<'_>, to: i64) -> Result<Outcome<'a>, Unplannable> {
    let mut numbered: Vec<(i64, &Member)> =
        draft.members.iter().filter_map(|member| Some((member.revision()?, member))).collect();
    numbered.sort_by_key(|(revision, _)| *revision);
    let found = if to == 0 {
        numbered.iter().rev().nth(1).filter(|(revision, _)| *revision > 0)
    } else {
        numbered.iter().find(|(revision, _)| *revision == to)
    };
    Ok(match found {
        None if to == 0 => Outcome::NotFound("Unable to find last revision."),
        None => Outcome::NotFound("Unable to find the revision to rollback to."),
        Some((_, member)) if draft.template.is_same_as(&member.object.spec.template)? => Outcome::Unchanged,
        Some((revision, member)) => Outcome::To(member, *revision),
    })
}
