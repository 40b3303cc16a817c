//! Bootstrap tokens, as the rooms see them that sign with them and clean them up: Secrets in `kube-system` by which new nodes
//! join a cluster. See "Authenticating with Bootstrap Tokens" in the Kubernetes documentation. Decides nothing.

use jiff::Timestamp;

use coxswain_machinery::api::core::Secret;
use coxswain_machinery::wire::WallTime;

/// Restricts the watch to them.
pub(super) const SELECTOR: &str = "type=bootstrap.kubernetes.io/token,metadata.namespace=kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const NAMESPACE: &str = "kube-system";
/// What their names begin with, before the token's id.
const PREFIX: &str = "bootstrap-token-";
const ID_LENGTH: usize = 6;

/// When a token ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// It does not say, so it never does.
    Never,
    /// Then.
    At(Timestamp),
    /// It says something that is no time: it has ended.
    Unreadable,
}

impl Expiry {
    /// When the token's Secret says that it ends.
    pub(super) fn of(secret: &Secret) -> Self {
        match secret.data("expiration") {
            None | Some([]) => Self::Never,
            Some(text) => {
                let at = std::str::from_utf8(text).ok().and_then(|text| text.parse::<WallTime>().ok());
                at.map_or(Self::Unreadable, |at| Self::At(at.into()))
            }
        }
    }

    /// Whether it has come.
    pub(super) fn is_over(self, now: Timestamp) -> bool {
        match self {
            Self::Never => false,
            Self::At(end) => end <= now,
            Self::Unreadable => true,
        }
    }

    /// How long it is until then; `None` if it never comes, or has come.
    pub(super) fn left(self, now: Timestamp) -> Option<std::time::Duration> {
        match self {
            Self::At(end) if end > now => Some(end.duration_since(now).unsigned_abs()),
            _ => None,
        }
    }
}

/// Whether a Secret is one, whatever is in it.
pub(super) fn is_token(secret: &Secret) -> bool {
    secret.r#type == TYPE && secret.metadata.namespace == NAMESPACE
}

/// The id of a token that may sign while it has not ended: its Secret is named after it, has a secret part and says so.
pub(super) fn signing_id(secret: &Secret) -> Option<&str> {
    let id = secret.metadata.name.strip_prefix(PREFIX)?;
    let is_id = id.len() == ID_LENGTH && id.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let says = |key: &str, value: &str| secret.data(key) == Some(value.as_bytes());
    let signs = is_token(secret)
        && is_id
        && says("token-id", id)
        && secret_part(secret).is_some()
        && says("usage-bootstrap-signing", "true");
    signs.then_some(id)
}

/// The token's secret part; `None` if it has none.
pub(super) fn secret_part(secret: &Secret) -> Option<&[u8]> {
    secret.data("token-secret").filter(|part| !part.is_empty())
}

/// A token's Secret with these data, for tests of both rooms.
#[cfg(test)]
pub(super) fn token(name: &str, data: &[(&str, &str)]) -> Secret {
    use coxswain_machinery::api::kinds::SECRETS;
    use coxswain_machinery::informer::downcast;
    use coxswain_machinery::wire::splice::{Edit, edit};
    use coxswain_machinery::wire::{Message, path};

    let mut secret = Secret::default();
    secret.metadata.namespace = NAMESPACE.into();
    secret.metadata.name = name.into();
    secret.metadata.uid = format!("uid-{name}").into();
    secret.r#type = TYPE.into();
    let edits: Vec<Edit> = data
        .iter()
        .map(|(key, value)| Edit::MapSetBytes(path!(Secret, data), (*key).into(), value.as_bytes().to_vec()))
        .collect();
    let object = edit(&secret.to_bytes(), &edits).unwrap();
    Secret::clone(&downcast::<Secret>((SECRETS.decode)(&object.into()).unwrap()).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiration_is_a_time_or_is_over() {
        let at = |text: &str| Expiry::At(text.parse().unwrap());
        let noon = at("2026-01-01T12:00:00Z");
        let never = Expiry::At(Timestamp::MAX);
        for (text, expected) in [
            (None, Expiry::Never),
            (Some(""), Expiry::Never),
            (Some("2026-01-01T12:00:00Z"), noon),
            (Some("2026-01-01T13:30:00+01:30"), noon),
            (Some("2026-01-01T07:00:00-05:00"), noon),
            (Some("2026-01-01T12:00:00.25Z"), at("2026-01-01T12:00:00.25Z")),
            (Some("2026-01-01T12:00:00,5Z"), at("2026-01-01T12:00:00.5Z")),
            (Some("2026-01-01T12:00:00.1234567899Z"), at("2026-01-01T12:00:00.123456789Z")),
            (Some("2026-01-01T7:00:00-05:00"), noon),
            (Some("9999-12-30T21:59:59Z"), at("9999-12-30T21:59:59Z")),
            (Some("9999-12-30T22:00:01Z"), never),
            (Some("9999-12-31T23:59:59Z"), never),
            (Some("9999-12-31T23:59:59-12:00"), never),
            (Some("0000-01-01T00:00:00Z"), at("0000-01-01T00:00:00Z")),
            (Some("10000-01-01T00:00:00Z"), Expiry::Unreadable),
            (Some("2026-01-01T12:00:00.Z"), Expiry::Unreadable),
            (Some("2026-01-01t12:00:00z"), Expiry::Unreadable),
            (Some("2026-01-01 12:00:00Z"), Expiry::Unreadable),
            (Some("2026-01-01T12:00:00"), Expiry::Unreadable),
            (Some("2026-01-01T12:00Z"), Expiry::Unreadable),
            (Some("2026-01-01T12:00:60Z"), Expiry::Unreadable),
            (Some("2026-02-30T12:00:00Z"), Expiry::Unreadable),
            (Some("2026-01-01T12:00:00+0130"), Expiry::Unreadable),
            (Some("20260101T120000Z"), Expiry::Unreadable),
            (Some("1767268800"), Expiry::Unreadable),
            (Some("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}"), Expiry::Unreadable),
        ] {
            let data: Vec<_> = text.iter().map(|text| ("expiration", *text)).collect();
            assert_eq!(Expiry::of(&token("bootstrap-token-abcdef", &data)), expected, "{text:?}");
        }
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        assert_eq!(
            [Expiry::Never, noon, at("2026-01-01T12:00:01Z"), never, Expiry::Unreadable]
                .map(|end| end.is_over(now)),
            [false, true, false, false, true]
        );
    }

    #[test]
    fn a_token_signs_if_all_of_it_agrees() {
        const DATA: [(&str, &str); 3] =
            [("token-id", "abcdef"), ("token-secret", "s"), ("usage-bootstrap-signing", "true")];
        let with = |key: &'static str, value: &'static str| {
            DATA.iter().map(|held| if held.0 == key { (key, value) } else { *held }).collect::<Vec<_>>()
        };
        let name = "bootstrap-token-abcdef";
        for (what, name, data, expected) in [
            ("in order", name, DATA.to_vec(), Some("abcdef")),
            ("of another name", "bootstrap-token-abcdeg", DATA.to_vec(), None),
            ("without the name's beginning", "abcdef", DATA.to_vec(), None),
            ("of another id", name, with("token-id", "abcdeg"), None),
            ("without a secret", name, with("token-secret", ""), None),
            ("with a capital", name, with("usage-bootstrap-signing", "True"), None),
            ("with a number", name, with("usage-bootstrap-signing", "1"), None),
            ("with another word", name, with("usage-bootstrap-signing", "yes"), None),
            ("not for this", name, DATA[..2].to_vec(), None),
            ("with too long an id", "bootstrap-token-abcdefg", with("token-id", "abcdefg"), None),
            ("with a capital in its id", "bootstrap-token-abcdeF", with("token-id", "abcdeF"), None),
        ] {
            assert_eq!(signing_id(&token(name, &data)), expected, "{what}");
        }
        let mut elsewhere = token(name, &DATA);
        elsewhere.metadata.namespace = "default".into();
        assert_eq!(signing_id(&elsewhere), None);
        let other = Secret { r#type: "Opaque".into(), ..token(name, &DATA) };
        assert_eq!(signing_id(&other), None);
    }
}
