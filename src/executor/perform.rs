//! Performing the steps of a plan.

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::batch::slow_start;
use super::{ActionResult, AnsweredWrite, Effect, ExecuteError, Executed, Executor, WriteEffect};
use crate::api::AnyObject;
use crate::api::meta::ObjectMeta;
use crate::client::{ApiError, DeleteOptions};
use crate::model::Key;
use crate::model::plan::{EventSpec, Expect, Failure, Plan, Step, Tolerate, Verb, Verify, Write};
use crate::telemetry::tracing::child;
use crate::wire::splice::{Edit, edit};
use crate::wire::{Str, Uid};

/// Writes of [`Step::Each`] that go out together.
const EACH_AT_A_TIME: usize = 8;

/// The data key of a service-account token in its secret, at `Secret.data`.
const TOKEN_KEY: &str = "token";
const SECRET_DATA: u32 = 2;

impl Executor {
    /// Performs `plan` until its end or its first failure.
    pub async fn execute(&self, plan: Plan) -> Executed {
        let mut executed = Executed::default();
        for step in plan.steps {
            match step {
                Step::Verify(verify) => {
                    if let Err(error) = self.verify(&verify).await {
                        executed.fail(describe_verify(&verify, &error), error);
                    }
                }
                Step::Write(write) => self.write_one(write, &mut executed).await,
                Step::Batch(writes) => self.write_batch(writes, &mut executed).await,
                Step::Each(writes) => self.write_each(writes, &mut executed).await,
                Step::Emit(event) => self.events.emit(event),
            }
            if executed.error.is_some() {
                break;
            }
        }
        executed
    }

    async fn write_one(&self, write: Write, executed: &mut Executed) {
        let answer = self.timed(&write).await;
        self.settle(write, answer, executed).await;
    }

    async fn write_batch(&self, writes: Vec<Write>, executed: &mut Executed) {
        let mut rest = writes.into_iter();
        for size in slow_start(rest.len()) {
            let group: Vec<Write> = rest.by_ref().take(size).collect();
            let span = batch_span("slow_start", &group);
            let answers = join_all(group.iter().map(|write| self.timed(write))).instrument(span).await;
            for (write, answer) in group.into_iter().zip(answers) {
                self.settle(write, answer, executed).await;
            }
            if executed.error.is_some() {
                break;
            }
        }
    }

    async fn write_each(&self, writes: Vec<Write>, executed: &mut Executed) {
        let span = batch_span("each", &writes);
        let mut answers = stream::iter(writes)
            .map(|write| {
                let span = span.clone();
                async move {
                    let answer = self.timed(&write).instrument(span).await;
                    (write, answer)
                }
            })
            .buffer_unordered(EACH_AT_A_TIME);
        while let Some((write, answer)) = answers.next().await {
            self.settle(write, answer, executed).await;
        }
    }

    async fn verify(&self, verify: &Verify) -> Result<(), ExecuteError> {
        let live = match self.client.get(verify.kind, &verify.key).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        let meta = live.as_ref().map(|object| object.meta());
        let holds = match &verify.expect {
            Expect::Alive(uid) => meta.is_some_and(|meta| meta.uid == *uid && !meta.is_deleting()),
            Expect::Exists(uid) => meta.is_some_and(|meta| meta.uid == *uid),
            Expect::Gone(uid) => meta.is_none_or(|meta| meta.uid != *uid),
            Expect::Absent => meta.is_none(),
        };
        if holds {
            return Ok(());
        }
        let found = meta.map_or_else(
            || "no object".to_owned(),
            |meta| format!("uid {}{}", meta.uid, if meta.is_deleting() { ", being deleted" } else { "" }),
        );
        Err(ExecuteError::Changed {
            what: format!("{} {}", verify.kind, verify.key),
            expected: match &verify.expect {
                Expect::Alive(uid) => format!("uid {uid}, not being deleted"),
                Expect::Exists(uid) => format!("uid {uid}"),
                Expect::Gone(uid) => format!("uid {uid} gone"),
                Expect::Absent => "no object".to_owned(),
            },
            found,
        })
    }

    async fn timed(&self, write: &Write) -> Answer {
        let asked = Instant::now();
        let outcome = self.write(write).await;
        Answer { outcome, took: asked.elapsed() }
    }

    async fn write(&self, write: &Write) -> Result<Done, ExecuteError> {
        let (kind, key) = (write.kind, &write.key);
        match &write.verb {
            Verb::Create(object) => {
                self.client.create(kind, &key.namespace, object).await.map(Done::Stored).map_err(Into::into)
            }
            Verb::Update(object) => {
                self.client.update(kind, key, None, object).await.map(Done::Stored).map_err(Into::into)
            }
            Verb::UpdateWithToken { object, claims } => {
                let signed = self.sign(write, object, claims)?;
                self.client.update(kind, key, None, &signed).await.map(Done::Stored).map_err(Into::into)
            }
            Verb::UpdateSubresource(subresource, object) => self
                .client
                .update(kind, key, Some(subresource), object)
                .await
                .map(Done::Stored)
                .map_err(Into::into),
            Verb::Patch(patch) => {
                self.client.patch(kind, key, None, patch).await.map(Done::Stored).map_err(Into::into)
            }
            Verb::Delete { uid, resource_version, propagation } => {
                let options = DeleteOptions {
                    uid: Some(uid.to_string()),
                    resource_version: resource_version.as_ref().map(Str::to_string),
                    propagation: *propagation,
                    grace_period_seconds: None,
                };
                self.client
                    .delete(kind, key, &options)
                    .await
                    .map(|_| Done::Deleted(uid.clone()))
                    .map_err(Into::into)
            }
            Verb::DeleteCollection { propagation } => {
                let options = DeleteOptions { propagation: *propagation, ..DeleteOptions::default() };
                self.client
                    .delete_collection(kind, &key.namespace, &options)
                    .await
                    .map(|()| Done::Swept)
                    .map_err(Into::into)
            }
        }
    }

    fn sign(
        &self,
        write: &Write,
        object: &[u8],
        claims: &serde_json::Value,
    ) -> Result<Vec<u8>, ExecuteError> {
        let unfit = |why: String| ExecuteError::Unfit { what: write.to_string(), why };
        let signer = self.signer.as_ref().ok_or_else(|| unfit("there is no signing key".to_owned()))?;
        let token = signer.sign(claims).map_err(unfit)?;
        edit(object, &[Edit::MapSetBytes(vec![SECRET_DATA], TOKEN_KEY.to_owned(), token.into_bytes())])
            .map_err(|error| unfit(error.to_string()))
    }

    /// Records what a write did and emits its event.
    async fn settle(&self, write: Write, answer: Answer, executed: &mut Executed) {
        let what = write.to_string();
        self.tell(&write, &what, &answer);
        let (key, change) = match answer.outcome {
            Ok(Done::Stored(object)) => {
                if let Some(event) = write.on_success {
                    self.events.emit(filled(event, "{name}", &object.meta().name));
                }
                (Key::of(object.meta()), stored(object.meta()))
            }
            Ok(Done::Deleted(uid)) => {
                if let Some(event) = write.on_success {
                    self.events.emit(filled(event, "{name}", &write.key.name));
                }
                (write.key, WriteEffect::Deleted(uid))
            }
            Ok(Done::Swept) => (write.key, WriteEffect::Swept),
            Err(ExecuteError::Api(error)) if tolerated(write.tolerate, &write.verb, &error) => {
                (write.key, WriteEffect::Nothing)
            }
            Err(error) => {
                let failure = self.describe_write(&write, &what, &error).await;
                if let Some(event) = write.on_failure {
                    self.events.emit(filled(event, "{error}", &failure.message));
                }
                let ambiguous = matches!(&error, ExecuteError::Api(error) if error.is_ambiguous());
                executed.fail(failure, error);
                if !ambiguous {
                    return;
                }
                (write.key, WriteEffect::Unknown)
            }
        };
        executed.effects.push(Effect { kind: write.kind, key, change, what });
    }

    fn tell(&self, write: &Write, what: &str, answer: &Answer) {
        let Some(writes) = &self.writes else { return };
        let mut written = AnsweredWrite {
            write,
            what,
            key: &write.key,
            code: 200,
            reason: Str::EMPTY,
            result: ActionResult::Done,
            resource_version: Str::EMPTY,
            took: answer.took,
        };
        let stored;
        match &answer.outcome {
            Ok(Done::Stored(object)) => {
                stored = Key::of(object.meta());
                written.key = &stored;
                written.resource_version = object.meta().resource_version.clone();
                if matches!(write.verb, Verb::Create(_)) {
                    written.code = 201;
                }
            }
            Ok(Done::Deleted(_) | Done::Swept) => {}
            Err(ExecuteError::Api(error)) => {
                written.code = error.code();
                written.reason = error.reason().into();
                written.result = if tolerated(write.tolerate, &write.verb, error) {
                    ActionResult::Unneeded
                } else if error.is_ambiguous() {
                    ActionResult::Unknown
                } else {
                    ActionResult::Failed(error.message())
                };
            }
            // Nothing was sent.
            Err(_) => return,
        }
        writes.wrote(&written);
    }

    async fn describe_write(&self, write: &Write, what: &str, error: &ExecuteError) -> Failure {
        let mut failure = describe(write.kind, &write.key, what, error);
        let named_create = matches!(write.verb, Verb::Create(_)) && !write.key.name.is_empty();
        if failure.is_already_exists() && named_create {
            failure.existing = match self.client.get(write.kind, &write.key).await {
                Ok(object) => Some(object),
                Err(error) => {
                    tracing::debug!(what, %error, "the object in the way cannot be read");
                    None
                }
            };
        }
        failure
    }
}

/// What came of a write, and after how long.
struct Answer {
    outcome: Result<Done, ExecuteError>,
    took: Duration,
}

enum Done {
    Stored(AnyObject),
    Deleted(Uid),
    Swept,
}

impl Executed {
    fn fail(&mut self, failure: Failure, error: ExecuteError) {
        self.failures.push(failure);
        self.error.get_or_insert(error);
    }
}

/// The span of writes that go out together, if there is more than one.
fn batch_span(manner: &'static str, writes: &[Write]) -> Span {
    if writes.len() < 2 {
        return Span::none();
    }
    child(|| {
        tracing::debug_span!(
            "batch",
            coxswain.batch.writes = writes.len() as i64,
            coxswain.batch.manner = manner
        )
    })
}

fn tolerated(tolerate: Tolerate, verb: &Verb, error: &ApiError) -> bool {
    // With a UID as its only precondition, a delete meets a conflict when another object bears the name now.
    let on_delete = matches!(verb, Verb::Delete { resource_version: None, .. });
    (tolerate.absent && (error.is_not_found() || on_delete && error.is_conflict()))
        || (tolerate.exists && error.is_already_exists())
        || (tolerate.namespace_terminating && error.has_cause("NamespaceTerminating"))
        || (tolerate.invalid && error.reason() == "Invalid")
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

fn describe_verify(verify: &Verify, error: &ExecuteError) -> Failure {
    describe(verify.kind, &verify.key, &format!("read {} {}", verify.kind, verify.key), error)
}

fn describe(kind: &'static crate::api::Kind, key: &Key, what: &str, error: &ExecuteError) -> Failure {
    let (code, reason, message) = match error {
        ExecuteError::Api(error) => (error.code(), Str::from(error.reason()), error.message()),
        other => (0, Str::EMPTY, other.to_string()),
    };
    Failure { what: what.to_owned(), kind, key: key.clone(), code, reason, message, existing: None }
}

fn filled(mut event: EventSpec, placeholder: &str, value: &str) -> EventSpec {
    if event.message.contains(placeholder) {
        event.message = event.message.replace(placeholder, value);
    }
    event
}
