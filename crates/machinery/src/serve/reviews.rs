//! What the port asks the API server: who a token's bearer is, what a user may do, and whose certificates to trust.
//!
//! [`ApiReviews`] asks over an [`ApiClient`]; tests answer by themselves. Nothing is remembered here.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::limit::ReviewLimit;
use super::observe::{ReviewKind, ServeObserver};
use super::user::UserInfo;
use crate::api::kinds::CONFIG_MAPS;
use crate::client::{ApiClient, ApiError, Query, RequestIntent, RequestPath};
use crate::model::backoff::ExponentialBackoff;

/// What a user wants to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// A request for a path.
    Path {
        /// The HTTP method, in lower case.
        verb: String,
        /// The path, decoded.
        path: String,
    },
    /// Something with a resource.
    Resource(ResourceAttributes),
}

/// Something that a user wants to do with a resource. Empty fields match as in a SubjectAccessReview: no namespace is
/// a cluster-scoped resource, no name is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceAttributes {
    /// `get`, `list`, `watch`, `update` …
    pub verb: String,
    /// API group.
    pub group: String,
    /// Version; `*` for any.
    pub version: String,
    /// Resource, in the plural.
    pub resource: String,
    /// Subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// Namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { verb, path } => write!(f, "{verb} path {path:?}"),
            Self::Resource(resource) => {
                write!(f, "{} resource {:?}", resource.verb, resource.resource)?;
                if !resource.subresource.is_empty() {
                    write!(f, " subresource {:?}", resource.subresource)?;
                }
                if !resource.name.is_empty() {
                    write!(f, " {:?}", resource.name)?;
                }
                write!(f, " in API group {:?}", resource.group)
            }
        }
    }
}

/// The answer to a SubjectAccessReview.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Whether it is denied, whatever else allows it; never with `allowed`.
    pub denied: bool,
    /// Why, when the authorizers said.
    pub reason: String,
}

/// The API server, as far as the port needs it.
pub trait Reviews: Send + Sync + 'static {
    /// Whose token this is. `Ok(None)`: nobody's.
    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
    ) -> BoxFuture<'a, Result<Option<UserInfo>, ApiError>>;

    /// Whether a user may do this.
    fn subject_access_review<'a>(
        &'a self,
        user: &'a UserInfo,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Access, ApiError>>;

    /// The data of the ConfigMap `kube-system/extension-apiserver-authentication`. `Ok(None)`: there is none.
    fn authentication_config(&self) -> BoxFuture<'_, Result<Option<BTreeMap<String, String>>, ApiError>>;
}

/// The ConfigMap with the certificate authorities of aggregated API servers.
const AUTHENTICATION_CONFIG: RequestPath<'static> =
    RequestPath::object(&CONFIG_MAPS, "kube-system", "extension-apiserver-authentication");

/// How long one request may take.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// How often a request is made before its failure is reported.
const ATTEMPTS: u32 = 5;
/// The pause before the next try.
const PAUSE: ExponentialBackoff =
    ExponentialBackoff { base: Duration::from_millis(500), factor: 1.5, longest: REQUEST_TIME };

/// Reviews made by the API server, over a client that may create them, at the original's rate.
#[derive(Clone)]
pub struct ApiReviews {
    client: ApiClient,
    limit: Arc<ReviewLimit>,
    observer: Arc<dyn ServeObserver>,
}

impl fmt::Debug for ApiReviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiReviews").field("client", &self.client).finish_non_exhaustive()
    }
}

impl ApiReviews {
    /// Over this client: that of `--authentication-kubeconfig` or `--authorization-kubeconfig`.
    pub fn new(client: ApiClient, observer: Arc<dyn ServeObserver>) -> Self {
        Self { client, limit: Arc::new(ReviewLimit::new()), observer }
    }

    /// Asks once, when it may.
    async fn ask<B: Serialize + Sync, A: DeserializeOwned>(
        &self,
        what: ReviewKind,
        path: RequestPath<'_>,
        query: &Query<'_>,
        review: &B,
    ) -> Result<A, ApiError> {
        let _permit = self.limit.enter().await?;
        let begun = tokio::time::Instant::now();
        let answer = self.client.json(RequestIntent::Create, path, query, Some(review)).await;
        let status = match &answer {
            Ok(_) => Some(StatusCode::CREATED.as_u16()),
            Err(ApiError::Refused { code, .. }) => Some(*code),
            Err(_) => None,
        };
        self.observer.reviewed(what, status, begun.elapsed());
        answer
    }
}

impl Reviews for ApiReviews {
    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
    ) -> BoxFuture<'a, Result<Option<UserInfo>, ApiError>> {
        async move {
            let review = TokenReview {
                api_version: "authentication.k8s.io/v1",
                kind: "TokenReview",
                spec: TokenReviewSpec { token: token.expose_secret() },
            };
            let ask = || self.ask(ReviewKind::Token, RequestPath::TOKEN_REVIEWS, Query::NONE, &review);
            let answer: Answer<TokenReviewStatus> = with_retries(ask, RequestPath::TOKEN_REVIEWS).await?;
            let status = answer.status;
            if !status.error.is_empty() {
                let request = format!("POST {}", RequestPath::TOKEN_REVIEWS);
                return Err(ApiError::Malformed { request, what: status.error });
            }
            Ok(status.authenticated.then(|| status.user.into()))
        }
        .boxed()
    }

    fn subject_access_review<'a>(
        &'a self,
        user: &'a UserInfo,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Access, ApiError>> {
        async move {
            let (resource_attributes, non_resource_attributes) = match attributes {
                Attributes::Path { verb, path } => (None, Some(PathAttributes { verb, path })),
                Attributes::Resource(resource) => (Some(resource), None),
            };
            let review = AccessReview {
                api_version: "authorization.k8s.io/v1",
                kind: "SubjectAccessReview",
                spec: AccessReviewSpec {
                    resource_attributes,
                    non_resource_attributes,
                    user: &user.name,
                    uid: &user.uid,
                    groups: &user.groups,
                    extra: &user.extra,
                },
            };
            let query = Query::default().with("timeout", "10s");
            let ask = || self.ask(ReviewKind::Access, RequestPath::ACCESS_REVIEWS, &query, &review);
            let answer: Answer<AccessReviewStatus> = with_retries(ask, RequestPath::ACCESS_REVIEWS).await?;
            let status = answer.status;
            if !status.evaluation_error.is_empty() {
                tracing::debug!(
                    error = status.evaluation_error,
                    "An access review returned an evaluation error"
                );
            }
            let AccessReviewStatus { allowed, denied, reason, .. } = status;
            Ok(Access { allowed: allowed && !denied, denied, reason })
        }
        .boxed()
    }

    fn authentication_config(&self) -> BoxFuture<'_, Result<Option<BTreeMap<String, String>>, ApiError>> {
        async move {
            let asked = self.client.json::<(), ConfigMap>(
                RequestIntent::Get,
                AUTHENTICATION_CONFIG,
                Query::NONE,
                None,
            );
            match limited(asked, &format!("GET {AUTHENTICATION_CONFIG}")).await {
                Ok(map) => Ok(Some(map.data)),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }
}

async fn limited<T>(request: impl Future<Output = Result<T, ApiError>>, label: &str) -> Result<T, ApiError> {
    match timeout(REQUEST_TIME, request).await {
        Ok(answer) => answer,
        Err(_elapsed) => Err(ApiError::Timeout { request: label.to_owned(), after: REQUEST_TIME }),
    }
}

/// Asks again when the server was not able to answer, after pauses that grow from half a second. A server that is
/// not there at all is reported at once, as in the original.
async fn with_retries<T, F>(ask: impl Fn() -> F, path: RequestPath<'_>) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let label = format!("POST {path}");
    let mut failures = 0;
    loop {
        let error = match limited(ask(), &label).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let pause = PAUSE.next(&mut failures);
        if failures == ATTEMPTS || !is_retriable(&error) {
            return Err(error);
        }
        let jittered = pause.mul_f64(1.0 + 0.2 * crate::random::fraction());
        sleep(error.retry_after().map_or(jittered, |asked| asked.min(REQUEST_TIME))).await;
    }
}

fn is_retriable(error: &ApiError) -> bool {
    match error {
        ApiError::Refused { code, .. } => {
            matches!(code, 429 | 500 | 503 | 504) || error.retry_after().is_some()
        }
        ApiError::Transport { source, .. } => was_reset(source.as_ref()),
        ApiError::Timeout { .. }
        | ApiError::Malformed { .. }
        | ApiError::TooLong { .. }
        | ApiError::Unaddressable { .. } => false,
    }
}

/// Whether the connection was cut under a request, as when an API server stops behind a load balancer.
fn was_reset(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::ConnectionReset) {
            return true;
        }
        next = error.source();
    }
    false
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: TokenReviewSpec<'a>,
}

#[derive(Serialize)]
struct TokenReviewSpec<'a> {
    token: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccessReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: AccessReviewSpec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccessReviewSpec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_attributes: Option<&'a ResourceAttributes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    non_resource_attributes: Option<PathAttributes<'a>>,
    user: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

#[derive(Serialize)]
struct PathAttributes<'a> {
    verb: &'a str,
    path: &'a str,
}

/// Only the status of a review is read: its spec echoes the token.
#[derive(Deserialize)]
struct Answer<S> {
    status: S,
}

#[derive(Deserialize)]
struct TokenReviewStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    error: String,
    #[serde(default)]
    user: ReviewedUser,
}

#[derive(Deserialize, Default)]
struct ReviewedUser {
    #[serde(default)]
    username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

impl From<ReviewedUser> for UserInfo {
    fn from(user: ReviewedUser) -> Self {
        Self { name: user.username, uid: user.uid, groups: user.groups, extra: user.extra }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccessReviewStatus {
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    denied: bool,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    evaluation_error: String,
}

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
}
