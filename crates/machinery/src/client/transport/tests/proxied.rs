//! Through proxies, which see where it goes and nothing of what is said.

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::client::transport::Variables;

/// A connection to a proxy, over TLS or not.
trait Line: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Line for T {}

/// A proxy that leads to one server, whatever it is asked for, and tells what it was asked.
struct Proxy {
    url: String,
    asked: Arc<parking_lot::Mutex<Vec<String>>>,
    _accepting: tokio::task::JoinSet<()>,
}

#[derive(Clone, Copy)]
enum Protocol {
    Http,
    Socks5,
    /// HTTP, with an answer that is no tunnel.
    Refusing,
}

impl Proxy {
    async fn start(protocol: Protocol, server: &str) -> Self {
        let scheme = if matches!(protocol, Protocol::Socks5) { "socks5" } else { "http" };
        Self::listen(scheme, protocol, None, server).await
    }

    /// One with which TLS is spoken, by a certificate for 127.0.0.1.
    async fn start_tls(pki: &Pki, server: &str) -> Self {
        let tls = TlsAcceptor::from(Arc::new(pki.server(H2)));
        Self::listen("https", Protocol::Http, Some(tls), server).await
    }

    async fn listen(scheme: &str, protocol: Protocol, tls: Option<TlsAcceptor>, server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{scheme}://us%40er:s3cret@{}", listener.local_addr().unwrap());
        let server = server.trim_start_matches("https://").to_owned();
        let asked = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let (mut accepting, told) = (tokio::task::JoinSet::new(), Arc::clone(&asked));
        accepting.spawn(async move {
            let mut tunnels = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (server, told, tls) = (server.clone(), Arc::clone(&told), tls.clone());
                tunnels.spawn(async move {
                    let mut stream: Box<dyn Line> = match tls {
                        None => Box::new(stream),
                        // Who does not trust it hangs up.
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => Box::new(stream),
                            Err(_) => return,
                        },
                    };
                    let request = match protocol {
                        Protocol::Http => http_request(&mut stream, "HTTP/1.1 200 OK\r\n\r\n").await,
                        Protocol::Refusing => {
                            let answer = "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
                            http_request(&mut stream, answer).await
                        }
                        Protocol::Socks5 => socks_request(&mut stream).await,
                    };
                    told.lock().push(request);
                    let mut onward = TcpStream::connect(&server).await.unwrap();
                    // It ends when either end hangs up.
                    let _ended = copy_bidirectional(&mut stream, &mut onward).await;
                });
            }
        });
        Self { url, asked, _accepting: accepting }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

async fn http_request(stream: &mut Box<dyn Line>, answer: &str) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8(request).unwrap()
}

/// RFC 1928 with the login of RFC 1929: the address that is asked for, behind the login.
async fn socks_request(stream: &mut Box<dyn Line>) -> String {
    async fn counted(stream: &mut Box<dyn Line>) -> Vec<u8> {
        let mut bytes = vec![0; usize::from(stream.read_u8().await.unwrap())];
        stream.read_exact(&mut bytes).await.unwrap();
        bytes
    }
    assert_eq!(stream.read_u8().await.unwrap(), 5);
    assert!(counted(stream).await.contains(&2), "a login is offered");
    stream.write_all(&[5, 2]).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), 1);
    let login = [counted(stream).await, counted(stream).await].map(|part| String::from_utf8(part).unwrap());
    stream.write_all(&[1, 0]).await.unwrap();
    let mut head = [0; 4];
    stream.read_exact(&mut head).await.unwrap();
    let host = match head {
        [5, 1, 0, 1] => {
            let mut address = [0; 4];
            stream.read_exact(&mut address).await.unwrap();
            std::net::Ipv4Addr::from(address).to_string()
        }
        [5, 1, 0, 3] => String::from_utf8(counted(stream).await).unwrap(),
        other => panic!("{other:?}"),
    };
    let port = stream.read_u16().await.unwrap();
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    format!("{} {host}:{port}", login.join(":"))
}

async fn connect_through(server: &Server, proxy: &Proxy, pki: &Pki, dir: &Path) -> Transport {
    let url = format!("{}\", proxy-url: \"{}", server.url, proxy.url);
    connect(&url, pki, "token: s3cret", dir).await
}

/// Each request to a proxy is for a way to the server, with the login, and holds nothing that is meant for the server.
fn assert_only_asked_to_connect(asked: Vec<String>, server: &Server) {
    let authority = server.url.trim_start_matches("https://");
    for request in asked {
        assert!(request.starts_with(&format!("CONNECT {authority} HTTP/1.1\r\n")), "{request}");
        // base64 of us@er:s3cret
        assert!(request.contains("Proxy-Authorization: Basic dXNAZXI6czNjcmV0\r\n"), "{request}");
        assert!(!request.contains("Bearer"), "{request}");
    }
}

#[tokio::test]
async fn http_proxies_are_asked_to_connect_and_see_nothing_else() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let proxy = Proxy::start(Protocol::Http, &server.url).await;
    let transport = connect_through(&server, &proxy, &pki, dir.path()).await;
    assert_eq!(ask(&transport).await.unwrap(), "HTTP/2.0 None Some(\"Bearer s3cret\")");
    let asked = proxy.asked();
    assert_eq!(asked.len(), server.connections(), "no connection goes past the proxy");
    assert_only_asked_to_connect(asked, &server);
    assert!(!format!("{transport:?}").contains("s3cret"));
}

#[tokio::test]
async fn socks5_proxies_are_told_the_address_and_the_login() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let proxy = Proxy::start(Protocol::Socks5, &server.url).await;
    let transport = connect_through(&server, &proxy, &pki, dir.path()).await;
    assert_eq!(ask(&transport).await.unwrap(), "HTTP/2.0 None Some(\"Bearer s3cret\")");
    let expected = format!("us@er:s3cret {}", server.url.trim_start_matches("https://"));
    let asked = proxy.asked();
    assert!(!asked.is_empty() && asked.iter().all(|asked| *asked == expected), "{asked:?}");
    assert_eq!(asked.len(), server.connections());
}

#[tokio::test]
async fn a_proxy_that_refuses_is_an_error_and_nobody_goes_past_it() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let proxy = Proxy::start(Protocol::Refusing, &server.url).await;
    let transport = connect_through(&server, &proxy, &pki, dir.path()).await;
    let said = refusal(&transport).await;
    assert!(said.contains("proxy authorization required"), "{said}");
}

/// Why nothing can be asked, with all causes, in which there is no password.
async fn refusal(transport: &Transport) -> String {
    let error = ask(transport).await.unwrap_err();
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        said = format!("{said}: {cause}");
        source = cause.source();
    }
    assert!(!said.contains("s3cret"), "{said}");
    said
}

#[tokio::test]
async fn with_an_https_proxy_tls_is_spoken_before_anything_is_asked() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let proxy = Proxy::start_tls(&pki, &server.url).await;
    assert!(proxy.url.starts_with("https://us%40er:s3cret@127.0.0.1:"));
    let transport = connect_through(&server, &proxy, &pki, dir.path()).await;
    assert_eq!(ask(&transport).await.unwrap(), "HTTP/2.0 None Some(\"Bearer s3cret\")");
    let mut write = request("/write");
    write.extensions_mut().insert(Arc::<Fence>::default());
    transport.service().oneshot(write).await.unwrap();
    let asked = proxy.asked();
    assert_eq!(
        (asked.len(), server.connections()),
        (2, 2),
        "writes go through it, too, and nothing goes past it"
    );
    assert_only_asked_to_connect(asked, &server);
    assert!(!format!("{transport:?}").contains("s3cret"));
}

#[tokio::test]
async fn a_proxy_that_nobody_vouches_for_is_told_nothing() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let proxy = Proxy::start_tls(&Pki::new(), &server.url).await;
    let transport = connect_through(&server, &proxy, &pki, dir.path()).await;
    let said = refusal(&transport).await;
    assert!(said.contains("certificate"), "{said}");
    assert_eq!((proxy.asked(), server.connections()), (Vec::<String>::new(), 0));
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_used_where_a_kubeconfig_names_none() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let (of_kubeconfig, of_environment) =
        (Proxy::start(Protocol::Http, &server.url).await, Proxy::start_tls(&pki, &server.url).await);
    let set = of_environment.url.clone();
    let variables = |spared: &'static str| {
        let set = set.clone();
        Variables::read(&move |name| match name {
            "HTTPS_PROXY" => Some(set.clone()),
            "NO_PROXY" => Some(spared.to_owned()),
            _ => None,
        })
    };
    // It is there for the proxies alone, which are asked for it by name.
    let bare = connect("https://kubernetes.test:6443", &pki, "token: s3cret", dir.path()).await;
    let through = async |proxy_url: Option<&str>, spared: &'static str| {
        let connection = bare.0.connection.clone();
        let connection = connection.through_one_of(proxy_url, &variables(spared)).unwrap();
        assert!(!format!("{connection:?}").contains("us%40er"));
        let transport = Transport::new(connection, KeepAlive::default()).await.unwrap();
        ask(&transport).await.map_err(|error| error.to_string())
    };
    through(None, "").await.unwrap();
    let line = "CONNECT kubernetes.test:6443 HTTP/1.1\r\n";
    let told = |proxy: &Proxy| proxy.asked().iter().filter(|asked| asked.starts_with(line)).count();
    assert_eq!((told(&of_environment), told(&of_kubeconfig)), (1, 0));
    through(Some(""), "other.test").await.unwrap();
    assert_eq!((told(&of_environment), told(&of_kubeconfig)), (2, 0));
    through(Some(&of_kubeconfig.url), "*").await.unwrap();
    assert_eq!((told(&of_environment), told(&of_kubeconfig)), (2, 1), "NO_PROXY is not for a proxy-url");
    let spared = bare.0.connection.clone().through_one_of(None, &variables(".test")).unwrap();
    assert!(spared.proxy.is_none());
}
