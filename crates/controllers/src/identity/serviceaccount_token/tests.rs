//! The plans' tables, and tokens that verify.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use p521::ecdsa::signature::Verifier as _;
use p521::pkcs8::DecodePublicKey as _;
use rcgen::PublicKeyData;

use super::plan::{plan_reference, plan_token};
use super::signer::{PrivateKeySigner, SigningKeyError, TokenFinisher};
use super::view::{LONGEST_UID, ReferenceView, References, TokenView, Tokens, reference};
use super::{ACCOUNT_NAME, ACCOUNT_UID, TOKEN_SIGNER, TOKEN_TYPE, references_of_secrets};
use coxswain_machinery::api::core::{ObjectReference, Secret, ServiceAccount};
use coxswain_machinery::api::kinds::{SECRETS, SERVICE_ACCOUNTS};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::{AnyObject, Object};
use coxswain_machinery::executor::{FinishError, Finisher};
use coxswain_machinery::framework::{BlockingPool, Observation, ObserveError, Read, Reads, Room as _};
use coxswain_machinery::informer::{Delta, Lister, Store, downcast};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::{Expect, Plan, Step, Verb};
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes};
use coxswain_machinery::wire::{Message, Value};

fn meta(name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta { name: name.into(), namespace: "team".into(), uid: uid.into(), ..ObjectMeta::default() }
}

fn account() -> Arc<ServiceAccount> {
    let secrets = ["app-token", "other"]
        .map(|name| ObjectReference { name: name.into(), ..ObjectReference::default() })
        .into();
    let mut bytes =
        ServiceAccount { metadata: meta("app", "account-uid"), secrets, ..ServiceAccount::default() }
            .to_bytes();
    put_bytes(&mut bytes, 99, b"unknown");
    stored(&SERVICE_ACCOUNTS, bytes)
}

fn stored<T: Object>(kind: &coxswain_machinery::api::Kind, bytes: Vec<u8>) -> Arc<T> {
    downcast((kind.decode)(&Bytes::from(bytes)).unwrap()).unwrap()
}

fn secret(data: &[(&str, &str)]) -> Arc<Secret> {
    let metadata = ObjectMeta {
        annotations: [(ACCOUNT_NAME, "app")].into_iter().collect(),
        ..meta("app-token", "secret-uid")
    };
    let bytes = Secret { metadata, r#type: TOKEN_TYPE.into(), ..Secret::default() }.to_bytes();
    let edits: Vec<Edit> = data
        .iter()
        .map(|(key, value)| Edit::MapSetBytes(&[2], (*key).to_owned(), value.as_bytes().to_vec()))
        .collect();
    let mut bytes = edit(&bytes, &edits).unwrap();
    put_bytes(&mut bytes, 99, b"unknown");
    stored(&SECRETS, bytes)
}

fn view(data: &[(&str, &str)], account: Option<Arc<ServiceAccount>>, uid: &str) -> TokenView {
    TokenView {
        secret: secret(data),
        account_name: "app".into(),
        account_uid: uid.into(),
        account,
        bundle: "PEM".into(),
    }
}

fn only_write(plan: &Plan) -> &Verb {
    match plan.steps.as_slice() {
        [Step::Write(write)] => &write.verb,
        [Step::Verify(verify), Step::Write(write)] if matches!(write.verb, Verb::UpdateFinished { .. }) => {
            assert_eq!((verify.kind, &verify.key), (&SERVICE_ACCOUNTS, &Key::new("team", "app")));
            assert_eq!(
                verify.expect,
                Expect::Exists("account-uid".into()),
                "no token is signed for another one"
            );
            &write.verb
        }
        steps => panic!("{steps:?}"),
    }
}

#[test]
fn an_empty_secret_is_filled_and_keeps_what_is_unknown() {
    let plan = plan_token(&view(&[("mine", "x")], Some(account()), ""));
    assert!(matches!(plan.steps[0], Step::Verify(_)), "the account is read live: {plan:?}");
    let Verb::UpdateFinished { object, order } = only_write(&plan) else { panic!("{plan:?}") };
    assert_eq!(order.finisher, TOKEN_SIGNER);
    let claims = &order.details;
    assert!(!format!("{plan:?}").contains("system:serviceaccount"), "an order is not shown: {plan:?}");
    assert_eq!(get(object, &[99]).unwrap(), Some(Value::Bytes(b"unknown")));
    let written: Arc<Secret> = stored(&SECRETS, object.to_vec());
    assert_eq!(written.data("mine"), Some(b"x".as_slice()));
    assert_eq!(written.data("ca.crt"), Some(b"PEM".as_slice()));
    assert_eq!(written.data("namespace"), Some(b"team".as_slice()));
    assert_eq!(written.metadata.annotations.get(ACCOUNT_UID).unwrap(), "account-uid");
    assert_eq!(claims["sub"], "system:serviceaccount:team:app");
    assert_eq!(claims["kubernetes.io/serviceaccount/secret.name"], "app-token");
    assert_eq!(claims["kubernetes.io/serviceaccount/service-account.uid"], "account-uid");
}

#[test]
fn a_complete_secret_is_left_alone_and_a_changed_bundle_is_replaced_without_a_new_token() {
    let complete = [("token", "t"), ("ca.crt", "PEM"), ("namespace", "team")];
    assert!(plan_token(&view(&complete, Some(account()), "account-uid")).is_empty());
    let outdated = [("token", "t"), ("ca.crt", "OLD"), ("namespace", "team")];
    let plan = plan_token(&view(&outdated, Some(account()), "account-uid"));
    let Verb::Update(object) = only_write(&plan) else { panic!("{plan:?}") };
    let written: Arc<Secret> = stored(&SECRETS, object.to_vec());
    assert_eq!(written.data("token"), Some(b"t".as_slice()));
    assert_eq!(written.data("ca.crt"), Some(b"PEM".as_slice()));
}

#[test]
fn a_namespace_is_filled_in_and_not_put_right() {
    let written = |namespace: &str| {
        let data = [("token", "t"), ("ca.crt", "OLD"), ("namespace", namespace)];
        let plan = plan_token(&view(&data, Some(account()), "account-uid"));
        let Verb::Update(object) = only_write(&plan) else { panic!("{plan:?}") };
        let written: Arc<Secret> = stored(&SECRETS, object.to_vec());
        String::from_utf8(written.data("namespace").unwrap().to_vec()).unwrap()
    };
    assert_eq!([written(""), written("other")], ["team", "other"]);
}

#[test]
fn a_reference_to_a_secret_that_is_there_stays_whatever_its_type() {
    let accounts = Arc::new(Store::new(&SERVICE_ACCOUNTS));
    let account = account();
    accounts.upsert(&(Arc::clone(&account) as AnyObject));
    let room = References {
        accounts: Lister::new(accounts),
        // It knows of token secrets only.
        secrets: Lister::new(Arc::new(Store::new(&SECRETS))),
    };
    let key = reference("team", &account.metadata.name, "app-token", "account-uid");
    let place = Key::new("team", "app-token");
    let observe = |reads: &Reads| room.observe(&key, &[], reads).unwrap();
    let Observation::Needs(needs) = observe(&Reads::default()) else { panic!("it is read live") };
    assert_eq!(needs, [Read::Object(&SECRETS, place.clone())]);
    let found = |found| Reads::default().with_object(&SECRETS, place.clone(), Ok(found));
    let other = secret(&[]) as AnyObject;
    assert!(matches!(observe(&found(Some(other))), Observation::Nothing));
    assert!(matches!(observe(&found(None)), Observation::View(_)));
}

#[test]
fn a_reference_is_taken_off_the_account_that_the_secret_was_for() {
    let room = References {
        accounts: Lister::new(Arc::new(Store::new(&SERVICE_ACCOUNTS))),
        secrets: Lister::new(Arc::new(Store::new(&SECRETS))),
    };
    room.accounts.store().upsert(&(account() as AnyObject));
    let gone = Reads::default().with_object(&SECRETS, Key::new("team", "app-token"), Ok(None)).with_object(
        &SERVICE_ACCOUNTS,
        Key::new("team", "app"),
        Ok(Some(account() as AnyObject)),
    );
    for (uid, is_its) in
        [("account-uid", true), ("", true), ("of-an-earlier-account", false), ("account", false)]
    {
        let observed = room.observe(&reference("team", "app", "app-token", uid), &[], &gone).unwrap();
        assert_eq!(matches!(observed, Observation::View(_)), is_its, "a secret for {uid:?}");
    }
}

#[test]
fn a_reference_that_the_cache_does_not_show_yet_is_taken_off() {
    let room = References {
        accounts: Lister::new(Arc::new(Store::new(&SERVICE_ACCOUNTS))),
        secrets: Lister::new(Arc::new(Store::new(&SECRETS))),
    };
    let key = reference("team", "app", "app-token", "account-uid");
    let (of_account, of_secret) = (Key::new("team", "app"), Key::new("team", "app-token"));
    let unlisted = ServiceAccount { metadata: meta("app", "account-uid"), ..ServiceAccount::default() };
    let unlisted: AnyObject = stored::<ServiceAccount>(&SERVICE_ACCOUNTS, unlisted.to_bytes());
    for cached in [None, Some(&unlisted)] {
        room.accounts.store().replace(cached.into_iter().cloned().collect(), "1");
        let Observation::Needs(needs) = room.observe(&key, &[], &Reads::default()).unwrap() else {
            panic!("it is read live")
        };
        assert_eq!(needs, [Read::Object(&SERVICE_ACCOUNTS, of_account.clone())]);
        let live = |found: Option<AnyObject>| {
            let read = Reads::default().with_object(&SERVICE_ACCOUNTS, of_account.clone(), Ok(found));
            room.observe(&key, &[], &read.with_object(&SECRETS, of_secret.clone(), Ok(None))).unwrap()
        };
        assert!(matches!(live(Some(account())), Observation::View(_)));
        assert!(matches!(live(Some(Arc::clone(&unlisted))), Observation::Nothing));
        assert!(matches!(live(None), Observation::Nothing));
    }
}

/// The token Secret `team/app-token` with these annotations.
fn annotated(account: &str, uid: &str) -> Arc<Secret> {
    let metadata = ObjectMeta {
        annotations: [(ACCOUNT_NAME, account), (ACCOUNT_UID, uid)].into_iter().collect(),
        ..meta("app-token", "secret-uid")
    };
    stored(&SECRETS, Secret { metadata, r#type: TOKEN_TYPE.into(), ..Secret::default() }.to_bytes())
}

/// Texts that are the name of no ServiceAccount, and whether a client can address an object with that name.
fn names_of_no_account() -> Vec<(String, bool)> {
    let texts = [("a/b", false), ("..", false), (".", false), ("a%", false), ("App", true), ("a b", true)];
    let long = [253, 64 << 10].map(|length| (format!("a{}", "b".repeat(length)), true));
    texts.map(|(text, addressable)| (text.to_owned(), addressable)).into_iter().chain(long).collect()
}

#[test]
fn deleted_secret_of_no_possible_account_queues_no_key() {
    let keys = |account: &str, uid: &str| {
        let old = annotated(account, uid) as AnyObject;
        let mut keys = Vec::new();
        let delta = Delta { old: Some(&old), new: None, initial: false, resync: false };
        references_of_secrets()(delta, &mut |key| keys.push(key));
        keys
    };
    assert_eq!(keys("app", "account-uid"), [reference("team", "app", "app-token", "account-uid")]);
    let longest = "a".repeat(253);
    assert_eq!(keys(&longest, ""), [reference("team", &longest, "app-token", "")]);
    for (name, _) in names_of_no_account() {
        assert!(keys(&name, "").is_empty(), "{name:.20}");
    }
    let uid = "u".repeat(LONGEST_UID);
    assert_eq!(keys("app", &uid).len(), 1);
    assert!(keys("app", &format!("{uid}u")).is_empty());
}

#[test]
fn reference_with_an_impossible_name_needs_no_live_read() {
    let room = References {
        accounts: Lister::new(Arc::new(Store::new(&SERVICE_ACCOUNTS))),
        secrets: Lister::new(Arc::new(Store::new(&SECRETS))),
    };
    let observe = |key: &Key| room.observe(key, &[], &Reads::default()).unwrap();
    assert!(matches!(observe(&reference("team", "app", "app-token", "")), Observation::Needs(_)));
    for (name, _) in names_of_no_account() {
        let observed = observe(&reference("team", &name, "app-token", ""));
        assert!(matches!(observed, Observation::Nothing), "account {name:.20}");
    }
    assert!(matches!(observe(&reference("team", "app", "..", "")), Observation::Nothing));
}

#[test]
fn secret_of_an_account_with_an_impossible_name_is_never_retried() {
    let room = Tokens {
        accounts: Lister::new(Arc::new(Store::new(&SERVICE_ACCOUNTS))),
        secrets: Lister::new(Arc::new(Store::new(&SECRETS))),
        bundle: "PEM".into(),
    };
    for (name, addressable) in names_of_no_account() {
        room.secrets.store().upsert(&(annotated(&name, "") as AnyObject));
        match room.observe(&Key::new("team", "app-token"), &[], &Reads::default()) {
            Ok(Observation::View(view)) => {
                assert!(addressable, "{name:.20}");
                let plan = plan_token(&view);
                let [Step::Write(write)] = plan.steps.as_slice() else { panic!("{plan:?}") };
                let Verb::Delete { uid, .. } = &write.verb else { panic!("{write}") };
                assert_eq!(uid, "secret-uid");
            }
            Err(ObserveError::Terminal(error)) => {
                assert!(!addressable && error.contains("team/app-token"), "{error}");
            }
            _ => panic!("{name:.20}"),
        }
    }
}

#[test]
fn a_secret_goes_only_after_a_live_read_misses_its_account() {
    for (uid, expected) in [("", Expect::Absent), ("old", Expect::Gone("old".into()))] {
        let plan = plan_token(&view(&[], None, uid));
        let [Step::Verify(verify), Step::Write(write)] = plan.steps.as_slice() else { panic!("{plan:?}") };
        assert_eq!(verify.expect, expected);
        assert_eq!(verify.key.to_string(), "team/app");
        let Verb::Delete { uid, .. } = &write.verb else { panic!("{write}") };
        assert_eq!(uid, "secret-uid");
    }
}

#[test]
fn a_reference_to_a_secret_that_is_gone_is_taken_off() {
    let plan = plan_reference(&ReferenceView { account: account(), secret: "app-token".into() });
    let Verb::Update(object) = only_write(&plan) else { panic!("{plan:?}") };
    assert_eq!(get(object, &[99]).unwrap(), Some(Value::Bytes(b"unknown")));
    let written: Arc<ServiceAccount> = stored(&SERVICE_ACCOUNTS, object.to_vec());
    assert_eq!(written.secrets.len(), 1);
    assert_eq!(written.secrets[0].name, "other");
}

#[tokio::test]
async fn the_signer_puts_the_token_into_the_secret_and_keeps_the_rest() {
    let pair = rcgen::KeyPair::generate().unwrap();
    let signer = PrivateKeySigner::from_pem(pair.serialize_pem().as_bytes()).unwrap();
    let signer = TokenFinisher::new(signer, BlockingPool::inline());
    let plan = plan_token(&view(&[("mine", "x")], Some(account()), ""));
    let Verb::UpdateFinished { object, order } = only_write(&plan) else { panic!("{plan:?}") };
    let finished = signer.finish(object, &order.details).await.unwrap();
    assert_eq!(get(&finished, &[99]).unwrap(), Some(Value::Bytes(b"unknown")));
    let written: Arc<Secret> = stored(&SECRETS, finished);
    assert_eq!(written.data("mine"), Some(b"x".as_slice()));
    let token = std::str::from_utf8(written.data("token").unwrap()).unwrap();
    assert_eq!(token.split('.').count(), 3, "{token}");
    let refused = signer.finish(b"\xff", &order.details).await;
    assert!(matches!(refused, Err(FinishError::Unfit(_))), "{refused:?}");
}

#[test]
fn a_token_verifies_with_the_public_key() {
    for (algorithm, name, verification) in [
        (&rcgen::PKCS_ECDSA_P256_SHA256, "ES256", &ring::signature::ECDSA_P256_SHA256_FIXED),
        (&rcgen::PKCS_ECDSA_P384_SHA384, "ES384", &ring::signature::ECDSA_P384_SHA384_FIXED),
    ] {
        let pair = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let signer = PrivateKeySigner::from_pem(pair.serialize_pem().as_bytes()).unwrap();
        let token = signer.sign(&serde_json::json!({ "sub": "someone" })).unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let header: serde_json::Value = serde_json::from_slice(&decode(parts[0])).unwrap();
        let key_id = ring::digest::digest(&ring::digest::SHA256, &pair.subject_public_key_info());
        assert_eq!(header["alg"], name);
        assert_eq!(header["kid"], URL_SAFE_NO_PAD.encode(key_id));
        let public = ring::signature::UnparsedPublicKey::new(verification, pair.public_key_raw());
        public.verify(format!("{}.{}", parts[0], parts[1]).as_bytes(), &decode(parts[2])).unwrap();
    }
}

/// Keys as openssl writes them, in SEC1 and in PKCS#8; no other program knows them.
#[test]
fn a_key_on_p521_signs_as_the_others_do() {
    const PUBLIC: &str = include_str!("../../../../../tests/data/keys/p521.pub");
    let public: String = PUBLIC.lines().filter(|line| !line.starts_with('-')).collect();
    let public = base64::engine::general_purpose::STANDARD.decode(public).unwrap();
    let key_id = URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, &public));
    let verifying = p521::ecdsa::VerifyingKey::from_public_key_der(&public).unwrap();
    for private in [
        include_str!("../../../../../tests/data/keys/p521.pem"),
        include_str!("../../../../../tests/data/keys/p521-pkcs8.pem"),
    ] {
        let signer = PrivateKeySigner::from_pem(private.as_bytes()).unwrap();
        let token = signer.sign(&serde_json::json!({ "sub": "someone" })).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let header = signed.split_once('.').unwrap().0;
        let header: serde_json::Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).unwrap()).unwrap();
        assert_eq!(header, serde_json::json!({ "alg": "ES512", "kid": key_id }));
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        assert_eq!(signature.len(), 132, "two numbers of 66 bytes");
        let signature = p521::ecdsa::Signature::from_slice(&signature).unwrap();
        verifying.verify(signed.as_bytes(), &signature).unwrap();
        assert!(verifying.verify(&signed.as_bytes()[1..], &signature).is_err());
    }
}

/// RSA keys that ring refuses, and elliptic keys without their public part, with their certificates.
#[test]
fn keys_that_ring_refuses_sign_tokens() {
    macro_rules! keys {
        ($($name:literal: $algorithm:literal),*) => {[$((
            $name,
            $algorithm,
            include_str!(concat!("../../../../../tests/data/authorities/", $name, ".crt")),
            include_str!(concat!("../../../../../tests/data/authorities/", $name, ".key")),
        )),*]};
    }
    for (name, algorithm, certificate, key) in keys![
        "rsa": "RS256",
        "rsa1024": "RS256",
        "rsa4104": "RS256",
        "rsa8192": "RS256",
        "p256-no-public": "ES256",
        "p384-no-public": "ES384",
        "p521-no-public": "ES512"
    ] {
        let certificate =
            x509_parser::pem::Pem::iter_from_buffer(certificate.as_bytes()).next().unwrap().unwrap();
        let certificate = certificate.parse_x509().unwrap();
        let public = certificate.public_key();
        let signer = PrivateKeySigner::from_pem(key.as_bytes()).unwrap();
        let token = signer.sign(&serde_json::json!({ "sub": "someone" })).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let header: serde_json::Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().0).unwrap())
                .unwrap();
        let key_id = URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, public.raw));
        assert_eq!(header, serde_json::json!({ "alg": algorithm, "kid": key_id }), "{name}");
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let bits = &public.subject_public_key.data;
        let verification: &dyn ring::signature::VerificationAlgorithm = match algorithm {
            "RS256" => &ring::signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
            "ES256" => &ring::signature::ECDSA_P256_SHA256_FIXED,
            "ES384" => &ring::signature::ECDSA_P384_SHA384_FIXED,
            _ => {
                let signature = p521::ecdsa::Signature::from_slice(&signature).unwrap();
                let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(bits).unwrap();
                key.verify(signed.as_bytes(), &signature).unwrap();
                continue;
            }
        };
        let public = ring::signature::UnparsedPublicKey::new(verification, bits);
        assert!(public.verify(signed.as_bytes(), &signature).is_ok(), "{name}");
    }
}

#[test]
fn a_file_without_a_usable_key_says_so() {
    assert_eq!(PrivateKeySigner::from_pem(b"nothing").unwrap_err(), SigningKeyError::NoKey);
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let error = PrivateKeySigner::from_pem(pair.serialize_pem().as_bytes()).unwrap_err();
    assert_eq!(error, SigningKeyError::Unsupported);
}
