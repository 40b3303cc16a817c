//! The admission policy that reserves the manager's Leases for it (`deploy/kustomize/base/policy.yaml`). Without the policy, whoever may
//! write Leases in `kube-system` can disable controllers and announce addresses to clients.
//!
//! The leader reads the policy and its binding when it begins to lead, and once an hour from then on: two small lists, which
//! every role of the manager allows. Nothing waits for the answer, and nothing is written to the cluster.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use prometheus::IntGaugeVec;
use serde_json::{Map, Value};
use tokio::time::sleep;

use crate::admin::manager::LeasePolicyState;
use coxswain_machinery::client::{ApiClient, ApiError, FieldSelector, Query, RequestPath};
use coxswain_machinery::election::Leadership;
use coxswain_machinery::latest;
use coxswain_machinery::serve::{HealthCheck, HealthRegistry, Remark};
use coxswain_machinery::telemetry::{MetricsError, Registrar, Registry};

/// The name of the policy and of its binding.
const NAME: &str = "coxswain-leases";
/// The manifest of this version.
const MANIFEST: &str = include_str!("../../deploy/kustomize/base/policy.yaml");
const GROUP: &str = "admissionregistration.k8s.io";
/// The time between two reads.
const PERIOD: Duration = Duration::from_hours(1);
/// The time from a read that failed to the next one.
const RETRY: Duration = Duration::from_mins(5);
/// The longest answer in bytes.
const LONGEST: usize = 1 << 20;
const CHECK: &str = "leasePolicy";
/// The remark while the policy cannot be read.
const FORBIDDEN: &str =
    "read the admission policy coxswain-leases: forbidden; apply the manager's ClusterRole of this version";

/// Holds the state of the policy as it was last read.
pub(super) struct LeasePolicy {
    state: latest::Sender<LeasePolicyState>,
    in_force: IntGaugeVec,
}

impl LeasePolicy {
    /// Registers the metric.
    pub(super) fn register(metrics: &Registry) -> Result<Self, MetricsError> {
        let in_force = Registrar::new(metrics).int_gauges(
            "coxswain_lease_policy_in_force",
            "Admission policy that protects the manager's Leases, as last read by the leader: 1 installed, 0 missing or different.",
            &[],
        )?;
        Ok(Self { state: latest::Sender::default(), in_force })
    }

    /// Returns what is known; [`LeasePolicyState::Unknown`] on a standby.
    pub(super) fn state(&self) -> LeasePolicyState {
        *self.state.borrow()
    }

    /// Reads the policy while this replica leads, and calls `changed` after each change. Without an election it always leads.
    pub(super) async fn follow(
        &self,
        mut leadership: Option<latest::Receiver<Leadership>>,
        client: &ApiClient,
        health: &HealthRegistry,
        changed: impl Fn(),
    ) -> Infallible {
        let mut ends = leadership.clone();
        loop {
            leads(leadership.as_mut(), true).await;
            tokio::select! {
                biased;
                () = leads(ends.as_mut(), false) => {}
                never = self.keep_reading(client, health, &changed) => match never {},
            }
            if self.set(LeasePolicyState::Unknown, health) {
                changed();
            }
            health.remove(CHECK);
        }
    }

    async fn keep_reading(
        &self,
        client: &ApiClient,
        health: &HealthRegistry,
        changed: &impl Fn(),
    ) -> Infallible {
        let mut is_forbidden = false;
        loop {
            let pause = match read(client).await {
                Ok(state) => {
                    is_forbidden = false;
                    if self.set(state, health) {
                        changed();
                    }
                    PERIOD
                }
                // Only an administrator can change that.
                Err(error) if error.code() == 403 => {
                    if !std::mem::replace(&mut is_forbidden, true) {
                        tracing::warn!(%error, policy = NAME, "Reading the Lease admission policy is forbidden");
                        if self.set(LeasePolicyState::Unknown, health) {
                            changed();
                        }
                        health.remove(CHECK);
                        health.add(Arc::new(PolicyCheck(FORBIDDEN)));
                    }
                    RETRY
                }
                Err(error) => {
                    tracing::debug!(%error, policy = NAME, "Failed to read the Lease admission policy; retrying");
                    RETRY
                }
            };
            sleep(pause).await;
        }
    }

    /// Takes note of a state and reports it. Returns whether it is new.
    fn set(&self, state: LeasePolicyState, health: &HealthRegistry) -> bool {
        let before = self.state.send_replace(state);
        if before == state {
            return false;
        }
        health.remove(CHECK);
        match state {
            LeasePolicyState::Unknown => self.in_force.reset(),
            LeasePolicyState::InForce => {
                self.in_force.with_label_values::<&str>(&[]).set(1);
                tracing::info!(policy = NAME, "The Lease admission policy is installed");
            }
            LeasePolicyState::Missing | LeasePolicyState::Different => {
                self.in_force.with_label_values::<&str>(&[]).set(0);
                let finding = remark(state);
                health.add(Arc::new(PolicyCheck(finding)));
                tracing::warn!(
                    policy = NAME,
                    finding,
                    "The Lease admission policy is missing or different, so accounts that can write Leases in kube-system can \
                     disable controllers; apply deploy/kustomize/base"
                );
            }
        }
        true
    }
}

/// Waits until this replica leads, or no longer does.
async fn leads(leadership: Option<&mut latest::Receiver<Leadership>>, wanted: bool) {
    let is_known = match leadership {
        Some(leadership) => leadership.wait_for(|held| held.leading == wanted).await.is_ok(),
        None => wanted,
    };
    if !is_known {
        // The election is over, or there is none.
        std::future::pending::<()>().await;
    }
}

fn remark(state: LeasePolicyState) -> &'static str {
    match state {
        LeasePolicyState::Different => {
            "the admission policy coxswain-leases differs from this version's; apply deploy/kustomize/base"
        }
        _ => "the admission policy coxswain-leases is missing; apply deploy/kustomize/base",
    }
}

/// Reads policy and binding.
async fn read(client: &ApiClient) -> Result<LeasePolicyState, ApiError> {
    let policy = first(client, "validatingadmissionpolicies").await?;
    let binding = first(client, "validatingadmissionpolicybindings").await?;
    Ok(judge(policy.as_ref(), binding.as_ref()))
}

/// The object of the policy's name among those of a resource.
async fn first(client: &ApiClient, resource: &'static str) -> Result<Option<Value>, ApiError> {
    let selector = FieldSelector::name(NAME);
    let query = Query::default().with("fieldSelector", selector.as_str());
    let path = RequestPath::group_version(GROUP, "v1").resource(resource);
    let uri = path.uri(&query).map_err(|error| ApiError::Malformed {
        request: format!("GET {resource}"),
        what: error.to_string(),
    })?;
    match client.json_of(&uri, LONGEST).await {
        Ok(mut list) => Ok(list.pointer_mut("/items/0").map(Value::take)),
        // An API server that does not serve policies has none in force.
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Compares the policy and its binding with the manifest.
fn judge(policy: Option<&Value>, binding: Option<&Value>) -> LeasePolicyState {
    let (Some(policy), Some(binding)) = (policy, binding) else { return LeasePolicyState::Missing };
    let matches = |kind: &str, stored: &Value| {
        let shipped = documents().find(|document| document["kind"] == kind);
        shipped.is_some_and(|shipped| is_as_shipped(&shipped["spec"], stored))
    };
    // A binding that denies and does more is as strong.
    let mut binding = binding["spec"].clone();
    if let Some(actions) = binding.get_mut("validationActions")
        && actions.as_array().is_some_and(|actions| actions.iter().any(|action| action == "Deny"))
    {
        *actions = Value::Array(vec!["Deny".into()]);
    }
    if matches("ValidatingAdmissionPolicy", &policy["spec"])
        && matches("ValidatingAdmissionPolicyBinding", &binding)
    {
        LeasePolicyState::InForce
    } else {
        LeasePolicyState::Different
    }
}

/// The objects of the manifest.
fn documents() -> impl Iterator<Item = Value> {
    use serde::Deserialize as _;

    let documents = serde_yaml_ng::Deserializer::from_str(MANIFEST);
    documents.filter_map(|document| Value::deserialize(document).ok())
}

/// Whether a stored value is the shipped one but for defaults of the API server. Anything else may make the policy weaker.
fn is_as_shipped(shipped: &Value, stored: &Value) -> bool {
    match (shipped, stored) {
        (Value::Object(shipped), Value::Object(stored)) => {
            let has_all = shipped
                .iter()
                .all(|(name, value)| stored.get(name).is_some_and(|stored| is_as_shipped(value, stored)));
            let is_default = |(name, value): (&String, &Value)| match name.as_str() {
                "matchPolicy" => value == "Equivalent",
                "scope" => value == "*",
                "objectSelector" => *value == Value::Object(Map::new()),
                _ => false,
            };
            has_all && stored.iter().filter(|(name, _)| !shipped.contains_key(*name)).all(is_default)
        }
        (Value::Array(shipped), Value::Array(stored)) => {
            shipped.len() == stored.len()
                && shipped.iter().zip(stored).all(|(shipped, stored)| is_as_shipped(shipped, stored))
        }
        _ => shipped == stored,
    }
}

/// A check that passes and has a remark.
struct PolicyCheck(&'static str);

impl HealthCheck for PolicyCheck {
    fn name(&self) -> &'static str {
        CHECK
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn remark(&self) -> Option<Remark> {
        Some(Remark::of(self.0))
    }
}

#[cfg(test)]
mod tests;
