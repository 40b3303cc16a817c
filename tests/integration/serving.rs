//! The secure port: who may see which page, and by which certificate it proves itself.
//!
//! The managers that the certificate tests start stand by; they serve all the same.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use k8s_openapi::api::core::v1::ServiceAccount;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use serde_json::{Value, json};

use crate::harness::{Caller, ControlPlane, Manager, Port, built, until};

/// Longer than files and judgments are remembered for.
const LIMIT: Duration = Duration::from_secs(90);
/// The original's base name for a certificate of its own making.
const PAIR_NAME: &str = "kube-controller-manager";

async fn status(manager: &Manager<'_>, caller: Caller<'_>, path: &str) -> u16 {
    manager.page(caller, path).await.status
}

#[tokio::test]
async fn pages_are_for_those_who_may_see_them() {
    let plane = ControlPlane::shared();
    let manager = plane.running("coxswain");
    let namespace = plane.cluster().await.namespace("scraper").await;
    namespace.create::<ServiceAccount>(json!({ "metadata": { "name": "scraper" } })).await;
    let token = plane.kubectl(&["-n", &namespace.name, "create", "token", "scraper"]);
    let scraper = Caller::Bearer(token.trim());

    for page in ["/metrics", "/metrics/slis", "/configz", "/debug/controllers/none", "/nowhere"] {
        assert_eq!(status(&manager, Caller::Anonymous, page).await, 403, "{page}");
        assert_eq!(status(&manager, Caller::Bearer("nonsense"), page).await, 401, "{page}");
        assert_eq!(status(&manager, scraper, page).await, 403, "{page}");
    }
    let role = format!("{}-metrics", namespace.name);
    let subject = format!("--serviceaccount={}:scraper", namespace.name);
    plane.kubectl(&["create", "clusterrole", &role, "--verb=get", "--non-resource-url=/metrics"]);
    plane.kubectl(&["create", "clusterrolebinding", &role, &format!("--clusterrole={role}"), &subject]);
    let seen = until("metrics", LIMIT, || manager.page(scraper, "/metrics"), |page| page.status == 200).await;
    let leading = seen.metric(&format!("leader_election_master_status{{name=\"{PAIR_NAME}\"}}"));
    assert_eq!(leading, Some(1.0));
    let version = concat!("version_info{binary=\"", env!("CARGO_PKG_VERSION"), "\",");
    assert!(seen.text.contains(version), "which version it is: {}", seen.text);
    assert_eq!(status(&manager, scraper, "/configz").await, 403, "one page is not all pages");

    let config = manager.page(Caller::Admin, "/configz").await;
    let config: Value = serde_json::from_str(&config.text).expect("JSON");
    let generic = &config["kubecontrollermanager.config.k8s.io"]["Generic"];
    assert_eq!(generic["LeaderElection"]["leaderElect"], true, "{config}");
    for page in ["/debug/controllers/none", "/debug/controllers/replicaset-controller", "/nowhere"] {
        assert_eq!(status(&manager, Caller::Admin, page).await, 404, "{page}");
    }
}

#[tokio::test]
async fn health_names_the_election_and_every_running_controller() {
    let plane = ControlPlane::shared();
    let manager = plane.running("coxswain");
    let running: Vec<&str> = built().map(|each| each.name).collect();
    let lists_all = |text: &str| {
        let ok = |name: &str| text.contains(&format!("[+]{name} ok\n"));
        ok("leaderElection") && running.iter().all(|name| ok(name))
    };
    for probe in ["healthz", "livez", "readyz"] {
        let path = format!("/{probe}?verbose");
        let observe = || manager.page(Caller::Anonymous, &path);
        let page = until("all checks", LIMIT, observe, |page| lists_all(&page.text)).await;
        assert_eq!(page.status, 200);
        assert!(page.text.ends_with(&format!("{probe} check passed\n")), "{}", page.text);
        // The plane has no policy for the Leases, which is a remark of a leader. Callers without credentials see the check alone.
        let others = page.text.lines().filter(|line| line.starts_with("[+]") && *line != "[+]leasePolicy ok");
        assert_eq!(others.count(), running.len() + 1, "{}", page.text);
        let brief = manager.page(Caller::Anonymous, &format!("/{probe}")).await;
        assert_eq!((brief.status, brief.text.as_str()), (200, "ok"));
    }
    let slis = manager.page(Caller::Admin, "/metrics/slis").await;
    for check in ["leaderElection", "replicaset-controller"] {
        let series = format!("kubernetes_healthcheck{{name=\"{check}\",type=\"healthz\"}}");
        assert_eq!(slis.metric(&series), Some(1.0), "{}", slis.text);
    }
    let metrics = manager.page(Caller::Admin, "/metrics").await;
    for name in running {
        let series = format!("running_managed_controllers{{manager=\"{PAIR_NAME}\",name=\"{name}\"}}");
        assert_eq!(metrics.metric(&series), Some(1.0), "{series}");
    }
}

/// Waits until a manager answers those who trust the authorities in a file.
async fn trusted(plane: &ControlPlane, manager: &Manager<'_>, authority: &Path) {
    let observe = || async {
        if !authority.exists() {
            return None;
        }
        Port::trusting(&plane.report, &manager.url, Caller::Anonymous, authority)
            .await
            .try_get("/healthz")
            .await
    };
    let page = until("an answer that can be trusted", LIMIT, observe, Option::is_some).await;
    assert_eq!(page.expect("just seen").status, 200);
}

#[tokio::test]
async fn a_self_signed_certificate_is_made_once_and_kept() {
    let plane = ControlPlane::shared();
    let dir = tempfile::tempdir().expect("a directory");
    let kept = dir.path().join("made");
    let cert_dir = format!("--cert-dir={}", kept.display());
    let args = ["--tls-cert-file=", "--tls-private-key-file=", &cert_dir];
    let manager = plane.coxswain_unawaited("self-signed", &args);
    let cert = kept.join(format!("{PAIR_NAME}.crt"));
    trusted(plane, &manager, &cert).await;
    let key = kept.join(format!("{PAIR_NAME}.key"));
    let mode = fs::metadata(&key).expect("the key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the key is for its owner alone");
    let page = manager.try_page(Caller::Anonymous, "/healthz").await;
    assert!(page.is_none(), "the cluster's authority did not sign it");

    let made = (fs::read(&cert).expect("it"), fs::read(&key).expect("it"));
    manager.stop();
    manager.start_again();
    trusted(plane, &manager, &cert).await;
    assert_eq!(made, (fs::read(&cert).expect("it"), fs::read(&key).expect("it")));
    manager.stop();
}

/// Chain and key, both PEM, as a manager makes them in `--cert-dir`: 300 days ago, for a year.
fn aged_pair() -> (String, String) {
    const DAY: u64 = 24 * 60 * 60;
    let now = u64::try_from(SystemClock.now().as_second()).expect("a time after 1970");
    let made = now - 300 * DAY;
    let params = |names: Vec<String>, name: &str| {
        let mut params = CertificateParams::new(names).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, format!("{name}@{made}"));
        let begin = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(made);
        params.not_before = begin;
        params.not_after = begin + Duration::from_secs(365 * DAY);
        params
    };
    let mut authority = params(Vec::new(), "localhost-ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(authority, key).expect("a CA");
    let mut leaf = params(vec!["127.0.0.1".to_owned()], "localhost");
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().expect("a key");
    let cert = leaf.signed_by(&key, &authority).expect("a certificate");
    (format!("{}{}", cert.pem(), authority.pem()), key.serialize_pem())
}

#[tokio::test]
async fn self_made_certificate_is_renewed_with_its_key_before_it_expires() {
    let plane = ControlPlane::shared();
    let dir = tempfile::tempdir().expect("a directory");
    let at = |suffix: &str| dir.path().join(format!("{PAIR_NAME}.{suffix}"));
    let (old, key) = aged_pair();
    fs::write(at("crt"), &old).expect("written");
    fs::write(at("key"), &key).expect("written");
    let cert_dir = format!("--cert-dir={}", dir.path().display());
    let args = ["--tls-cert-file=", "--tls-private-key-file=", &cert_dir];
    let manager = plane.coxswain_unawaited("aged", &args);
    let cert = || async { fs::read_to_string(at("crt")).expect("a certificate") };
    until("a renewed certificate", LIMIT, cert, |cert| *cert != old).await;
    trusted(plane, &manager, &at("crt")).await;
    assert_eq!(fs::read_to_string(at("key")).expect("a key"), key);
    manager.stop();
}

/// A serving certificate for 127.0.0.1 by an authority of its own: (authority, certificate, key), all PEM.
fn certificate() -> (String, String, String) {
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(authority, key).expect("an authority");
    let mut leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().expect("a key");
    let cert = leaf.signed_by(&key, &authority).expect("a certificate");
    (authority.pem(), cert.pem(), key.serialize_pem())
}

#[tokio::test]
async fn a_rotated_certificate_is_served_without_a_restart() {
    let plane = ControlPlane::shared();
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    // It begins with the certificate that managers have here.
    for (flag, file) in [("--tls-cert-file=", "tls.crt"), ("--tls-private-key-file=", "tls.key")] {
        let given =
            plane.report.manager_args.iter().find_map(|arg| arg.strip_prefix(flag)).expect("the flag");
        fs::copy(given, at(file)).expect("copied");
    }
    let cert_flag = format!("--tls-cert-file={}", at("tls.crt").display());
    let key_flag = format!("--tls-private-key-file={}", at("tls.key").display());
    let manager = plane.coxswain("rotated", &[&cert_flag, &key_flag]);
    let (authority, cert, key) = certificate();
    fs::write(at("ca.crt"), authority).expect("written");

    // A certificate alone is of no use, and what was served before goes on to be.
    fs::write(at("tls.crt"), cert).expect("written");
    assert_eq!(status(&manager, Caller::Anonymous, "/healthz").await, 200);
    fs::write(at("tls.key"), key).expect("written");
    trusted(plane, &manager, &at("ca.crt")).await;
    assert!(manager.try_page(Caller::Anonymous, "/healthz").await.is_none(), "the old one is gone");
    assert_eq!(manager.pid, plane.running("rotated").pid, "the same process");
    manager.stop();
}
