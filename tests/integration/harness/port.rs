//! A manager's secure port, as its callers see it.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::controlplane::Report;

/// How long an answer may take before it counts as none.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller<'a> {
    /// Nobody in particular.
    Anonymous,
    /// The cluster's administrator, by client certificate.
    Admin,
    /// Whoever has the client certificate in this kubeconfig.
    Certificate(&'a Path),
    /// Whoever has this token.
    Bearer(&'a str),
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) text: String,
}

/// A caller with connections of its own to one port.
pub(crate) struct Port {
    client: Client,
    bearer: Option<String>,
}

impl Port {
    /// A caller that trusts the control plane's authority.
    pub(crate) async fn open(report: &Report, url: &str, caller: Caller<'_>) -> Self {
        Self::trusting(report, url, caller, &report.ca_file).await
    }

    /// A caller that trusts the authorities in a PEM file, and no others.
    pub(crate) async fn trusting(report: &Report, url: &str, caller: Caller<'_>, authority: &Path) -> Self {
        let path = match caller {
            Caller::Certificate(path) => path,
            _ => &report.kubeconfigs["admin"],
        };
        let kubeconfig = Kubeconfig::read_from(path).expect("the kubeconfig");
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("the kubeconfig is complete");
        let authorities = CertificateDer::pem_file_iter(authority).expect("a PEM file");
        config.root_cert = Some(authorities.map(|der| der.expect("a certificate").to_vec()).collect());
        config.cluster_url = url.parse().expect("a URL");
        config.connect_timeout = Some(PATIENCE);
        config.default_retry = false;
        if matches!(caller, Caller::Anonymous | Caller::Bearer(_)) {
            config.auth_info = AuthInfo::default();
        }
        let bearer = match caller {
            Caller::Bearer(token) => Some(format!("Bearer {token}")),
            Caller::Anonymous | Caller::Admin | Caller::Certificate(_) => None,
        };
        Self { client: Client::try_from(config).expect("a client"), bearer }
    }

    /// The answer to a GET; `None` when there is none, or the port could not prove who it is.
    pub(crate) async fn try_get(&self, path: &str) -> Option<Page> {
        self.ask(Method::GET, path, "", PATIENCE).await.map(Page::from)
    }

    /// The answer to a PUT.
    pub(crate) async fn put(&self, path: &str, body: &'static str) -> Page {
        self.ask(Method::PUT, path, body, PATIENCE).await.map(Page::from).expect("an answer")
    }

    /// The whole answer to a request; `None` when there is none within `patience`.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: &'static str,
        patience: Duration,
    ) -> Option<Response<Bytes>> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(bearer) = &self.bearer {
            request = request.header(http::header::AUTHORIZATION, bearer);
        }
        let request = request.body(Body::from(body.as_bytes().to_vec())).expect("a request");
        let answer = async {
            let (head, body) = self.client.send(request).await.ok()?.into_parts();
            Some(Response::from_parts(head, body.collect().await.ok()?.to_bytes()))
        };
        tokio::time::timeout(patience, answer).await.ok()?
    }
}

impl From<Response<Bytes>> for Page {
    fn from(response: Response<Bytes>) -> Self {
        let text = String::from_utf8_lossy(response.body()).into_owned();
        Self { status: response.status().as_u16(), text }
    }
}

impl Page {
    /// The value of a metric by its name and labels, written as on the page.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let line = self.text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        Some(line.trim().parse().expect("a number"))
    }
}
