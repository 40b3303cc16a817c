//! The built-in signers, and what each of them asks of a request: the same rules say what is approved without a human and what
//! is signed. Reads nothing, signs nothing.

use super::requests::{AlternativeName, Attribute, CertificateRequest};
use coxswain_machinery::wire::Str;

/// The group of nodes.
const NODES: &str = "system:nodes";
/// How names of nodes begin.
const NODE: &str = "system:node:";

const DIGITAL_SIGNATURE: &str = "digital signature";
const KEY_ENCIPHERMENT: &str = "key encipherment";
const CLIENT_AUTH: &str = "client auth";
const SERVER_AUTH: &str = "server auth";

/// A signer that Kubernetes has built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// Of what kubelets serve with.
    KubeletServing,
    /// Of what kubelets log in with.
    KubeletClient,
    /// Of what anybody else logs in with.
    ApiServerClient,
    /// Of requests that old clusters have left.
    LegacyUnknown,
}

impl Signer {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::KubeletServing, Self::KubeletClient, Self::ApiServerClient, Self::LegacyUnknown];

    /// Its name, as requests have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::KubeletServing => "kubernetes.io/kubelet-serving",
            Self::KubeletClient => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::ApiServerClient => "kubernetes.io/kube-apiserver-client",
            Self::LegacyUnknown => "kubernetes.io/legacy-unknown",
        }
    }

    /// The one of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signer| signer.name() == name)
    }

    /// Why it does not sign such a request; `None` if it does. The first rule that is broken says it.
    pub(super) fn refusal(self, request: &CertificateRequest, usages: &[Str]) -> Option<String> {
        match self {
            Self::KubeletServing => kubelet_serving(request, usages).map(str::to_owned),
            Self::KubeletClient => kubelet_client(request, usages).map(str::to_owned),
            Self::ApiServerClient => api_server_client(usages),
            Self::LegacyUnknown => None,
        }
    }
}

const ORGANIZATION: &str = "subject organization is not system:nodes";
const COMMON_NAME: &str = "subject common name does not begin with system:node:";
const NO_DNS: &str = "DNS subjectAltNames are not allowed";
const NO_EMAIL: &str = "Email subjectAltNames are not allowed";
const NO_IP: &str = "IP subjectAltNames are not allowed";
const NO_URI: &str = "URI subjectAltNames are not allowed";

fn kubelet_serving(request: &CertificateRequest, usages: &[Str]) -> Option<&'static str> {
    let names = Sorts::of(request);
    if !is_of_nodes(request) {
        Some(ORGANIZATION)
    } else if !names.dns && !names.ip {
        Some("DNS or IP subjectAltName is required")
    } else if names.email {
        Some(NO_EMAIL)
    } else if names.uri {
        Some(NO_URI)
    } else if !are_usages(usages, SERVER_AUTH) {
        Some("usages did not match [digital signature key encipherment server auth]")
    } else if !request.common_name().starts_with(NODE) {
        Some(COMMON_NAME)
    } else {
        None
    }
}

fn kubelet_client(request: &CertificateRequest, usages: &[Str]) -> Option<&'static str> {
    let names = Sorts::of(request);
    if !is_of_nodes(request) {
        Some(ORGANIZATION)
    } else if names.dns {
        Some(NO_DNS)
    } else if names.email {
        Some(NO_EMAIL)
    } else if names.ip {
        Some(NO_IP)
    } else if names.uri {
        Some(NO_URI)
    } else if !request.common_name().starts_with(NODE) {
        Some(COMMON_NAME)
    } else if !are_usages(usages, CLIENT_AUTH) {
        Some("usages did not match [client auth digital signature key encipherment]")
    } else {
        None
    }
}

fn api_server_client(usages: &[Str]) -> Option<String> {
    let known = [DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, CLIENT_AUTH];
    if let Some(usage) = usages.iter().find(|usage| !known.contains(&usage.as_str())) {
        return Some(format!("invalid usage for client certificate: {usage}"));
    }
    let has = usages.iter().any(|usage| *usage == CLIENT_AUTH);
    (!has).then(|| format!("missing required usage for client certificate: {CLIENT_AUTH}"))
}

/// Whether the only organization is that of nodes, said once.
fn is_of_nodes(request: &CertificateRequest) -> bool {
    request.values(Attribute::Organization).eq([NODES])
}

/// Whether the usages are a digital signature, this one and, if anything more, key encipherment, in any order.
fn are_usages(usages: &[Str], wanted: &str) -> bool {
    let has = |wanted: &str| usages.iter().any(|usage| *usage == wanted);
    let allowed = [DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, wanted];
    has(DIGITAL_SIGNATURE) && has(wanted) && usages.iter().all(|usage| allowed.contains(&usage.as_str()))
}

/// Which sorts of alternative names a request has.
#[expect(clippy::struct_excessive_bools, reason = "each is a sort of its own; any set of them is possible")]
#[derive(Clone, Copy, Default)]
struct Sorts {
    dns: bool,
    email: bool,
    ip: bool,
    uri: bool,
}

impl Sorts {
    fn of(request: &CertificateRequest) -> Self {
        let mut sorts = Self::default();
        for name in request.names() {
            match name {
                AlternativeName::Dns(_) => sorts.dns = true,
                AlternativeName::Email(_) => sorts.email = true,
                AlternativeName::Ip(_) => sorts.ip = true,
                AlternativeName::Uri(_) => sorts.uri = true,
            }
        }
        sorts
    }
}

#[cfg(test)]
mod tests {
    use super::super::requests::fixtures;
    use super::*;

    fn refusal(signer: Signer, subject: &str, names: &[&str], usages: &[&str]) -> Option<String> {
        let request = CertificateRequest::from_pem(fixtures::request(subject, names).as_bytes()).unwrap();
        signer.refusal(&request, &usages.iter().map(|usage| Str::from(*usage)).collect::<Vec<_>>())
    }

    const KUBELET: &str = "O=system:nodes/CN=system:node:n1";
    const CLIENT: [&str; 3] = [KEY_ENCIPHERMENT, CLIENT_AUTH, DIGITAL_SIGNATURE];
    const SERVER: [&str; 3] = [KEY_ENCIPHERMENT, SERVER_AUTH, DIGITAL_SIGNATURE];

    #[test]
    fn kubelets_log_in_by_strict_rules() {
        let usages = "usages did not match [client auth digital signature key encipherment]";
        let all = ["DNS:n1", "email:a@b", "IP:10.0.0.1", "URI:a://b"];
        for (subject, names, asked, expected) in [
            (KUBELET, &[][..], &CLIENT[..], None),
            (KUBELET, &[], &[CLIENT_AUTH, DIGITAL_SIGNATURE], None),
            (KUBELET, &[], &[CLIENT_AUTH, DIGITAL_SIGNATURE, CLIENT_AUTH], None),
            (KUBELET, &[], &[CLIENT_AUTH], Some(usages)),
            (KUBELET, &[], &[DIGITAL_SIGNATURE, KEY_ENCIPHERMENT], Some(usages)),
            (KUBELET, &[], &[CLIENT_AUTH, DIGITAL_SIGNATURE, SERVER_AUTH], Some(usages)),
            (KUBELET, &[], &SERVER, Some(usages)),
            ("O=x/CN=system:node:n1", &[], &CLIENT, Some(ORGANIZATION)),
            ("CN=system:node:n1", &[], &CLIENT, Some(ORGANIZATION)),
            ("O=system:nodes/CN=n1", &[], &CLIENT, Some(COMMON_NAME)),
            ("O=system:nodes", &[], &CLIENT, Some(COMMON_NAME)),
            ("O=system:nodes/CN=system:node:", &[], &CLIENT, None),
            (KUBELET, &all, &CLIENT, Some(NO_DNS)),
            (KUBELET, &all[1..], &CLIENT, Some(NO_EMAIL)),
            (KUBELET, &all[2..], &CLIENT, Some(NO_IP)),
            (KUBELET, &all[3..], &CLIENT, Some(NO_URI)),
        ] {
            let found = refusal(Signer::KubeletClient, subject, names, asked);
            assert_eq!(found.as_deref(), expected, "{subject} {names:?} {asked:?}");
        }
    }

    #[test]
    fn what_kubelets_serve_with_has_names_of_their_own() {
        let usages = "usages did not match [digital signature key encipherment server auth]";
        for (subject, names, asked, expected) in [
            (KUBELET, &["DNS:n1"][..], &SERVER[..], None),
            (KUBELET, &["IP:10.0.0.1"], &[SERVER_AUTH, DIGITAL_SIGNATURE], None),
            (KUBELET, &[], &SERVER, Some("DNS or IP subjectAltName is required")),
            (KUBELET, &["URI:a://b", "email:a@b"], &SERVER, Some("DNS or IP subjectAltName is required")),
            (KUBELET, &["DNS:n1", "URI:a://b", "email:a@b"], &SERVER, Some(NO_EMAIL)),
            (KUBELET, &["DNS:n1", "URI:a://b"], &SERVER, Some(NO_URI)),
            (KUBELET, &["DNS:n1"], &CLIENT, Some(usages)),
            ("O=system:nodes/CN=n1", &["DNS:n1"], &CLIENT, Some(usages)),
            ("O=system:nodes/CN=n1", &["DNS:n1"], &SERVER, Some(COMMON_NAME)),
            ("O=x/CN=n1", &["DNS:n1"], &SERVER, Some(ORGANIZATION)),
        ] {
            let found = refusal(Signer::KubeletServing, subject, names, asked);
            assert_eq!(found.as_deref(), expected, "{subject} {names:?} {asked:?}");
        }
    }

    #[test]
    fn others_log_in_as_whoever_they_are() {
        for (asked, expected) in [
            (&CLIENT[..], None),
            (&[CLIENT_AUTH], None),
            (&[DIGITAL_SIGNATURE], Some("missing required usage for client certificate: client auth")),
            (&[], Some("missing required usage for client certificate: client auth")),
            (
                &[CLIENT_AUTH, "code signing", SERVER_AUTH],
                Some("invalid usage for client certificate: code signing"),
            ),
        ] {
            let found = refusal(Signer::ApiServerClient, "CN=a", &["DNS:b", "URI:c://d"], asked);
            assert_eq!(found.as_deref(), expected, "{asked:?}");
        }
        assert_eq!(refusal(Signer::LegacyUnknown, "", &[], &["any"]), None);
    }

    #[test]
    fn signers_are_found_by_their_names() {
        for signer in Signer::ALL {
            assert_eq!(Signer::named(signer.name()), Some(signer));
        }
        assert_eq!(Signer::named("example.com/other"), None);
    }

    #[test]
    fn one_organization_is_said_once() {
        let of = |organizations: &[&str]| {
            let text = fixtures::request_with_organizations(organizations, "name");
            CertificateRequest::from_pem(text.as_bytes()).unwrap()
        };
        assert!(is_of_nodes(&of(&[NODES])));
        for other in [&[][..], &[NODES, "x"], &["x", NODES], &[NODES, NODES], &["system:node"]] {
            assert!(!is_of_nodes(&of(other)), "{other:?}");
        }
    }
}
