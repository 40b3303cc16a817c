//! Bearer tokens, by TokenReview. Answers are remembered for a while under a keyed hash of the token; failures to get
//! an answer are not, and requests with the same token at the same time share one review.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use secrecy::{ExposeSecret as _, SecretString};

use crate::client::ApiError;
use crate::serve::cache::{Flights, Hasher, TtlCache};
use crate::serve::error::ServeError;
use crate::serve::reviews::Reviews;
use crate::serve::user::UserInfo;

/// Answers remembered.
const CACHED: usize = 4096;

type Answer = Option<Arc<UserInfo>>;

pub(in crate::serve) struct TokenAuthenticator {
    reviews: Arc<dyn Reviews>,
    ttl: Duration,
    hasher: Hasher,
    cache: Arc<TtlCache<Answer>>,
    flights: Flights<Result<Answer, ApiError>>,
}

impl TokenAuthenticator {
    pub(in crate::serve) fn new(reviews: Arc<dyn Reviews>, ttl: Duration) -> Result<Self, ServeError> {
        let cache = Arc::new(TtlCache::new(CACHED));
        Ok(Self { reviews, ttl, hasher: Hasher::new()?, cache, flights: Flights::default() })
    }

    /// Whose token this is. `Ok(None)`: nobody's.
    pub(super) async fn authenticate(&self, token: SecretString) -> Result<Answer, ApiError> {
        let key = self.hasher.digest([token.expose_secret().as_bytes()]);
        if let Some(answer) = self.cache.get(&key) {
            return Ok(answer);
        }
        let start = || {
            let (reviews, cache, ttl) = (Arc::clone(&self.reviews), Arc::clone(&self.cache), self.ttl);
            async move {
                let answer = reviews.token_review(&token).await?;
                let answer = answer.map(|user| Arc::new(user.authenticated()));
                cache.insert(key, answer.clone(), ttl);
                Ok(answer)
            }
            .boxed()
        };
        self.flights.join(key, start).await
    }
}

/// The token of an `Authorization: Bearer` header; another scheme or an empty token is none.
pub(super) fn bearer(headers: &HeaderMap) -> Option<SecretString> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let mut words = value.trim().splitn(3, ' ');
    let scheme = words.next()?;
    let token = words.next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case("bearer").then(|| SecretString::from(token))
}
