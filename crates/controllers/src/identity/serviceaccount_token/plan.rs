//! Decides what a token secret lacks, and when it must go.

use serde_json::json;

use super::view::{ReferenceView, TokenView};
use super::{ACCOUNT_NAME, ACCOUNT_UID, TOKEN_SIGNER};
use crate::live_reads::TOKEN_ACCOUNT;
use coxswain_machinery::api::core::{ObjectReference, Secret, ServiceAccount};
use coxswain_machinery::api::kinds::{SECRETS, SERVICE_ACCOUNTS};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::names::is_subdomain;
use coxswain_machinery::model::plan::{Expect, FinishOrder, Plan, Step, Tolerate, Verb, Verify, Write};
use coxswain_machinery::wire::splice::{Edit, edit, retain_items};
use coxswain_machinery::wire::text::raw_bytes;
use coxswain_machinery::wire::{Message, Path, WireError, field, path};

/// Annotations of a Secret.
const ANNOTATIONS: Path = path!(Secret, metadata.annotations);

/// Issuer of these tokens, which the API server tells apart from bound ones by it.
const ISSUER: &str = "kubernetes/serviceaccount";

/// Fills the secret, or deletes it when its account is gone.
pub(super) fn plan_token(view: &TokenView) -> Plan {
    match &view.account {
        None => plan_deletion(view),
        Some(account) => plan_filling(view, account),
    }
}

/// The cache misses the account; only when a live read misses it too does the secret go. No account has a name that is no DNS subdomain,
/// so such an account is not read. The URI of a long name could not be sent.
fn plan_deletion(view: &TokenView) -> Plan {
    let secret = &view.secret.metadata;
    if secret.is_deleting() {
        return Plan::default();
    }
    let verb = Verb::delete(secret.uid.clone());
    let mut write = Write::new(&SECRETS, Key::of(secret), verb);
    write.tolerate = Tolerate { absent: true, ..Tolerate::default() };
    let mut plan = Plan::default();
    if is_subdomain(&view.account_name) {
        let key = Key::new(secret.namespace.clone(), view.account_name.clone());
        let expect =
            if view.account_uid.is_empty() { Expect::Absent } else { Expect::Gone(view.account_uid.clone()) };
        let verify = Verify { read: &TOKEN_ACCOUNT, kind: &SERVICE_ACCOUNTS, key, expect };
        plan.steps.push(Step::Verify(verify));
    }
    plan.steps.push(Step::Write(write));
    plan
}

fn plan_filling(view: &TokenView, account: &ServiceAccount) -> Plan {
    let mut plan = Plan::default();
    let secret = &view.secret;
    let namespace = &secret.metadata.namespace;
    let needs_token = secret.data("token").is_none_or(<[u8]>::is_empty);
    let mut edits = Vec::new();
    if !view.bundle.is_empty() && secret.data("ca.crt") != Some(&*raw_bytes(&view.bundle)) {
        edits.push(set_data("ca.crt", &view.bundle));
    }
    // Another one, which is somebody's doing, is left.
    if secret.data("namespace").is_none_or(<[u8]>::is_empty) {
        edits.push(set_data("namespace", namespace));
    }
    if edits.is_empty() && !needs_token {
        return plan;
    }
    edits.extend([
        Edit::MapSet(ANNOTATIONS, ACCOUNT_NAME.to_owned(), account.metadata.name.to_string()),
        Edit::MapSet(ANNOTATIONS, ACCOUNT_UID.to_owned(), account.metadata.uid.to_string()),
    ]);
    let object = match edit(&secret.raw, &edits) {
        Ok(object) => object.into(),
        Err(error) => return malformed(plan, &error),
    };
    let verb = if needs_token {
        Verb::UpdateFinished {
            object,
            order: FinishOrder { finisher: TOKEN_SIGNER, details: claims(view, account) },
        }
    } else {
        Verb::Update(object)
    };
    let mut write = Write::new(&SECRETS, Key::of(&secret.metadata), verb);
    write.tolerate = Tolerate { absent: true, ..Tolerate::default() };
    if needs_token {
        // A token for an earlier account of the name is of no use, and its Secret would be deleted with the cache's next news.
        plan.steps.push(Step::Verify(Verify {
            read: &TOKEN_ACCOUNT,
            kind: &SERVICE_ACCOUNTS,
            key: Key::of(&account.metadata),
            expect: Expect::Exists(account.metadata.uid.clone()),
        }));
    }
    plan.steps.push(Step::Write(write));
    plan
}

fn set_data(key: &str, value: &str) -> Edit {
    Edit::MapSetBytes(path!(Secret, data), key.to_owned(), raw_bytes(value).into_owned())
}

/// The claims of a legacy token: it does not expire, and names its secret, so that deleting that revokes it.
fn claims(view: &TokenView, account: &ServiceAccount) -> serde_json::Value {
    let (namespace, name) = (&account.metadata.namespace, &account.metadata.name);
    json!({
        "iss": ISSUER,
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": view.secret.metadata.name,
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": account.metadata.uid,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    })
}

/// Takes the reference off the account.
pub(super) fn plan_reference(view: &ReferenceView) -> Plan {
    let plan = Plan::default();
    let account = &view.account.metadata;
    let kept = retain_items(&view.account.raw, field!(ServiceAccount, secrets), |item| {
        // An entry that can't be read is not the one looked for.
        ObjectReference::decode(&bytes::Bytes::copy_from_slice(item))
            .map_or(true, |reference| reference.name != view.secret)
    });
    let object = match kept {
        Ok(object) => object.into(),
        Err(error) => return malformed(plan, &error),
    };
    let mut write = Write::new(&SERVICE_ACCOUNTS, Key::of(account), Verb::Update(object));
    write.tolerate = Tolerate { absent: true, ..Tolerate::default() };
    Plan { steps: vec![Step::Write(write)], ..plan }
}

fn malformed(mut plan: Plan, error: &WireError) -> Plan {
    plan.retry = Some(error.to_string());
    plan
}
