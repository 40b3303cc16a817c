//! Connections that lead to the API server, through a proxy if there is one.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use secrecy::ExposeSecret;
use tower::{Service, ServiceExt as _};

use super::{Protocol, Proxy, address};
use crate::client::api::BoxError;
use crate::client::transport::socket::{Socket, Sockets};

/// A proxy, and how TLS is spoken with it.
pub(in crate::client::transport) struct Way {
    proxy: Proxy,
    /// The cluster's authorities and the user's certificate, as the original has it; the name is the proxy's own.
    tls: Arc<rustls::ClientConfig>,
}

impl Way {
    pub(in crate::client::transport) fn new(proxy: Proxy, tls: &rustls::ClientConfig) -> Self {
        let mut tls = tls.clone();
        // CONNECT is of HTTP/1.1, and no proxy needs to be told so.
        tls.alpn_protocols.clear();
        Self { proxy, tls: Arc::new(tls) }
    }
}

/// Makes connections that lead to the API server: of TCP, or of TLS with a proxy that wants it.
#[derive(Clone)]
pub(in crate::client::transport) struct Route {
    sockets: Sockets,
    way: Option<Arc<Way>>,
}

impl Route {
    pub(in crate::client::transport) fn new(sockets: Sockets, way: Option<Arc<Way>>) -> Self {
        Self { sockets, way }
    }
}

impl Service<Uri> for Route {
    type Response = MaybeHttpsStream<Socket>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Self { sockets, way } = self.clone();
        Box::pin(async move {
            match way {
                None => Ok(MaybeHttpsStream::Http(sockets.oneshot(server).await?)),
                Some(way) => through(&way, sockets, &server).await,
            }
        })
    }
}

async fn through(way: &Way, sockets: Sockets, server: &Uri) -> Result<MaybeHttpsStream<Socket>, BoxError> {
    let Way { proxy, tls } = way;
    // Proxies are told the port: they take 443 for the usual one whatever the scheme.
    let scheme = server.scheme().cloned().unwrap_or(Scheme::HTTPS);
    let usual_port = if scheme == Scheme::HTTP { 80 } else { 443 };
    let host = server.host().unwrap_or_default();
    let authority = format!("{host}:{}", server.port_u16().unwrap_or(usual_port));
    let server = address(scheme, &authority).ok_or("the server URL has no host")?;
    let (via, login) = (proxy.address.clone(), proxy.login.as_ref());
    match proxy.protocol {
        Protocol::Http | Protocol::Https => {
            // The scheme of its address decides whether TLS is spoken with it.
            let mut tunnel = Tunnel::new(via, HttpsConnector::from((sockets, Arc::clone(tls))));
            if let Some(login) = login {
                tunnel = tunnel.with_auth(login.basic()?);
            }
            Ok(tunnel.oneshot(server).await?)
        }
        Protocol::Socks5 => {
            let mut socks = SocksV5::new(via, sockets);
            if let Some(login) = login {
                socks = socks.with_auth(login.user.clone(), login.password.expose_secret().to_owned());
            }
            Ok(MaybeHttpsStream::Http(socks.oneshot(server).await?))
        }
    }
}
