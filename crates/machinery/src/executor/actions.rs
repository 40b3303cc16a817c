//! Plans and what came of them, as actions to show to people. Bodies are left out: they may hold secrets. Performs
//! nothing.

use super::Executed;
use crate::api::Kind;
use crate::model::Key;
use crate::model::plan::{Admission, EventSpec, Plan, Step, Verb, Verify, Write};
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
    /// A live read, or a token of a budget.
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

/// What a plan would do, in order: each write, and each step that is none.
pub fn planned(plan: &Plan) -> Vec<ActionState> {
    let mut actions = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Verify(verify) => actions.push(verified(verify)),
            Step::Admit(admission) => actions.push(admitted(admission)),
            Step::Emit(event) => actions.push(emitted(event)),
            Step::Write(_) | Step::Batch(_) | Step::Each(_) | Step::Chains { .. } => {
                actions.extend(step.writes().map(|write| write_action(write, write.to_string())));
            }
        }
    }
    actions
}

/// What a plan did: its actions with their results. Those that were not tried are left out.
pub fn executed(actions: Vec<ActionState>, executed: &Executed) -> Vec<ActionState> {
    let told = actions.into_iter().zip(&executed.results).map(|(mut action, end)| {
        action.result = end.result.clone();
        action.code = end.code;
        if let Some(key) = &end.key {
            action.key = key.clone();
        }
        action
    });
    told.filter(|action| action.result != ActionResult::Planned).collect()
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

fn admitted(admission: &Admission) -> ActionState {
    let Admission { kind, key, budget, .. } = admission;
    ActionState {
        verb: ActionVerb::Verify,
        kind,
        key: key.clone(),
        uid: Uid::default(),
        subresource: "",
        summary: format!("take a token from the rate limiter {budget} for {kind} {key}"),
        result: ActionResult::Planned,
        code: None,
    }
}

/// What a write would do; `summary` is how it is displayed.
pub fn write_action(write: &Write, summary: String) -> ActionState {
    let (verb, uid) = match &write.verb {
        Verb::Create(_) => (ActionVerb::Create, Uid::default()),
        Verb::Update(_) | Verb::UpdateLast(_) | Verb::UpdateFinished { .. } => {
            (ActionVerb::Update, Uid::default())
        }
        Verb::Patch(_) => (ActionVerb::Patch, Uid::default()),
        Verb::Delete { uid, .. } => (ActionVerb::Delete, uid.clone()),
        Verb::DeleteCollection { .. } => (ActionVerb::Delete, Uid::default()),
    };
    ActionState {
        verb,
        kind: write.kind,
        key: write.key.clone(),
        uid,
        subresource: write.subresource,
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
    use crate::executor::ActionEnd;
    use crate::model::live_reads::TEST_READ;
    use crate::model::plan::Expect;

    fn plan() -> Plan {
        let write = |name: &str, verb| Write::new(&PODS, Key::new("ns", name), verb);
        let create = || write("", Verb::Create(Bytes::from_static(b"a secret")));
        Plan {
            steps: vec![
                Step::Verify(Verify {
                    read: &TEST_READ,
                    kind: &REPLICA_SETS,
                    key: Key::new("ns", "rs"),
                    expect: Expect::Absent,
                }),
                Step::Batch(vec![create(), create()]),
                Step::Write(write("old", Verb::delete("u".into()))),
                Step::Write(
                    Write::new(&REPLICA_SETS, Key::new("ns", "rs"), Verb::Update(Bytes::new())).on("status"),
                ),
            ],
            ..Plan::default()
        }
    }

    fn end(result: ActionResult, name: &str) -> ActionEnd {
        ActionEnd { result, code: None, key: Some(Key::new("ns", name)) }
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
    fn results_are_told_by_their_places() {
        let done = |name| end(ActionResult::Done, name);
        let results = vec![
            ActionEnd { result: ActionResult::Done, ..ActionEnd::default() },
            // Two writes that read the same.
            ActionEnd { code: Some(403), ..end(ActionResult::Failed("quota".to_owned()), "") },
            done("b"),
            end(ActionResult::Unneeded, "old"),
            done("rs"),
        ];
        let actions =
            executed(planned(&plan()), &Executed { results: results.clone(), ..Executed::default() });
        assert_eq!(actions.len(), results.len());
        for (action, end) in actions.iter().zip(&results) {
            assert_eq!((&action.result, action.code), (&end.result, end.code));
        }
        assert_eq!((actions[1].key.name.as_str(), actions[2].key.name.as_str()), ("", "b"));
        assert_eq!(actions[4].subresource, "status");
    }

    #[test]
    fn what_was_not_tried_is_not_told() {
        let mut results = vec![ActionEnd::default(); 5];
        results[0].result = ActionResult::Done;
        results[2] = end(ActionResult::Failed("no".to_owned()), "");
        let actions = executed(planned(&plan()), &Executed { results, ..Executed::default() });
        let verbs: Vec<_> = actions.iter().map(|action| action.verb).collect();
        assert_eq!(verbs, [ActionVerb::Verify, ActionVerb::Create]);
        assert_eq!(actions[1].result, ActionResult::Failed("no".to_owned()));
    }
}
