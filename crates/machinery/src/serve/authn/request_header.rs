//! A front proxy, known by its certificate, says in headers for whom it calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName};
use rustls_pki_types::CertificateDer;

use super::trust::TrustStore;
use crate::serve::options::RequestHeaderOptions;
use crate::serve::user::UserInfo;
use crate::wire::json::read_json;
use crate::x509::Certificate;

/// Which proxies and which headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct HeaderRules {
    pub(in crate::serve) allowed_names: Vec<String>,
    pub(in crate::serve) username: Vec<HeaderName>,
    pub(in crate::serve) uid: Vec<HeaderName>,
    pub(in crate::serve) group: Vec<HeaderName>,
    pub(in crate::serve) extra_prefixes: Vec<String>,
}

impl HeaderRules {
    pub(in crate::serve) fn from_options(options: &RequestHeaderOptions) -> Result<Self, String> {
        Ok(Self {
            allowed_names: options.allowed_names.clone(),
            username: header_names(&options.username_headers)?,
            uid: header_names(&options.uid_headers)?,
            group: header_names(&options.group_headers)?,
            extra_prefixes: options
                .extra_header_prefixes
                .iter()
                .map(|held| held.trim().to_lowercase())
                .filter(|held| !held.is_empty())
                .collect(),
        })
    }

    /// From the keys of the cluster's ConfigMap; each is a JSON list of strings, and a missing one is empty.
    pub(in crate::serve) fn from_config(data: &BTreeMap<String, String>) -> Result<Self, String> {
        let list = |key: &str| -> Result<Vec<String>, String> {
            match data.get(key).map(String::as_str).filter(|text| !text.is_empty()) {
                None => Ok(Vec::new()),
                Some(text) => read_json(text.as_bytes()).map_err(|error| format!("{key}: {error}")),
            }
        };
        Self::from_options(&RequestHeaderOptions {
            ca_file: None,
            allowed_names: list("requestheader-allowed-names")?,
            username_headers: list("requestheader-username-headers")?,
            uid_headers: list("requestheader-uid-headers")?,
            group_headers: list("requestheader-group-headers")?,
            extra_header_prefixes: list("requestheader-extra-headers-prefix")?,
        })
    }
}

fn header_names(names: &[String]) -> Result<Vec<HeaderName>, String> {
    names
        .iter()
        .map(|name| {
            HeaderName::try_from(name.trim())
                .map_err(|_invalid| format!("{name:?} is not a valid header name"))
        })
        .collect()
}

/// The method, with its authorities and rules, both of which may change.
pub(in crate::serve) struct RequestHeader {
    pub(in crate::serve) trust: Arc<TrustStore>,
    pub(in crate::serve) rules: ArcSwap<HeaderRules>,
}

impl RequestHeader {
    /// The user whom a proxy names. `Ok(None)`: the proxy names none.
    pub(super) fn authenticate(
        &self,
        headers: &HeaderMap,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
    ) -> Result<Option<UserInfo>, String> {
        if !self.trust.verify(leaf, chain)? {
            return Ok(None);
        }
        let rules = self.rules.load();
        if !rules.allowed_names.is_empty() {
            let cert = Certificate::read(leaf).map_err(|error| error.to_string())?;
            let name = cert.subject.common_name();
            if !rules.allowed_names.iter().any(|allowed| allowed == name) {
                return Err(format!("the common name {name:?} is not in the list of allowed names"));
            }
        }
        let Some(name) = first(headers, &rules.username)? else { return Ok(None) };
        let mut groups = Vec::new();
        for header in &rules.group {
            for value in headers.get_all(header) {
                groups.extend(Some(text(value)?).filter(|group| !group.is_empty()).map(str::to_owned));
            }
        }
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &rules.extra_prefixes {
            for (header, value) in headers {
                if let Some(key) = header.as_str().strip_prefix(prefix.as_str()) {
                    let key = crate::serve::answers::percent_decode(key).unwrap_or_else(|| key.to_owned());
                    extra.entry(key).or_default().push(text(value)?.to_owned());
                }
            }
        }
        let uid = first(headers, &rules.uid)?.unwrap_or_default();
        Ok(Some(UserInfo { name, uid, groups, extra }))
    }

    /// Takes the headers out, whoever sent them, so that no handler mistakes them for facts.
    pub(super) fn strip(&self, headers: &mut HeaderMap) {
        let rules = self.rules.load();
        for name in rules.username.iter().chain(&rules.uid).chain(&rules.group) {
            headers.remove(name);
        }
        let extra: Vec<HeaderName> = headers
            .keys()
            .filter(|name| rules.extra_prefixes.iter().any(|held| name.as_str().starts_with(held.as_str())))
            .cloned()
            .collect();
        for name in extra {
            headers.remove(name);
        }
    }
}

/// The first value, of the first of these headers, that is not empty.
fn first(headers: &HeaderMap, names: &[HeaderName]) -> Result<Option<String>, String> {
    for name in names {
        if let Some(value) = headers.get(name) {
            let value = text(value)?;
            if !value.is_empty() {
                return Ok(Some(value.to_owned()));
            }
        }
    }
    Ok(None)
}

/// Returns a value without the spaces and tabs around it, which do not belong to it (RFC 9110, section 5.5). Go takes off no others.
fn text(value: &http::HeaderValue) -> Result<&str, String> {
    std::str::from_utf8(value.as_bytes())
        .map(|text| text.trim_matches([' ', '\t']))
        .map_err(|_invalid| "a request header of the proxy is not UTF-8".to_owned())
}
