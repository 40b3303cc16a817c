//! Certificates, as far as rooms judge by them. They come from whoever may sign: whatever they hold, reading ends in a value.
//! Decides nothing.

use jiff::Timestamp;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// When the first certificate in the first PEM block of a text ends; `None` if that can't be read.
pub(super) fn end(text: &[u8]) -> Option<Timestamp> {
    let block = Pem::iter_from_buffer(text).next()?.ok()?;
    let (mut rest, first) = X509Certificate::from_der(&block.contents).ok()?;
    // What follows in the block must be certificates, too.
    while !rest.is_empty() {
        rest = X509Certificate::from_der(rest).ok()?.0;
    }
    Timestamp::from_second(first.validity.not_after.timestamp()).ok()
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
