//! serviceaccount-token-controller: fills the token secrets that people make for service accounts.
//!
//! A secret of type `kubernetes.io/service-account-token` that names an account gets the CA bundle, its namespace and a
//! signed token; when the account is gone, the secret goes; when such a secret is gone, its account no longer lists it.
//! See "Manually create a long-lived API token" in the Kubernetes documentation.
//!
//! It is started before all others and with the manager's own identity, since the others' credentials may hang on it.
//! It never makes a secret, and touches no other type of secret.

mod plan;
pub mod signer;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use coxswain_machinery::api::core::{Secret, ServiceAccount};
use coxswain_machinery::api::kinds::{SECRETS, SERVICE_ACCOUNTS};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, KeyMap, Loop, LoopSettings, RoomAdapter,
    Tries, wake,
};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;
use view::{References, Tokens};

/// Restricts the watch to token secrets.
pub(super) const TOKEN_SECRETS: &str = "type=kubernetes.io/service-account-token";
/// The type of a token secret.
pub(super) const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// Annotation: name of the account that a secret is for.
pub(super) const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
/// Annotation: UID of the account that a secret is for.
pub(super) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// The finisher that signs claims and puts the token into the secret's data.
pub const TOKEN_SIGNER: &str = "service-account-token";

/// How often a Secret is written that is refused, as in the original. A reference to a Secret that is gone is tried as often;
/// the original gives that up at once.
const TRIES: Tries = Tries::retries(10);

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "serviceaccount-token-controller",
    aliases: &["serviceaccount-token"],
    description: "Creates signed tokens in Secrets of type kubernetes.io/service-account-token and deletes the Secrets of deleted service accounts.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: true,
    service_account: None,
    event_source: None,
    writes: &[
        Grant { group: "", resource: "secrets", verbs: &["delete", "get", "update"] },
        Grant { group: "", resource: "serviceaccounts", verbs: &["get", "update"] },
    ],
    build: Some(build),
};

fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    if !build.finishers.knows(TOKEN_SIGNER) {
        return Err(BuildError::Skipped("--service-account-private-key-file is not set".to_owned()));
    }
    let accounts = build.watch::<ServiceAccount>(&SERVICE_ACCOUNTS);
    let secrets = build.watch_selected::<Secret>(&SECRETS, TOKEN_SECRETS);
    let tokens = Tokens {
        accounts: accounts.lister(),
        secrets: secrets.lister(),
        bundle: build.root_ca.clone().unwrap_or_default(),
    };
    let references = References { accounts: accounts.lister(), secrets: secrets.lister() };
    let settings = LoopSettings {
        tries: Some(TRIES),
        ..LoopSettings::with_workers(build.config.flags.concurrent_serviceaccount_token_syncs)
    };
    Ok(Built {
        loops: vec![
            Loop {
                queue: "serviceaccount_tokens_secret",
                kind: Some(&SECRETS),
                settings: settings.clone(),
                wake_ups: vec![
                    secrets.wakes(wake::existing()),
                    accounts.wakes(secrets_of_accounts(secrets.lister())),
                ],
                reconcile: Arc::new(RoomAdapter::new(tokens)),
            },
            Loop {
                queue: "serviceaccount_tokens_service",
                kind: Some(&SERVICE_ACCOUNTS),
                settings,
                wake_ups: vec![secrets.wakes(references_of_secrets())],
                reconcile: Arc::new(RoomAdapter::new(references)),
            },
        ],
    })
}

/// An account that appears or goes concerns the secrets that name it.
fn secrets_of_accounts(secrets: Lister<Secret>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let account = match delta.typed::<ServiceAccount>() {
            (None, Some(appeared)) if !delta.initial => appeared,
            (Some(gone), None) => gone,
            _ => return,
        };
        for secret in secrets.list_namespace(&account.metadata.namespace) {
            if names(&secret, &account.metadata.name) {
                add(Key::of(&secret.metadata));
            }
        }
    })
}

/// A token secret that is gone concerns the account that it was for; the key holds both names, see [`view::reference`].
fn references_of_secrets() -> KeyMap {
    Arc::new(|delta, add| {
        if let (Some(gone), None) = delta.typed::<Secret>()
            && let Some(account) = gone.metadata.annotations.get(ACCOUNT_NAME)
        {
            let uid = gone.metadata.annotations.get(ACCOUNT_UID).map_or("", Str::as_str);
            // Users choose both texts. An annotation can have 256 KiB, and keys stay in memory until they are reconciled.
            if view::can_exist(account, uid) {
                add(view::reference(&gone.metadata.namespace, account, &gone.metadata.name, uid));
            }
        }
    })
}

fn names(secret: &Secret, account: &str) -> bool {
    secret.metadata.annotations.get(ACCOUNT_NAME).is_some_and(|held| held == account)
}
