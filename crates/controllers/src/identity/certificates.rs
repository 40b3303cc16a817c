//! Certificates, as far as rooms judge by them. They come from whoever may sign: whatever they hold, reading ends in a value.
//! Decides nothing.

use std::sync::Arc;

use jiff::Timestamp;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::pem;
use coxswain_machinery::framework::Parser;
use coxswain_machinery::wire::WallTime;

/// Parses the end of a certificate. Its value is an [`End`].
pub(super) static PARSER: Parser = Parser { name: "certificate", parse: |text| Arc::new(End(end(text))) };

/// The value of [`PARSER`].
#[derive(Debug)]
pub(super) struct End(pub(super) Option<Timestamp>);

/// Returns when the first certificate in the first PEM block of a text ends; `None` if that can't be read.
fn end(text: &[u8]) -> Option<Timestamp> {
    let der = pem::first_block(text, "CERTIFICATE").ok()?;
    let (first, mut rest) = Certificate::from_der_partial(&der).ok()?;
    // Only certificates may follow in the block.
    while !rest.is_empty() {
        rest = Certificate::from_der_partial(rest).ok()?.1;
    }
    let end = first.tbs_certificate().validity().not_after.to_unix_duration().as_secs();
    Some(WallTime::new(i64::try_from(end).ok()?, 0).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(until: i32) -> String {
        let mut params = rcgen::CertificateParams::new(vec!["name".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn only_what_can_be_read_ends() {
        let (one, other) = (certificate(2031), certificate(2032));
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let (first, second) = ("2031-01-01T00:00:00Z", "2032-01-01T00:00:00Z");
        for (text, expected) in [
            (one.clone(), Some(first)),
            (other.clone(), Some(second)),
            (format!("{one}{other}"), Some(first)),
            (format!("a comment\n{other}{garbage}"), Some(second)),
            (format!("{garbage}{one}"), None),
            (one.chars().take(200).collect(), None),
            ("no certificate".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(end(text.as_bytes()), expected.map(|time| time.parse().unwrap()), "{text}");
        }
    }
}
