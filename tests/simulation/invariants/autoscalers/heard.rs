//! What is known of autoscalers from outside: what their specs were, and, by what went over the line, what each manager knows of
//! their metrics and has done to their targets.
//!
//! What a manager remembers is in no object and ends with it, so it is known by manager. What arrived for certain is told apart
//! from what may have arrived: a rule takes the one or the other, whichever excuses more. It decides nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value as Json;

use super::spec::Spec;
use crate::invariants::WINDOW;
use apiserver_model::http::Asked;
use apiserver_model::{Change, metrics, text};

/// Whose requests are listened to.
pub(crate) const CONTROLLER: &str = "horizontal-pod-autoscaler-controller";

/// Namespace and name of an autoscaler, which are those of its target and of its metric.
pub(super) type Key = (String, String);

/// A request and its answer.
pub(crate) struct Exchange<'a> {
    pub(crate) at: Timestamp,
    /// Who asked, in which manager.
    pub(crate) by: &'a str,
    pub(crate) asked: &'a Asked,
    /// The answer; `None` if it was refused.
    pub(crate) answer: Option<&'a Json>,
    /// Whether the answer is sure to arrive, if there is still somebody for whom it is.
    pub(crate) arrives: bool,
}

/// A metric that a manager was told, and what it then knew of the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) at: Timestamp,
    /// The replicas that it had read last.
    pub(super) current: i64,
    /// What the metric is, in thousandths.
    pub(super) usage: i64,
}

/// What a manager has done to a target by one decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// When it was decided at the earliest.
    pub(super) decided: Timestamp,
    /// When it was decided at the latest.
    pub(super) at: Timestamp,
    pub(super) by: i64,
    /// Whether the manager knows that it was done.
    pub(super) is_known: bool,
}

/// What one manager knows of one autoscaler.
#[derive(Debug, Default)]
pub(super) struct Mind {
    /// Replicas that it has read.
    pub(super) reads: Vec<(Timestamp, i64)>,
    pub(super) heard: Vec<Heard>,
    pub(super) steps: Vec<Step>,
    /// When it scaled last for bounds alone, so that nobody knows from how many.
    pub(super) by_bounds: Option<Timestamp>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Heads {
    /// What an autoscaler says, since when; `None` where there is none of that name.
    specs: BTreeMap<Key, Vec<(Timestamp, Option<Spec>)>>,
    /// By manager.
    minds: BTreeMap<(String, Key), Mind>,
}

fn manager(by: &str) -> &str {
    by.split('/').next().unwrap_or_default()
}

impl Heads {
    /// Takes a change of an autoscaler in.
    pub(crate) fn note(&mut self, change: &Change) {
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        let Some(stored) = after.or(before).filter(|held| held.place.resource == "horizontalpodautoscalers")
        else {
            return;
        };
        let spec = after.map(|stored| Spec::of(&stored.json["spec"]));
        let key = (stored.place.namespace.clone(), stored.place.name.clone());
        let held = self.specs.entry(key).or_default();
        if held.last().is_none_or(|(_, last)| *last != spec) {
            held.push((change.at, spec));
        }
    }

    /// Takes in what went over the line.
    pub(crate) fn hear(&mut self, exchange: &Exchange<'_>) {
        let Exchange { at, by, asked, answer, arrives } = exchange;
        if let Some((namespace, name)) = metrics::series(&asked.path) {
            let mind = self.mind_of(by, (namespace.to_owned(), name.to_owned()));
            let value = answer.map_or("", |answer| text(answer, "/items/0/value"));
            let usage = value.trim_end_matches('m').parse().ok().filter(|_| *arrives);
            if let Some((usage, (_, current))) = usage.zip(mind.reads.last().copied()) {
                mind.heard.push(Heard { at: *at, current, usage });
            }
            return;
        }
        let Some(replicas) = answer.and_then(|answer| answer["spec"]["replicas"].as_i64()) else { return };
        let key = (asked.namespace.clone(), asked.name.clone());
        if asked.method == http::Method::GET {
            if *arrives {
                self.mind_of(by, key).reads.push((*at, replicas));
            }
            return;
        }
        let is_by_bounds = self.is_by_bounds(by, &key, replicas, *at);
        let mind = self.mind_of(by, key);
        if is_by_bounds {
            mind.by_bounds = Some(*at);
        }
        let Some(heard) = mind.heard.last() else { return };
        match mind.steps.last_mut() {
            // The same once more, because the answer was lost.
            Some(step) if step.decided == heard.at => step.is_known |= *arrives,
            _ => {
                let by = replicas - heard.current;
                mind.steps.push(Step { decided: heard.at, at: *at, by, is_known: *arrives });
            }
        }
    }

    fn mind_of(&mut self, by: &str, key: Key) -> &mut Mind {
        self.minds.entry((manager(by).to_owned(), key)).or_default()
    }

    /// What an autoscaler has said at any time since then.
    pub(super) fn specs(&self, key: &Key, since: Timestamp) -> impl Iterator<Item = &Spec> {
        self.held(key, since).iter().filter_map(|(_, spec)| spec.as_ref())
    }

    /// The same, with the times at which there was none.
    fn held(&self, key: &Key, since: Timestamp) -> &[(Timestamp, Option<Spec>)] {
        let held = self.specs.get(key).map_or(&[][..], Vec::as_slice);
        let first = held.iter().rposition(|(at, _)| *at <= since).unwrap_or(0);
        &held[first..]
    }

    /// Whether at any time since then there was no such autoscaler though there had been one: who knows only the later one has
    /// forgotten what it knew of the other.
    pub(super) fn was_gone(&self, key: &Key, since: Timestamp) -> bool {
        self.held(key, since).iter().any(|(_, spec)| spec.is_none())
    }

    /// What a manager knows of an autoscaler.
    pub(super) fn mind(&self, by: &str, key: &Key) -> Option<&Mind> {
        self.minds.get(&(manager(by).to_owned(), key.clone()))
    }

    /// Whether so many replicas may be what bounds alone have asked for: there were more, or fewer, than there may be.
    pub(super) fn is_by_bounds(&self, by: &str, key: &Key, replicas: i64, now: Timestamp) -> bool {
        let Some(mind) = self.mind(by, key) else { return false };
        let since = now - WINDOW;
        let mut lately = mind.reads.iter().filter(|(at, _)| *at >= since);
        lately.any(|(_, read)| {
            self.specs(key, since).any(|spec| {
                (*read > spec.max && replicas == spec.max)
                    || (*read > 0 && *read < spec.min && replicas == spec.min)
            })
        })
    }
}
