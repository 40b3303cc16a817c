//! Objects go from JSON to protobuf and back, and nothing of them is lost on the way.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::api::apps::RevisionDocument;
use crate::api::core::ConfigMap;
use crate::api::meta::{ObjectMeta, PartialObjectMetadata};
use crate::api::pod::Pod;
use crate::api::system::ValidatingAdmissionPolicy;
use crate::wire::splice::{Edit, edit, get};
use crate::wire::{
    Message as _, ObjectHead, Str, Value, WatchFrame, decode_list, path, unwrap_envelope, wrap_envelope,
};

fn protobuf(json: &Json) -> Bytes {
    object_from_json(json.to_string().as_bytes()).unwrap().into()
}

fn back(envelope: &Bytes) -> Json {
    serde_json::from_str(&object_to_json(envelope).unwrap()).unwrap()
}

fn pod() -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-0",
            "namespace": "shop",
            "labels": {"app": "web", "tier": ""},
            "creationTimestamp": "2026-11-26T08:00:00Z",
            "deletionGracePeriodSeconds": 0,
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {".": {}}}}],
        },
        "spec": {
            "nodeName": "node-1",
            "automountServiceAccountToken": false,
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
            "containers": [{
                "name": "server",
                "image": "registry/web:1",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 10},
                "readinessProbe": {"tcpSocket": {"port": 8080}},
            }],
        },
        "status": {"phase": "Running", "startTime": "2026-11-26T08:00:01Z"},
    })
}

#[test]
fn a_pod_is_the_same_in_both_forms() {
    let envelope = protobuf(&pod());
    let decoded = Pod::decode(&unwrap_envelope(&envelope).unwrap()).unwrap();
    assert_eq!(decoded.metadata.name, "web-0");
    assert_eq!(decoded.metadata.labels.get("app").map(Str::as_str), Some("web"));
    assert_eq!(decoded.metadata.creation_timestamp.map(|at| at.to_string()).unwrap(), "2026-11-26T08:00:00Z");
    assert_eq!(back(&envelope), pod());
}

/// Newer members are in every place: of the object, of a message, of an item, of what JSON has in its parent.
#[test]
fn what_is_newer_than_the_table_is_kept_through_edits() {
    let mut newer = pod();
    newer["tomorrow"] = json!({"a": [1, 2.50, null]});
    newer["metadata"]["shard"] = json!("s<1>");
    newer["spec"]["containers"][0]["accelerator"] = json!({"count": 2});
    newer["spec"]["volumes"][0]["holographic"] = json!({});
    newer["spec"]["containers"][0]["livenessProbe"]["telepathy"] = json!(true);
    let envelope = protobuf(&newer);
    assert_eq!(back(&envelope), newer);

    let object = unwrap_envelope(&envelope).unwrap();
    let edits = [
        Edit::SetBytes(path!(Pod, status.phase), b"Failed".to_vec()),
        Edit::MapSet(path!(Pod, metadata.labels), "added".to_owned(), "1".to_owned()),
    ];
    let edited = edit(&object, &edits).unwrap();
    newer["status"]["phase"] = json!("Failed");
    newer["metadata"]["labels"]["added"] = json!("1");
    assert_eq!(back(&wrap_envelope("v1", "Pod", &edited).into()), newer);
}

/// The original compares the bytes of revisions, and makes new ones when they differ.
#[test]
fn documents_keep_every_byte() {
    let document = r#"{"spec":{"template":{"b":1.0,"a":"\u003c&>","n":1e3}}}"#;
    let text = format!(
        r#"{{"kind":"ControllerRevision","apiVersion":"apps/v1","metadata":{{"name":"a"}},"data":{document},"revision":3}}"#
    );
    let envelope = object_from_json(text.as_bytes()).unwrap().into();
    assert!(object_to_json(&envelope).unwrap().contains(&format!(r#""data":{document}"#)));
    let object = unwrap_envelope(&envelope).unwrap();
    let held = get(&object, path!(RevisionDocument, data.raw)).unwrap().unwrap();
    assert_eq!(held.text().unwrap(), document);
}

#[test]
fn values_of_every_type_go_both_ways() {
    let cases = [
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
            "spec": {"holderIdentity": "", "leaseTransitions": 0, "renewTime": "2026-11-26T08:00:00.000120Z"}}),
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "a"},
            "spec": {"request": "AAEC/w==", "signerName": "s", "usages": ["a"], "extra": {"k": ["x", "y"], "l": []}}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"replicas": 0, "paused": true, "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
                "selector": {}, "template": {"metadata": {}, "spec": {"containers": []}}}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "", "l": "/w=="}}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a"},
            "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"maximum": 1.5}}}]}}),
        json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion", "metadata": {"name": "a"}}),
        json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 409, "details": {"uid": "u"}}),
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}),
    ];
    for mut case in cases {
        let came = back(&protobuf(&case));
        // A list that is there and empty is no list in protobuf.
        if let Some(spec) = case.pointer_mut("/spec/template/spec").and_then(Json::as_object_mut) {
            spec.remove("containers");
        }
        assert_eq!(came, case);
    }
    let negative = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"priority": -5}});
    assert_eq!(back(&protobuf(&negative)), negative);
}

/// As in Kubernetes, the first second of the year 1 is no time, and a time with microseconds has six digits of them.
#[test]
fn times_are_read_as_in_kubernetes() {
    let lease = |acquired: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {"acquireTime": acquired}});
    let acquired = |text: &str| back(&protobuf(&lease(text)))["spec"]["acquireTime"].clone();
    assert_eq!(acquired("2026-11-26T09:00:00.000120+01:00"), "2026-11-26T08:00:00.000120Z");
    assert_eq!(acquired("0001-01-01T00:00:00.000000Z"), Json::Null);
    for text in ["2026-11-26T08:00:00Z", "2026-11-26T08:00:00.00012Z", "2026-11-26T08:00:00.0001200Z"] {
        let error = object_from_json(lease(text).to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("malformed JSON in spec.acquireTime: "), "{error}");
    }
    let mut unset = pod();
    unset["metadata"]["creationTimestamp"] = json!("0001-01-01T00:00:00Z");
    assert_eq!(back(&protobuf(&unset))["metadata"]["creationTimestamp"], Json::Null);
}

#[test]
fn lists_of_metadata_do_not_say_again_what_their_items_are() {
    let list = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "7"},
        "items": [{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "a"}}],
    });
    assert_eq!(back(&protobuf(&list))["items"], json!([{"metadata": {"name": "a"}}]));
}

#[test]
fn an_event_of_a_watch_is_a_frame() {
    let event = json!({"type": "MODIFIED", "object": pod()});
    let frame = watch_event_from_json(event.to_string().as_bytes()).unwrap();
    let frame = WatchFrame::decode(&frame.into()).unwrap();
    assert_eq!(frame.kind, crate::wire::EventType::Modified);
    assert_eq!(Pod::decode(&frame.object).unwrap().metadata.name, "web-0");
}

#[test]
fn an_object_that_cannot_be_read_keeps_no_other_from_being_seen() {
    let mut wrong = pod();
    wrong["status"]["startTime"] = json!("yesterday");
    let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [wrong, pod()]});
    let page = decode_list(&unwrap_envelope(&protobuf(&list)).unwrap()).unwrap();
    assert_eq!(page.resource_version, "7");
    assert!(Pod::decode(&page.items[0]).is_err() && Pod::decode(&page.items[1]).is_ok());
    assert_eq!(ObjectHead::read(&page.items[0]).unwrap().name, "web-0");
    let event = |object: &Json| {
        let event = json!({"type": "ADDED", "object": object}).to_string();
        WatchFrame::decode(&watch_event_from_json(event.as_bytes()).unwrap().into()).unwrap().object
    };
    let object = event(&wrong);
    assert!(Pod::decode(&object).is_err());
    assert_eq!(ObjectHead::read(&object).unwrap().namespace, "shop");
    // Nor if it is the metadata, of which the rest names the object, or all of it.
    let mut wrong = pod();
    wrong["metadata"]["labels"] = json!(7);
    let nothing = json!({"apiVersion": "v1", "kind": "Pod", "metadata": 7});
    let items = json!([wrong, nothing, 7, pod()]);
    let list =
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": items});
    let page = decode_list(&unwrap_envelope(&protobuf(&list)).unwrap()).unwrap();
    let names: Vec<_> = page.items.iter().map(|item| ObjectHead::salvage(item).name).collect();
    assert_eq!(names, ["web-0", "", "", "web-0"]);
    let readable: Vec<bool> = page.items.iter().map(|item| Pod::decode(item).is_ok()).collect();
    assert_eq!(readable, [false, false, false, true]);
    assert_eq!(ObjectHead::salvage(&event(&wrong)).name, "web-0");
}

#[test]
fn bytes_that_are_no_text_become_characters_in_json() {
    let text = Str::of_bytes(b"a\xff\xc3");
    let metadata = ObjectMeta {
        name: text.clone(),
        labels: [(text.clone(), Str::of_bytes("\u{10ffff}".as_bytes()))].into_iter().collect(),
        ..ObjectMeta::default()
    };
    let pod = Pod { metadata, ..Pod::default() }.to_bytes();
    let object = back(&wrap_envelope("v1", "Pod", &pod).into());
    let metadata = &object["metadata"];
    assert_eq!(metadata["name"], "a\u{fffd}\u{fffd}");
    assert_eq!(metadata["labels"], json!({"a\u{fffd}\u{fffd}": "\u{10ffff}"}));
}

#[test]
fn what_is_wrong_is_not_quoted() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": "hunter2"});
    let error = object_from_json(secret.to_string().as_bytes()).unwrap_err().to_string();
    assert_eq!(error, "malformed JSON in data: unexpected type");
}

/// In JSON mode whole objects pass here, with keys and values of any user.
#[test]
fn text_that_is_not_unicode_is_replaced_in_whole_objects() {
    let object = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","x\udfff":"\ud800"},"data":{"k\ud800":"v\ud83d"}}"#;
    let raw = [&object[..object.len() - 9], b"\xff\"}}"].concat();
    let event = [b"{\"type\":\"ADDED\",\"object\":", &object[..], b"}"].concat();
    let frame = WatchFrame::decode(&watch_event_from_json(&event).unwrap().into()).unwrap();
    let read = |json: &[u8]| unwrap_envelope(&object_from_json(json).unwrap().into()).unwrap();
    for encoded in [read(object), read(&raw), frame.object] {
        let decoded = ConfigMap::decode(&encoded).unwrap();
        let data = decoded.data.iter();
        let data: Vec<_> = data.map(|(key, value)| (key.to_string(), value.to_string())).collect();
        assert_eq!(data, [("k\u{fffd}".to_owned(), "v\u{fffd}".to_owned())]);
    }
}

#[test]
fn every_field_of_the_table_is_read() {
    for row in schema::TABLE.lines().filter(|line| !line.starts_with('#')) {
        let (name, fields) = row.split_once('\t').unwrap_or((row, ""));
        let spelt = fields.split('\t').filter(|field| !field.is_empty() && !field.ends_with(" aside"));
        let read = schema::SCHEMA.fields(schema::SCHEMA.named(name).unwrap());
        assert_eq!(read.len(), spelt.count(), "{name}");
    }
}

/// Kubernetes' types read the first ones so, and refuse or merge the others.
#[test]
fn members_are_those_that_kubernetes_reads() {
    let envelope = protobuf(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "spec": {"variables": [{"name": "a", "expression": "1"}], "validations": [{"expression": "true"}]},
    }));
    let policy = ValidatingAdmissionPolicy::decode(&unwrap_envelope(&envelope).unwrap()).unwrap();
    assert_eq!((&*policy.spec.variables[0].name, &*policy.spec.variables[0].expression), ("a", "1"));
    assert_eq!(policy.spec.validations[0].expression, "true");

    let error = |json: &str| object_from_json(json.as_bytes()).unwrap_err().to_string();
    for (json, expected) in [
        (r#"{"apiVersion":"v1","kind":"Pod","metadata":{},"metadata":{}}"#, "in metadata: duplicate member"),
        (
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","name":"a"}}"#,
            "in metadata.name: duplicate member",
        ),
        (r#"{"apiVersion":"v1","kind":"Pod","Kind":"Secret"}"#, "in kind: unexpected spelling of the member"),
        (
            "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"\u{212a}ind\":\"Secret\"}",
            "in kind: unexpected spelling of the member",
        ),
        (
            r#"{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":3000000000}}"#,
            "in spec.replicas: unexpected type",
        ),
    ] {
        assert!(error(json).ends_with(expected), "{json}: {}", error(json));
    }
    let twice =
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"b","a":"c"},"generation":3000000000}}"#;
    let envelope = object_from_json(twice.as_bytes()).unwrap();
    let pod = Pod::decode(&unwrap_envelope(&envelope.into()).unwrap()).unwrap();
    assert_eq!(
        (pod.metadata.labels.get("a").map(Str::as_str), pod.metadata.generation),
        (Some("c"), 3_000_000_000)
    );
    // Members that the table lacks may occur twice: decoding makes one name of two that are not Unicode.
    let unknown =
        br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","\ud800":1,"\ud801":2},"a":1,"a":2}"#;
    assert!(object_from_json(unknown).is_ok());
}

/// An aggregated API server may store the JSON of its users unchanged. Go reads it.
#[test]
fn metadata_of_others_objects_is_read_whatever_occurs_twice() {
    for object in [
        r#"{"apiVersion":"x.test/v1","kind":"W","Kind":"Secret","metadata":{"name":"a"},"spec":{},"spec":{}}"#,
        r#"{"apiVersion":"x.test/v1","kind":"V","kind":"W","metadata":{"name":"b"},"metadata":{"name":"a"}}"#,
        r#"{"apiVersion":"x.test/v1","kind":"W","metadata":{"name":"b","name":"a","\ud800":1,"\ud801":2}}"#,
        r#"{"apiVersion":"x.test/v1","kind":"W","metadata":{"name":"a","ownerReferences":[{"uid":"x","uid":"y"}]}}"#,
        r#"{"apiVersion":"x.test/v1","kind":"W","metadata":{"name":"a","name":null},"metadata":null}"#,
    ] {
        let name = |object: Bytes| PartialObjectMetadata::decode(&object).unwrap().metadata.name.to_string();
        let envelope = metadata_from_json(object.as_bytes()).unwrap();
        assert_eq!(name(unwrap_envelope(&envelope.into()).unwrap()), "a", "{object}");
        let list = format!(r#"{{"apiVersion":"x.test/v1","kind":"WList","items":[{object}]}}"#);
        let list = unwrap_envelope(&metadata_list_from_json(list.as_bytes()).unwrap().into()).unwrap();
        let objects = decode_list(&list).unwrap().items;
        assert_eq!(objects.len(), 1, "{object}");
        let line = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let frame = metadata_event_from_json(line.as_bytes()).unwrap().into();
        assert_eq!(name(WatchFrame::decode(&frame).unwrap().object), "a", "{object}");
    }
}

/// The oracle has these answers: see `members`.
#[test]
fn members_of_others_metadata_are_merged_as_by_go() {
    let all = r#""name":"a","namespace":"x","labels":{"l":"1"},"finalizers":["f"],"ownerReferences":[{"uid":"u","controller":true}]"#;
    let whole = "x/a l=1 f u true";
    for (metadata, expected) in [
        (format!(r#""metadata":{{{all}}},"metadata":{{}}"#), whole),
        (format!(r#""metadata":{{{all}}},"metadata":null"#), whole),
        (format!(r#""metadata":null,"metadata":{{{all}}}"#), whole),
        (format!(r#""metadata":{{{all},"name":null,"namespace":null}}"#), whole),
        (format!(r#""metadata":{{{all}}},"metadata":{{"name":"b","labels":{{}}}}"#), "x/b l=1 f u true"),
        (format!(r#""metadata":{{{all}}},"metadata":{{"labels":{{"m":"2"}}}}"#), "x/a l=1 m=2 f u true"),
        (format!(r#""metadata":{{{all},"labels":{{"l":null}}}}"#), "x/a l= f u true"),
        (format!(r#""metadata":{{{all},"labels":null,"finalizers":null}}"#), "x/a u true"),
        (format!(r#""metadata":{{{all},"finalizers":[null,"g",null]}}"#), "x/a l=1 f g  u true"),
        (format!(r#""metadata":{{{all},"ownerReferences":[]}}"#), "x/a l=1 f"),
        (format!(r#""metadata":{{{all},"ownerReferences":[null]}}"#), whole),
        (format!(r#""metadata":{{{all},"ownerReferences":[{{"controller":null}}]}}"#), "x/a l=1 f u"),
        (
            format!(r#""metadata":{{{all},"ownerReferences":[{{"uid":"v"}},{{"uid":"w"}}]}}"#),
            "x/a l=1 f v true w",
        ),
        (
            format!(
                r#""metadata":{{{all},"ownerReferences":[{{}},{{"uid":"w"}}],"ownerReferences":[{{}}],"ownerReferences":[{{}},{{}}]}}"#
            ),
            "x/a l=1 f u true w",
        ),
    ] {
        let shown = |object: Bytes| {
            let meta = PartialObjectMetadata::decode(&object).unwrap().metadata;
            let mut words = vec![format!("{}/{}", meta.namespace, meta.name)];
            words.extend(meta.labels.iter().map(|(key, value)| format!("{key}={value}")));
            words.extend(meta.finalizers.iter().map(ToString::to_string));
            words.extend(
                meta.owner_references
                    .iter()
                    .flat_map(|owner| {
                        [Some(owner.uid.to_string()), owner.controller.map(|controls| controls.to_string())]
                    })
                    .flatten(),
            );
            words.join(" ")
        };
        let object = format!(r#"{{"apiVersion":"x.test/v1","kind":"W",{metadata}}}"#);
        let envelope = metadata_from_json(object.as_bytes()).unwrap();
        assert_eq!(shown(unwrap_envelope(&envelope.into()).unwrap()), expected, "{object}");
        let list = format!(r#"{{"apiVersion":"x.test/v1","kind":"WList","items":[{object}]}}"#);
        let list = unwrap_envelope(&metadata_list_from_json(list.as_bytes()).unwrap().into()).unwrap();
        let items = decode_list(&list).unwrap().items.into_iter().map(shown).collect::<Vec<_>>();
        assert_eq!(items, [expected], "{object}");
        let line = format!(r#"{{"type":"DELETED","object":{object}}}"#);
        let frame = metadata_event_from_json(line.as_bytes()).unwrap().into();
        assert_eq!(shown(WatchFrame::decode(&frame).unwrap().object), expected, "{object}");
    }
}

/// A deletion of an object without a name would end the watch of its kind.
#[test]
fn malformed_metadata_that_occurs_twice_still_names_the_object() {
    for metadata in [
        r#""metadata":{"name":"a"},"metadata":{"labels":7}"#,
        r#""metadata":{"name":"a"},"metadata":7"#,
        r#""metadata":{"name":"b"},"metadata":{"name":"a","name":7}"#,
    ] {
        let line =
            format!(r#"{{"type":"DELETED","object":{{"apiVersion":"x.test/v1","kind":"W",{metadata}}}}}"#);
        let frame = WatchFrame::decode(&metadata_event_from_json(line.as_bytes()).unwrap().into()).unwrap();
        assert!(PartialObjectMetadata::decode(&frame.object).is_err(), "{metadata}");
        assert_eq!(ObjectHead::salvage(&frame.object).name, "a", "{metadata}");
    }
}

/// A marked object with the name of another one would replace that one in a cache.
#[test]
fn watched_object_that_is_ambiguous_is_marked_and_named_once_at_most() {
    for (object, named) in [
        (r#"{"apiVersion":"v1","kind":"Pod","Kind":"Secret","metadata":{"name":"a"}}"#, "a"),
        (r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"metadata":{"name":"b"}}"#, ""),
        (r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","name":"b"}}"#, ""),
    ] {
        let line = format!(r#"{{"type":"DELETED","object":{object}}}"#);
        let frame = WatchFrame::decode(&watch_event_from_json(line.as_bytes()).unwrap().into()).unwrap();
        assert!(Pod::decode(&frame.object).is_err(), "{object}");
        let name = ObjectHead::salvage(&frame.object).name;
        assert_eq!(name, named, "{object}");
    }
}

/// Kubernetes' types have these names; the definitions in protobuf have others.
#[test]
fn names_that_differ_from_the_definitions_are_those_of_kubernetes() {
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": {"uid": "u"}},
    });
    let envelope = protobuf(&request);
    let object = unwrap_envelope(&envelope).unwrap();
    assert_eq!(get(&object, &[2, 3, 4]).unwrap(), Some(Value::Bytes(b"u")), "{request}");
    let class = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "spec": {"config": [{"opaque": {"driver": "d"}}]},
    });
    let envelope = protobuf(&class);
    let object = unwrap_envelope(&envelope).unwrap();
    assert_eq!(get(&object, &[2, 2, 1, 1, 1]).unwrap(), Some(Value::Bytes(b"d")), "{class}");
    assert_eq!(back(&envelope), class);
}

#[test]
fn quantities_have_blanks_around_them_and_no_escapes() {
    let quota = |amount: &str| {
        let text =
            format!(r#"{{"apiVersion":"v1","kind":"ResourceQuota","spec":{{"hard":{{"pods":{amount}}}}}}}"#);
        object_from_json(text.as_bytes())
            .map(|envelope| back(&envelope.into())["spec"]["hard"]["pods"].clone())
    };
    for (amount, expected) in [(r#"" 5 ""#, "5"), ("5", "5"), (r#""1e3""#, "1e3")] {
        assert_eq!(quota(amount).unwrap(), json!(expected), "{amount}");
    }
    let error = quota(r#""\u0035""#).unwrap_err().to_string();
    assert!(error.ends_with("a quantity has an escape sequence"), "{error}");
}

#[test]
fn times_of_1970_survive_and_the_zero_time_is_null() {
    for (text, expected) in [
        (json!("1970-01-01T00:00:00Z"), json!("1970-01-01T00:00:00Z")),
        (json!("0001-01-01T00:00:00Z"), Json::Null),
    ] {
        let envelope =
            protobuf(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"creationTimestamp": text}}));
        assert_eq!(back(&envelope)["metadata"]["creationTimestamp"], expected);
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let error = |json: Json| object_from_json(json.to_string().as_bytes()).unwrap_err().to_string();
    assert!(error(json!([])).starts_with("malformed JSON: "));
    assert_eq!(error(json!({"kind": "Pod"})), "malformed JSON in apiVersion: missing member");
    let unknown = error(json!({"apiVersion": "v1", "kind": "Table"}));
    assert_eq!(unknown, "malformed JSON: unknown kind Table of v1");
    let mut wrong = pod();
    wrong["spec"]["containers"][0]["livenessProbe"]["periodSeconds"] = json!("ten");
    assert!(error(wrong).starts_with("malformed JSON in spec.containers.0.livenessProbe.periodSeconds: "));
    let mut wrong = pod();
    wrong["status"]["startTime"] = json!("yesterday");
    assert!(error(wrong).starts_with("malformed JSON in status.startTime: "));

    let unnamed = wrap_envelope("v1", "ConfigMap", &[0x80, 0x7d, 1]);
    let error = object_to_json(&unnamed.into()).unwrap_err().to_string();
    assert_eq!(error, "malformed JSON: field 2000 has no name");
}

proptest! {
    #[test]
    fn nothing_that_arrives_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = object_from_json(&bytes);
        let _ = watch_event_from_json(&bytes);
        let _ = object_to_json(&Bytes::from(bytes.clone()));
        let _ = object_to_json(&wrap_envelope("v1", "Pod", &bytes).into());
    }

    #[test]
    fn any_texts_survive(data in proptest::collection::btree_map(".*", ".*", 0..5), newer in ".*") {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "newer": newer}, "data": data});
        let envelope = protobuf(&object);
        let decoded = ConfigMap::decode(&unwrap_envelope(&envelope).unwrap());
        prop_assert!(decoded.is_ok());
        let came = back(&envelope);
        prop_assert_eq!(&came["metadata"], &object["metadata"]);
        if !data.is_empty() {
            prop_assert_eq!(&came["data"], &object["data"]);
        }
    }
}
