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
use crate::serve::cache::{Digest, Flights, Hasher, TtlCache};
use crate::serve::error::ServeError;
use crate::serve::limit::Standing;
use crate::serve::observe::ServeObserver;
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
    observer: Arc<dyn ServeObserver>,
}

/// Something that is counted while it lasts, also if nobody waits for its end.
struct Lasting<'a>(&'a dyn ServeObserver, fn(&dyn ServeObserver, i64));

impl<'a> Lasting<'a> {
    fn begin(observer: &'a dyn ServeObserver, count: fn(&dyn ServeObserver, i64)) -> Self {
        count(observer, 1);
        Self(observer, count)
    }
}

impl Drop for Lasting<'_> {
    fn drop(&mut self) {
        self.1(self.0, -1);
    }
}

impl TokenAuthenticator {
    pub(in crate::serve) fn new(
        reviews: Arc<dyn Reviews>,
        ttl: Duration,
        observer: Arc<dyn ServeObserver>,
    ) -> Result<Self, ServeError> {
        Ok(Self {
            observer,
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
        let begun = tokio::time::Instant::now();
        let key = self.hasher.digest([token.expose_secret().as_bytes()]);
        let remembered =
            self.cache.get(&key).map(Some).or_else(|| self.refused.get(&key).is_some().then_some(None));
        let is_remembered = remembered.is_some();
        let answer = match remembered {
            Some(answer) => Ok(answer),
            None => self.ask(key, token).await,
        };
        self.observer.token_looked_up(is_remembered, begun.elapsed());
        answer
    }

    /// Asks whose token this is, together with whoever asks the same.
    async fn ask(&self, key: Digest, token: SecretString) -> Result<Answer, ApiError> {
        let start = || {
            let observer = Arc::clone(&self.observer);
            let (reviews, standing) = (Arc::clone(&self.reviews), Arc::clone(&self.standing));
            let (cache, refused, ttl) = (Arc::clone(&self.cache), Arc::clone(&self.refused), self.ttl);
            async move {
                let _lasts = Lasting::begin(&*observer, <dyn ServeObserver>::tokens_fetched);
                let answer = standing.ask(&key, reviews.token_review(&token)).await;
                observer.token_fetched(answer.as_ref().is_ok_and(Option::is_some));
                let answer = answer?.map(|user| Arc::new(user.authenticated()));
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
        let _lasts = Lasting::begin(&*self.observer, <dyn ServeObserver>::tokens_wait);
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
