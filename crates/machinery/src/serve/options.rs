//! What the secure port is to be: plain values, made from flags by the manager.
//!
//! Nothing here reads a file or a flag; [`super::SecureServer::bind`] does the reading and reports what is wrong.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::options::ServingTls;

/// Everything about the secure port. The default is the original's: all addresses, port 10257, a self-signed
/// certificate in memory.
///
/// `--secure-port=0` means that there is no port: the caller then binds nothing. Here port 0 asks for any free one.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// `--bind-address` and `--secure-port`. An unspecified address of either family listens on both families.
    pub address: SocketAddr,
    /// `--permit-address-sharing`. `SO_REUSEADDR` is set in any case, as Go's listener sets it; the flag is kept for
    /// the configuration page.
    pub permit_address_sharing: bool,
    /// `--permit-port-sharing`: `SO_REUSEPORT`.
    pub permit_port_sharing: bool,
    /// `--disable-http2-serving`.
    pub disable_http2: bool,
    /// `--http2-max-streams-per-connection`; 0 is the original's 100.
    pub http2_max_streams: u32,
    /// Certificates, versions, suites.
    pub tls: TlsOptions,
    /// Who may come in.
    pub authentication: AuthenticationOptions,
    /// What they may do.
    pub authorization: AuthorizationOptions,
    /// What one client can use up.
    pub limits: Limits,
    /// How often rotated files and the cluster's authentication configuration are looked at.
    pub reload_interval: Duration,
    /// How long requests in flight may take to end once the server is told to stop.
    pub shutdown_grace: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 10257),
            permit_address_sharing: false,
            permit_port_sharing: false,
            disable_http2: false,
            http2_max_streams: 0,
            tls: TlsOptions::default(),
            authentication: AuthenticationOptions::default(),
            authorization: AuthorizationOptions::default(),
            limits: Limits::default(),
            reload_interval: Duration::from_mins(1),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}

/// The serving certificate and what handshakes may use.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// `--tls-cert-file` and `--tls-private-key-file`, both or neither.
    pub cert_and_key: Option<(PathBuf, PathBuf)>,
    /// `--cert-dir`: where a self-signed certificate is kept when none is given; empty keeps it in memory.
    pub cert_dir: Option<PathBuf>,
    /// Names for a self-signed certificate beside `localhost`, the loopback addresses and the address bound:
    /// the host's name, say.
    pub self_signed_names: Vec<String>,
    /// `--tls-sni-cert-key`, in the order given.
    pub sni: Vec<SniCertKey>,
    /// What `--tls-min-version`, `--tls-cipher-suites` and `--tls-curve-preferences` come to.
    pub spoken: ServingTls,
}

/// One `--tls-sni-cert-key`.
#[derive(Clone, Debug)]
pub struct SniCertKey {
    /// The certificate chain, leaf first.
    pub cert_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
    /// The server names it answers to (`example.org`, `*.example.org`); empty: those in the certificate.
    pub names: Vec<String>,
}

/// Delegated authentication.
#[derive(Clone, Debug)]
pub struct AuthenticationOptions {
    /// `--client-ca-file`.
    pub client_ca_file: Option<PathBuf>,
    /// The `--requestheader-*` flags; used when the CA file is given, else the cluster's are.
    pub request_header: RequestHeaderOptions,
    /// `--authentication-skip-lookup`: do not ask the cluster for the certificate authorities not given.
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`: start even if the cluster cannot be asked.
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`; zero remembers nothing.
    pub token_cache_ttl: Duration,
}

impl Default for AuthenticationOptions {
    fn default() -> Self {
        Self {
            client_ca_file: None,
            request_header: RequestHeaderOptions::default(),
            skip_lookup: false,
            tolerate_lookup_failure: false,
            token_cache_ttl: Duration::from_secs(10),
        }
    }
}

/// How a front proxy says for whom it calls.
#[derive(Clone, Debug)]
pub struct RequestHeaderOptions {
    /// `--requestheader-client-ca-file`.
    pub ca_file: Option<PathBuf>,
    /// `--requestheader-allowed-names`: common names of the proxies' certificates; empty allows all of the CA's.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`.
    pub username_headers: Vec<String>,
    /// `--requestheader-uid-headers`.
    pub uid_headers: Vec<String>,
    /// `--requestheader-group-headers`.
    pub group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_header_prefixes: Vec<String>,
}

impl Default for RequestHeaderOptions {
    fn default() -> Self {
        Self {
            ca_file: None,
            allowed_names: Vec::new(),
            username_headers: vec!["x-remote-user".to_owned()],
            uid_headers: Vec::new(),
            group_headers: vec!["x-remote-group".to_owned()],
            extra_header_prefixes: vec!["x-remote-extra-".to_owned()],
        }
    }
}

/// Delegated authorization.
#[derive(Clone, Debug)]
pub struct AuthorizationOptions {
    /// `--authorization-always-allow-paths`; a trailing `*` matches every continuation.
    pub always_allow_paths: Vec<String>,
    /// `--authorization-webhook-cache-authorized-ttl`.
    pub authorized_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`.
    pub unauthorized_ttl: Duration,
}

impl Default for AuthorizationOptions {
    fn default() -> Self {
        Self {
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_owned).to_vec(),
            authorized_ttl: Duration::from_secs(10),
            unauthorized_ttl: Duration::from_secs(10),
        }
    }
}

/// What one client, or all of them, can use up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once. For the next one another goes that matters less, or it is closed.
    pub connections: usize,
    /// The same of one address; of IPv6 of one network of 64 bits.
    pub connections_of_address: usize,
    /// The same of one authenticated user, from all addresses.
    pub connections_of_user: usize,
    /// Connections at once none of whose requests was authenticated, new ones included.
    pub strangers: usize,
    /// The same of one address.
    pub strangers_of_address: usize,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time for a request's headers; on HTTP/1.1 also how long a connection may idle.
    pub header_time: Duration,
    /// Bytes of a request's headers.
    pub header_bytes: usize,
    /// How long an HTTP/2 connection may carry no request.
    pub idle: Duration,
    /// How long a client that was told to go, and is waiting for nothing, may take to do so.
    pub parting: Duration,
    /// How long a client that was told to go may take to fetch what it has asked for.
    pub farewell: Duration,
    /// Bytes of a request's body. gRPC calls have their own limits.
    pub body_bytes: usize,
    /// Time for a request's body. gRPC calls have their own limits.
    pub body_time: Duration,
}

impl Limits {
    /// As the port has them.
    pub const DEFAULT: Self = Self {
        connections: 4096,
        connections_of_address: 1024,
        connections_of_user: 512,
        strangers: 256,
        strangers_of_address: 128,
        handshake: Duration::from_secs(10),
        header_time: Duration::from_secs(32),
        header_bytes: 256 << 10,
        idle: Duration::from_secs(90),
        parting: Duration::from_secs(5),
        farewell: Duration::from_mins(2),
        body_bytes: 1 << 20,
        body_time: Duration::from_secs(10),
    };

    /// The default of each of `ports` ports where the process may open only so many files. A connection of a port may cause
    /// one to the API server, and [`RESERVED_FILES`] are left for everything else. Shares shrink with the number of
    /// connections; a user has at most half of the share of an address.
    #[must_use]
    pub fn for_open_files(limit: u64, ports: u64) -> Self {
        let connections = limit.saturating_sub(RESERVED_FILES) / 2 / ports.max(1);
        let connections = usize::try_from(connections).unwrap_or(usize::MAX).max(FEWEST_CONNECTIONS);
        let share = |default: usize, of: usize| default.min((of / 4).max(1));
        let connections = connections.min(Self::DEFAULT.connections);
        let strangers = share(Self::DEFAULT.strangers, connections);
        let of_address = share(Self::DEFAULT.connections_of_address, connections);
        Self {
            connections,
            connections_of_address: of_address,
            connections_of_user: Self::DEFAULT.connections_of_user.min(of_address.div_ceil(2)),
            strangers,
            strangers_of_address: Self::DEFAULT.strangers_of_address.min(strangers.div_ceil(2)),
            ..Self::DEFAULT
        }
    }
}

/// Files that the process opens besides the connections of the port: connections to the API server, keys and tokens.
const RESERVED_FILES: u64 = 256;
/// Connections of the port at the smallest limit, so that probes are answered.
const FEWEST_CONNECTIONS: usize = 16;

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
