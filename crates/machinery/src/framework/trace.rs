//! What the trace of a reconcile is told beyond what log lines say of it. Costs a look where there are no traces.

use std::fmt;
use std::time::Duration;

use opentelemetry::trace::SpanContext;
use parking_lot::Mutex;
use tracing::Span;
use tracing::field::display;

use super::report::{ReconcileStart, Requeue};
use super::worker::Outcome;
use crate::api::Kind;
use crate::executor::ActionState;
use crate::informer::{Delta, Store};
use crate::model::Key;
use crate::random::HashMap;
use crate::telemetry::tracing::{child, descend, is_on, is_sampled, link, linked, set_attribute, set_failed};

/// The span of a reconcile. Numbers are signed, for the layer of traces makes text of others. Its fields are those of log
/// lines; the rest is for the trace alone.
pub(super) fn span<'a>(turn: &ReconcileStart<'_>, store: impl FnOnce() -> Option<&'a Store>) -> Span {
    let span = tracing::info_span!(
        "reconcile",
        otel.name = tracing::field::Empty,
        controller = turn.controller,
        object = %turn.key,
        attempt = i64::from(turn.attempt.saturating_sub(1)),
        queue_wait_us = turn.queue_wait.as_micros() as i64,
    );
    if !is_on() {
        return span;
    }
    // A span's name can't be changed once it has begun, and whether it is recorded is not known before.
    span.record("otel.name", display(format_args!("reconcile {}", turn.controller)));
    if !is_sampled(&span) {
        return span;
    }
    set_attribute(&span, "coxswain.queue", turn.queue);
    set_attribute(&span, "k8s.object.name", turn.key.name.to_string());
    if !turn.key.namespace.is_empty() {
        set_attribute(&span, "k8s.namespace.name", turn.key.namespace.to_string());
    }
    if let Some(kind) = turn.kind {
        set_attribute(&span, "k8s.object.kind", kind.kind);
        set_attribute(&span, "k8s.object.resource", kind.to_string());
    }
    if let Some(object) = store().and_then(|store| store.get(turn.key)) {
        let meta = object.meta();
        set_attribute(&span, "k8s.object.uid", meta.uid.to_string());
        set_attribute(&span, "k8s.object.resource_version", meta.resource_version.to_string());
    }
    span
}

/// Causes of a reconcile that its span links to; of those after the first few there is nothing new to learn.
const MOST_CAUSES: usize = 4;
/// Keys whose causes are remembered at a time.
const MOST_KEYS: usize = 16_384;

/// The recorded spans of what queued keys, until these are reconciled. Empty where there are no traces.
#[derive(Debug, Default)]
pub(super) struct Causes(Mutex<HashMap<Key, Vec<SpanContext>>>);

impl Causes {
    /// Remembers that `span` queued `key`.
    pub(super) fn add(&self, key: &Key, span: &Span) {
        let Some(cause) = linked(span) else { return };
        let mut causes = self.0.lock();
        if let Some(held) = causes.get_mut(key) {
            if held.len() < MOST_CAUSES {
                held.push(cause);
            }
        } else if causes.len() < MOST_KEYS {
            causes.insert(key.clone(), vec![cause]);
        }
    }

    /// Links the span of a key's reconcile to what queued the key.
    pub(super) fn link(&self, key: &Key, span: &Span) {
        if !is_on() {
            return;
        }
        let causes = self.0.lock().remove(key).unwrap_or_default();
        if is_sampled(span) {
            for cause in causes {
                link(span, cause);
            }
        }
    }
}

/// The spans of keys that wait for caches to see their last writes. Empty where there are no traces.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<HashMap<Key, Span>>);

impl Waits {
    /// A key waits, from the present reconcile on unless it did before. The span is below that reconcile's, which it outlives.
    pub(super) fn begin(&self, key: &Key, kind: &'static Kind) {
        if !is_on() {
            return;
        }
        let mut waits = self.0.lock();
        if waits.contains_key(key) || waits.len() >= MOST_KEYS {
            return;
        }
        let Some(reconcile) = linked(&Span::current()) else { return };
        let wait = tracing::debug_span!(
            parent: None,
            "cache wait",
            otel.name = %format_args!("cache wait {kind}"),
            k8s.object.resource = %kind,
        );
        descend(&wait, reconcile);
        waits.insert(key.clone(), wait);
    }

    /// A key waits no longer: the present reconcile goes on, and links to its wait.
    pub(super) fn end(&self, key: &Key) {
        if !is_on() {
            return;
        }
        if let Some(wait) = self.0.lock().remove(key).as_ref().and_then(linked) {
            link(&Span::current(), wait);
        }
    }
}

/// The wait until a controller's cache of a kind is filled; no span if it is.
pub(super) fn sync(controller: &str, store: &Store, synced: bool) -> Span {
    if synced {
        return Span::none();
    }
    let kind = store.kind();
    child(|| {
        tracing::debug_span!(
            "cache sync",
            otel.name = %format_args!("cache sync {kind}"),
            controller,
            k8s.object.resource = %kind,
        )
    })
}

/// The span of a change that queues keys; a trace of its own, for it concerns many.
pub(super) fn change(kind: &'static Kind, delta: &Delta<'_>) -> Span {
    let meta = delta.latest().map(|object| object.meta());
    tracing::debug_span!(
        parent: None,
        "event",
        otel.name = %format_args!("event {kind}"),
        k8s.object.resource = %kind,
        k8s.namespace.name = meta.map(|meta| &*meta.namespace),
        k8s.object.name = meta.map(|meta| &*meta.name),
        k8s.object.uid = meta.map(|meta| tracing::field::display(&meta.uid)),
        k8s.object.resource_version = meta.map(|meta| &*meta.resource_version),
        coxswain.change = delta.change(),
    )
}

/// Says in the log of `-v=6` what a reconcile is about to do, within its span.
pub(super) fn planned(steps: &[ActionState], requeue_after: Option<Duration>) {
    tracing::trace!(steps = %Summaries(steps), ?requeue_after, "planned");
}

/// Steps for people, one after the other.
struct Summaries<'a>(&'a [ActionState]);

impl fmt::Display for Summaries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (at, step) in self.0.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { "; " }, step.summary)?;
        }
        Ok(())
    }
}

/// How a reconcile ended.
pub(super) fn ended(span: &Span, outcome: &Outcome, requeued: Option<(Requeue, Duration)>) {
    if !is_on() || !is_sampled(span) {
        return;
    }
    let result = match outcome {
        Outcome::Absent => "absent",
        Outcome::Done { .. } => "done",
        Outcome::Waiting(_) => "waiting",
        Outcome::Failed { retry: true, .. } => "failed",
        Outcome::Failed { retry: false, .. } => "failed_for_good",
    };
    set_attribute(span, "coxswain.result", result);
    match outcome {
        Outcome::Done { writes, .. } => set_attribute(span, "coxswain.writes", *writes as i64),
        Outcome::Waiting(kind) => set_attribute(span, "coxswain.stale_cache", kind.to_string()),
        Outcome::Failed { error, .. } => set_failed(span, error.clone()),
        Outcome::Absent => {}
    }
    if let Some((cause, delay)) = requeued {
        let cause = match cause {
            Requeue::Failure => "failure",
            Requeue::Planned => "planned",
            Requeue::StaleCache => "stale_cache",
        };
        set_attribute(span, "coxswain.requeue.cause", cause);
        set_attribute(span, "coxswain.requeue.delay_ms", delay.as_millis() as i64);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use opentelemetry::trace::Status;
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::api::AnyObject;
    use crate::api::kinds::PODS;
    use crate::api::meta::ObjectMeta;
    use crate::api::pod::Pod;
    use crate::model::plan::{Plan, Step, Verb, Write};
    use crate::telemetry::tracing::Tracing;

    fn pod() -> AnyObject {
        let metadata = ObjectMeta {
            namespace: "ns".into(),
            name: "a".into(),
            uid: "u".into(),
            resource_version: "7".into(),
            ..ObjectMeta::default()
        };
        Arc::new(Pod { metadata, ..Pod::default() })
    }

    #[test]
    fn a_reconcile_tells_of_its_object_its_causes_and_its_end() {
        let mut traces = Tracing::unsent(-1);
        let (pod, store) = (pod(), Store::new(&PODS));
        store.replace(vec![Arc::clone(&pod)], "9");
        let (key, causes) = (Key::new("ns", "a"), Causes::default());
        let delta = Delta { old: Some(&pod), new: Some(&pod), initial: false, resync: false };
        let subscriber = Registry::default().with(vec![traces.layer()]);
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..=MOST_CAUSES {
                causes.add(&key, &change(&PODS, &delta));
            }
            let turn = ReconcileStart {
                controller: "pod-controller",
                queue: "pods",
                kind: Some(&PODS),
                key: &key,
                attempt: 3,
                queue_wait: Duration::from_micros(5),
            };
            let span = span(&turn, || Some(&store));
            causes.link(&key, &span);
            let error = "out of luck".to_owned();
            ended(&span, &Outcome::failed(error, true), Some((Requeue::Failure, Duration::from_millis(20))));
            assert!(causes.0.lock().is_empty());
        });
        let mut spans = traces.recorded();
        let reconcile = spans.pop().unwrap();
        assert_eq!(reconcile.name, "reconcile pod-controller");
        assert_eq!(reconcile.status, Status::error("out of luck"));
        let linked: Vec<_> = reconcile.links.iter().map(|link| link.span_context.clone()).collect();
        let changes: Vec<_> = spans.iter().map(|span| span.span_context.clone()).collect();
        assert_eq!(linked, changes[..MOST_CAUSES], "the first few");
        assert!(spans.iter().all(|span| span.name == "event pods"));
        let attribute = |key: &str| {
            let found = reconcile.attributes.iter().find(|pair| pair.key.as_str() == key);
            found.map(|pair| pair.value.to_string()).unwrap_or_default()
        };
        for (key, expected) in [
            ("k8s.object.uid", "u"),
            ("k8s.object.resource_version", "7"),
            ("k8s.object.kind", "Pod"),
            ("attempt", "2"),
            ("queue_wait_us", "5"),
            ("coxswain.result", "failed"),
            ("coxswain.requeue.cause", "failure"),
            ("coxswain.requeue.delay_ms", "20"),
        ] {
            assert_eq!(attribute(key), expected, "{key}");
        }
    }

    #[test]
    fn a_plan_is_said_in_one_line() {
        let write = |name: &str| Write::new(&PODS, Key::new("ns", name), Verb::delete("u".into()));
        let steps = vec![Step::Batch(vec![write("a"), write("b")])];
        let steps = crate::executor::planned(&Plan { steps, ..Plan::default() });
        assert_eq!(Summaries(&steps).to_string(), "delete pods ns/a; delete pods ns/b");
        assert_eq!(Summaries(&[]).to_string(), "nothing");
    }

    #[test]
    fn without_traces_nothing_is_remembered() {
        let (pod, causes) = (pod(), Causes::default());
        let delta = Delta { old: None, new: Some(&pod), initial: false, resync: false };
        causes.add(&Key::new("ns", "a"), &change(&PODS, &delta));
        assert!(causes.0.lock().is_empty());
    }
}
