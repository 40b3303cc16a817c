//! The configuration of a pod: the API server by variables, and the files of its service account.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;

use http::Uri;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// Where the kubelet mounts the files.
pub const SERVICE_ACCOUNT_FILES: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns the configuration of a pod; `None` if the variables of the API server are not set. Only the token is required, as by
/// kube-controller-manager: a projected volume need hold neither the CA nor the namespace. Without `ca.crt` the system's CAs count.
///
/// # Errors
/// The token cannot be read, or `ca.crt` exists and cannot be read or has no certificate: trust that was pinned is never widened.
pub fn in_cluster(
    directory: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<kube::Config>, String> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let (Some(host), Some(port)) = (set("KUBERNETES_SERVICE_HOST"), set("KUBERNETES_SERVICE_PORT")) else {
        return Ok(None);
    };
    let token = directory.join("token");
    std::fs::read(&token).map_err(|error| format!("{}: {error}", token.display()))?;
    let mut config = kube::Config::new(url(&host, &port)?);
    config.auth_info.token_file = Some(token.to_string_lossy().into_owned());
    let authorities = directory.join("ca.crt");
    match std::fs::read(&authorities) {
        Ok(pem) => {
            let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            let certificates = certificates.map_err(|error| format!("{}: {error}", authorities.display()))?;
            if certificates.is_empty() {
                return Err(format!("{}: the file has no certificate", authorities.display()));
            }
            config.root_cert = Some(certificates.iter().map(|certificate| certificate.to_vec()).collect());
            config.root_cert_file = Some(authorities);
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            tracing::warn!(file = %authorities.display(), "Found no CA file for the API server; using the system's CAs");
        }
        Err(error) => return Err(format!("{}: {error}", authorities.display())),
    }
    Ok(Some(config))
}

fn url(host: &str, port: &str) -> Result<Uri, String> {
    let wrong = |error: &dyn std::fmt::Display| {
        format!("KUBERNETES_SERVICE_HOST {host:?} and KUBERNETES_SERVICE_PORT {port:?}: {error}")
    };
    let port: u16 = port.parse().map_err(|error: std::num::ParseIntError| wrong(&error))?;
    let host = if matches!(host.parse(), Ok(IpAddr::V6(_))) { format!("[{host}]") } else { host.to_owned() };
    let text = if port == 443 { format!("https://{host}") } else { format!("https://{host}:{port}") };
    text.parse().map_err(|error: http::uri::InvalidUri| wrong(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::testing::Pki;

    fn variables(host: &str, port: &str) -> impl Fn(&str) -> Option<String> {
        let (host, port) = (host.to_owned(), port.to_owned());
        move |name| match name {
            "KUBERNETES_SERVICE_HOST" => Some(host.clone()),
            "KUBERNETES_SERVICE_PORT" => Some(port.clone()),
            _ => None,
        }
    }

    /// Differs: pod-ca-unusable.
    #[test]
    fn pinned_ca_that_is_unusable_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "t").unwrap();
        let ca = dir.path().join("ca.crt");
        let load = || in_cluster(dir.path(), &variables("10.0.0.1", "443"));
        std::fs::create_dir(&ca).unwrap();
        assert!(load().unwrap_err().contains("ca.crt"), "a directory cannot be read");
        std::fs::remove_dir(&ca).unwrap();
        for text in ["", "no certificate", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
            std::fs::write(&ca, text).unwrap();
            assert!(load().unwrap_err().contains("ca.crt"), "{text:?}");
        }
    }

    #[test]
    fn only_the_token_is_required() {
        let dir = tempfile::tempdir().unwrap();
        let load = || in_cluster(dir.path(), &variables("10.0.0.1", "443"));
        assert!(load().unwrap_err().contains("token"));
        std::fs::write(dir.path().join("token"), "t").unwrap();
        let config = load().unwrap().unwrap();
        assert_eq!((config.root_cert, config.root_cert_file), (None, None));
        assert_eq!(config.cluster_url, "https://10.0.0.1/");
        let token = dir.path().join("token");
        assert_eq!(config.auth_info.token_file.as_deref(), token.to_str());
        std::fs::write(dir.path().join("ca.crt"), Pki::new().ca_pem).unwrap();
        let config = load().unwrap().unwrap();
        assert_eq!(config.root_cert.map(|certificates| certificates.len()), Some(1));
        assert_eq!(config.root_cert_file, Some(dir.path().join("ca.crt")));
    }

    #[test]
    fn variables_name_the_api_server() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "t").unwrap();
        for (host, port, expected) in [
            ("10.0.0.1", "6443", Some("https://10.0.0.1:6443/")),
            ("fd00::1", "443", Some("https://[fd00::1]/")),
            ("fd00::1", "6443", Some("https://[fd00::1]:6443/")),
            ("api.test", "443", Some("https://api.test/")),
            ("", "443", None),
            ("10.0.0.1", "", None),
        ] {
            let config = in_cluster(dir.path(), &variables(host, port)).unwrap();
            let url = config.map(|config| config.cluster_url.to_string());
            assert_eq!(url.as_deref(), expected, "{host} {port}");
        }
        let error = in_cluster(dir.path(), &variables("10.0.0.1", "https")).unwrap_err();
        assert!(error.contains("KUBERNETES_SERVICE_PORT"), "{error}");
    }
}
