//! Services as a cloud's load balancers see them: all that such a controller compares, and the whole object, which it hands
//! on. A row of its own, so that all others pay nothing for it; watched only while that controller runs.

use super::core::ServicePort;
use super::kind::{ApiVersion, kinds, objects};
use super::meta::ObjectMeta;
use crate::wire::{Str, message};

kinds! {
    /// Services, whole.
    CLOUD_SERVICES = ApiVersion::CORE.namespaced::<CloudService>("Service", "services");
}

objects! {
    CloudService + raw;
}

message! {
    schema SCHEMA;

    /// A service. All annotations are kept: clouds have settings there.
    pub struct CloudService + raw = "k8s.io.api.core.v1.Service" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: CloudServiceSpec,
        /// Observed state.
        3 => status: CloudServiceStatus,
    }

    /// What a load balancer hangs on.
    pub struct CloudServiceSpec = "k8s.io.api.core.v1.ServiceSpec" {
        /// Ports.
        1 => ports: Vec<ServicePort>,
        /// `LoadBalancer`, or another type that wants none.
        4 => r#type: Str [interned],
        /// Addresses that somebody else leads to the nodes.
        5 => external_ips: Vec<Str>,
        /// `ClientIP` or `None`.
        7 => session_affinity: Str [interned],
        /// The address that the load balancer should have.
        8 => load_balancer_ip: Str,
        /// From where the load balancer takes connections.
        9 => load_balancer_source_ranges: Vec<Str>,
        /// `Cluster` or `Local`.
        11 => external_traffic_policy: Str [interned],
        /// The nodes' port that says whether they have endpoints, or 0.
        12 => health_check_node_port: i32,
        /// More about the session affinity.
        14 => session_affinity_config: SessionAffinityConfig,
        /// `IPv4`, `IPv6` or both.
        19 => ip_families: Vec<Str> [interned],
        /// Whose load balancer it is to be, if not the cloud's.
        21 => load_balancer_class: Option<Str> [interned],
    }

    /// More about a session affinity.
    pub struct SessionAffinityConfig = "k8s.io.api.core.v1.SessionAffinityConfig" {
        /// Of `ClientIP`.
        1 => client_ip: ClientIpConfig,
    }

    /// How long a client comes back to the same endpoint.
    pub struct ClientIpConfig = "k8s.io.api.core.v1.ClientIPConfig" {
        /// Seconds.
        1 => timeout_seconds: Option<i32>,
    }

    /// What was made of a service.
    pub struct CloudServiceStatus = "k8s.io.api.core.v1.ServiceStatus" {
        /// The load balancer.
        1 => load_balancer: LoadBalancerStatus,
    }

    /// A load balancer.
    pub struct LoadBalancerStatus = "k8s.io.api.core.v1.LoadBalancerStatus" {
        /// Where it takes connections.
        1 => ingress: Vec<LoadBalancerIngress>,
    }

    /// A place where a load balancer takes connections.
    pub struct LoadBalancerIngress = "k8s.io.api.core.v1.LoadBalancerIngress" {
        /// Address.
        1 => ip: Str,
        /// Name.
        2 => hostname: Str,
        /// `VIP` or `Proxy`.
        3 => ip_mode: Option<Str> [interned],
        /// What became of its ports.
        4 => ports: Vec<PortStatus>,
    }

    /// A port of a load balancer.
    pub struct PortStatus = "k8s.io.api.core.v1.PortStatus" {
        /// Number.
        1 => port: i32,
        /// `TCP`, `UDP` or `SCTP`.
        2 => protocol: Str [interned],
        /// Why it is not there, for machines.
        3 => error: Option<Str>,
    }
}
