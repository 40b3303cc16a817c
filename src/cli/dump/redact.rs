//! Removes secrets from text. Messages of webhooks, reasons of users and URLs may contain some.

/// Replacement of a secret.
const REDACTED: &str = "REDACTED";
/// Fields whose values are secret, in lower case, without separators.
const FIELDS: [&str; 11] = [
    "token",
    "accesstoken",
    "refreshtoken",
    "idtoken",
    "bearertoken",
    "password",
    "passwd",
    "clientkeydata",
    "clientcertificatedata",
    "clientsecret",
    "authorization",
];
/// Lengths of the two parts of a bootstrap token.
const BOOTSTRAP: (usize, usize) = (6, 16);

/// Returns the text without private keys, tokens, passwords and the values of fields that name such.
pub(in crate::cli) fn redact(text: &str) -> String {
    let text = redact_keys(text);
    let text = redact_fields(&text);
    let text = redact_user_info(&text);
    redact_words(&text)
}

/// Replaces private keys in PEM, whole or cut off, also with line breaks that JSON has escaped.
fn redact_keys(text: &str) -> String {
    const BEGIN: &str = "-----BEGIN ";
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, block)) = rest.split_once(BEGIN) {
        redacted.push_str(before);
        let label = block.split("-----").next().unwrap_or_default();
        if !label.ends_with("PRIVATE KEY") {
            redacted.push_str(BEGIN);
            rest = block;
            continue;
        }
        redacted.push_str(REDACTED);
        let end = format!("-----END {label}-----");
        let of_key = |letter: char| letter.is_ascii_alphanumeric() || "+/=-\\ \n\r".contains(letter);
        // Without an END line, all text that may belong to the key is removed.
        rest = block.split_once(&end).map_or_else(|| block.trim_start_matches(of_key), |(_, after)| after);
    }
    redacted + rest
}

/// Replaces the values of secret fields: `token: x`, `"client-key-data": "x"`, `password=x`.
fn redact_fields(text: &str) -> String {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find([':', '=']) {
        let (before, after) = rest.split_at(at);
        let (separator, after) = after.split_at(1);
        redacted.push_str(before);
        redacted.push_str(separator);
        rest = after;
        let name = before.trim_end_matches(['"', '\'', '\\', ' ']);
        let name = &name[name.rfind(|letter| !is_of_name(letter)).map_or(0, |at| at + 1)..];
        let plain: String = name
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .map(|letter| letter.to_ascii_lowercase())
            .collect();
        if !FIELDS.contains(&plain.as_str()) {
            continue;
        }
        if rest.trim_start().starts_with(['{', '[']) {
            continue;
        }
        let value = rest.trim_start_matches([' ', '"', '\'', '\\']);
        let lead = &rest[..rest.len() - value.len()];
        // A scheme such as Bearer is followed by the credentials.
        let ends: &[char] = if lead.contains(['"', '\'']) {
            &['"', '\'', '\\', '\n']
        } else {
            &['"', '\'', ',', '}', ')', '\n']
        };
        let length = value.find(ends).unwrap_or(value.len());
        redacted.push_str(lead);
        if length > 0 {
            redacted.push_str(REDACTED);
        }
        rest = &value[length..];
    }
    redacted + rest
}

/// Replaces user and password of URLs.
fn redact_user_info(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        redacted.push_str(before);
        redacted.push_str("://");
        let is_end = |letter: char| letter.is_whitespace() || "/?#\"',\\".contains(letter);
        let authority = &after[..after.find(is_end).unwrap_or(after.len())];
        rest = match authority.rfind('@') {
            Some(at) => {
                redacted.push_str(REDACTED);
                &after[at..]
            }
            None => after,
        };
    }
    redacted + rest
}

/// Replaces words that are JSON web tokens or bootstrap tokens.
fn redact_words(text: &str) -> String {
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_of_word) {
        let (before, after) = rest.split_at(at);
        redacted.push_str(before);
        let word = &after[..after.find(|letter| !is_of_word(letter)).unwrap_or(after.len())];
        redacted.push_str(if is_token(word) { REDACTED } else { word });
        rest = &after[word.len()..];
    }
    redacted + rest
}

fn is_token(word: &str) -> bool {
    let parts: Vec<&str> = word.trim_end_matches('.').split('.').collect();
    match parts.as_slice() {
        // The header of a JSON web token begins with `{"`.
        [header, claims, _] => header.starts_with("eyJ") && claims.starts_with("eyJ"),
        [id, secret] => {
            let is_part = |part: &str, length: usize| {
                part.len() == length
                    && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            };
            is_part(id, BOOTSTRAP.0) && is_part(secret, BOOTSTRAP.1)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn secrets_are_replaced_and_the_rest_stays() {
        for (before, after) in [
            (
                "a -----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nb",
                "a REDACTED\nb",
            ),
            (
                r#"{"m":"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"}"#,
                r#"{"m":"REDACTED\n"}"#,
            ),
            ("x -----BEGIN EC PRIVATE KEY-----\nMHcC\nAQ", "x REDACTED"),
            (
                "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
                "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            ),
            (
                "    token: s3cr3t\n    server: https://a:6443\n",
                "    token: REDACTED\n    server: https://a:6443\n",
            ),
            (r#"{"client-key-data":"TUlJ","x":1}"#, r#"{"client-key-data":"REDACTED","x":1}"#),
            (
                r#""message": "{\"password\":\"hunter2\",\"a\":1}""#,
                r#""message": "{\"password\":\"REDACTED\",\"a\":1}""#,
            ),
            ("Authorization: Bearer abcdef\nnext", "Authorization: REDACTED\nnext"),
            (
                "POST https://jane:hunter2@proxy.test:3128/x failed",
                "POST https://REDACTED@proxy.test:3128/x failed",
            ),
            ("https://webhook.test/a@b", "https://webhook.test/a@b"),
            ("join with abcdef.0123456789abcdef now", "join with REDACTED now"),
            ("got eyJhbGciOi.eyJpc3MiOi.c2ln-_x, bye", "got REDACTED, bye"),
            (
                "workqueue_depth{name=\"serviceaccount_tokens_secret\"} 0\n",
                "workqueue_depth{name=\"serviceaccount_tokens_secret\"} 0\n",
            ),
            ("token-cleaner-controller: running", "token-cleaner-controller: running"),
            ("nothing = to: hide", "nothing = to: hide"),
        ] {
            assert_eq!(redact(before), after);
        }
    }
}
