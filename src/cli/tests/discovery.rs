//! Whom the Leases say to call.

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};

use super::now;
use super::server::lease;
use crate::cli::discover::{MainLease, Replicas, choose};

fn chosen(leases: &[Value], holder: Option<&str>) -> Replicas {
    let leases: Vec<Lease> =
        leases.iter().map(|lease| serde_json::from_value(lease.clone()).unwrap()).collect();
    choose(&leases, &MainLease::default(), holder.map(str::to_owned), now())
}

fn identities(replicas: &Replicas) -> Vec<&str> {
    replicas.candidates.iter().map(|candidate| candidate.identity.as_str()).collect()
}

#[test]
fn the_leader_comes_first_and_the_others_in_order() {
    let leases =
        [lease("c", "c:1", 0, None), lease("a", "a:1", 0, None), lease("b", "b:1", -15, Some("PEM"))];
    assert_eq!(identities(&chosen(&leases, None)), ["a", "b", "c"]);
    let replicas = chosen(&leases, Some("b"));
    assert_eq!(identities(&replicas), ["b", "a", "c"]);
    let leader = &replicas.candidates[0];
    assert!(leader.leads && leader.address == "b:1" && leader.authority.as_deref() == Some("PEM"));
    assert!(
        replicas.candidates[1..].iter().all(|candidate| !candidate.leads && candidate.authority.is_none())
    );
    // A manager of another make leads: whoever there is may answer.
    assert_eq!(identities(&chosen(&leases, Some("go"))), ["a", "b", "c"]);
}

#[test]
fn who_seems_dead_or_serves_nothing_is_passed_over() {
    let mut unborn = lease("d", "d:1", 0, None);
    unborn["spec"]["renewTime"] = Value::Null;
    let mut released = lease("e", "e:1", 0, None);
    released["spec"]["holderIdentity"] = Value::String(String::new());
    let leases =
        [lease("a", "a:1", -16, None), lease("b", "", 0, None), lease("c", "c:1", 0, None), unborn, released];
    let replicas = chosen(&leases, Some("a"));
    assert_eq!(identities(&replicas), ["c"], "even if the dead one leads");
    let expected = [
        "a has not renewed its Lease for 16s",
        "b does not serve the admin API",
        "d has never renewed its Lease",
    ];
    assert_eq!(replicas.passed_over, expected);
}

#[test]
fn if_all_seem_dead_it_may_be_the_clock() {
    let leases = [lease("a", "a:1", -900, None), lease("b", "b:1", -300, None)];
    assert_eq!(identities(&chosen(&leases, None)), ["b", "a"], "the one last heard of first");
    // A clock that is behind makes no one dead.
    assert_eq!(identities(&chosen(&[lease("a", "a:1", 900, None)], None)), ["a"]);
    assert!(chosen(&[], Some("go")).candidates.is_empty());
}

#[test]
fn clients_in_other_languages_choose_alike() {
    // Their own tests read the same file.
    let file: Value = serde_json::from_str(include_str!("../../../clients/go/testdata/leases.json")).unwrap();
    let now = file["now"].as_str().unwrap().parse().unwrap();
    for case in file["cases"].as_array().unwrap() {
        let leases: Vec<Lease> = serde_json::from_value(case["leases"].clone()).unwrap();
        let holder = case["holder"].as_str().filter(|holder| !holder.is_empty()).map(str::to_owned);
        let main = match case["lease"].as_str() {
            None => MainLease::default(),
            Some(lease) => {
                let (namespace, name) = lease.split_once('/').unwrap();
                MainLease { namespace: namespace.to_owned(), name: name.to_owned() }
            }
        };
        let chosen = choose(&leases, &main, holder, now);
        let candidates: Vec<_> = chosen
            .candidates
            .iter()
            .map(|each| {
                json!({
                    "identity": each.identity, "address": each.address,
                    "authority": each.authority, "leads": each.leads,
                })
            })
            .collect();
        assert_eq!(Value::from(candidates), case["candidates"], "{}", case["about"]);
        assert_eq!(json!(chosen.passed_over), case["passedOver"], "{}", case["about"]);
    }
}

/// With kubeadm's `--bind-address` all replicas announce the same address.
#[test]
fn loopback_address_of_another_machine_is_passed_over() {
    let leases = [
        lease("node-a_1", "127.0.0.1:10257", 0, None),
        lease("node-b_2", "127.0.0.1:10257", 0, None),
        lease("node-c_3", "[::1]:10257", 0, None),
        lease("node-d_4", "10.0.0.4:10258", 0, None),
        lease("pod", "localhost:10257", 0, None),
    ];
    let mut replicas = chosen(&leases, Some("node-b_2"));
    replicas.pass_over_elsewhere("node-a");
    assert_eq!(identities(&replicas), ["node-a_1", "node-d_4", "pod"]);
    let expected =
        ["node-b_2 listens only on 127.0.0.1:10257 of its own", "node-c_3 listens only on [::1]:10257"];
    for (line, expected) in replicas.passed_over.iter().zip(expected) {
        assert!(line.starts_with(expected) && line.contains("--admin-bind-address=0.0.0.0"), "{line}");
    }
    assert_eq!(replicas.passed_over.len(), 2);
}
