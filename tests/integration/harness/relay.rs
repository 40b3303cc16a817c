//! A network between a manager and the API server that can be made to swallow everything: no packet passes, no side is told.
//!
//! Bytes pass as they are. A sender's kernel keeps what the network does not take, and sends it again when packets pass once
//! more. Here the relay keeps it, for it cannot leave packets unacknowledged: what came meanwhile goes on when the network
//! is back, but for a connection that the sender has reset. A kernel that has reset a connection has nothing left to send.

#![allow(clippy::disallowed_types, reason = "tests and benchmarks have an order of their own")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ControlPlane;

/// A running relay; it ends when this is dropped.
pub(crate) struct Relay {
    /// Where it listens.
    pub(crate) url: String,
    counts: Arc<Counts>,
    swallows: watch::Sender<bool>,
    _connections: JoinSet<()>,
}

/// Bytes of managers that came while everything was swallowed, and what became of them.
#[derive(Debug, Default)]
struct Counts {
    kept: AtomicUsize,
    taken_back: AtomicUsize,
    sent_late: AtomicUsize,
}

impl Relay {
    /// Starts in front of the API server of `plane`.
    pub(crate) async fn start(plane: &ControlPlane) -> Self {
        let server = plane.server();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let (swallows, state) = watch::channel(false);
        let counts = Arc::<Counts>::default();
        let mut connections = JoinSet::new();
        let kept = Arc::clone(&counts);
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                open.spawn(pass(near, server, state.clone(), Arc::clone(&kept)));
                while open.try_join_next().is_some() {}
            }
        });
        Self { url, counts, swallows, _connections: connections }
    }

    /// From now on nothing passes.
    pub(crate) fn swallow(&self) {
        self.swallows.send_replace(true);
    }

    /// From now on everything passes, and what senders stand by of what came before.
    pub(crate) fn pass_on(&self) {
        self.swallows.send_replace(false);
    }

    /// How many bytes came while everything was swallowed.
    pub(crate) fn kept(&self) -> usize {
        self.counts.kept.load(Ordering::SeqCst)
    }

    /// Of how many of these nothing is known yet: whether they are sent, or were taken back.
    pub(crate) fn undecided(&self) -> usize {
        let Counts { kept, taken_back, sent_late } = &*self.counts;
        kept.load(Ordering::SeqCst) - taken_back.load(Ordering::SeqCst) - sent_late.load(Ordering::SeqCst)
    }
}

async fn pass(near: TcpStream, server: SocketAddr, swallows: watch::Receiver<bool>, counts: Arc<Counts>) {
    let Ok(far) = TcpStream::connect(server).await else { return };
    for end in [&near, &far] {
        end.set_nodelay(true).expect("a socket");
        // What one side breaks off is broken off to the other.
        end.set_zero_linger().expect("a socket");
    }
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.into_split(), far.into_split());
    let mut answers = swallows.clone();
    let back = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = far_in.read(&mut buffer).await {
            if answers.wait_for(|swallows| !swallows).await.is_err() {
                return;
            }
            if near_out.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    };
    let mut requests = swallows;
    let there = async {
        let (mut buffer, mut kept, mut open) = (vec![0; 16 << 10], Vec::new(), true);
        loop {
            let swallowing = *requests.borrow_and_update();
            if !swallowing && !kept.is_empty() {
                // A reset that has arrived is found before anything is sent.
                match near_in.try_read(&mut buffer) {
                    Ok(0) => open = false,
                    Ok(count) => {
                        counts.kept.fetch_add(count, Ordering::SeqCst);
                        kept.extend_from_slice(&buffer[..count]);
                        continue;
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => break,
                }
                if far_out.write_all(&kept).await.is_err() {
                    break;
                }
                counts.sent_late.fetch_add(std::mem::take(&mut kept).len(), Ordering::SeqCst);
            }
            if !open && !swallowing {
                break;
            }
            tokio::select! {
                biased;
                changed = requests.changed() => if changed.is_err() { break },
                read = near_in.read(&mut buffer), if open => match read {
                    Ok(0) => open = false,
                    Ok(count) if swallowing => {
                        counts.kept.fetch_add(count, Ordering::SeqCst);
                        kept.extend_from_slice(&buffer[..count]);
                    }
                    Ok(count) => if far_out.write_all(&buffer[..count]).await.is_err() { break },
                    Err(_) => break,
                },
            }
        }
        counts.taken_back.fetch_add(kept.len(), Ordering::SeqCst);
    };
    // An answer that is not wanted any more is no reason to lose what was asked.
    let mut there = std::pin::pin!(there);
    tokio::select! {
        () = &mut there => {}
        () = back => there.await,
    }
}
