//! Tokens of service accounts: requested once, renewed in time, and when refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::testing::{answer, mock};
use crate::client::{ApiClient, ServiceAccountTokens};

/// An API server that issues numbered tokens, for accounts that exist.
#[derive(Default)]
struct Issuer {
    account_exists: AtomicBool,
    down: AtomicBool,
    issued: AtomicUsize,
}

type Seen = Arc<Mutex<Vec<Request<Bytes>>>>;

fn tokens(issuer: &Arc<Issuer>) -> (ServiceAccountTokens, Seen) {
    let issuer = Arc::clone(issuer);
    let (service, seen) = mock(move |request| {
        let issuer = Arc::clone(&issuer);
        async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if issuer.down.load(Ordering::SeqCst) {
                return Err("connection refused".into());
            }
            assert_eq!(request.method(), Method::POST);
            Ok(match request.uri().path() {
                "/api/v1/namespaces/kube-system/serviceaccounts" => {
                    issuer.account_exists.store(true, Ordering::SeqCst);
                    answer(201, "{}")
                }
                "/api/v1/namespaces/kube-system/serviceaccounts/job-controller/token" => {
                    if issuer.account_exists.load(Ordering::SeqCst) {
                        let number = issuer.issued.fetch_add(1, Ordering::SeqCst) + 1;
                        let status = format!(
                            r#"{{"token":"t{number}","expirationTimestamp":"2000-01-01T00:00:00Z"}}"#
                        );
                        answer(201, format!(r#"{{"spec":{{"expirationSeconds":3600}},"status":{status}}}"#))
                    } else {
                        answer(404, r#"{"kind":"Status","reason":"NotFound","code":404}"#)
                    }
                }
                other => panic!("{other}"),
            })
        }
    });
    (ServiceAccountTokens::new(ApiClient::new(service, "root")), seen)
}

#[tokio::test(start_paused = true)]
async fn an_account_is_made_and_all_share_one_token() {
    let issuer = Arc::new(Issuer::default());
    let (tokens, seen) = tokens(&issuer);
    let (one, two) = (tokens.source("job-controller"), tokens.source("job-controller"));
    let both = futures::join!(one.authorization(), two.authorization());
    assert_eq!(both.0.unwrap(), "Bearer t1");
    assert_eq!(both.1.unwrap(), "Bearer t1");
    assert_eq!(issuer.issued.load(Ordering::SeqCst), 1);
    {
        let seen = seen.lock();
        assert_eq!(seen.len(), 3, "refused, account made, issued");
        let asked: serde_json::Value = serde_json::from_slice(seen[2].body()).unwrap();
        assert_eq!(asked["spec"]["expirationSeconds"], 3600);
        let made: serde_json::Value = serde_json::from_slice(seen[1].body()).unwrap();
        assert_eq!(
            (&made["metadata"]["name"], &made["metadata"]["namespace"]),
            (&"job-controller".into(), &"kube-system".into())
        );
    }
    assert!(!format!("{tokens:?}").contains("t1"));
    tokens.shutdown().await;
    let error = one.authorization().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "get token of service account kube-system/job-controller: the manager is shutting down"
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_it_expires_and_kept_while_it_cannot_be() {
    let issuer = Arc::new(Issuer { account_exists: true.into(), ..Issuer::default() });
    let (tokens, _) = tokens(&issuer);
    let source = tokens.source("job-controller");
    let began = Instant::now();
    assert_eq!(source.authorization().await.unwrap(), "Bearer t1");
    tokio::time::sleep_until(began + Duration::from_mins(44)).await;
    assert_eq!(source.authorization().await.unwrap(), "Bearer t1");
    issuer.down.store(true, Ordering::SeqCst);
    tokio::time::sleep_until(began + Duration::from_mins(59)).await;
    assert_eq!(source.authorization().await.unwrap(), "Bearer t1", "the old one is still good");
    tokio::time::sleep_until(began + Duration::from_mins(61)).await;
    let error = source.authorization().await.unwrap_err();
    assert!(error.why.contains("connection refused"), "{error}");
    issuer.down.store(false, Ordering::SeqCst);
    assert_eq!(source.authorization().await.unwrap(), "Bearer t2", "waits until there is one");
    tokio::time::sleep(Duration::from_mins(52)).await;
    assert_eq!(source.authorization().await.unwrap(), "Bearer t3", "renewed unasked");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_nobody_uses_is_not_asked_for() {
    let issuer = Arc::new(Issuer { account_exists: true.into(), ..Issuer::default() });
    let (tokens, seen) = tokens(&issuer);
    let source = tokens.source("job-controller");
    for number in 1..4 {
        tokio::time::sleep(Duration::from_hours(3)).await;
        assert_eq!(seen.lock().len(), number - 1);
        assert_eq!(source.authorization().await.unwrap(), format!("Bearer t{number}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_renewed_once_and_not_all_the_time() {
    let issuer = Arc::new(Issuer { account_exists: true.into(), ..Issuer::default() });
    let (tokens, _) = tokens(&issuer);
    let source = tokens.source("job-controller");
    let first = source.authorization().await.unwrap();
    source.rejected(&HeaderValue::from_static("Bearer another"));
    assert_eq!(source.authorization().await.unwrap(), first);
    let began = Instant::now();
    for _ in 0..5 {
        source.rejected(&first);
    }
    assert_eq!(source.authorization().await.unwrap(), "Bearer t2");
    assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
    source.rejected(&first);
    assert_eq!(
        source.authorization().await.unwrap(),
        "Bearer t2",
        "an old refusal says nothing of the new one"
    );
    for number in 3..6 {
        let held = source.authorization().await.unwrap();
        let began = Instant::now();
        source.rejected(&held);
        assert_eq!(source.authorization().await.unwrap(), format!("Bearer t{number}"));
        assert!(began.elapsed() > Duration::from_secs(9), "a server that refuses everything is not flooded");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_may_go_away_and_renewing_ends_with_its_owner() {
    let issuer = Arc::new(Issuer { account_exists: true.into(), ..Issuer::default() });
    let (tokens, seen) = tokens(&issuer);
    let source = tokens.source("job-controller");
    {
        let mut waiting = source.authorization();
        assert!(futures::poll!(&mut waiting).is_pending());
    }
    assert_eq!(source.authorization().await.unwrap(), "Bearer t1");
    drop(tokens);
    tokio::time::sleep(Duration::from_hours(3)).await;
    assert_eq!(seen.lock().len(), 1);
    source.authorization().await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_token_is_requested_with_backoff_although_a_proxy_asks_for_no_pause() {
    let (service, seen) = mock(|_| async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut response = answer(503, r#"{"kind":"Status","code":503}"#);
        response.headers_mut().insert("retry-after", HeaderValue::from_static("0"));
        Ok(response)
    });
    let tokens = ServiceAccountTokens::new(ApiClient::new(service, "root"));
    let source = tokens.source("job-controller");
    drop(tokio::time::timeout(Duration::from_mins(1), source.authorization()).await);
    tokio::time::sleep(Duration::from_mins(10)).await;
    let requests = seen.lock().len();
    assert!((10..400).contains(&requests), "{requests} requests in 11 minutes");
    tokens.shutdown().await;
}
