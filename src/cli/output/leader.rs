//! Leadership for people.

use jiff::Timestamp;

use super::clean;
use super::controllers::yes;
use super::human::{NONE, age, ago, duration_or_none};
use super::sheet::Sheet;
use super::table::table;
use crate::admin::proto::{GetLeaderResponse, Leader, LeasePolicy, OverridesInForce, Replica};

/// The headings of the lines that a watch prints.
pub(in crate::cli) const HEADINGS: [&str; 6] =
    ["HOLDER", "ADDRESS", "TRANSITIONS", "ACQUIRED", "RENEWED", "REPLICAS"];

fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { clean(text) }
}

/// Who leads and who could, in one line.
pub(in crate::cli) fn row(leader: &Leader, replicas: &[Replica], now: Timestamp) -> Vec<String> {
    let live = replicas.iter().filter(|replica| replica.live).count();
    vec![
        or_none(&leader.holder_identity),
        or_none(&leader.admin_address),
        leader.transitions.to_string(),
        age(leader.acquire_time.as_ref(), now),
        age(leader.renew_time.as_ref(), now),
        format!("{live}/{} live", replicas.len()),
    ]
}

/// The overrides in force; empty if there are none, or if the replica is of a version that does not count them.
fn overrides(in_force: Option<&OverridesInForce>, now: Timestamp) -> String {
    let Some(OverridesInForce { count, oldest_time }) = in_force.filter(|each| each.count > 0) else {
        return String::new();
    };
    format!("{count} active, the oldest set {}", ago(oldest_time.as_ref(), now))
}

/// Who leads and who could.
pub(in crate::cli) fn sheet(answer: &GetLeaderResponse, now: Timestamp) -> String {
    let mut sheet = Sheet::default();
    let leader = answer.leader.clone().unwrap_or_default();
    if leader.lease.is_empty() {
        sheet.fact("Lease", "leader election is off");
    } else {
        sheet
            .fact("Lease", &leader.lease)
            .fact("Holder", or_none(&leader.holder_identity))
            .fact("Address", or_none(&leader.admin_address))
            .fact("Acquired", ago(leader.acquire_time.as_ref(), now))
            .fact("Renewed", ago(leader.renew_time.as_ref(), now))
            .fact("Lease duration", duration_or_none(leader.lease_duration.as_ref()))
            .fact("Transitions", leader.transitions.to_string());
    }
    let policy = match leader.lease_policy() {
        LeasePolicy::Unspecified => "",
        LeasePolicy::InForce => "installed",
        LeasePolicy::Missing => {
            "not installed; any account that can write Leases in kube-system can disable controllers"
        }
        LeasePolicy::Different => "differs from this version's policy; apply deploy/kustomize/base",
    };
    if !policy.is_empty() {
        sheet.fact("Lease policy", policy);
    }
    sheet.fact("Answered by", or_none(&leader.replica_identity));
    sheet.fact_if("Overrides", overrides(answer.overrides.as_ref(), now));
    if !answer.replicas.is_empty() {
        let rows = answer.replicas.iter().map(|replica| {
            vec![
                clean(&replica.identity),
                if replica.leading { "leader" } else { "standby" }.to_owned(),
                yes(replica.live).to_owned(),
                or_none(&replica.admin_address),
                or_none(&replica.version),
                age(replica.start_time.as_ref(), now),
                age(replica.renew_time.as_ref(), now),
            ]
        });
        let headings = ["IDENTITY", "ROLE", "LIVE", "ADDRESS", "VERSION", "AGE", "RENEWED"];
        sheet.block("Replicas", &table(&headings, rows));
    }
    sheet.text()
}
