//! Performing the steps of a plan.
//!
//! Each step and each write has a place in the plan's order, by which its result is told: see [`Executed::results`].

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{BoxFuture, join_all};
use futures::stream;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::batch::slow_start;
use super::send::{Done, LastAnswers};
use super::{ActionEnd, ActionResult, AnsweredWrite, Effect, ExecuteError, Executed, Executor, WriteEffect};
use crate::client::ApiError;
use crate::model::Key;
use crate::model::plan::{
    Chain, EventSpec, Expect, Failure, Plan, Step, Tolerate, UNPREPARED, Verb, Verify, Write,
};
use crate::telemetry::tracing::child;
use crate::wire::Str;

/// Chains of [`Step::Each`] and [`Step::Chains`] that are under way together.
const SIDE_BY_SIDE: usize = 8;

impl Executor {
    /// Performs `plan` until its end, the first failure that ends it, or the first token that is not there.
    pub async fn execute(&self, plan: Plan) -> Executed {
        let round = Round { last: LastAnswers::wanted_by(&plan), withholds_creates: false };
        self.perform(plan, &round).await
    }

    /// Performs `plan` as [`Self::execute`] does, in a namespace that is known to be terminating: a create that tolerates the refusal is not
    /// sent, and ends as if it had been refused.
    pub async fn execute_in_terminating_namespace(&self, plan: Plan) -> Executed {
        let round = Round { last: LastAnswers::wanted_by(&plan), withholds_creates: true };
        self.perform(plan, &round).await
    }

    async fn perform(&self, plan: Plan, round: &Round) -> Executed {
        let mut executed = Executed::before(&plan);
        let mut at = 0;
        for step in plan.steps {
            let next = at + step.len();
            match step {
                Step::Verify(verify) => executed.verified(at, &verify, self.verify(&verify).await),
                Step::Admit(admission) => {
                    executed.admitted(at, self.budgets.take(&admission, Instant::now()));
                }
                Step::Write(write) => executed.add(self.carry_out(at, write, round).await),
                Step::Batch(writes) => {
                    self.slow_start(placed(at, singles(writes)), round, &mut executed).await;
                }
                Step::Each(writes) => {
                    self.side_by_side(placed(at, singles(writes)), round, &mut executed).await;
                }
                Step::Chains { chains, slow_start: true } => {
                    self.slow_start(placed(at, chains), round, &mut executed).await;
                }
                Step::Chains { chains, slow_start: false } => {
                    self.side_by_side(placed(at, chains), round, &mut executed).await;
                }
                Step::Emit(event) => {
                    self.events.emit(event);
                    executed.end(at, ActionEnd { result: ActionResult::Done, ..ActionEnd::default() });
                }
            }
            if executed.stopped || executed.held_back.is_some() {
                break;
            }
            at = next;
        }
        executed
    }

    async fn slow_start(&self, chains: Vec<Placed>, round: &Round, executed: &mut Executed) {
        let mut rest = chains.into_iter();
        for size in slow_start(rest.len()) {
            let group: Vec<Placed> = rest.by_ref().take(size).collect();
            let span = batch_span("slow_start", &group);
            let ended =
                join_all(group.into_iter().map(|chain| self.chain(chain, round))).instrument(span).await;
            ended.into_iter().flatten().for_each(|settled| executed.add(settled));
            if executed.stopped {
                break;
            }
        }
    }

    async fn side_by_side(&self, chains: Vec<Placed>, round: &Round, executed: &mut Executed) {
        let span = batch_span("each", &chains);
        let mut ended = stream::iter(chains)
            .map(|chain| self.chain(chain, round).instrument(span.clone()))
            .buffer_unordered(SIDE_BY_SIDE);
        while let Some(settled) = ended.next().await {
            for settled in settled {
                executed.add(settled);
            }
        }
    }

    /// Carries out writes one after the other, until one fails that the plan does not go on without, and the writes with it are tried; or
    /// until one meets a conflict that is tolerated, for what comes after rests on it; or until one is canceled.
    fn chain<'a>(&'a self, (first, chain): Placed, round: &'a Round) -> BoxFuture<'a, Vec<Settled>> {
        Box::pin(async move {
            let mut ended = Vec::with_capacity(chain.len());
            let mut stops = false;
            for (at, write) in (first..).zip(chain) {
                let with_next = write.with_next;
                let settled = self.carry_out(at, write, round).await;
                stops |= settled.stops() || settled.outdated && !settled.keep_going;
                ended.push(settled);
                if stops && !with_next {
                    break;
                }
            }
            ended
        })
    }

    async fn verify(&self, verify: &Verify) -> Result<(), ExecuteError> {
        let live = match self.client.get(verify.kind, &verify.key).await {
            Ok(object) => Some(object),
            Err(error) if error.is_object_not_found() => None,
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
                Expect::Gone(uid) => format!("uid {uid} deleted"),
                Expect::Absent => "no object".to_owned(),
            },
            found,
        })
    }

    /// Sends a write, emits its event and says what became of it.
    async fn carry_out(&self, at: usize, write: Write, round: &Round) -> Settled {
        if round.withholds_creates
            && write.tolerate.namespace_terminating
            && matches!(write.verb, Verb::Create(_))
        {
            return Settled::withheld(at, write);
        }
        let what = write.to_string();
        if self.epoch.is_over() {
            let error = ExecuteError::Outdated { what };
            let result = ActionResult::Failed(error.to_string());
            let end = ActionEnd { result, code: None, key: None };
            return Settled::failed(at, end, Some(Problem::Canceled(error)), write.keep_going, write.item);
        }
        let asked = Instant::now();
        let outcome = self.send(&write, &round.last).await;
        self.tell(&write, &what, &outcome, asked);
        let (keep_going, item) = (write.keep_going, write.item);
        let (mut outdated, mut meets_terminating) = (false, false);
        let mut end = ActionEnd { result: ActionResult::Done, code: None, key: None };
        let mut answer = None;
        let (key, change, problem) = match outcome {
            Ok(done) => {
                answer = done.object().cloned();
                let key = answer.as_ref().map_or_else(|| write.key.clone(), |object| Key::of(object.meta()));
                if let Some(event) = write.on_success {
                    self.events.emit(filled(event, "{name}", &key.name));
                }
                (key, done.effect(), None)
            }
            Err(ExecuteError::Api(error)) if tolerated(write.tolerate, &write.verb, &error) => {
                end.result = ActionResult::Unneeded;
                outdated = error.is_conflict();
                meets_terminating = error.is_namespace_terminating();
                let is_told = write.tells_absence && error.is_object_not_found();
                if let Some(event) = write.on_success.filter(|_| is_told) {
                    self.events.emit(event);
                }
                (write.key, WriteEffect::Nothing, None)
            }
            Err(error) if error.is_canceled() => {
                end.result = ActionResult::Failed(error.to_string());
                let problem = Some(Problem::Canceled(error));
                return Settled::failed(at, end, problem, keep_going, item);
            }
            Err(error) => {
                let failure = self.describe_write(&write, &what, &error).await;
                if let Some(event) = write.on_failure {
                    self.events.emit(filled(event, "{error}", &failure.message));
                }
                let ambiguous = matches!(&error, ExecuteError::Api(error) if error.is_ambiguous());
                end = failed_end(&failure);
                let problem = Some(Problem::Failed(failure, error));
                if !ambiguous {
                    return Settled::failed(at, end, problem, keep_going, item);
                }
                end.result = ActionResult::Unknown;
                (write.key, WriteEffect::Unknown, problem)
            }
        };
        if problem.is_none() {
            end.key = Some(key.clone());
        }
        let effect = Effect { kind: write.kind, key, subresource: write.subresource, change, answer };
        Settled { at, end, effect: Some(effect), problem, keep_going, item, outdated, meets_terminating }
    }

    fn tell(&self, write: &Write, what: &str, outcome: &Result<Done, ExecuteError>, asked: Instant) {
        let Some(writes) = &self.writes else { return };
        let mut written = AnsweredWrite {
            write,
            what,
            key: &write.key,
            code: 200,
            reason: Str::EMPTY,
            result: ActionResult::Done,
            resource_version: Str::EMPTY,
            took: asked.elapsed(),
        };
        let stored;
        match outcome {
            Ok(done) => {
                if let Some(object) = done.object() {
                    stored = Key::of(object.meta());
                    written.key = &stored;
                    written.resource_version = object.meta().resource_version.clone();
                }
                if matches!(write.verb, Verb::Create(_)) {
                    written.code = 201;
                }
            }
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
        let mut failure = Failure {
            verb: write.verb.name(),
            subresource: write.subresource,
            ..describe(write.kind, &write.key, what, error)
        };
        let named_create = matches!(write.verb, Verb::Create(_)) && !write.key.name.is_empty();
        if failure.is_already_exists() && named_create && write.subresource.is_empty() {
            failure.existing = match self.client.get(write.kind, &write.key).await {
                Ok(object) => Some(object),
                Err(error) => {
                    tracing::debug!(what, %error, "Failed to read the conflicting object");
                    None
                }
            };
        }
        failure
    }
}

/// A chain, and the place of its first write in the plan.
type Placed = (usize, Chain);

fn placed(first: usize, chains: Vec<Chain>) -> Vec<Placed> {
    let mut at = first;
    let mut place = |chain: Chain| {
        let first = at;
        at += chain.len();
        (first, chain)
    };
    chains.into_iter().map(&mut place).collect()
}

fn singles(writes: Vec<Write>) -> Vec<Chain> {
    writes.into_iter().map(|write| vec![write]).collect()
}

/// What became of one write.
struct Settled {
    at: usize,
    end: ActionEnd,
    effect: Option<Effect>,
    problem: Option<Problem>,
    keep_going: bool,
    item: Option<usize>,
    /// Whether another version was met, which is tolerated.
    outdated: bool,
    /// Whether a terminating namespace refused it, which is tolerated, or it was withheld for this reason.
    meets_terminating: bool,
}

/// Settings and answers that all writes of one plan share.
struct Round {
    last: LastAnswers,
    /// Whether creates that tolerate a terminating namespace are not sent.
    withholds_creates: bool,
}

/// Why a write or a check did not succeed.
enum Problem {
    Failed(Failure, ExecuteError),
    /// No [`Failure`] describes it, so no plan can take it for one.
    Canceled(ExecuteError),
}

impl Settled {
    /// A write that had no effect.
    fn failed(
        at: usize,
        end: ActionEnd,
        problem: Option<Problem>,
        keep_going: bool,
        item: Option<usize>,
    ) -> Self {
        Self { at, end, effect: None, problem, keep_going, item, outdated: false, meets_terminating: false }
    }

    /// A create that is not sent, because its namespace is terminating.
    fn withheld(at: usize, write: Write) -> Self {
        let end = ActionEnd { result: ActionResult::Unneeded, ..ActionEnd::default() };
        let Write { kind, key, subresource, keep_going, item, .. } = write;
        let effect = Effect { kind, key, subresource, change: WriteEffect::Nothing, answer: None };
        Self {
            effect: Some(effect),
            meets_terminating: true,
            ..Self::failed(at, end, None, keep_going, item)
        }
    }

    /// Whether it ends its chain and the plan.
    fn stops(&self) -> bool {
        match &self.problem {
            Some(Problem::Canceled(_)) => true,
            Some(Problem::Failed(..)) => !self.keep_going,
            None => false,
        }
    }
}

impl Executed {
    /// Nothing of the plan was tried yet.
    fn before(plan: &Plan) -> Self {
        let count = plan.steps.iter().map(Step::len).sum();
        Self { results: vec![ActionEnd::default(); count], ..Self::default() }
    }

    fn end(&mut self, at: usize, end: ActionEnd) {
        if let Some(held) = self.results.get_mut(at) {
            *held = end;
        }
    }

    fn add(&mut self, settled: Settled) {
        self.stopped |= settled.stops();
        self.outdated |= settled.outdated;
        self.meets_terminating |= settled.meets_terminating;
        self.end(settled.at, settled.end);
        self.effects.extend(settled.effect);
        match settled.problem {
            Some(problem) => self.fail(problem),
            None => self.items.extend(settled.item),
        }
    }

    fn verified(&mut self, at: usize, verify: &Verify, outcome: Result<(), ExecuteError>) {
        let Err(error) = outcome else {
            return self.end(at, ActionEnd { result: ActionResult::Done, ..ActionEnd::default() });
        };
        let what = format!("read {} {}", verify.kind, verify.key);
        let failure = describe(verify.kind, &verify.key, &what, &error);
        self.end(at, failed_end(&failure));
        self.stopped = true;
        self.fail(if error.is_canceled() {
            Problem::Canceled(error)
        } else {
            Problem::Failed(failure, error)
        });
    }

    fn admitted(&mut self, at: usize, outcome: Result<(), Option<Duration>>) {
        let result = match outcome {
            Ok(()) => ActionResult::Done,
            Err(wait) => {
                self.held_back = Some(wait);
                ActionResult::Failed(wait.map_or_else(
                    || "the rate limiter has no tokens".to_owned(),
                    |wait| format!("the rate limiter has its next token in {:.1} s", wait.as_secs_f64()),
                ))
            }
        };
        self.end(at, ActionEnd { result, ..ActionEnd::default() });
    }

    fn fail(&mut self, problem: Problem) {
        match problem {
            Problem::Failed(failure, error) => {
                self.failures.push(failure);
                self.error.get_or_insert(error);
            }
            Problem::Canceled(error) => _ = self.canceled.get_or_insert(error),
        }
    }
}

fn failed_end(failure: &Failure) -> ActionEnd {
    ActionEnd {
        result: ActionResult::Failed(failure.message.clone()),
        code: (failure.code != 0).then_some(failure.code),
        key: None,
    }
}

/// The span of writes that go out together, if there is more than one.
fn batch_span(manner: &'static str, chains: &[Placed]) -> Span {
    let writes: usize = chains.iter().map(|(_, chain)| chain.len()).sum();
    if writes < 2 {
        return Span::none();
    }
    child(|| {
        tracing::debug_span!("batch", coxswain.batch.writes = writes as i64, coxswain.batch.manner = manner)
    })
}

fn tolerated(tolerate: Tolerate, verb: &Verb, error: &ApiError) -> bool {
    // With a UID as its only precondition, a delete meets a conflict when another object bears the name now.
    let on_delete = matches!(verb, Verb::Delete { resource_version: None, .. });
    ((tolerate.absent || tolerate.gone) && error.is_object_not_found())
        || (tolerate.absent && on_delete && error.is_conflict())
        || (tolerate.exists && error.is_already_exists())
        || (tolerate.conflict && error.is_conflict())
        || (tolerate.namespace_terminating && error.is_namespace_terminating())
        || (tolerate.invalid && error.is_invalid())
        || (tolerate.unsupported && matches!(error.code(), 404 | 405))
}

fn describe(kind: &'static crate::api::Kind, key: &Key, what: &str, error: &ExecuteError) -> Failure {
    let (code, reason, message) = match error {
        ExecuteError::Api(error) => (error.code(), known_reason(error), error.message()),
        ExecuteError::Unprepared { why, .. } => (0, UNPREPARED.into(), why.clone()),
        other => (0, Str::EMPTY, other.to_string()),
    };
    Failure {
        what: what.to_owned(),
        verb: "",
        subresource: "",
        kind,
        key: key.clone(),
        code,
        reason,
        message,
        existing: None,
    }
}

/// The reason of an error, as all tests of [`ApiError`] read it.
fn known_reason(error: &ApiError) -> Str {
    match error {
        _ if error.is_conflict() => "Conflict".into(),
        _ if error.is_invalid() => "Invalid".into(),
        _ => error.reason().into(),
    }
}

fn filled(mut event: EventSpec, placeholder: &str, value: &str) -> EventSpec {
    if event.message.contains(placeholder) {
        event.message = event.message.replace(placeholder, value);
    }
    event
}
