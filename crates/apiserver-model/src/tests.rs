//! What the model does, as the documentation of the API says it.

mod names;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use coxswain_machinery::wire::json::schema::SCHEMA;
use coxswain_machinery::wire::text::held_text;

use super::http::{Answer, Asked};
use super::{Deletion, Model, PatchType, Place, Query, codec, stored_kind};

const NS: &str = "default";

fn model() -> Model {
    Model::new(Timestamp::from_second(1_800_000_000).expect("a time"), 1)
}

fn pod(name: &str) -> Json {
    json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "main" }] } })
}

fn place(name: &str) -> Place {
    Place::new("pods", NS, name)
}

/// Changes an object, as a PUT does that was made from it.
fn edit(model: &mut Model, place: &Place, edit: impl FnOnce(&mut Json)) -> Result<u64, u16> {
    model.change("user", place, "", edit).map(|stored| stored.version).map_err(|refusal| refusal.code)
}

#[test]
fn an_object_is_the_same_after_a_way_over_the_line() {
    let deployment = json!({
        "metadata": {
            "name": "web", "uid": "u", "generation": 3, "creationTimestamp": "2027-01-15T08:00:00Z",
            "labels": { "app": "web", "empty": "" }, "finalizers": ["a", "b"],
            "ownerReferences": [{ "apiVersion": "v1", "kind": "K", "name": "n", "uid": "o", "controller": false }],
        },
        "spec": {
            "replicas": 0, "strategy": { "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 1 } },
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "spec": {
                "volumes": [{ "name": "v", "emptyDir": {} }],
                "containers": [{
                    "name": "c", "resources": { "limits": { "cpu": "1" } },
                    "livenessProbe": { "httpGet": { "port": 80 }, "periodSeconds": 5 },
                }],
            } },
        },
        "status": { "replicas": 2, "conditions": [{ "type": "Available", "status": "True" }] },
    });
    let message = SCHEMA.named("apps.v1.Deployment").expect("it is stored");
    let decoded = codec::decode(message, &codec::encode(message, &deployment)).expect("an object");
    assert_eq!(decoded, deployment);
}

#[test]
fn strings_have_any_bytes_until_a_patch_makes_text_of_them() {
    let mut model = model();
    let mut pod = pod("a");
    pod["metadata"]["annotations"] = json!({ "a": &*held_text(b"\xff"), "b": "caf\u{e9}" });
    let stored = model.create("user", "pods", NS, pod).expect("a pod");
    let encoded = stored.encoded(false);
    assert!(encoded.windows(3).any(|part| part == b"\x12\x01\xff"), "{encoded:?}");
    let message = SCHEMA.named("core.v1.Pod").expect("it is stored");
    assert_eq!(codec::decode(message, &encoded).expect("a pod")["metadata"], stored.json["metadata"]);
    let patched = PatchType::Merge.apply(&place("a"), &stored.json, &json!({})).expect("a pod");
    assert_eq!(patched["metadata"]["annotations"], json!({ "a": "\u{fffd}", "b": "caf\u{e9}" }));
}

#[test]
fn versions_grow_and_old_ones_are_refused() {
    let mut model = model();
    let first = model.create("user", "pods", NS, pod("a")).expect("a pod");
    assert_eq!(edit(&mut model, &place("a"), |_| {}), Ok(first.version), "nothing changes: no new version");
    let second = edit(&mut model, &place("a"), |pod| pod["metadata"]["labels"] = json!({ "a": "b" }));
    assert!(second > Ok(first.version));
    let stale = |pod: &mut Json| pod["metadata"]["resourceVersion"] = json!(first.version.to_string());
    assert_eq!(edit(&mut model, &place("a"), stale), Err(409));
    assert_eq!(edit(&mut model, &place("a"), |pod| pod["metadata"]["uid"] = json!("other")), Err(422));
    assert_eq!(edit(&mut model, &place("b"), |_| {}), Err(404));
    assert_eq!(model.create("user", "pods", NS, pod("a")).map_err(|refusal| refusal.code).err(), Some(409));
}

#[test]
fn only_the_subresource_writes_the_status_and_only_the_spec_makes_a_generation() {
    let mut model = model();
    drop(model.create("user", "pods", NS, pod("a")));
    let generation = |model: &Model| model.look("pods", NS, "a")["metadata"]["generation"].clone();
    edit(&mut model, &place("a"), |pod| pod["status"]["phase"] = json!("Failed")).expect("a version");
    assert_eq!(model.look("pods", NS, "a")["status"]["phase"], "Pending");
    let fails = |pod: &mut Json| {
        pod["status"]["phase"] = json!("Failed");
        pod["spec"]["nodeName"] = json!("n");
    };
    drop(model.change("kubelet", &place("a"), "status", fails));
    let held = model.look("pods", NS, "a");
    assert_eq!((&held["status"]["phase"], &held["spec"]["nodeName"]), (&json!("Failed"), &Json::Null));
    assert_eq!(generation(&model), 1);
    edit(&mut model, &place("a"), |pod| pod["spec"]["nodeName"] = json!("n")).expect("a version");
    assert_eq!(generation(&model), 2);
}

#[test]
fn what_runs_ends_gracefully_and_what_has_finalizers_waits() {
    let mut model = model();
    let mut held = pod("a");
    held["metadata"]["finalizers"] = json!(["keep"]);
    drop(model.create("user", "pods", NS, held));
    edit(&mut model, &place("a"), |pod| pod["spec"]["nodeName"] = json!("n")).expect("a version");
    let other = Deletion { uid: "other".to_owned(), ..Deletion::default() };
    assert_eq!(model.delete("user", &place("a"), &other).map_err(|refusal| refusal.code).err(), Some(409));
    drop(model.delete("user", &place("a"), &Deletion::default()));
    assert_eq!(model.look("pods", NS, "a")["metadata"]["deletionGracePeriodSeconds"], 30);
    drop(model.delete("kubelet", &place("a"), &Deletion { grace: Some(0), ..Deletion::default() }));
    assert_eq!(model.look("pods", NS, "a")["metadata"]["deletionGracePeriodSeconds"], 0);
    let more = |pod: &mut Json| pod["metadata"]["finalizers"] = json!(["keep", "more"]);
    assert_eq!(edit(&mut model, &place("a"), more), Err(422));
    edit(&mut model, &place("a"), |pod| pod["metadata"]["finalizers"] = json!([])).expect("the last version");
    assert!(model.get(&place("a")).is_none());
}

#[test]
fn what_a_pod_mounts_stays() {
    let mut model = model();
    model.create("user", "pods", NS, pod("a")).expect("a pod");
    let refused = edit(&mut model, &place("a"), |pod| pod["spec"]["volumes"] = json!([{ "name": "data" }]));
    assert_eq!(refused, Err(422));
    assert!(edit(&mut model, &place("a"), |pod| pod["spec"]["nodeName"] = json!("n")).is_ok());
}

#[test]
fn a_namespace_that_goes_takes_nothing_in_and_waits_for_its_finalizer() {
    let mut model = model();
    let home = Place::new("namespaces", "", NS);
    drop(model.delete("user", &home, &Deletion::default()));
    assert_eq!(model.look("namespaces", "", NS)["status"]["phase"], "Terminating");
    let refused = model.create("user", "pods", NS, pod("a")).map_err(|refusal| refusal.code);
    assert_eq!(refused.err(), Some(403));
    let done = |namespace: &mut Json| {
        namespace["spec"]["finalizers"] = json!([]);
    };
    drop(model.change("user", &home, "", done));
    assert!(model.get(&home).is_some(), "only the subresource takes it off");
    drop(model.change("user", &home, "finalize", done));
    assert!(model.get(&home).is_none());
}

#[test]
fn patches_do_what_their_types_say() {
    let owners = |uids: &[&str]| -> Json {
        let owners: Vec<Json> = uids.iter().map(|uid| json!({ "uid": uid })).collect();
        json!({ "metadata": { "ownerReferences": owners, "finalizers": ["a"] }, "l": { "x": 1 } })
    };
    let cases = [
        (PatchType::Merge, json!({ "l": { "x": null, "y": 2 } }), "/l", json!({ "y": 2 })),
        (
            PatchType::Strategic,
            json!({ "metadata": { "ownerReferences": [{ "$patch": "delete", "uid": "1" }, { "uid": "3" }] } }),
            "/metadata/ownerReferences",
            json!([{ "uid": "2" }, { "uid": "3" }]),
        ),
        (
            PatchType::Strategic,
            json!({ "metadata": { "finalizers": ["b", "a"] } }),
            "/metadata/finalizers",
            json!(["a", "b"]),
        ),
        (
            PatchType::Strategic,
            json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a"] } }),
            "/metadata/finalizers",
            json!([]),
        ),
        (
            PatchType::Json,
            json!([
                { "op": "test", "path": "/l/x", "value": 1 },
                { "op": "remove", "path": "/metadata/ownerReferences/0" },
            ]),
            "/metadata/ownerReferences",
            json!([{ "uid": "2" }]),
        ),
    ];
    for (patch, body, path, wanted) in cases {
        let patched = patch.apply(&place("a"), &owners(&["1", "2"]), &body).expect("a patch");
        assert_eq!(patched.pointer(path), Some(&wanted), "{body}");
    }
    let fails = json!([{ "op": "test", "path": "/l/x", "value": 2 }]);
    let refused = PatchType::Json.apply(&place("a"), &owners(&[]), &fails);
    assert_eq!(refused.map_err(|refusal| refusal.code), Err(422));
}

/// All frames that are there, by their words and names.
fn frames(receiver: &mut tokio::sync::mpsc::Receiver<(tokio::time::Instant, bytes::Bytes)>) -> Vec<String> {
    let mut found = Vec::new();
    while let Ok((_, frame)) = receiver.try_recv() {
        let text = String::from_utf8_lossy(&frame).into_owned();
        let words = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"];
        found.extend(words.iter().find(|word| text.contains(**word)).map(|word| (*word).to_owned()));
    }
    found
}

#[test]
fn watches_go_on_where_they_were_unless_that_is_forgotten() {
    let mut model = model();
    let query = |labels| Query::new(stored_kind("pods"), false, "", "", labels);
    drop(model.create("user", "pods", NS, pod("a")));
    let from = model.version().to_string();
    let mut all = model.watch(query(""), "", true);
    let mut selected = model.watch(query("app=web"), "", true);
    edit(&mut model, &place("a"), |pod| pod["metadata"]["labels"] = json!({ "app": "web" }))
        .expect("a version");
    edit(&mut model, &place("a"), |pod| pod["metadata"]["labels"] = json!({ "app": "no" }))
        .expect("a version");
    drop(model.delete("user", &place("a"), &Deletion::default()));
    assert_eq!(frames(&mut all), ["ADDED", "BOOKMARK", "MODIFIED", "MODIFIED", "DELETED"]);
    assert_eq!(frames(&mut selected), ["BOOKMARK", "ADDED", "DELETED"]);
    let mut late = model.watch(query(""), &from, false);
    assert_eq!(frames(&mut late), ["MODIFIED", "MODIFIED", "DELETED"]);
    model.compact();
    assert_eq!(frames(&mut model.watch(query(""), &from, false)), ["ERROR"]);
}

#[test]
fn a_list_comes_in_pages_until_it_is_forgotten() {
    let mut model = model();
    for name in ["a", "b", "c"] {
        drop(model.create("user", "pods", NS, pod(name)));
    }
    let query = Query::new(stored_kind("pods"), false, "", "", "");
    let page = |model: &mut Model, token: Option<&str>| {
        let body = model.list(&query, Some(2), token).map_err(|refusal| refusal.code)?;
        let list = coxswain_machinery::wire::unwrap_envelope(&body.into()).expect("a list");
        Ok::<_, u16>(coxswain_machinery::wire::decode_list(&list).expect("a list"))
    };
    let first = page(&mut model, None).expect("a page");
    assert_eq!(first.items.len(), 2);
    drop(model.delete("user", &place("c"), &Deletion::default()));
    let second = page(&mut model, Some(&first.continue_token)).expect("a page");
    assert_eq!((second.items.len(), &second.resource_version), (1, &first.resource_version));
    assert!(second.continue_token.is_empty());
    let again = page(&mut model, Some(&first.continue_token));
    assert_eq!(again.map(|page| page.items.len()), Err(410));
}

proptest! {
    /// What is stored is what an object's history makes it: versions grow by one, and what is gone is gone.
    #[test]
    fn every_change_has_a_version_of_its_own(acts in prop::collection::vec((0..3_u8, 0..4_u8), 1..40)) {
        let mut model = model();
        model.changes.clear();
        let before = model.version();
        for (act, name) in acts {
            let name = name.to_string();
            match act {
                0 => drop(model.create("user", "pods", NS, pod(&name))),
                1 => drop(edit(&mut model, &place(&name), |pod| {
                    let count = pod["metadata"]["labels"]["n"].as_str().map_or(0, str::len);
                    pod["metadata"]["labels"] = json!({ "n": "x".repeat(count + 1) });
                })),
                _ => drop(model.delete("user", &place(&name), &Deletion::default())),
            }
        }
        prop_assert_eq!(model.version() - before, model.changes.len() as u64);
        for change in &model.changes {
            if let Some(after) = &change.after {
                prop_assert_eq!(&after.json["metadata"]["resourceVersion"], &json!(after.version.to_string()));
            }
        }
    }
}

#[test]
fn who_decides_about_a_request_issues_nothing_and_a_certificate_stays() {
    let mut model = model();
    let request = json!({ "metadata": { "name": "ask" }, "spec": { "signerName": "a" }, "status": { "certificate": "bWluZQ==" } });
    let stored = model.create("user", "certificatesigningrequests", "", request).expect("a request");
    let mut write = |subresource: &str, status: Json| {
        let edited = |request: &mut Json| {
            request["spec"]["signerName"] = json!("another");
            request["status"] = status;
        };
        let written = model.change("user", &stored.place, subresource, edited);
        written
            .map(|stored| (stored.json["spec"].clone(), stored.json["status"].clone()))
            .map_err(|no| no.code)
    };
    let (spec, approved) = (json!({ "signerName": "a" }), json!([{ "type": "Approved" }]));
    let both = |certificate: &str| json!({ "certificate": certificate, "conditions": approved });
    assert_eq!(write("", both("b25l")), Ok((spec.clone(), json!({}))));
    assert_eq!(write("approval", both("b25l")), Ok((spec.clone(), json!({ "conditions": approved }))));
    assert_eq!(write("status", both("b25l")).map(|(spec, _)| spec), Ok(spec));
    assert_eq!(write("status", both("YW5vdGhlcg==")), Err(422));
}

#[test]
fn a_scale_changes_replicas_and_nothing_else() {
    let mut model = model();
    let labels = json!({ "tier": "front", "app": "web" });
    let web = json!({
        "metadata": { "name": "web" },
        "spec": { "replicas": 2, "selector": { "matchLabels": labels } },
        "status": { "replicas": 2 },
    });
    let created = model.create("user", "deployments", NS, web).expect("it is new");
    let asked = |method: &str, body: &Json| {
        let path = "/apis/apps/v1/namespaces/default/deployments/web/scale";
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json").body(()).expect("a request");
        Asked::new(&request.into_parts().0, body.to_string().into())
    };
    let mut ask = |method: &str, body: &Json| match model.answer("m1/tester", &asked(method, body)) {
        Ok(Answer::Body(body, true)) => Ok(serde_json::from_slice::<Json>(&body).expect("JSON")),
        Ok(_) => panic!("no JSON"),
        Err(refusal) => Err(refusal.code),
    };
    let mut scale = ask("GET", &Json::Null).expect("a scale");
    assert_eq!(scale["spec"], json!({ "replicas": 2 }));
    assert_eq!(scale["status"]["selector"], "app=web,tier=front");
    scale["spec"]["replicas"] = json!(5);
    scale["status"]["selector"] = json!("app=other");
    assert_eq!(ask("PUT", &scale).expect("it is written")["spec"]["replicas"], 5);
    // The same once more comes from a version that is past.
    assert_eq!(ask("PUT", &scale), Err(409));
    let held = model.look("deployments", NS, "web");
    assert_eq!((&held["spec"]["replicas"], &held["metadata"]["generation"]), (&json!(5), &json!(2)));
    assert_eq!(held["spec"]["selector"], created.json["spec"]["selector"]);
}
