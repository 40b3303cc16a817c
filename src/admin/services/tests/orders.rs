//! Orders: what they write, what they take, and that each has a way back.

use std::collections::BTreeMap;

use tonic::Code;

use super::fake::{ME, OTHER, at};
use super::*;
use crate::admin::overrides::{Entry, FlagSelection, Order, OverrideSet};
use crate::admin::proto;
use crate::admin::proto::controller_service_client::ControllerServiceClient;

/// The flags of kubeadm's static pod, and those of `overlays/beside`.
const KUBEADM: &str = "--controllers=*,bootstrapsigner,tokencleaner";
const BESIDE: &str = "--controllers=cronjob-controller,job-controller,ttl-after-finished-controller";

const NODES: &str = "node-lifecycle-controller";
const CRON: &str = "cronjob-controller";

/// An order of an API call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Enable { force: bool },
    Disable { force: bool },
    Clear { force: bool },
}

const CALLS: [Call; 6] = [
    Call::Enable { force: false },
    Call::Enable { force: true },
    Call::Disable { force: false },
    Call::Disable { force: true },
    Call::Clear { force: false },
    Call::Clear { force: true },
];

type Answer = Result<(Vec<proto::Controller>, bool), tonic::Status>;

impl Bench {
    async fn of_registry(flags: &[&str]) -> Self {
        Self::over(Fake::of_registry(flags), AdminOptions::default(), 64).await
    }

    async fn order(&self, name: &str, call: Call) -> Answer {
        let mut client = ControllerServiceClient::new(self.channel.clone());
        let name = name.to_owned();
        match call {
            Call::Enable { force } => {
                let request = proto::EnableControllerRequest { name, force, ..Default::default() };
                let answer = client.enable_controller(jane(request)).await?.into_inner();
                Ok((answer.controllers, answer.changed))
            }
            Call::Disable { force } => {
                let request = proto::DisableControllerRequest { name, force, ..Default::default() };
                let answer = client.disable_controller(jane(request)).await?.into_inner();
                Ok((answer.controllers, answer.changed))
            }
            Call::Clear { force } => {
                let request = proto::ClearOverridesRequest { name, force, ..Default::default() };
                let answer = client.clear_overrides(jane(request)).await?.into_inner();
                Ok((answer.controllers, answer.changed))
            }
        }
    }

    /// Which controllers are wanted under these overrides.
    fn desired(&self, set: &OverrideSet) -> BTreeMap<&'static str, bool> {
        let state = self.manager.state.lock();
        let desired = |name, flags| set.desired(name, flags, at(0)).enabled;
        state.controllers.iter().map(|each| (each.name, desired(each.name, each.flags))).collect()
    }

    fn set(&self) -> OverrideSet {
        self.manager.state.lock().overrides.clone()
    }
}

#[tokio::test]
async fn disabling_all_and_the_way_back_leave_each_controller_as_before() {
    for flags in [KUBEADM, BESIDE, "--controllers=*", "--controllers=*,-nodelifecycle"] {
        let back =
            [Call::Enable { force: false }, Call::Enable { force: true }, Call::Clear { force: false }];
        for back in back {
            let bench = Bench::of_registry(&[flags]).await;
            let before = bench.desired(&bench.set());
            assert_eq!(before.len(), 52);
            let (all, changed) = bench.order("*", Call::Disable { force: true }).await.unwrap();
            assert!(changed && all.len() == 52, "{flags}");
            assert!(bench.desired(&bench.set()).values().all(|enabled| !enabled), "{flags}");
            bench.order("*", back).await.unwrap();
            assert_eq!(bench.desired(&bench.set()), before, "{flags} {back:?}");
            assert!(bench.set().entries().all(|(_, entry)| !entry.is_in_force(at(0))));
            assert!(!bench.order("*", back).await.unwrap().1, "there is nothing left to end");
        }
    }
}

#[tokio::test]
async fn enabling_all_ends_what_disables_and_nothing_else() {
    let bench = Bench::of_registry(&[BESIDE]).await;
    bench.order(CRON, Call::Disable { force: false }).await.unwrap();
    bench.order(NODES, Call::Enable { force: true }).await.unwrap();
    let (ended, changed) = bench.order("*", Call::Enable { force: false }).await.unwrap();
    assert!(changed);
    assert_eq!(ended.iter().map(|each| each.name.as_str()).collect::<Vec<_>>(), [CRON]);
    let set = bench.set();
    let running: Vec<_> = bench.desired(&set).into_iter().filter(|(_, enabled)| *enabled).collect();
    let names: Vec<_> = running.into_iter().map(|(name, _)| name).collect();
    let special = "serviceaccount-token-controller";
    assert_eq!(names, [CRON, "job-controller", NODES, special, "ttl-after-finished-controller"]);
    assert_eq!(set.entry(NODES).unwrap().order, Order::Enabled, "it stays as ordered");

    let mut client = ControllerServiceClient::new(bench.channel.clone());
    let duration = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let request = proto::EnableControllerRequest { name: "*".into(), duration, ..Default::default() };
    assert_eq!(fields(client.enable_controller(jane(request)).await), ["duration"]);
}

/// Two facades over one store: the leader, and another replica with other flags.
struct Pair {
    leader: Bench,
    other: Bench,
}

impl Pair {
    async fn new(leader: &str, other: &str) -> Self {
        let (leader, other) = (Bench::of_registry(&[leader]).await, Bench::of_registry(&[other]).await);
        let digest = leader.manager.state.lock().replicas[0].selection.clone();
        other.manager.lose(OTHER);
        other.manager.state.lock().replicas[1].selection = digest;
        Self { leader, other }
    }

    async fn order(&self, at_leader: bool, name: &str, call: Call) -> Answer {
        let (asked, sees) = if at_leader { (&self.leader, &self.other) } else { (&self.other, &self.leader) };
        let answer = asked.order(name, call).await;
        let set = asked.set();
        sees.manager.set(|state| state.overrides = set);
        answer
    }

    fn leaders(&self) -> bool {
        self.leader.desired(&self.leader.set())[NODES]
    }
}

/// The state that the leader must have after an accepted order, if its flags give `flags`.
fn expected(call: Call, flags: bool) -> bool {
    match call {
        Call::Enable { force } => flags || force,
        Call::Disable { .. } => false,
        Call::Clear { .. } => flags,
    }
}

#[tokio::test]
async fn each_pair_of_orders_at_two_replicas_leaves_the_leader_as_ordered() {
    let without = "--controllers=*,-nodelifecycle";
    for (leaders, others) in [("--controllers=*", without), (without, "--controllers=*")] {
        let flags = leaders == "--controllers=*";
        let pair = Pair::new(leaders, others).await;
        for (first, second) in CALLS.iter().flat_map(|first| CALLS.map(|second| (*first, second))) {
            for (first_at, second_at) in [(true, false), (false, true), (false, false), (true, true)] {
                for name in [NODES, "*"] {
                    for bench in [&pair.leader, &pair.other] {
                        bench.manager.set(|state| state.overrides = OverrideSet::default());
                    }
                    let mut now = flags;
                    for (at_leader, name, call) in [(first_at, NODES, first), (second_at, name, second)] {
                        let before = pair.leader.set();
                        let answer = pair.order(at_leader, name, call).await;
                        let told =
                            format!("{leaders}: {first:?} {second:?} {first_at} {second_at} {call:?} {name}");
                        match answer {
                            Ok(_) if name == "*" && matches!(call, Call::Enable { .. }) => {
                                let is_disabled =
                                    before.entry(NODES).is_some_and(|entry| entry.order == Order::Disabled);
                                now = if is_disabled { flags } else { now };
                            }
                            Ok(_) => now = expected(call, flags),
                            Err(status) => {
                                let reason = why::<()>(Err(status)).1;
                                let differ = !at_leader && reason == "FLAGS_DIFFER";
                                assert!(differ || reason == "FORCE_REQUIRED", "{reason}: {told}");
                                assert_eq!(pair.leader.set(), before, "{told}");
                            }
                        }
                        assert_eq!(pair.leaders(), now, "{told}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_repeated_disable_at_a_replica_with_other_flags_keeps_the_disable() {
    // The leader announces no digest, as an older version.
    let pair = Pair::new("--controllers=*", "--controllers=*,-nodelifecycle").await;
    pair.other.manager.state.lock().replicas[1].selection = String::new();
    pair.order(true, NODES, Call::Disable { force: true }).await.unwrap();
    let before = pair.leader.set();
    assert!(
        !pair.order(false, NODES, Call::Disable { force: true }).await.unwrap().1,
        "it is disabled already"
    );
    assert_eq!(pair.leader.set(), before);
    assert!(!pair.leaders());
}

#[tokio::test]
async fn disable_all_at_a_standby_covers_what_the_flags_of_any_leader_select() {
    // An older version announces no digest; a watch that lags does not show the leader at all.
    for (holder, digest) in [(OTHER, Some("")), (OTHER, None), ("unannounced", None), ("", None)] {
        let pair = Pair::new("--controllers=*", "--controllers=*,-nodelifecycle").await;
        if let Some(digest) = digest {
            digest.clone_into(&mut pair.other.manager.state.lock().replicas[1].selection);
        }
        pair.other.manager.lose(holder);
        let (all, changed) = pair.order(false, "*", Call::Disable { force: true }).await.unwrap();
        assert!(changed && all.len() == 52, "{holder:?} {digest:?}");
        assert!(pair.leader.desired(&pair.leader.set()).values().all(|enabled| !enabled), "{holder:?}");
        // The way back is for the replica that has the flags.
        pair.order(true, "*", Call::Clear { force: false }).await.unwrap();
        assert!(pair.leaders());
    }
}

#[tokio::test]
async fn reads_are_marked_at_a_replica_with_other_flags_than_the_leaders() {
    let differ = async |bench: &Bench| {
        let mut client = ControllerServiceClient::new(bench.channel.clone());
        let request = proto::GetControllerRequest { name: NODES.to_owned() };
        let one = client.get_controller(jane(request)).await.unwrap().into_inner().flags_differ;
        let all = client.list_controllers(jane(proto::ListControllersRequest::default())).await;
        assert_eq!(all.unwrap().into_inner().flags_differ, one);
        one
    };
    let pair = Pair::new("--controllers=*", "--controllers=*,-nodelifecycle").await;
    assert!(differ(&pair.other).await && !differ(&pair.leader).await);
    let equal = Pair::new("--controllers=*", "--controllers=*").await;
    assert!(!differ(&equal.other).await);
    // An older version and a kube-controller-manager announce no digest.
    pair.other.manager.state.lock().replicas[1].selection = String::new();
    assert!(!differ(&pair.other).await);
}

#[tokio::test]
async fn other_flags_than_the_leaders_refuse_and_name_the_leader() {
    let pair = Pair::new("--controllers=*", "--controllers=*,-nodelifecycle").await;
    let refused = pair.order(false, CRON, Call::Enable { force: false }).await.unwrap_err();
    assert!(refused.message().contains("set force") && refused.message().contains(OTHER), "{refused:?}");
    let details = tonic_types::StatusExt::get_details_error_info(&refused).unwrap();
    assert_eq!(details.metadata["leader_address"], "10.0.0.2:10257");
    let differ = || (Code::FailedPrecondition, "FLAGS_DIFFER".to_owned());
    assert_eq!(why::<()>(Err(refused)), differ());
    assert_eq!(why(pair.order(false, CRON, Call::Clear { force: false }).await), differ());
    // To disable does not depend on flags.
    assert!(pair.order(false, "*", Call::Disable { force: true }).await.unwrap().1);
    pair.order(true, "*", Call::Clear { force: false }).await.unwrap();
    assert!(pair.order(false, CRON, Call::Disable { force: false }).await.unwrap().1);
    // With equal flags, and where nobody leads, any replica takes orders.
    let equal = Pair::new("--controllers=*", "--controllers=*").await;
    assert!(equal.order(false, CRON, Call::Enable { force: false }).await.unwrap().1);
    pair.other.manager.lose("");
    assert!(pair.order(false, CRON, Call::Enable { force: false }).await.unwrap().1);
}

#[tokio::test]
async fn what_the_flags_leave_out_runs_with_force_only() {
    let bench = Bench::of_registry(&["--controllers=*,-csrapproving,-csrsigning,-bootstrapsigner"]).await;
    for name in ["csrapproving", "csrsigning", "bootstrapsigner", "tokencleaner"] {
        let refused = bench.order(name, Call::Enable { force: false }).await.unwrap_err();
        assert!(refused.message().contains("another manager may run it"), "{refused:?}");
        assert_eq!(why::<()>(Err(refused)), (Code::FailedPrecondition, "FORCE_REQUIRED".into()));
        let (controllers, changed) = bench.order(name, Call::Enable { force: true }).await.unwrap();
        let desired = controllers[0].desired.clone().unwrap();
        assert!(changed && desired.enabled && desired.r#override.unwrap().force);
        assert!(bench.order(name, Call::Clear { force: false }).await.unwrap().1);
    }
    assert!(bench.set().entries().all(|(_, entry)| entry.order == Order::Default));
}

#[tokio::test]
async fn disable_only_refuses_to_enable_even_with_force() {
    let bench = Bench::of_registry(&[BESIDE, "--admin-overrides=disable-only"]).await;
    for force in [false, true] {
        let refused = bench.order(NODES, Call::Enable { force }).await.unwrap_err();
        assert!(refused.message().contains("--admin-overrides is disable-only"), "{refused:?}");
        assert_eq!(why::<()>(Err(refused)), (Code::FailedPrecondition, "SETTING".into()));
    }
    // A controller that the flags select can be disabled and enabled.
    assert!(bench.order(CRON, Call::Disable { force: false }).await.unwrap().1);
    assert!(bench.order(CRON, Call::Enable { force: false }).await.unwrap().1);
    assert!(bench.desired(&bench.set())[CRON]);
    // An entry of an older version, or one written by hand, changes nothing and is shown.
    let entry = Entry { force: None, ..entry(Order::Enabled) };
    bench.manager.set(|state| state.overrides = state.overrides.with(&[(NODES.to_owned(), entry)]));
    assert!(!bench.desired(&bench.set())[NODES]);
    let mut client = ControllerServiceClient::new(bench.channel.clone());
    let request = jane(proto::GetControllerRequest { name: NODES.to_owned() });
    let shown = client.get_controller(request).await.unwrap().into_inner().controller.unwrap();
    let desired = shown.desired.unwrap();
    assert!(!desired.enabled && desired.ineffective_override.contains("disable-only"), "{desired:?}");
}

fn entry(order: Order) -> Entry {
    let (user, replica) = ("joe".to_owned(), ME.to_owned());
    Entry {
        order,
        user,
        time: at(0),
        reason: String::new(),
        until: None,
        version: 1,
        replica,
        force: Some(false),
    }
}

#[test]
fn an_order_without_force_never_outranks_flags_that_change_later() {
    let off = FlagSelection { enabled: false, named: true, fixed: false };
    for (force, enabled) in [(Some(false), false), (Some(true), true), (None, true)] {
        let set = OverrideSet::default().with(&[(CRON.to_owned(), Entry { force, ..entry(Order::Enabled) })]);
        assert_eq!(set.desired(CRON, off, at(0)).enabled, enabled, "{force:?}");
        assert_eq!(set.ineffective(CRON, off, at(0)).is_some(), !enabled);
        let disabled = set.with(&[(CRON.to_owned(), Entry { force, ..entry(Order::Disabled) })]);
        assert!(!disabled.desired(CRON, FlagSelection { enabled: true, ..off }, at(0)).enabled);
    }
}

#[tokio::test]
async fn critical_controllers_stop_for_an_hour_or_with_force() {
    let bench = Bench::of_registry(&[KUBEADM]).await;
    let mut client = ControllerServiceClient::new(bench.channel.clone());
    let mut disable = async |name: &str, seconds: i64| {
        let duration = (seconds > 0).then_some(prost_types::Duration { seconds, nanos: 0 });
        let request = proto::DisableControllerRequest { name: name.into(), duration, ..Default::default() };
        client.disable_controller(jane(request)).await
    };
    for name in
        ["endpointslice", "namespace", "garbagecollector", "serviceaccount", "nodelifecycle", "resourcequota"]
    {
        for seconds in [0, 3601] {
            let refused = disable(name, seconds).await.unwrap_err();
            assert!(refused.message().contains("is critical to the cluster"), "{refused:?}");
            assert_eq!(why::<()>(Err(refused)), (Code::FailedPrecondition, "FORCE_REQUIRED".into()));
        }
        assert!(disable(name, 3600).await.unwrap().into_inner().changed);
    }
    assert!(disable("deployment", 0).await.unwrap().into_inner().changed);
    // A short order for all of them takes force, too.
    assert_eq!(why(disable("*", 60).await).1, "FORCE_REQUIRED");
}

#[tokio::test]
async fn an_order_for_all_controllers_is_one_mutation_that_names_each() {
    let bench = Bench::of_registry(&[KUBEADM]).await;
    bench.order("*", Call::Disable { force: true }).await.unwrap();
    let announced = std::mem::take(&mut bench.manager.state.lock().announced);
    assert_eq!(announced.len(), 1);
    let message = &announced[0].message;
    assert!(
        message.starts_with("jane disabled all controllers: ") && message.ends_with(" with force"),
        "{message}"
    );
    let wanted = bench.desired(&OverrideSet::default());
    assert!(wanted.into_iter().all(|(name, enabled)| !enabled || message.contains(name)), "{message}");
    bench.order("*", Call::Clear { force: false }).await.unwrap();
    bench.order("*", Call::Clear { force: false }).await.unwrap();
    let announced = bench.manager.state.lock().announced.clone();
    assert_eq!(announced.len(), 1, "what changes nothing is not announced");
    assert!(announced[0].message.starts_with("jane cleared all overrides: "), "{announced:?}");
}

#[tokio::test]
async fn clearing_replaces_entries_that_cannot_be_read() {
    let bench = Bench::of_registry(&[KUBEADM]).await;
    let key = format!("{}{CRON}", crate::admin::overrides::ANNOTATION_PREFIX);
    let spoiled = OverrideSet::parse([(key.as_str(), "rubbish")], &|_| true);
    for name in ["*", CRON] {
        bench.manager.set(|state| state.overrides = spoiled.clone());
        let (controllers, changed) = bench.order(name, Call::Clear { force: false }).await.unwrap();
        assert!(changed && controllers.len() == 1, "{name}");
        assert!(bench.set().problems().is_empty());
    }
}
