//! What the rooms that say where Services are served have in common: which Services a change concerns, and what a
//! Service and a pod have to say about an endpoint. Decides nothing and writes nothing.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use coxswain_machinery::api::core::{Service, ServicePort};
use coxswain_machinery::api::discovery::EndpointSlice;
use coxswain_machinery::api::endpoints::{EncodedSubset, Endpoints};
use coxswain_machinery::api::indexes::SERVICE_NAME;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{KeyMap, ObserveError, Selecting, wake};
use coxswain_machinery::informer::Delta;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::addresses::parse_address;
use coxswain_machinery::model::plan::Cooldown;
use coxswain_machinery::model::slices::HeldSlice;
use coxswain_machinery::wire::{IntOrString, Str, Time};

/// Label of what belongs to a headless Service.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
/// Annotation: when what a write tells of has happened, for measuring how long it took to be known.
pub(super) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Label of Endpoints: who manages them.
pub(super) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// Label of a slice: who manages it.
pub(super) const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Annotation of Endpoints in which leader election keeps its record.
pub(super) const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// The debounce of a slice's change, at least, as in the original. Most such changes are our own writes; a Service whose
/// endpoints change all the time is thereby written once in a while and not after every answer.
pub(super) const SLICES_DEBOUNCE: Duration = Duration::from_secs(1);

/// The first backoff of slices that could not be written, as in the original.
pub(super) const SLICES_BACKOFF: Duration = Duration::from_secs(1);

/// The cooldown of a Service whose endpoints were written, for each of them. A look at it takes time in proportion to their
/// number, as does what every node does with each write. So a large one is looked at less often: every 18 milliseconds with
/// a thousand endpoints, without a delay to speak of with ten. What changes after a quiet while waits for nothing. The
/// original takes longer from look to look while it is busy with such a Service.
/// Differs: write-cooldown.
const COOLDOWN_PER_ENDPOINT: Duration = Duration::from_micros(18);
/// The cooldown is at least so many times as long as the writing took: of a server that is busy less is asked.
const TIMES_WORK: u32 = 2;
/// The longest cooldown for the number of endpoints.
const LONGEST_COOLDOWN: Duration = Duration::from_millis(500);

/// The cooldown of a Service with so many endpoints, after they were written.
pub(super) fn cooldown(endpoints: usize) -> Cooldown {
    let endpoints = u32::try_from(endpoints).unwrap_or(u32::MAX);
    let at_least = COOLDOWN_PER_ENDPOINT.saturating_mul(endpoints).min(LONGEST_COOLDOWN);
    Cooldown { at_least, times_work: TIMES_WORK }
}

/// The address families, as Services and EndpointSlices name them.
pub(super) const IPV4: &str = "IPv4";
pub(super) const IPV6: &str = "IPv6";

/// `spec.clusterIP` of a Service that asks for no address.
const NO_ADDRESS: &str = "None";
/// `spec.type` of a Service that is another name of something elsewhere.
const EXTERNAL_NAME: &str = "ExternalName";

/// A change of a pod concerns the Services that select it, if they would show it, or that did.
pub(super) fn of_pods(services: Selecting<Service>) -> KeyMap {
    wake::selecting(services, looks_alike)
}

/// Whether no endpoint would show the change of a pod.
fn looks_alike(old: &Pod, new: &Pod) -> bool {
    let shown = |pod: &Pod| (pod.is_ready(), ready_since(pod), pod.is_finished(), pod.metadata.is_deleting());
    shown(old) == shown(new)
        && old.status.pod_ips == new.status.pod_ips
        && old.spec.node_name == new.spec.node_name
        && (&old.spec.hostname, &old.spec.subdomain) == (&new.spec.hostname, &new.spec.subdomain)
}

/// Whether the Service's endpoints are the pods that it selects.
pub(super) fn is_served_by_pods(service: &Service) -> bool {
    !service.spec.selector.is_empty() && service.spec.r#type != EXTERNAL_NAME
}

/// Whether this manager is the one that the slice names.
pub(super) fn is_managed_by(slice: &EndpointSlice, manager: &str) -> bool {
    slice.metadata.labels.get(SLICE_MANAGED_BY).is_some_and(|held| *held == manager)
}

/// A slice with its endpoints.
pub(super) fn read_slice(slice: Arc<EndpointSlice>) -> Result<HeldSlice, ObserveError> {
    let key = Key::of(&slice.metadata);
    HeldSlice::read(slice).map_err(|error| ObserveError::Terminal(format!("EndpointSlice {key}: {error}")))
}

/// Endpoints with their subsets.
#[derive(Clone, Debug)]
pub(super) struct HeldEndpoints {
    pub(super) endpoints: Arc<Endpoints>,
    pub(super) subsets: Vec<EncodedSubset>,
}

/// Endpoints with their subsets.
pub(super) fn read_endpoints(endpoints: Arc<Endpoints>) -> Result<HeldEndpoints, ObserveError> {
    let subsets = endpoints.subsets().map_err(|error| {
        ObserveError::Terminal(format!("Endpoints {}: {error}", Key::of(&endpoints.metadata)))
    })?;
    Ok(HeldEndpoints { endpoints, subsets })
}

/// A change of a slice that `is_ours` accepts concerns the object of the Service that it names, or named. What is there at
/// the start is told only if `initially` is set.
pub(super) fn of_slices(is_ours: fn(&EndpointSlice) -> bool, initially: bool) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        if delta.resync || (delta.initial && !initially) {
            return;
        }
        let (old, new) = delta.typed::<EndpointSlice>();
        let service = |slice: &EndpointSlice| {
            let name = slice.metadata.labels.get(SERVICE_NAME).filter(|_| is_ours(slice))?;
            Some(Key::new(slice.metadata.namespace.clone(), name.clone()))
        };
        let (before, now) = (old.and_then(service), new.and_then(service));
        if before != now {
            before.into_iter().for_each(&mut *emit);
        }
        now.into_iter().for_each(emit);
    })
}

/// Whether the Service has no address of its own, so that DNS answers with its endpoints'.
pub(super) fn is_headless(service: &Service) -> bool {
    let address = &service.spec.cluster_ip;
    address.is_empty() || *address == NO_ADDRESS
}

/// The family of an address.
pub(super) fn family_of(address: &str) -> &'static str {
    if address.contains(':') { IPV6 } else { IPV4 }
}

/// An address in its canonical form, in which slices and Endpoints have it, and its family; `None` for what is no address.
pub(super) fn canonical(address: &Str) -> Option<(&'static str, Cow<'_, Str>)> {
    let ip = parse_address(address)?;
    let family = if ip.is_ipv4() { IPV4 } else { IPV6 };
    let mut rest = Unread(address);
    let is_canonical = write!(rest, "{ip}").is_ok() && rest.0.is_empty();
    let form = if is_canonical { Cow::Borrowed(address) } else { Cow::Owned(ip.to_string().into()) };
    Some((family, form))
}

/// A text that is written once more: it fails at the first difference.
struct Unread<'a>(&'a str);

impl fmt::Write for Unread<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(text).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// When the pod's readiness changed last.
pub(super) fn ready_since(pod: &Pod) -> Option<Time> {
    pod.condition("Ready").and_then(|ready| ready.last_transition_time)
}

/// The name that the pod has within the Service. Only the Service that a pod names as its subdomain lends it one.
pub(super) fn hostname<'a>(service: &Service, pod: &'a Pod) -> Option<&'a Str> {
    let hostname = &pod.spec.hostname;
    (!hostname.is_empty() && pod.spec.subdomain == service.metadata.name).then_some(hostname)
}

/// Returns what a port of a Service comes to in all pods; `None` for a named one.
pub(super) fn fixed_number(port: &ServicePort) -> Option<i32> {
    match &port.target_port {
        // The server fills the port's own number in; where it did not, that is what is meant.
        None => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::Str(_)) => None,
    }
}

/// What a port of a Service comes to in this pod; `None` for a named one that it does not have.
pub(super) fn port_number(port: &ServicePort, pod: &Pod) -> Option<i32> {
    let Some(IntOrString::Str(name)) = &port.target_port else { return fixed_number(port) };
    let mut named = pod.shape.named_ports.iter();
    named.find(|held| held.name == *name && held.protocol == port.protocol).map(|held| held.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_form() {
        for (address, expected) in [
            ("10.1.0.1", Some((IPV4, "10.1.0.1"))),
            ("010.1.0.001", Some((IPV4, "10.1.0.1"))),
            ("::ffff:10.0.0.1", Some((IPV4, "10.0.0.1"))),
            ("::FFFF:10.0.0.010", Some((IPV4, "10.0.0.10"))),
            ("fd00::5", Some((IPV6, "fd00::5"))),
            ("FD00::5", Some((IPV6, "fd00::5"))),
            ("fd00:0::0:5", Some((IPV6, "fd00::5"))),
            ("fd00::10.0.0.1", Some((IPV6, "fd00::a00:1"))),
            ("", None),
            ("10.1.0", None),
            ("10.1.0.256", None),
            ("10.1.0.+1", None),
            ("fd00::x", None),
        ] {
            let text = Str::from(address);
            let found = canonical(&text);
            assert_eq!(found.as_ref().map(|(family, form)| (*family, form.as_str())), expected, "{address}");
            let is_borrowed = matches!(found, Some((_, Cow::Borrowed(_))));
            assert_eq!(is_borrowed, expected.is_some_and(|(_, form)| form == address), "{address}");
        }
    }
}
