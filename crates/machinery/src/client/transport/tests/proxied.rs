//! Through proxies, which see where it goes and nothing of what is said.

use tokio::io::copy_bidirectional;

use super::*;

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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if matches!(protocol, Protocol::Socks5) { "socks5" } else { "http" };
        let url = format!("{scheme}://us%40er:s3cret@{}", listener.local_addr().unwrap());
        let server = server.trim_start_matches("https://").to_owned();
        let asked = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let (mut accepting, told) = (tokio::task::JoinSet::new(), Arc::clone(&asked));
        accepting.spawn(async move {
            let mut tunnels = tokio::task::JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let (server, told) = (server.clone(), Arc::clone(&told));
                tunnels.spawn(async move {
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

async fn http_request(stream: &mut TcpStream, answer: &str) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8(request).unwrap()
}

/// RFC 1928 with the login of RFC 1929: the address that is asked for, behind the login.
async fn socks_request(stream: &mut TcpStream) -> String {
    async fn counted(stream: &mut TcpStream) -> Vec<u8> {
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

#[tokio::test]
async fn http_proxies_are_asked_to_connect_and_see_nothing_else() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let proxy = Proxy::start(Protocol::Http, &server.url).await;
    let transport = connect_through(&server, &proxy, &pki, dir.path()).await;
    assert_eq!(ask(&transport).await.unwrap(), "HTTP/2.0 None Some(\"Bearer s3cret\")");
    let asked = proxy.asked();
    assert_eq!(asked.len(), server.connections(), "no connection goes past the proxy");
    let authority = server.url.trim_start_matches("https://");
    for request in asked {
        assert!(request.starts_with(&format!("CONNECT {authority} HTTP/1.1\r\n")), "{request}");
        // base64 of us@er:s3cret
        assert!(request.contains("Proxy-Authorization: Basic dXNAZXI6czNjcmV0\r\n"), "{request}");
        assert!(!request.contains("Bearer"), "{request}");
    }
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
    let error = ask(&transport).await.unwrap_err();
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        said = format!("{said}: {cause}");
        source = cause.source();
    }
    assert!(said.contains("proxy authorization required"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
}
