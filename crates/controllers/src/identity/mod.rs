//! Identity: service accounts, their tokens, whom pods trust, and how nodes join.

pub mod bootstrap_signer;
mod bootstrap_tokens;
mod certificates;
pub mod certificatesigningrequest_approving;
pub mod certificatesigningrequest_cleaner;
pub mod certificatesigningrequest_signing;
pub mod kube_apiserver_serving_clustertrustbundle_publisher;
pub mod legacy_serviceaccount_token_cleaner;
mod pem;
pub mod podcertificaterequest_cleaner;
mod requests;
pub mod root_ca_certificate_publisher;
pub mod serviceaccount;
pub mod serviceaccount_token;
pub mod signers;
mod sync_codes;
pub mod token_cleaner;
