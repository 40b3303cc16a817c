//! A connection to a port of a pod, through the API server: `pods/portforward` over a WebSocket.
//!
//! API server and kubelet carry bytes, as a router does: a caller that has something to hide speaks TLS with the pod inside of the
//! connection. In the subprotocol `v4.channel.k8s.io` each message begins with the number of a channel: 0 carries data, 1 carries
//! errors. The first message of either channel is the port in two bytes, the lower one first.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{Sink as _, Stream as _};
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderValue, Request};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::config::Connection;
use super::request::{InvalidPath, Query, RequestPath, web_socket};
use super::transport::connect_http1;
use crate::api::kinds::PODS;
use crate::wire::json::read_json;

/// The subprotocol.
const CHANNELS: &str = "v4.channel.k8s.io";
/// Channel of bytes in both directions.
const DATA: u8 = 0;
/// Channel of errors from the kubelet.
const ERRORS: u8 = 1;
/// Bytes of a message that are accepted. Kubelets send up to 32 KiB.
const LONGEST_MESSAGE: usize = 1 << 20;
/// Bytes that may wait for a peer that does not read. Beyond this bound only the pong for the last ping is kept.
const MOST_UNSENT: usize = 1 << 20;
/// Bytes of a message that is sent.
const LONGEST_WRITE: usize = 32 << 10;
/// How long connecting may take, the handshakes included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Characters of a server's error that are shown.
const LONGEST_ERROR: usize = 512;

/// There is no connection to the port of the pod.
#[derive(Debug, thiserror::Error)]
pub enum PodPortError {
    /// The API server cannot be reached.
    #[error("connect to the API server: {0}")]
    Connect(String),
    /// The API server refuses.
    #[error("the API server responded with {code}: {message}")]
    Refused {
        /// Its HTTP status.
        code: u16,
        /// Its words.
        message: String,
    },
    /// The API server does not speak the protocol.
    #[error("WebSocket: {0}")]
    WebSocket(String),
    /// The pod has a name that no object has.
    #[error(transparent)]
    Path(#[from] InvalidPath),
}

impl PodPortError {
    /// The HTTP status of a refusal; 0 if there is none.
    pub fn code(&self) -> u16 {
        match self {
            Self::Refused { code, .. } => *code,
            _ => 0,
        }
    }
}

trait Wire: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Wire for T {}

/// A connection to a port of a pod.
pub struct PodPort {
    socket: WebSocketStream<Pin<Box<dyn Wire>>>,
    channels: Channels,
    /// Data that was received and not yet read.
    pending: Bytes,
}

impl std::fmt::Debug for PodPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodPort").field("channels", &self.channels).finish_non_exhaustive()
    }
}

impl PodPort {
    /// Connects to a port of a pod as the identity of `connection`, within 10 seconds. The identity needs `get` and `create` on
    /// `pods/portforward`.
    ///
    /// # Errors
    /// The API server cannot be reached, refuses, or answers something else than a WebSocket. An error of the kubelet (no such
    /// container, nobody listens on the port) comes from the first read.
    pub async fn connect(
        connection: &Connection,
        (namespace, pod): (&str, &str),
        port: u16,
    ) -> Result<Self, PodPortError> {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, open(connection, (namespace, pod), port)).await;
        connected.unwrap_or_else(|_| {
            Err(PodPortError::Connect(format!("timed out after {} s", CONNECT_TIMEOUT.as_secs())))
        })
    }

    fn new(socket: WebSocketStream<Pin<Box<dyn Wire>>>, port: u16) -> Self {
        Self { socket, channels: Channels { port, opened: [false; 2] }, pending: Bytes::new() }
    }
}

async fn open(
    connection: &Connection,
    (namespace, pod): (&str, &str),
    port: u16,
) -> Result<PodPort, PodPortError> {
    let path = RequestPath::object(&PODS, namespace, pod).subresource(Some("portforward"));
    let uri = path.uri(&Query::default().with("ports", port.to_string()))?;
    let mut request = web_socket(connection.server(), &uri)
        .map_err(|error| PodPortError::Connect(format!("parse server URL: {error}")))?;
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(CHANNELS));
    authenticate(&mut request, connection).await?;
    let stream = connect_http1(connection).await.map_err(|error| PodPortError::Connect(error.to_string()))?;
    let stream: Pin<Box<dyn Wire>> = Box::pin(stream);
    match client_async_with_config(request, stream, Some(limits())).await {
        Ok((socket, _)) => Ok(PodPort::new(socket, port)),
        Err(WebSocketError::Http(response)) => {
            let code = response.status().as_u16();
            let body = response.body().as_deref().unwrap_or_default();
            Err(PodPortError::Refused { code, message: refusal(body) })
        }
        Err(error) => Err(PodPortError::WebSocket(error.to_string())),
    }
}

/// Returns the bounds of the memory that a peer can make a connection use.
fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(LONGEST_MESSAGE))
        .max_frame_size(Some(LONGEST_MESSAGE))
        .max_write_buffer_size(MOST_UNSENT)
}

/// Puts the bearer token of the identity on a request. Client certificates belong to TLS.
async fn authenticate(request: &mut Request<()>, connection: &Connection) -> Result<(), PodPortError> {
    let wrong = |why: String| PodPortError::Connect(format!("{}: {why}", connection.origin()));
    let token = match (&connection.config.auth_info.token, &connection.token_file) {
        (Some(token), _) => token.expose_secret().to_owned(),
        (None, Some(file)) => {
            let read = tokio::fs::read_to_string(&file.path).await;
            read.map_err(|error| wrong(format!("{}: {error}", file.path.display())))?.trim().to_owned()
        }
        (None, None) => return Ok(()),
    };
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| wrong("the token has characters that are invalid in an HTTP header".to_owned()))?;
    value.set_sensitive(true);
    request.headers_mut().insert(AUTHORIZATION, value);
    Ok(())
}

/// The message of a `Status`, or the text of another answer.
fn refusal(body: &[u8]) -> String {
    let status = read_json::<Value>(body).ok();
    let message = status.as_ref().and_then(|status| status["message"].as_str());
    printable(message.map_or_else(|| String::from_utf8_lossy(body), Into::into).trim())
}

/// The beginning of a server's text, without control characters.
fn printable(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(LONGEST_ERROR).collect()
}

/// The state of the channels.
#[derive(Debug)]
struct Channels {
    port: u16,
    /// Whether the port was received, for each channel.
    opened: [bool; 2],
}

impl Channels {
    /// Returns the data in a message, if there is any.
    fn receive(&mut self, message: &Bytes) -> io::Result<Option<Bytes>> {
        let Some((&channel, content)) = message.split_first() else { return Ok(None) };
        let Some(opened) = self.opened.get_mut(usize::from(channel)) else {
            return Err(io::Error::other(format!("port-forward: unexpected message on channel {channel}")));
        };
        if !*opened {
            if content != self.port.to_le_bytes() {
                return Err(io::Error::other("port-forward: unexpected port in the response"));
            }
            *opened = true;
            return Ok(None);
        }
        match channel {
            ERRORS if content.is_empty() => Ok(None),
            ERRORS => {
                let why = printable(&String::from_utf8_lossy(content));
                Err(io::Error::other(format!("port-forward: {why}")))
            }
            _ => Ok(Some(message.slice(1..))),
        }
    }
}

impl AsyncRead for PodPort {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.pending.is_empty() {
            let message = match ready!(Pin::new(&mut this.socket).poll_next(cx)) {
                None | Some(Err(WebSocketError::ConnectionClosed | WebSocketError::AlreadyClosed)) => {
                    return Poll::Ready(Ok(()));
                }
                Some(message) => message.map_err(io::Error::other)?,
            };
            match message {
                Message::Binary(message) => {
                    if let Some(data) = this.channels.receive(&message)? {
                        this.pending = data;
                    }
                }
                Message::Close(_) => return Poll::Ready(Ok(())),
                // The library answers pings.
                Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
        let length = this.pending.len().min(buffer.remaining());
        buffer.put_slice(&this.pending.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PodPort {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.socket).poll_ready(cx)).map_err(io::Error::other)?;
        let length = bytes.len().min(LONGEST_WRITE);
        let mut message = BytesMut::with_capacity(length + 1);
        message.put_u8(DATA);
        message.put_slice(&bytes[..length]);
        let sent = Pin::new(&mut this.socket).start_send(Message::Binary(message.freeze()));
        Poll::Ready(sent.map(|()| length).map_err(io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx).map_err(io::Error::other)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.get_mut().socket).poll_close(cx)) {
            Err(WebSocketError::ConnectionClosed | WebSocketError::AlreadyClosed) => Poll::Ready(Ok(())),
            closed => Poll::Ready(closed.map_err(io::Error::other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{SinkExt as _, StreamExt as _};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    const PORT: u16 = 10257;
    const OPEN: [[u8; 3]; 2] = [[0, 0x11, 0x28], [1, 0x11, 0x28]];

    /// A connection and the kubelet at its other end.
    async fn connected() -> (PodPort, WebSocketStream<DuplexStream>) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let near: Pin<Box<dyn Wire>> = Box::pin(near);
        let near = WebSocketStream::from_raw_socket(near, Role::Client, Some(limits())).await;
        (PodPort::new(near, PORT), WebSocketStream::from_raw_socket(far, Role::Server, None).await)
    }

    fn binary(bytes: &[u8]) -> Message {
        Message::Binary(Bytes::copy_from_slice(bytes))
    }

    #[tokio::test]
    async fn pod_port_carries_bytes_in_both_directions() {
        let (mut port, mut kubelet) = connected().await;
        let long: Vec<u8> = (0..100_000_u32).map(|each| each as u8).collect();
        let echo = async {
            for open in OPEN {
                kubelet.send(binary(&open)).await.unwrap();
            }
            kubelet.send(Message::Ping(Bytes::new())).await.unwrap();
            let mut received = 0;
            while received < long.len() {
                if let Message::Binary(message) = kubelet.next().await.unwrap().unwrap() {
                    assert!(message[0] == 0 && message.len() <= LONGEST_WRITE + 1);
                    received += message.len() - 1;
                    kubelet.send(Message::Binary(message)).await.unwrap();
                }
            }
            kubelet.close(None).await.unwrap();
        };
        let (mut reader, mut writer) = tokio::io::split(&mut port);
        let write = async {
            writer.write_all(&long).await.unwrap();
            writer.flush().await.unwrap();
        };
        let mut read = Vec::new();
        let ((), (), ended) = tokio::join!(echo, write, reader.read_to_end(&mut read));
        assert_eq!(ended.unwrap(), long.len());
        assert!(read == long);
    }

    #[tokio::test]
    async fn pod_port_reports_the_error_of_the_kubelet() {
        let (mut port, mut kubelet) = connected().await;
        for open in OPEN {
            kubelet.send(binary(&open)).await.unwrap();
        }
        kubelet.send(binary(b"\x01connection \x1b[31mrefused\n")).await.unwrap();
        let error = port.read_u8().await.unwrap_err();
        assert_eq!(error.to_string(), "port-forward: connection [31mrefused");
    }

    #[tokio::test]
    async fn pongs_for_a_peer_that_does_not_read_are_bounded() {
        const PINGS: usize = 40_000;
        let (mut port, kubelet) = connected().await;
        let mut kubelet = kubelet.into_inner();
        let ping = [&[0x89, 125][..], &[b'x'; 125]].concat();
        let flood = async {
            for _ in 0..PINGS {
                kubelet.write_all(&ping).await.unwrap();
            }
            // The reader below returns at the first byte of data.
            for message in [&[0x82, 3, 0, 0x11, 0x28][..], &[0x82, 2, 0, b'x']] {
                kubelet.write_all(message).await.unwrap();
            }
        };
        let ((), byte) = tokio::join!(flood, port.read_u8());
        assert_eq!(byte.unwrap(), b'x');
        let drain = async {
            let mut received = Vec::new();
            kubelet.read_to_end(&mut received).await.unwrap();
            received.len()
        };
        let send = async {
            port.flush().await.unwrap();
            drop(port);
        };
        let (received, ()) = tokio::join!(drain, send);
        let most = MOST_UNSENT + (1 << 16) + 1024;
        assert!((MOST_UNSENT / 2..most).contains(&received), "{received} bytes of pongs");
    }

    #[test]
    fn channels_accept_their_port_first_and_then_data() {
        let mut channels = Channels { port: PORT, opened: [false; 2] };
        let mut receive = |bytes: &[u8]| {
            let data = channels.receive(&Bytes::copy_from_slice(bytes));
            data.map(|data| data.map(|data| data.to_vec())).map_err(|error| error.to_string())
        };
        let error = |text: &str| Err(format!("port-forward: {text}"));
        assert_eq!(receive(b""), Ok(None));
        assert_eq!(receive(&[0, 1, 2]), error("unexpected port in the response"));
        assert_eq!(receive(&[0]), error("unexpected port in the response"));
        assert_eq!(receive(&OPEN[0]), Ok(None));
        assert_eq!(receive(&OPEN[0]), Ok(Some(vec![0x11, 0x28])), "data now");
        assert_eq!(receive(&[0]), Ok(Some(Vec::new())));
        assert_eq!(receive(&OPEN[1]), Ok(None));
        assert_eq!(receive(&[1]), Ok(None));
        assert_eq!(receive(b"\x01no"), error("no"));
        assert_eq!(receive(&[2, 1, 2]), error("unexpected message on channel 2"));
    }

    #[test]
    fn refusals_are_the_words_of_the_api_server() {
        let status = br#"{"kind":"Status","message":"pods is forbidden","code":403}"#;
        assert_eq!(refusal(status), "pods is forbidden");
        assert_eq!(refusal(b"bad\x07 gateway\n"), "bad gateway");
        assert_eq!(refusal(b""), "");
        assert_eq!(refusal(&[b'x'; 2000]).len(), LONGEST_ERROR);
    }
}
