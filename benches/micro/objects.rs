//! Encoded objects of the size and shape that an API server sends: managed fields, two containers, five conditions.

use bytes::Bytes;
use coxswain_machinery::wire::splice::{put_bytes, put_varint_field};
use coxswain_machinery::wire::wrap_envelope;

const CREATED: u64 = 1_750_000_000;

fn text(out: &mut Vec<u8>, number: u32, value: &str) {
    put_bytes(out, number, value.as_bytes());
}

fn message(out: &mut Vec<u8>, number: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    fill(&mut body);
    put_bytes(out, number, &body);
}

fn time(out: &mut Vec<u8>, number: u32, seconds: u64) {
    message(out, number, |out| put_varint_field(out, 1, seconds));
}

fn entry(out: &mut Vec<u8>, number: u32, key: &str, value: &str) {
    message(out, number, |out| {
        text(out, 1, key);
        text(out, 2, value);
    });
}

/// A UID made of two numbers.
fn uid(kind: u32, at: usize) -> String {
    format!("{kind:08x}-5f1c-4c7e-9d4a-{at:012x}")
}

fn owner(out: &mut Vec<u8>, kind: &str, name: &str, uid: &str) {
    message(out, 13, |out| {
        text(out, 1, kind);
        text(out, 3, name);
        text(out, 4, uid);
        text(out, 5, "apps/v1");
        put_varint_field(out, 6, 1);
        put_varint_field(out, 7, 1);
    });
}

/// Two managers' worth of field names.
fn managed_fields(out: &mut Vec<u8>, fields: usize) {
    for manager in ["kube-controller-manager", "kubelet"] {
        message(out, 17, |out| {
            text(out, 1, manager);
            text(out, 2, "Update");
            text(out, 3, "v1");
            time(out, 4, CREATED);
            text(out, 6, "FieldsV1");
            message(out, 7, |out| {
                let names: Vec<String> =
                    (0..fields).map(|at| format!("\"f:field{at:03}\":{{\".\":{{}}}}")).collect();
                text(out, 1, &format!("{{{}}}", names.join(",")));
            });
        });
    }
}

fn metadata(
    out: &mut Vec<u8>,
    (namespace, name): (&str, &str),
    uid: &str,
    version: usize,
    more: impl FnOnce(&mut Vec<u8>),
) {
    message(out, 1, |out| {
        text(out, 1, name);
        text(out, 3, namespace);
        text(out, 5, uid);
        text(out, 6, &version.to_string());
        time(out, 8, CREATED);
        more(out);
    });
}

fn container(out: &mut Vec<u8>, name: &str) {
    message(out, 2, |out| {
        text(out, 1, name);
        text(out, 2, &format!("registry.example.com/team/{name}:v1.27.3"));
        for at in 0..6 {
            message(out, 7, |out| {
                text(out, 1, &format!("SETTING_{at}"));
                text(out, 2, "postgres://db.default.svc.cluster.local:5432/app");
            });
        }
        message(out, 9, |out| {
            text(out, 1, "kube-api-access-x2v9q");
            text(out, 3, "/var/run/secrets/kubernetes.io/serviceaccount");
        });
        text(out, 13, "/dev/termination-log");
        text(out, 14, "IfNotPresent");
        text(out, 20, "File");
    });
}

fn pod_spec(out: &mut Vec<u8>) {
    message(out, 1, |out| {
        text(out, 1, "kube-api-access-x2v9q");
        message(out, 2, |out| put_bytes(out, 26, &[0x0a; 220]));
    });
    container(out, "web");
    container(out, "proxy");
    text(out, 3, "Always");
    put_varint_field(out, 4, 30);
    text(out, 6, "ClusterFirst");
    text(out, 8, "default");
    text(out, 9, "default");
}

/// Pod `at` of replica set `set`.
pub(crate) fn pod(set: usize, at: usize, version: usize) -> Bytes {
    let mut out = Vec::new();
    let hash = format!("{:010x}", set * 7919);
    let set_name = format!("web-{set}-{hash}");
    let (name, namespace) = (format!("{set_name}-{at:05x}"), format!("team-{}", set % 20));
    metadata(&mut out, (&namespace, &name), &uid(1, set * 1000 + at), 100_000 + version, |out| {
        text(out, 2, &format!("{set_name}-"));
        entry(out, 11, "app.kubernetes.io/name", &format!("web-{set}"));
        entry(out, 11, "pod-template-hash", &hash);
        entry(out, 11, "tier", "frontend");
        entry(out, 12, "prometheus.io/scrape", "true");
        entry(out, 12, "cni.example.com/podIPs", &format!("10.{}.{}.7/32", set % 200, at));
        owner(out, "ReplicaSet", &set_name, &uid(2, set));
        managed_fields(out, 40);
    });
    message(&mut out, 2, |out| {
        pod_spec(out);
        text(out, 10, &format!("node-{}", at % 10));
    });
    message(&mut out, 3, |out| {
        text(out, 1, "Running");
        for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
            message(out, 2, |out| {
                text(out, 1, kind);
                text(out, 2, "True");
                time(out, 4, CREATED + at as u64);
                put_varint_field(out, 7, 1);
            });
        }
        text(out, 5, "192.168.1.17");
        text(out, 6, &format!("10.0.{}.{at}", set % 200));
        time(out, 7, CREATED);
        for name in ["web", "proxy"] {
            message(out, 8, |out| {
                text(out, 1, name);
                message(out, 2, |out| message(out, 2, |out| time(out, 1, CREATED)));
                put_varint_field(out, 4, 1);
                put_varint_field(out, 5, 1);
                text(out, 6, &format!("registry.example.com/team/{name}:v1.27.3"));
                text(out, 7, &format!("registry.example.com/team/{name}@sha256:{at:064x}"));
                text(out, 8, &format!("containerd://{:064x}", set * 1000 + at));
            });
        }
        text(out, 9, "Burstable");
    });
    out.into()
}

/// One of ten replica sets of a deployment.
pub(crate) fn replica_set(at: usize) -> Bytes {
    let mut out = Vec::new();
    let (deployment, hash) = (format!("web-{}", at / 10), format!("{:010x}", at * 7919));
    let name = format!("{deployment}-{hash}");
    let labels = |out: &mut Vec<u8>, number| {
        entry(out, number, "app.kubernetes.io/name", &deployment);
        entry(out, number, "pod-template-hash", &hash);
    };
    metadata(&mut out, ("team", &name), &uid(2, at), 100_000, |out| {
        put_varint_field(out, 7, 1);
        labels(out, 11);
        entry(out, 12, "deployment.kubernetes.io/desired-replicas", "50");
        entry(out, 12, "deployment.kubernetes.io/revision", &(at % 10).to_string());
        owner(out, "Deployment", &deployment, &uid(3, at / 10));
        managed_fields(out, 40);
    });
    message(&mut out, 2, |out| {
        put_varint_field(out, 1, 0);
        message(out, 2, |out| labels(out, 1));
        message(out, 3, |out| {
            message(out, 1, |out| labels(out, 11));
            message(out, 2, pod_spec);
        });
    });
    message(&mut out, 3, |out| {
        put_varint_field(out, 1, 0);
        put_varint_field(out, 3, 1);
    });
    out.into()
}

/// A secret's metadata.
pub(crate) fn secret(at: usize) -> Bytes {
    let mut out = Vec::new();
    let (namespace, name) = (format!("team-{}", at % 100), format!("credentials-{at}"));
    metadata(&mut out, (&namespace, &name), &uid(4, at), 100_000 + at, |out| {
        entry(out, 11, "app.kubernetes.io/managed-by", "Helm");
        managed_fields(out, 10);
    });
    out.into()
}

/// The certificates that every namespace has.
pub(crate) fn root_ca(at: usize) -> Bytes {
    let mut out = Vec::new();
    metadata(&mut out, (&format!("team-{at}"), "kube-root-ca.crt"), &uid(5, at), 100_000 + at, |out| {
        entry(
            out,
            12,
            "kubernetes.io/description",
            "Contains a CA bundle that can be used to verify the API server.",
        );
        managed_fields(out, 5);
    });
    entry(
        &mut out,
        2,
        "ca.crt",
        &"MIIC5zCCAc+gAwIBAgIBADANBgkqhkiG9w0BAQsFADAVMRMwEQYDVQQDEwprdWJl".repeat(18),
    );
    out.into()
}

/// A watch frame, without its length.
pub(crate) fn frame(word: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::new();
    text(&mut out, 1, word);
    message(&mut out, 2, |out| put_bytes(out, 1, &wrap_envelope("v1", "Pod", object)));
    out.into()
}
