//! Who a caller is found to be.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use http::{Method, StatusCode};
use rcgen::DnType;
use tokio::sync::Semaphore;

use super::fixtures::{Ca, FakeReviews, Reply, Setup, client_params, request};
use crate::serve::*;
use crate::x509::fixtures::name_part;

const UNAUTHORIZED: &str = "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \
    \"status\": \"Failure\",\n  \"message\": \"Unauthorized\",\n  \"reason\": \"Unauthorized\",\n  \"code\": 401\n}";

/// A setup with a page that says who asked, and what the handler saw of the request.
pub(super) fn whoami(reviews: FakeReviews) -> Setup {
    let setup = Setup::new(reviews);
    setup.router.add(
        "/whoami",
        sync_handler(|request| {
            let user = UserInfo::of(request.extensions()).unwrap();
            let seen: Vec<&str> = request.headers().keys().map(http::HeaderName::as_str).collect();
            let extra: Vec<String> =
                user.extra.iter().map(|(name, values)| format!("{name}={}", values.join("+"))).collect();
            text(
                StatusCode::OK,
                format!(
                    "{}|{}|{}|{}|{}",
                    user.name,
                    user.uid,
                    user.groups.join(","),
                    extra.join(","),
                    seen.join(",")
                ),
            )
        }),
    );
    setup
}

fn assert_unauthorized(reply: &Reply) {
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{}", reply.body);
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.header("cache-control"), "no-cache, private");
}

#[tokio::test]
async fn a_client_certificate_names_user_groups_and_credential() {
    let setup = whoami(FakeReviews::default().allows("jane", "/whoami"));
    let running = setup.start().await;
    let reply =
        running.client().with_cert(&setup.client_ca.client("jane", &["dev", "ops"])).get("/whoami").await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
    let (who, rest) =
        reply.body.split_once("|authentication.kubernetes.io/credential-id=X509SHA256=").unwrap();
    assert_eq!(who, "jane||dev,ops,system:authenticated");
    assert_eq!(rest.split('|').next().unwrap().len(), 64);
}

#[tokio::test]
async fn a_certificate_may_carry_one_uid() {
    let setup = whoami(FakeReviews::default().allows("jane", "/whoami"));
    let running = setup.start().await;
    let oid = DnType::from_oid(&[1, 3, 6, 1, 4, 1, 57683, 2]);
    let mut params = client_params("jane", &[]);
    params.distinguished_name.push(oid, "1234");
    let reply = running.client().with_cert(&setup.client_ca.sign(&params)).get("/whoami").await;
    assert!(reply.body.starts_with("jane|1234|system:authenticated|"), "{}", reply.body);
}

#[tokio::test]
async fn certificates_that_nobody_vouches_for_are_401_even_on_open_paths() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    let stranger = Ca::new("client-ca").client("jane", &["system:masters"]);
    let mut expired = client_params("jane", &[]);
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = setup.client_ca.sign(&expired);
    let server_only = setup.client_ca.server(&["jane"]);
    for pair in [stranger, expired, server_only] {
        let client = running.client().with_cert(&pair);
        let curl = request(Method::GET, "/healthz", &[("user-agent", "curl/8")]);
        let reply = client.send(curl).await;
        assert_unauthorized(&reply);
        assert_eq!(reply.body, UNAUTHORIZED);
    }
}

#[tokio::test]
async fn a_group_under_a_tag_that_go_does_not_read_is_none() {
    let setup = whoami(FakeReviews::default().allows("eve", "/whoami"));
    let running = setup.start().await;
    // Constructed, of the context's class, of the application's class, and both.
    for tag in [0x2c, 0x8c, 0x4c, 0xac, 0xcc] {
        for attribute in [3, 10] {
            let subject = [name_part(3, 0x0c, b"eve"), name_part(attribute, tag, b"system:masters")].concat();
            let reply = running
                .client()
                .with_malformed_cert(&setup.client_ca.client_of(&subject))
                .get("/whoami")
                .await;
            assert_unauthorized(&reply);
        }
    }
}

#[tokio::test]
async fn a_name_of_any_string_type_names_a_user() {
    let setup = whoami(FakeReviews::default().allows("jane", "/whoami").allows("jos\u{e9}", "/whoami"));
    let running = setup.start().await;
    for (tag, name, expected) in [
        (0x0c, &b"jane"[..], "jane||dev,"),
        (0x13, b"jane", "jane||dev,"),
        (0x16, b"jane", "jane||dev,"),
        (0x1e, b"\0j\0a\0n\0e", "jane||dev,"),
        (0x14, b"jos\xe9", "jos\u{e9}||dev,"),
    ] {
        let subject = [name_part(10, 0x1e, b"\0d\0e\0v"), name_part(3, tag, name)].concat();
        let reply = running.client().with_cert(&setup.client_ca.client_of(&subject)).get("/whoami").await;
        assert!(reply.body.starts_with(expected), "{tag:#04x}: {}", reply.body);
    }
}

#[tokio::test]
async fn without_authorities_certificates_are_of_no_account() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.authentication.client_ca_file = None;
    let running = setup.start().await;
    let reply = running
        .client()
        .with_cert(&setup.client_ca.client("jane", &["system:masters"]))
        .get("/metrics")
        .await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert!(reply.body.contains(r#"User \"system:anonymous\""#), "{}", reply.body);
}

#[tokio::test]
async fn tokens_are_reviewed_and_remembered() {
    let setup = whoami(FakeReviews::default().knows("good", "robot").allows("robot", "/whoami"));
    let running = setup.start().await;
    for _ in 0..3 {
        let reply = running.client().get_as("good", "/whoami").await;
        let fields: Vec<&str> = reply.body.split('|').collect();
        assert_eq!(fields[..3], ["robot", "u-1", "system:authenticated"]);
        assert!(!fields[4].contains("authorization"), "a handler saw the credentials: {}", reply.body);
    }
    assert_eq!(setup.reviews.token_count(), 1);
    for _ in 0..2 {
        assert_unauthorized(&running.client().get_as("bad", "/healthz").await);
    }
    assert_eq!(setup.reviews.token_count(), 2, "the original remembers refusals as well");
}

#[tokio::test]
async fn a_failed_review_is_a_401_and_not_remembered() {
    let setup = Setup::new(FakeReviews::default().knows("good", "robot"));
    let running = setup.start().await;
    setup.reviews.break_down(true);
    assert_unauthorized(&running.client().get_as("good", "/healthz").await);
    setup.reviews.break_down(false);
    assert_eq!(running.client().get_as("good", "/healthz").await.status, StatusCode::OK);
    assert_eq!(setup.reviews.token_count(), 2);
}

#[tokio::test]
async fn a_zero_ttl_remembers_nothing() {
    let mut setup = Setup::new(FakeReviews::default().knows("good", "robot"));
    setup.options.authentication.token_cache_ttl = std::time::Duration::ZERO;
    let running = setup.start().await;
    for _ in 0..3 {
        assert_eq!(running.client().get_as("good", "/healthz").await.status, StatusCode::OK);
    }
    assert_eq!(setup.reviews.token_count(), 3);
}

#[tokio::test]
async fn requests_with_one_token_share_one_review() {
    let setup = Setup::new(FakeReviews::default().knows("good", "robot"));
    let gate = Arc::new(Semaphore::new(0));
    *setup.reviews.gate.lock() = Some(Arc::clone(&gate));
    let running = setup.start().await;
    let requests = join_all((0..20).map(|_| {
        let client = running.client();
        async move { client.get_as("good", "/healthz").await }
    }));
    let open = async {
        while setup.reviews.token_count() == 0 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(1);
    };
    let (replies, ()) = futures::join!(requests, open);
    assert!(replies.iter().all(|reply| reply.status == StatusCode::OK));
    assert_eq!(setup.reviews.token_count(), 1);
}

#[tokio::test]
async fn tokens_are_ignored_when_nobody_can_be_asked_and_other_schemes_always() {
    let mut setup = Setup::new(FakeReviews::default().knows("good", "robot"));
    let running = setup.start().await;
    for value in ["Basic YTpi", "Bearer", "Bearer ", ""] {
        let reply =
            running.client().send(request(Method::GET, "/metrics", &[("authorization", value)])).await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{value:?}");
    }
    assert_eq!(setup.reviews.token_count(), 0);
    setup.delegates = false;
    let running = setup.start().await;
    let reply = running.client().get_as("good", "/metrics").await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert!(reply.body.contains(r#"User \"system:anonymous\""#), "{}", reply.body);
}

fn with_front_proxy(setup: &mut Setup, proxy_ca: &Ca) {
    let rules = &mut setup.options.authentication.request_header;
    rules.ca_file = Some(setup.dir.path().join("proxy-ca.crt"));
    rules.allowed_names = vec!["front-proxy-client".to_owned()];
    rules.uid_headers = vec!["X-Remote-Uid".to_owned()];
    setup.write("proxy-ca.crt", &proxy_ca.pem());
}

const REMOTE: &[(&str, &str)] = &[
    ("x-remote-user", "jane"),
    ("x-remote-uid", "77"),
    ("x-remote-group", "dev"),
    ("x-remote-group", "ops"),
    ("x-remote-extra-scope%2fs", "a"),
    ("x-remote-extra-scope%2fs", "b"),
];

#[tokio::test]
async fn a_front_proxy_says_for_whom_it_calls() {
    let proxy_ca = Ca::new("proxy-ca");
    let mut setup = whoami(FakeReviews::default().allows("jane", "/whoami"));
    with_front_proxy(&mut setup, &proxy_ca);
    let running = setup.start().await;
    let proxy = running.client().with_cert(&proxy_ca.client("front-proxy-client", &[]));
    let reply = proxy.send(request(Method::GET, "/whoami", REMOTE)).await;
    assert!(reply.body.starts_with("jane|77|dev,ops,system:authenticated|scope/s=a+b|"), "{}", reply.body);
    assert!(!reply.body.contains("x-remote"), "a handler saw the proxy's headers: {}", reply.body);
}

#[tokio::test]
async fn an_empty_group_of_a_front_proxy_is_none() {
    let proxy_ca = Ca::new("proxy-ca");
    let mut setup = whoami(FakeReviews::default().allows("jane", "/whoami"));
    with_front_proxy(&mut setup, &proxy_ca);
    let running = setup.start().await;
    let proxy = running.client().with_cert(&proxy_ca.client("front-proxy-client", &[]));
    let groups = [("x-remote-user", "jane"), ("x-remote-group", ""), ("x-remote-group", "dev")];
    let reply = proxy.send(request(Method::GET, "/whoami", &groups)).await;
    assert!(reply.body.starts_with("jane||dev,system:authenticated|"), "{}", reply.body);
}

/// HTTP takes off spaces and tabs. Identity providers let users choose names, so no other space may get lost.
#[tokio::test]
async fn other_spaces_than_those_of_http_belong_to_the_names_of_a_front_proxy() {
    let proxy_ca = Ca::new("proxy-ca");
    let mut setup = whoami(FakeReviews::default().allows("\u{a0}admin", "/whoami"));
    with_front_proxy(&mut setup, &proxy_ca);
    let running = setup.start().await;
    let proxy = running.client().with_cert(&proxy_ca.client("front-proxy-client", &[]));
    let headers = [
        ("x-remote-user", "\u{a0}admin"),
        ("x-remote-group", "\u{3000}system:masters"),
        ("x-remote-group", " \t"),
    ];
    let reply = proxy.send(request(Method::GET, "/whoami", &headers)).await;
    assert!(
        reply.body.starts_with("\u{a0}admin||\u{3000}system:masters,system:authenticated|"),
        "{:?} {:?}",
        reply.status,
        reply.body
    );
}

#[tokio::test]
async fn only_the_front_proxy_may_say_so() {
    let proxy_ca = Ca::new("proxy-ca");
    let mut setup = whoami(FakeReviews::default().allows("joe", "/whoami"));
    with_front_proxy(&mut setup, &proxy_ca);
    let running = setup.start().await;
    let masters =
        request(Method::GET, "/metrics", &[("x-remote-user", "root"), ("x-remote-group", "system:masters")]);

    let wrong_name = running.client().with_cert(&proxy_ca.client("someone", &[]));
    assert_unauthorized(&wrong_name.send(masters.clone()).await);

    let nobody = running.client().send(masters).await;
    assert_eq!(nobody.status, StatusCode::FORBIDDEN);

    let nameless = running.client().with_cert(&proxy_ca.client("front-proxy-client", &[]));
    assert_unauthorized(&nameless.get("/metrics").await);

    // A user's own certificate counts, and the headers that came with it do not.
    let user = running.client().with_cert(&setup.client_ca.client("joe", &[]));
    let reply = user.send(request(Method::GET, "/whoami", REMOTE)).await;
    assert!(reply.body.starts_with("joe||system:authenticated|"), "{}", reply.body);
    assert!(!reply.body.contains("x-remote"), "{}", reply.body);
}

fn cluster_config(setup: &Setup, proxy_ca: &Ca) -> BTreeMap<String, String> {
    [
        ("client-ca-file", setup.client_ca.pem()),
        ("requestheader-client-ca-file", proxy_ca.pem()),
        ("requestheader-allowed-names", r#"["front-proxy-client"]"#.to_owned()),
        ("requestheader-username-headers", r#"["X-Remote-User"]"#.to_owned()),
        ("requestheader-uid-headers", r#"["X-Remote-Uid"]"#.to_owned()),
        ("requestheader-group-headers", r#"["X-Remote-Group"]"#.to_owned()),
        ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#.to_owned()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

#[tokio::test]
async fn the_cluster_names_the_authorities_that_flags_do_not_and_may_change_them() {
    let proxy_ca = Ca::new("proxy-ca");
    let mut setup = whoami(FakeReviews::default().allows("jane", "/whoami"));
    setup.options.authentication.skip_lookup = false;
    setup.options.authentication.client_ca_file = None;
    let mut config = cluster_config(&setup, &proxy_ca);
    *setup.reviews.config.lock() = Some(config.clone());
    let running = setup.start().await;

    let user = running.client().with_cert(&setup.client_ca.client("jane", &[]));
    let proxy = running.client().with_cert(&proxy_ca.client("front-proxy-client", &[]));
    assert_eq!(user.get("/whoami").await.status, StatusCode::OK);
    assert_eq!(proxy.send(request(Method::GET, "/whoami", REMOTE)).await.status, StatusCode::OK);

    let next = Ca::new("client-ca-2");
    config.insert("client-ca-file".to_owned(), next.pem());
    *setup.reviews.config.lock() = Some(config.clone());
    (running.reload)().await;
    assert_unauthorized(&user.get("/whoami").await);
    let rotated = running.client().with_cert(&next.client("jane", &[]));
    assert_eq!(rotated.get("/whoami").await.status, StatusCode::OK);

    // Neither nonsense, nor a ConfigMap that is gone or cannot be read, takes away what is in force.
    config.insert("client-ca-file".to_owned(), "nonsense".to_owned());
    config.insert("requestheader-allowed-names".to_owned(), "nonsense".to_owned());
    for broken in [Some(config), None] {
        *setup.reviews.config.lock() = broken;
        (running.reload)().await;
        assert_eq!(rotated.get("/whoami").await.status, StatusCode::OK);
        assert_eq!(proxy.send(request(Method::GET, "/whoami", REMOTE)).await.status, StatusCode::OK);
    }
    setup.reviews.break_down(true);
    (running.reload)().await;
    setup.reviews.break_down(false);
    assert_eq!(rotated.get("/whoami").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_failed_lookup_is_fatal_unless_tolerated_and_made_up_for_later() {
    let proxy_ca = Ca::new("proxy-ca");
    let mut setup = whoami(FakeReviews::default().allows("jane", "/whoami"));
    setup.options.authentication.skip_lookup = false;
    setup.options.authentication.client_ca_file = None;
    setup.reviews.break_down(true);
    let error = setup.bind().await.unwrap_err();
    assert!(matches!(error, ServeError::Lookup(_)));
    assert!(error.to_string().contains("kube-system/extension-apiserver-authentication"), "{error}");

    setup.options.authentication.tolerate_lookup_failure = true;
    let running = setup.start().await;
    setup.reviews.break_down(false);
    let user = running.client().with_cert(&setup.client_ca.client("jane", &[]));
    let reply = user.get("/whoami").await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN, "treated as anonymous until the lookup works");
    *setup.reviews.config.lock() = Some(cluster_config(&setup, &proxy_ca));
    (running.reload)().await;
    assert_eq!(user.get("/whoami").await.status, StatusCode::OK);
}
