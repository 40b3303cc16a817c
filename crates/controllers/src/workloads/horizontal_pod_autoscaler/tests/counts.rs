//! Counts of reconciles in the metrics.

use std::time::Duration;

use super::super::draft::{Looked, Note};
use super::super::metrics::Metrics;
use super::super::plan;
use super::fixtures::{Bench, autoscaler, failure};
use coxswain_machinery::api::kinds::HORIZONTAL_POD_AUTOSCALERS;
use coxswain_machinery::executor::{ActionResult, ActionState, ActionVerb};
use coxswain_machinery::framework::{Meter, Outcome, Reads, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::Cooldown;
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::Uid;

fn key() -> Key {
    Key::new("default", "web")
}

#[test]
fn hpa_metrics_of_a_refused_scale_show_no_scaling() {
    let mut bench = Bench::of(&autoscaler(|_| {}), &["a", "b"]);
    bench.all_use("100m");
    let (view, _) = bench.observe(Reads::default(), &[]).unwrap();
    let (first, note) = plan::plan(&view, bench.now).into_parts();
    let looked = note.look.clone().unwrap();
    assert_eq!((looked.action, looked.error, looked.desired), ("scale_up", "none", Some(4)));
    bench.remembering.begin(&key(), &note);
    let refused = failure(first.writes().next().unwrap(), 403, "Forbidden");
    let (view, _) = bench.observe(Reads::default(), &[refused]).unwrap();
    let (_, note) = plan::plan(&view, bench.now).into_parts();
    let looked = note.look.unwrap();
    assert_eq!((looked.action, looked.error, looked.desired), ("none", "internal", None));
}

#[test]
fn hpa_metrics_show_a_status_that_was_not_written() {
    let status = |result| ActionState {
        verb: ActionVerb::Update,
        kind: &HORIZONTAL_POD_AUTOSCALERS,
        key: key(),
        uid: Uid::default(),
        subresource: "status",
        summary: String::new(),
        result,
        code: None,
    };
    let outcome = Outcome::Done { writes: 0, requeue_after: None, cooldown: Cooldown::NONE };
    for (result, error) in [
        (ActionResult::Done, "none"),
        (ActionResult::Unneeded, "none"),
        (ActionResult::Failed("no".into()), "internal"),
        (ActionResult::Unknown, "internal"),
    ] {
        let registry = Registry::new();
        let bench = Bench::of(&autoscaler(|_| {}), &[]);
        let metrics = Metrics::register(&RoomMetrics::new(registry.clone()), bench.remembering).unwrap();
        let look = Looked { action: "none", error: "none", ..Looked::default() };
        metrics.planned(&key(), &Note { look: Some(look), draft: None });
        let actions = [status(result.clone())];
        metrics.ended(&key(), ReconcileEnd { outcome: &outcome, actions: &actions, took: Duration::ZERO });
        let families = registry.gather();
        let counted = families
            .iter()
            .find(|family| family.name() == "horizontal_pod_autoscaler_controller_reconciliations_total");
        let labels = counted.unwrap().get_metric()[0].get_label();
        let shown = labels.iter().find(|label| label.name() == "error").unwrap().value();
        assert_eq!(shown, error, "{result:?}");
    }
}
