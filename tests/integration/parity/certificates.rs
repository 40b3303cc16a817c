//! What is seen of certificates that were issued during a test: all but what is chance (the serial number, the signature) and the
//! moment.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The extension that names the authority's key, which is another on each control plane.
const AUTHORITY_KEY: &str = "2.5.29.35";
/// So old a certificate was not issued during a test, in seconds.
const OLD: i64 = 24 * 3600;

/// A certificate in base64 of PEM as what it says; `None` if it is none, or was not issued lately.
pub(super) fn plain(encoded: &str) -> Option<Value> {
    let text = STANDARD.decode(encoded).ok()?;
    let (rest, block) = x509_parser::pem::parse_x509_pem(&text).ok()?;
    let (after, certificate) = X509Certificate::from_der(&block.contents).ok()?;
    let validity = certificate.validity();
    let began = SystemClock.now().as_second() - validity.not_before.timestamp();
    if began > OLD {
        return None;
    }
    let extensions = certificate.extensions().iter().map(|extension| {
        let oid = extension.oid.to_id_string();
        let value = if oid == AUTHORITY_KEY { "the authority's".to_owned() } else { hex(extension.value) };
        format!("{oid}{}: {value}", if extension.critical { " critical" } else { "" })
    });
    Some(json!({
        "version": certificate.version.0,
        "serial": if certificate.raw_serial().len() <= 17 { "of up to 128 bits" } else { "longer" },
        "signature": certificate.signature_algorithm.algorithm.to_id_string(),
        "issuer": certificate.issuer().to_string(),
        "subject": hex(certificate.subject().as_raw()),
        "subjectText": certificate.subject().to_string(),
        "key": hex(certificate.public_key().raw),
        // It begins five minutes before it was issued, and this was a moment ago.
        "begins": if (300..3600).contains(&began) { "some minutes ago" } else { "at another time" },
        "lastsSeconds": validity.not_after.timestamp() - validity.not_before.timestamp(),
        "extensions": extensions.collect::<Vec<_>>(),
        "moreInTheBlock": after.len(),
        "moreAfterIt": rest.len(),
    }))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_seen_as_what_it_says_while_it_is_new() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let issued = |ago: i64| {
            let mut params = rcgen::CertificateParams::default();
            let begin = SystemClock.now().as_second() - ago;
            let at = |seconds| rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds);
            params.not_before = at(begin.unsigned_abs());
            params.not_after = at(begin.unsigned_abs() + 3600);
            STANDARD.encode(params.self_signed(&key).expect("a certificate").pem())
        };
        let seen = plain(&issued(301)).expect("what it says");
        assert_eq!(seen["lastsSeconds"], 3600);
        assert_eq!(seen["begins"], "some minutes ago");
        assert_eq!(seen["version"], 2);
        assert_eq!(plain(&issued(2 * OLD)), None, "stored by hand");
        assert_eq!(plain("nonsense"), None);
    }
}
