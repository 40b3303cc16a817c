//! Certificate requests of kubelets, many at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::TryStreamExt as _;
use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, many};
use crate::figures::{Figure, Figures, Target};
use crate::harness::{object, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, add_latencies, lean, never_later, until_gone};

const REQUESTS: usize = 2000;
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// When requests were sent, and when their certificates were shown, by name.
type Times = Arc<Mutex<BTreeMap<String, Instant>>>;

pub(super) struct Signing {
    count: usize,
}

impl Signing {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { count: bench.scaled(REQUESTS) }
    }
}

impl Scenario for Signing {
    fn name(&self) -> String {
        "signing".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} CertificateSigningRequests of kubelets, each with a P-256 key, are created at once, and are approved and signed. A \
             latency is the time from the creation of a request until a watch shows its certificate. --kube-api-qps is so high that \
             it never delays a request.",
            self.count
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["certificatesigningrequest-approving-controller", "certificatesigningrequest-signing-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        never_later().chain(lean()).collect()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let api: Api<CertificateSigningRequest> = Api::all(bench.cluster.client.clone());
            let manager = bench.manager(turn, "signing", &Flags::of(self.controllers(), Qps::Unlimited));
            let key = KeyPair::generate().expect("a key");
            let requests: Vec<Vec<u8>> = (0..self.count).map(|at| request(&key, at)).collect();
            calm(manager.pid).await;
            let (sent, signed) = <(Times, Times)>::default();
            let mut watch = JoinSet::new();
            let from =
                api.list_metadata(&ListParams::default()).await.expect("a list").metadata.resource_version;
            watch.spawn(follow(api.clone(), from.unwrap_or_default(), Arc::clone(&signed)));
            let gauge = Gauge::start(bench, turn.program, manager.pid);
            many(self.count, async |at| {
                let name = format!("signing-{at}");
                let body: CertificateSigningRequest = object(json!({
                    "metadata": { "name": name },
                    "spec": {
                        "signerName": SIGNER,
                        "usages": ["digital signature", "client auth"],
                        "request": ByteString(requests[at].clone()),
                    },
                }));
                sent.lock().expect("no panic").insert(name, Instant::now());
                api.create(&PostParams::default(), &body).await.expect("a request");
            })
            .await;
            let count = async || signed.lock().expect("no panic").len();
            until("all certificates", LIMIT, count, |count| *count == self.count).await;
            gauge.close("", Until::Calm, &mut figures).await;
            let (sent, signed) =
                (sent.lock().expect("no panic").clone(), signed.lock().expect("no panic").clone());
            let took = |(name, at): (&String, &Instant)| (signed[name] - *at).as_secs_f64() * 1000.0;
            add_latencies(bench, sent.iter().map(took).collect(), &mut figures);
            bench.stop_all();
            api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("deleted");
            until_gone(&api).await;
            figures
        }
        .boxed_local()
    }
}

/// The request of a kubelet, in PEM.
fn request(key: &KeyPair, at: usize) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:node-{at}"));
    params.serialize_request(key).expect("a request").pem().expect("PEM").into_bytes()
}

/// Keeps account of when certificates are shown first, for as long as it is not aborted.
async fn follow(api: Api<CertificateSigningRequest>, from: String, signed: Times) {
    let mut from = from;
    loop {
        let events = api.watch(&WatchParams::default().timeout(290), &from).await.expect("a watch");
        let mut events = std::pin::pin!(events);
        while let Ok(Some(event)) = events.try_next().await {
            let (WatchEvent::Added(request) | WatchEvent::Modified(request)) = event else { continue };
            from = request.metadata.resource_version.unwrap_or_default();
            let has_certificate = request.status.is_some_and(|status| status.certificate.is_some());
            if let Some(name) = request.metadata.name.filter(|_| has_certificate) {
                signed.lock().expect("no panic").entry(name).or_insert_with(Instant::now);
            }
        }
    }
}
