//! Who makes trouble that is not about one request: watches that stall, lag or break, an API server that forgets or is away,
//! managers that are killed, cut off or stand still, clocks that somebody sets, controllers that are turned off and on.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep};

use super::{Calm, Nodes, freeze};
use crate::faults::Muted;
use crate::managers::Managers;
use crate::server::Server;
use apiserver_model::Place;
use apiserver_model::dice::Dice;

/// Resources whose watches lag.
const LAGGING: &[&str] = &[
    "pods",
    "pods",
    "replicasets",
    "deployments",
    "statefulsets",
    "daemonsets",
    "jobs",
    "nodes",
    "leases",
    "namespaces",
    "configmaps",
    "cronjobs",
    "poddisruptionbudgets",
    "persistentvolumes",
    "persistentvolumeclaims",
    "volumeattachments",
    "resourcequotas",
    "certificatesigningrequests",
    "secrets",
    "horizontalpodautoscalers",
];
/// Controllers that are turned off and on. The one of autoscalers is not: what it remembers would end while its manager goes on,
/// and rules know what it remembers by manager.
const TOGGLED: &[&str] = &[
    "replicaset-controller",
    "deployment-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "replicationcontroller-controller",
    "cronjob-controller",
    "disruption-controller",
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-attach-detach-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "node-ipam-controller",
    "certificatesigningrequest-signing-controller",
    "token-cleaner-controller",
    "bootstrap-signer-controller",
    "root-ca-certificate-publisher-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    // It looks when it starts, and then for a day no more.
    "legacy-serviceaccount-token-cleaner-controller",
];
const OVERRIDES: &str = "coxswain-overrides";

/// The kinds of mishaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mishap {
    Lag,
    Cut,
    Compaction,
    Away,
    Kill,
    Stop,
    Toggle,
    Freeze,
    Clock,
    CutOff,
}

const ALL: &[Mishap] = &[
    Mishap::Lag,
    Mishap::Cut,
    Mishap::Compaction,
    Mishap::Away,
    Mishap::Kill,
    Mishap::Stop,
    Mishap::Toggle,
    Mishap::Freeze,
    Mishap::Clock,
    Mishap::CutOff,
];
/// By how many seconds a clock is wrong that somebody has set: who waits by it for a time that an object names, as the original does,
/// waits for so much longer, and everything must settle after all.
const WRONG: &[i64] = &[-1200, -600, -60, -10, 10, 60, 600, 1200];

/// Makes trouble until it is calm; then puts right what does not put itself right.
pub(crate) async fn chaos(
    server: Arc<Server>,
    managers: Managers,
    nodes: &Nodes,
    seed: u64,
    calm: Calm,
    muted: Muted,
) {
    let mut dice = Dice::new(seed, "chaos");
    let kinds: Vec<Mishap> = ALL.iter().copied().filter(|_| dice.permille(500)).collect();
    let longest = *dice.pick(&[15_000, 40_000, 120_000]).unwrap_or(&30_000);
    let mut version = 0;
    loop {
        sleep(dice.millis(500, longest)).await;
        if calm.has_begun() {
            break;
        }
        if let Some(&kind) = dice.pick(&kinds)
            && !muted.contains(kind.name())
        {
            version += 1;
            if kind == Mishap::Freeze {
                let longest = *dice.pick(&[5_000, 30_000, 150_000]).unwrap_or(&5_000);
                let lasts = dice.millis(1_000, longest);
                if freeze::freeze(&server, nodes, &mut dice, &muted, lasts).await {
                    server.faults(|faults, _| faults.count(kind.name()));
                }
            } else {
                make(kind, &server, &managers, &mut dice, version);
            }
        }
    }
    server.faults(|faults, model| {
        faults.end();
        model.lag.clear();
    });
    for place in &managers.places {
        place.clock.set(0);
    }
    for name in TOGGLED {
        version += 1;
        toggle(&server, name, "default", version);
    }
    std::future::pending::<()>().await;
}

fn make(kind: Mishap, server: &Server, managers: &Managers, dice: &mut Dice, version: u64) {
    let now = Instant::now();
    let told = match kind {
        Mishap::Lag => {
            let Some(&resource) = dice.pick(LAGGING) else { return };
            let longest = *dice.pick(&[500, 5_000, 30_000, 60_000, 180_000]).unwrap_or(&500);
            let by = dice.millis(longest / 2, longest);
            let until = now + dice.millis(1_000, longest.max(60_000));
            server.faults(|_, model| model.lag.set(resource, until, by));
            format!("{resource} lag by {by:?}")
        }
        Mishap::Cut => {
            let resource = dice.pick(LAGGING).copied().filter(|_| dice.permille(700));
            server.with(|model| model.cut(resource));
            format!("watches of {} are cut", resource.unwrap_or("everything"))
        }
        Mishap::Compaction => {
            server.with(apiserver_model::Model::compact);
            "the past is forgotten".to_owned()
        }
        Mishap::Away => {
            let until = now + dice.millis(500, 20_000);
            server.faults(|faults, _| faults.away(until));
            server.with(|model| model.cut(None));
            format!("the API server is away for {:?}", until - now)
        }
        Mishap::Kill | Mishap::Stop => {
            let pause = dice.millis(0, 30_000);
            managers.end(dice, kind == Mishap::Kill, pause);
            format!("the manager is {}", if kind == Mishap::Kill { "killed" } else { "stopped" })
        }
        Mishap::Toggle => {
            let Some(&name) = dice.pick(TOGGLED) else { return };
            let desired = *dice.pick(&["disabled", "enabled", "default"]).unwrap_or(&"default");
            toggle(server, name, desired, version);
            format!("{name} is {desired}")
        }
        Mishap::Clock => {
            let Some(place) = dice.pick(&managers.places) else { return };
            let wrong = *dice.pick(WRONG).unwrap_or(&0);
            place.clock.set(wrong);
            server.checks(|checks| checks.clock_is_wrong(wrong));
            format!("a clock is wrong by {wrong} s")
        }
        Mishap::CutOff => {
            let Some(place) = dice.pick(&managers.places) else { return };
            let longest = *dice.pick(&[5_000, 30_000, 150_000]).unwrap_or(&5_000);
            let lasts = dice.millis(1_000, longest);
            place.line.cut(now + lasts);
            format!("a manager is cut off for {lasts:?}")
        }
        // That takes its time.
        Mishap::Freeze => return,
    };
    server.faults(|faults, _| faults.count(kind.name()));
    server.tell(&format!("  mishap: {told}"));
}

/// The names of all kinds.
pub(crate) fn mishaps() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|kind| kind.name())
}

impl Mishap {
    fn name(self) -> &'static str {
        match self {
            Self::Lag => "lag",
            Self::Cut => "watches cut",
            Self::Compaction => "compaction",
            Self::Away => "away",
            Self::Kill => "manager killed",
            Self::Stop => "manager stopped",
            Self::Toggle => "controller toggled",
            Self::Freeze => "managers frozen",
            Self::Clock => "clock set",
            Self::CutOff => "manager cut off",
        }
    }
}

/// An override of a controller, as the admin API writes them.
fn toggle(server: &Server, name: &str, desired: &str, version: u64) {
    let time = server.now().to_string();
    let entry =
        json!({ "desired": desired, "user": "simulation", "time": time, "version": version }).to_string();
    let key = format!("overrides.coxswain.dev/{name}");
    server.with(|model| {
        let place = Place::new("leases", "kube-system", OVERRIDES);
        if model.get(&place).is_none() {
            drop(model.create("user", "leases", "kube-system", json!({ "metadata": { "name": OVERRIDES } })));
        }
        let edited = |lease: &mut Json| {
            if lease["metadata"]["annotations"].is_null() {
                lease["metadata"]["annotations"] = json!({});
            }
            lease["metadata"]["annotations"][key.as_str()] = json!(entry);
        };
        drop(model.change("user", &place, "", edited));
    });
}

/// Tells all watches now and then how far they are.
pub(crate) async fn bookmarks(server: Arc<Server>) {
    loop {
        sleep(Duration::from_mins(1)).await;
        server.with(apiserver_model::Model::bookmark);
    }
}
