//! Bearer tokens, by TokenReview. Answers are remembered for a while under a keyed hash of the token; failures to get
//! an answer are not, and requests with the same token at the same time share one review. Tokens of nobody are remembered
//! apart, so that no number of them drives out those of somebody.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use secrecy::{ExposeSecret as _, SecretString};

use crate::client::ApiError;
use crate::serve::cache::{Flights, Hasher, TtlCache};
use crate::serve::error::ServeError;
use crate::serve::limit::Standing;
use crate::serve::reviews::Reviews;
use crate::serve::user::UserInfo;

/// Answers remembered.
const CACHED: usize = 4096;
/// Tokens of nobody remembered.
const REFUSED: usize = 1024;

type Answer = Option<Arc<UserInfo>>;

pub(in crate::serve) struct TokenAuthenticator {
    reviews: Arc<dyn Reviews>,
    ttl: Duration,
    hasher: Hasher,
    cache: Arc<TtlCache<Arc<UserInfo>>>,
    refused: Arc<TtlCache<()>>,
    standing: Arc<Standing>,
    flights: Flights<Result<Answer, ApiError>>,
}

impl TokenAuthenticator {
    pub(in crate::serve) fn new(reviews: Arc<dyn Reviews>, ttl: Duration) -> Result<Self, ServeError> {
        Ok(Self {
            reviews,
            ttl,
            hasher: Hasher::new()?,
            cache: Arc::new(TtlCache::new(CACHED)),
            refused: Arc::new(TtlCache::new(REFUSED)),
            standing: Arc::new(Standing::new()),
            flights: Flights::default(),
        })
    }

    /// Whose token this is. `Ok(None)`: nobody's.
    pub(in crate::serve) async fn authenticate(&self, token: SecretString) -> Result<Answer, ApiError> {
        let key = self.hasher.digest([token.expose_secret().as_bytes()]);
        if let Some(user) = self.cache.get(&key) {
            return Ok(Some(user));
        }
        if self.refused.get(&key).is_some() {
            return Ok(None);
        }
        let start = || {
            let (reviews, standing) = (Arc::clone(&self.reviews), Arc::clone(&self.standing));
            let (cache, refused, ttl) = (Arc::clone(&self.cache), Arc::clone(&self.refused), self.ttl);
            async move {
                let answer = standing.ask(&key, reviews.token_review(&token)).await?;
                let answer = answer.map(|user| Arc::new(user.authenticated()));
                match &answer {
                    Some(user) => {
                        cache.insert(key, Arc::clone(user), ttl);
                        standing.prove(key);
                    }
                    None => refused.insert(key, (), ttl),
                }
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
