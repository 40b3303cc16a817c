//! Which replicas there are, by the Leases that they keep, and which of them to call.
//!
//! A replica's Lease has the label [`SELECTOR`], its identity as the holder, and its address, its certificate
//! authority and its version in annotations. Whether it is alive is told by this machine's clock, which may be wrong:
//! replicas that seem dead are passed over only while another one seems alive.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use serde::Deserialize;

use super::output::human;
use coxswain_machinery::api::kinds::LEASES;
use coxswain_machinery::client::{ApiClient, ApiError, Query, RequestIntent, RequestPath};

/// Namespace of the replicas' Leases, whatever the leader's is called.
const NAMESPACE: &str = "kube-system";
/// Selects the replicas' Leases.
pub(super) const SELECTOR: &str = "coxswain.dev/component=replica";
/// Annotation: host and port of the admin API.
const ADDRESS: &str = "coxswain.dev/admin-address";
/// Annotation: the authority (PEM) to trust there, if it is one of the replica's own.
const AUTHORITY: &str = "coxswain.dev/admin-ca";

/// Annotation: the Lease by which the replica leads, as `NAMESPACE/NAME`, and the replica's identity.
const LEASE: &str = "coxswain.dev/lease";

/// The Lease by which the leader leads. Beside another manager, Coxswain is told to fight for one of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MainLease {
    /// `--leader-elect-resource-namespace`
    pub(super) namespace: String,
    /// `--leader-elect-resource-name`
    pub(super) name: String,
}

impl Default for MainLease {
    fn default() -> Self {
        Self { namespace: "kube-system".to_owned(), name: "kube-controller-manager".to_owned() }
    }
}

impl MainLease {
    /// The Lease of another group of replicas by which this one leads; `None` if it may lead by this one. A replica of an older
    /// version announces none: it may lead by the Lease that it holds, and else by the default one.
    fn other_of(&self, announced: Option<&str>, identity: &str, holder: Option<&str>) -> Option<String> {
        let own = format!("{}/{}", self.namespace, self.name);
        // An annotation with another identity is left over from a predecessor.
        let announced = announced.and_then(|value| value.split_once(' ')).filter(|(_, of)| *of == identity);
        let lease = match announced {
            Some((lease, _)) => lease.to_owned(),
            None if holder == Some(identity) => return None,
            None => {
                let Self { namespace, name } = Self::default();
                format!("{namespace}/{name}")
            }
        };
        (lease != own).then_some(lease)
    }
}

/// A replica that may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its identity in the leader election.
    pub(super) identity: String,
    /// Host and port.
    pub(super) address: String,
    /// The authority (PEM) that it has announced.
    pub(super) authority: Option<String>,
    /// Whether it leads.
    pub(super) leads: bool,
}

/// What the Leases say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Replicas {
    /// Whom to call, in this order: the leader, then the others by identity.
    pub(super) candidates: Vec<Candidate>,
    /// Who is not called, and why.
    pub(super) passed_over: Vec<String>,
    /// Who holds the main Lease; `None` if nobody does.
    pub(super) holder: Option<String>,
}

/// How to reach a replica that listens on its own machine only.
pub(super) const FROM_THERE: &str = "use --via-pod, run this command on that machine, or set --admin-port=10258 --admin-bind-address=0.0.0.0 on the manager";

/// The name of a replica's machine, with which its identity begins.
pub(super) fn machine_of(identity: &str) -> &str {
    identity.rsplit_once('_').map_or(identity, |(machine, _)| machine)
}

/// Whether an address is the loopback of another machine than `host`. An identity begins with the name of its machine.
pub(super) fn is_elsewhere(identity: &str, address: &str, host: &str) -> bool {
    let ip = address.rsplit_once(':').map_or(address, |(ip, _)| ip).trim_matches(['[', ']']);
    let is_loopback = ip.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    is_loopback && identity.rsplit_once('_').is_some_and(|(machine, _)| machine != host)
}

impl Replicas {
    /// Passes over replicas that listen on another machine's loopback address: at that address of this machine is another replica.
    pub(super) fn pass_over_elsewhere(&mut self, host: &str) {
        let elsewhere =
            self.candidates.extract_if(.., |each| is_elsewhere(&each.identity, &each.address, host));
        let lines = elsewhere.map(|each| {
            format!("{} listens only on {} of its own machine; {FROM_THERE}", each.identity, each.address)
        });
        self.passed_over.extend(lines.collect::<Vec<_>>());
        self.passed_over.sort();
    }
}

#[derive(Deserialize)]
struct LeaseList {
    items: Vec<Lease>,
}

/// Reads the Leases.
pub(super) async fn discover(
    api: &ApiClient,
    main: &MainLease,
    now: Timestamp,
) -> Result<Replicas, ApiError> {
    let query = Query::default().with("labelSelector", SELECTOR);
    let path = RequestPath::collection(&LEASES, NAMESPACE);
    let list: LeaseList = api.json(RequestIntent::List, path, &query, None::<&()>).await?;
    let path = RequestPath::object(&LEASES, &main.namespace, &main.name);
    let held: Result<Lease, ApiError> = api.json(RequestIntent::Get, path, Query::NONE, None::<&()>).await;
    // Without it, those who answer know who leads.
    let held = match held {
        Ok(held) => Some(held),
        Err(error) if matches!(error.code(), 403 | 404) => None,
        Err(error) => return Err(error),
    };
    let holder = held.as_ref().and_then(holder).map(str::to_owned);
    Ok(choose(&list.items, main, holder, now))
}

/// Returns the identity of the holder; `None` if nobody holds the Lease.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// For how long a replica has been silent beyond what it may; `None` if it has not.
fn silence(lease: &Lease, now: Timestamp) -> Option<Duration> {
    let spec = lease.spec.as_ref();
    let Some(renewed) = spec.and_then(|spec| spec.renew_time.as_ref()) else { return Some(Duration::MAX) };
    let granted = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
    let granted = Duration::from_secs(u64::try_from(granted).unwrap_or(0));
    let silent = human::between(renewed.0, now);
    (silent > granted).then_some(silent)
}

/// Returns whether the replica with this Lease and this identity leads by `main`.
pub(super) fn is_of_group(lease: &Lease, identity: &str, main: &MainLease) -> bool {
    let announced = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(LEASE));
    main.other_of(announced.map(String::as_str), identity, None).is_none()
}

/// Decides whom to call.
pub(super) fn choose(
    leases: &[Lease],
    main: &MainLease,
    holder_identity: Option<String>,
    now: Timestamp,
) -> Replicas {
    let mut replicas = Replicas { holder: holder_identity, ..Replicas::default() };
    let mut silent: Vec<(Duration, Candidate)> = Vec::new();
    for lease in leases {
        // A Lease without a holder was given up: its replica has ended.
        let Some(identity) = holder(lease) else { continue };
        let annotation = |key: &str| {
            let value = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
            value.filter(|value| !value.is_empty()).cloned()
        };
        if let Some(other) = main.other_of(annotation(LEASE).as_deref(), identity, replicas.holder.as_deref())
        {
            replicas.passed_over.push(format!("{identity} uses another leader-election Lease, {other}"));
            continue;
        }
        let Some(address) = annotation(ADDRESS) else {
            replicas.passed_over.push(format!("{identity} does not serve the admin API"));
            continue;
        };
        let candidate = Candidate {
            identity: identity.to_owned(),
            address,
            authority: annotation(AUTHORITY),
            leads: replicas.holder.as_deref() == Some(identity),
        };
        match silence(lease, now) {
            None => replicas.candidates.push(candidate),
            Some(silence) => silent.push((silence, candidate)),
        }
    }
    replicas.candidates.sort_by(|a, b| (!a.leads, &a.identity).cmp(&(!b.leads, &b.identity)));
    silent.sort_by(|(silence_a, a), (silence_b, b)| (silence_a, &a.identity).cmp(&(silence_b, &b.identity)));
    for (silence, candidate) in &silent {
        let since = if *silence == Duration::MAX {
            "has never renewed its Lease".to_owned()
        } else {
            format!("has not renewed its Lease for {}", human::duration(*silence))
        };
        replicas.passed_over.push(format!("{} {since}", candidate.identity));
    }
    if replicas.candidates.is_empty() {
        replicas.candidates = silent.into_iter().map(|(_, candidate)| candidate).collect();
    }
    replicas.passed_over.sort();
    replicas
}
