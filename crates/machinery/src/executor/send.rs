//! A write's request: its body is completed, it is sent, and its answer is understood.

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::Value;

use super::merge::{NoPatch, merge_patch};
use super::{ExecuteError, Executor, FinishError, WriteEffect};
use crate::api::meta::ObjectMeta;
use crate::api::{AnyObject, Kind};
use crate::client::{ApiError, DeleteOptions};
use crate::model::Key;
use crate::model::plan::{FinishOrder, Patch, Plan, Step, Verb, Write};
use crate::random::HashMap;
use crate::wire::splice::{Edit, edit};
use crate::wire::{Str, Uid};

/// What a write did, by its answer.
pub(super) enum Done {
    /// The object is stored like this.
    Stored(AnyObject),
    /// What was asked of the object was accepted; the answer does not say what became of it.
    Accepted,
    /// The object is gone or going.
    Deleted(Uid),
    /// So is a whole collection.
    Swept,
}

impl Done {
    /// The object as it was answered.
    pub(super) fn object(&self) -> Option<&AnyObject> {
        match self {
            Self::Stored(object) => Some(object),
            Self::Accepted | Self::Deleted(_) | Self::Swept => None,
        }
    }

    pub(super) fn effect(self) -> WriteEffect {
        match self {
            Self::Stored(object) => stored(object.meta()),
            Self::Accepted => WriteEffect::Unknown,
            Self::Deleted(uid) => WriteEffect::Deleted(uid),
            Self::Swept => WriteEffect::Swept,
        }
    }
}

/// The last answers to the writes of one plan, for those that build on them; kept only where there are such.
pub(super) struct LastAnswers(Option<Mutex<HashMap<(&'static Kind, Key), AnyObject>>>);

impl LastAnswers {
    pub(super) fn wanted_by(plan: &Plan) -> Self {
        let mut writes = plan.steps.iter().flat_map(Step::writes);
        let wanted = writes.any(|write| matches!(write.verb, Verb::UpdateLast(_)));
        Self(wanted.then(Mutex::default))
    }

    fn keep(&self, write: &Write, answer: &AnyObject) {
        if let Some(held) = &self.0 {
            held.lock().insert((write.kind, Key::of(answer.meta())), answer.clone());
        }
    }

    fn of(&self, write: &Write) -> Option<AnyObject> {
        self.0.as_ref()?.lock().get(&(write.kind, write.key.clone())).cloned()
    }
}

impl Executor {
    pub(super) async fn send(&self, write: &Write, last: &LastAnswers) -> Result<Done, ExecuteError> {
        let (kind, key) = (write.kind, &write.key);
        if let Some(order) = &write.prepare {
            self.finished(write, &[], order).await.map_err(|error| match error {
                ExecuteError::Unfinished { what, why } => ExecuteError::Unprepared { what, why },
                other => other,
            })?;
        }
        let subresource = (!write.subresource.is_empty()).then_some(write.subresource);
        let stored = match &write.verb {
            Verb::Create(object) => match subresource {
                None => self.client.create(kind, &key.namespace, object).await?,
                Some(subresource) => {
                    return match self.client.post(kind, key, subresource, object).await? {
                        Some(object) => Ok(Done::Stored(object)),
                        None => Ok(Done::Accepted),
                    };
                }
            },
            Verb::Update(object) => self.client.update(kind, key, subresource, object).await?,
            Verb::UpdateLast(edits) => {
                let object = edited(write, last, edits)?;
                self.client.update(kind, key, subresource, &object).await?
            }
            Verb::UpdateFinished { object, order } => {
                let object = self.finished(write, object, order).await?;
                self.client.update(kind, key, subresource, &object).await?
            }
            Verb::Patch(patch @ Patch::Json(operations)) if subresource.is_none() => {
                self.patch_json(write, patch, operations).await?
            }
            Verb::Patch(patch) => self.client.patch(kind, key, subresource, patch).await?,
            Verb::Delete { uid, resource_version, propagation, grace_period } => {
                if uid.is_empty() && resource_version.is_none() {
                    return Err(unfit(
                        write,
                        "the delete has neither a UID nor a resourceVersion as precondition",
                    ));
                }
                let options = DeleteOptions {
                    uid: (!uid.is_empty()).then(|| uid.to_string()),
                    resource_version: resource_version.as_ref().map(Str::to_string),
                    propagation: *propagation,
                    grace_period_seconds: grace_period.map(i64::from),
                };
                let deleted = self.client.delete(kind, key, &options).await?;
                return Ok(Done::Deleted(if uid.is_empty() { deleted.uid } else { uid.clone() }));
            }
            Verb::DeleteCollection { propagation } => {
                let options = DeleteOptions { propagation: *propagation, ..DeleteOptions::default() };
                self.client.delete_collection(kind, &key.namespace, &options).await?;
                return Ok(Done::Swept);
            }
        };
        if write.subresource != "scale" {
            last.keep(write, &stored);
        }
        Ok(Done::Stored(stored))
    }

    /// Sends a JSON patch, or the merge patch with its effect if the server takes no JSON patches: an aggregated one need not, and
    /// kube-controller-manager sends merge patches.
    async fn patch_json(
        &self,
        write: &Write,
        patch: &Patch,
        operations: &Value,
    ) -> Result<AnyObject, ApiError> {
        let (kind, key) = (write.kind, &write.key);
        let error = match self.client.patch(kind, key, None, patch).await {
            Err(error) if error.code() == StatusCode::UNSUPPORTED_MEDIA_TYPE.as_u16() => error,
            patched => return patched,
        };
        let live = self.client.get(kind, key).await?;
        match merge_patch(operations, live.meta()) {
            Ok(patch) => self.client.patch(kind, key, None, &Patch::Merge(patch)).await,
            Err(NoPatch::Unsupported) => Err(error),
            Err(NoPatch::Changed) => Err(ApiError::Refused {
                request: write.to_string(),
                code: StatusCode::CONFLICT.as_u16(),
                reason: "Conflict".into(),
                message: "the object has been modified".to_owned(),
                retry_after: None,
                status: Box::default(),
            }),
        }
    }

    async fn finished(
        &self,
        write: &Write,
        object: &[u8],
        order: &FinishOrder,
    ) -> Result<Vec<u8>, ExecuteError> {
        let Some(finisher) = self.finishers.get(order.finisher) else {
            let why = format!(
                "internal error: the plan names the finisher {}, which is not registered",
                order.finisher
            );
            return Err(unfit(write, why));
        };
        finisher.finish(object, &order.details).await.map_err(|error| match error {
            FinishError::Unfit(why) => unfit(write, why),
            FinishError::Failed(why) => ExecuteError::Unfinished { what: write.to_string(), why },
        })
    }
}

/// The last answer about the object of a write, with these edits.
fn edited(write: &Write, last: &LastAnswers, edits: &[Edit]) -> Result<Vec<u8>, ExecuteError> {
    let Some(answer) = last.of(write) else {
        return Err(unfit(write, "no earlier write of the plan returned the object"));
    };
    let object = answer.raw();
    if object.is_empty() {
        return Err(unfit(write, "the encoding of objects of this kind is not cached"));
    }
    edit(&object, edits).map_err(|error| unfit(write, error.to_string()))
}

fn unfit(write: &Write, why: impl Into<String>) -> ExecuteError {
    ExecuteError::Unfit { what: write.to_string(), why: why.into() }
}

/// What became of an object that the server answered with.
fn stored(meta: &ObjectMeta) -> WriteEffect {
    let version = meta.resource_version.clone();
    if meta.is_deleting() && meta.finalizers.is_empty() {
        WriteEffect::Released(meta.uid.clone(), version)
    } else {
        WriteEffect::Stored(version)
    }
}
