//! The chart, by the real helm: the same objects as the manifests, installed, upgraded and rolled back. Helm takes a while to
//! build, so this is for `make test-all`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::install::page;
use super::manifests::define_monitors;
use super::{NAMESPACE, file, overlay, restrict, said, script, text};
use crate::harness::{ControlPlane, Options, binaries, by_depth, turn_beside_another};

/// Labels that only Helm's objects have.
const OWN_LABELS: [&str; 3] = ["app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"];
/// What makes the objects of an overlay.
const SETS: [(&str, &str); 4] = [
    ("deployment", "podCIDRs=none"),
    ("cluster", CLUSTER),
    (
        "monitored",
        "servingSecret=coxswain-serving,serviceMonitor.enabled=true,podCIDRs={10.244.0.0/16},\
         serviceCIDRs={10.96.0.0/12},extraArgs={--cluster-name=kubernetes}",
    ),
    (
        "beside",
        "leaseName=coxswain-controller-manager,\
         controllers=cronjob-controller\\,job-controller\\,ttl-after-finished-controller,podCIDRs=none,keysSecret=",
    ),
];
/// The flags of kubeadm's manifest.
pub(super) const CLUSTER: &str =
    "podCIDRs={10.244.0.0/16},serviceCIDRs={10.96.0.0/12},extraArgs={--cluster-name=kubernetes}";
/// The image of the manifests.
pub(super) const IMAGE: &str = "image.repository=registry.invalid/coxswain";
/// Values that can't be meant, and what is said of them.
const REFUSED: [(&str, &str); 12] = [
    ("replica=3", "additional properties 'replica' not allowed"),
    ("replicas=0", "got 0, want 2"),
    ("replicas=1", "got 1, want 2"),
    ("leaseName=mine", "does not match pattern"),
    ("serviceMonitor.enabled=true", "requires servingSecret"),
    ("image.pullPolicy=Sometimes", "must be one of"),
    ("podCIDRs=", "podCIDRs is required"),
    ("podCIDRs=10.244.0.0/16", "podCIDRs"),
    ("podCIDRs={}", "podCIDRs"),
    ("image.repository=", "image.repository is required"),
    // docker.io/library/coxswain is somebody else's.
    ("image.repository=coxswain", "image.repository is required"),
    ("keysSecret=", "keysSecret is required"),
];

pub(super) struct Helm<'a> {
    program: String,
    plane: &'a ControlPlane,
}

impl<'a> Helm<'a> {
    pub(super) fn new(plane: &'a ControlPlane) -> Self {
        Self { program: script("scripts/tool.sh", &["helm"]), plane }
    }

    /// The directory of the program.
    pub(super) fn directory(&self) -> &Path {
        Path::new(self.program.trim()).parent().expect("a directory")
    }

    fn output(&self, args: &[&str]) -> Output {
        let mut helm = Command::new(self.program.trim());
        helm.args(["--namespace", NAMESPACE, "--kubeconfig"]).arg(&self.plane.report.kubeconfigs["admin"]);
        let home = &self.plane.report.dir;
        helm.env("HELM_CACHE_HOME", home).env("HELM_CONFIG_HOME", home).env("HELM_DATA_HOME", home);
        helm.args(args).output().expect("helm runs")
    }

    pub(super) fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "helm {args:?}: {}", said(&output));
        String::from_utf8(output.stdout).expect("text")
    }
}

/// The annotation of objects that an uninstall keeps.
const KEPT: (&str, &str) = ("helm.sh/resource-policy", "keep");

/// Objects by kind and name, without what is Helm's own.
pub(super) fn objects(yaml: &str) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for document in serde_yaml_ng::Deserializer::from_str(yaml) {
        let mut object = Value::deserialize(document).expect("YAML");
        if object.is_null() {
            continue;
        }
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            labels.retain(|name, _| !OWN_LABELS.contains(&name.as_str()));
        }
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        if metadata.get("annotations").is_some_and(|all| *all == json!({ KEPT.0: KEPT.1 })) {
            metadata.remove("annotations");
        }
        let name = format!("{}/{}", object["kind"], object["metadata"]["name"]);
        let before = found.insert(name.clone(), object);
        assert!(before.is_none(), "{name} is there twice");
    }
    found
}

/// The Lease that the role for finding replicas lets people read.
fn lease_of_finders(objects: &BTreeMap<String, Value>) -> String {
    let role = &objects[r#""Role"/"coxswain-admin-discovery""#];
    let mut rules = role["rules"].as_array().expect("rules").iter();
    let named = rules.find_map(|rule| rule["resourceNames"].as_array()).expect("a name");
    assert_eq!(named.len(), 1, "{named:?}");
    named[0].as_str().expect("text").to_owned()
}

/// The Lease that the manager is told to lead by.
fn lease_of_leaders(objects: &BTreeMap<String, Value>) -> String {
    let args = &objects[r#""Deployment"/"coxswain""#]["spec"]["template"]["spec"]["containers"][0]["args"];
    let args = args.as_array().expect("arguments").iter().filter_map(Value::as_str);
    let mut named = args.filter_map(|arg| arg.strip_prefix("--leader-elect-resource-name="));
    // Of a flag that is given twice the last one counts.
    named.next_back().unwrap_or("kube-controller-manager").to_owned()
}

/// The objects of an overlay, by kind and name.
pub(super) fn render(name: &str) -> BTreeMap<String, Value> {
    let mut kubectl = Command::new(binaries().join("kubectl"));
    let rendered = kubectl.args(["kustomize", &overlay(name)]).output().expect("kubectl runs");
    assert!(rendered.status.success(), "{name}: {}", said(&rendered));
    objects(&String::from_utf8(rendered.stdout).expect("text"))
}

/// The expected pods of the Deployment.
pub(super) fn deployment(objects: &BTreeMap<String, Value>) -> &Value {
    &objects[r#""Deployment"/"coxswain""#]["spec"]["template"]["spec"]
}

/// The same for the manifests alone, which takes no helm.
#[test]
fn finders_may_read_the_lease_by_which_an_overlay_leads() {
    for (name, expected) in
        [("deployment", "kube-controller-manager"), ("beside", "coxswain-controller-manager")]
    {
        let rendered = render(name);
        assert_eq!(lease_of_finders(&rendered), expected, "{name}");
        assert_eq!(lease_of_leaders(&rendered), expected, "{name}");
    }
}

/// Flags of which the last one counts are given once by the chart.
fn with_flags_once(mut objects: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    for object in objects.values_mut().filter(|object| object["kind"] == "Deployment") {
        let args = &mut object["spec"]["template"]["spec"]["containers"][0]["args"];
        let all: BTreeMap<String, String> = args
            .as_array()
            .expect("arguments")
            .iter()
            .map(|each| {
                let (name, value) = each.as_str().expect("text").split_once('=').expect("a value");
                (name.to_owned(), value.to_owned())
            })
            .collect();
        *args = serde_json::to_value(all).expect("JSON");
    }
    objects
}

/// Replicas in static pods need all four objects: without the policy every writer of Leases could change the replicas' Leases, and without
/// the Role the replicas could not.
#[test]
fn chart_keeps_the_policy_of_leases_when_it_is_uninstalled() {
    let template =
        std::fs::read_to_string(file("deploy/helm/coxswain/templates/policy.yaml")).expect("a file");
    let annotation = format!("\n  annotations:\n    {}: {}", KEPT.0, KEPT.1);
    let kinds = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "Role", "RoleBinding"];
    let documents: Vec<&str> = template.split("\n---\n").collect();
    assert_eq!(documents.len(), kinds.len());
    for (document, kind) in documents.iter().zip(kinds) {
        let (metadata, _) = document
            .split_once("\nspec:")
            .or_else(|| document.split_once("\nrules:"))
            .unwrap_or((document, ""));
        assert!(metadata.contains(&format!("\nkind: {kind}\n")), "{document}");
        assert!(metadata.contains(&annotation), "{document}");
    }
    let document = page("install/uninstall").replace("\\\n", "");
    let delete = document.lines().find(|line| line.contains("delete --ignore-not-found validatingadmission"));
    let delete = delete.expect("the command that deletes them");
    for kind in kinds {
        assert!(delete.contains(&format!(" {}/coxswain-leases", kind.to_lowercase())), "{kind}: {delete}");
    }
}

/// The pages name the values in passing, and for a shell.
#[test]
fn what_the_documents_give_helm_is_what_is_tested() {
    let document = page("install/helm") + &page("install/beside-kcm");
    let (name, set) = SETS[3];
    let (lease, rest) = set.split_once(",controllers=").expect("more values");
    let (controllers, others) = rest.split_once(",podCIDRs=").expect("more values");
    assert_eq!(others, "none,keysSecret=");
    for said in [
        format!("helm install coxswain deploy/helm/coxswain --namespace {NAMESPACE} --set image.repository="),
        "--set 'podCIDRs={POD_CIDR}' --set 'serviceCIDRs={SERVICE_CIDR}'".to_owned(),
        format!("`--set controllers='{controllers}'`"),
        format!("`--set {lease}`"),
        "`--set podCIDRs=none` and `--set keysSecret=`".to_owned(),
    ] {
        assert!(document.contains(&said), "{name}: {said}");
    }
}

#[tokio::test]
async fn the_chart_is_the_manifests_and_can_be_rolled_back() {
    if !by_depth(false, true) {
        return;
    }
    let _turn = turn_beside_another().await;
    let options = vec!["--scheduler=false", "--kwok=false"];
    let plane = ControlPlane::start(&Options { nodes: 0, args: options });
    let helm = Helm::new(&plane);
    let chart = file("deploy/helm/coxswain");
    let chart = text(&chart);
    helm.run(&["lint", "--strict", chart, "--set", IMAGE, "--set", CLUSTER]);
    for (name, set) in SETS {
        let rendered =
            objects(&helm.run(&["template", "coxswain", chart, "--no-hooks", "--set", IMAGE, "--set", set]));
        let manifests = objects(&plane.kubectl(&["kustomize", &overlay(name)]));
        assert_eq!(lease_of_finders(&rendered), lease_of_leaders(&rendered), "{name}");
        assert_eq!(lease_of_finders(&manifests), lease_of_leaders(&manifests), "{name}");
        let (rendered, manifests) = (with_flags_once(rendered), with_flags_once(manifests));
        assert!(rendered.keys().eq(manifests.keys()), "{name}: {:?}", rendered.keys());
        for (object, value) in &rendered {
            assert_eq!(*value, manifests[object], "{name}: {object}");
        }
    }
    for (set, why) in REFUSED {
        let base = ["template", "coxswain", chart, "--set", IMAGE, "--set", "podCIDRs=none"];
        let output = helm.output(&[&base[..], &["--set", set]].concat());
        assert!(!output.status.success() && said(&output).contains(why), "{set}: {}", said(&output));
    }

    for (version, is_supported) in
        [("1.35.9", false), ("1.36.0", true), ("1.37.9", true), ("1.38.0-alpha.1", false)]
    {
        let base =
            ["template", "coxswain", chart, "--set", IMAGE, "--set", CLUSTER, "--kube-version", version];
        let output = helm.output(&base);
        assert_eq!(output.status.success(), is_supported, "{version}: {}", said(&output));
    }

    restrict(&plane);
    define_monitors(&plane);
    let args = "jsonpath={.spec.template.spec.containers[0].args}";
    let args = || plane.kubectl(&["-n", NAMESPACE, "get", "deployment", "coxswain", "-o", args]);
    let notes = helm.run(&["install", "coxswain", chart, "--set", IMAGE, "--set", CLUSTER]);
    assert!(notes.contains("rollout status deployment/coxswain"), "{notes}");
    let first = args();
    let set = format!("{},extraArgs={{--cluster-name=kubernetes,--v=4}}", SETS[2].1);
    helm.run(&["upgrade", "coxswain", chart, "--set", IMAGE, "--set", &set]);
    assert!(args().contains("--v=4") && args().contains("--tls-cert-file"), "{}", args());
    plane.kubectl(&["-n", NAMESPACE, "get", "servicemonitor", "coxswain"]);
    helm.run(&["rollback", "coxswain", "1"]);
    assert_eq!(args(), first);
    let monitors = plane.kubectl(&["-n", NAMESPACE, "get", "servicemonitors", "-o", "name"]);
    assert_eq!(monitors, "");
    // Nothing runs pods here: the test of uninstalling has the hooks.
    helm.run(&["uninstall", "coxswain", "--no-hooks"]);
    let left =
        ["-n", NAMESPACE, "get", "all,roles,leases", "-l", "app.kubernetes.io/name=coxswain", "-o", "name"];
    assert_eq!(plane.kubectl(&left), "role.rbac.authorization.k8s.io/coxswain-leases\n");
    let policies = ["get", "validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name"];
    assert_eq!(plane.kubectl(&policies).matches("/coxswain-leases\n").count(), 2);
    // The same release can be installed again.
    helm.run(&["install", "coxswain", chart, "--set", IMAGE, "--set", CLUSTER]);
    helm.run(&["uninstall", "coxswain", "--no-hooks"]);
    // A release of another name is refused, unless it has no lease policy.
    let other = ["install", "other", chart, "--set", IMAGE, "--set", CLUSTER];
    let refused = helm.output(&other);
    assert!(
        !refused.status.success() && said(&refused).contains("invalid ownership metadata"),
        "{refused:?}"
    );
    helm.run(&[&other[..], &["--set", "leasePolicy.enabled=false"]].concat());
    helm.run(&["uninstall", "other", "--no-hooks"]);
    assert_eq!(plane.kubectl(&policies).matches("/coxswain-leases\n").count(), 2);
}
