//! A bearer token in a file that somebody renews: a pod's own, or a kubeconfig's `tokenFile`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use http::HeaderValue;
use secrecy::SecretString;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::client::config::TokenFile;
use crate::client::layers::{TokenError, TokenSource, authorization};
use crate::environment::Threads;

/// How old what was read may get. The kubelet renews a pod's token long before it expires.
const READ_EVERY: Duration = Duration::from_mins(1);

/// How long a request waits for the file before there is a token.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a request waits for the file while the last token is there. A mount that hangs must not use up the request's own time: a
/// renewal of the Lease has 10 seconds by default.
const PATIENCE_WITH_TOKEN: Duration = Duration::from_secs(1);

type Reading = BoxFuture<'static, std::io::Result<String>>;

/// The token in a file, read again every minute. When the file cannot be read, the last token stays in use: some
/// take the file away after the start.
pub(super) struct FileToken {
    file: TokenFile,
    begin: Box<dyn Fn() -> Reading + Send + Sync>,
    state: Mutex<State>,
    refused: AtomicBool,
}

#[derive(Default)]
struct State {
    held: Option<(HeaderValue, Instant)>,
    /// The read under way. It occupies a thread until the file answers, so requests join it, also when the one that began it has timed out.
    reading: Option<Reading>,
}

impl FileToken {
    pub(super) fn new(file: TokenFile, threads: Threads) -> Self {
        let path = file.path.clone();
        let begin = move || -> Reading {
            let path = path.clone();
            Box::pin(async move {
                let read = threads.blocking(|| std::fs::read_to_string(path)).await;
                read.map_err(std::io::Error::other)?
            })
        };
        Self::read_by(file, begin)
    }

    fn read_by(file: TokenFile, begin: impl Fn() -> Reading + Send + Sync + 'static) -> Self {
        Self { file, begin: Box::new(begin), state: Mutex::default(), refused: AtomicBool::new(false) }
    }

    async fn read(&self, state: &mut State) -> Result<HeaderValue, String> {
        let patience = if state.held.is_some() { PATIENCE_WITH_TOKEN } else { PATIENCE };
        let reading = state.reading.get_or_insert_with(|| (self.begin)());
        let Ok(read) = timeout(patience, reading).await else {
            return Err(format!("the read timed out after {} s", patience.as_secs()));
        };
        state.reading = None;
        let token = read.map_err(|error| error.to_string())?;
        authorization(&SecretString::from(token))
            .ok_or_else(|| "the token has characters that are invalid in an HTTP header".to_owned())
    }

    async fn get(&self) -> Result<HeaderValue, TokenError> {
        let mut state = self.state.lock().await;
        if let Some((value, read)) = &state.held
            && read.elapsed() < READ_EVERY
            && !self.refused.swap(false, Ordering::Relaxed)
        {
            return Ok(value.clone());
        }
        let path = self.file.path.display();
        let value = match (self.read(&mut state).await, &state.held) {
            (Ok(value), _) => value,
            (Err(why), Some((value, _))) => {
                tracing::warn!(file = %path, error = why, "Failed to read the token file; keeping the previous token");
                value.clone()
            }
            (Err(why), None) => self
                .file
                .fallback
                .as_ref()
                .and_then(authorization)
                .ok_or_else(|| TokenError { identity: format!("file {path}"), why })?,
        };
        state.held = Some((value.clone(), Instant::now()));
        Ok(value)
    }
}

impl TokenSource for FileToken {
    fn authorization(&self) -> BoxFuture<'_, Result<HeaderValue, TokenError>> {
        Box::pin(self.get())
    }

    fn rejected(&self, _: &HeaderValue) {
        self.refused.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use futures::FutureExt as _;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_renewed_file_is_read_again_and_a_lost_one_is_survived() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let source = FileToken::new(TokenFile { path: path.clone(), fallback: None }, Threads::Own);
        let error = source.authorization().await.unwrap_err();
        assert!(error.to_string().contains("get token of file"), "{error}");

        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(source.authorization().await.unwrap(), "Bearer one");
        std::fs::write(&path, "two").unwrap();
        assert_eq!(source.authorization().await.unwrap(), "Bearer one", "not yet due");
        tokio::time::advance(READ_EVERY).await;
        assert_eq!(source.authorization().await.unwrap(), "Bearer two");
        std::fs::write(&path, "three").unwrap();
        source.rejected(&HeaderValue::from_static("Bearer two"));
        assert_eq!(source.authorization().await.unwrap(), "Bearer three", "a refusal has it read at once");
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(READ_EVERY).await;
        assert_eq!(source.authorization().await.unwrap(), "Bearer three");
    }

    #[tokio::test]
    async fn an_inline_token_stands_in_for_a_file_never_read() {
        let file = TokenFile { path: "/does/not/exist".into(), fallback: Some("inline".to_owned().into()) };
        assert_eq!(FileToken::new(file, Threads::Own).authorization().await.unwrap(), "Bearer inline");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_hangs_is_read_once_however_many_requests_time_out() {
        let (begun, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counted, gate) = (Arc::clone(&begun), Arc::clone(&answers));
        let file = TokenFile { path: "/mnt/token".into(), fallback: None };
        let source = FileToken::read_by(file, move || {
            let number = counted.fetch_add(1, Ordering::Relaxed) + 1;
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                Ok(format!("t{number}"))
            }
            .boxed()
        });
        let within = |limit: u64| timeout(Duration::from_secs(limit), source.authorization());
        assert!(within(1).await.is_err(), "the request has timed out");
        let error = within(60).await.unwrap().unwrap_err();
        assert!(error.to_string().contains("timed out after 10 s"), "{error}");
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        answers.notify_one();
        assert_eq!(within(60).await.unwrap().unwrap(), "Bearer t1");
        tokio::time::advance(READ_EVERY).await;
        assert_eq!(within(5).await.unwrap().unwrap(), "Bearer t1", "the last token is kept, and soon");
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }
}
