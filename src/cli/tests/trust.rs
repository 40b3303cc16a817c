//! Whom the client trusts, as whom it comes, and what it never gives away.

use rcgen::DnType;
use serde_json::json;

use super::server::*;
use crate::cli::error::Exit;

#[tokio::test]
async fn a_named_replica_needs_no_cluster() {
    let replica = Replica::start().await;
    let (authority, token) = (replica.path("ca.pem"), replica.path("token"));
    let line = ["controllers", "--certificate-authority", &authority, "--token-file", &token];
    let ran = replica.run_in(&[("COXSWAIN_SERVER", &replica.address)], &line).await;
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    let seen = replica.seen();
    assert!(seen.iter().all(|(path, _)| !path.starts_with("/apis/")), "{seen:?}");
    assert_eq!(seen[0].1, Some(format!("Bearer {TOKEN}")));

    let elsewhere = replica.run_in(&[], &["leader", "--server", "127.0.0.1:9"]).await;
    assert!(elsewhere.exit == Exit::Unreachable && elsewhere.err.contains("connect to "), "{elsewhere:?}");
    let ran = replica.run_in(&[], &["leader", "--server", "http://127.0.0.1:9"]).await;
    assert_eq!(ran.exit, Exit::Usage);
    let ran = replica.run_in(&[], &["leader"]).await;
    assert!(ran.exit == Exit::Unreachable && ran.err.contains("--server"), "{ran:?}");
}

#[tokio::test]
async fn nothing_is_shown_to_a_stranger() {
    let (replica, stranger) = (Replica::start().await, Replica::start().await);
    let token = replica.path("token");
    let wrong = stranger.path("ca.pem");
    let line = ["leader", "--server", &replica.address, "--token-file", &token];
    let ran = replica.run_in(&[], &[&line[..], &["--certificate-authority", &wrong]].concat()).await;
    assert!(ran.exit == Exit::Unreachable && ran.err.contains("no trusted CA signed it"), "{ran:?}");
    assert_eq!(replica.seen(), [], "no request, and so no token");

    let right = replica.path("ca.pem");
    for (name, exit) in [("admin.test", Exit::Done), ("other.test", Exit::Unreachable)] {
        let trusting = ["--certificate-authority", &right, "--tls-server-name", name];
        let ran = replica.run_in(&[], &[&line[..], &trusting].concat()).await;
        assert_eq!(ran.exit, exit, "{ran:?}");
    }
    replica.seen();
    let ran = replica.run_in(&[], &[&line[..], &["--insecure-skip-tls-verify"]].concat()).await;
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    assert!(ran.err.contains("warning: ") && replica.seen().len() == 1);
}

#[tokio::test]
async fn a_token_does_not_go_where_only_a_lease_says_so() {
    let (cluster, stranger) = (Replica::start().await, Replica::start().await);
    cluster.announce(&[lease("b", &stranger.address, 0, None)], None);
    let ran = cluster.run(&["controllers"]).await;
    assert!(ran.exit == Exit::Unreachable && ran.err.contains("no trusted CA signed it"), "{ran:?}");
    cluster.announce(&[lease("b", &stranger.address, 0, Some(&stranger.authority))], None);
    let ran = cluster.run(&["controllers"]).await;
    assert!(ran.exit == Exit::Unreachable && ran.err.contains("--trust-announced-authority"), "{ran:?}");
    assert!(stranger.seen().is_empty(), "no request, and so no token");

    let ran = cluster.run(&["controllers", "--trust-announced-authority"]).await;
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    assert!(stranger.seen().iter().all(|(_, token)| *token == Some(format!("Bearer {TOKEN}"))));
    cluster.announce(&[lease("b", &stranger.address, 0, Some("nonsense"))], None);
    let ran = cluster.run(&["controllers", "--trust-announced-authority"]).await;
    assert!(ran.exit == Exit::Unreachable && ran.err.contains("contains no certificate"), "{ran:?}");

    // A kubeconfig that trusts anyone speaks of the API server only, and names nobody who vouches for replicas.
    let config = cluster.kubeconfig(&cluster.authority, &json!({ "token": TOKEN }));
    let text = std::fs::read_to_string(&config).unwrap().replace("\"certificate-authority-data\"", "\"x\"");
    std::fs::write(&config, text.replace("\"server\"", "\"insecure-skip-tls-verify\":true,\"server\""))
        .unwrap();
    let kubeconfig = [("KUBECONFIG", config.to_str().unwrap())];
    for authority in [None, Some(stranger.authority.as_str())] {
        cluster.announce(&[lease("b", &stranger.address, 0, authority)], None);
        let ran = cluster.run_in(&kubeconfig, &["controllers"]).await;
        assert!(ran.exit == Exit::Unreachable && ran.err.contains("refusing to send a token"), "{ran:?}");
    }
    assert!(stranger.seen().is_empty());
}

#[tokio::test]
async fn an_announced_authority_sees_the_certificate_and_not_the_token() {
    let replica = Replica::start().await;
    std::fs::write(replica.path("cert"), &replica.client.0).unwrap();
    std::fs::write(replica.path("key"), &replica.client.1).unwrap();
    let (cert, key) = (replica.path("cert"), replica.path("key"));
    let user = json!({ "client-certificate": cert, "client-key": key, "token": TOKEN });
    let config = replica.kubeconfig(&replica.authority, &user);
    let kubeconfig = [("KUBECONFIG", config.to_str().unwrap())];
    let bearer = Some(format!("Bearer {TOKEN}"));
    for announced in [Some(replica.authority.as_str()), None] {
        replica.announce(&[lease("b", &replica.address, 0, announced)], None);
        let ran = replica.run_in(&kubeconfig, &["controllers"]).await;
        assert_eq!(ran.exit, Exit::Done, "{ran:?}");
        let (api_server, admin): (Vec<_>, Vec<_>) =
            replica.seen().into_iter().partition(|(path, _)| path.starts_with("/apis/"));
        assert!(api_server.iter().all(|(_, token)| *token == bearer), "{api_server:?}");
        assert!(!admin.is_empty());
        for (path, token) in admin {
            // The certificate is enough; a token would go to a certificate for Coxswain's name alone.
            assert_eq!(token, None, "{path}");
        }
    }
}

#[tokio::test]
async fn certificate_of_the_clusters_ca_with_another_name_gets_no_token() {
    // Whoever may write Leases announces a node that serves with its kubelet's certificate.
    let node = Replica::on_a_node().await;
    let tokens = || {
        let admin = node.seen().into_iter().filter(|(path, _)| !path.starts_with("/apis/"));
        admin.map(|(_, token)| token).collect::<Vec<_>>()
    };
    let ran = node.run(&["controllers"]).await;
    assert!(ran.exit == Exit::Unreachable, "{ran:?}");
    assert!(ran.err.contains("not for coxswain.kube-system.svc"), "{ran:?}");
    assert_eq!(tokens(), [], "no request, and so no token");

    // The user may name the server, by its address or by its name.
    let bearer = Some(format!("Bearer {TOKEN}"));
    for flags in [["--server", &node.address], ["--tls-server-name", "node-1"]] {
        let ran = node.run(&[&["controllers"], &flags[..]].concat()).await;
        assert_eq!(ran.exit, Exit::Done, "{ran:?}");
        assert!(tokens().iter().all(|token| *token == bearer));
    }
    // A client certificate gives nothing away.
    std::fs::write(node.path("cert"), &node.client.0).unwrap();
    std::fs::write(node.path("key"), &node.client.1).unwrap();
    let user = json!({ "client-certificate": node.path("cert"), "client-key": node.path("key") });
    let config = node.kubeconfig(&node.authority, &user);
    let ran = node.run_in(&[("KUBECONFIG", config.to_str().unwrap())], &["controllers"]).await;
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
}

#[tokio::test]
async fn certificate_of_a_node_for_the_name_of_coxswain_gets_no_token() {
    let (nodes, node) = ((DnType::OrganizationName, "system:nodes"), (DnType::CommonName, "system:node:a"));
    // The signer of kubelets' certificates signs any name that an approver accepts.
    for subject in [&[nodes.clone(), node.clone()][..], &[nodes], &[node]] {
        let server = Replica::with_subject(subject).await;
        let ran = server.run(&["controllers"]).await;
        assert!(
            ran.exit == Exit::Unreachable && ran.err.contains("belongs to a node (group system:nodes)"),
            "{ran:?}"
        );
        let seen = server.seen();
        assert!(seen.iter().all(|(path, _)| path.starts_with("/apis/")), "{subject:?}: {seen:?}");
    }
    let others = [(DnType::OrganizationName, "system:nodes:x"), (DnType::CommonName, "node")];
    let server = Replica::with_subject(&others).await;
    assert_eq!(server.run(&["controllers"]).await.exit, Exit::Done);
}

#[tokio::test]
async fn certificates_are_credentials() {
    let replica = Replica::start().await;
    std::fs::write(replica.path("cert"), &replica.client.0).unwrap();
    std::fs::write(replica.path("key"), &replica.client.1).unwrap();
    let (cert, key) = (replica.path("cert"), replica.path("key"));
    let user = json!({ "client-certificate": cert, "client-key": key });
    let kubeconfig = replica.kubeconfig(&replica.authority, &user);
    let kubeconfig = [("KUBECONFIG", kubeconfig.to_str().unwrap())];
    assert_eq!(replica.run_in(&kubeconfig, &["controllers"]).await.exit, Exit::Done);
    assert!(replica.seen().iter().all(|(_, token)| token.is_none()));
    // Flags take the place of the kubeconfig's user.
    let flags = ["leader", "--context", "anonymous", "--client-certificate", &cert, "--client-key", &key];
    assert_eq!(replica.run_in(&kubeconfig, &flags).await.exit, Exit::Done);
    let missing = ["leader", "--client-certificate", "/none", "--client-key", &key];
    let ran = replica.run_in(&kubeconfig, &missing).await;
    assert!(ran.exit == Exit::Usage && ran.err.contains("--client-certificate /none"), "{ran:?}");
}

#[tokio::test]
async fn who_shows_nothing_is_denied() {
    let replica = Replica::start().await;
    let kubeconfig = replica.kubeconfig(&replica.authority, &json!({}));
    let kubeconfig = [("KUBECONFIG", kubeconfig.to_str().unwrap())];
    let ran = replica.run_in(&kubeconfig, &["controllers"]).await;
    assert!(ran.exit == Exit::Denied && ran.err.contains("--server"), "{ran:?}");
    let ran = replica.run_in(&kubeconfig, &["controllers", "--server", &replica.address]).await;
    assert!(ran.exit == Exit::Denied && ran.err.contains("UNAUTHENTICATED"), "{ran:?}");
}

#[tokio::test]
async fn a_plugin_is_asked_once() {
    let replica = Replica::start().await;
    let runs = replica.path("runs");
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": { "token": TOKEN },
    });
    let script = format!("echo run >> '{runs}'; echo '{credential}'");
    let plugin = |script: &str| {
        json!({ "exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "/bin/sh", "args": ["-c", script],
        } })
    };
    let kubeconfig = replica.kubeconfig(&replica.authority, &plugin(&script));
    let kubeconfig = kubeconfig.to_str().unwrap();
    let ran = replica.run_in(&[], &["queues", "--kubeconfig", kubeconfig]).await;
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\n");
    replica.kubeconfig(&replica.authority, &plugin(&format!("echo {TOKEN}; echo {TOKEN} >&2; exit 1")));
    let ran = replica.run_in(&[], &["queues", "--kubeconfig", kubeconfig]).await;
    assert!(
        ran.exit == Exit::Usage && ran.err.contains("plugin failed") && !ran.err.contains(TOKEN),
        "{ran:?}"
    );
}

#[tokio::test]
async fn no_error_shows_a_token() {
    let replica = Replica::start().await;
    let broken = replica.path("broken");
    std::fs::write(&broken, format!("users: [{{ user: {{ token: {TOKEN} }} }}]\n  - {TOKEN}\n{TOKEN}"))
        .unwrap();
    let unsendable = replica.path("unsendable");
    std::fs::write(&unsendable, format!("{TOKEN}\n{TOKEN}\u{7f}")).unwrap();
    let empty = replica.path("empty");
    std::fs::write(&empty, "\n").unwrap();
    let kubeconfig = replica.kubeconfig(&replica.authority, &json!({ "token": TOKEN, "as": "jane" }));
    let kubeconfig = kubeconfig.to_str().unwrap();
    for line in [
        &["leader", "--kubeconfig", &broken][..],
        &["leader", "--kubeconfig", "/none"],
        &["leader", "--kubeconfig", kubeconfig],
        &["leader", "--kubeconfig", kubeconfig, "--context", "none"],
        &["leader", "--server", &replica.address, "--token-file", &unsendable],
        &["leader", "--server", &replica.address, "--token-file", &empty],
        &["leader", "--context", "none"],
    ] {
        let ran = replica.run_in(&[], line).await;
        assert_eq!(ran.exit, Exit::Usage, "{ran:?}");
        assert!(!ran.err.contains(TOKEN) && !ran.err.is_empty(), "{ran:?}");
    }
    assert!(replica.seen().is_empty());
}
