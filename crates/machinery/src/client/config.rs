//! Which API server to talk to, and as whom: a kubeconfig file, `--master`, or the pod that this runs in.
//!
//! The choice is explicit: a kubeconfig file when one is named, its server overridden by `--master` when that is
//! given; otherwise `--master` alone; otherwise the pod's service account. Nothing is inferred: no file in a home
//! directory, no `KUBECONFIG`. A proxy is the kubeconfig's `proxy-url`; without one, that of the environment, as for every
//! client of Kubernetes.
//!
//! No secret of a kubeconfig ever gets into an error: parsers' messages, which may quote the file, are replaced.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use http::Uri;
use kube::client::AuthError;
use kube::config::{Cluster, Kubeconfig, KubeconfigError};
use percent_encoding::{percent_decode_str, percent_encode};
use secrecy::{ExposeSecret, SecretString};

use super::in_cluster::{SERVICE_ACCOUNT_FILES, in_cluster};
use super::kubeconfig::{add_context, decode_data, read_kubeconfig};
use super::request::ESCAPED;
use super::transport::{Proxy, Variables};

/// The server and the credentials of a connection, before anything is connected.
#[derive(Clone)]
pub struct Connection {
    pub(super) config: kube::Config,
    pub(super) token_file: Option<TokenFile>,
    /// The way to the server; none leads straight there.
    pub(super) proxy: Option<Proxy>,
    origin: Origin,
    authorities: Option<Vec<u8>>,
}

/// A bearer token in a file.
#[derive(Clone)]
pub(super) struct TokenFile {
    pub(super) path: PathBuf,
    /// The token given beside it, for as long as the file has never been read.
    pub(super) fallback: Option<SecretString>,
}

/// Where a connection's configuration comes from; its text names the flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A kubeconfig file, given by this flag.
    Kubeconfig {
        /// The flag, with its dashes.
        flag: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// `--master` alone.
    Master,
    /// The service account of the pod.
    InCluster,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig { flag, path } => write!(f, "{flag} {}", path.display()),
            Self::Master => f.write_str("--master"),
            Self::InCluster => f.write_str("in-cluster configuration"),
        }
    }
}

/// A configuration that no client can be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The configuration, or what it points at, is wrong.
    #[error("{origin}: {why}")]
    Invalid {
        /// The flag and file at fault.
        origin: Origin,
        /// What is wrong.
        why: String,
    },
    /// `--master` is no address of a server.
    #[error("--master: {why}")]
    Master {
        /// What is wrong.
        why: String,
    },
    /// No kubeconfig, no master, and not in a pod.
    #[error(
        "no API server configured: set --kubeconfig or --master, or run in a pod (KUBERNETES_SERVICE_HOST is not \
         set)"
    )]
    NotInCluster,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("origin", &self.origin)
            .field("server", &self.config.cluster_url)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Takes `--kubeconfig` and `--master`; an empty one counts as not given.
    pub async fn load(kubeconfig: Option<&Path>, master: Option<&str>) -> Result<Self, ConfigError> {
        let master = master.filter(|master| !master.is_empty());
        match (kubeconfig.filter(|path| !path.as_os_str().is_empty()), master) {
            (Some(path), master) => Self::from_kubeconfig("--kubeconfig", path, master).await,
            (None, Some(master)) => Self::from_master(master),
            (None, None) => Self::in_cluster(),
        }
    }

    /// Takes a kubeconfig file that `flag` names, its current context, and `master` in place of its server.
    pub async fn from_kubeconfig(
        flag: &'static str,
        path: &Path,
        master: Option<&str>,
    ) -> Result<Self, ConfigError> {
        let origin = Origin::Kubeconfig { flag, path: path.to_owned() };
        let invalid = |error: &KubeconfigError| ConfigError::Invalid {
            origin: origin.clone(),
            why: describe_kubeconfig(error),
        };
        let mut kubeconfig = read_kubeconfig(path).map_err(|error| invalid(&error))?;
        if let Some(master) = master {
            // Before the context is loaded: it needs no server of its own then, and exec plugins see this one.
            let server = master_url(master, true)?.to_string();
            add_context(&mut kubeconfig, &server);
            for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
                cluster.server = Some(server.clone());
            }
        }
        let cluster = cluster_of(&kubeconfig, None).cloned();
        let wrong = |why: String| ConfigError::Invalid { origin: origin.clone(), why };
        let server = cluster.as_ref().and_then(|cluster| cluster.server.as_deref());
        check_fragment(server.unwrap_or_default()).map_err(wrong)?;
        let proxy_url = cluster.as_ref().and_then(|cluster| cluster.proxy_url.clone());
        if let Some(url) = proxy_url.as_deref().filter(|url| !url.is_empty()) {
            // Before kube reads it, whose errors may quote it.
            parse_proxy(url).map_err(wrong)?;
        }
        let authorities = cluster.as_ref().and_then(|cluster| cluster.certificate_authority_data.as_deref());
        let authorities = authorities.and_then(decode_data);
        let mut config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
                .await
                .map_err(|error| invalid(&error))?;
        if let Some(cluster) = cluster.filter(|cluster| cluster.certificate_authority_data.is_none()) {
            // Reread from time to time, as the file may be rotated.
            config.root_cert_file = cluster.certificate_authority.map(PathBuf::from);
        }
        if let Some(master) = master {
            config.cluster_url = master_url(master, has_tls(&config))?;
        }
        config.cluster_url = check_server(&config.cluster_url).map_err(wrong)?;
        Self { authorities, ..Self::new(config, origin) }.through(proxy_url.as_deref())
    }

    fn from_master(master: &str) -> Result<Self, ConfigError> {
        Self::new(kube::Config::new(master_url(master, false)?), Origin::Master).through(None)
    }

    fn in_cluster() -> Result<Self, ConfigError> {
        let config = in_cluster(Path::new(SERVICE_ACCOUNT_FILES), &|name| std::env::var(name).ok())
            .map_err(|why| ConfigError::Invalid { origin: Origin::InCluster, why })?
            .ok_or(ConfigError::NotInCluster)?;
        Self::new(config, Origin::InCluster).through(None)
    }

    /// Takes a configuration that is complete already. Its proxy is not looked at: see [`through`](Self::through).
    pub fn new(mut config: kube::Config, origin: Origin) -> Self {
        config.proxy_url = None;
        config.default_retry = false;
        if let Some(token) = &config.auth_info.token {
            let trimmed = SecretString::from(token.expose_secret().trim());
            config.auth_info.token = Some(trimmed);
        }
        // Token files are read here and not by kube, which takes a newline at the end for a part of the token.
        let token_file = config
            .auth_info
            .token_file
            .take()
            .map(|path| TokenFile { path: PathBuf::from(path), fallback: config.auth_info.token.take() });
        Self { config, token_file, proxy: None, origin, authorities: None }
    }

    /// The same through the proxy that a kubeconfig's `proxy-url` names; without one, through that of the environment.
    pub fn through(self, proxy_url: Option<&str>) -> Result<Self, ConfigError> {
        self.through_one_of(proxy_url, &Variables::system())
    }

    pub(super) fn through_one_of(
        mut self,
        proxy_url: Option<&str>,
        variables: &Variables,
    ) -> Result<Self, ConfigError> {
        if let Some(url) = proxy_url.filter(|url| !url.is_empty()) {
            self.proxy = Some(parse_proxy(url).map_err(|why| self.invalid(why))?);
        } else if let Some((variable, proxy)) =
            variables.proxy_to(self.server()).map_err(|why| self.invalid(why))?
        {
            tracing::info!(variable, proxy = proxy.shown(), "Connecting to the API server through a proxy");
            self.proxy = Some(proxy);
        }
        Ok(self)
    }

    /// The same server and certificate authority, without any credentials.
    pub fn anonymous(&self) -> Self {
        let mut config = self.config.clone();
        config.auth_info = kube::config::AuthInfo::default();
        config.headers.clear();
        let (authorities, proxy) = (self.authorities.clone(), self.proxy.clone());
        Self { config, token_file: None, proxy, origin: self.origin.clone(), authorities }
    }

    /// The API server's URL.
    pub fn server(&self) -> &Uri {
        &self.config.cluster_url
    }

    /// Where the configuration comes from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The certificate authorities that the server's certificate is checked against, each in DER; `None` when the
    /// system's are.
    pub fn root_certificates(&self) -> Option<&[Vec<u8>]> {
        self.config.root_cert.as_deref()
    }

    /// The same as they stand in the kubeconfig, with comments and ends of lines; `None` when they stand elsewhere.
    pub fn authorities(&self) -> Option<&[u8]> {
        self.authorities.as_deref()
    }

    /// The file that holds these authorities, when it is a file.
    pub fn authorities_file(&self) -> Option<&Path> {
        self.config.root_cert_file.as_deref()
    }

    pub(super) fn invalid(&self, why: impl Into<String>) -> ConfigError {
        ConfigError::Invalid { origin: self.origin.clone(), why: why.into() }
    }

    /// Files that hold a client certificate and its key, when they are files.
    pub(super) fn certificate_files(&self) -> Vec<PathBuf> {
        let user = &self.config.auth_info;
        let certificate = user.client_certificate.as_ref().filter(|_| user.client_certificate_data.is_none());
        let key = user.client_key.as_ref().filter(|_| user.client_key_data.is_none());
        certificate.into_iter().chain(key).map(PathBuf::from).collect()
    }

    /// Whether a plugin makes the credentials.
    pub(super) fn has_exec_plugin(&self) -> bool {
        self.config.auth_info.exec.is_some()
    }
}

fn parse_proxy(url: &str) -> Result<Proxy, String> {
    Proxy::parse(url).map_err(|why| format!("proxy-url {why}"))
}

/// The `proxy-url` of a context's cluster, of the current context's if none is named.
pub fn proxy_url(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    cluster_of(kubeconfig, context)?.proxy_url.clone()
}

fn cluster_of<'a>(kubeconfig: &'a Kubeconfig, context: Option<&str>) -> Option<&'a Cluster> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == name)?.context.as_ref()?;
    kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()
}

/// Whether a configuration has anything that only makes sense over TLS; decides the scheme of a master without one.
fn has_tls(config: &kube::Config) -> bool {
    let user = &config.auth_info;
    config.root_cert.is_some()
        || config.accept_invalid_certs
        || user.client_certificate.is_some()
        || user.client_certificate_data.is_some()
}

/// `--master` as a URL; without a scheme it is `http`, or `https` with TLS material at hand. A path needs a scheme, unless it is `/`.
pub(super) fn master_url(master: &str, tls: bool) -> Result<Uri, ConfigError> {
    check_fragment(master).map_err(|why| ConfigError::Master { why })?;
    let url = if master.contains("://") {
        master.to_owned()
    } else {
        let host = master.strip_suffix('/').unwrap_or(master);
        if host.contains(['/', '?']) {
            let why = "expected HOST or HOST:PORT if there is no scheme";
            return Err(ConfigError::Master { why: why.to_owned() });
        }
        format!("{}://{host}", if tls { "https" } else { "http" })
    };
    let url: Uri = url
        .parse()
        .map_err(|error: http::uri::InvalidUri| ConfigError::Master { why: format!("not a URL: {error}") })?;
    check_server(&url).map_err(|why| ConfigError::Master { why })
}

/// Returns the path of a server as Go sends it: without empty segments, `.` and `..`, and with other escapes.
fn clean_path(path: &str) -> Result<String, String> {
    let is_escape =
        |digits: &str| digits.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if !path.split('%').skip(1).all(is_escape) {
        return Err("the server URL has a malformed escape".to_owned());
    }
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    let mut segments = Vec::new();
    for segment in decoded.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(percent_encode(segment, ESCAPED).to_string()),
        }
    }
    Ok(format!("/{}", segments.join("/")))
}

/// Refuses a server with a fragment, which the parser of URLs drops.
fn check_fragment(server: &str) -> Result<(), String> {
    if server.contains('#') { Err("the server URL must not have a fragment".to_owned()) } else { Ok(()) }
}

/// Checks what follows the host: nothing, or a colon and a port, which may be empty.
fn check_port(rest: &str) -> Result<(), String> {
    let is_number =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    if rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.is_empty() || is_number(port)) {
        Ok(())
    } else {
        Err("the server URL has an invalid port; allowed: 0 to 65535".to_owned())
    }
}

/// Returns the address of a server with its path in the form in which it is sent.
fn check_server(url: &Uri) -> Result<Uri, String> {
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err("the server URL must begin with https:// or http://".to_owned());
    }
    let authority = url.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    if authority.contains('@') {
        return Err("the server URL must not have credentials".to_owned());
    }
    let host = url.host().unwrap_or_default();
    if host.is_empty() {
        return Err("the server URL has no host".to_owned());
    }
    if host.contains(['[', ']']) {
        // Zones are refused too: they have several spellings.
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or_default();
        if address.parse::<Ipv6Addr>().is_err() {
            return Err("the server URL has a malformed IPv6 address".to_owned());
        }
    }
    check_port(authority.strip_prefix(host).unwrap_or_default())?;
    if url.query().is_some() {
        return Err("the server URL must not have a query".to_owned());
    }
    let path = clean_path(url.path())?;
    let server = format!("{}://{authority}{path}", url.scheme_str().unwrap_or_default());
    server.parse().map_err(|error: http::uri::InvalidUri| format!("parse server URL: {error}"))
}

/// What is wrong with a kubeconfig. The parser's own words may quote a line of it, and so a key: they are not used.
pub fn describe_kubeconfig(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::CurrentContextNotSet => "current-context is not set".to_owned(),
        KubeconfigError::LoadContext(name) => format!("current-context {name:?} is not in the file"),
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("the cluster {name:?} of the current context is not in the file")
        }
        KubeconfigError::MissingClusterUrl => "the cluster of the current context has no server".to_owned(),
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => {
                format!("not a kubeconfig: invalid YAML at line {}, column {}", at.line(), at.column())
            }
            None => "not a kubeconfig: invalid YAML".to_owned(),
        },
        other => other.to_string(),
    }
}

/// What is wrong with credentials. Neither a plugin's output nor its command line and environment are shown: all of
/// them may hold secrets.
pub(super) fn describe_auth(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => format!("the credential plugin failed: {}", out.status),
        AuthError::AuthExecParse(_) => "the credential plugin did not return an ExecCredential".to_owned(),
        AuthError::ParseTokenKey(_) => "the credential plugin did not return JSON".to_owned(),
        other => other.to_string(),
    }
}

/// What is wrong with TLS material or credentials, as kube found it.
pub fn describe_kube(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(error) => describe_auth(error),
        kube::Error::InferKubeconfig(error) => describe_kubeconfig(error),
        other => other.to_string(),
    }
}
