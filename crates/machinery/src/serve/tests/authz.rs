//! What a caller is allowed.

use http::{Method, StatusCode};

use super::fixtures::{FakeReviews, Setup, request};
use crate::serve::*;

#[tokio::test]
async fn who_is_known_and_not_allowed_is_403_and_told_so() {
    let setup = Setup::new(FakeReviews::default().knows("good", "robot").allows("robot", "/configz"));
    let running = setup.start().await;
    let curl =
        request(Method::POST, "/metrics", &[("user-agent", "curl/8"), ("authorization", "Bearer good")]);
    let reply = running.client().send(curl).await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert_eq!(
        reply.body,
        "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \"status\": \"Failure\",\n  \
         \"message\": \"forbidden: User \\\"robot\\\" cannot post path \\\"/metrics\\\"\",\n  \
         \"reason\": \"Forbidden\",\n  \"details\": {},\n  \"code\": 403\n}"
    );
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(running.client().get_as("good", "/configz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn programs_get_errors_on_one_line() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    let expected = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
        \"message\":\"forbidden: User \\\"system:anonymous\\\" cannot get path \\\"//healthz\\\"\",\
        \"reason\":\"Forbidden\",\"details\":{},\"code\":403}\n";
    assert_eq!(running.get("//healthz").await.body, expected);
    assert!(running.get("/nope?pretty=true").await.body.starts_with("{\n  \"kind\""));
}

#[tokio::test]
async fn anonymous_is_judged_like_anyone_and_a_path_without_a_page_is_404() {
    let setup = Setup::new(FakeReviews::default().allows("system:anonymous", "/version"));
    let running = setup.start().await;
    let reply = running.get("/version").await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND);
    assert_eq!(reply.body, "404 page not found\n");
    let asked = setup.reviews.asked.lock().clone();
    assert_eq!(asked[0].0, UserInfo::anonymous());
    assert_eq!(asked[0].1, Attributes::Path { verb: "get".to_owned(), path: "/version".to_owned() });
    assert_eq!(running.get("/").await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn open_paths_are_exact_unless_they_end_in_a_star() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.authorization.always_allow_paths =
        ["/healthz", "metrics", "/debug/controllers/*"].map(str::to_owned).to_vec();
    let running = setup.start().await;
    let open = ["/healthz", "/hea%6cthz", "/healthz?verbose", "/metrics"];
    for path in open {
        assert_eq!(running.get(path).await.status, StatusCode::OK, "{path}");
    }
    assert_eq!(running.get("/debug/controllers/x/y").await.status, StatusCode::NOT_FOUND);
    let closed = [
        "/healthz/",
        "/healthz%2f",
        "/healthz/ping",
        "/metrics/slis",
        "/livez",
        "/a/../healthz",
        "/debug/controllers",
    ];
    for path in closed {
        assert_eq!(running.get(path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(
        setup.reviews.access_count(),
        closed.len() - 1,
        "open paths ask nobody, and two are one once decoded"
    );
}

#[tokio::test]
async fn a_star_elsewhere_is_an_error() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.authorization.always_allow_paths = vec!["/a*b".to_owned()];
    let error = setup.bind().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "--authorization-always-allow-paths: \"/a*b\": only a trailing * is allowed"
    );
}

#[tokio::test]
async fn masters_may_do_everything_even_with_the_api_server_away() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    setup.reviews.break_down(true);
    let admin = running.client().with_cert(&setup.client_ca.client("admin", &["system:masters"]));
    assert_eq!(admin.get("/configz").await.status, StatusCode::OK);
    assert_eq!(admin.get("/nope").await.status, StatusCode::NOT_FOUND);
    assert_eq!(setup.reviews.access_count(), 0);
}

#[tokio::test]
async fn what_cannot_be_decided_is_500_and_asked_again() {
    let setup = Setup::new(FakeReviews::default().allows("system:anonymous", "/metrics"));
    let running = setup.start().await;
    setup.reviews.break_down(true);
    let reply = running.get("/metrics").await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(reply.body, "Internal Server Error: \"/metrics\": POST /fake: out of order\n");
    assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
    setup.reviews.break_down(false);
    assert_eq!(running.get("/metrics").await.status, StatusCode::OK);
}

#[tokio::test]
async fn judgments_are_remembered_per_user_verb_and_path() {
    let setup = Setup::new(FakeReviews::default().allows("system:anonymous", "/metrics"));
    let running = setup.start().await;
    for _ in 0..3 {
        assert_eq!(running.get("/metrics").await.status, StatusCode::OK);
        assert_eq!(running.get("/configz").await.status, StatusCode::FORBIDDEN);
    }
    assert_eq!(setup.reviews.access_count(), 2);
    running.client().send(request(Method::POST, "/metrics", &[])).await;
    assert_eq!(setup.reviews.access_count(), 3);
}

#[tokio::test]
async fn the_ttl_of_refusals_is_their_own() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.authorization.unauthorized_ttl = std::time::Duration::ZERO;
    let running = setup.start().await;
    assert_eq!(running.get("/metrics").await.status, StatusCode::FORBIDDEN);
    setup.reviews.allowed.lock().push(("system:anonymous".to_owned(), "/metrics".to_owned()));
    assert_eq!(running.get("/metrics").await.status, StatusCode::OK);
}

#[tokio::test]
async fn without_an_api_server_only_open_paths_and_masters_get_in() {
    let mut setup = Setup::new(FakeReviews::default().allows("system:anonymous", "/metrics"));
    setup.delegates = false;
    let running = setup.start().await;
    assert_eq!(running.get("/healthz").await.status, StatusCode::OK);
    assert_eq!(running.get("/metrics").await.status, StatusCode::FORBIDDEN);
    let admin = running.client().with_cert(&setup.client_ca.client("admin", &["system:masters"]));
    assert_eq!(admin.get("/metrics").await.status, StatusCode::OK);
}

#[tokio::test]
async fn services_ask_about_resources() {
    let setup = Setup::new(FakeReviews::default().allows("jane", "controllers"));
    let running = setup.start().await;
    let jane = std::sync::Arc::new(UserInfo { name: "jane".to_owned(), ..UserInfo::default() });
    let wanted = ResourceAttributes {
        verb: "update".to_owned(),
        group: "admin.coxswain.dev".to_owned(),
        version: "v1".to_owned(),
        resource: "controllers".to_owned(),
        name: "deployment-controller".to_owned(),
        ..ResourceAttributes::default()
    };
    let decision = running.authorizer.authorize_resource(&jane, wanted.clone()).await.unwrap();
    assert_eq!(decision, Decision::Allowed);
    let decision = running
        .authorizer
        .authorize_resource(&jane, ResourceAttributes { resource: "leader".to_owned(), ..wanted })
        .await;
    assert_eq!(decision.unwrap(), Decision::Denied { reason: String::new() });
}
