//! What is known of a token secret and its account.

use std::sync::Arc;

use jiff::Timestamp;

use super::{ACCOUNT_NAME, ACCOUNT_UID, TOKEN_TYPE};
use crate::live_reads::{TOKEN_OWNER, TOKEN_SECRET};
use coxswain_machinery::api::core::{Secret, ServiceAccount};
use coxswain_machinery::api::kinds::{SECRETS, SERVICE_ACCOUNTS};
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads, Room};
use coxswain_machinery::informer::{Lister, downcast};
use coxswain_machinery::model::names::{is_addressable, is_subdomain};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::{Str, Uid};

/// Reads token secrets with the accounts that they name. Keys are secrets.
pub(super) struct Tokens {
    pub(super) accounts: Lister<ServiceAccount>,
    pub(super) secrets: Lister<Secret>,
    pub(super) bundle: Str,
}

/// A token secret.
#[derive(Clone, Debug)]
pub(super) struct TokenView {
    pub(super) secret: Arc<Secret>,
    /// Name of the account that it is for.
    pub(super) account_name: Str,
    /// UID of the account that it is for; empty when the secret doesn't say.
    pub(super) account_uid: Uid,
    /// The account, if the one that the secret names exists.
    pub(super) account: Option<Arc<ServiceAccount>>,
    /// The CA bundle to hold; empty when there is none.
    pub(super) bundle: Str,
}

impl Room for Tokens {
    type View = TokenView;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<TokenView>, ObserveError> {
        let Some(secret) = self.secrets.get(key).filter(|secret| secret.r#type == TOKEN_TYPE) else {
            return Ok(Observation::Nothing);
        };
        let annotation = |name| secret.metadata.annotations.get(name).cloned().unwrap_or_default();
        let (account_name, account_uid) = (annotation(ACCOUNT_NAME), Uid::from(annotation(ACCOUNT_UID)));
        if account_name.is_empty() {
            return Ok(Observation::Nothing);
        }
        let account = self
            .accounts
            .get(&Key::new(key.namespace.clone(), account_name.clone()))
            .filter(|account| account_uid.is_empty() || account.metadata.uid == account_uid);
        // Only a change of the Secret can help. The original tries ten times to read the account, and leaves the Secret. Differs: no
        if account.is_none() && !is_addressable(&account_name) && !secret.metadata.is_deleting() {
            return Err(ObserveError::Terminal(format!(
                "Secret {key}: the annotation {ACCOUNT_NAME} is not the name of a ServiceAccount"
            )));
        }
        let bundle = self.bundle.clone();
        Ok(Observation::View(TokenView { secret, account_name, account_uid, account, bundle }))
    }

    fn plan(view: &TokenView, _: Timestamp) -> Plan {
        super::plan::plan_token(view)
    }
}

/// Longest UID of an account for which a reference is queued, in bytes. UIDs of the API server have 36.
pub(super) const LONGEST_UID: usize = 128;

/// Returns whether an account with this name and this UID, which may be empty, can exist. The API server accepts no other name.
pub(super) fn can_exist(account: &str, uid: &str) -> bool {
    is_subdomain(account) && uid.len() <= LONGEST_UID
}

/// The key of an account's reference to a secret. Its part is the secret's name and, after a slash, the UID of the account that the
/// secret was for. Names contain no slash.
pub(super) fn reference(namespace: &str, account: &str, secret: &str, account_uid: &str) -> Key {
    Key::new(namespace, account).with_part(&format!("{secret}/{account_uid}"))
}

/// Reads the accounts of secrets that are gone. Keys are made by [`reference`].
pub(super) struct References {
    pub(super) accounts: Lister<ServiceAccount>,
    pub(super) secrets: Lister<Secret>,
}

/// An account that lists a secret which is gone, as a live read has shown.
#[derive(Clone, Debug)]
pub(super) struct ReferenceView {
    pub(super) account: Arc<ServiceAccount>,
    pub(super) secret: Str,
}

impl Room for References {
    type View = ReferenceView;

    fn observe(
        &self,
        key: &Key,
        _: &[Failure],
        read: &Reads,
    ) -> Result<Observation<ReferenceView>, ObserveError> {
        let Some((secret, account_uid)) = key.part().and_then(|part| part.split_once('/')) else {
            return Err(ObserveError::Terminal(format!("{key} is not a reference to a Secret")));
        };
        // The key of a call of the admin API can have any texts. The API server has no object with another name.
        if !can_exist(&key.name, account_uid) || !is_subdomain(secret) {
            return Ok(Observation::Nothing);
        }
        let owner = Key::new(key.namespace.clone(), key.name.clone());
        let place = Key::new(key.namespace.clone(), secret);
        if self.secrets.get(&place).is_some() {
            return Ok(Observation::Nothing);
        }
        // Another account of the name may have a secret of this name, too. A secret that names no UID was for whichever has the name.
        let is_its = |account: &Arc<ServiceAccount>| {
            (account_uid.is_empty() || account.metadata.uid == *account_uid)
                && account.secrets.iter().any(|held| held.name == secret)
        };
        let account = match self.accounts.get(key).filter(is_its) {
            Some(account) => account,
            // The cache may be late, and no change of the account brings the key back.
            None => match read.object(&SERVICE_ACCOUNTS, &owner) {
                None => {
                    return Ok(Observation::Needs(vec![
                        TOKEN_OWNER.of(Read::Object(&SERVICE_ACCOUNTS, owner)),
                    ]));
                }
                Some(Err(error)) => return Err(ObserveError::Retry(error.to_string())),
                Some(Ok(found)) => match found.cloned().and_then(downcast).filter(is_its) {
                    Some(account) => account,
                    None => return Ok(Observation::Nothing),
                },
            },
        };
        match read.object(&SECRETS, &place) {
            None => Ok(Observation::Needs(vec![TOKEN_SECRET.of(Read::Object(&SECRETS, place))])),
            Some(Err(error)) => Err(ObserveError::Retry(error.to_string())),
            // One that the cache is late to tell of, or of another type, which it never tells of.
            Some(Ok(Some(_))) => Ok(Observation::Nothing),
            Some(Ok(None)) => Ok(Observation::View(ReferenceView { account, secret: secret.into() })),
        }
    }

    fn plan(view: &ReferenceView, _: Timestamp) -> Plan {
        super::plan::plan_reference(view)
    }
}
