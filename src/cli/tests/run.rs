//! Whole commands: from the command line over TLS to a replica and back to the screen.

use serde_json::{Value, json};

use super::server::*;
use crate::admin::manager::Phase;
use crate::admin::overrides::Order;
use crate::admin::testing::fake::{ME, OTHER};
use crate::cli::error::Exit;

fn json_of(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

fn names(ran: &Ran) -> Vec<String> {
    let list = json_of(ran)["controllers"].as_array().unwrap().clone();
    list.iter().map(|controller| controller["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn controllers_are_listed_and_shown() {
    let replica = Replica::start().await;
    let ran = replica.run(&["controllers", "deployment", "job-controller"]).await;
    let expected = "\
NAME                    DESIRED   SOURCE    PHASE            HEALTH     QUEUED   SYNCS   ERRORS   AGE
deployment-controller   enabled   default   Running          Healthy    2        0       0        0s
job-controller          enabled   default   NotImplemented   Inactive   2        0       0        0s
";
    assert_eq!((ran.exit, ran.out.as_str(), ran.err.as_str()), (Exit::Done, expected, ""));
    assert_eq!(names(&replica.run(&["controllers", "-o", "json"]).await).len(), 7);
    let running = replica.run(&["controllers", "--phase", "running,failed", "--enabled", "-o", "json"]).await;
    let expected = ["deployment-controller", "replicaset-controller", "serviceaccount-token-controller"];
    assert_eq!(names(&running), expected);
    assert_eq!(
        names(&replica.run(&["controllers", "--disabled", "-o", "json"]).await),
        ["token-cleaner-controller"]
    );
    let none = replica.run(&["controllers", "--phase", "failed"]).await;
    assert_eq!((none.exit, none.out.as_str()), (Exit::Done, ""));
    assert!(none.err.contains("no controller matches"));

    let shown = replica.run(&["controller", "deployment"]).await;
    assert!(shown.out.starts_with("Name:                deployment-controller\n"), "{shown:?}");
    let unknown = replica.run(&["controller", "deploymnet"]).await;
    assert_eq!(unknown.exit, Exit::NotFound);
    assert!(unknown.err.contains("did you mean deployment-controller"), "{unknown:?}");
}

#[tokio::test]
async fn controllers_are_switched() {
    let replica = Replica::start().await;
    let line =
        ["disable", "deployment", "--for", "30m", "--reason", "maintenance", "--expected-version", "0"];
    let ran = replica.run(&[&line[..], &["--dry-run"]].concat()).await;
    let done = "deployment-controller disabled until 2027-01-15T08:30:00Z (30m)";
    assert_eq!(ran.out, format!("{done} (dry run)\n"), "{ran:?}");
    assert_eq!(replica.manager.state.lock().writes, 0);
    let ran = replica.run(&line).await;
    assert_eq!((ran.exit, ran.out), (Exit::Done, format!("{done}\n")));
    let stale = replica.run(&line).await;
    assert_eq!(stale.exit, Exit::Refused);
    assert!(
        stale.err.contains("ABORTED, VERSION_MISMATCH") && stale.err.contains("the current version is 1"),
        "{stale:?}"
    );

    let ran = replica.run(&["enable", "deployment", "-o", "json"]).await;
    let answer = json_of(&ran);
    assert_eq!(answer["changed"], true);
    assert_eq!(answer["controllers"][0]["desired"]["enabled"], true);
    let ran = replica.run(&["enable", "deployment"]).await;
    assert_eq!(ran.out, "deployment-controller enabled until changed, unchanged\n");
    let ran = replica.run(&["reset", "deployment", "--reason", "over"]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "deployment-controller enabled\n"));
    let ran = replica.run(&["reset", "*", "-o", "json"]).await;
    assert_eq!(json_of(&ran), json!({ "controllers": [], "changed": false }));

    let ran = replica.run(&["enable", "token-cleaner-controller"]).await;
    assert_eq!(ran.exit, Exit::Refused);
    assert!(ran.err.contains("another manager may run it") && ran.err.contains("use --force"), "{ran:?}");
    let ran = replica.run(&["enable", "token-cleaner-controller", "--force"]).await;
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    let shown = replica.run(&["controller", "token-cleaner-controller"]).await;
    assert!(shown.out.contains("Force:"), "{shown:?}");
}

#[tokio::test]
async fn a_controller_is_restarted_by_an_override_that_ends_at_once() {
    let replica = Replica::start().await;
    let disabled = |name: &str| {
        replica.manager.state.lock().overrides.entry(name).is_some_and(|entry| entry.order == Order::Disabled)
    };
    let obey = async |name| {
        for (wanted, phase) in [(true, Phase::Disabled), (false, Phase::Running)] {
            while disabled(name) != wanted {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            replica.manager.set_phase(name, phase);
        }
    };
    let line = ["restart", "deployment", "--reason", "a reconcile hangs"];
    let (ran, ()) = tokio::join!(replica.run(&line), obey("deployment-controller"));
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "deployment-controller restarted\n"), "{ran:?}");
    assert_eq!(replica.manager.state.lock().writes, 2);
    let shown = json_of(&replica.run(&["controller", "deployment", "-o", "json"]).await);
    assert_eq!(
        (&shown["desired"]["enabled"], &shown["desired"]["source"]),
        (&json!(true), &json!("DESIRED_SOURCE_DEFAULT"))
    );

    for (order, expected) in [("enable", "an override is active"), ("disable", "an override is active")] {
        assert_eq!(replica.run(&[order, "deployment"]).await.exit, Exit::Done);
        let refused = replica.run(&["restart", "deployment"]).await;
        assert!(refused.exit == Exit::Refused && refused.err.contains(expected), "{refused:?}");
    }
    let off = replica.run(&["restart", "token-cleaner-controller"]).await;
    assert!(
        off.exit == Exit::Refused && off.err.contains("--controllers does not select the controller"),
        "{off:?}"
    );
    assert_eq!(replica.run(&["restart", "nothing"]).await.exit, Exit::NotFound);
    let (both, ()) =
        tokio::join!(replica.run(&["restart", "deployment", "replicaset"]), obey("replicaset-controller"));
    assert_eq!(
        (both.exit, both.out.as_str()),
        (Exit::Refused, "replicaset-controller restarted\n"),
        "{both:?}"
    );
    assert!(
        both.err.contains("deployment: restart deployment-controller: an override is active"),
        "{both:?}"
    );
}

#[tokio::test]
async fn one_wrong_name_does_not_stop_the_others() {
    let replica = Replica::start().await;
    let ran = replica.run(&["disable", "deployment", "nothing", "serviceaccount-token", "replicaset"]).await;
    assert_eq!(ran.exit, Exit::NotFound, "the first failure counts");
    assert_eq!(ran.out.lines().count(), 2, "{ran:?}");
    assert!(ran.err.contains("coxswain: nothing: controller \"nothing\" does not exist"), "{ran:?}");
    assert!(ran.err.contains("serviceaccount-token: ") && ran.err.contains("--force"), "{ran:?}");
    let forced = replica.run(&["disable", "serviceaccount-token", "--force"]).await;
    assert_eq!(forced.exit, Exit::Done, "{forced:?}");
    let usage = replica.run(&["disable", "a", "b", "--expected-version", "1"]).await;
    assert_eq!(usage.exit, Exit::Usage);
    assert_eq!(replica.seen().iter().filter(|(path, _)| path.ends_with("DisableController")).count(), 5);
}

#[tokio::test]
async fn queues_objects_and_leadership() {
    let replica = Replica::start().await;
    let ran = replica.run(&["queues", "--resource", "rs", "-o", "json"]).await;
    assert_eq!(json_of(&ran)["queues"][0]["name"], "replicaset");
    assert_eq!(json_of(&ran)["totalSize"], 1);
    let ran = replica.run(&["queue", "deployment", "--keys", "1", "-o", "json"]).await;
    assert_eq!(
        json_of(&ran)["oldestKeys"],
        json!([{ "object": { "namespace": "ns", "name": "key-0" }, "age": "9s" }])
    );
    assert_eq!(replica.run(&["queue", "deploymen"]).await.exit, Exit::NotFound);

    let ran = replica.run(&["sync", "deployment", "default/web"]).await;
    assert!(ran.exit == Exit::Done && ran.out.contains("Outcome:         done\n"), "{ran:?}");
    let ran = replica.run(&["explain", "deploy", "web", "-n", "default"]).await;
    assert!(ran.exit == Exit::Done && ran.out.contains("Planned steps:\n"), "{ran:?}");
    assert!(ran.out.contains("Why:\n  1 of 3 replicas is there\n"), "{ran:?}");
    let synced: Vec<bool> =
        replica.manager.state.lock().synced.iter().map(|request| request.explain).collect();
    assert_eq!(synced, [false, true]);
    let ran = replica.run(&["explain", "secret", "default/s", "--controller", "serviceaccount-token"]).await;
    assert!(ran.out.contains("Queue:           serviceaccount_tokens_secret\n"), "{ran:?}");
    replica.manager.set(|state| state.sync_stops = true);
    assert_eq!(replica.run(&["sync", "deployment", "default/web"]).await.exit, Exit::Refused);

    let ran = replica.run(&["leader"]).await;
    assert!(ran.out.contains("Holder:          node-a_1\n"), "{ran:?}");
    assert_eq!(replica.run(&["leader", "--lease", "kube-system/none"]).await.exit, Exit::NotFound);
    let wrong = replica.run(&["step-down", "--expected-leader", OTHER]).await;
    assert_eq!(wrong.exit, Exit::Refused);
    let ran = replica.run(&["step-down", "--force", "--dry-run"]).await;
    assert_eq!(ran.out, "node-a_1 would step down (dry run)\n", "{ran:?}");
    let ran = replica.run(&["step-down", "--to", OTHER, "--reason", "upgrade"]).await;
    assert_eq!(ran.out, "node-a_1 is stepping down; no other replica leads yet\n", "{ran:?}");
    assert_eq!(replica.manager.state.lock().stepped_down, [Some(OTHER.to_owned())]);
}

/// Two replicas, of which the second leads; each has its own authority. The first is the API server too.
async fn pair() -> (Replica, Replica) {
    let (standby, leader) = (Replica::start().await, Replica::start().await);
    standby.manager.lose(OTHER);
    let address = leader.address.clone();
    standby.manager.set(|state| state.replicas[1].admin_address = address);
    let leases = [
        lease(ME, &standby.address, 0, Some(&standby.authority)),
        lease(OTHER, &leader.address, 0, Some(&leader.authority)),
    ];
    standby.announce(&leases, Some(OTHER));
    (standby, leader)
}

#[tokio::test]
async fn what_only_the_leader_can_do_goes_to_the_leader() {
    let (standby, leader) = pair().await;
    let line = ["sync", "deployment", "default/web", "--trust-announced-authority"];
    assert_eq!(standby.run(&line).await.exit, Exit::Done);
    assert!(standby.seen().iter().all(|(path, _)| path.starts_with("/apis/")), "it was not asked");
    assert_eq!(leader.manager.state.lock().synced.len(), 1);

    // Nobody knows from the Leases who leads: a replica does.
    let leases =
        [lease(ME, &standby.address, 0, None), lease(OTHER, &leader.address, 0, Some(&leader.authority))];
    standby.announce(&leases, None);
    assert_eq!(standby.run(&line).await.exit, Exit::Done);
    assert!(standby.seen().iter().any(|(path, _)| path.ends_with("/GetLeader")));
    assert_eq!(leader.manager.state.lock().synced.len(), 2);

    // The Lease says one thing, and the replica another by now: that it sends us to is followed, once.
    standby.announce(&leases, Some(ME));
    assert_eq!(standby.run(&line).await.exit, Exit::Done);
    assert_eq!(leader.manager.state.lock().synced.len(), 3);
    leader.manager.lose(ME);
    let away = standby.address.clone();
    leader.manager.set(|state| state.replicas[0].admin_address = away);
    let ran = standby.run(&line).await;
    assert!(ran.exit == Exit::Refused && ran.err.contains("NOT_LEADER"), "{ran:?}");

    // Others answer what anyone can.
    assert_eq!(standby.run(&["controllers"]).await.exit, Exit::Done);
}

#[tokio::test]
async fn stepping_down_is_for_the_leader_that_was_found() {
    let (standby, leader) = pair().await;
    // Somebody else's request ends the term meanwhile; the replica that leads next keeps leading.
    leader.manager.lose(ME);
    let next = standby.address.clone();
    leader.manager.set(|state| state.replicas[0].admin_address = next);
    standby.manager.set(|state| {
        state.leases[0].leading = true;
        state.leases[0].record = Some(crate::admin::testing::fake::record(ME));
    });
    let line = ["step-down", "--expected-leader", OTHER, "--trust-announced-authority"];
    let ran = standby.run(&line).await;
    assert!(ran.exit == Exit::Refused && ran.err.contains("LEADER_CHANGED"), "{ran:?}");
    assert!(standby.manager.state.lock().stepped_down.is_empty());
    assert!(leader.manager.state.lock().stepped_down.is_empty());
}

#[tokio::test]
async fn the_leader_is_found_by_a_lease_of_another_name() {
    let (standby, leader) = pair().await;
    standby.rename_main("managers", "coxswain");
    let line = ["sync", "deployment", "default/web", "--trust-announced-authority"];
    let named = ["--leader-elect-resource-namespace", "managers", "--leader-elect-resource-name", "coxswain"];
    assert_eq!(standby.run(&[&line[..], &named].concat()).await.exit, Exit::Done);
    assert!(standby.seen().iter().all(|(path, _)| path.starts_with("/apis/")), "it was not asked");
    // By the usual name nobody leads, so a replica is asked.
    assert_eq!(standby.run(&line).await.exit, Exit::Done);
    assert!(standby.seen().iter().any(|(path, _)| path.ends_with("/GetLeader")));
    assert_eq!(leader.manager.state.lock().synced.len(), 2);
}

#[tokio::test]
async fn waiting_is_for_the_leader() {
    let (standby, leader) = pair().await;
    leader.manager.set_phase("deployment-controller", Phase::Disabled);
    let line = ["disable", "deployment", "--wait", "--for", "1h", "--trust-announced-authority"];
    let ran = standby.run(&line).await;
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    assert_eq!((standby.manager.state.lock().writes, leader.manager.state.lock().writes), (0, 1));
}

#[tokio::test]
async fn the_next_replica_is_tried_when_one_is_away() {
    let replica = Replica::start().await;
    replica.announce(&[other(0), lease(ME, &replica.address, 0, None)], Some(OTHER));
    let ran = replica.run(&["controllers"]).await;
    assert_eq!(ran.exit, Exit::Done);
    assert!(ran.err.contains("connect to node-b_2 at 127.0.0.1:9: "), "{ran:?}");
    replica.announce(
        &[other(0), lease("z", "no-port", 0, None), lease("old", &replica.address, -100, None)],
        None,
    );
    let ran = replica.run(&["controllers"]).await;
    assert_eq!(ran.exit, Exit::Unreachable);
    for word in ["node-b_2 at 127.0.0.1:9", "z at no-port", "old has not renewed its Lease for 100s"] {
        assert!(ran.err.contains(word), "{ran:?}");
    }
    replica.announce(&[], Some("go-manager"));
    let ran = replica.run(&["controllers"]).await;
    assert!(ran.exit == Exit::Unreachable && ran.err.contains("go-manager leads"), "{ran:?}");
}

#[tokio::test]
async fn commands_that_ask_nobody() {
    let replica = Replica::start().await;
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef coxswain"), ("fish", "complete -c coxswain")]
    {
        let ran = replica.run_in(&[], &["completion", shell]).await;
        assert!(ran.exit == Exit::Done && ran.out.contains(word), "{shell}");
        for word in ["step-down", "deployment-controller", "reconcile-failed"] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
    }
    let ran = replica.run_in(&[], &["version", "-o", "json"]).await;
    assert_eq!(json_of(&ran)["version"], format!("v{}", env!("CARGO_PKG_VERSION")));
    let ran = replica.run_in(&[], &["help"]).await;
    assert!(ran.exit == Exit::Done && ran.out.contains("Exit codes:") && ran.err.is_empty());
    let ran = replica.run_in(&[], &["controlers"]).await;
    assert!(ran.exit == Exit::Usage && ran.out.is_empty() && ran.err.contains("'controllers'"), "{ran:?}");
    assert!(replica.seen().is_empty());
}
