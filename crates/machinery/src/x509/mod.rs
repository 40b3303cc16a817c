//! Certificates and requests for certificates, read as Go's `crypto/x509` reads them or refused.
//!
//! A certificate authority may copy a name byte by byte from a request, so whoever sends requests chooses the encoding. Other readers of
//! X.509 compare the number of an ASN.1 tag alone and see texts where Go sees none. This reader compares whole tags.

mod certificate;
mod der;
mod name;

pub use certificate::{BasicConstraints, Certificate, Extension, Extensions, Subject};
pub use der::{Element, Elements, Malformed, context};
pub use name::{attributes, text};

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
