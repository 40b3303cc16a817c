//! The way to the API server: straight, or through a proxy.
//!
//! A kubeconfig's `proxy-url` names it, else the variables of the environment do, as for the original. TLS is spoken
//! with the API server, through the proxy: the proxy sees no request.

mod route;
mod variables;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};

pub(super) use self::route::{Route, Way};
pub(crate) use self::variables::Variables;

/// A proxy, as `proxy-url` in the cluster of a kubeconfig has it, or a variable.
#[derive(Clone)]
pub(crate) struct Proxy {
    protocol: Protocol,
    /// Scheme, host and port; of SOCKS the scheme is `http`, for want of another.
    address: Uri,
    login: Option<Login>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// HTTP's method CONNECT.
    Http,
    /// The same over TLS with the proxy.
    Https,
    /// SOCKS version 5; the proxy looks names up.
    Socks5,
}

#[derive(Clone)]
struct Login {
    user: String,
    password: SecretString,
}

/// Without the login.
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, address, .. } = self;
        f.debug_struct("Proxy").field("protocol", protocol).field("address", address).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Reads a URL. What is wrong with it is told, without quoting it, for it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Self, &'static str> {
        let url: Uri = url.parse().map_err(|_| "is not a URL")?;
        let (protocol, scheme, usual_port) = match url.scheme_str() {
            Some("http") => (Protocol::Http, Scheme::HTTP, 80),
            Some("https") => (Protocol::Https, Scheme::HTTPS, 443),
            // Here the proxy looks names up in any case.
            Some("socks5" | "socks5h") => (Protocol::Socks5, Scheme::HTTP, 1080),
            _ => return Err("must begin with http://, https:// or socks5://"),
        };
        let host = url.host().filter(|host| !host.is_empty()).ok_or("has no host")?;
        let authority = format!("{host}:{}", url.port_u16().unwrap_or(usual_port));
        let address = address(scheme, &authority).ok_or("has no host")?;
        let login = url.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
        let login = login.map(|(login, _)| Login::parse(login)).transpose()?;
        // Their length is one byte: RFC 1929.
        let is_long = |login: &Login| login.user.len().max(login.password.expose_secret().len()) > 255;
        if protocol == Protocol::Socks5 && login.as_ref().is_some_and(is_long) {
            return Err("has a user or password of more than 255 bytes, the limit of SOCKS5");
        }
        Ok(Self { protocol, address, login })
    }

    /// Where it is, without the login: for log lines.
    pub(crate) fn shown(&self) -> &str {
        self.address.authority().map_or("", Authority::as_str)
    }
}

impl Login {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let decoded = |part: &str| percent_decode_str(part).decode_utf8().map(String::from);
        match (decoded(user), decoded(password)) {
            (Ok(user), Ok(password)) => Ok(Self { user, password: password.into() }),
            _ => Err("has a user or password that is not UTF-8"),
        }
    }

    /// The value of `Proxy-Authorization`: RFC 7617.
    fn basic(&self) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
        let pair = format!("{}:{}", self.user, self.password.expose_secret());
        HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))
    }
}

fn address(scheme: Scheme, authority: &str) -> Option<Uri> {
    let authority: Authority = authority.parse().ok()?;
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme);
    parts.authority = Some(authority);
    parts.path_and_query = Some(PathAndQuery::from_static("/"));
    Uri::from_parts(parts).ok()
}
