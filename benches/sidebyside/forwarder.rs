//! A TCP forwarder between managers and the API server that counts bytes. TLS passes through it, so that what it counts is
//! what the network would carry.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Uri;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const BUFFER: usize = 64 << 10;

/// A running forwarder; it ends when this is dropped.
pub(crate) struct Forwarder {
    /// Where managers find the API server.
    pub(crate) url: String,
    received: Arc<AtomicU64>,
    _connections: JoinSet<()>,
}

impl Forwarder {
    /// Starts in front of the API server at this URL.
    pub(crate) async fn start(server: &str) -> Self {
        let server: Uri = server.parse().expect("the API server's URL");
        let upstream = server.authority().expect("its address").to_string();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let received = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&received);
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((manager, _)) = listener.accept().await {
                open.spawn(forward(manager, upstream.clone(), Arc::clone(&count)));
                while open.try_join_next().is_some() {}
            }
        });
        Self { url, received, _connections: connections }
    }

    /// Bytes that managers have received so far.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// Goes on until both sides have ended, or either has broken.
async fn forward(manager: TcpStream, upstream: String, received: Arc<AtomicU64>) {
    // While the API server is away, managers are hung up on.
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    for stream in [&manager, &server] {
        if stream.set_nodelay(true).is_err() {
            return;
        }
    }
    let (from_manager, to_manager) = manager.into_split();
    let (from_server, to_server) = server.into_split();
    let sent = AtomicU64::new(0);
    // Whoever hangs up has its reasons.
    let _ = tokio::try_join!(copy(from_manager, to_server, &sent), copy(from_server, to_manager, &received));
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, count: &AtomicU64) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        count.fetch_add(read as u64, Ordering::Relaxed);
        to.write_all(&buffer[..read]).await?;
    }
}
