//! The way to the API server: straight, or through the proxy that a kubeconfig's `proxy-url` names.
//!
//! TLS is spoken with the API server, through the proxy: the proxy sees no request. It never takes a proxy from the
//! environment.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use tower::{Service, ServiceExt as _};

use super::socket::{Socket, Sockets};
use crate::client::api::BoxError;

/// A proxy, as `proxy-url` in the cluster of a kubeconfig has it.
#[derive(Clone)]
pub(crate) struct Proxy {
    protocol: Protocol,
    /// `http://HOST:PORT`, whatever the protocol.
    address: Uri,
    login: Option<Login>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// HTTP's method CONNECT.
    Http,
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
    /// Reads a `proxy-url`. What is wrong is told without quoting it, for it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Self, &'static str> {
        let url: Uri = url.parse().map_err(|_| "proxy-url is not a URL")?;
        let (protocol, usual_port) = match url.scheme_str() {
            Some("http") => (Protocol::Http, 80),
            Some("socks5") => (Protocol::Socks5, 1080),
            Some("https") => {
                return Err(
                    "proxy-url begins with https://, which is not supported: http:// and socks5:// are",
                );
            }
            _ => return Err("proxy-url must begin with http:// or socks5://"),
        };
        let host = url.host().filter(|host| !host.is_empty()).ok_or("proxy-url has no host")?;
        let authority = format!("{host}:{}", url.port_u16().unwrap_or(usual_port));
        let address = address(Scheme::HTTP, &authority).ok_or("proxy-url has no host")?;
        let login = url.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
        let login = login.map(|(login, _)| Login::parse(login)).transpose()?;
        // Their length is one byte: RFC 1929.
        let is_long = |login: &Login| login.user.len().max(login.password.expose_secret().len()) > 255;
        if protocol == Protocol::Socks5 && login.as_ref().is_some_and(is_long) {
            return Err(
                "proxy-url has a user or a password of more than 255 bytes, which socks5 does not take",
            );
        }
        Ok(Self { protocol, address, login })
    }
}

impl Login {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let decoded = |part: &str| percent_decode_str(part).decode_utf8().map(String::from);
        match (decoded(user), decoded(password)) {
            (Ok(user), Ok(password)) => Ok(Self { user, password: password.into() }),
            _ => Err("proxy-url has a user or a password that is not UTF-8"),
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

/// Makes TCP connections that lead to the API server.
#[derive(Clone)]
pub(super) struct Route {
    sockets: Sockets,
    proxy: Option<Arc<Proxy>>,
}

impl Route {
    pub(super) fn new(sockets: Sockets, proxy: Option<Arc<Proxy>>) -> Self {
        Self { sockets, proxy }
    }
}

impl Service<Uri> for Route {
    type Response = Socket;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Socket, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Some(proxy) = self.proxy.clone() else { return self.sockets.call(server) };
        let sockets = self.sockets.clone();
        Box::pin(async move {
            // Proxies are told the port: they take 443 for the usual one whatever the scheme.
            let scheme = server.scheme().cloned().unwrap_or(Scheme::HTTPS);
            let usual_port = if scheme == Scheme::HTTP { 80 } else { 443 };
            let host = server.host().unwrap_or_default();
            let authority = format!("{host}:{}", server.port_u16().unwrap_or(usual_port));
            let server = address(scheme, &authority).ok_or("the server's URL has no host")?;
            let (via, login) = (proxy.address.clone(), proxy.login.as_ref());
            match proxy.protocol {
                Protocol::Http => {
                    let mut tunnel = Tunnel::new(via, sockets);
                    if let Some(login) = login {
                        tunnel = tunnel.with_auth(login.basic()?);
                    }
                    Ok(tunnel.oneshot(server).await?)
                }
                Protocol::Socks5 => {
                    let mut socks = SocksV5::new(via, sockets);
                    if let Some(login) = login {
                        socks =
                            socks.with_auth(login.user.clone(), login.password.expose_secret().to_owned());
                    }
                    Ok(socks.oneshot(server).await?)
                }
            }
        })
    }
}
