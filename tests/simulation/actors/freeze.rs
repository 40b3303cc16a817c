//! Managers that stand still, as a process does that is stopped or a machine that is short of memory: nothing of them runs, while
//! time and the cluster go on. Somebody else may take their Lease meanwhile, and they wake up with work in hand, and with much that
//! they have not heard of.
//!
//! All managers of a run stand still at once, for they share a thread: it is this one that does not come back to them. What they
//! had sent has arrived before.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use serde_json::json;
use tokio::time::{advance, sleep};

use super::nodes::{Nodes, renew};
use super::stamp;
use super::users::user;
use crate::faults::Muted;
use crate::server::Server;
use apiserver_model::dice::Dice;
use apiserver_model::{Place, text};

/// Steps in which time passes.
const STEP: Duration = Duration::from_secs(1);
/// How often kubelets renew their Leases, and who leads in the managers' place renews its own, in steps.
const KUBELETS: u64 = 10;
const RENEW: u64 = 2;
/// For how many steps in the end kubelets, the scheduler and users go on with everything else: rules allow what was right within the
/// last four minutes, and watches may be late besides.
const LIVELY: u64 = 45;
/// How often, in thousand steps, users do something then.
const USERS: u32 = 300;
/// How often, in thousand times, somebody else takes the Lease as soon as it may.
const TAKEN: u32 = 700;
/// For how many seconds its Lease lasts.
const LASTS: u64 = 15;
/// Who that is.
const OTHER: &str = "other";

/// Time passes, and nobody who waits for it is told yet.
fn pass() {
    // Its first step moves the clock. The next one, which would let others run, is never taken.
    let step = pin!(advance(STEP));
    let _ = step.poll(&mut Context::from_waker(Waker::noop()));
}

/// The managers stand still for so long. Whether they did: not while something is on its way from them.
pub(super) async fn freeze(
    server: &Server,
    nodes: &Nodes,
    dice: &mut Dice,
    muted: &Muted,
    lasts: Duration,
) -> bool {
    let mut tries = 0;
    while server.on_their_way() > 0 {
        tries += 1;
        if tries > 200 {
            return false;
        }
        sleep(Duration::from_millis(5)).await;
    }
    server.tell(&format!("  managers stand still for {lasts:?}"));
    server.freeze();
    let is_taken = dice.permille(TAKEN);
    let (mut taken, mut free_in) = (false, None);
    for step in 0..lasts.as_secs() {
        pass();
        if step + LIVELY >= lasts.as_secs() {
            nodes.look(server);
            if dice.permille(USERS) {
                user(server, dice, muted);
            }
        } else if step % KUBELETS == 0 {
            let names: Vec<String> =
                server.with(|model| model.all("nodes", "").map(|node| node.place.name.clone()).collect());
            for name in names {
                renew(server, &name);
            }
        }
        let left = free_in.get_or_insert_with(|| duration(server));
        *left -= 1;
        if is_taken && *left <= 0 && (!taken || step % RENEW == 0) {
            taken = lead(server, OTHER, !taken);
        }
    }
    server.tell("  managers go on");
    if taken {
        for _ in 0..dice.below(15) {
            sleep(STEP * 2).await;
            lead(server, OTHER, false);
        }
        // Some give the Lease back, and some just end.
        if dice.permille(500) {
            lead(server, "", false);
        }
    }
    true
}

fn lease() -> Place {
    Place::new("leases", "kube-system", "kube-controller-manager")
}

/// After how many steps a Lease that nobody renews is anybody's.
fn duration(server: &Server) -> i64 {
    server.with(|model| {
        let held = model.get(&lease()).map(|held| held.json["spec"]["leaseDurationSeconds"].clone());
        held.and_then(|seconds| seconds.as_i64()).unwrap_or(0)
    })
}

/// Somebody who is none of the managers takes the Lease, renews it or gives it back; what it does not hold only if it `takes` it. Whether
/// it has been so.
fn lead(server: &Server, holder: &str, takes: bool) -> bool {
    let (now, micro) = (stamp(server), format!("{:.6}", server.now()));
    server.with(|model| {
        let edited = |held: &serde_json::Value| {
            let mut lease = held.clone();
            if !takes && text(&lease, "/spec/holderIdentity") != OTHER {
                return Ok(lease);
            }
            let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
            if text(&lease, "/spec/holderIdentity") != holder {
                lease["spec"]["leaseTransitions"] = json!(transitions + 1);
                lease["spec"]["acquireTime"] = json!(format!("{}.000000Z", now.trim_end_matches('Z')));
            }
            lease["spec"]["holderIdentity"] = json!(holder);
            lease["spec"]["leaseDurationSeconds"] = json!(if holder.is_empty() { 1 } else { LASTS });
            lease["spec"]["renewTime"] = json!(micro);
            Ok(lease)
        };
        model.update(OTHER, &lease(), "", edited).is_ok()
    })
}
