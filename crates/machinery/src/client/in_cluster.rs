//! The configuration of a pod: the API server by variables, and the files of its service account.

use std::net::IpAddr;
use std::path::Path;

use http::Uri;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// Where the kubelet mounts the files.
pub const SERVICE_ACCOUNT_FILES: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns the configuration of a pod; `None` if the variables of the API server are not set. Only the token is required, as by
/// kube-controller-manager: a projected volume need hold neither the CA nor the namespace. Without a readable
/// certificate in `ca.crt` the system's CAs count.
///
/// # Errors
/// The token cannot be read.
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
    let file = directory.join("ca.crt");
    match authorities(&file) {
        Ok(certificates) => {
            config.root_cert = Some(certificates);
            config.root_cert_file = Some(file);
        }
        Err(error) => {
            tracing::error!(file = %file.display(), %error, "Failed to read the CA of the API server; using the system's CAs");
        }
    }
    Ok(Some(config))
}

/// The certificates of a file, in DER.
fn authorities(file: &Path) -> Result<Vec<Vec<u8>>, String> {
    let pem = std::fs::read(file).map_err(|error| error.to_string())?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| error.to_string())?;
    if certificates.is_empty() {
        return Err("the file has no certificate".to_owned());
    }
    Ok(certificates.iter().map(|certificate| certificate.to_vec()).collect())
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
        let ca = dir.path().join("ca.crt");
        std::fs::create_dir(&ca).unwrap();
        assert_eq!(load().unwrap().unwrap().root_cert, None, "a directory cannot be read");
        std::fs::remove_dir(&ca).unwrap();
        let truncated = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        for text in ["", "no certificate", truncated, "-----BEGIN CERTIFICATE-----\nAAAA\n"] {
            std::fs::write(&ca, text).unwrap();
            let config = load().unwrap().unwrap();
            assert_eq!((config.root_cert, config.root_cert_file), (None, None), "{text:?}");
        }
        std::fs::write(&ca, Pki::new().ca_pem).unwrap();
        let config = load().unwrap().unwrap();
        assert_eq!(config.root_cert.map(|certificates| certificates.len()), Some(1));
        assert_eq!(config.root_cert_file, Some(ca));
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
