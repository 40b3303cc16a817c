//! How a client sends its requests: repeated where the server asks for that, their answers read and refusals made into errors.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ETAG, HeaderValue, IF_NONE_MATCH, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tower::ServiceExt as _;

use super::api::{ApiClient, BoxError, ResponseBody};
use super::body;
use super::error::{ApiError, LONGEST_RETRY_AFTER, decode_status};
use super::layers::{ApiRequest, is_json};
use super::metadata::MetadataForm;
use super::patience::is_read;
use super::request::{self, LONGEST_ERROR, Label, RequestIntent, RequestPath, Target};

impl ApiClient {
    /// A GET of a document that is asked for again and again: `None` when it still is what `etag` names.
    pub(super) async fn document(
        &self,
        path: RequestPath<'_>,
        accept: &'static str,
        etag: Option<&HeaderValue>,
    ) -> Result<Option<(Bytes, Option<HeaderValue>)>, ApiError> {
        let intent = RequestIntent::Document;
        let (label, mut request) =
            request::build(intent, &path.into(), HeaderValue::from_static(accept), None)?;
        if let Some(etag) = etag {
            request.headers_mut().insert(IF_NONE_MATCH, etag.clone());
        }
        let response = self.dispatch(&label, request).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        let response = refuse(&label, intent, response).await?;
        let etag = response.headers().get(ETAG).cloned();
        Ok(Some((read(&label, response.into_body(), intent.body_limit()).await?, etag)))
    }

    pub(super) async fn unary(
        &self,
        intent: RequestIntent,
        target: Target<'_>,
        accept: HeaderValue,
        content: Option<(HeaderValue, Bytes)>,
    ) -> Result<(Label, Bytes), ApiError> {
        let form = MetadataForm::of(&accept);
        let (label, response) = self.send(intent, target, accept, content).await?;
        let response = refuse(&label, intent, response).await?;
        let Some(form) = form.filter(|_| is_json(response.headers())) else {
            let body = read(&label, response.into_body(), intent.body_limit()).await?;
            return Ok((label, body));
        };
        let body = read(&label, response.into_body(), form.json_limit(intent.body_limit())).await?;
        let body =
            form.in_protobuf(&body).map_err(|error| ApiError::transport(label.as_str(), error.into()))?;
        Ok((label, body))
    }

    pub(super) async fn send(
        &self,
        intent: RequestIntent,
        target: Target<'_>,
        accept: HeaderValue,
        content: Option<(HeaderValue, Bytes)>,
    ) -> Result<(Label, Response<ResponseBody>), ApiError> {
        let (label, request) = request::build(intent, &target, accept, content)?;
        let response = self.dispatch(&label, request).await?;
        Ok((label, response))
    }

    /// Sends a request, and again as long as the server refuses it and says when to come back.
    async fn dispatch(
        &self,
        label: &Label,
        mut request: ApiRequest,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let failed = |source| ApiError::transport(label.as_str(), source);
        let attempt = async |mut request: ApiRequest| {
            // A repetition gets its token as it comes to the limiter.
            if let Some(token) = self.token.as_ref().and_then(|token| token.lock().take()) {
                request.extensions_mut().insert(token);
            }
            self.service.clone().oneshot(request).await.map_err(failed)
        };
        let Some(patience) = &self.patience else { return attempt(request).await };
        let mut repeats = patience.begin(RequestIntent::of(&request), None);
        request.extensions_mut().insert(repeats.term().clone());
        loop {
            let mut response = attempt(request.clone()).await?;
            if repeats.needs_reason(response.status()) && retry_after(&response).is_some() {
                let is_known;
                (response, is_known) = with_effect(response).await.map_err(failed)?;
                if !is_known {
                    return Ok(response);
                }
            }
            let next = repeats.next(label.as_str(), response.status(), retry_after(&response));
            let Some(wait) = next.map_err(|ended| failed(ended.into()))? else { return Ok(response) };
            let code = response.status().as_u16();
            // Ended before the wait: an answer that is being read keeps a place of its connection, and holds up a gate that drains. What it
            // says matters no more, nor whether it ends well.
            drop(body::collect_start(response.into_body(), LONGEST_ERROR).await);
            tracing::debug!(request = label.as_str(), code, ?wait, "Waiting before a retry of the request");
            repeats.wait(wait).await.map_err(|ended| failed(ended.into()))?;
        }
    }

    /// Makes an attempt, and again as long as the server refuses it and says when to come back. What an attempt holds, such as a place
    /// among the requests to an API group, it does not hold during the wait. Each attempt sends one read, with the client that
    /// it is given. `shared` identifies a read that several callers share.
    pub(crate) async fn patiently<T, F>(
        &self,
        shared: Option<u64>,
        attempt: impl Fn(Self) -> F,
    ) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let attempt = |client, ()| {
            let answer = attempt(client);
            async {
                let interrupted = |error| Interrupted { error, position: (), has_advanced: false };
                answer.await.map_err(interrupted)
            }
        };
        self.patiently_from((), shared, attempt).await
    }

    /// As [`ApiClient::patiently`] for a read in several requests. An attempt begins where the last one was interrupted, and each request
    /// is repeated as often as one that is alone.
    pub(crate) async fn patiently_from<P, T, F>(
        &self,
        mut position: P,
        shared: Option<u64>,
        attempt: impl Fn(Self, P) -> F,
    ) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, Interrupted<P>>>,
    {
        let impatient = self.clone().impatient();
        let Some(patience) = &self.patience else {
            return attempt(impatient, position).await.map_err(|interrupted| interrupted.error);
        };
        let mut repeats = patience.begin(RequestIntent::Get, shared);
        loop {
            let error = match attempt(impatient.clone(), position).await {
                Ok(found) => return Ok(found),
                Err(interrupted) => {
                    position = interrupted.position;
                    if interrupted.has_advanced {
                        repeats.begin_next();
                    }
                    interrupted.error
                }
            };
            let ApiError::Refused { request, code, retry_after, .. } = &error else { return Err(error) };
            let code = StatusCode::from_u16(*code).unwrap_or_default();
            let waited = match repeats.next(request, code, *retry_after) {
                Ok(None) => return Err(error),
                Ok(Some(wait)) => {
                    tracing::debug!(%error, ?wait, "Waiting before a retry of the request");
                    repeats.wait(wait).await
                }
                Err(ended) => Err(ended),
            };
            if let Err(ended) = waited {
                return Err(ApiError::transport(request.as_str(), ended.into()));
            }
        }
    }
}

/// A read in several requests of which one was not answered well.
#[derive(Clone, Debug)]
pub(crate) struct Interrupted<P> {
    pub(crate) error: ApiError,
    /// Where the read goes on.
    pub(crate) position: P,
    /// Whether the attempt read something before.
    pub(crate) has_advanced: bool,
}

/// Reads a response to its end, if that comes within `limit` bytes.
async fn read(label: &Label, body: ResponseBody, limit: usize) -> Result<Bytes, ApiError> {
    body::collect(body, limit).await.map_err(|source| ApiError::transport(label.as_str(), source))
}

/// Reads the refusal of a write, and returns it with its body and whether the effect of the write is known. With the reason `Timeout` and any
/// status code the write may have been carried out. The reason follows the message in the body, so a body that is cut leaves the effect unknown.
///
/// # Errors
/// The body breaks off, so the effect of the write is unknown.
async fn with_effect(response: Response<ResponseBody>) -> Result<(Response<ResponseBody>, bool), BoxError> {
    let (parts, body) = response.into_parts();
    let body = body::collect_start(body, LONGEST_ERROR).await?;
    let is_known = !is_cut(&body) && decode_status(&body).reason != "Timeout";
    let body = Full::new(body).map_err(BoxError::from).boxed_unsync();
    Ok((Response::from_parts(parts, body), is_known))
}

/// Returns when the server asks to come back, [`LONGEST_RETRY_AFTER`] at most.
fn retry_after(response: &Response<ResponseBody>) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER))
}

/// Whether `body` may be the start of a longer error body.
fn is_cut(body: &Bytes) -> bool {
    body.len() >= LONGEST_ERROR
}

/// Turns an answer that is not a success into its error.
pub(super) async fn refuse(
    label: &Label,
    intent: RequestIntent,
    response: Response<ResponseBody>,
) -> Result<Response<ResponseBody>, ApiError> {
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status();
    let retry_after = retry_after(&response);
    // A longer body is cut: the status code alone says what went wrong then.
    let body = body::collect_start(response.into_body(), LONGEST_ERROR).await;
    let body = body.map_err(|source| ApiError::transport(label.as_str(), source))?;
    let may_have_timed_out = code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error();
    if !is_read(intent) && may_have_timed_out && is_cut(&body) {
        return Err(ApiError::TooLong { request: label.as_str().to_owned(), limit: LONGEST_ERROR });
    }
    Err(ApiError::refused(label.as_str(), intent, code, retry_after, &body))
}
