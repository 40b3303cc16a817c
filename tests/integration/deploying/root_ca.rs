//! The CA bundle that pods of the Deployment publish is that of their keys. It never comes from `kube-root-ca.crt`, which they publish.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{Value, json};

use super::kubelet::{Kubelet, Replica};
use super::replicas::{give_keys, led};
use super::{NAMESPACE, overlay, prepare};
use crate::harness::{ControlPlane, Options, turn_beside_another, until};

const LIMIT: Duration = Duration::from_mins(2);
const BUNDLE: &str = "kube-root-ca.crt";
const PODS: &str = "app.kubernetes.io/name=coxswain";
/// The flag of the Deployment of older versions.
const PROJECTED: &str = "--root-ca-file=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// A CA of nobody in this cluster, in PEM.
fn foreign_ca() -> String {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").pem()
}

/// The pods of the Deployment.
fn pods(plane: &ControlPlane) -> Vec<Value> {
    let list = plane.kubectl(&["-n", NAMESPACE, "get", "pods", "-l", PODS, "-o", "json"]);
    let Value::Array(pods) = serde_json::from_str::<Value>(&list).expect("JSON")["items"].take() else {
        panic!("a list")
    };
    pods
}

async fn bundle(maps: &Api<ConfigMap>) -> Option<String> {
    let map = maps.get_opt(BUNDLE).await.expect("an answer")?;
    map.data.unwrap_or_default().remove("ca.crt")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_publishes_the_ca_of_its_keys_and_does_not_start_with_the_published_one() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 1, args: vec!["--with-go-manager"] });
    prepare(&plane);
    give_keys(&plane);
    plane.kubectl(&["apply", "-k", &overlay("deployment")]);
    plane.kubectl(&["-n", NAMESPACE, "scale", "deployment/coxswain", "--replicas=1"]);
    plane.kubectl(&["-n", NAMESPACE, "rollout", "status", "deployment/coxswain", "--timeout=2m"]);
    let bound = || async { pods(&plane) };
    let bound = until("one pod on a node", LIMIT, bound, |pods| {
        pods.len() == 1 && pods[0]["spec"]["nodeName"].is_string()
    })
    .await;
    let cluster = plane.cluster().await;
    let system: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    until("the bundle of the system", LIMIT, || bundle(&system), Option::is_some).await;
    plane.operate("stop", "kube-controller-manager");

    // A user who may update ConfigMaps in kube-system adds a CA, and then the kubelet starts the pod.
    let ca = fs::read_to_string(&plane.report.ca_file).expect("the CA");
    let patch = json!({ "data": { "ca.crt": format!("{}{ca}", foreign_ca()) } }).to_string();
    plane.kubectl(&["-n", NAMESPACE, "patch", "configmap", BUNDLE, "--type=merge", "--patch", &patch]);
    let mut kubelet = Kubelet::new(&plane);
    kubelet.run(1).await;
    let replicas: Vec<Replica> = kubelet.replicas.values().cloned().collect();
    led(&plane, &replicas).await;
    let namespace = cluster.namespace("trusts").await;
    let maps = namespace.api::<ConfigMap>();
    let published = until("a published bundle", LIMIT, || bundle(&maps), Option::is_some).await;
    assert_eq!(published.as_deref(), Some(&*ca), "a foreign CA is published");
    until("the bundle of the system", LIMIT, || bundle(&system), |found| found.as_deref() == Some(&*ca))
        .await;

    let mut pod = bound[0].clone();
    let args = pod["spec"]["containers"][0]["args"].as_array_mut().expect("arguments");
    let flag = args.iter_mut().find(|arg| arg.as_str().is_some_and(|arg| arg.starts_with("--root-ca-file=")));
    *flag.expect("the flag") = json!(PROJECTED);
    let projected = kubelet.start(&pod);
    let log = || async { plane.log(&projected.name) };
    until("the refusal of the published bundle", LIMIT, log, |log| {
        log.contains("is projected from the ConfigMap kube-root-ca.crt")
    })
    .await;
}
