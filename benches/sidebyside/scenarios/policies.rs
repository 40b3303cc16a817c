//! ValidatingAdmissionPolicies that are checked all at once.

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, many};
use crate::figures::{Figure, Figures, Target, What, whole};
use crate::harness::{object, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::{calm, mib, resident};
use crate::scenario::{Scenario, grown, never_more, until_gone};

const POLICIES: usize = 300;
/// Groups, and resources of their v1.
const KINDS: [(&str, &str); 20] = [
    ("", "configmaps"),
    ("", "endpoints"),
    ("", "limitranges"),
    ("", "persistentvolumeclaims"),
    ("", "pods"),
    ("", "replicationcontrollers"),
    ("", "resourcequotas"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("apps", "controllerrevisions"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
    ("networking.k8s.io", "ingresses"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
];
/// What every policy demands; `{}` is the number of the policy. The last one is a mistake for all kinds.
const EXPRESSIONS: [&str; 4] = [
    "object.metadata.name.startsWith('team-{}') && size(object.metadata.name) < 60",
    "!has(object.metadata.labels) || object.metadata.labels.all(key, key.matches('^[a-z]+-{}'))",
    "object.metadata.creationTimestamp.getFullYear() > 2000 + {}",
    "object.metadata.nonsense{} == variables.name",
];

pub(super) struct Policies {
    count: usize,
}

impl Policies {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { count: bench.scaled(POLICIES) }
    }
}

impl Scenario for Policies {
    fn name(&self) -> String {
        "policies".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} ValidatingAdmissionPolicies for {} kinds, each with {} expressions, are created at once and are checked. \
             --kube-api-qps is so high that it never delays a request.",
            self.count,
            KINDS.len(),
            EXPRESSIONS.len()
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["validatingadmissionpolicy-status-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        vec![
            (whole(What::Cpu), Target::Ratio(0.25)),
            (grown(), Target::Ratio(0.125)),
            never_more(What::Writes),
            never_more(What::Wall),
        ]
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("policies").await;
            let api: Api<ValidatingAdmissionPolicy> = Api::all(namespace.client.clone());
            let manager = bench.manager(turn, "policies", &Flags::of(self.controllers(), Qps::Unlimited));
            calm(manager.pid).await;
            let before = resident(manager.pid).rss;
            let gauge = Gauge::start(bench, turn.program, manager.pid);
            many(self.count, async |at| {
                let policy = object::<ValidatingAdmissionPolicy>(policy(at));
                api.create(&PostParams::default(), &policy).await.expect("a policy");
            })
            .await;
            let left = async || {
                let all = api.list(&ListParams::default()).await.expect("a list").items;
                let is_checked = |policy: &&ValidatingAdmissionPolicy| {
                    let status = policy.status.as_ref();
                    status.is_some_and(|status| status.type_checking.is_some())
                };
                all.len() - all.iter().filter(is_checked).count()
            };
            until("the last policy to be checked", LIMIT, left, |left| *left == 0).await;
            gauge.close("", Until::Calm, &mut figures).await;
            figures.add(grown(), mib(resident(manager.pid).rss.saturating_sub(before)));
            verify(&api).await;
            bench.stop_all();
            api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("deleted");
            until_gone(&api).await;
            figures
        }
        .boxed_local()
    }
}

/// A policy about a kind, and about the one after it.
fn policy(at: usize) -> Value {
    let rules = [KINDS[at % KINDS.len()], KINDS[(at + 1) % KINDS.len()]].map(|(group, resource)| {
        json!({ "apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource] })
    });
    let validations: Vec<Value> = EXPRESSIONS
        .iter()
        .map(|expression| json!({ "expression": expression.replace("{}", &at.to_string()) }))
        .collect();
    json!({
        "metadata": { "name": format!("policy-{at}") },
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": { "resourceRules": rules },
            "variables": [{ "name": "name", "expression": "object.metadata.name" }],
            "validations": validations,
        },
    })
}

/// Each has one warning, of its last expression, about both kinds.
async fn verify(api: &Api<ValidatingAdmissionPolicy>) {
    for policy in api.list(&ListParams::default()).await.expect("a list").items {
        let name = policy.metadata.name.unwrap_or_default();
        let checking = policy.status.and_then(|status| status.type_checking).expect("it was checked");
        let warnings = checking.expression_warnings.unwrap_or_default();
        assert_eq!(warnings.len(), 1, "{name}: {warnings:?}");
        let warning = &warnings[0];
        assert_eq!(warning.field_ref, "spec.validations[3].expression", "{name}");
        assert_eq!(warning.warning.matches("undefined field").count(), 2, "{name}: {}", warning.warning);
    }
}
