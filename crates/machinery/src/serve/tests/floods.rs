//! Questions without end: what they cost the API server and the log, and who notices.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tower::service_fn;
use tower::util::BoxCloneSyncService;

use super::fixtures::FakeReviews;
use crate::client::{ApiClient, BoxError};
use crate::serve::authn::TokenAuthenticator;
use crate::serve::limit::STRANGERS;
use crate::serve::*;

const TTL: Duration = Duration::from_secs(10);
/// More than any cache holds.
const MANY: usize = 10_000;

fn random(n: usize) -> SecretString {
    format!("random-{n}").into()
}

#[tokio::test(start_paused = true)]
async fn tokens_of_nobody_drive_out_nobody_s() {
    let reviews = Arc::new(FakeReviews::default().knows("good", "robot"));
    let tokens = TokenAuthenticator::new(Arc::clone(&reviews) as _, TTL, Arc::new(Unobserved)).unwrap();
    assert!(tokens.authenticate("good".into()).await.unwrap().is_some());
    for n in 0..MANY {
        assert_eq!(tokens.authenticate(random(n)).await.unwrap(), None);
    }
    assert!(tokens.authenticate("good".into()).await.unwrap().is_some());
    assert_eq!(reviews.token_count(), MANY + 1);
}

#[tokio::test(start_paused = true)]
async fn refusals_drive_out_nothing_that_was_allowed() {
    let reviews = Arc::new(FakeReviews::default().allows("jane", "/metrics"));
    let authorizer = Authorizer::new(
        &AuthorizationOptions::default(),
        Some(Arc::clone(&reviews) as _),
        Arc::new(Unobserved),
    );
    let (authorizer, nobody) = (authorizer.unwrap(), Arc::new(UserInfo::anonymous()));
    let jane = Arc::new(UserInfo { name: "jane".to_owned(), ..UserInfo::default() });
    let allowed = async || authorizer.authorize_path(&jane, "get", "/metrics").await.unwrap();
    assert_eq!(allowed().await, Decision::Allowed);
    for n in 0..MANY {
        let refused = authorizer.authorize_path(&nobody, "get", &format!("/{n}")).await.unwrap();
        assert_ne!(refused, Decision::Allowed);
    }
    assert_eq!(allowed().await, Decision::Allowed);
    assert_eq!(reviews.access_count(), MANY + 1);
}

#[tokio::test(start_paused = true)]
async fn who_was_let_in_before_is_asked_about_when_strangers_may_not_be() {
    let reviews = Arc::new(FakeReviews::default().knows("good", "robot"));
    let tokens =
        TokenAuthenticator::new(Arc::clone(&reviews) as _, Duration::ZERO, Arc::new(Unobserved)).unwrap();
    assert!(tokens.authenticate("good".into()).await.unwrap().is_some());
    let gate = Arc::new(Semaphore::new(0));
    *reviews.gate.lock() = Some(Arc::clone(&gate));
    let mut crowd: Vec<_> = (0..STRANGERS).map(|n| Box::pin(tokens.authenticate(random(n)))).collect();
    assert!(crowd.iter_mut().all(|each| each.now_or_never().is_none()));
    assert!(tokens.authenticate(random(STRANGERS)).await.is_err(), "the room is full");
    let mut good = Box::pin(tokens.authenticate("good".into()));
    assert!((&mut good).now_or_never().is_none(), "it waits for an answer");
    gate.add_permits(Semaphore::MAX_PERMITS / 2);
    assert!(good.await.unwrap().is_some());
    for each in crowd {
        assert_eq!(each.await.unwrap(), None);
    }
    assert!(tokens.authenticate(random(STRANGERS)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_questions_take_seconds() {
    let service = service_fn(|_: Request<Full<bytes::Bytes>>| async {
        let body = Full::new(bytes::Bytes::from_static(br#"{"status": {"user": {}}}"#));
        let body = body.map_err(|never| -> BoxError { match never {} }).boxed_unsync();
        Ok::<_, BoxError>(Response::builder().status(201).body(body)?)
    });
    let reviews =
        ApiReviews::new(ApiClient::new(BoxCloneSyncService::new(service), "test"), Arc::new(Unobserved));
    let began = tokio::time::Instant::now();
    for n in 0..1000 {
        assert_eq!(reviews.token_review(&random(n)).await.unwrap(), None);
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(2900), "600 more than the burst, at 200 a second: {took:?}");
}
