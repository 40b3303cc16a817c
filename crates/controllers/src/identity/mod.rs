//! Identity: service accounts, their tokens, whom pods trust, and how nodes join.

pub mod bootstrap_signer;
mod bootstrap_tokens;
mod certificates;
pub mod certificatesigningrequest_cleaner;
pub mod root_ca_certificate_publisher;
pub mod serviceaccount;
pub mod serviceaccount_token;
pub mod token_cleaner;
