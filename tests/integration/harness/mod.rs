//! What the integration tests stand on: real control planes, managers in front of them, and waiting.
//!
//! A control plane is the launcher in `tests/controlplane`, built once and cached outside of the checkout. It lives as long
//! as the test binary: its standard input is ours, and it ends with it. Everything listens on loopback, on free ports.

mod activity;
mod admission;
mod audit;
mod controllers;
mod controlplane;
mod crowd;
mod heartbeats;
mod identities;
mod kubernetes;
mod lease;
mod metrics_api;
mod port;
mod process;
mod proxy;
mod relay;
mod rig;
mod timing;
mod tls;
mod wait;

pub(crate) use activity::Activity;
pub(crate) use admission::webhook;
pub(crate) use audit::{AuditEvent, AuditTail, Program};
pub(crate) use controllers::{all_built, built, is_gated};
pub(crate) use controlplane::{ControlPlane, KeyPair, Manager, Options, Report, binaries, kubectl_as};
pub(crate) use crowd::Crowd;
pub(crate) use heartbeats::Heartbeats;
pub(crate) use identities::{Answer, Identity, key_case};
pub(crate) use kubernetes::{Cluster, Namespace, create, object};
pub(crate) use lease::{Held, LeaseHistory};
pub(crate) use metrics_api::{Instead, MetricsApi, Numbers, register_apis};
pub(crate) use port::{Caller, Page, Port};
pub(crate) use process::{Status, cpu_seconds};
pub(crate) use proxy::{Fate, Proxy, Tamper};
pub(crate) use relay::Relay;
pub(crate) use rig::{event_logger, faulty_clients, runtime, runtime_on};
pub(crate) use tls::TlsServer;
pub(crate) use wait::{by_depth, eventually, turn, turn_beside_another, until};
