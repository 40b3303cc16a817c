//! Whether a budget's status says what it should, and the bytes of one that does.

use bytes::Bytes;
use jiff::Timestamp;

use super::super::view::View;
use super::count::Count;
use coxswain_machinery::api::kinds::POD_DISRUPTION_BUDGETS;
use coxswain_machinery::api::meta::Condition;
use coxswain_machinery::api::policy::PodDisruptionBudget;
use coxswain_machinery::model::conditions::{self, ConditionFields, Said};
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::{Key, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Time, WireError, path};

const CONDITIONS: ConditionFields = ConditionFields::of::<PodDisruptionBudget>();
/// The condition's type.
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// The update that makes the status say what was counted; `None` when it does already.
pub(super) fn counted(view: &View, count: &Count, now: Timestamp) -> Result<Option<Write>, WireError> {
    let PodDisruptionBudget { metadata, status, .. } = &*view.budget;
    let (is_allowed, reason) =
        if count.allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let is_said = status.disruptions_allowed == count.allowed
        && status.current_healthy == count.healthy
        && status.desired_healthy == count.desired
        && status.expected_pods == count.expected
        && status.observed_generation == metadata.generation
        && count.dropped.is_empty()
        && condition(view).is_some_and(|held| held.status == is_allowed && held.reason == reason);
    if is_said {
        return Ok(None);
    }
    let number = |path, value: i64| Edit::SetVarint(path, value as u64);
    let mut edits = vec![
        number(path!(PodDisruptionBudget, status.observedGeneration), metadata.generation),
        number(path!(PodDisruptionBudget, status.disruptionsAllowed), count.allowed.into()),
        number(path!(PodDisruptionBudget, status.currentHealthy), count.healthy.into()),
        number(path!(PodDisruptionBudget, status.desiredHealthy), count.desired.into()),
        number(path!(PodDisruptionBudget, status.expectedPods), count.expected.into()),
    ];
    let disrupted = path!(PodDisruptionBudget, status.disruptedPods);
    edits.extend(count.dropped.iter().map(|pod| Edit::MapRemove(disrupted, pod.to_string())));
    let said = said(view, is_allowed, reason, "", metadata.generation, now);
    written(view, &edits, said).map(Some)
}

/// The update that lets nobody be evicted for the time being, and says why. All else in the status stays: the other numbers, who
/// is about to be evicted, and the generation. `None` when it says so already.
pub(super) fn closed(view: &View, why: &str, now: Timestamp) -> Result<Option<Write>, WireError> {
    const REASON: &str = "SyncFailed";
    let status = &view.budget.status;
    let is_said = status.disruptions_allowed == 0
        && condition(view)
            .is_some_and(|held| held.status == "False" && held.reason == REASON && held.message == why);
    if is_said {
        return Ok(None);
    }
    let edits = [Edit::SetVarint(path!(PodDisruptionBudget, status.disruptionsAllowed), 0)];
    let said = said(view, "False", REASON, why, status.observed_generation, now);
    written(view, &edits, said).map(Some)
}

fn condition(view: &View) -> Option<&Condition> {
    view.budget.status.conditions.iter().find(|held| held.r#type == DISRUPTION_ALLOWED)
}

/// What the condition is to say. Its time changes with its status.
fn said(
    view: &View,
    status: &'static str,
    reason: &'static str,
    message: &str,
    generation: i64,
    now: Timestamp,
) -> Said {
    let since =
        condition(view).filter(|held| held.status == status).and_then(|held| held.last_transition_time);
    Said {
        kind: DISRUPTION_ALLOWED,
        status,
        reason,
        message: message.to_owned(),
        since: since.unwrap_or_else(|| Time::from(now)),
        checked: None,
        generation: Some(generation),
    }
}

/// The budget's own bytes with these edits and this condition.
fn written(view: &View, edits: &[Edit], said: Said) -> Result<Write, WireError> {
    let object = conditions::set(&edit(&view.budget.raw, edits)?, &CONDITIONS, &[said])?;
    let key = Key::of(&view.budget.metadata);
    Ok(Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&POD_DISRUPTION_BUDGETS, key, Verb::Update(Bytes::from(object))).on("status")
    })
}
