//! The decisions before and after an uninstall.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::server;
use crate::cli::discover::MainLease;
use crate::cli::uninstall::{Deletion, Observation, Remains, Takeover, remains};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A pod of kubeadm, or of the release.
fn pod(name: &str, is_of_release: bool, is_ready: bool) -> Pod {
    let mut labels = json!({ "component": "kube-controller-manager" });
    if is_of_release {
        labels["app.kubernetes.io/name"] = json!("coxswain");
        labels["app.kubernetes.io/component"] = json!("controller-manager");
    }
    let status = if is_ready { "True" } else { "False" };
    read(json!({
        "metadata": { "name": name, "labels": labels },
        "status": { "conditions": [{ "type": "Ready", "status": status }] },
    }))
}

fn lease(identity: &str, renewed: i64, of: Option<&str>) -> Lease {
    let mut lease = server::lease(identity, "", renewed, None);
    lease["metadata"]["uid"] = json!(format!("uid of {identity}"));
    if let Some(of) = of {
        lease["metadata"]["annotations"]["coxswain.dev/lease"] = json!(format!("{of} {identity}"));
    }
    read(lease)
}

/// Two replicas, and a holder that renews its Lease in between.
fn running(holder: &str) -> [Observation; 2] {
    [0, 2].map(|renewed| Observation {
        pods: vec![pod("coxswain-a", true, true), pod("coxswain-b", true, true)],
        replicas: ["coxswain-a_1", "coxswain-b_2"].map(|identity| lease(identity, 0, None)).into(),
        main: Some(lease(holder, renewed, None)),
    })
}

/// Returns the verdict after these observations.
fn observed(all: &[Observation]) -> Result<String, String> {
    let mut takeover = Takeover::default();
    let mut found = Err(String::new());
    for now in all {
        found = takeover.observe(now);
    }
    found
}

/// An observation after the pods of the release have ended.
fn without_pods(holder: &str, renewed: i64) -> Observation {
    let [mut seen, _] = running("");
    seen.pods.clear();
    seen.main = Some(lease(holder, renewed, None));
    seen
}

#[test]
fn uninstall_without_another_manager_is_refused() {
    let why = observed(&running("coxswain-a_1")).unwrap_err();
    assert!(why.starts_with("coxswain-a_1 holds the Lease") && why.contains("no other"), "{why}");

    // A replica whose own Lease is missing is known by its pod, and one with the name of another host by its Lease.
    let unannounced = running("coxswain-a_1").map(|seen| Observation { replicas: Vec::new(), ..seen });
    assert!(observed(&unannounced).is_err());
    let mut renamed = running("host_3");
    for seen in &mut renamed {
        seen.replicas.push(lease("host_3", 0, None));
    }
    assert!(observed(&renamed).is_err());

    // The last pod has ended, and nobody took over.
    let [_, last] = running("coxswain-a_1");
    let dead = || without_pods("coxswain-a_1", 2);
    let why = observed(&[last.clone(), dead(), dead()]).unwrap_err();
    assert!(why.starts_with("coxswain-a_1 holds the Lease") && why.contains("no other"), "{why}");
    // The pod of the leader is gone, and its process still renews the Lease.
    let renewing = |renewed| without_pods("coxswain-a_1", renewed);
    assert!(observed(&[last.clone(), renewing(4), renewing(6), renewing(8)]).is_err());
    let gone = |renewed| Observation { replicas: Vec::new(), ..without_pods("host_9", renewed) };
    let why = observed(&[last.clone(), gone(2), gone(2)]).unwrap_err();
    assert!(why.ends_with("does not renew the Lease kube-system/kube-controller-manager"), "{why}");
    // It renewed the Lease just before it was killed.
    let killed = || without_pods("coxswain-a_1", 4);
    assert!(observed(&[last.clone(), killed(), killed()]).is_err());
    let why = observed(&[last, without_pods("", 4), without_pods("", 4)]).unwrap_err();
    assert!(why.starts_with("no controller manager holds"), "{why}");
    assert!(observed(&[Observation::default(), Observation::default()]).is_err());
}

#[test]
fn uninstall_is_allowed_while_another_manager_leads_or_stands_by() {
    let leads = running("node-1_9");
    assert_eq!(observed(&leads), Ok("node-1_9".to_owned()));
    let [_, now] = leads;
    assert!(observed(&[now.clone(), now]).is_err(), "a holder that does not renew may be dead");

    // The last replica released the Lease, and another manager takes it.
    let taken = [without_pods("", 2), without_pods("node-1_9", 3), without_pods("node-1_9", 5)];
    assert_eq!(observed(&taken), Ok("node-1_9".to_owned()));
    assert!(observed(&taken[..2]).is_err(), "it has not renewed the Lease yet");

    let [_, now] = running("coxswain-a_1");
    for (is_ready, is_allowed) in [(true, true), (false, false)] {
        let mut with_standby = now.clone();
        with_standby.pods.push(pod("kube-controller-manager-node-1", false, is_ready));
        assert_eq!(observed(&[with_standby]).is_ok(), is_allowed, "ready: {is_ready}");
    }
    let mut terminating = now;
    let mut standby = pod("kube-controller-manager-node-1", false, true);
    standby.metadata.deletion_timestamp = read(json!("2027-01-15T08:00:00Z"));
    terminating.pods.push(standby);
    assert!(observed(&[terminating]).is_err());
}

#[test]
fn uninstall_deletes_the_leases_of_ended_replicas_of_its_group_alone() {
    let other = "kube-system/coxswain-b";
    let leases = |renewed| {
        vec![
            lease("dead_1", 0, None),
            lease("static_2", renewed, Some("kube-system/kube-controller-manager")),
            lease("foreign_3", 0, Some(other)),
            lease("", 0, None),
        ]
    };
    let (before, now) = (leases(0), leases(9));
    let main = MainLease::default();
    let identities = |remains: &Remains<'_>| -> Vec<String> {
        let uids = remains.ended.iter().filter_map(|lease| lease.metadata.uid.clone());
        uids.map(|uid| uid.trim_start_matches("uid of ").to_owned()).collect()
    };
    let found = remains(&before, &now, &main);
    assert_eq!((identities(&found), found.live), (vec!["dead_1".to_owned()], vec!["static_2"]));

    let group = MainLease { name: "coxswain-b".to_owned(), ..main };
    let found = remains(&before, &now, &group);
    assert_eq!((identities(&found), found.live.len()), (vec!["foreign_3".to_owned()], 0));
    // A released Lease names no group. Only the last group deletes it.
    let alone = [lease("dead_1", 0, None), lease("", 0, None)];
    let found = remains(&alone, &alone, &MainLease::default());
    assert_eq!((identities(&found), found.live.len()), (vec!["dead_1".to_owned(), String::new()], 0));
    // A replica that was not there before has just started.
    assert_eq!(remains(&[], &now, &group).live, ["foreign_3"]);
}

#[test]
fn uninstall_deletes_the_overrides_first_and_none_while_a_replica_runs() {
    let dead = lease("dead_1", 0, None);
    let named = |namespace: &str, name: &str| Deletion::Named(namespace.to_owned(), name.to_owned());
    let main = MainLease::default();
    let ended = || Remains { ended: vec![&dead], live: Vec::new() };
    assert_eq!(ended().deletions(&main), [named("kube-system", "coxswain-overrides"), Deletion::Seen(&dead)]);
    let group = MainLease { name: "coxswain-b".to_owned(), ..main.clone() };
    assert_eq!(
        ended().deletions(&group),
        [
            named("kube-system", "coxswain-overrides-coxswain-b"),
            named("kube-system", "coxswain-b"),
            Deletion::Seen(&dead)
        ]
    );
    let running = Remains { live: vec!["static_2"], ..ended() };
    assert_eq!(running.deletions(&main), [Deletion::Seen(&dead)]);
}
