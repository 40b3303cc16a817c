//! The policy that keeps the manager's Leases its own: who may write Leases, and yet not these.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use coxswain::admin::proto::{self, LeasePolicy};
use serde_json::{Value, json};

use super::{NAMESPACE, said, text};
use crate::admin::Admin;
use crate::harness::{Caller, ControlPlane, kubectl_as, until};

const LIMIT: Duration = Duration::from_secs(30);

/// One who tries.
struct Writer<'a> {
    kubeconfig: &'a Path,
    scratch: &'a Path,
}

impl Writer<'_> {
    fn create(&self, metadata: &Value) -> Output {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
        });
        fs::write(self.scratch, lease.to_string()).expect("written");
        self.run(&["create", "-f", text(self.scratch)])
    }

    fn run(&self, args: &[&str]) -> Output {
        kubectl_as(self.kubeconfig, &[&["-n", NAMESPACE], args].concat())
    }
}

fn is_reserved(output: &Output) -> bool {
    let said = said(output);
    !output.status.success() && said.contains("'coxswain-leases'") && said.contains("are the manager's")
}

/// On a plane where the policy is in place, and no manager.
pub(super) async fn assert_reserves(plane: &ControlPlane) {
    let meddler = plane.identity("meddler", &["meddlers"]);
    let role = ["create", "role", "meddler", "--verb=*", "--resource=leases.coordination.k8s.io"];
    plane.kubectl(&[&["-n", NAMESPACE], &role[..]].concat());
    let binding = ["create", "rolebinding", "meddler", "--role=meddler", "--group=meddlers"];
    plane.kubectl(&[&["-n", NAMESPACE], &binding[..]].concat());
    let dir = tempfile::tempdir().expect("a directory");
    let scratch = dir.path().join("lease.json");
    let meddler = Writer { kubeconfig: &meddler, scratch: &scratch };
    let manager = Writer { kubeconfig: &plane.report.kubeconfigs["controller-manager"], scratch: &scratch };
    let admin = Writer { kubeconfig: &plane.report.kubeconfigs["admin"], scratch: &scratch };

    let reserved = json!({ "name": "coxswain-early", "namespace": NAMESPACE });
    let replica = json!({ "coxswain.dev/component": "replica" });
    let labeled = json!({ "name": "label", "namespace": NAMESPACE, "labels": replica });
    let generated = json!({ "generateName": "coxswain-", "namespace": NAMESPACE });
    // A policy takes a moment to come into force.
    let early = || async {
        let output = meddler.create(&reserved);
        if output.status.success() {
            admin.run(&["delete", "lease", "coxswain-early"]);
        }
        output
    };
    until("the policy to be in force", LIMIT, early, is_reserved).await;
    let main = json!({ "name": "coxswain", "namespace": NAMESPACE });
    for metadata in [&labeled, &generated, &main] {
        let output = meddler.create(metadata);
        assert!(is_reserved(&output), "{metadata}: {}", said(&output));
    }

    // What is anybody's stays so, until it would become a replica's.
    let takes = |output: Output| assert!(output.status.success(), "{}", said(&output));
    takes(meddler.create(&json!({ "name": "other", "namespace": NAMESPACE })));
    takes(meddler.run(&["annotate", "lease", "other", "a=b"]));
    takes(
        manager.create(&json!({ "name": "coxswain-replica-0", "namespace": NAMESPACE, "labels": replica })),
    );
    takes(manager.create(&json!({ "name": "coxswain-overrides", "namespace": NAMESPACE })));
    for args in [
        &["label", "lease", "other", "coxswain.dev/component=replica"][..],
        &["label", "lease", "coxswain-replica-0", "coxswain.dev/component-"],
        &["annotate", "lease", "coxswain-overrides", "overrides.coxswain.dev/deployment-controller={}"],
        &["delete", "lease", "coxswain-replica-0"],
        &[
            "delete",
            "--raw",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=coxswain.dev/component",
        ],
    ] {
        let output = meddler.run(args);
        assert!(is_reserved(&output), "{args:?}: {}", said(&output));
    }
    takes(meddler.run(&["delete", "lease", "other"]));
    // The manager, and whoever may do anything.
    let found = manager.run(&["get", "lease", "coxswain-overrides", "-o", "json"]);
    fs::write(&scratch, &found.stdout).expect("written");
    takes(found);
    takes(manager.run(&["replace", "-f", text(&scratch)]));
    takes(admin.run(&["delete", "lease", "coxswain-overrides", "coxswain-replica-0"]));
}

/// A manager that leads reports the policy as it is: in force, weaker than the shipped one, or missing.
pub(super) async fn assert_reports(plane: &ControlPlane) {
    assert_reported(plane, LeasePolicy::InForce, None).await;
    let excluded = json!([{
        "apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "resources": ["leases"], "operations": ["UPDATE"],
    }]);
    for (kind, field, weaker, shipped) in [
        ("validatingadmissionpolicybinding", "validationActions", json!(["Audit"]), json!(["Deny"])),
        (
            "validatingadmissionpolicy",
            "matchConstraints",
            json!({ "excludeResourceRules": excluded }),
            json!({ "excludeResourceRules": null }),
        ),
    ] {
        let change = |value: Value| {
            let patch = json!({ "spec": { (field): value } }).to_string();
            plane.kubectl(&["patch", kind, "coxswain-leases", "--type=merge", "--patch", &patch]);
        };
        change(weaker);
        let remark =
            "the admission policy coxswain-leases differs from this version's; apply deploy/kustomize/base";
        assert_reported(plane, LeasePolicy::Different, Some(remark)).await;
        change(shipped);
    }
    plane.kubectl(&["delete", "validatingadmissionpolicybinding", "coxswain-leases"]);
    let remark = "the admission policy coxswain-leases is missing; apply deploy/kustomize/base";
    assert_reported(plane, LeasePolicy::Missing, Some(remark)).await;
}

/// A manager reads the policy when it begins to lead. Its answer, its metric and its health page agree.
async fn assert_reported(plane: &ControlPlane, expected: LeasePolicy, remark: Option<&str>) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("reporter-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let manager = plane.coxswain(&name, &["--leader-elect=false"]);
    let admin = Admin::master(plane, &manager);
    let observe = || async {
        let answer = admin.leader().get_leader(proto::GetLeaderRequest::default()).await;
        let leader = answer.expect("an answer").into_inner().leader.unwrap_or_default();
        let metrics = manager.page(Caller::Admin, "/metrics").await;
        let health = manager.page(Caller::Admin, "/healthz?verbose").await.text;
        let line = health.lines().find_map(|line| line.strip_prefix("[+]leasePolicy ok, "));
        (leader.lease_policy(), metrics.metric("coxswain_lease_policy_in_force"), line.map(str::to_owned))
    };
    let in_force = if expected == LeasePolicy::InForce { 1.0 } else { 0.0 };
    until(&format!("the report {expected:?}"), LIMIT, observe, |(policy, metric, line)| {
        *policy == expected && *metric == Some(in_force) && line.as_deref() == remark
    })
    .await;
    manager.stop();
}
