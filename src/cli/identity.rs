//! Who the caller is, and whom the caller trusts: a kubeconfig's user and cluster, or what flags put in their place.
//!
//! The token is asked for where it is needed ([`Tokens`]), and goes nowhere but into headers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::common::Common;
use super::connect::Address;
use super::environment::Environment;
use super::error::CliError;
use super::token::{Tokens, secret};
use super::trust::{TrustFacts, Voucher};
use coxswain_machinery::client::{
    ApiClient, ClientBuildError, ClientBuilder, ClientMetrics, ClientOptions, ConfigError, Connection,
    Origin, SERVICE_ACCOUNT_FILES, describe_kubeconfig, in_cluster_config, proxy_url, read_kubeconfig,
    tls_config,
};

/// How long the API server may take to tell who the replicas are.
const API_TIMEOUT: Duration = Duration::from_secs(10);

/// The cluster and the caller.
pub(super) struct Identity {
    /// Certificate authority, client certificate and server; neither a token nor a plugin that has one.
    config: kube::Config,
    /// Where it comes from; `None` if there is no cluster, only flags.
    origin: Option<Origin>,
    /// The proxy to the cluster, as its kubeconfig has it. It may hold a password.
    proxy_url: Option<String>,
    /// The user's tokens; `None` if the user has none.
    tokens: Option<Arc<Tokens>>,
}

/// What a kubeconfig, or a pod, says of its cluster.
struct Cluster {
    config: kube::Config,
    origin: Origin,
    proxy_url: Option<String>,
}

/// Whom to trust at a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// These authorities, in DER.
    Roots(Vec<Vec<u8>>),
    /// Those of the system.
    System,
    /// Anyone.
    Anyone,
}

impl Identity {
    /// Reads a kubeconfig or the pod's own configuration, and credentials. Runs a credential plugin if there is one.
    pub(super) async fn load(common: &Common, environment: &Environment) -> Result<Self, CliError> {
        let (mut config, origin, proxy_url) = match load_config(common, environment).await? {
            Some(Cluster { config, origin, proxy_url }) => (config, Some(origin), proxy_url),
            None if common.server.is_some() => {
                (kube::Config::new(http::Uri::from_static("https://admin")), None, None)
            }
            None => {
                return Err(CliError::Unreachable(
                    "find a replica: neither a kubeconfig (--kubeconfig, KUBECONFIG, ~/.kube/config) nor an in-cluster \
                     configuration exists; use --server HOST:PORT"
                        .to_owned(),
                ));
            }
        };
        replace_user(&mut config.auth_info, common)?;
        let user = &config.auth_info;
        if user.impersonate.is_some() || user.impersonate_groups.is_some() || user.impersonate_uid.is_some() {
            return Err(CliError::Usage(
                "kubeconfig user: the admin API does not support impersonation (`as`)".to_owned(),
            ));
        }
        let tokens = Tokens::new(config.clone(), common.token_file.clone());
        let tokens = tokens.current().await?.is_some().then(|| Arc::new(tokens));
        if tokens.is_some() {
            let user = &mut config.auth_info;
            (user.token, user.token_file, user.exec, user.auth_provider) = (None, None, None, None);
        }
        Ok(Self { config, origin, proxy_url, tokens })
    }

    /// The user's tokens; `None` if the user has none.
    pub(super) fn tokens(&self) -> Option<&Arc<Tokens>> {
        self.tokens.as_ref()
    }

    /// The token as it is now, or, in the place of one that was refused, another one.
    pub(super) async fn token(&self, refused: Option<&HeaderValue>) -> Result<Option<HeaderValue>, CliError> {
        match (&self.tokens, refused) {
            (None, _) => Ok(None),
            (Some(tokens), None) => tokens.current().await,
            (Some(tokens), Some(refused)) => tokens.renewed(refused).await,
        }
    }

    /// The connection to the cluster's API server with this token; `None` without a cluster.
    pub(super) fn connection(&self, token: Option<&HeaderValue>) -> Result<Option<Connection>, CliError> {
        let Some(origin) = &self.origin else { return Ok(None) };
        let mut config = self.config.clone();
        if let Some(token) = token {
            config.auth_info.token = secret(token);
        }
        Ok(Some(Connection::new(config, origin.clone()).through(self.proxy_url.as_deref())?))
    }

    /// A client of the cluster's API server that sends this token; `None` without a cluster.
    pub(super) async fn api(&self, token: Option<&HeaderValue>) -> Result<Option<ApiClient>, CliError> {
        let Some(connection) = self.connection(token)? else { return Ok(None) };
        // One command makes few requests, a few of them at a time.
        let options = ClientOptions { request_timeout: API_TIMEOUT, qps: -1.0, ..ClientOptions::default() };
        let metrics = ClientMetrics::register(&coxswain_machinery::telemetry::Registry::new())
            .map_err(|error| CliError::Encoding(error.to_string()))?;
        let builder =
            ClientBuilder::new(connection, options, metrics).await.map_err(|error| match error {
                ClientBuildError::Config(error) => CliError::Config(error),
                stopped @ ClientBuildError::Stopped { .. } => CliError::Unreachable(stopped.to_string()),
            })?;
        Ok(Some(builder.ungated("cli")))
    }

    /// What decides whom to trust at this address, of a replica that has `announced` an authority, or none.
    pub(super) fn facts(&self, common: &Common, address: &Address, announced: bool) -> TrustFacts {
        // Who is named by a replica, as the leader, is not named by the user: its address is what a Lease says.
        let server = common.server.as_deref().and_then(|server| Address::parse(server).ok());
        let user = &self.config.auth_info;
        let certificate = user.client_certificate.is_some() || user.client_certificate_data.is_some();
        TrustFacts {
            insecure: common.insecure,
            authority_by_flag: common.certificate_authority.is_some(),
            trust_announced: common.trust_announced,
            named: server.as_ref() == Some(address) || common.tls_server_name.is_some(),
            announced,
            cluster_authority: self.config.root_cert.is_some(),
            token: self.tokens.is_some(),
            // A plugin that has no token to give has a certificate.
            certificate: certificate || user.exec.is_some(),
        }
    }

    /// The certificates of whoever vouches for a replica. That the kubeconfig trusts anyone at its API server counts for
    /// nothing here.
    pub(super) fn trust(
        &self,
        common: &Common,
        voucher: Voucher,
        announced: Option<&str>,
    ) -> Result<Trust, CliError> {
        match (voucher, &common.certificate_authority, announced, &self.config.root_cert) {
            (Voucher::Nobody, ..) => Ok(Trust::Anyone),
            (Voucher::Flag, Some(path), ..) => {
                let pem = read(path, "--certificate-authority")?;
                roots(&pem, &format!("--certificate-authority {}", path.display()))
            }
            (Voucher::Announcement, _, Some(pem), _) => {
                roots(pem.as_bytes(), "the CA in the replica's Lease")
            }
            (Voucher::Cluster, .., Some(roots)) => Ok(Trust::Roots(roots.clone())),
            _ => Ok(Trust::System),
        }
    }

    /// TLS with HTTP/2 and the client certificate.
    pub(super) fn tls(&self, trust: &Trust) -> Result<Arc<rustls::ClientConfig>, CliError> {
        let mut config = self.config.clone();
        config.root_cert_file = None;
        config.accept_invalid_certs = *trust == Trust::Anyone;
        config.root_cert = match trust {
            Trust::Roots(roots) => Some(roots.clone()),
            // The system's roots need not even be there if they are not looked at.
            Trust::Anyone => Some(Vec::new()),
            Trust::System => None,
        };
        let mut tls = tls_config(&config).map_err(|error| CliError::Credentials(format!("TLS: {error}")))?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(tls))
    }
}

fn roots(pem: &[u8], whose: &str) -> Result<Trust, CliError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => {
            Ok(Trust::Roots(certificates.iter().map(|each| each.as_ref().to_vec()).collect()))
        }
        _ => Err(CliError::Credentials(format!("{whose}: contains no certificate"))),
    }
}

fn read(path: &Path, flag: &str) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|error| CliError::Credentials(format!("{flag} {}: {error}", path.display())))
}

/// The cluster's configuration: a kubeconfig where there is one, else the pod's own.
async fn load_config(common: &Common, environment: &Environment) -> Result<Option<Cluster>, CliError> {
    let home = || environment.path("HOME").map(|home| home.join(".kube").join("config"));
    let (flag, paths) = match (&common.kubeconfig, environment.path("KUBECONFIG")) {
        (Some(path), _) => ("--kubeconfig", vec![path.clone()]),
        (None, Some(list)) => {
            let paths = std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty());
            ("KUBECONFIG", paths.collect())
        }
        (None, None) => ("kubeconfig", home().filter(|path| path.is_file()).into_iter().collect()),
    };
    let Some(first) = paths.first() else {
        if let Some(context) = &common.context {
            return Err(CliError::Usage(format!(
                "--context {context}: no kubeconfig exists; use --kubeconfig"
            )));
        }
        return in_cluster(environment);
    };
    let origin = Origin::Kubeconfig { flag, path: first.clone() };
    let invalid = |error: &KubeconfigError| ConfigError::Invalid {
        origin: origin.clone(),
        why: describe_kubeconfig(error),
    };
    let kubeconfig = merge(&paths).map_err(|error| invalid(&error))?;
    let proxy_url = proxy_url(&kubeconfig, common.context.as_deref());
    let options = KubeConfigOptions { context: common.context.clone(), ..KubeConfigOptions::default() };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let config = config.map_err(|error| match (&error, &common.context) {
        (KubeconfigError::LoadContext(name), Some(_)) => {
            CliError::Usage(format!("--context {name:?}: no such context in {origin}"))
        }
        _ => invalid(&error).into(),
    })?;
    Ok(Some(Cluster { config, origin, proxy_url }))
}

/// Several files as one: what stands in an earlier one wins.
fn merge(paths: &[PathBuf]) -> Result<Kubeconfig, KubeconfigError> {
    paths.iter().try_fold(Kubeconfig::default(), |merged, path| merged.merge(read_kubeconfig(path)?))
}

fn in_cluster(environment: &Environment) -> Result<Option<Cluster>, CliError> {
    let config = in_cluster_config(Path::new(SERVICE_ACCOUNT_FILES), &|name| environment.text(name))
        .map_err(|why| ConfigError::Invalid { origin: Origin::InCluster, why })?;
    Ok(config.map(|config| Cluster { config, origin: Origin::InCluster, proxy_url: None }))
}

/// Credentials given by flag or variable take the place of the kubeconfig's user altogether.
fn replace_user(user: &mut AuthInfo, common: &Common) -> Result<(), CliError> {
    if common.client_certificate.is_none() && common.token_file.is_none() {
        return Ok(());
    }
    *user = AuthInfo::default();
    if let Some((certificate, key)) = &common.client_certificate {
        for (flag, path) in [("--client-certificate", certificate), ("--client-key", key)] {
            // It is read again where it is used, which would not name the flag.
            read(path, flag)?;
        }
        user.client_certificate = Some(certificate.to_string_lossy().into_owned());
        user.client_key = Some(key.to_string_lossy().into_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever may write Leases can have a replica name any address as the leader's, and the system's authorities vouch for
    /// whoever owns a name.
    #[test]
    fn a_token_goes_to_the_server_that_is_named_and_not_on_to_whom_that_one_names() {
        let identity = Identity {
            config: kube::Config::new(http::Uri::from_static("https://admin")),
            origin: None,
            proxy_url: None,
            tokens: Some(Arc::new(Tokens::new(
                kube::Config::new(http::Uri::from_static("https://admin")),
                None,
            ))),
        };
        let common = Common { server: Some("https://admin.test:443".to_owned()), ..Common::default() };
        let decided = |common: &Common, address: &str| {
            identity.facts(common, &Address::parse(address).unwrap(), false).decide()
        };
        assert!(decided(&common, "admin.test:443").is_some_and(|decision| decision.send_token));
        for other in ["leader.test:443", "admin.test:444", "admin.test.evil.test:443"] {
            assert_eq!(decided(&common, other), None, "{other}");
        }
        let of_name = Common { tls_server_name: Some("admin.test".to_owned()), ..common };
        assert!(
            decided(&of_name, "leader.test:443").is_some_and(|decision| decision.send_token),
            "nobody else has a certificate for that name"
        );
    }
}
