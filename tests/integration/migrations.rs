//! Stored objects are written anew: in another version, with another key, and by whoever takes over in the middle of it. What is
//! stored is read from etcd.

use std::fs;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use crate::harness::{
    ControlPlane, Manager, Namespace, Options, Program, object, turn, turn_beside_another, until,
};

const LIMIT: Duration = Duration::from_mins(4);
const GROUP: &str = "stored.example.com";
/// Where etcd has Things, and Secrets of the test.
const THINGS: &str = "/registry/stored.example.com/things/";
const OBJECTS: usize = 300;
const SECRETS: usize = 5;

/// Has kubectl apply an object.
fn apply(plane: &ControlPlane, object: &Value) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), object.to_string()).expect("its content");
    plane.kubectl(&["apply", "-f", file.path().to_str().expect("text")]);
}

/// Defines Things in these versions, of which the last is the one that they are stored in.
fn define(plane: &ControlPlane, versions: &[&str]) {
    let schema =
        json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let last = versions.last().expect("a version");
    let mut versions: Vec<Value> = versions
        .iter()
        .map(|name| json!({ "name": name, "served": true, "storage": name == last, "schema": schema }))
        .collect();
    versions.sort_by_key(|version| version["name"].to_string());
    apply(
        plane,
        &json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("things.{GROUP}") },
            "spec": { "group": GROUP, "scope": "Namespaced", "versions": versions,
                "names": { "kind": "Thing", "plural": "things", "singular": "thing" } } }),
    );
    plane.kubectl(&["wait", "--for=condition=Established", "crd", &format!("things.{GROUP}")]);
}

/// The versions in which Things may be stored, by their definition.
fn stored_versions(plane: &ControlPlane) -> String {
    plane.kubectl(&["get", "crd", &format!("things.{GROUP}"), "-o", "jsonpath={.status.storedVersions}"])
}

async fn create_things(namespace: &Namespace, count: usize) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", "Thing"));
    let api: Api<DynamicObject> = Api::namespaced_with(namespace.client.clone(), &namespace.name, &resource);
    let create = async |at: usize| {
        let thing = object(json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Thing",
            "metadata": { "name": format!("thing-{at}") }, "spec": { "number": at } }));
        let created =
            || async { api.create(&PostParams::default(), &thing).await.map_err(|error| error.to_string()) };
        // It may not be served yet.
        until("a Thing", LIMIT, created, Result::is_ok).await.expect("it was waited for");
    };
    create(0).await;
    futures::stream::iter(1..count).map(create).buffer_unordered(16).collect::<Vec<_>>().await;
}

/// What etcd has below a key.
async fn stored(plane: &ControlPlane, prefix: &str) -> Vec<Vec<u8>> {
    let (begin, end) = prefix.split_at(prefix.len() - 1);
    let end = format!("{begin}{}", (end.as_bytes()[0] + 1) as char);
    let range = json!({ "key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end) });
    let answer = plane.etcd("range", &range).await;
    let found = answer["kvs"].as_array().cloned().unwrap_or_default();
    let value = |each: &Value| STANDARD.decode(each["value"].as_str().unwrap_or_default()).expect("base64");
    found.iter().map(value).collect()
}

/// How many Things are stored in this version.
async fn stored_in(plane: &ControlPlane, version: &str) -> usize {
    let begin = format!("{{\"apiVersion\":\"{GROUP}/{version}\"");
    let all = stored(plane, THINGS).await;
    all.iter().filter(|value| value.starts_with(begin.as_bytes())).count()
}

fn migrate(plane: &ControlPlane, name: &str, group: &str, resource: &str) {
    apply(
        plane,
        &json!({ "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
            "metadata": { "name": name },
            "spec": { "resource": { "group": group, "resource": resource } } }),
    );
}

fn field(plane: &ControlPlane, name: &str, path: &str) -> String {
    plane.kubectl(&["get", "storageversionmigration", name, "-o", &format!("jsonpath={path}")])
}

/// Its conditions: `Running=False Succeeded=True `.
fn conditions(plane: &ControlPlane, name: &str) -> String {
    field(plane, name, "{range .status.conditions[*]}{.type}={.status} {end}")
}

/// Waits until a migration has succeeded and is finished.
async fn succeeds(plane: &ControlPlane, name: &str) {
    let look = || async { conditions(plane, name) };
    let said = until(name, LIMIT, look, |said| said.contains("Running=False")).await;
    assert!(said.contains("Succeeded=True"), "{name}: {said}{}", field(plane, name, "{.status.conditions}"));
}

/// The patches of Things that a manager made, of those that were carried out the objects.
fn patched(plane: &ControlPlane, program: Program) -> Vec<String> {
    let ours = plane.audit().into_iter().filter(|event| {
        event.is_from(program)
            && (event.verb.as_str(), event.object_ref.resource.as_str()) == ("patch", "things")
            && event.succeeded()
    });
    ours.map(|event| event.object_ref.name).collect()
}

fn is_clean(plane: &ControlPlane, manager: &Manager<'_>) {
    let audit = plane.audit();
    let forbidden = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let forbidden: Vec<String> = forbidden.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

/// Has Secrets stored as the first of these providers does it.
fn encrypt(config: &Path, providers: &Value) {
    let config_text = json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{ "resources": ["secrets"], "providers": providers }] });
    fs::write(config, config_text.to_string()).expect("the configuration is written");
}

#[tokio::test]
async fn objects_are_stored_in_the_present_version_and_with_the_present_key() {
    let _turn = turn().await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("encryption.json");
    encrypt(&config, &json!([{ "identity": {} }]));
    let flag = format!("encryption-provider-config={}", config.display());
    let args = [&["--audit", "--apiserver-arg", &*flag.leak()][..], ControlPlane::GATED_ARGS].concat();
    let plane = ControlPlane::start(&Options { nodes: 0, args });
    let namespace = plane.cluster().await.namespace("stored").await;
    define(&plane, &["v2", "v1"]);
    create_things(&namespace, OBJECTS).await;
    for at in 0..SECRETS {
        let secret =
            json!({ "metadata": { "name": format!("secret-{at}") }, "stringData": { "a": "plain" } });
        let _: Secret = namespace.create(secret).await;
    }
    define(&plane, &["v1", "v2"]);
    assert_eq!(stored_in(&plane, "v1").await, OBJECTS);
    assert_eq!(stored_versions(&plane), r#"["v1","v2"]"#);
    let key = json!({ "aescbc": { "keys": [{ "name": "k", "secret": STANDARD.encode([7; 32]) }] } });
    encrypt(&config, &json!([key, { "identity": {} }]));
    plane.operate("restart", "kube-apiserver");

    let controllers = "--controllers=serviceaccount-controller,storage-version-migrator-controller";
    let args = [controllers, "--leader-elect=false", "--use-service-account-credentials"];
    let manager = plane.coxswain("coxswain", &args);
    migrate(&plane, "things", GROUP, "things");
    migrate(&plane, "secrets", "", "secrets");
    succeeds(&plane, "things").await;
    assert_eq!((stored_in(&plane, "v1").await, stored_in(&plane, "v2").await), (0, OBJECTS));
    assert_eq!(stored_versions(&plane), r#"["v2"]"#);
    // So the old version can go.
    define(&plane, &["v2"]);
    succeeds(&plane, "secrets").await;
    let secrets = stored(&plane, &format!("/registry/secrets/{}/", namespace.name)).await;
    assert_eq!(secrets.len(), SECRETS);
    for value in secrets {
        assert!(value.starts_with(b"k8s:enc:aescbc:"), "{}", String::from_utf8_lossy(&value));
    }
    is_clean(&plane, &manager);
    manager.stop();
}

/// Leadership is to move without a long wait, and a migration not to be over in a moment.
const TAKEOVER: [&str; 6] = [
    "--controllers=garbage-collector-controller,storage-version-migrator-controller",
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
    "--kube-api-qps=1",
    "--kube-api-burst=1",
];

#[tokio::test]
async fn a_migration_changes_hands_in_the_middle() {
    let _turn = turn_beside_another().await;
    let args = [&["--audit"][..], ControlPlane::GATED_ARGS].concat();
    let plane = ControlPlane::start(&Options { nodes: 0, args });
    let namespace = plane.cluster().await.namespace("stored").await;
    define(&plane, &["v2", "v1"]);
    create_things(&namespace, OBJECTS).await;
    define(&plane, &["v1", "v2"]);

    // The original begins, and waits for its caches.
    let go = plane.go_manager("go-1", &TAKEOVER);
    migrate(&plane, "first", GROUP, "things");
    let version = || async { field(&plane, "first", "{.status.resourceVersion}") };
    let began = until("a version", LIMIT, version, |version| !version.is_empty()).await;
    go.kill();

    // Ours goes on, ends in the middle, and goes on once more.
    let ours = plane.coxswain("coxswain", &TAKEOVER);
    let rewritten = || async { patched(&plane, Program::Coxswain).len() };
    let before = until("some are rewritten", LIMIT, rewritten, |count| *count > 0).await;
    ours.kill();
    assert!(stored_in(&plane, "v1").await > 0, "all were rewritten before it was killed");
    ours.start_again();
    succeeds(&plane, "first").await;
    assert_eq!(version().await, began, "the version stays");
    assert_eq!(stored_in(&plane, "v2").await, OBJECTS);
    // Those that were rewritten before are newer than the version, and not patched again, be it that the original did it.
    let mut all = patched(&plane, Program::Coxswain);
    all.extend(patched(&plane, Program::Go));
    // What was under way when ours was killed may have been carried out without an answer: the log does not count it.
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "some are patched twice; {before} were before the end");
    assert!(count > OBJECTS / 2, "{count} patches were answered");
    assert_eq!(stored_versions(&plane), r#"["v2"]"#);

    // Who gets it back finds nothing to do.
    ours.stop();
    let patches = plane.audit().len();
    let go = plane.go_manager("go-2", &TAKEOVER);
    let log = || async { go.log() };
    let runs =
        |text: &String| text.contains("Caches are synced") && text.contains("storage-version-migrator");
    until("the Go manager works", LIMIT, log, runs).await;
    let written: Vec<String> = plane.audit()[patches..]
        .iter()
        .filter(|event| event.is_from(Program::Go) && event.is_write())
        .filter(|event| {
            matches!(
                event.object_ref.resource.as_str(),
                "things" | "storageversionmigrations" | "customresourcedefinitions"
            )
        })
        .map(|event| format!("{} {}", event.verb, event.uri))
        .collect();
    assert_eq!(written, Vec::<String>::new(), "the Go manager wrote when it got it back");
    go.stop();
}
