//! A signature over a text by a bootstrap token: a JWS with detached content (RFC 7515, appendix F) in compact form.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use coxswain_machinery::wire::text::raw_bytes;
use ring::hmac;

/// `HEADER..MAC`. Clients make the same and compare, so every byte counts. `id` is of letters and digits.
pub(super) fn sign(content: &str, id: &str, secret: &[u8]) -> String {
    let header = URL_SAFE_NO_PAD.encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{id}\"}}"));
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(raw_bytes(content)));
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(mac))
}
