//! The plan's table.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::sync_codes::SyncCodes;
use super::plan::plan;
use super::view::View;
use super::{METRICS, build};
use coxswain_machinery::api::core::ConfigMap;
use coxswain_machinery::api::kinds::CONFIG_MAPS;
use coxswain_machinery::executor::{ActionState, write_action};
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::framework::{Meter as _, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::plan::{Cooldown, Step, Verb};
use coxswain_machinery::options::Config;
use coxswain_machinery::telemetry::{Registry, encode_text};
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes};
use coxswain_machinery::wire::{Message, Str, Value};

fn view(published: Option<Arc<ConfigMap>>) -> View {
    View { namespace: "team".into(), active: true, bundle: "PEM".into(), published }
}

fn written(view: &View) -> Option<(String, Bytes)> {
    match plan(view).steps.as_slice() {
        [] => None,
        [Step::Write(write)] => match &write.verb {
            Verb::Create(object) | Verb::Update(object) => Some((write.to_string(), object.clone())),
            other => panic!("{other:?}"),
        },
        steps => panic!("{steps:?}"),
    }
}

fn stored(object: &Bytes) -> Arc<ConfigMap> {
    downcast((CONFIG_MAPS.decode)(object).unwrap()).unwrap()
}

#[test]
fn a_namespace_without_it_gets_one_and_is_then_left_alone() {
    let (what, object) = written(&view(None)).unwrap();
    assert_eq!(what, "create configmaps team/kube-root-ca.crt");
    assert_eq!(stored(&object).data.get("ca.crt").unwrap(), "PEM");
    assert_eq!(written(&view(Some(stored(&object)))), None);
}

#[test]
fn namespace_gets_the_empty_bundle_where_there_is_no_other() {
    let none = View { bundle: Str::EMPTY, ..view(None) };
    let (what, object) = written(&none).unwrap();
    assert_eq!(what, "create configmaps team/kube-root-ca.crt");
    assert_eq!(stored(&object).data.get("ca.crt").map(Str::as_str), Some(""));
    assert_eq!(written(&View { published: Some(stored(&object)), ..none }), None, "it is left alone");
}

#[test]
fn controller_is_built_with_an_empty_bundle_and_not_without_one() {
    let rig = |bundle| Rig::new(Config::default()).with_root_ca(bundle);
    assert_eq!(rig(Some(Str::EMPTY)).build(build).unwrap().loops.len(), 1);
    assert!(
        rig(None).build(build).is_err(),
        "it would replace the bundles of all namespaces by an empty one"
    );
}

#[test]
fn a_terminating_namespace_gets_none() {
    assert_eq!(written(&View { active: false, ..view(None) }), None);
}

#[test]
fn a_changed_copy_is_put_right_without_losing_what_is_unknown() {
    let (_, object) = written(&view(None)).unwrap();
    let mut changed = edit(
        &object,
        &[
            Edit::MapSet(&[2], "ca.crt".into(), "forged".into()),
            Edit::MapSet(&[2], "more".into(), "x".into()),
            Edit::MapSet(&[1, 11], "label".into(), "kept".into()),
        ],
    )
    .unwrap();
    put_bytes(&mut changed, 99, b"unknown");
    let (what, restored) = written(&view(Some(stored(&changed.into())))).unwrap();
    assert_eq!(what, "update configmaps team/kube-root-ca.crt");
    assert_eq!(get(&restored, &[99]).unwrap(), Some(Value::Bytes(b"unknown")));
    let restored = ConfigMap::decode(&restored).unwrap();
    assert_eq!(restored.data.as_slice(), [("ca.crt".into(), "PEM".into())]);
    assert_eq!(restored.metadata.labels.get("label").unwrap(), "kept");
}

#[test]
fn a_copy_with_a_value_of_any_bytes_is_put_right() {
    let (_, object) = written(&view(None)).unwrap();
    for key in ["ca.crt", "more"] {
        let entry = [&[10, key.len() as u8], key.as_bytes(), b"\x12\x01\xff"].concat();
        let mut changed = object.to_vec();
        put_bytes(&mut changed, 2, &entry);
        let (what, restored) = written(&view(Some(stored(&changed.into())))).unwrap();
        assert_eq!(what, "update configmaps team/kube-root-ca.crt");
        assert_eq!(ConfigMap::decode(&restored).unwrap().data.as_slice(), [("ca.crt".into(), "PEM".into())]);
    }
}

#[test]
fn a_description_is_put_back_only_where_there_is_none() {
    let (_, object) = written(&view(None)).unwrap();
    let description = |text: &str| Edit::MapSet(&[1, 12], "kubernetes.io/description".into(), text.into());
    for (text, rewritten) in [("mine", false), ("", true)] {
        let changed = edit(&object, &[description(text)]).unwrap().into();
        assert_eq!(written(&view(Some(stored(&changed)))).is_some(), rewritten, "{text:?}");
    }
    let without = ConfigMap {
        metadata: coxswain_machinery::api::meta::ObjectMeta::default(),
        ..(*stored(&object)).clone()
    };
    assert!(written(&view(Some(Arc::new(without)))).is_some());
}

#[test]
fn reconciles_are_counted_by_the_status_that_they_end_with() {
    let registry = Registry::new();
    let metrics = SyncCodes::register(&RoomMetrics::new(registry.clone()), METRICS, "namespaces").unwrap();
    let steps = plan(&view(None)).steps;
    let [Step::Write(write)] = steps.as_slice() else { panic!("{steps:?}") };
    let refused = ActionState { code: Some(403), ..write_action(write, write.to_string()) };
    let failed = || Outcome::Failed {
        error: "no".into(),
        retry: true,
        quiet: false,
        refused: true,
        requeue_after: None,
        not_before: None,
    };
    for (outcome, actions) in [
        (Outcome::Done { writes: 1, requeue_after: None, cooldown: Cooldown::NONE }, &[][..]),
        (Outcome::Absent, &[]),
        (Outcome::Waiting(&CONFIG_MAPS), &[]),
        (failed(), &[refused]),
        (failed(), &[]),
    ] {
        let took = Duration::from_millis(3);
        metrics.ended(
            &coxswain_machinery::model::Key::new("", "team"),
            ReconcileEnd { outcome: &outcome, actions, took },
        );
    }
    let page = encode_text(&registry);
    for (code, count) in [("200", 2), ("403", 1), ("500", 1)] {
        for series in [
            format!("root_ca_cert_publisher_sync_total{{code=\"{code}\"}} {count}\n"),
            format!(
                "root_ca_cert_publisher_sync_duration_seconds_bucket{{code=\"{code}\",le=\"0.004\"}} {count}\n"
            ),
            format!(
                "root_ca_cert_publisher_sync_duration_seconds_bucket{{code=\"{code}\",le=\"0.002\"}} 0\n"
            ),
        ] {
            assert!(page.contains(&series), "{series} in {page}");
        }
    }
}
