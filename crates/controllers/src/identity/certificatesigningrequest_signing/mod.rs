//! certificatesigningrequest-signing-controller: signs approved requests for the built-in signers, with the authorities of
//! `--cluster-signing-*`.
//!
//! Keys are requests; one loop serves all signers. The plan holds who signs, when and for how long, and the authority of the
//! signer puts the certificate in just before the request is written: a key is no part of a plan, and the authority is that of
//! the moment. What breaks a signer's rules gets the condition `Failed`; what an authority cannot sign is tried again. It
//! approves nothing, and never changes a certificate that is there.

pub mod authority;
mod certificate;
mod plan;
#[cfg(test)]
mod serving_tests;
#[cfg(test)]
mod tests;
mod usages;
mod validity;
mod view;

use std::sync::Arc;
use std::time::Duration;

use super::signers::Signer;
use coxswain_machinery::api::certificates::CertificateSigningRequest;
use coxswain_machinery::api::kinds::CERTIFICATE_SIGNING_REQUESTS;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, Loop, LoopSettings, QueueConfig, RoomAdapter,
    wake,
};
use view::Signing;

/// Requests of one signer that are looked at together.
const WORKERS: usize = 5;
/// The first backoff of a request.
const BACKOFF: Duration = Duration::from_millis(200);

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "certificatesigningrequest-signing-controller",
    aliases: &["csrsigning"],
    description: "Signs approved certificate requests for the built-in signers.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("certificate-controller"),
    event_source: None,
    writes: &[Grant {
        group: "certificates.k8s.io",
        resource: "certificatesigningrequests/status",
        verbs: &["update"],
    }],
    build: Some(build),
};

/// The finisher that signs for a signer and puts the certificate into the request.
pub fn finisher(signer: Signer) -> &'static str {
    match signer {
        Signer::KubeletServing => "certificate of kubelet-serving",
        Signer::KubeletClient => "certificate of kube-apiserver-client-kubelet",
        Signer::ApiServerClient => "certificate of kube-apiserver-client",
        Signer::LegacyUnknown => "certificate of legacy-unknown",
    }
}

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let signers: Vec<Signer> =
        Signer::ALL.into_iter().filter(|signer| build.finishers.knows(finisher(*signer))).collect();
    if signers.is_empty() {
        return Err(BuildError::Skipped(
            "no signing CA: set --cluster-signing-cert-file and --cluster-signing-key-file".to_owned(),
        ));
    }
    let requests = build.watch::<CertificateSigningRequest>(&CERTIFICATE_SIGNING_REQUESTS);
    let workers = WORKERS * signers.len();
    let longest = build.config.flags.cluster_signing_duration;
    let room = Signing { requests: requests.lister(), signers, longest };
    Ok(Built {
        loops: vec![Loop {
            queue: "certificate",
            kind: Some(&CERTIFICATE_SIGNING_REQUESTS),
            settings: LoopSettings {
                workers,
                backoff: QueueConfig { base_delay: BACKOFF, ..QueueConfig::default() },
                ..LoopSettings::default()
            },
            wake_ups: vec![requests.wakes(wake::existing())],
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}
