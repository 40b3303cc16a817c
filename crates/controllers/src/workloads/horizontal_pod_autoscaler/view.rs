//! What a decision about one autoscaler rests on: the scale of its target and the answers of metrics APIs, both read live, the
//! pods of the cache, and what is remembered. Decides nothing.

use std::sync::Arc;

use super::Controller;
use super::draft::Draft;
use super::history::History;
use super::proposal::Proposed;
use super::queries::{Found, Query, Questions};
use super::settings::Settings;
use super::spec;
use crate::live_reads::{AUTOSCALER_DISCOVERY, AUTOSCALER_SCALE};
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::autoscaling::{HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, Scale};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::executor::WriteEffect;
use coxswain_machinery::framework::scales::{self, ScaleError, ScaleLookup, ScaleReads};
use coxswain_machinery::framework::{DeclaredRead, Observation, Read, Reads};
use coxswain_machinery::model::clock::SteadyTime;
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::model::{Failure, Key};
use coxswain_machinery::wire::Str;

/// Times that a target is scaled anew because somebody else has changed it.
const TRIES: usize = 3;

/// An autoscaler, and how far this reconcile has come.
#[derive(Debug)]
pub(super) struct View {
    pub(super) autoscaler: Arc<HorizontalPodAutoscaler>,
    pub(super) settings: Settings,
    pub(super) history: History,
    /// The present by a clock that nobody sets, by which the history is told.
    pub(super) steady: SteadyTime,
    pub(super) stage: Stage,
}

/// How far a reconcile has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// There is no scale of the target to be had.
    NoScale(NoScale),
    /// Everything is at hand to decide.
    Look(Box<Look>),
    /// It was decided; what became of scaling the target.
    Decided(Arc<Draft>, Scaling),
}

/// Why there is no scale.
#[derive(Debug)]
pub(super) struct NoScale {
    pub(super) why: String,
    /// Whether that is for the autoscaler's spec alone.
    pub(super) is_of_spec: bool,
}

/// The target and its metrics.
#[derive(Debug)]
pub(super) struct Look {
    /// The resource of the target.
    pub(super) row: &'static Kind,
    pub(super) scale: Scale,
    /// The pods of the target's selector.
    pub(super) pods: Result<Selected, BadSelector>,
    /// The values of each metric, in order; empty where no metric is evaluated. Metrics with equal questions share them.
    pub(super) found: Vec<Arc<Found>>,
    /// The proposals of the first metrics: those that are evaluated so far.
    pub(super) proposals: Vec<Proposed>,
}

/// The pods of a target.
#[derive(Debug)]
pub(super) struct Selected {
    pub(super) selector: Arc<Selector>,
    pub(super) pods: Vec<Arc<Pod>>,
}

/// A selector by which nothing is scaled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadSelector {
    /// There is none.
    Missing,
    /// It is unreadable.
    Invalid(String),
    /// Other autoscalers have some of the pods, too: the names of all of them.
    Ambiguous { selector: Arc<Selector>, text: String, names: Vec<Str> },
}

/// What became of scaling a target.
#[derive(Debug)]
pub(super) enum Scaling {
    Done,
    /// Somebody else has changed it; its scale as it is now.
    Again(Box<Scale>),
    Failed(String),
}

impl View {
    pub(super) fn spec(&self) -> &HorizontalPodAutoscalerSpec {
        &self.autoscaler.spec
    }
}

const SCALE_READS: ScaleReads = ScaleReads { discovery: &AUTOSCALER_DISCOVERY, scale: &AUTOSCALER_SCALE };

pub(super) fn observe(room: &Controller, key: &Key, failures: &[Failure], read: &Reads) -> Observation<View> {
    let Some(autoscaler) = room.autoscalers.get(key) else { return Observation::Nothing };
    let view = |stage| {
        Observation::View(View {
            autoscaler: Arc::clone(&autoscaler),
            settings: room.settings,
            history: room.remembering.history(key),
            steady: room.steady.now(),
            stage,
        })
    };
    let target = &autoscaler.spec.scale_target_ref;
    let at = Key::new(key.namespace.clone(), target.name.clone());
    if let Some(draft) = decided(room, key, failures, read) {
        return match scaling(&draft, failures, read) {
            Ok(scaling) => view(Stage::Decided(draft, scaling)),
            Err(need) => Observation::Needs(vec![need]),
        };
    }
    let no_scale = |why: String, is_of_spec| view(Stage::NoScale(NoScale { why, is_of_spec }));
    let scale = match scales::find_in_group(SCALE_READS, read, &target.api_version, &target.kind, &at) {
        ScaleLookup::Needs(need) => return Observation::Needs(vec![need]),
        ScaleLookup::Found(scale) => scale,
        ScaleLookup::Gone => {
            let row = scales::row_in_group(read, &target.api_version, &target.kind);
            let row = row.map_or_else(|| target.kind.to_string(), ToString::to_string);
            return no_scale(format!("{row} \"{}\" not found", target.name), false);
        }
        ScaleLookup::Failed(ScaleError::NotScalable(_)) => {
            return no_scale("the server could not find the requested resource".to_owned(), false);
        }
        ScaleLookup::Failed(error) => {
            return no_scale(error.to_string(), matches!(error, ScaleError::ApiVersion(_)));
        }
    };
    let Some(row) = scales::row_in_group(read, &target.api_version, &target.kind) else {
        return no_scale("the resource of the scale target is no longer served".to_owned(), false);
    };
    let pods = selected(room, key, &scale.status.selector);
    let asks = spec::asks_metrics(&autoscaler, &room.settings, scale.spec.replicas);
    let found = if asks && pods.is_ok() {
        match metrics(&autoscaler, &scale.status.selector, read) {
            Ok(found) => found,
            Err(needs) => return Observation::Needs(needs),
        }
    } else {
        Vec::new()
    };
    view(Stage::Look(Box::new(Look { row, scale: scale.clone(), pods, found, proposals: Vec::new() })))
}

/// What an earlier plan of this reconcile has decided, if one has and has begun to carry it out.
fn decided(room: &Controller, key: &Key, failures: &[Failure], read: &Reads) -> Option<Arc<Draft>> {
    let has_begun = !read.written().is_empty() || !failures.is_empty();
    room.remembering.draft(key).filter(|_| has_begun)
}

/// What became of scaling the target, or what must be read to try again.
fn scaling(draft: &Draft, failures: &[Failure], read: &Reads) -> Result<Scaling, DeclaredRead> {
    let mut written = read.written().iter().filter(|effect| effect.subresource == "scale");
    if written.any(|effect| matches!(effect.change, WriteEffect::Stored(_))) {
        return Ok(Scaling::Done);
    }
    let failed: Vec<&Failure> = failures.iter().filter(|failure| failure.subresource == "scale").collect();
    let Some(last) = failed.last() else {
        return Ok(Scaling::Failed("the scale was not updated".to_owned()));
    };
    if !last.is_conflict() || failed.len() >= TRIES {
        return Ok(Scaling::Failed(last.message.clone()));
    }
    match read.scale(draft.row, &draft.target) {
        None => Err(AUTOSCALER_SCALE.of(Read::Scale(draft.row, draft.target.clone()))),
        Some(Ok(Some(scale))) => Ok(Scaling::Again(Box::new(scale.clone()))),
        Some(Ok(None) | Err(_)) => Ok(Scaling::Failed(last.message.clone())),
    }
}

/// What was found of each metric, or what must still be read.
fn metrics(
    autoscaler: &HorizontalPodAutoscaler,
    selector: &str,
    read: &Reads,
) -> Result<Vec<Arc<Found>>, Vec<DeclaredRead>> {
    let (mut found, mut needs) = (Vec::new(), Vec::new());
    let mut questions = Questions::new(&autoscaler.metadata.namespace, selector, read);
    for metric in &autoscaler.spec.metrics {
        match questions.ask(metric) {
            Query::Needs(need) => needs.push(need),
            Query::Waits => {}
            Query::Found(answer) => found.push(answer),
        }
    }
    if needs.is_empty() { Ok(found) } else { Err(needs) }
}

/// The pods that a scale's selector selects, by name.
fn selected(room: &Controller, key: &Key, text: &str) -> Result<Selected, BadSelector> {
    // The parser reads a text of spaces alone as a selector that selects everything, as kube-controller-manager does.
    if text.is_empty() {
        return Err(BadSelector::Missing);
    }
    let selector = Selector::parse(text).map_err(|error| BadSelector::Invalid(error.to_string()))?;
    let selector = Arc::new(selector);
    let mut pods = room.pods.select(&key.namespace, &selector);
    pods.sort_unstable_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let mut names = room.remembering.sharers(key, &pods);
    if names.is_empty() {
        return Ok(Selected { selector, pods });
    }
    names.push(key.name.clone());
    names.sort_unstable();
    Err(BadSelector::Ambiguous { selector, text: text.to_owned(), names })
}
