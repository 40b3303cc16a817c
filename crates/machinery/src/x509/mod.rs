//! Certificates and requests for certificates, read as Go's `crypto/x509` reads them or refused.
//!
//! A certificate authority may copy a name byte by byte from a request, so whoever sends requests chooses the encoding. Other readers of
//! X.509 compare the number of an ASN.1 tag alone and see texts where Go sees none. This reader compares whole tags.

mod certificate;
mod der;
mod extensions;
mod name;
pub mod uri;

pub use certificate::{Certificate, SubjectName};
pub use der::{Element, Elements, Malformed, context};
pub use extensions::{BasicConstraints, Extension, Extensions};
pub use name::{attributes, text};

#[cfg(any(test, feature = "testing"))]
pub mod fixtures;
#[cfg(test)]
mod tests;
