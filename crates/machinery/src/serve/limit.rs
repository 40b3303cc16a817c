//! How much callers can make of others: reviews of the API server, and lines of the log.
//!
//! Who shows random tokens, or asks for random paths, makes a review each: no cache helps. So reviews have a rate, as the
//! original's clients have, and those that nobody was allowed lately wait in a room of their own, which is small. Whoever was
//! let in before is asked about before them, in effect, however many they are.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

use super::cache::{Digest, TtlCache};
use crate::client::ApiError;
use crate::model::bucket::{BucketLevel, TokenBucket};

/// The original's: so many a second, and so many at once after a quiet while.
const RATE: f64 = 200.0;
const BURST: u32 = 400;
/// Requests that are under way at the same time.
const IN_FLIGHT: usize = 200;
/// Requests that are under way or wait.
const MOST: usize = 1024;
/// Of these, by those about whom nothing good is known, for each sort of question on each port.
pub(super) const STRANGERS: usize = 256;
/// For how long it is remembered that an answer was good.
const PROVEN: Duration = Duration::from_hours(1);
/// Answers of which that is remembered.
const PROVEN_MOST: usize = 4096;

/// A review that is not made because there are too many.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("too many pending reviews at the API server")]
struct Crowded;

fn crowded() -> ApiError {
    ApiError::Transport { request: "review".to_owned(), source: Arc::new(Crowded) }
}

/// The rate of requests for reviews.
#[derive(Debug)]
pub(super) struct ReviewLimit {
    began: Instant,
    /// Whoever holds it is next: the lock is fair, and a request that is given up takes nothing.
    turn: tokio::sync::Mutex<BucketLevel>,
    in_flight: Semaphore,
    places: Semaphore,
}

/// A request that may be made now.
pub(super) struct ReviewPermit<'a> {
    _place: SemaphorePermit<'a>,
    _in_flight: SemaphorePermit<'a>,
}

impl ReviewLimit {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            turn: tokio::sync::Mutex::default(),
            in_flight: Semaphore::new(IN_FLIGHT),
            places: Semaphore::new(MOST),
        }
    }

    /// Waits until a request may be made. It counts as under way until the permit is dropped.
    pub(super) async fn enter(&self) -> Result<ReviewPermit<'_>, ApiError> {
        let place = self.places.try_acquire().map_err(|_full| crowded())?;
        // It is never closed.
        let in_flight = self.in_flight.acquire().await.map_err(|_closed| crowded())?;
        let bucket = TokenBucket::per_second(RATE, BURST);
        let mut level = self.turn.lock().await;
        loop {
            let wait = bucket.wait_for(*level, self.began.elapsed(), 1);
            if wait.is_zero() {
                break;
            }
            sleep(wait).await;
        }
        bucket.reserve(&mut level, self.began.elapsed());
        Ok(ReviewPermit { _place: place, _in_flight: in_flight })
    }
}

/// Which questions were answered well lately, and how many others may be asked at the same time.
pub(super) struct Standing {
    proven: TtlCache<()>,
    strangers: Arc<Semaphore>,
}

impl Standing {
    pub(super) fn new() -> Self {
        Self { proven: TtlCache::new(PROVEN_MOST), strangers: Arc::new(Semaphore::new(STRANGERS)) }
    }

    /// An answer was good: the same question is no stranger's from now on.
    pub(super) fn prove(&self, key: Digest) {
        self.proven.insert(key, (), PROVEN);
    }

    /// What makes an answer, after a place was found for the question if it needs one.
    pub(super) async fn ask<T>(
        &self,
        key: &Digest,
        question: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        if self.proven.get(key).is_some() {
            return question.await;
        }
        let _place = self.strangers.try_acquire().map_err(|_full| crowded())?;
        question.await
    }
}

/// Lines of a sort in the log, of which only so many are written: any client can bring them about at will.
#[derive(Debug)]
pub struct Lines {
    began: Instant,
    state: Mutex<(BucketLevel, u64)>,
}

/// One line a second, and ten at once after a quiet while.
const LINE_EVERY: Duration = Duration::from_secs(1);
const LINES_AT_ONCE: u32 = 10;
/// Bytes of what a client wrote that are quoted in a line.
const QUOTED: usize = 200;

impl Default for Lines {
    fn default() -> Self {
        Self { began: Instant::now(), state: Mutex::default() }
    }
}

impl Lines {
    /// Whether a line is to be written now, and how many were not since the last one.
    pub fn next(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let (level, left_out) = &mut *state;
        if TokenBucket::new(LINE_EVERY, LINES_AT_ONCE).take(level, self.began.elapsed()) {
            return Some(std::mem::take(left_out));
        }
        *left_out += 1;
        None
    }
}

/// What of a client's words goes into a line.
pub fn quoted(text: &str) -> &str {
    &text[..text.floor_char_boundary(QUOTED)]
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::join_all;
    use tokio::task::unconstrained;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reviews_have_the_originals_rate() {
        let limit = ReviewLimit::new();
        let began = Instant::now();
        for _ in 0..BURST {
            drop(limit.enter().await.unwrap());
        }
        assert!(began.elapsed().is_zero(), "at once");
        assert!(unconstrained(limit.enter()).now_or_never().is_none());
        for _ in 0..200 {
            drop(limit.enter().await.unwrap());
        }
        let took = began.elapsed().as_millis();
        assert!((995..=1300).contains(&took), "{took} ms for 200 more");
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_takes_nothing() {
        let limit = ReviewLimit::new();
        for _ in 0..BURST {
            drop(limit.enter().await.unwrap());
        }
        for _ in 0..10_000 {
            assert!(unconstrained(limit.enter()).now_or_never().is_none());
        }
        let began = Instant::now();
        drop(limit.enter().await.unwrap());
        assert!(began.elapsed() < Duration::from_millis(20), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_under_way_or_wait() {
        let limit = ReviewLimit::new();
        let held: Vec<_> = join_all((0..IN_FLIGHT).map(|_| limit.enter())).await;
        let mut waiting: Vec<_> = (0..MOST - IN_FLIGHT).map(|_| Box::pin(limit.enter())).collect();
        assert!(waiting.iter_mut().all(|each| each.now_or_never().is_none()));
        assert!(limit.enter().await.is_err(), "there is no place left");
        drop(held);
        let let_in = waiting.into_iter().map(|each| async { each.await.is_ok() });
        assert!(join_all(let_in).await.into_iter().all(|is_in| is_in));
    }

    #[tokio::test]
    async fn strangers_have_a_room_of_their_own() {
        let standing = Standing::new();
        standing.prove([1; 32]);
        let pending = || std::future::pending::<Result<(), ApiError>>();
        let mut room: Vec<_> = (0..STRANGERS).map(|_| Box::pin(standing.ask(&[2; 32], pending()))).collect();
        assert!(room.iter_mut().all(|each| each.now_or_never().is_none()));
        let answer = || std::future::ready(Ok::<_, ApiError>(7));
        assert!(standing.ask(&[3; 32], answer()).await.is_err());
        assert_eq!(standing.ask(&[1; 32], answer()).await.unwrap(), 7);
        room.pop();
        assert_eq!(standing.ask(&[3; 32], answer()).await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn lines_are_few_and_say_how_many_are_not_there() {
        let lines = Lines::default();
        let written: Vec<_> = (0..1000).filter_map(|_| lines.next()).collect();
        assert_eq!(written, [0; 10]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((lines.next(), lines.next()), (Some(990), None));
        let path = format!("/{}", "ä".repeat(5000));
        assert!(quoted(&path).len() <= QUOTED && path.starts_with(quoted(&path)));
        assert_eq!(quoted("/healthz"), "/healthz");
    }
}
