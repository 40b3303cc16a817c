//! Credentials of controllers: short-lived tokens of their service accounts, by TokenRequest.
//!
//! With `--use-service-account-credentials` each controller acts as a service account of its own in `kube-system`,
//! within the role that the API server bootstraps for it. The manager, as itself, requests the token, creates the
//! account when it is missing, and renews the token before it expires, as long as it is used. One task per account does
//! this, for all clients of it; requests only ever wait for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::HeaderValue;
use parking_lot::Mutex;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::layers::{TokenError, TokenSource, authorization};
use super::{ApiClient, ApiError, Query, RequestIntent, RequestPath};
use crate::api::kinds::SERVICE_ACCOUNTS;
use crate::latest;
use crate::model::backoff::ExponentialBackoff;
use crate::random::HashMap;

/// The namespace of controllers' service accounts.
pub(super) const NAMESPACE: &str = "kube-system";
/// The lifetime asked for, as the original does. The server may grant another.
const LIFETIME: Duration = Duration::from_hours(1);
/// How long a request waits for a token before it fails, to be tried again by whoever sent it.
const PATIENCE: Duration = Duration::from_secs(30);
/// The wait between two attempts to get a token; well within the patience of requests.
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::doubling(Duration::from_millis(500), Duration::from_secs(10));
/// The shortest time between two tokens because of a 401: the fault may not be the token's.
const RENEW_AT_MOST_EVERY: Duration = Duration::from_secs(10);

/// The tokens of all service accounts that controllers act as.
pub struct ServiceAccountTokens {
    root: ApiClient,
    accounts: Mutex<HashMap<String, Arc<AccountToken>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl fmt::Debug for ServiceAccountTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccountTokens")
            .field("accounts", &self.accounts.lock().len())
            .finish_non_exhaustive()
    }
}

impl Drop for ServiceAccountTokens {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl ServiceAccountTokens {
    /// Tokens requested through `root`, which must act as the manager itself.
    pub fn new(root: ApiClient) -> Self {
        Self { root, accounts: Mutex::default(), tasks: TaskTracker::new(), stop: CancellationToken::new() }
    }

    /// The token of `kube-system/NAME`, shared by all who ask for it. The first request that needs it begins to get it: a
    /// controller that has nothing to do asks for none.
    pub fn source(&self, name: &str) -> Arc<dyn TokenSource> {
        let mut accounts = self.accounts.lock();
        let source = accounts.entry(name.to_owned()).or_insert_with(|| {
            let source = Arc::new(AccountToken {
                name: name.to_owned(),
                state: latest::Sender::default(),
                used: Notify::new(),
                refused: Notify::new(),
                stop: self.stop.clone(),
            });
            let renewal = renew(self.root.clone(), Arc::clone(&source));
            let stop = self.stop.clone();
            drop(self.tasks.spawn(async move {
                // Ends here and not by itself: dropping the task in mid-request loses nothing.
                stop.run_until_cancelled(renewal).await;
            }));
            source
        });
        Arc::clone(source) as Arc<dyn TokenSource>
    }

    /// Whether renewing has ended.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Ends all renewing and returns when it has ended. Requests fail from now on.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// What is known of one account's token.
#[derive(Clone, Default)]
struct State {
    token: Option<Token>,
    /// Why the last attempt failed.
    failure: Option<String>,
}

#[derive(Clone)]
struct Token {
    authorization: HeaderValue,
    expires: Instant,
    refused: bool,
}

impl State {
    fn usable(&self) -> Option<&Token> {
        self.token.as_ref().filter(|token| !token.refused && Instant::now() < token.expires)
    }
}

struct AccountToken {
    name: String,
    state: latest::Sender<State>,
    /// Woken by every request; remembers one.
    used: Notify,
    refused: Notify,
    stop: CancellationToken,
}

impl AccountToken {
    fn error(&self, why: impl Into<String>) -> TokenError {
        TokenError { identity: format!("service account {NAMESPACE}/{}", self.name), why: why.into() }
    }

    async fn get(&self) -> Result<HeaderValue, TokenError> {
        self.used.notify_one();
        let mut state = self.state.subscribe();
        let usable = async {
            let state = state.wait_for(|state| state.usable().is_some()).await.ok()?;
            state.usable().map(|token| token.authorization.clone())
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(self.error("the manager is shutting down")),
            found = usable => found.ok_or_else(|| self.error("the token has just expired")),
            () = tokio::time::sleep(PATIENCE) => {
                let failure = self.state.borrow().failure.clone();
                Err(self.error(failure.unwrap_or_else(|| format!("no token was issued within {PATIENCE:?}"))))
            }
        }
    }
}

impl TokenSource for AccountToken {
    fn authorization(&self) -> BoxFuture<'_, Result<HeaderValue, TokenError>> {
        Box::pin(self.get())
    }

    fn rejected(&self, authorization: &HeaderValue) {
        let is_present = self.state.send_if_modified(|state| match &mut state.token {
            // A later one may already be in place.
            Some(token) if token.authorization == *authorization && !token.refused => {
                token.refused = true;
                true
            }
            _ => false,
        });
        if is_present {
            self.refused.notify_one();
        }
    }
}

/// Gets and renews one account's token whenever it has been used since it was got, for ever.
async fn renew(root: ApiClient, account: Arc<AccountToken>) {
    loop {
        account.used.notified().await;
        let (asked, lifetime) = replace(&root, &account).await;
        // At about 80 % of its life, not all accounts at once.
        let renew_at = asked + lifetime.mul_f64(crate::random::within(0.75..0.85));
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(renew_at) => {}
            () = account.refused.notified() => {}
        }
        tokio::time::sleep(RENEW_AT_MOST_EVERY.saturating_sub(asked.elapsed())).await;
    }
}

/// Gets a new token, however long that takes; says when it was asked for, and how long it lives from then on.
async fn replace(root: &ApiClient, account: &AccountToken) -> (Instant, Duration) {
    let mut failures = 0;
    loop {
        let asked = Instant::now();
        match request(root, &account.name).await {
            Ok((authorization, lifetime)) => {
                let token = Token { authorization, expires: asked + lifetime, refused: false };
                drop(account.state.send_replace(State { token: Some(token), failure: None }));
                return (asked, lifetime);
            }
            Err(error) => {
                let why = describe(&error);
                tracing::warn!(
                    service_account = account.name,
                    error = why,
                    "Failed to request a token; retrying"
                );
                account.state.send_modify(|state| state.failure = Some(why));
                let backoff = BACKOFF.next(&mut failures);
                // A proxy may answer `Retry-After: 0` without end.
                let pause = error.retry_after().map_or(backoff, |asked| asked.max(backoff));
                let pause = pause.mul_f64(crate::random::within(0.8..1.2));
                tokio::time::sleep(pause).await;
            }
        }
    }
}

#[derive(Deserialize)]
struct TokenRequest {
    spec: Granted,
    status: Issued,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Granted {
    expiration_seconds: Option<u32>,
}

#[derive(Deserialize)]
struct Issued {
    #[serde(deserialize_with = "secret")]
    token: SecretString,
}

fn secret<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}

/// Requests a token, for an account that is made if need be. Returns the header and how long it is good for: the
/// granted lifetime, counted from the request by our own clock, so that it need not agree with the server's.
async fn request(root: &ApiClient, name: &str) -> Result<(HeaderValue, Duration), ApiError> {
    let accounts = RequestPath::collection(&SERVICE_ACCOUNTS, NAMESPACE);
    let path = accounts.named(name).subresource(Some("token"));
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "expirationSeconds": LIFETIME.as_secs() },
    });
    let answer: TokenRequest = match root.json(RequestIntent::Create, path, Query::NONE, Some(&body)).await {
        Err(error) if error.is_not_found() => {
            let account = json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": { "name": name, "namespace": NAMESPACE },
            });
            let made: Result<serde::de::IgnoredAny, _> =
                root.json(RequestIntent::Create, accounts, Query::NONE, Some(&account)).await;
            match made {
                Err(error) if !error.is_already_exists() => return Err(error),
                _ => root.json(RequestIntent::Create, path, Query::NONE, Some(&body)).await?,
            }
        }
        answered => answered?,
    };
    let lifetime =
        answer.spec.expiration_seconds.map_or(LIFETIME, |seconds| Duration::from_secs(seconds.into()));
    let authorization = authorization(&answer.status.token).ok_or_else(|| ApiError::Malformed {
        request: format!("POST {path}"),
        what: "the token has characters that are invalid in an HTTP header".to_owned(),
    })?;
    Ok((authorization, lifetime))
}

/// The error in words. Why an answer could not be decoded stays out of it: that may quote the token.
fn describe(error: &ApiError) -> String {
    match error {
        ApiError::Malformed { request, .. } => format!("{request}: the response is not a TokenRequest"),
        other => other.to_string(),
    }
}
