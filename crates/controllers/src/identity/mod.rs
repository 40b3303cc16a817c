//! Identity: service accounts, their tokens, and whom pods trust.

pub mod root_ca_certificate_publisher;
pub mod serviceaccount;
pub mod serviceaccount_token;
