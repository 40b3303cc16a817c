//! Where the admin API is served: on the secure port, or on one of its own and then nowhere else.

use std::net::TcpListener;

use coxswain::admin::proto::GetLeaderRequest;

use super::caller::Admin;
use super::{LIMIT, bare};
use crate::harness::{Caller, ControlPlane, Port, until};

#[tokio::test]
async fn a_port_of_its_own_serves_the_admin_api_and_nothing_else() {
    let plane = ControlPlane::start(&bare());
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port();
    let args = [&format!("--admin-port={port}"), "--admin-bind-address=127.0.0.1"];
    let manager = plane.coxswain("coxswain", &args);
    let own = manager.at_port(port);

    let admin = Admin::master(&plane, &own);
    until("the replica to lead", LIMIT, || admin.leads(), |leads| *leads == Some(true)).await;
    let leader =
        admin.leader().get_leader(GetLeaderRequest::default()).await.expect("an answer").into_inner();
    assert_eq!(leader.replicas.len(), 1);
    assert_eq!(
        leader.replicas[0].admin_address,
        format!("127.0.0.1:{port}"),
        "that is where clients are sent"
    );
    assert_eq!(own.page(Caller::Admin, "/metrics").await.status, 404);

    let elsewhere = Admin::master(&plane, &manager);
    let refused = elsewhere.leader().get_leader(GetLeaderRequest::default()).await;
    assert!(refused.is_err(), "the secure port has no admin API then: {refused:?}");
    assert_eq!(manager.page(Caller::Admin, "/metrics").await.status, 200);
}

#[tokio::test]
async fn a_certificate_of_its_own_making_names_the_addresses_of_both_ports() {
    const ELSEWHERE: &str = "127.0.0.2";
    let plane = ControlPlane::shared();
    let dir = tempfile::tempdir().expect("a directory");
    let made = dir.path().join("made");
    let port = TcpListener::bind((ELSEWHERE, 0)).expect("a port").local_addr().expect("its number").port();
    let args = [
        "--tls-cert-file=",
        "--tls-private-key-file=",
        &format!("--cert-dir={}", made.display()),
        &format!("--admin-port={port}"),
        &format!("--admin-bind-address={ELSEWHERE}"),
    ];
    let manager = plane.coxswain_unawaited("two-ports", &args);
    let authority = made.join("kube-controller-manager.crt");
    let page = async |url: &str| {
        if !authority.exists() {
            return None;
        }
        Port::trusting(&plane.report, url, Caller::Anonymous, &authority).await.try_get("/healthz").await
    };
    let url = format!("https://{ELSEWHERE}:{port}");
    let found = until("an answer that can be trusted", LIMIT, || page(&url), Option::is_some).await;
    assert_eq!(found.expect("just seen").status, 404, "it serves no pages");
    assert_eq!(page(&manager.url).await.expect("an answer").status, 200);
    manager.stop();
}
