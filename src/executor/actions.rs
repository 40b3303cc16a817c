//! Plans and what came of them, as actions to show to people. Bodies are left out: they may hold secrets. Performs
//! nothing.

use super::{Executed, WriteEffect};
use crate::api::Kind;
use crate::model::Key;
use crate::model::plan::{EventSpec, Plan, Step, Verb, Verify, Write};
use crate::wire::Uid;

/// One step that a controller took, or would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionState {
    /// What sort of step.
    pub verb: ActionVerb,
    /// Kind of the object.
    pub kind: &'static Kind,
    /// The object.
    pub key: Key,
    /// Its UID, or empty.
    pub uid: Uid,
    /// Subresource, or empty.
    pub subresource: &'static str,
    /// The step for people.
    pub summary: String,
    /// What became of it.
    pub result: ActionResult,
    /// HTTP status of the answer by which it failed.
    pub code: Option<u16>,
}

impl ActionState {
    /// How an object of this kind was changed, as metrics name it: `create`, `update` or `delete`; `None` if none was.
    pub fn changed(&self, kind: &Kind) -> Option<&'static str> {
        let operation = match self.verb {
            ActionVerb::Create => "create",
            ActionVerb::Update | ActionVerb::Patch => "update",
            ActionVerb::Delete => "delete",
            ActionVerb::Verify | ActionVerb::Event => return None,
        };
        (self.kind == kind && self.result == ActionResult::Done).then_some(operation)
    }
}

/// Sorts of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionVerb {
    /// A live read.
    Verify,
    /// A create.
    Create,
    /// A replacement.
    Update,
    /// A patch.
    Patch,
    /// A delete.
    Delete,
    /// A Kubernetes Event.
    Event,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionResult {
    /// Planned only.
    Planned,
    /// Carried out.
    Done,
    /// Nothing was left to do.
    Unneeded,
    /// It failed, and why.
    Failed(String),
    /// No answer came.
    Unknown,
}

/// What a plan would do, in order.
pub fn planned(plan: &Plan) -> Vec<ActionState> {
    let mut actions = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Verify(verify) => actions.push(verified(verify)),
            Step::Write(write) => actions.push(write_action(write, write.to_string())),
            Step::Batch(writes) | Step::Each(writes) => {
                actions.extend(writes.iter().map(|write| write_action(write, write.to_string())));
            }
            Step::Emit(event) => actions.push(emitted(event)),
        }
    }
    actions
}

/// What a plan did: its actions with their results. Steps after the one that failed were not tried and are left out.
pub fn executed(mut actions: Vec<ActionState>, executed: &Executed) -> Vec<ActionState> {
    let mut effects: Vec<_> = executed.effects.iter().collect();
    let mut failures: Vec<_> = executed.failures.iter().collect();
    for action in &mut actions {
        let failed = failures.iter().position(|failure| failure.what == action.summary);
        let done = effects.iter().position(|effect| effect.what == action.summary);
        action.result = match (failed, done) {
            // A lost answer is a failure and an effect.
            (Some(failed), done) => {
                let failure = failures.remove(failed);
                action.code = (failure.code != 0).then_some(failure.code);
                let error = failure.message.clone();
                match done.map(|done| effects.remove(done)) {
                    Some(effect) if effect.change == WriteEffect::Unknown => ActionResult::Unknown,
                    _ => ActionResult::Failed(error),
                }
            }
            (None, Some(done)) => {
                let effect = effects.remove(done);
                if action.key.name.is_empty() {
                    action.key = effect.key.clone();
                }
                match effect.change {
                    WriteEffect::Stored(_)
                    | WriteEffect::Released(..)
                    | WriteEffect::Deleted(_)
                    | WriteEffect::Swept => ActionResult::Done,
                    WriteEffect::Nothing => ActionResult::Unneeded,
                    WriteEffect::Unknown => ActionResult::Unknown,
                }
            }
            (None, None) => match action.verb {
                ActionVerb::Verify | ActionVerb::Event => ActionResult::Done,
                _ => ActionResult::Planned,
            },
        };
    }
    if executed.error.is_some() {
        let last = actions
            .iter()
            .rposition(|action| matches!(action.result, ActionResult::Failed(_) | ActionResult::Unknown));
        actions.truncate(last.map_or(actions.len(), |last| last + 1));
        actions.retain(|action| action.result != ActionResult::Planned);
    }
    actions
}

fn verified(verify: &Verify) -> ActionState {
    ActionState {
        verb: ActionVerb::Verify,
        kind: verify.kind,
        key: verify.key.clone(),
        uid: Uid::default(),
        subresource: "",
        summary: format!("read {} {}", verify.kind, verify.key),
        result: ActionResult::Planned,
        code: None,
    }
}

/// What a write would do; `summary` is how it is displayed.
pub fn write_action(write: &Write, summary: String) -> ActionState {
    let (verb, subresource, uid) = match &write.verb {
        Verb::Create(_) => (ActionVerb::Create, "", Uid::default()),
        Verb::Update(_) | Verb::UpdateWithToken { .. } => (ActionVerb::Update, "", Uid::default()),
        Verb::UpdateSubresource(subresource, _) => (ActionVerb::Update, *subresource, Uid::default()),
        Verb::Patch(_) => (ActionVerb::Patch, "", Uid::default()),
        Verb::Delete { uid, .. } => (ActionVerb::Delete, "", uid.clone()),
        Verb::DeleteCollection { .. } => (ActionVerb::Delete, "", Uid::default()),
    };
    ActionState {
        verb,
        kind: write.kind,
        key: write.key.clone(),
        uid,
        subresource,
        summary,
        result: ActionResult::Planned,
        code: None,
    }
}

fn emitted(event: &EventSpec) -> ActionState {
    ActionState {
        verb: ActionVerb::Event,
        kind: event.regarding.kind,
        key: event.regarding.key.clone(),
        uid: event.regarding.uid.clone(),
        subresource: "",
        summary: format!(
            "event {} on {} {}: {}",
            event.reason, event.regarding.kind, event.regarding.key, event.message
        ),
        result: ActionResult::Planned,
        code: None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::api::kinds::{PODS, REPLICA_SETS};
    use crate::executor::{Effect, ExecuteError};
    use crate::model::plan::{Expect, Failure};

    fn plan() -> Plan {
        let write = |name: &str, verb| Write::new(&PODS, Key::new("ns", name), verb);
        let create = || write("", Verb::Create(Bytes::from_static(b"a secret")));
        Plan {
            steps: vec![
                Step::Verify(Verify {
                    kind: &REPLICA_SETS,
                    key: Key::new("ns", "rs"),
                    expect: Expect::Absent,
                }),
                Step::Batch(vec![create(), create()]),
                Step::Write(write(
                    "old",
                    Verb::Delete { uid: "u".into(), resource_version: None, propagation: None },
                )),
                Step::Write(Write::new(
                    &REPLICA_SETS,
                    Key::new("ns", "rs"),
                    Verb::UpdateSubresource("status", Bytes::new()),
                )),
            ],
            ..Plan::default()
        }
    }

    fn effect(what: &str, name: &str, change: WriteEffect) -> Effect {
        Effect { kind: &PODS, key: Key::new("ns", name), change, what: what.to_owned() }
    }

    #[test]
    fn a_plan_is_told_without_its_bodies() {
        let actions = planned(&plan());
        let summaries: Vec<_> = actions.iter().map(|action| action.summary.as_str()).collect();
        assert_eq!(
            summaries,
            [
                "read replicasets.apps ns/rs",
                "create pods ns/",
                "create pods ns/",
                "delete pods ns/old",
                "update replicasets.apps/status ns/rs",
            ]
        );
        assert!(actions.iter().all(|action| action.result == ActionResult::Planned));
        assert!(!format!("{actions:?}").contains("secret"));
    }

    #[test]
    fn results_find_their_actions() {
        let done = Executed {
            effects: vec![
                effect("create pods ns/", "a", WriteEffect::Stored("1".into())),
                effect("create pods ns/", "b", WriteEffect::Stored("2".into())),
                effect("delete pods ns/old", "old", WriteEffect::Nothing),
                effect("update replicasets.apps/status ns/rs", "rs", WriteEffect::Stored("3".into())),
            ],
            ..Executed::default()
        };
        let actions = executed(planned(&plan()), &done);
        let results: Vec<_> = actions.iter().map(|action| action.result.clone()).collect();
        assert_eq!(
            results,
            [
                ActionResult::Done,
                ActionResult::Done,
                ActionResult::Done,
                ActionResult::Unneeded,
                ActionResult::Done,
            ]
        );
        assert_eq!((actions[1].key.name.as_str(), actions[2].key.name.as_str()), ("a", "b"));
    }

    #[test]
    fn what_came_after_a_failure_is_not_told() {
        let failure = Failure {
            what: "delete pods ns/old".to_owned(),
            kind: &PODS,
            key: Key::new("ns", "old"),
            code: 403,
            reason: "Forbidden".into(),
            message: "no".to_owned(),
            existing: None,
        };
        let done = Executed {
            effects: vec![
                effect("create pods ns/", "a", WriteEffect::Stored("1".into())),
                effect("create pods ns/", "b", WriteEffect::Stored("2".into())),
            ],
            failures: vec![failure],
            error: Some(ExecuteError::Unfit { what: String::new(), why: String::new() }),
        };
        let actions = executed(planned(&plan()), &done);
        assert_eq!(actions.len(), 4);
        assert_eq!(actions[3].result, ActionResult::Failed("no".to_owned()));
        assert_eq!(
            actions.iter().map(|action| action.code).collect::<Vec<_>>(),
            [None, None, None, Some(403)]
        );
    }
}
