//! What a peer gets of connections that it does not read from, when they are cut, dropped or left alone.
//!
//! The peer reads in blocking mode, on the only thread: what becomes of a connection becomes of it without its runtime.

use std::future::poll_fn;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream as Peer};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::client::fence::Guards;

async fn connect(sockets: Sockets) -> (Socket, Peer) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let socket = sockets.oneshot(server).await.unwrap();
    (socket, listener.accept().unwrap().0)
}

async fn fenced() -> (Socket, Peer, Arc<Fence>) {
    let fence = Arc::new(Fence::default());
    let (socket, peer) = connect(Sockets::new(Some(Arc::clone(&fence)))).await;
    (socket, peer, fence)
}

/// Writes until the kernel takes no more; how many bytes it took.
async fn fill(socket: &mut Socket) -> usize {
    let (mut taken, bytes) = (0, vec![7; 1 << 16]);
    poll_fn(|cx| {
        while let Poll::Ready(written) = Pin::new(&mut *socket).poll_write(cx, &bytes) {
            taken += written.unwrap();
        }
        Poll::Ready(())
    })
    .await;
    taken
}

/// How many bytes a peer gets to the end, and whether the end is a proper one.
fn read(mut peer: Peer) -> (usize, bool) {
    let (mut got, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        match peer.read(&mut buffer) {
            Ok(0) => return (got, true),
            Ok(count) => got += count,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
                return (got, false);
            }
        }
    }
}

#[tokio::test]
async fn what_the_kernel_holds_is_sent_after_the_end_without_a_fence() {
    let (mut socket, peer) = connect(Sockets::new(None)).await;
    let taken = fill(&mut socket).await;
    drop(socket);
    assert_eq!(read(peer), (taken, true), "this is what the others are there to prevent");
}

#[tokio::test]
async fn a_cut_drops_what_the_kernel_holds_and_needs_no_runtime() {
    let (mut socket, peer, fence) = fenced().await;
    let taken = fill(&mut socket).await;
    fence.cut();
    let (got, ended) = read(peer);
    assert!(got < taken && !ended, "{got} of {taken}");
    // Only now does who serves the connection hear of it.
    let error = poll_fn(|cx| Pin::new(&mut socket).poll_write(cx, b"more")).await.unwrap_err();
    assert!(error.to_string().starts_with("connection closed: leadership was lost"), "{error}");
    assert!(
        poll_fn(|cx| {
            let mut space = [0; 8];
            let mut buffer = hyper::rt::ReadBuf::new(&mut space);
            Pin::new(&mut socket).poll_read(cx, buffer.unfilled())
        })
        .await
        .is_err()
    );
}

#[tokio::test]
async fn a_connection_for_writes_that_is_dropped_is_reset_however_that_comes() {
    let (mut socket, peer, fence) = fenced().await;
    let taken = fill(&mut socket).await;
    drop(socket);
    let (got, ended) = read(peer);
    assert!(got < taken && !ended, "{got} of {taken}");
    assert_eq!(format!("{fence:?}"), "Fence { cut: false, sockets: 0, .. }", "nothing is left of it");
}

/// A process that is frozen can do nothing; its kernel does this.
#[tokio::test]
async fn the_kernel_gives_up_by_itself_what_is_not_taken() {
    let mut sockets = Sockets::new(Some(Arc::default()));
    sockets.http.set_tcp_user_timeout(Some(UNACKNOWLEDGED / 100));
    let (mut socket, peer) = connect(sockets).await;
    let taken = fill(&mut socket).await;
    socket.stream.inner().readable().await.unwrap();
    let (got, ended) = read(peer);
    assert!(got < taken && !ended, "{got} of {taken}");
}

#[tokio::test]
async fn what_may_not_be_sent_is_not_whoever_has_let_it_in() {
    let guards = Guards::default();
    let protected = Arc::new(AtomicBool::new(true));
    let guard = Arc::clone(&protected);
    guards.add(Arc::new(move || guard.load(Ordering::SeqCst)));
    let fence = Arc::new(Fence::new(guards));
    let (mut socket, peer) = connect(Sockets::new(Some(Arc::clone(&fence)))).await;
    let mut write =
        async |bytes: &'static [u8]| poll_fn(|cx| Pin::new(&mut socket).poll_write(cx, bytes)).await;
    assert_eq!(write(b"before").await.unwrap(), 6);
    protected.store(false, Ordering::SeqCst);
    write(b"after").await.unwrap_err();
    protected.store(true, Ordering::SeqCst);
    assert_eq!(write(b"again").await.unwrap(), 5);
    fence.cut();
    write(b"never").await.unwrap_err();
    drop(socket);
    assert!(read(peer).0 <= "beforeagain".len());
}

#[tokio::test]
async fn a_fence_that_was_cut_takes_no_connection_up() {
    let fence = Arc::new(Fence::default());
    fence.cut();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let error = Sockets::new(Some(fence)).oneshot(server).await.err().unwrap();
    assert!(error.to_string().starts_with("connection closed: leadership was lost"), "{error}");
}
