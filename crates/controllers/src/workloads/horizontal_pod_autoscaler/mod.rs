//! `HorizontalPodAutoscalers`: as many replicas of a target as its metrics ask for, within bounds.
//!
//! The room observes an autoscaler with the scale of its target, the answers of metrics APIs ([`queries`], [`answers`]), the pods
//! and what it remembers ([`memory`]), and decides how many replicas there are to be and what the status says ([`plan`]). See
//! "Horizontal Pod Autoscaling" in the Kubernetes documentation, and KEPs 117 (selectors of metrics), 853 (behavior), 1610
//! (resources of containers), 2021 (scale to zero), 2702 (`autoscaling/v2`), 2837 (resources of pods) and 4951 (tolerance).
//!
//! | change of | keys |
//! |---|---|
//! | an autoscaler that is new or has another spec | its own, a second later |
//! | an autoscaler otherwise, its own status included | its own, one period later, or when it is due anyway |
//! | none: a period is over | the autoscaler's |
//!
//! A reconcile is: read the scale, read the metrics, scale the target, write the status once, telling what became of it. Whatever
//! fails, the next look comes a period later: nothing is tried again earlier, and nothing later.
//!
//! It scales by the subresource `scale` alone, whatever the kind; the resource version that it read goes with it. It never
//! reads or writes the target itself, and never touches a pod.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use coxswain_machinery::api::autoscaling::HorizontalPodAutoscaler;
use coxswain_machinery::api::kinds::{HORIZONTAL_POD_AUTOSCALERS, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::{Delta, Labeled, Lister};
use coxswain_machinery::model::clock::SteadyClock;
use coxswain_machinery::model::{Failure, Key, Plan};

mod answers;
mod draft;
mod history;
mod memory;
mod metrics;
mod plan;
mod proposal;
mod queries;
mod selectors;
mod settings;
mod spec;
#[cfg(test)]
mod tests;
mod view;

use draft::Note;
use memory::Remembering;
use metrics::Metrics;
use settings::Settings;
use view::View;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "horizontal-pod-autoscaler-controller",
    aliases: &["horizontalpodautoscaling"],
    description: "Scales workloads by the metrics of their HorizontalPodAutoscaler.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("horizontal-pod-autoscaler"),
    event_source: Some("horizontal-pod-autoscaler"),
    writes: &[
        Grant {
            group: "autoscaling",
            resource: "horizontalpodautoscalers",
            verbs: &["get", "list", "watch"],
        },
        Grant { group: "autoscaling", resource: "horizontalpodautoscalers/status", verbs: &["update"] },
        Grant { group: "*", resource: "*/scale", verbs: &["get", "update"] },
        Grant { group: "", resource: "pods", verbs: &["list", "watch"] },
        Grant { group: "metrics.k8s.io", resource: "pods", verbs: &["list"] },
        Grant { group: "custom.metrics.k8s.io", resource: "*", verbs: &["get", "list"] },
        Grant { group: "external.metrics.k8s.io", resource: "*", verbs: &["get", "list"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let autoscalers = build.watch::<HorizontalPodAutoscaler>(&HORIZONTAL_POD_AUTOSCALERS);
    let pods = build.watch::<Pod>(&PODS);
    let settings = Settings::of(build.config, build.gate);
    let remembering = Arc::new(Remembering::default());
    let metrics = Metrics::register(build.metrics, Arc::clone(&remembering))
        .map_err(|error| BuildError::Invalid(error.to_string()))?;
    let room = Controller {
        autoscalers: autoscalers.lister(),
        pods: pods.labeled(),
        settings,
        remembering: Arc::clone(&remembering),
        steady: SteadyClock::start(),
    };
    let own = autoscalers.wakes(own(metrics.clone(), Arc::clone(&remembering)));
    Ok(Built {
        loops: vec![Loop {
            queue: "horizontalpodautoscaler",
            kind: Some(&HORIZONTAL_POD_AUTOSCALERS),
            settings: LoopSettings {
                sets_aside: true,
                backoff: settings.backoff(),
                ..LoopSettings::with_workers(build.config.flags.concurrent_horizontal_pod_autoscaler_syncs)
            },
            wake_ups: vec![
                autoscalers.wakes(Arc::new(new_or_changed)).debounced(HURRIED),
                own.debounced(settings.sync_period),
            ],
            reconcile: Arc::new(RoomAdapter::new(room).counted_by(metrics).remembered_by(remembering)),
        }],
    })
}

/// How long changes of a spec are collected, so that who changes it all the time gets no more than a look a second.
const HURRIED: Duration = Duration::from_secs(1);

/// An autoscaler that is new, or has another spec, concerns its own key. kube-controller-manager does not wait for a period from 1.37 on.
/// Autoscalers that a starting process finds wait for one period.
fn new_or_changed(delta: Delta<'_>, add: &mut dyn FnMut(Key)) {
    if delta.initial {
        return;
    }
    let (old, new) = delta.typed::<HorizontalPodAutoscaler>();
    if let Some(new) = new.filter(|new| old.is_none_or(|old| old.spec != new.spec)) {
        add(Key::of(&new.metadata));
    }
}

/// A change of an autoscaler concerns its own key. They are counted, and of one that is gone the pods are free at once.
fn own(metrics: Metrics, remembering: Arc<Remembering>) -> KeyMap {
    let own = wake::own();
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        match delta.typed::<HorizontalPodAutoscaler>() {
            (None, Some(_)) => metrics.appeared(),
            (Some(gone), None) => {
                metrics.went();
                remembering.forget_selector(&Key::of(&gone.metadata));
            }
            _ => {}
        }
        own(delta, add);
    })
}

/// The room: what it reads, and what it remembers.
struct Controller {
    autoscalers: Lister<HorizontalPodAutoscaler>,
    pods: Labeled<Pod>,
    settings: Settings,
    remembering: Arc<Remembering>,
    /// The clock of windows and periods.
    steady: SteadyClock,
}

impl Room<Note> for Controller {
    type View = View;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key, failures, read))
    }

    fn prepare(view: &mut View, now: Timestamp) -> bool {
        plan::proposals::propose_more(view, now)
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        plan::plan(view, now)
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        plan::reasons::reasons(view, now)
    }
}
