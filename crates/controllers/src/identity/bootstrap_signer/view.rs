//! The ConfigMap, and the tokens that may sign it while they last.

use std::sync::Arc;

use super::super::bootstrap_tokens::{Expiry, secret_part, signing_id};
use super::{CONFIG_MAP, NAMESPACE, Signer};
use coxswain_machinery::api::core::{ConfigMap, Secret};
use coxswain_machinery::model::Key;

/// The ConfigMap with the tokens, by id.
#[derive(Debug)]
pub(super) struct View {
    pub(super) config_map: Arc<ConfigMap>,
    pub(super) tokens: Vec<Token>,
}

/// A token that may sign until it ends. What it signs with stays in its Secret.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) id: String,
    pub(super) expiry: Expiry,
    secret: Arc<Secret>,
}

impl Token {
    pub(super) fn secret_part(&self) -> &[u8] {
        secret_part(&self.secret).unwrap_or_default()
    }
}

pub(super) fn observe(room: &Signer, key: &Key) -> Option<View> {
    let config_map = room.config_maps.get(key).filter(|_| *key == Key::new(NAMESPACE, CONFIG_MAP))?;
    let token = |secret: Arc<Secret>| {
        let id = signing_id(&secret)?.to_owned();
        Some(Token { id, expiry: Expiry::of(&secret), secret })
    };
    let mut tokens: Vec<Token> = room.secrets.list().into_iter().filter_map(token).collect();
    tokens.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    Some(View { config_map, tokens })
}
