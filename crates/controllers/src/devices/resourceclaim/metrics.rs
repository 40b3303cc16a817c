//! What the controller counts of its work, under the original's names. Decides nothing.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

use super::ENTRY;
use coxswain_machinery::api::kinds::RESOURCE_CLAIMS;
use coxswain_machinery::api::resource::ResourceClaim;
use coxswain_machinery::executor::{ActionResult, ActionVerb};
use coxswain_machinery::framework::{KeyMap, Meter, ReconcileEnd, RoomMetrics};
use coxswain_machinery::informer::Delta;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Str;

/// Annotation of a claim that the scheduler made for extended resources of a pod (KEP-5004).
const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

/// What a plan tells beside its steps: of each claim that it makes, whether that asks for access as an administrator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) is_admin: Vec<bool>,
}

/// The metrics, and the claims that are being made.
#[derive(Debug)]
pub(super) struct Metrics {
    creates: IntCounterVec,
    claims: IntGaugeVec,
    under_way: Mutex<HashMap<Key, Vec<bool>>>,
}

impl Metrics {
    /// The metrics, registered. The claims that an earlier instance has counted are forgotten.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        let name = "resourceclaim_controller_resource_claims";
        let help = "Number of ResourceClaims, by allocation, by admin access and by source.";
        let labels = ["allocated", "admin_access", "source"];
        let claims = metrics.own(name, || IntGaugeVec::new(Opts::new(name, help), &labels))?;
        claims.reset();
        Ok(Self {
            creates: metrics.counters(
                "resourceclaim_controller_creates_total",
                "Attempts to create ResourceClaims, by status and by admin access.",
                &["status", "admin_access"],
            )?,
            claims,
            under_way: Mutex::default(),
        })
    }

    fn count(&self, claim: &ResourceClaim, by: i64) {
        let labels = labels(claim);
        let gauge = self.claims.with_label_values(&labels);
        gauge.add(by);
        if gauge.get() == 0 {
            // What cannot be removed is not there.
            let _ = self.claims.remove_label_values(&labels);
        }
    }
}

impl Meter<Note> for Arc<Metrics> {
    fn planned(&self, key: &Key, note: &Note) {
        if !note.is_admin.is_empty() {
            self.under_way.lock().entry(key.clone()).or_default().extend(&note.is_admin);
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        let Some(is_admin) = self.under_way.lock().remove(key) else { return };
        let creates = ended
            .actions
            .iter()
            .filter(|action| action.verb == ActionVerb::Create && action.kind == &RESOURCE_CLAIMS);
        for (create, is_admin) in creates.zip(is_admin) {
            let status = match create.result {
                ActionResult::Done => "success",
                ActionResult::Failed(_) | ActionResult::Unknown => "failure",
                ActionResult::Planned | ActionResult::Unneeded => continue,
            };
            self.creates.with_label_values(&[status, text(is_admin)]).inc();
        }
    }
}

/// Counts the claims that there are. Wakes nobody.
pub(super) fn count_claims(metrics: Arc<Metrics>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, _: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<ResourceClaim>();
        if delta.resync || old.zip(new).is_some_and(|(old, new)| labels(old) == labels(new)) {
            return;
        }
        if let Some(new) = new {
            metrics.count(new, 1);
        }
        if let Some(old) = old {
            metrics.count(old, -1);
        }
    })
}

fn labels(claim: &ResourceClaim) -> [&'static str; 3] {
    let annotation = |name: &str| claim.metadata.annotations.get(name).map(Str::as_str);
    let source = if annotation(EXTENDED) == Some("true") {
        "extended_resource"
    } else if annotation(ENTRY).is_some_and(|entry| !entry.is_empty()) {
        "resource_claim_template"
    } else {
        ""
    };
    let exact = claim.spec.devices.requests.iter().filter_map(|request| request.exactly.as_deref());
    let is_admin = exact.into_iter().any(|request| request.admin_access == Some(true));
    [text(claim.status.allocation.is_some()), text(is_admin), source]
}

fn text(is_so: bool) -> &'static str {
    if is_so { "true" } else { "false" }
}
