//! Which objects count in which scopes. Observation of the original.

use std::sync::Arc;

use super::super::view::{Known, View};
use super::fixtures::{
    asking, device_claim, devices, exactly, expected, hard, pod, quota, requirement, selector, service, used,
    view, volume_claim,
};
use coxswain_machinery::api::charge::PodCharge;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::quota::ScopeRequirement;
use coxswain_machinery::api::storage::{ModifyVolumeStatus, PersistentVolumeClaim};

/// Each pod weighs one digit of the CPUs.
fn pods() -> Vec<Arc<Pod>> {
    let charge = |cpu: &str, change: fn(&mut PodCharge)| {
        let mut charge = asking(&[("cpu", cpu)], &[]);
        change(&mut charge);
        charge
    };
    let pod = |name: &str, charge| pod(name, charge, |_| {});
    vec![
        pod("plain", charge("1", |_| {})),
        pod("ends", charge("10", |charge| charge.terminating = true)),
        pod("best-effort", charge("100", |charge| charge.asks = false)),
        pod("high", charge("1k", |charge| charge.priority_class = "high".into())),
        pod("low", charge("10k", |charge| charge.priority_class = "low".into())),
        pod("apart", charge("100k", |charge| charge.crosses_namespaces = true)),
    ]
}

fn cpu(scopes: &[&str], requirements: Vec<ScopeRequirement>) -> u64 {
    let quota = quota(&hard(&["cpu"]), |quota| {
        quota.spec.scopes = scopes.iter().map(|scope| (*scope).into()).collect();
        quota.spec.scope_selector = Some(selector(requirements));
    });
    let view = View { pods: pods(), ..view(quota) };
    let text = used(&view)["cpu"].clone();
    text.strip_suffix('k').map_or_else(|| text.parse().unwrap(), |text| text.parse::<u64>().unwrap() * 1000)
}

#[test]
fn pods_are_in_scopes() {
    for (scope, expected) in [
        ("Terminating", 10),
        ("NotTerminating", 111_101),
        ("BestEffort", 100),
        ("NotBestEffort", 111_011),
        ("PriorityClass", 11_000),
        ("CrossNamespacePodAffinity", 100_000),
        ("VolumeAttributesClass", 0),
        ("LaterScope", 0),
    ] {
        assert_eq!(cpu(&[scope], Vec::new()), expected, "{scope}");
        assert_eq!(cpu(&[], vec![requirement(scope, "Exists", &[])]), expected, "{scope}");
    }
    assert_eq!(cpu(&["NotTerminating", "NotBestEffort"], Vec::new()), 111_001);
    assert_eq!(cpu(&[], Vec::new()), 111_111);
}

#[test]
fn pods_are_selected_by_their_priority_class() {
    for (operator, values, expected) in [
        ("In", &["high"][..], 1000),
        ("In", &["high", "low"], 11_000),
        ("In", &["other"], 0),
        ("NotIn", &["high"], 110_111),
        ("Exists", &[], 11_000),
        ("DoesNotExist", &[], 100_111),
        ("LaterOperator", &[], 0),
    ] {
        let requirement = requirement("PriorityClass", operator, values);
        assert_eq!(cpu(&[], vec![requirement.clone()]), expected, "{operator} {values:?}");
        // All of several conditions must hold.
        assert_eq!(
            cpu(&["Terminating"], vec![requirement]),
            expected / 10 % 10 * 10,
            "{operator} {values:?}"
        );
    }
}

#[test]
fn what_knows_no_scopes_is_in_none() {
    let names = [
        "services",
        "services.nodeports",
        "count/services",
        "count/secrets",
        "secrets",
        "count/resourceclaims.resource.k8s.io",
        "gpu.deviceclass.resource.k8s.io/devices",
        "requests.example.com/gpu",
        "persistentvolumeclaims",
        "count/pods",
    ];
    for scope in ["Terminating", "NotTerminating", "VolumeAttributesClass"] {
        let mut view = view(quota(&hard(&names), |quota| quota.spec.scopes = vec![scope.into()]));
        view.services = vec![service("NodePort", &[30001], None)];
        view.objects.values_mut().for_each(|objects| *objects = Known::Yes(5));
        view.devices = devices(
            vec![device_claim("c", vec![exactly("gpu", "ExactCount", 2)])],
            &[("gpu", "example.com/gpu")],
        );
        view.volume_claims = vec![volume_claim("c", "1", |_| {})];
        view.pods = vec![pod("p", asking(&[("example.com/gpu", "1")], &[]), |_| {})];
        let of_pods = if scope == "NotTerminating" { "1" } else { "0" };
        let mut none = expected(&hard(&names));
        for amount in none.values_mut() {
            *amount = "0".to_owned();
        }
        none.insert("count/pods".to_owned(), of_pods.to_owned());
        none.insert("requests.example.com/gpu".to_owned(), of_pods.to_owned());
        assert_eq!(used(&view), none, "{scope}");
    }
}

fn claims() -> Vec<Arc<PersistentVolumeClaim>> {
    vec![
        volume_claim("none", "1", |_| {}),
        volume_claim("wants", "10", |claim| claim.spec.volume_attributes_class_name = "silver".into()),
        volume_claim("changes", "100", |claim| {
            claim.status.current_volume_attributes_class_name = "gold".into();
            claim.status.modify_volume_status =
                Some(Box::new(ModifyVolumeStatus { target_volume_attributes_class_name: "silver".into() }));
        }),
        volume_claim("has", "1k", |claim| claim.status.current_volume_attributes_class_name = "gold".into()),
    ]
}

#[test]
fn volume_claims_are_selected_by_their_attributes() {
    for (operator, values, expected) in [
        ("In", &["silver"][..], "110"),
        ("In", &["gold"], "1100"),
        ("NotIn", &["silver"], "1101"),
        ("Exists", &[], "1110"),
        ("DoesNotExist", &[], "1"),
    ] {
        let quota = quota(&hard(&["requests.storage"]), |quota| {
            quota.spec.scope_selector =
                Some(selector(vec![requirement("VolumeAttributesClass", operator, values)]));
        });
        let view = View { volume_claims: claims(), ..view(quota) };
        assert_eq!(used(&view)["requests.storage"], expected, "{operator} {values:?}");
    }
}
