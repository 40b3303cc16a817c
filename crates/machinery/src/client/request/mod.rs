//! Requests, built from typed parts: an intent, a path of segments, a query of pairs and a body.
//!
//! This is the only place of the workspace that makes a URL for the API server (`src/tidy/requests.rs` checks that). The
//! client encodes what callers pass, so the name of an object never changes a path's structure or becomes a query.
//! Layers read the [`RequestIntent`] and never the text of the URI.

mod intent;
mod path;
mod query;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Request, Uri};
use http_body_util::Full;
use tokio_tungstenite::tungstenite::Error as WebSocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::error::ApiError;
use super::layers::ApiRequest;

pub(super) use intent::LONGEST_ERROR;
pub(crate) use intent::LONGEST_OBJECT;
pub use intent::RequestIntent;
pub(super) use path::{ESCAPED, Layout, Part};
pub use path::{InvalidPath, RequestPath, RequestUri};
pub use query::{FieldSelector, Query};

/// A request's intent and the positions of the parts in its path. Travels in the request's extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose {
    pub(super) intent: RequestIntent,
    pub(super) layout: Layout,
}

/// The verb and the path of a request, for errors. Shares its memory with the URI.
#[derive(Clone, Debug)]
pub(super) struct Label(Bytes);

impl Label {
    pub(super) fn as_str(&self) -> &str {
        // The bytes were taken from a `String`, so this does not fail.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Where a request goes.
pub(super) enum Target<'a> {
    /// A path and a query that are still to be encoded.
    Parts(RequestPath<'a>, &'a Query<'a>),
    /// A URI that was encoded earlier.
    Uri(&'a RequestUri),
}

impl<'a> From<(RequestPath<'a>, &'a Query<'a>)> for Target<'a> {
    fn from((path, query): (RequestPath<'a>, &'a Query<'a>)) -> Self {
        Self::Parts(path, query)
    }
}

impl<'a> From<RequestPath<'a>> for Target<'a> {
    fn from(path: RequestPath<'a>) -> Self {
        Self::Parts(path, Query::NONE)
    }
}

/// Builds a request. Verb, path and query are written into one buffer, which the URI and the label share.
///
/// # Errors
/// [`ApiError::Unaddressable`] when a segment of the path is not legal or the URI is longer than [`LONGEST_URI`].
pub(super) fn build(
    intent: RequestIntent,
    target: &Target<'_>,
    accept: HeaderValue,
    content: Option<(HeaderValue, Bytes)>,
) -> Result<(Label, ApiRequest), ApiError> {
    let method = intent.method();
    let mut text = String::with_capacity(match target {
        Target::Parts(path, query) => method.as_str().len() + 1 + path.length() + query.length(),
        Target::Uri(uri) => method.as_str().len() + 1 + uri.as_str().len(),
    });
    text.push_str(method.as_str());
    text.push(' ');
    let start = text.len();
    let (layout, label_end) = match target {
        Target::Parts(path, query) => {
            let layout = path.encode(&mut text).map_err(|error| ApiError::Unaddressable {
                request: format!("{method} {path}").chars().take(LONGEST_LABEL).collect(),
                what: error.to_string(),
            })?;
            let label_end = text.len();
            query.encode(&mut text);
            (layout, label_end)
        }
        Target::Uri(uri) => {
            text.push_str(uri.as_str());
            (uri.layout(), start + uri.path_length())
        }
    };
    let text = Bytes::from(text);
    let label = Label(text.slice(..label_end));
    let unaddressable = |what: String| ApiError::Unaddressable {
        request: label.as_str().chars().take(LONGEST_LABEL).collect(),
        what,
    };
    let uri = text.slice(start..);
    if uri.len() > LONGEST_URI {
        return Err(unaddressable(format!("the request URI has more than {LONGEST_URI} bytes")));
    }
    let uri = Uri::from_maybe_shared(uri).map_err(|error| unaddressable(error.to_string()))?;
    let (content_type, body) = content.unzip();
    let mut request = Request::new(Full::new(body.unwrap_or_default()));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    request.extensions_mut().insert(Purpose { intent, layout });
    let headers = request.headers_mut();
    headers.insert(ACCEPT, accept);
    if let Some(content_type) = content_type {
        headers.insert(CONTENT_TYPE, content_type);
    }
    Ok((label, request))
}

/// Builds the handshake of a WebSocket to `server`, below the path that the server's URL may have.
///
/// # Errors
/// The server's URL has no host, or the URI is too long.
pub(super) fn web_socket(server: &Uri, uri: &RequestUri) -> Result<Request<()>, WebSocketError> {
    let scheme = if server.scheme() == Some(&Scheme::HTTP) { "ws" } else { "wss" };
    let authority = server.authority().map_or("", Authority::as_str);
    let text = format!("{scheme}://{authority}{}{uri}", server.path().trim_end_matches('/'));
    text.into_client_request()
}

/// Bytes of a URI without the server's address. The `http` crate takes 65,534, of which a server's base path needs some.
const LONGEST_URI: usize = 60 << 10;

/// Characters of a label that an error shows when the request cannot be built.
const LONGEST_LABEL: usize = 512;
