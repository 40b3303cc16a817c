//! One leader ends, another takes over.

use std::time::Duration;

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, Flags, Qps};
use crate::canary::Canary;
use crate::content::LIMIT;
use crate::figures::{Figure, Figures, Target, What, whole};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, never_more};

/// How often the Lease is looked at.
const POLL: Duration = Duration::from_millis(10);
/// After SIGTERM, seconds.
const HANDED_OVER: f64 = 1.0;
/// `--leader-elect-lease-duration`, by default, seconds.
const LEASE_DURATION: f64 = 15.0;

/// Two replicas, of which the leader ends.
pub(super) struct Failover {
    /// With SIGKILL; else with SIGTERM.
    pub(super) kill: bool,
}

impl Scenario for Failover {
    fn name(&self) -> String {
        if self.kill { "failover, kill -9" } else { "failover, SIGTERM" }.to_owned()
    }

    fn about(&self) -> String {
        let signal = if self.kill { "SIGKILL" } else { "SIGTERM" };
        format!(
            "Two replicas run with the default durations of leader election. The leader gets {signal}. Times run from the signal."
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &[]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        let most = if self.kill { LEASE_DURATION } else { HANDED_OVER };
        vec![(whole(What::Lease), Target::Value(most)), never_more(What::FirstWrite)]
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let canary = Canary::new(bench).await;
            let how = if self.kill { "kill" } else { "term" };
            let lease = format!("failover-{how}-{}-{}", turn.round, turn.program).to_lowercase();
            let flags = Flags { lease: Some(lease.clone()), ..Flags::of(&[], Qps::Usual) };
            let leader = bench.manager(turn, &format!("leader-{how}"), &flags);
            let leases: Api<Lease> = Api::namespaced(bench.cluster.client.clone(), "kube-system");
            let (first, _) = other_holder(leases.clone(), lease.clone(), String::new()).await;
            calm(leader.pid).await;
            let standby = bench.manager(turn, &format!("standby-{how}"), &flags);
            calm(standby.pid).await;

            let mut watch = JoinSet::new();
            let signaled = Instant::now();
            watch.spawn(other_holder(leases, lease, first));
            bench.ended(&leader);
            if self.kill {
                leader.kill();
            } else {
                leader.stop();
            }
            // Not before, for the one that ends would see to it.
            canary.place().await;
            let written = canary.noticed().await;
            let (_, taken) = watch.join_next().await.expect("it watches").expect("it has seen");
            let since = |moment: Instant| moment.duration_since(signaled).as_secs_f64();
            bench.say(&format!(
                "  another holder after {:.2} s, its first write after {:.2} s",
                since(taken),
                since(written)
            ));
            figures.add(whole(What::Lease), since(taken));
            figures.add(whole(What::FirstWrite), since(written));
            figures
        }
        .boxed_local()
    }
}

/// Waits until a Lease is held by another one than this, and says by whom and since when.
async fn other_holder(leases: Api<Lease>, name: String, than: String) -> (String, Instant) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let lease = leases.get_opt(&name).await.expect("an answer");
        let now = Instant::now();
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
        if !holder.is_empty() && holder != than {
            return (holder, now);
        }
        assert!(now < deadline, "{name} stays with {than:?}");
        sleep(POLL).await;
    }
}
