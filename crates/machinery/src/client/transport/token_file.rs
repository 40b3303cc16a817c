//! A bearer token in a file that somebody renews: a pod's own, or a kubeconfig's `tokenFile`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use http::HeaderValue;
use secrecy::SecretString;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::client::config::TokenFile;
use crate::client::layers::{TokenError, TokenSource, authorization};
use crate::environment::Threads;

/// How old what was read may get. The kubelet renews a pod's token long before it expires.
const READ_EVERY: Duration = Duration::from_mins(1);

/// The token in a file, read again every minute. When the file cannot be read, the last token stays in use: some
/// take the file away after the start.
pub(super) struct FileToken {
    file: TokenFile,
    threads: Threads,
    held: Mutex<Option<(HeaderValue, Instant)>>,
    refused: AtomicBool,
}

impl FileToken {
    pub(super) fn new(file: TokenFile, threads: Threads) -> Self {
        Self { file, threads, held: Mutex::new(None), refused: AtomicBool::new(false) }
    }

    async fn read(&self) -> Result<HeaderValue, String> {
        let path = self.file.path.clone();
        let read = self.threads.blocking(|| std::fs::read_to_string(path)).await;
        let token = read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        authorization(&SecretString::from(token))
            .ok_or_else(|| "holds what cannot be sent as a token".to_owned())
    }

    async fn get(&self) -> Result<HeaderValue, TokenError> {
        let mut held = self.held.lock().await;
        if let Some((value, read)) = &*held
            && read.elapsed() < READ_EVERY
            && !self.refused.swap(false, Ordering::Relaxed)
        {
            return Ok(value.clone());
        }
        let path = self.file.path.display();
        let value = match (self.read().await, &*held) {
            (Ok(value), _) => value,
            (Err(why), Some((value, _))) => {
                tracing::warn!(file = %path, error = why, "token file cannot be read, keeping the last token");
                value.clone()
            }
            (Err(why), None) => self
                .file
                .fallback
                .as_ref()
                .and_then(authorization)
                .ok_or_else(|| TokenError { identity: format!("the token file {path}"), why })?,
        };
        *held = Some((value.clone(), Instant::now()));
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
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_renewed_file_is_read_again_and_a_lost_one_is_survived() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let source = FileToken::new(TokenFile { path: path.clone(), fallback: None }, Threads::Own);
        let error = source.authorization().await.unwrap_err();
        assert!(error.to_string().contains("token file"), "{error}");

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
}
