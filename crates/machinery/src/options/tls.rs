//! What TLS the secure port speaks: the flags' Go names and numbers turned into rustls' own terms.
//!
//! rustls leaves out what is no longer safe (TLS 1.0 and 1.1, CBC suites, RSA key exchange). A command line that asks
//! for such things beside others works with the others and says what was left out; one that asks for nothing else is
//! refused, because it could serve no one.

use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use rustls::{CipherSuite, NamedGroup, ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};

use super::error::{OptionError, OptionWarning, nearest};
use super::flags::Flags;

/// What the secure port speaks.
#[derive(Clone, Debug)]
pub struct ServingTls {
    /// The versions, newest first.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// The cipher suites, those of TLS 1.3 included.
    pub cipher_suites: Vec<SupportedCipherSuite>,
    /// The key exchange groups.
    pub groups: Vec<&'static dyn SupportedKxGroup>,
}

impl Default for ServingTls {
    fn default() -> Self {
        Self {
            versions: vec![&rustls::version::TLS13, &rustls::version::TLS12],
            cipher_suites: ring::ALL_CIPHER_SUITES.to_vec(),
            groups: ring::ALL_KX_GROUPS.to_vec(),
        }
    }
}

/// Suites that the original takes and rustls does not have, all of them weak: CBC, RC4, 3DES, or no forward secrecy.
const LEFT_OUT: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Groups that the original takes and this build does not have.
const LEFT_OUT_GROUPS: [(i32, &str); 4] =
    [(25, "P-521"), (4587, "SecP256r1MLKEM768"), (4588, "X25519MLKEM768"), (4589, "SecP384r1MLKEM1024")];

impl ServingTls {
    /// Reads the flags; what can't be is added to `errors`.
    pub(super) fn complete(
        flags: &Flags,
        errors: &mut Vec<OptionError>,
        warnings: &mut Vec<OptionWarning>,
    ) -> Self {
        let mut tls = Self::default();
        match flags.tls_min_version.as_str() {
            "" | "VersionTLS12" => {}
            "VersionTLS13" => tls.versions.retain(|version| version.version == ProtocolVersion::TLSv1_3),
            old @ ("VersionTLS10" | "VersionTLS11") => {
                let message = format!("{old} is insecure and not supported; the minimum is TLS 1.2");
                warnings.push(OptionWarning::new("tls-min-version", message));
            }
            other => errors.push(OptionError::invalid(
                "tls-min-version",
                format!("unknown TLS version {other:?}"),
                "VersionTLS12, VersionTLS13",
            )),
        }
        tls.choose_suites(&flags.tls_cipher_suites, errors, warnings);
        tls.choose_groups(&flags.tls_curve_preferences, errors, warnings);
        tls
    }

    fn choose_suites(
        &mut self,
        names: &[String],
        errors: &mut Vec<OptionError>,
        warnings: &mut Vec<OptionWarning>,
    ) {
        const FLAG: &str = "tls-cipher-suites";
        if names.is_empty() {
            return;
        }
        let allowed =
            || ring::ALL_CIPHER_SUITES.iter().map(|suite| go_name(suite.suite())).collect::<Vec<_>>();
        let (mut chosen, mut left_out, mut unknown) = (Vec::new(), Vec::new(), false);
        for name in names.iter().map(|name| name.trim()) {
            if let Some(suite) = by_name(name) {
                chosen.push(suite.suite());
            } else if LEFT_OUT.contains(&name) {
                left_out.push(name);
            } else {
                unknown = true;
                let near = nearest(name, allowed().iter().map(String::as_str));
                let allowed = if near.is_empty() { allowed() } else { near };
                errors.push(OptionError::invalid(
                    FLAG,
                    format!("unknown cipher suite {name:?}"),
                    allowed.join(", "),
                ));
            }
        }
        // As in the original, what is listed concerns TLS 1.2; the suites of TLS 1.3 are not a choice.
        self.cipher_suites.retain(|suite| {
            suite.version().version == ProtocolVersion::TLSv1_3 || chosen.contains(&suite.suite())
        });
        if left_out.is_empty() {
            return;
        }
        let left_out = left_out.join(", ");
        if chosen.is_empty() && !unknown {
            let problem = format!("all cipher suites are insecure: {left_out}");
            errors.push(OptionError::invalid(FLAG, problem, allowed().join(", ")));
        } else {
            warnings.push(OptionWarning::new(FLAG, format!("ignored insecure suites: {left_out}")));
        }
    }

    fn choose_groups(
        &mut self,
        ids: &[i32],
        errors: &mut Vec<OptionError>,
        warnings: &mut Vec<OptionWarning>,
    ) {
        const FLAG: &str = "tls-curve-preferences";
        const ALLOWED: &str = "23 (P-256), 24 (P-384), 29 (X25519)";
        if ids.is_empty() {
            return;
        }
        let (mut chosen, mut left_out) = (Vec::new(), Vec::new());
        let before = errors.len();
        for id in ids {
            let group = u16::try_from(*id).map(NamedGroup::from).ok();
            if let Some(group) =
                group.filter(|group| ring::ALL_KX_GROUPS.iter().any(|known| known.name() == *group))
            {
                chosen.push(group);
            } else if let Some((_, name)) = LEFT_OUT_GROUPS.iter().find(|(known, _)| known == id) {
                left_out.push(format!("{id} ({name})"));
            } else {
                errors.push(OptionError::invalid(FLAG, format!("unknown group {id}"), ALLOWED));
            }
        }
        self.groups.retain(|group| chosen.contains(&group.name()));
        if left_out.is_empty() {
            return;
        }
        let left_out = left_out.join(", ");
        if chosen.is_empty() && errors.len() == before {
            errors.push(OptionError::invalid(FLAG, format!("unsupported groups {left_out}"), ALLOWED));
        } else {
            warnings.push(OptionWarning::new(FLAG, format!("ignored unsupported groups: {left_out}")));
        }
    }

    /// The cryptography to serve with.
    pub fn provider(&self) -> CryptoProvider {
        CryptoProvider {
            cipher_suites: self.cipher_suites.clone(),
            kx_groups: self.groups.clone(),
            ..CryptoProvider::clone(&crate::tls::provider())
        }
    }
}

/// The suite of a name, in the IANA form or the two shorter ones that Go also takes.
fn by_name(name: &str) -> Option<SupportedCipherSuite> {
    let name = match name {
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        name => name,
    };
    ring::ALL_CIPHER_SUITES.iter().copied().find(|suite| go_name(suite.suite()) == name)
}

/// The IANA name of a suite. rustls spells those of TLS 1.3 with a prefix of its own.
fn go_name(suite: CipherSuite) -> String {
    suite.as_str().map_or_else(|| format!("{suite:?}"), |name| name.replace("TLS13_", "TLS_"))
}

#[cfg(test)]
mod tests {
    use rustls::{NamedGroup, ProtocolVersion};

    use super::ServingTls;
    use crate::options::Flags;

    struct Outcome {
        tls: ServingTls,
        errors: Vec<String>,
        warnings: Vec<String>,
    }

    fn complete(version: &str, suites: &[&str], groups: &[i32]) -> Outcome {
        let flags = Flags {
            tls_min_version: version.to_owned(),
            tls_cipher_suites: suites.iter().map(|suite| (*suite).to_owned()).collect(),
            tls_curve_preferences: groups.to_vec(),
            ..Flags::default()
        };
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let tls = ServingTls::complete(&flags, &mut errors, &mut warnings);
        Outcome {
            tls,
            errors: errors.iter().map(ToString::to_string).collect(),
            warnings: warnings.iter().map(ToString::to_string).collect(),
        }
    }

    fn suites(tls: &ServingTls, version: ProtocolVersion) -> Vec<String> {
        let of_version = tls.cipher_suites.iter().filter(|suite| suite.version().version == version);
        of_version.map(|suite| super::go_name(suite.suite())).collect()
    }

    #[test]
    fn nothing_said_is_everything_secure() {
        let outcome = complete("", &[], &[]);
        assert!(outcome.errors.is_empty() && outcome.warnings.is_empty());
        assert_eq!(outcome.tls.versions.len(), 2);
        assert_eq!(suites(&outcome.tls, ProtocolVersion::TLSv1_2).len(), 6);
        assert_eq!(suites(&outcome.tls, ProtocolVersion::TLSv1_3).len(), 3);
        assert_eq!(outcome.tls.groups.len(), 3);
    }

    #[test]
    fn versions() {
        assert_eq!(complete("VersionTLS13", &[], &[]).tls.versions[0].version, ProtocolVersion::TLSv1_3);
        assert_eq!(complete("VersionTLS13", &[], &[]).tls.versions.len(), 1);
        assert_eq!(complete("VersionTLS12", &[], &[]).tls.versions.len(), 2);
        let old = complete("VersionTLS10", &[], &[]);
        assert!(old.errors.is_empty() && old.warnings[0].contains("the minimum is TLS 1.2"));
        assert!(
            complete("TLS12", &[], &[]).errors[0]
                .contains("--tls-min-version: unknown TLS version \"TLS12\"")
        );
    }

    #[test]
    fn the_suites_of_the_usual_hardening_guide_work() {
        let outcome = complete(
            "",
            &[
                "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
                "TLS_RSA_WITH_AES_256_GCM_SHA384",
            ],
            &[],
        );
        assert_eq!(outcome.errors, [""; 0]);
        assert!(outcome.warnings[0].contains("TLS_RSA_WITH_AES_256_GCM_SHA384"));
        assert_eq!(
            suites(&outcome.tls, ProtocolVersion::TLSv1_2),
            ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"]
        );
        assert_eq!(suites(&outcome.tls, ProtocolVersion::TLSv1_3).len(), 3, "they are no choice");
    }

    #[test]
    fn suites_that_serve_no_one_are_refused() {
        let weak = complete("", &["TLS_RSA_WITH_RC4_128_SHA", "TLS_RSA_WITH_AES_128_CBC_SHA"], &[]);
        assert_eq!(weak.errors.len(), 1);
        assert!(weak.errors[0].contains("TLS_RSA_WITH_RC4_128_SHA, TLS_RSA_WITH_AES_128_CBC_SHA"));
        let absent = complete("", &["TLS_AES_128_CCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], &[]);
        assert!(absent.errors[0].contains("unknown cipher suite"), "the original has none either");
        let typo = complete("", &["TLS_AES_128_GCM_SHA25"], &[]);
        assert!(typo.errors[0].contains("TLS_AES_128_GCM_SHA256"), "{:?}", typo.errors);
    }

    #[test]
    fn groups() {
        let chosen = complete("", &[], &[29, 4588]);
        assert!(chosen.errors.is_empty() && chosen.warnings[0].contains("4588 (X25519MLKEM768)"));
        assert_eq!(
            chosen.tls.groups.iter().map(|group| group.name()).collect::<Vec<_>>(),
            [NamedGroup::X25519]
        );
        assert!(complete("", &[], &[99]).errors[0].contains("unknown group 99; allowed: 23 (P-256)"));
        assert!(complete("", &[], &[-1]).errors[0].contains("unknown group -1"));
        assert!(complete("", &[], &[25]).errors[0].contains("25 (P-521)"));
    }
}
