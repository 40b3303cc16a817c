//! Delegated authorization: paths open to all, the masters' group, and for the rest the API server's judgment.

mod paths;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;

use super::cache::{Digest, Flights, Hasher, TtlCache};
use super::error::ServeError;
use super::limit::Standing;
use super::observe::{RequestOutcome, ServeObserver};
use super::options::AuthorizationOptions;
use super::reviews::{Access, Attributes, ResourceAttributes, Reviews};
use super::user::{MASTERS, UserInfo};
use crate::client::ApiError;
pub(super) use paths::PathRules;

/// Judgments remembered, of each sort: no number of refusals drives out what was allowed.
const CACHED: usize = 4096;

/// It could not be decided; nothing is allowed that is not known to be.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{source}")]
pub struct AuthorizeError {
    /// The review that failed.
    #[from]
    pub source: ApiError,
}

/// A judgment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go ahead.
    Allowed,
    /// Not allowed.
    Denied {
        /// Why, where the authorizers said.
        reason: String,
    },
}

/// Judges what users may do. Share it in an `Arc`.
pub struct Authorizer {
    paths: PathRules,
    authorized_ttl: Duration,
    unauthorized_ttl: Duration,
    reviews: Option<Arc<dyn Reviews>>,
    observer: Arc<dyn ServeObserver>,
    hasher: Hasher,
    allowed: Arc<TtlCache<Access>>,
    denied: Arc<TtlCache<Access>>,
    standing: Arc<Standing>,
    flights: Flights<Result<Access, ApiError>>,
}

impl std::fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorizer").field("delegates", &self.reviews.is_some()).finish_non_exhaustive()
    }
}

impl Authorizer {
    /// Without `reviews` only the open paths and the masters' group are allowed anything.
    pub(super) fn new(
        options: &AuthorizationOptions,
        reviews: Option<Arc<dyn Reviews>>,
        observer: Arc<dyn ServeObserver>,
    ) -> Result<Self, ServeError> {
        if reviews.is_none() {
            tracing::warn!(
                "No client for SubjectAccessReviews (--authorization-kubeconfig); allowing only the always-allowed \
                 paths and the group system:masters"
            );
        }
        Ok(Self {
            paths: PathRules::parse(&options.always_allow_paths)?,
            authorized_ttl: options.authorized_ttl,
            unauthorized_ttl: options.unauthorized_ttl,
            reviews,
            observer,
            hasher: Hasher::new()?,
            allowed: Arc::new(TtlCache::new(CACHED)),
            denied: Arc::new(TtlCache::new(CACHED)),
            standing: Arc::new(Standing::new()),
            flights: Flights::default(),
        })
    }

    /// Whether a user may make a request for a path. `verb` is the HTTP method in lower case.
    pub async fn authorize_path(
        &self,
        user: &Arc<UserInfo>,
        verb: &str,
        path: &str,
    ) -> Result<Decision, AuthorizeError> {
        self.authorize(user, Attributes::Path { verb: verb.to_owned(), path: path.to_owned() }).await
    }

    /// Whether a user may do something with a resource.
    pub async fn authorize_resource(
        &self,
        user: &Arc<UserInfo>,
        attributes: ResourceAttributes,
    ) -> Result<Decision, AuthorizeError> {
        self.authorize(user, Attributes::Resource(attributes)).await
    }

    async fn authorize(
        &self,
        user: &Arc<UserInfo>,
        attributes: Attributes,
    ) -> Result<Decision, AuthorizeError> {
        let begun = tokio::time::Instant::now();
        let access = self.decide(user, attributes).await;
        let outcome = match &access {
            Ok(access) if access.allowed => RequestOutcome::Success,
            Ok(access) if access.denied => RequestOutcome::Denied,
            Ok(_) => RequestOutcome::Failure,
            Err(_) => RequestOutcome::Error,
        };
        self.observer.authorized(outcome, begun.elapsed());
        let Access { allowed, reason, .. } = access?;
        Ok(if allowed { Decision::Allowed } else { Decision::Denied { reason } })
    }

    async fn decide(&self, user: &Arc<UserInfo>, attributes: Attributes) -> Result<Access, AuthorizeError> {
        let open = matches!(&attributes, Attributes::Path { path, .. } if self.paths.allows(path));
        if open || user.is_in(MASTERS) {
            return Ok(Access { allowed: true, ..Access::default() });
        }
        let Some(reviews) = &self.reviews else { return Ok(Access::default()) };
        let key = self.key(user, &attributes);
        if let Some(access) = self.allowed.get(&key).or_else(|| self.denied.get(&key)) {
            return Ok(access);
        }
        let start = || {
            let (reviews, user) = (Arc::clone(reviews), Arc::clone(user));
            let (allowed, denied) = (Arc::clone(&self.allowed), Arc::clone(&self.denied));
            let standing = Arc::clone(&self.standing);
            let (authorized, unauthorized) = (self.authorized_ttl, self.unauthorized_ttl);
            async move {
                let review = reviews.subject_access_review(&user, &attributes);
                let access = standing.ask(&key, review).await?;
                if access.allowed {
                    allowed.insert(key, access.clone(), authorized);
                    standing.prove(key);
                } else {
                    denied.insert(key, access.clone(), unauthorized);
                }
                Ok(access)
            }
            .boxed()
        };
        Ok(self.flights.join(key, start).await?)
    }

    fn key(&self, user: &UserInfo, attributes: &Attributes) -> Digest {
        let mut parts: Vec<&[u8]> = vec![user.name.as_bytes(), user.uid.as_bytes()];
        for group in &user.groups {
            parts.extend([b"g".as_slice(), group.as_bytes()]);
        }
        for (name, values) in &user.extra {
            parts.extend([b"x".as_slice(), name.as_bytes()]);
            for value in values {
                parts.extend([b"v".as_slice(), value.as_bytes()]);
            }
        }
        match attributes {
            Attributes::Path { verb, path } => {
                parts.extend([b"path".as_slice(), verb.as_bytes(), path.as_bytes()]);
            }
            Attributes::Resource(of) => {
                parts.push(b"resource");
                let fields = [
                    &of.verb,
                    &of.group,
                    &of.version,
                    &of.resource,
                    &of.subresource,
                    &of.namespace,
                    &of.name,
                ];
                parts.extend(fields.map(String::as_bytes));
            }
        }
        self.hasher.digest(parts)
    }
}
