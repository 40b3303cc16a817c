//! Rules about autoscalers: never outside of their bounds, never faster than their policies, never against what their metrics
//! have asked for lately.
//!
//! A target is scaled by what one version of the autoscaler says, any of those of lately: a rule is kept if it is kept by one of
//! them. By which metric and from how many replicas is known from the line (`heard`), for a manager says it in no other way.

mod heard;
mod spec;

use jiff::Timestamp;
use serde_json::Value as Json;

use super::{Look, WINDOW};
use apiserver_model::metrics::Reading;
use apiserver_model::{Model, Place, items, text};
pub(crate) use heard::{CONTROLLER, Exchange, Heads};
use heard::{Heard, Key, Mind};
use spec::{Policy, Rules, Spec};

/// A target that is scaled, and what is known of who does it.
struct Rescale<'a> {
    heads: &'a Heads,
    by: &'a str,
    key: Key,
    at: Timestamp,
    /// How many replicas there are to be.
    replicas: i64,
}

impl<'a> Rescale<'a> {
    /// `None` if a change is something else.
    fn of(look: &'a Look<'_>) -> Option<Self> {
        let stored = look.change.after.as_ref().filter(|_| look.change.subresource == "scale")?;
        Some(Self {
            heads: &look.memory.heads,
            by: &look.change.by,
            key: (stored.place.namespace.clone(), stored.place.name.clone()),
            at: look.change.at,
            replicas: stored.json["spec"]["replicas"].as_i64().unwrap_or(0),
        })
    }

    /// Whether some version of the autoscaler excuses it.
    fn is_right_by(&self, is_right: impl Fn(&Spec) -> bool) -> bool {
        self.heads.specs(&self.key, self.at - WINDOW).any(is_right)
    }

    /// What it was decided by; `None` if that may have been bounds alone.
    fn decision(&self) -> Option<(&'a Mind, Heard)> {
        if self.heads.is_by_bounds(self.by, &self.key, self.replicas, self.at) {
            return None;
        }
        let mind = self.heads.mind(self.by, &self.key)?;
        Some((mind, *mind.heard.last()?))
    }

    /// Whether whoever knew something at a time still does.
    fn is_remembered(&self, since: Timestamp) -> bool {
        !self.heads.was_gone(&self.key, since - WINDOW)
    }
}

/// A target is scaled: to what its autoscaler allows.
pub(super) fn bounds(look: &Look<'_>) -> Result<(), String> {
    let Some(rescale) = Rescale::of(look) else { return Ok(()) };
    let replicas = rescale.replicas;
    if rescale.is_right_by(|spec| (spec.min..=spec.max).contains(&replicas)) {
        return Ok(());
    }
    let specs: Vec<_> = rescale.heads.specs(&rescale.key, rescale.at - WINDOW).collect();
    Err(format!("{} is to have {replicas}, allowed is {specs:?}", look.named()))
}

/// A target is scaled: no faster than the policies allow from where their periods began.
pub(super) fn rates(look: &Look<'_>) -> Result<(), String> {
    let Some(rescale) = Rescale::of(look) else { return Ok(()) };
    let Some((mind, heard)) = rescale.decision() else { return Ok(()) };
    let (current, replicas) = (heard.current, rescale.replicas);
    let is_right = |spec: &Spec| match &spec.behavior {
        None => replicas <= current.max((2 * current).max(4)),
        Some((up, _)) if replicas > current => replicas <= furthest(&rescale, mind, heard, up, 1),
        Some((_, down)) => replicas >= furthest(&rescale, mind, heard, down, -1),
    };
    // From how many replicas bounds have scaled is not known.
    let is_known = |spec: &Spec| {
        let period = spec.longest_period().unwrap_or_default();
        mind.by_bounds.is_none_or(|at| heard.at.duration_since(at) >= period)
    };
    if rescale.is_right_by(|spec| !is_known(spec) || is_right(spec)) {
        return Ok(());
    }
    let steps = &mind.steps[mind.steps.len().saturating_sub(5)..];
    let specs: Vec<_> = rescale.heads.specs(&rescale.key, rescale.at - WINDOW).collect();
    Err(format!("{} is to have {replicas} by {heard:?} after {steps:?}, allowed is {specs:?}", look.named()))
}

/// How far rules allow to go from where there are so many replicas, up (`way` is 1) or down (-1). Of what may have been done
/// within a period counts what excuses most.
fn furthest(rescale: &Rescale<'_>, mind: &Mind, heard: Heard, rules: &Rules, way: i64) -> i64 {
    let of = |policy: &Policy| {
        let start = heard.current - within(rescale, mind, heard, policy, way);
        if !policy.is_percent {
            return start + way * policy.value;
        }
        let exact = start as f64 * (1.0 + way as f64 * policy.value as f64 / 100.0);
        if way > 0 { exact.ceil() as i64 } else { exact as i64 }
    };
    // The other way round when it goes down.
    let reaches = rules.policies.iter().map(|policy| way * of(policy));
    let reach = match rules.select.as_str() {
        "Disabled" => None,
        "Min" => reaches.min(),
        _ => reaches.max(),
    };
    way * reach.unwrap_or(i64::MIN).max(way * heard.current)
}

/// By how much a manager knows to have changed a target within the period of a policy: the least, or the most if it is to go down.
fn within(rescale: &Rescale<'_>, mind: &Mind, heard: Heard, policy: &Policy, way: i64) -> i64 {
    let counted = mind.steps.iter().filter(|step| step.decided != heard.at).map(|step| {
        let excuses = way * step.by < 0;
        let may_be = heard.at.duration_since(step.at) < policy.period;
        // What is remembered for less time by any version may be forgotten.
        let mut specs = rescale.heads.specs(&rescale.key, step.decided - WINDOW);
        let is_kept = specs.all(|spec| spec.longest_period().is_some_and(|longest| longest >= policy.period));
        let must_be = rescale.at.duration_since(step.decided) < policy.period
            && step.is_known
            && is_kept
            && rescale.is_remembered(step.decided);
        if if excuses { may_be } else { must_be } { step.by } else { 0 }
    });
    counted.sum()
}

/// A target is scaled by metrics: not below what they have asked for within the window, and not above it where the autoscaler has
/// one for going up.
pub(super) fn stabilized(look: &Look<'_>) -> Result<(), String> {
    let Some(rescale) = Rescale::of(look) else { return Ok(()) };
    let Some((mind, heard)) = rescale.decision() else { return Ok(()) };
    let (current, replicas) = (heard.current, rescale.replicas);
    let is_right = |spec: &Spec| {
        let (least, most) = spec.asked(heard.usage);
        if replicas < current {
            let lately = recommended(&rescale, mind, spec, false).map(|(least, _)| least);
            replicas >= lately.fold(least, i64::max).min(spec.max)
        } else {
            let lately = recommended(&rescale, mind, spec, true).map(|(_, most)| most);
            spec.behavior.is_none() || replicas == current || replicas <= lately.fold(most, i64::min)
        }
    };
    if rescale.is_right_by(is_right) {
        return Ok(());
    }
    let told = &mind.heard[mind.heard.len().saturating_sub(12)..];
    let specs: Vec<_> = rescale.heads.specs(&rescale.key, rescale.at - WINDOW).collect();
    Err(format!("{} is to have {replicas} after {told:?}, allowed is {specs:?}", look.named()))
}

/// How many replicas were asked for at least and at most, by each recommendation that the manager is sure to remember, and that
/// the window of one version of the autoscaler holds.
fn recommended<'a>(
    rescale: &'a Rescale<'_>,
    mind: &'a Mind,
    spec: &Spec,
    is_up: bool,
) -> impl Iterator<Item = (i64, i64)> + 'a {
    let (up, down) = spec.windows();
    let window = if is_up { up } else { down };
    let holds = move |at: Timestamp| {
        // Who looks by a version with a shorter window forgets what is older.
        let longest = |spec: &Spec| {
            let (up, down) = spec.windows();
            up.max(down)
        };
        rescale.at.duration_since(at) < window
            && rescale.is_remembered(at)
            && rescale.heads.specs(&rescale.key, at - WINDOW).all(|spec| longest(spec) >= window)
    };
    // Who knows nothing yet takes what there is for what was asked for.
    let first = mind.reads.first().filter(move |(at, _)| holds(*at)).map(|(_, read)| (*read, *read));
    let later = mind.heard.iter().filter(move |heard| holds(heard.at)).filter_map(move |heard| {
        let specs = || rescale.heads.specs(&rescale.key, heard.at - WINDOW);
        // Where there may have been more or fewer than there may be, no metric was looked at.
        let is_made = specs().all(|spec| (spec.min..=spec.max).contains(&heard.current));
        let asked = |spec: &Spec| spec.asked(heard.usage);
        let least = specs().map(asked).map(|(least, _)| least).min()?;
        let most = specs().map(asked).map(|(_, most)| most).max()?;
        is_made.then_some((least, most))
    });
    first.into_iter().chain(later)
}

/// What is not yet as an autoscaler wishes, in the end: a target that there is has as many replicas as the metric asks for, within
/// bounds, and the status says so.
pub(super) fn end(model: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource != "horizontalpodautoscalers" {
        return None;
    }
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let resource = match text(object, "/spec/scaleTargetRef/kind") {
        "Deployment" => "deployments",
        "StatefulSet" => "statefulsets",
        _ => "replicasets",
    };
    let Some(target) = model.get(&Place::new(resource, namespace, name)) else {
        let conditions = items(object, "/status/conditions");
        let says_so =
            conditions.iter().any(|held| held["type"] == "AbleToScale" && held["status"] == "False");
        return (!says_so).then(|| "it does not say that it has no target".to_owned());
    };
    let replicas = target.json["spec"]["replicas"].as_i64().unwrap_or(0);
    for name in ["currentReplicas", "desiredReplicas"] {
        let told = object["status"][name].as_i64().unwrap_or(0);
        if told != replicas {
            return Some(format!("{name} is {told}, and there are {replicas}"));
        }
    }
    let Reading::Value(usage) = model.metrics.get(namespace, name) else { return None };
    let spec = Spec::of(&object["spec"]);
    if replicas == 0 {
        return None;
    }
    let wanted = spec.settles_at(usage, replicas).clamp(spec.min, spec.max);
    let is_off = spec.behavior.as_ref().is_some_and(|(up, down)| {
        let rules = if wanted > replicas { up } else { down };
        rules.select == "Disabled" && (spec.min..=spec.max).contains(&replicas)
    });
    (wanted != replicas && !is_off)
        .then(|| format!("its target has {replicas}, and {usage} thousandths ask for {wanted}"))
}
