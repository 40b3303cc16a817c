//! The caller's bearer token, as it is now: of a kubeconfig, a file or a credential plugin; and requests that carry it.
//!
//! A plugin runs again when its token has expired, and when a replica or the API server refuses the token. Files are read for
//! each connection. Neither errors nor `Debug` show a token.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt as _, Empty, Full};
use kube::client::ConfigExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer as _, Service, ServiceExt as _};

use super::error::CliError;
use coxswain_machinery::client::describe_kube;

/// Answers with the `Authorization` header that a user's requests carry.
type Source = BoxCloneSyncService<Request<Empty<Bytes>>, Response<Option<HeaderValue>>, BoxError>;

/// The tokens of a user, one after the other.
pub(super) struct Tokens {
    /// The user as configured, with a plugin and files.
    config: kube::Config,
    /// `--token-file`, which replaces the user's token.
    file: Option<PathBuf>,
    /// The plugin's credentials, which it gave last.
    plugin: tokio::sync::Mutex<Option<Source>>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// The tokens of the configured user, or of a file in their place. Nothing is read and no plugin runs yet.
    pub(super) fn new(config: kube::Config, file: Option<PathBuf>) -> Self {
        Self { config, file, plugin: tokio::sync::Mutex::default() }
    }

    /// Returns the token as it is now, as a header; `None` if the user has none. A plugin runs if it has not yet, or if its
    /// token has expired.
    pub(super) async fn current(&self) -> Result<Option<HeaderValue>, CliError> {
        let mut plugin = self.plugin.lock().await;
        if let Some(source) = &*plugin {
            return ask(source).await;
        }
        self.ask_anew(&mut plugin).await
    }

    /// Returns the token in the place of one that was refused; `None` if there is no other. A plugin runs again, unless it has
    /// done so for another request meanwhile.
    pub(super) async fn renewed(&self, refused: &HeaderValue) -> Result<Option<HeaderValue>, CliError> {
        let mut plugin = self.plugin.lock().await;
        if let Some(source) = &*plugin {
            let current = ask(source).await?;
            if current.as_ref() != Some(refused) {
                return Ok(current);
            }
        }
        let anew = self.ask_anew(&mut plugin).await?;
        Ok(anew.filter(|anew| anew != refused))
    }

    async fn ask_anew(&self, plugin: &mut Option<Source>) -> Result<Option<HeaderValue>, CliError> {
        let Some(source) = self.source()? else { return Ok(None) };
        let answer = ask(&source).await?;
        let user = &self.config.auth_info;
        if user.exec.is_some() || user.auth_provider.is_some() {
            *plugin = Some(source);
        }
        Ok(answer)
    }

    /// Reads files, and runs a plugin.
    fn source(&self) -> Result<Option<Source>, CliError> {
        let mut config = self.config.clone();
        let user = &mut config.auth_info;
        if let Some(path) = &self.file {
            user.token = Some(read_token(path, "--token-file")?);
        }
        if let Some(path) = user.token_file.take() {
            match read_token(Path::new(&path), "kubeconfig tokenFile") {
                Ok(token) => user.token = Some(token),
                // The token next to the file is used instead.
                Err(_) if user.token.is_some() => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(token) = user.token.take() {
            // The layer below takes it for granted that the token can be sent.
            let token = token.expose_secret().trim();
            if HeaderValue::try_from(token).is_err() {
                return Err(unusable("the token contains characters that are invalid in a header"));
            }
            user.token = Some(SecretString::from(token));
        }
        let layer = config.auth_layer().map_err(|error| unusable(&describe_kube(&error)))?;
        // The layer is for requests, and the only way to the output of a plugin.
        let echo = tower::service_fn(|request: Request<Empty<Bytes>>| async move {
            let authorization = request.headers().get(AUTHORIZATION).cloned();
            Ok::<_, BoxError>(Response::new(authorization))
        });
        Ok(layer.map(|layer| BoxCloneSyncService::new(layer.layer(echo))))
    }
}

fn unusable(why: &str) -> CliError {
    CliError::Credentials(format!("kubeconfig user: {why}"))
}

async fn ask(source: &Source) -> Result<Option<HeaderValue>, CliError> {
    // The plugin's output may hold secrets.
    let answered = source.clone().oneshot(Request::default()).await;
    let answered = answered.map_err(|_| unusable("the credential plugin failed"))?;
    let Some(mut header) = answered.into_body() else { return Ok(None) };
    header.set_sensitive(true);
    // The admin API takes no name with a password.
    Ok(secret(&header).is_some().then_some(header))
}

/// The token in a header.
pub(super) fn secret(header: &HeaderValue) -> Option<SecretString> {
    let token = header.to_str().ok()?.strip_prefix("Bearer ")?;
    (!token.is_empty()).then(|| SecretString::from(token))
}

/// Reads a token from a file that `flag` names.
pub(super) fn read_token(path: &Path, flag: &str) -> Result<SecretString, CliError> {
    let wrong = |why: &str| CliError::Credentials(format!("{flag} {}: {why}", path.display()));
    let content = std::fs::read(path).map_err(|error| wrong(&error.to_string()))?;
    let token = String::from_utf8(content).map_err(|_| wrong("not UTF-8"))?;
    match token.trim() {
        "" => Err(wrong("the file contains no token")),
        token if HeaderValue::try_from(token).is_err() => {
            Err(wrong("the token contains characters that are invalid in a header"))
        }
        token => Ok(SecretString::from(token)),
    }
}

/// A connection whose requests carry the caller's token. A request that the replica refuses as unauthenticated is sent once
/// more with a fresh token, if there is one: such a request has changed nothing.
#[derive(Clone, Debug)]
pub(super) struct Authorized {
    channel: Channel,
    tokens: Option<Arc<Tokens>>,
}

impl Authorized {
    /// Without `tokens` requests carry none.
    pub(super) fn new(channel: Channel, tokens: Option<Arc<Tokens>>) -> Self {
        Self { channel, tokens }
    }
}

impl Service<Request<Body>> for Authorized {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.channel.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let next = self.channel.clone();
        let mut channel = std::mem::replace(&mut self.channel, next);
        let Some(tokens) = self.tokens.clone() else {
            return Box::pin(async move { Ok(channel.call(request).await?) });
        };
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let message = body.collect().await?.to_bytes();
            let with = |token: &HeaderValue| {
                let mut parts = parts.clone();
                parts.headers.insert(AUTHORIZATION, token.clone());
                Request::from_parts(parts, Body::new(Full::new(message.clone())))
            };
            let unusable = |error: CliError| Status::unauthenticated(error.to_string());
            let Some(token) = tokens.current().await.map_err(unusable)? else {
                return Ok(channel.call(Request::from_parts(parts, Body::new(Full::new(message)))).await?);
            };
            let response = channel.call(with(&token)).await?;
            if !is_unauthenticated(&response) {
                return Ok(response);
            }
            match tokens.renewed(&token).await.map_err(unusable)? {
                Some(fresh) => Ok(channel.ready().await?.call(with(&fresh)).await?),
                None => Ok(response),
            }
        })
    }
}

/// Whether the answer is the status `UNAUTHENTICATED` alone.
fn is_unauthenticated(response: &Response<Body>) -> bool {
    let unauthenticated = tonic::Code::Unauthenticated as i32;
    let code = response.headers().get("grpc-status").and_then(|code| code.to_str().ok());
    response.status() == StatusCode::UNAUTHORIZED
        || code.is_some_and(|code| code == unauthenticated.to_string())
}
