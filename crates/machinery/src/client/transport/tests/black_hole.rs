//! A leader in a black hole, at each moment of a write: from some byte on nothing passes, and nobody is told.
//!
//! The peer stops to read in the middle of the TLS handshake, of the request's head, of its body, or of the answer. From the
//! moment on at which the Lease does not protect the write any more, not one byte of it may leave: when the network comes
//! back before the loss is noticed, or when the write is cut.

use std::pin::pin;
use std::sync::atomic::AtomicUsize;

use futures::FutureExt as _;
use futures::future::{self, FusedFuture as _};
use rustix::io::ioctl_fionread;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tower::Layer as _;

use super::*;
use crate::client::api::HttpService;
use crate::client::layers::{With, WriteGate};

const LIMIT: Duration = Duration::from_secs(30);
/// From one moment to the next, in bytes: less than any part of a write.
const STEP: usize = 61;
/// A body of a few records.
const BODY: usize = 2000;

/// How many bytes a connection lets pass to the server, and from it.
#[derive(Clone, Copy, Debug)]
struct Passes {
    up: usize,
    down: usize,
}

const ALL: Passes = Passes { up: usize::MAX, down: usize::MAX };

/// A connection that has swallowed all it may: both its ends, from which nobody reads any more.
struct Swallowed {
    near: TcpStream,
    far: TcpStream,
}

/// What comes after the end of protection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// The network is back.
    Back,
    /// The write is cut.
    Cut,
}

/// The next connection: how much passes, and who is to have it then.
type Next = (Passes, oneshot::Sender<Swallowed>);

/// A network before a server. Connections that nobody has asked for pass all.
struct Network {
    url: String,
    next: mpsc::Sender<Next>,
    /// Bytes that passed since they were last taken.
    up: Arc<AtomicUsize>,
    down: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Network {
    async fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let target = server.url.trim_start_matches("https://").to_owned();
        let (next, mut asked) = mpsc::channel::<Next>(1);
        let (up, down) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut tasks = JoinSet::new();
        let counts = (Arc::clone(&up), Arc::clone(&down));
        tasks.spawn(async move {
            let mut carried = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&target).await.unwrap();
                let asked = asked.try_recv().ok();
                carried.spawn(carry(near, far, asked, counts.clone()));
            }
        });
        Self { url, next, up, down, _tasks: tasks }
    }

    fn taken(&self) -> Passes {
        Passes { up: self.up.swap(0, Ordering::SeqCst), down: self.down.swap(0, Ordering::SeqCst) }
    }
}

async fn carry(
    near: TcpStream,
    far: TcpStream,
    asked: Option<Next>,
    (up, down): (Arc<AtomicUsize>, Arc<AtomicUsize>),
) {
    let (passes, swallowed) = asked.unzip();
    let passes = passes.unwrap_or(ALL);
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        biased;
        () = pass(&mut near_in, &mut far_out, passes.up, &up) => {}
        () = pass(&mut far_in, &mut near_out, passes.down, &down) => {}
    }
    if let Some(swallowed) = swallowed {
        let near = near_in.reunite(near_out).unwrap();
        let held = Swallowed { near, far: far_in.reunite(far_out).unwrap() };
        // Nobody waits for a connection that was done before.
        drop(swallowed.send(held));
    }
}

/// Passes bytes on until there were so many, or there are no more.
async fn pass(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, most: usize, count: &AtomicUsize) {
    let (mut left, mut buffer) = (most, vec![0; 16 << 10]);
    while left > 0 {
        let space = buffer.len().min(left);
        let Ok(read @ 1..) = from.read(&mut buffer[..space]).await else { return };
        count.fetch_add(read, Ordering::SeqCst);
        left -= read;
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// What still comes to a peer that did not read, to the end; and whether that is a proper one.
async fn read_to_end(mut near: TcpStream) -> (usize, bool) {
    let (mut got, mut buffer) = (0, vec![0; 16 << 10]);
    loop {
        match near.read(&mut buffer).await {
            Ok(0) => return (got, true),
            Ok(count) => got += count,
            Err(_) => return (got, false),
        }
    }
}

async fn write(gate: WriteGate, below: HttpService) -> Result<Bytes, BoxError> {
    let mut request = request("/write");
    *request.method_mut() = http::Method::POST;
    *request.body_mut() = Full::new(Bytes::from(vec![b'x'; BODY]));
    let response = With(gate).layer(below).oneshot(request).await?;
    Ok(response.into_body().collect().await?.to_bytes())
}

/// Swallows a write after so many bytes, and ends its protection; whether it was done all the same.
async fn swallow(network: &Network, transport: &Transport, passes: Passes, then: Then) -> bool {
    let gate = WriteGate::new();
    let protected = Arc::new(AtomicBool::new(true));
    let guard = Arc::clone(&protected);
    gate.guard(Arc::new(move || guard.load(Ordering::SeqCst)));
    let (swallowed, stopped) = oneshot::channel();
    network.next.send((passes, swallowed)).await.unwrap();
    let mut writing = Box::pin(write(gate.clone(), HttpService::new(transport.service())));
    let Swallowed { near, far } = tokio::select! {
        biased;
        done = &mut writing => {
            done.unwrap();
            return true;
        }
        stopped = stopped => stopped.unwrap(),
    };

    // The Lease is over and nobody has noticed yet. This is the only thread: what is there now left before.
    protected.store(false, Ordering::SeqCst);
    let left = usize::try_from(ioctl_fionread(&near).unwrap()).unwrap();
    let (got, done) = match then {
        Then::Back => go_on(near, far, writing).await,
        Then::Cut => {
            gate.cut();
            let done = timeout(LIMIT, writing).await.unwrap();
            let (got, ended) = timeout(LIMIT, read_to_end(near)).await.unwrap();
            assert!(!ended, "{passes:?}: the connection is reset");
            (got, done)
        }
    };
    assert!(got <= left, "{passes:?}, {then:?}: {got} bytes for {left}");
    assert_eq!(gate.in_flight(), 0, "{passes:?}, {then:?}");
    done.is_ok()
}

/// The network is back: how much it still gets for the server, and what becomes of the write.
async fn go_on<T>(near: TcpStream, far: TcpStream, writing: impl Future<Output = T>) -> (usize, T) {
    let got = AtomicUsize::default();
    let done = {
        let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.into_split(), far.into_split());
        let down = AtomicUsize::default();
        let up = pass(&mut near_in, &mut far_out, usize::MAX, &got);
        let mut back = pin!(future::join(up, pass(&mut far_in, &mut near_out, usize::MAX, &down)).fuse());
        let mut writing = pin!(timeout(LIMIT, writing).fuse());
        let done = loop {
            tokio::select! {
                biased;
                done = &mut writing => break done.unwrap(),
                _ = &mut back => {}
            }
        };
        for _ in 0..50 {
            if !back.is_terminated() {
                let _ = futures::poll!(&mut back);
            }
            tokio::task::yield_now().await;
        }
        done
    };
    (got.into_inner(), done)
}

#[tokio::test]
async fn nothing_leaves_after_the_end_of_protection_at_whatever_byte_that_comes() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    for protocols in [H2, &["http/1.1"]] {
        let server = Server::https(&pki, protocols, echo()).await;
        let network = Network::before(&server).await;
        let transport = connect(&network.url, &pki, "token: x", dir.path()).await;
        ask(&transport).await.unwrap();
        // A session is resumed from the second connection on.
        write(WriteGate::new(), HttpService::new(transport.service())).await.unwrap();
        network.taken();
        write(WriteGate::new(), HttpService::new(transport.service())).await.unwrap();
        let whole = network.taken();
        assert!(whole.up > BODY && whole.down > STEP, "{whole:?}");

        let ups = (0..whole.up).step_by(STEP).map(|up| Passes { up, ..ALL });
        let downs = (0..whole.down).step_by(STEP).map(|down| Passes { down, ..ALL });
        let (mut tried, mut done) = (0, 0);
        for passes in ups.chain(downs) {
            for then in [Then::Back, Then::Cut] {
                tried += 1;
                done += usize::from(swallow(&network, &transport, passes, then).await);
            }
        }
        assert!(done > 0 && done < tried, "{done} of {tried} were done");
    }
}
