//! What is to be done about one autoscaler. Pure.
//!
//! | module | decides on |
//! |---|---|
//! | [`replicas`] | how many replicas a metric asks for, by numbers alone |
//! | [`proposals`] | what each metric of the spec asks for, or why there is no telling |
//! | [`limits`] | how much of that may be done at once |
//! | [`status`] | whether the status says so, and the bytes of one that does |
//! | [`reasons`] | nothing: it says in words why |
//!
//! Where the target is to be scaled, the plan does only that and asks for another look, which writes the status by what became
//! of it. What was decided comes back then as a [`Draft`]: the metrics are read once.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::draft::{Condition, Draft, Looked, Note, Telling};
use super::history::{History, Recommendation, is_within};
use super::proposal::{MetricFailure, Proposed};
use super::spec::{SCALED_TO_ZERO, asks_metrics, has_metric_without_pods};
use super::view::{BadSelector, Look, NoScale, Scaling, Stage, View};
use coxswain_machinery::api::autoscaling::{HorizontalPodAutoscaler, Scale};
use coxswain_machinery::api::kinds::HORIZONTAL_POD_AUTOSCALERS;
use coxswain_machinery::model::plan::{EventSpec, Regarding, Step, Verb};
use coxswain_machinery::model::{Key, Plan, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Str, Time, WireError, path};

pub(super) mod limits;
pub(super) mod proposals;
pub(super) mod reasons;
pub(super) mod replicas;
pub(super) mod status;

use limits::{Limited, limited};
use proposals::proposals;

const ABLE_TO_SCALE: &str = "AbleToScale";
const SCALING_ACTIVE: &str = "ScalingActive";
const SCALING_LIMITED: &str = "ScalingLimited";

/// What a look comes to.
pub(super) struct Decision {
    pub(super) current: i32,
    /// So many there are to be; `None` if that is not known.
    pub(super) desired: Option<i32>,
    /// Why, if that is another number.
    pub(super) reason: String,
    /// What each metric asks for; empty where none was looked at.
    pub(super) proposals: Vec<Proposed>,
    /// What the metrics ask for together, and what bounds and rates leave of it.
    pub(super) wanted: Option<(i32, Limited)>,
    telling: Telling,
    /// Reason and message of warnings.
    warnings: Vec<(&'static str, String)>,
    history: History,
}

pub(super) fn plan(view: &View, now: Timestamp) -> Plan<Note> {
    let (mut plan, note) = match &view.stage {
        Stage::NoScale(no_scale) => without_scale(view, no_scale, now),
        Stage::Look(look) => looked(view, look, now),
        Stage::Decided(draft, Scaling::Again(scale)) => again(draft, scale),
        Stage::Decided(draft, Scaling::Done) => done(view, draft, now),
        Stage::Decided(draft, Scaling::Failed(why)) => failed(view, draft, why, now),
    };
    // Whatever becomes of it, the next look is due in a period, not earlier and not later.
    plan.end = true;
    plan.requeue_after = Some(view.settings.sync_period);
    plan.with_note(note)
}

fn without_scale(view: &View, NoScale { why, is_of_spec }: &NoScale, now: Timestamp) -> (Plan, Note) {
    let mut plan = Plan::default();
    plan.steps.push(warning(view, "FailedGetScale", why.clone()));
    let message = format!("the HPA controller was unable to get the target's current scale: {why}");
    let mut telling = Telling::default();
    telling.say(Condition::new(ABLE_TO_SCALE, "False", "FailedGetScale", message));
    tell(&mut plan, view, &telling, now);
    let error = if *is_of_spec { "spec" } else { "internal" };
    let look = Some(Looked { action: "none", error, ..Looked::default() });
    (plan, Note { look, draft: None })
}

fn looked(view: &View, look: &Look, now: Timestamp) -> (Plan, Note) {
    let decision = decide(view, look, now);
    let mut plan = Plan::default();
    plan.steps.extend(decision.warnings.iter().map(|(reason, text)| warning(view, reason, text.clone())));
    let looked = summary(view, look, &decision);
    let desired = decision.desired.filter(|desired| *desired != decision.current);
    let Some(desired) = desired else {
        tell(&mut plan, view, &decision.telling, now);
        return (plan, Note { look: Some(looked), draft: None });
    };
    let target = Key::new(look.scale.metadata.namespace.clone(), look.scale.metadata.name.clone());
    let draft = Draft {
        row: look.row,
        target,
        at: view.steady,
        current: decision.current,
        desired,
        reason: decision.reason,
        telling: decision.telling,
        remembers_steps: view.spec().behavior.is_some(),
        looked: looked.clone(),
    };
    scale(&mut plan, &draft, &look.scale);
    (plan, Note { look: Some(looked), draft: Some(Arc::new(draft)) })
}

/// Somebody else has changed the target: the same number once more.
fn again(draft: &Arc<Draft>, held: &Scale) -> (Plan, Note) {
    let mut plan = Plan::default();
    scale(&mut plan, draft, held);
    (plan, Note { look: None, draft: Some(Arc::clone(draft)) })
}

fn scale(plan: &mut Plan, draft: &Draft, held: &Scale) {
    match scaled(held, draft.desired) {
        Ok(body) => {
            let write = Write::new(draft.row, draft.target.clone(), Verb::Update(body)).on("scale");
            plan.steps.push(Step::Write(Write { keep_going: true, item: Some(0), ..write }));
            plan.look_again = true;
        }
        Err(error) => plan.retry = Some(format!("scale: {error}")),
    }
}

fn scaled(held: &Scale, replicas: i32) -> Result<Bytes, WireError> {
    let replicas = i64::from(replicas) as u64;
    Ok(Bytes::from(edit(&held.raw, &[Edit::SetVarint(path!(Scale, spec.replicas), replicas)])?))
}

fn done(view: &View, draft: &Arc<Draft>, now: Timestamp) -> (Plan, Note) {
    let Draft { desired, reason, telling, .. } = &**draft;
    let mut plan = Plan::default();
    let text = format!("New size: {desired}; reason: {reason}");
    plan.steps.push(event(view, false, "SuccessfulRescale", text));
    let mut telling = Telling { scaled_at: Some(Time::from(now)), ..telling.clone() };
    let message = format!("the HPA controller was able to update the target scale to {desired}");
    telling.say(Condition::new(ABLE_TO_SCALE, "True", "SucceededRescale", message));
    tell(&mut plan, view, &telling, now);
    (plan, Note { look: None, draft: Some(Arc::clone(draft)) })
}

fn failed(view: &View, draft: &Arc<Draft>, why: &str, now: Timestamp) -> (Plan, Note) {
    let Draft { desired, reason, telling, looked, .. } = &**draft;
    let mut plan = Plan::default();
    let text = format!("New size: {desired}; reason: {reason}; error: {why}");
    plan.steps.push(warning(view, "FailedRescale", text));
    let mut telling = Telling { desired: None, ..telling.clone() };
    telling.conditions.retain(|held| held.kind != SCALED_TO_ZERO);
    telling.without.retain(|kind| *kind != SCALED_TO_ZERO);
    let message = format!("the HPA controller was unable to update the target scale: {why}");
    // It was said to be able in the same pass: its time moves each time, as in kube-controller-manager.
    let condition = Condition::new(ABLE_TO_SCALE, "False", "FailedUpdateScale", message);
    telling.say(Condition { moves: true, ..condition });
    tell(&mut plan, view, &telling, now);
    // Metrics count no scaling that was refused.
    let look = Some(Looked { action: "none", error: "internal", desired: None, ..looked.clone() });
    (plan, Note { look, draft: Some(Arc::clone(draft)) })
}

pub(super) fn decide(view: &View, look: &Look, now: Timestamp) -> Decision {
    let spec = view.spec();
    let current = look.scale.spec.replicas;
    let mut decision = Decision {
        current,
        desired: None,
        reason: String::new(),
        proposals: Vec::new(),
        wanted: None,
        telling: Telling { current: Some(current), metrics: Some(Vec::new()), ..Telling::default() },
        warnings: Vec::new(),
        history: recent(view, current),
    };
    decision.telling.say(Condition::new(
        ABLE_TO_SCALE,
        "True",
        "SucceededGetScale",
        "the HPA controller was able to get the target's current scale",
    ));
    let min = spec.min_replicas.unwrap_or(1);
    if asks_metrics(&view.autoscaler, &view.settings, current) {
        by_metrics(view, look, &mut decision, now);
    } else if current == 0 {
        decision.desired = Some(0);
        decision.telling.say(Condition::new(
            SCALING_ACTIVE,
            "False",
            "ScalingDisabled",
            "scaling is disabled since the replica count of the target is zero",
        ));
        if !view.settings.scale_to_zero {
            decision.telling.without.push(SCALED_TO_ZERO);
        }
    } else if current > spec.max_replicas {
        decision.desired = Some(spec.max_replicas);
        "Current number of replicas above Spec.MaxReplicas".clone_into(&mut decision.reason);
    } else {
        decision.desired = Some(min);
        BELOW_MIN.clone_into(&mut decision.reason);
    }
    decision.telling.desired = decision.desired;
    if let Some(desired) = decision.desired.filter(|desired| *desired != current) {
        to_zero(view, &mut decision.telling, desired == 0 && min == 0);
    }
    decision
}

const BELOW_MIN: &str = "Current number of replicas below Spec.MinReplicas";

/// What is said of a target that is scaled, and maybe to zero.
fn to_zero(view: &View, telling: &mut Telling, is_zero: bool) {
    if !view.settings.scale_to_zero {
        telling.without.push(SCALED_TO_ZERO);
    } else if is_zero && has_metric_without_pods(&view.autoscaler) {
        let message = "the HPA controller scaled the workload to zero";
        telling.say(Condition::new(SCALED_TO_ZERO, "True", "ScaledToZero", message));
    } else {
        let message = "the HPA controller did not scale the workload to zero";
        telling.say(Condition::new(SCALED_TO_ZERO, "False", "NotScaledToZero", message));
    }
}

fn by_metrics(view: &View, look: &Look, decision: &mut Decision, now: Timestamp) {
    let (spec, current) = (view.spec(), decision.current);
    let selected = match &look.pods {
        Ok(selected) => selected,
        Err(bad) => return bad_selector(&view.autoscaler, bad, decision),
    };
    decision.proposals = proposals(view, look, selected, now);
    let made = decision.proposals.iter();
    let statuses = made.map(|made| made.as_ref().map(|made| made.status.clone()).unwrap_or_default());
    decision.telling.metrics = Some(statuses.collect());
    let failures: Vec<MetricFailure> =
        decision.proposals.iter().filter_map(|made| made.as_ref().err().cloned()).collect();
    decision.warnings.extend(failures.iter().map(|failure| (failure.reason, failure.text.clone())));
    // As in kube-controller-manager, the first metric of several with the same proposal is named, but the last one if the proposal is 0.
    let asked = decision.proposals.iter().flatten().map(|made| (made.replicas, &made.name));
    let greatest = asked.reduce(|held, other| if held.0 == 0 || other.0 > held.0 { other } else { held });
    let greatest = greatest.map(|(replicas, name)| (replicas, name.clone()));
    let Some((wanted, name)) = greatest.filter(|(wanted, _)| failures.is_empty() || *wanted >= current)
    else {
        return all_failed(&failures, spec.metrics.len(), decision);
    };
    // A negative proposal becomes 0 after the choice. kube-controller-manager takes a negative sum of an External metric with
    // `averageValue` for an overflow and grows to `maxReplicas`. Coxswain shrinks the target: there is no load.
    // Differs: negative-external-average.
    let wanted = wanted.max(0);
    decision.telling.say(Condition::new(
        SCALING_ACTIVE,
        "True",
        "ValidMetricFound",
        format!("the HPA was able to successfully calculate a replica count from {name}"),
    ));
    decision.reason = match wanted.cmp(&current) {
        std::cmp::Ordering::Greater => format!("{name} above target"),
        std::cmp::Ordering::Less => "All metrics below target".to_owned(),
        std::cmp::Ordering::Equal => String::new(),
    };
    let limited = limited(spec, &view.settings, &decision.history, (current, wanted), view.steady);
    decision.history.recommendations.push(Recommendation { at: view.steady, replicas: wanted });
    let (reason, message) = limited.stabilization.told();
    decision.telling.say(Condition::new(ABLE_TO_SCALE, "True", reason, message));
    let (status, reason, message) = limited.limit.told();
    decision.telling.say(Condition::new(SCALING_LIMITED, status, reason, message));
    decision.wanted = Some((wanted, limited));
    let min = spec.min_replicas.unwrap_or(1);
    let wakes_to_min = current == 0 && limited.replicas < min;
    if wakes_to_min && decision.reason.is_empty() {
        BELOW_MIN.clone_into(&mut decision.reason);
    }
    decision.desired = Some(if wakes_to_min { min } else { limited.replicas });
}

/// No metric says anything, or too few do to let the target shrink.
fn all_failed(failures: &[MetricFailure], metrics: usize, decision: &mut Decision) {
    let (invalid, first) = (failures.len(), failures.first());
    let whole = first.map(|first| first.whole.as_str()).unwrap_or_default();
    let text = format!("invalid metrics ({invalid} invalid out of {metrics}), first error is: {whole}");
    if let Some(first) = first {
        let message = format!("the HPA was unable to compute the replica count: {}", first.text);
        decision.telling.say(Condition::new(SCALING_ACTIVE, "False", first.reason, message));
    }
    decision.warnings.push(("FailedComputeMetricsReplicas", text));
}

fn bad_selector(autoscaler: &HorizontalPodAutoscaler, bad: &BadSelector, decision: &mut Decision) {
    let namespace = &autoscaler.metadata.namespace;
    let (reason, event, text) = match bad {
        BadSelector::Missing => ("InvalidSelector", "SelectorRequired", "selector is required".to_owned()),
        BadSelector::Invalid(why) => {
            let what = "couldn't convert selector into a corresponding internal selector object";
            ("InvalidSelector", "InvalidSelector", format!("{what}: {why}"))
        }
        BadSelector::Ambiguous { text, names, .. } => {
            let all: Vec<String> = names.iter().map(|name| format!("{namespace}/{name}")).collect();
            let all = all.join(" ");
            let text = format!("pods by selector {text} are controlled by multiple HPAs: [{all}]");
            ("AmbiguousSelector", "AmbiguousSelector", text)
        }
    };
    let message = if *bad == BadSelector::Missing {
        "the HPA target's scale is missing a selector".to_owned()
    } else {
        text.clone()
    };
    decision.telling.say(Condition::new(SCALING_ACTIVE, "False", reason, message));
    decision.warnings.push((event, text.clone()));
    decision.warnings.push(("FailedComputeMetricsReplicas", text));
}

/// What is remembered, without what is too old to count. Where nothing is, what there is now counts as asked for.
fn recent(view: &View, current: i32) -> History {
    let (spec, mut history, now) = (view.spec(), view.history.clone(), view.steady);
    if history.recommendations.is_empty() {
        history.recommendations.push(Recommendation { at: now, replicas: current });
        return history;
    }
    let window = limits::longest_window(spec, &view.settings);
    let latest = history.recommendations.iter().map(|held| held.at).max();
    // The latest one stays: that something is remembered is known by it.
    history.recommendations.retain(|held| is_within(held.at, now, window) || Some(held.at) == latest);
    let behavior = spec.behavior.as_deref();
    let (up, down) = (
        limits::longest_period(behavior.and_then(|held| held.scale_up.as_deref())),
        limits::longest_period(behavior.and_then(|held| held.scale_down.as_deref())),
    );
    let period = up.max(down);
    history.added.retain(|step| is_within(step.at, now, period));
    history.removed.retain(|step| is_within(step.at, now, period));
    history
}

/// What metrics and memory are told of a look.
fn summary(view: &View, look: &Look, decision: &Decision) -> Looked {
    let before = view.autoscaler.status.current_replicas;
    let action = |from: i32, to: i32| match to.cmp(&from) {
        std::cmp::Ordering::Greater => "scale_up",
        std::cmp::Ordering::Less => "scale_down",
        std::cmp::Ordering::Equal => "none",
    };
    let of = |failure: &MetricFailure| if failure.is_of_spec { "spec" } else { "internal" };
    let types = view.spec().metrics.iter().map(|metric| metric.r#type.clone());
    let metrics: Vec<(&'static str, &'static str, Str)> = decision
        .proposals
        .iter()
        .zip(types)
        .map(|(made, kind)| match made {
            Ok(made) => (action(before, made.replicas), "none", kind),
            Err(failure) => ("none", of(failure), kind),
        })
        .collect();
    let failures: Vec<&MetricFailure> =
        decision.proposals.iter().filter_map(|made| made.as_ref().err()).collect();
    let error = match (look.pods.is_err() && decision.desired.is_none(), failures.first()) {
        (true, _) => "internal",
        (false, Some(first)) => of(first),
        (false, None) => "none",
    };
    let selector = match &look.pods {
        Ok(selected) => Some(Arc::clone(&selected.selector)),
        Err(BadSelector::Ambiguous { selector, .. }) => Some(Arc::clone(selector)),
        Err(_) => None,
    };
    Looked {
        history: Some(decision.history.clone()),
        selector: selector.filter(|_| asks_metrics(&view.autoscaler, &view.settings, decision.current)),
        action: decision.desired.map_or("none", |desired| action(decision.current, desired)),
        error,
        metrics,
        desired: decision.desired,
    }
}

fn tell(plan: &mut Plan, view: &View, telling: &Telling, now: Timestamp) {
    match status::write(view, telling, now) {
        Ok(write) => plan.write_status(write),
        Err(error) => plan.retry = Some(format!("status: {error}")),
    }
}

fn warning(view: &View, reason: &'static str, message: String) -> Step {
    event(view, true, reason, message)
}

fn event(view: &View, warning: bool, reason: &'static str, message: String) -> Step {
    let regarding = Regarding::of(&HORIZONTAL_POD_AUTOSCALERS, &view.autoscaler.metadata);
    Step::Emit(EventSpec { regarding, warning, reason, message })
}
