//! The plan's tables, on stores that are filled by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;

use super::super::bootstrap_tokens::token;
use super::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::informer::Store;
use coxswain_machinery::model::Step;
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes};
use coxswain_machinery::wire::{Message, Value, path};

/// Made with `openssl dgst -sha256 -hmac 0123456789abcdef` over the header, a dot and the content.
const SIGNED: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..K1chermAQEq0rdqy-ehj0VDfmA_ytv8Wzh9g26FldrE";

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn signing(id: &str, expiration: &str) -> Secret {
    let name = format!("bootstrap-token-{id}");
    let data = [
        ("token-id", id),
        ("token-secret", "0123456789abcdef"),
        ("usage-bootstrap-signing", "true"),
        ("expiration", expiration),
    ];
    token(&name, &data)
}

/// `cluster-info` with these data, a label, and fields that nobody here knows.
fn config_map(data: &[(&str, &str)]) -> AnyObject {
    let mut map = ConfigMap { data: data.iter().copied().collect(), ..ConfigMap::default() };
    map.metadata.namespace = NAMESPACE.into();
    map.metadata.name = CONFIG_MAP.into();
    map.metadata.resource_version = "7".into();
    map.metadata.labels = [("label", "kept")].into_iter().collect();
    let mut bytes = map.to_bytes();
    put_bytes(&mut bytes, 99, b"unknown");
    (CONFIG_MAPS.decode)(&bytes.into()).unwrap()
}

fn observed(map: &AnyObject, secrets: &[Secret]) -> Option<View> {
    let (maps, tokens) = (Arc::new(Store::new(&CONFIG_MAPS)), Arc::new(Store::new(&SECRETS)));
    maps.upsert(map);
    for secret in secrets {
        tokens.upsert(&(Arc::new(secret.clone()) as AnyObject));
    }
    let room = Signer { config_maps: Lister::new(maps), secrets: Lister::new(tokens) };
    view::observe(&room, &Key::of(map.meta()))
}

fn plan_for(data: &[(&str, &str)], secrets: &[Secret]) -> Plan {
    plan::plan(&observed(&config_map(data), secrets).unwrap(), now())
}

/// The ConfigMap that is written; nothing if none is.
fn written(plan: &Plan) -> Option<bytes::Bytes> {
    match plan.steps.as_slice() {
        [] => None,
        [Step::Write(write)] => {
            assert_eq!(write.to_string(), "update configmaps kube-public/cluster-info");
            assert_eq!(write.tolerate, Tolerate { absent: true, conflict: true, ..Tolerate::default() });
            let Verb::Update(object) = &write.verb else { panic!("{write:?}") };
            Some(object.clone())
        }
        steps => panic!("{steps:?}"),
    }
}

fn data_of(object: &bytes::Bytes) -> BTreeMap<String, String> {
    let map = ConfigMap::decode(object).unwrap();
    map.data.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

#[test]
fn a_signature_is_what_openssl_makes_of_it() {
    assert_eq!(jws::sign("apiVersion: v1\n", "abcdef", b"0123456789abcdef"), SIGNED);
}

#[test]
fn every_token_that_may_sign_does() {
    let secrets = [
        signing("aaaaaa", ""),
        signing("bbbbbb", "2026-01-01T12:00:30Z"),
        signing("cccccc", "2026-01-01T12:00:05Z"),
        signing("dddddd", "2026-01-01T12:00:00Z"),
        signing("eeeeee", "soon"),
        token("bootstrap-token-ffffff", &[("token-id", "ffffff"), ("token-secret", "s")]),
    ];
    let plan = plan_for(&[("kubeconfig", "k"), ("more", "x")], &secrets);
    let data = data_of(&written(&plan).unwrap());
    let keys: Vec<&str> = data.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["jws-kubeconfig-aaaaaa", "jws-kubeconfig-bbbbbb", "jws-kubeconfig-cccccc", "kubeconfig", "more"]
    );
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(5)), "when the first of them ends");
    let settled: Vec<(&str, &str)> = data.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let again = plan_for(&settled, &secrets);
    assert!(again.is_empty(), "it is signed");
    assert_eq!(again.requeue_after, Some(Duration::from_secs(5)));
}

#[test]
fn other_signatures_are_replaced_and_all_else_stays() {
    let strays =
        [("kubeconfig", "k"), ("jws-kubeconfig-aaaaaa", "forged"), ("jws-kubeconfig-zzzzzz", "of nobody")];
    let object = written(&plan_for(&strays, &[signing("aaaaaa", "")])).unwrap();
    let expected = jws::sign("k", "aaaaaa", b"0123456789abcdef");
    assert_eq!(
        data_of(&object),
        [("jws-kubeconfig-aaaaaa".to_owned(), expected), ("kubeconfig".to_owned(), "k".to_owned())].into()
    );
    assert_eq!(get(&object, &[99]).unwrap(), Some(Value::Bytes(b"unknown")));
    let map = ConfigMap::decode(&object).unwrap();
    assert_eq!(map.metadata.labels.get("label").unwrap(), "kept");
    assert_eq!(map.metadata.resource_version, "7");
    // Without tokens there is no signature.
    let bare = written(&plan_for(&strays, &[])).unwrap();
    assert_eq!(data_of(&bare), [("kubeconfig".to_owned(), "k".to_owned())].into());
}

#[test]
fn without_a_kubeconfig_nothing_happens() {
    let stray = [("jws-kubeconfig-zzzzzz", "of nobody")];
    assert!(plan_for(&stray, &[signing("aaaaaa", "")]).is_empty());
    assert!(
        written(&plan_for(&[("kubeconfig", "")], &[signing("aaaaaa", "")])).is_some(),
        "an empty one is signed"
    );
    let mut elsewhere = ConfigMap::default();
    elsewhere.metadata.namespace = "default".into();
    elsewhere.metadata.name = CONFIG_MAP.into();
    let elsewhere = (CONFIG_MAPS.decode)(&elsewhere.to_bytes().into()).unwrap();
    assert!(observed(&elsewhere, &[]).is_none(), "of another namespace");
}

#[test]
fn binary_data_survive() {
    let map = config_map(&[("kubeconfig", "k")]);
    let binary = edit(&map.raw(), &[Edit::MapSetBytes(&[3], "b".into(), vec![0xff])]).unwrap();
    let with_data =
        edit(&binary, &[Edit::MapSet(path!(ConfigMap, data), "kubeconfig".into(), "k".into())]).unwrap();
    let map = (CONFIG_MAPS.decode)(&with_data.into()).unwrap();
    let object = written(&plan::plan(&observed(&map, &[signing("aaaaaa", "")]).unwrap(), now())).unwrap();
    assert!(get(&object, &[3]).unwrap().is_some());
}

#[test]
fn it_says_who_signs() {
    let reasons = |data: &[(&str, &str)], secrets: &[Secret]| {
        plan::reasons(&observed(&config_map(data), secrets).unwrap(), now())
    };
    let kubeconfig = [("kubeconfig", "k")];
    assert_eq!(
        reasons(&kubeconfig, &[signing("aaaaaa", ""), signing("bbbbbb", "soon")]),
        [
            "1 bootstrap token signs the kubeconfig: aaaaaa.",
            "1 bootstrap token for signing has expired and does not sign."
        ]
    );
    assert_eq!(
        reasons(&kubeconfig, &[]),
        ["No bootstrap token signs the kubeconfig; all signatures are removed."]
    );
    assert_eq!(reasons(&[], &[]), ["The ConfigMap has no kubeconfig to sign; existing signatures are kept."]);
}

#[test]
fn nothing_shows_what_a_token_signs_with() {
    let view = observed(&config_map(&[("kubeconfig", "k")]), &[signing("aaaaaa", "")]).unwrap();
    let shown = format!("{view:?} {:?} {:?}", plan::plan(&view, now()), plan::reasons(&view, now()));
    for form in ["0123456789abcdef".to_owned(), URL_SAFE_NO_PAD.encode("0123456789abcdef")] {
        assert!(!shown.contains(&form), "{shown}");
    }
}

proptest! {
    /// Whatever is there: after one write there is nothing to do, and all that is no signature is as it was.
    #[test]
    fn one_write_settles_it(
        data in prop::collection::btree_map("(kubeconfig|more|jws-kubeconfig-[a-c]{6})", "[a-z]{0,5}", 0..5),
        tokens in prop::collection::btree_set("[a-c]{6}", 0..4),
    ) {
        let secrets: Vec<_> = tokens.iter().map(|id| signing(id, "")).collect();
        let text = |data: &BTreeMap<String, String>| data.clone().into_iter().collect::<Vec<_>>();
        let plan_of = |data: &BTreeMap<String, String>| {
            let all = text(data);
            let all: Vec<(&str, &str)> = all.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            plan_for(&all, &secrets)
        };
        let others = |data: &BTreeMap<String, String>| {
            data.clone().into_iter().filter(|(key, _)| !key.starts_with("jws-kubeconfig-")).collect::<Vec<_>>()
        };
        let after = written(&plan_of(&data)).map_or(data.clone(), |object| data_of(&object));
        prop_assert!(plan_of(&after).is_empty());
        prop_assert_eq!(others(&after), others(&data));
        if data.contains_key("kubeconfig") {
            prop_assert_eq!(after.len() - others(&after).len(), tokens.len());
        } else {
            prop_assert_eq!(after, data);
        }
    }
}
