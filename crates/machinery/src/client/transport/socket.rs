//! TCP connections, those for writes behind a fence.
//!
//! TLS lies above: what is looked at here is the last thing before the system call, bytes that TLS and HTTP/2 held back
//! included.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{Service, ServiceExt};

use crate::client::api::BoxError;
use crate::client::fence::{Behind, Fence};

/// Silence after which the kernel asks whether the peer is still there.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(30);
/// For how long the kernel goes on sending what a peer does not acknowledge, on a connection for writes: it does so even
/// while this process is frozen. As long as an answer to a ping may take.
pub(super) const UNACKNOWLEDGED: Duration = Duration::from_secs(15);

/// Makes TCP connections, all behind the same fence, or behind none.
#[derive(Clone)]
pub(super) struct Sockets {
    http: HttpConnector,
    fence: Option<Arc<Fence>>,
}

impl Sockets {
    pub(super) fn new(fence: Option<Arc<Fence>>) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_keepalive(Some(TCP_KEEP_ALIVE));
        if fence.is_some() {
            http.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        }
        Self { http, fence }
    }
}

impl Service<Uri> for Sockets {
    type Response = Socket;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Socket, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Self { http, fence } = self.clone();
        Box::pin(async move {
            let stream = http.oneshot(server).await?;
            let behind = match fence {
                None => None,
                Some(fence) => {
                    // However this process ends, what is not sent by then is not sent.
                    stream.inner().set_zero_linger()?;
                    Some(fence.take_up(stream.inner())?)
                }
            };
            Ok(Socket { stream, behind })
        })
    }
}

/// A TCP connection.
pub(super) struct Socket {
    stream: TokioIo<TcpStream>,
    behind: Option<Behind>,
}

impl Socket {
    fn check(&self) -> io::Result<()> {
        self.behind.as_ref().map_or(Ok(()), Behind::check)
    }
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }
}

#[cfg(test)]
mod tests;
