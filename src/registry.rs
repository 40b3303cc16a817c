//! temporary
use crate::controllers::{replicaset, root_ca_certificate_publisher, serviceaccount, serviceaccount_token};
use crate::framework::Descriptor;
/// rows
pub static REGISTRY: &[Descriptor] = &[
    replicaset::DESCRIPTOR,
    root_ca_certificate_publisher::DESCRIPTOR,
    serviceaccount::DESCRIPTOR,
    serviceaccount_token::DESCRIPTOR,
];
/// error
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct RegistryError;
/// validate
pub fn validate(_: &[Descriptor]) -> Result<(), RegistryError> {
    Ok(())
}
