//! Whom to trust at a replica, and whether it may see the caller's token. Pure: it reads no file and makes no connection.
//!
//! Whoever may write Leases in `kube-system` may announce a replica, its address and its authority. So an announcement
//! vouches for nothing: it is good for client certificates, which prove the caller without giving anything away, and
//! not for bearer tokens, which are the caller to whoever holds them. A token goes to servers that an authority of the
//! kubeconfig or of a flag vouches for; or the system's authorities, where the user has named the server as well, because
//! they vouch for names and anybody may have one.
//!
//! The cluster's CA also signs the serving certificates of kubelets, and nodes are on the addresses that a Lease can name.
//! So a replica that the user has not named gets a token only with a certificate for [`COXSWAIN_NAME`]. The signer
//! `kubernetes.io/kubelet-serving` signs any name that an approver accepts, but only with a node as the subject: a
//! certificate for Coxswain's name with such a subject gets no token.

use coxswain_machinery::x509::{Certificate, Malformed};

pub(super) use coxswain_machinery::serve::COXSWAIN_NAME;

/// The group of nodes, which is the organization in all certificates of `kubernetes.io/kubelet-serving`.
const NODES: &str = "system:nodes";
/// The beginning of the common name in these certificates.
const NODE: &str = "system:node:";

/// Whether the subject of a certificate (DER) is a node.
///
/// # Errors
/// The certificate cannot be read.
pub(super) fn is_of_a_node(certificate: &[u8]) -> Result<bool, Malformed> {
    let certificate = Certificate::read(certificate)?;
    let subject = &certificate.subject;
    Ok(subject.organizations().any(|organization| organization == NODES)
        || subject.common_name().starts_with(NODE))
}

/// What decides about trust: what was given, and what there is.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own; any set of them may hold")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TrustFacts {
    /// `--insecure-skip-tls-verify`
    pub(super) insecure: bool,
    /// `--certificate-authority`
    pub(super) authority_by_flag: bool,
    /// `--trust-announced-authority`
    pub(super) trust_announced: bool,
    /// The user has named this server: by `--server`, or its name by `--tls-server-name`.
    pub(super) named: bool,
    /// The replica has announced an authority of its own.
    pub(super) announced: bool,
    /// The kubeconfig has an authority.
    pub(super) cluster_authority: bool,
    /// The caller has a token.
    pub(super) token: bool,
    /// The caller has a client certificate.
    pub(super) certificate: bool,
}

/// Whose word it is that the server is who it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voucher {
    /// Nobody's is asked for.
    Nobody,
    /// The authority that a flag names.
    Flag,
    /// The authority that the replica has announced.
    Announcement,
    /// The kubeconfig's authority.
    Cluster,
    /// The system's authorities.
    System,
}

/// The name that the server's certificate must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateName {
    /// The host of its address, or the name of `--tls-server-name`.
    Address,
    /// [`COXSWAIN_NAME`], whatever the address is.
    Coxswain,
}

/// What follows from the facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrustDecision {
    /// Who vouches for the server.
    pub(super) voucher: Voucher,
    /// Whether the caller's token goes to it.
    pub(super) send_token: bool,
    /// The name that the server has to prove.
    pub(super) name: CertificateName,
}

impl TrustFacts {
    /// Decides. `None`: nobody vouches for the server, and the token is all that the caller has.
    pub(super) fn decide(self) -> Option<TrustDecision> {
        let voucher = self.voucher();
        // A client certificate is enough there, and needs no other name than that of the address.
        let by_name = voucher == Voucher::Cluster && self.token && !self.named && !self.certificate;
        let vouched = match voucher {
            Voucher::Nobody | Voucher::Flag => true,
            Voucher::Cluster => self.named || by_name,
            Voucher::Announcement => self.trust_announced,
            Voucher::System => self.named,
        };
        let name = if by_name { CertificateName::Coxswain } else { CertificateName::Address };
        let decision = TrustDecision { voucher, send_token: self.token && vouched, name };
        (decision.send_token || self.certificate || !self.token).then_some(decision)
    }

    fn voucher(self) -> Voucher {
        // Who has nothing to give away may ask anybody: the answer is a refusal.
        let gives_nothing_away = self.certificate || !self.token;
        if self.insecure {
            Voucher::Nobody
        } else if self.authority_by_flag {
            Voucher::Flag
        } else if self.announced && (self.trust_announced || gives_nothing_away) {
            Voucher::Announcement
        } else if self.cluster_authority {
            Voucher::Cluster
        } else {
            Voucher::System
        }
    }

    /// Whether an authority was announced and is not trusted, for the sake of the token.
    pub(super) fn sets_announcement_aside(self) -> bool {
        self.announced && !self.insecure && !self.authority_by_flag && self.voucher() != Voucher::Announcement
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that there can be.
    fn all() -> impl Iterator<Item = TrustFacts> {
        (0_u16..256).map(|bits| {
            let bit = |at: u16| bits & (1 << at) != 0;
            TrustFacts {
                insecure: bit(0),
                authority_by_flag: bit(1),
                trust_announced: bit(2),
                named: bit(3),
                announced: bit(4),
                cluster_authority: bit(5),
                token: bit(6),
                certificate: bit(7),
            }
        })
    }

    #[test]
    fn no_token_goes_to_a_server_that_an_announcement_alone_vouches_for() {
        for facts in all() {
            let Some(decision) = facts.decide() else { continue };
            let vouched = match decision.voucher {
                Voucher::Nobody => facts.insecure,
                Voucher::Flag => facts.authority_by_flag,
                Voucher::Cluster => {
                    let named = facts.named || decision.name == CertificateName::Coxswain;
                    facts.cluster_authority && (named || !decision.send_token)
                }
                Voucher::Announcement => facts.trust_announced,
                Voucher::System => facts.named,
            };
            assert!(!decision.send_token || (facts.token && vouched), "{facts:?}: {decision:?}");
        }
    }

    #[test]
    fn an_announcement_never_gets_a_token_that_would_not_be_sent_without_it() {
        for facts in all().filter(|facts| facts.announced && !facts.trust_announced) {
            let sends = |facts: TrustFacts| facts.decide().is_some_and(|decision| decision.send_token);
            let without = TrustFacts { announced: false, ..facts };
            assert!(!sends(facts) || sends(without), "{facts:?}");
        }
    }

    #[test]
    fn who_has_a_certificate_or_nothing_is_never_refused_here() {
        for facts in all().filter(|facts| facts.certificate || !facts.token) {
            assert!(facts.decide().is_some(), "{facts:?}");
        }
    }

    #[test]
    fn who_vouches_for_whom() {
        let facts = TrustFacts::default();
        let token = TrustFacts { token: true, ..facts };
        let certificate = TrustFacts { certificate: true, ..facts };
        let rows = [
            (
                TrustFacts { announced: true, cluster_authority: true, ..token },
                Some((Voucher::Cluster, true)),
            ),
            (TrustFacts { announced: true, ..token }, None),
            (
                TrustFacts { announced: true, trust_announced: true, ..token },
                Some((Voucher::Announcement, true)),
            ),
            (TrustFacts { named: true, ..token }, Some((Voucher::System, true))),
            (token, None),
            (TrustFacts { announced: true, ..certificate }, Some((Voucher::Announcement, false))),
            (
                TrustFacts { announced: true, token: true, ..certificate },
                Some((Voucher::Announcement, false)),
            ),
            (
                TrustFacts { cluster_authority: true, token: true, ..certificate },
                Some((Voucher::Cluster, false)),
            ),
            (
                TrustFacts { cluster_authority: true, token: true, named: true, ..certificate },
                Some((Voucher::Cluster, true)),
            ),
            (TrustFacts { authority_by_flag: true, announced: true, ..token }, Some((Voucher::Flag, true))),
            (TrustFacts { insecure: true, announced: true, ..token }, Some((Voucher::Nobody, true))),
            (TrustFacts { announced: true, ..facts }, Some((Voucher::Announcement, false))),
        ];
        for (facts, expected) in rows {
            let decided = facts.decide().map(|decision| (decision.voucher, decision.send_token));
            assert_eq!(decided, expected, "{facts:?}");
        }
    }

    #[test]
    fn it_is_said_when_an_announcement_is_set_aside() {
        let facts =
            TrustFacts { announced: true, token: true, cluster_authority: true, ..TrustFacts::default() };
        assert!(facts.sets_announcement_aside());
        for trusting in [
            TrustFacts { certificate: true, ..facts },
            TrustFacts { trust_announced: true, ..facts },
            TrustFacts { authority_by_flag: true, ..facts },
            TrustFacts { announced: false, ..facts },
        ] {
            assert!(!trusting.sets_announcement_aside(), "{trusting:?}");
        }
    }

    #[test]
    fn clients_in_other_languages_have_the_same_rule() {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Row {
            facts: Vec<String>,
            voucher: Option<String>,
            send_token: bool,
            name: Option<String>,
        }
        // Their own tests read the same file.
        let rows: Vec<Row> =
            serde_json::from_str(include_str!("../../clients/go/testdata/trust.json")).unwrap();
        let facts: std::collections::BTreeSet<_> = rows.iter().map(|row| &row.facts).collect();
        assert_eq!(facts.len(), 128, "all that there can be but for insecure");
        for row in &rows {
            let has = |fact: &str| row.facts.iter().any(|each| each == fact);
            let facts = TrustFacts {
                insecure: false,
                authority_by_flag: has("authority"),
                trust_announced: has("trustAnnounced"),
                named: has("named"),
                announced: has("announced"),
                cluster_authority: has("clusterAuthority"),
                token: has("token"),
                certificate: has("certificate"),
            };
            let voucher = facts.decide().map(|decision| match decision.voucher {
                Voucher::Nobody => "nobody",
                Voucher::Flag => "authority",
                Voucher::Announcement => "announcement",
                Voucher::Cluster => "cluster",
                Voucher::System => "system",
            });
            assert_eq!(voucher, row.voucher.as_deref(), "{facts:?}");
            let name = facts.decide().map(|decision| match decision.name {
                CertificateName::Address => "address",
                CertificateName::Coxswain => "coxswain",
            });
            assert_eq!(name, row.name.as_deref(), "{facts:?}");
            let sends = facts.decide().is_some_and(|decision| decision.send_token);
            assert_eq!(sends, row.send_token, "{facts:?}");
        }
    }
}
