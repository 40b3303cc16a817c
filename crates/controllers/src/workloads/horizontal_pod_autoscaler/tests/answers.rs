//! Answers of metrics APIs, proper ones and others.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use coxswain_machinery::wire::Str;

use super::super::answers::{self, PodValues, QueryError, external, object, pod_metrics, pods};

fn resource(answer: &Value, resource: &str, container: Option<&str>) -> Result<PodValues, QueryError> {
    answers::resource(&pod_metrics(answer)?, resource, container)
}

fn fetch(error: QueryError) -> String {
    match error {
        QueryError::Fetch(text) => text,
        QueryError::Empty => "empty".to_owned(),
    }
}

fn pod(name: &str, containers: &Value) -> Value {
    json!({ "metadata": { "name": name }, "timestamp": "2024-01-01T00:00:00Z", "window": "1m30s", "containers": containers })
}

#[test]
fn a_pod_uses_what_its_containers_do_and_one_that_lacks_it_says_nothing() {
    let two = json!([{ "name": "c", "usage": { "cpu": "1500u", "memory": "1Ki" } }, { "name": "d", "usage": { "cpu": "2" } }]);
    let list = json!({ "kind": "PodMetricsList", "items": [pod("a", &two), pod("b", &json!([])), pod("c", &Value::Null)] });
    let cpu = resource(&list, "cpu", None).unwrap();
    let held: Vec<_> = cpu.iter().map(|(name, value)| (name.as_str(), value.value)).collect();
    assert_eq!(held, [("a", 2002)], "thousandths are rounded up");
    let of_a = cpu.values().next().unwrap();
    assert_eq!(
        (of_a.window, of_a.at.to_string().as_str()),
        (Duration::from_secs(90), "2024-01-01T00:00:00Z")
    );
    assert!(resource(&list, "memory", None).unwrap().is_empty());
    assert_eq!(resource(&list, "memory", Some("c")).unwrap().values().next().unwrap().value, 1_024_000);
    assert!(resource(&list, "memory", Some("d")).unwrap().is_empty());
}

#[test]
fn null_is_the_zero_value_in_each_field_and_a_negative_window_is_none() {
    let usage = json!({ "cpu": "1" });
    let containers = json!([{ "name": null, "usage": usage }]);
    for item in [
        json!({ "metadata": null, "timestamp": null, "window": null, "containers": containers }),
        json!({ "metadata": { "name": null }, "window": "-30s", "containers": containers }),
    ] {
        let list = json!({ "kind": "PodMetricsList", "items": [item] });
        let values = resource(&list, "cpu", None).unwrap();
        assert_eq!((values[""].value, values[""].window), (1000, Duration::ZERO), "{list}");
    }
    for item in [
        json!({ "describedObject": null, "windowSeconds": null, "value": "1" }),
        json!({ "describedObject": { "name": null }, "windowSeconds": -5, "value": "1" }),
    ] {
        let list = json!({ "kind": "MetricValueList", "items": [item] });
        assert_eq!(pods(&list).unwrap()[""].value, 1000, "{list}");
    }
}

/// Go reads a null into an element of a list as the zero value of its type.
#[test]
fn null_element_is_the_zero_value() {
    let containers = json!([{ "name": "c", "usage": { "cpu": "1" } }]);
    let list =
        json!({ "kind": "PodMetricsList", "items": [null, pod("a", &containers), pod("b", &json!([null]))] });
    let cpu = resource(&list, "cpu", None).unwrap();
    assert_eq!(cpu.keys().map(Str::as_str).collect::<Vec<_>>(), ["a"]);
    let custom = |item: &Value| json!({ "kind": "MetricValueList", "items": [item] });
    assert_eq!(pods(&custom(&Value::Null)), pods(&custom(&json!({}))));
    assert_eq!(object(&custom(&Value::Null)), Ok(0));
    let series = json!({ "kind": "ExternalMetricValueList", "items": [null, { "value": "2" }] });
    assert_eq!(external(&series), Ok(vec![0, 2000]));
}

#[test]
fn custom_metrics_are_read_in_both_versions() {
    for (metric, window, seconds) in [
        (json!({ "metricName": "m" }), json!({ "window": 30 }), 30),
        (json!({ "metric": { "name": "m" } }), json!({ "windowSeconds": 40 }), 40),
        (json!({}), json!({}), 60),
    ] {
        let mut item =
            json!({ "describedObject": { "kind": "Pod", "name": "a" }, "timestamp": null, "value": "1500m" });
        item.as_object_mut().unwrap().extend(metric.as_object().unwrap().clone());
        item.as_object_mut().unwrap().extend(window.as_object().unwrap().clone());
        let list = json!({ "kind": "MetricValueList", "items": [item] });
        let held = pods(&list).unwrap();
        assert_eq!(held["a"].value, 1500);
        assert_eq!(held["a"].window, Duration::from_secs(seconds));
        assert_eq!(object(&list), Ok(1500));
    }
    let none = json!({ "kind": "MetricValueList", "items": [] });
    assert_eq!(pods(&none), Err(QueryError::Empty));
    assert_eq!(
        fetch(object(&none).unwrap_err()),
        "the custom metrics API server returned 0 results when we asked for exactly one"
    );
    let series = json!({ "kind": "ExternalMetricValueList", "items": [{ "value": " 1 " }, { "value": 2 }, { "value": "-500m" }] });
    assert_eq!(external(&series), Ok(vec![1000, 2000, -500]));
    let without_values = json!({ "kind": "ExternalMetricValueList", "items": [{ "value": null }, {}] });
    assert_eq!(external(&without_values), Ok(vec![0, 0]));
}

#[test]
fn hpa_answer_without_a_kind_is_read() {
    let items = json!([{ "describedObject": { "name": "a" }, "value": "3" }]);
    for list in [json!({ "items": items }), json!({ "kind": "", "items": items })] {
        assert_eq!(pods(&list).unwrap()["a"].value, 3000, "{list}");
        assert_eq!(object(&list), Ok(3000), "{list}");
    }
}

#[test]
fn what_is_not_understood_is_said_in_few_words() {
    for (answer, told) in [
        (json!(null), "decode PodMetricsList"),
        (json!([1, 2]), "decode PodMetricsList"),
        (json!({}), "empty"),
        (json!({ "kind": "Secret", "items": [] }), "decode PodMetricsList: unexpected kind \"Secret\""),
        (json!({ "kind": "PodMetricsList", "items": {} }), "decode PodMetricsList"),
        (json!({ "kind": "PodMetricsList", "items": null }), "empty"),
        (
            json!({ "kind": "PodMetricsList", "items": [pod("a", &json!([{ "usage": { "cpu": "lots" } }]))] }),
            "\"lots\" is not a quantity",
        ),
        (
            json!({ "kind": "PodMetricsList", "items": [pod("a", &json!([{ "usage": { "cpu": [] } }]))] }),
            "a value is not a quantity",
        ),
        (
            json!({ "kind": "PodMetricsList", "items": [{ "timestamp": "soon", "containers": [{ "usage": { "cpu": "1" } }] }] }),
            "a timestamp is not an RFC 3339 time",
        ),
        (
            json!({ "kind": "PodMetricsList", "items": [{ "window": "long", "containers": [{ "usage": { "cpu": "1" } }] }] }),
            "a window is not a duration",
        ),
    ] {
        let error = fetch(resource(&answer, "cpu", None).unwrap_err());
        assert!(error.starts_with(told) && error.len() < 300, "{error}");
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[0-9a-zA-Z.+-]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let name = prop::sample::select(vec![
            "kind",
            "items",
            "metadata",
            "name",
            "containers",
            "usage",
            "cpu",
            "value",
            "timestamp",
            "window",
            "windowSeconds",
            "describedObject",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..5)
                .prop_map(|map| map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    /// Whatever is answered, there are numbers or there is an error.
    #[test]
    fn nothing_that_is_answered_does_harm(mut answer in json_value(), kind in 0_usize..4) {
        let kinds = ["PodMetricsList", "MetricValueList", "ExternalMetricValueList", ""];
        if let Some(map) = answer.as_object_mut().filter(|_| !kinds[kind].is_empty()) {
            map.insert("kind".to_owned(), kinds[kind].into());
        }
        let _ = (resource(&answer, "cpu", None), resource(&answer, "cpu", Some("c")));
        let _ = (pods(&answer), object(&answer), external(&answer));
    }
}
