//! Texts that Kubernetes allows as names, and as keys and values of labels. See "Object Names and IDs" and "Labels and Selectors" in
//! the Kubernetes documentation.

/// The longest name part of a key, value of a label, and DNS label.
const MAX_LABEL: usize = 63;
/// The longest DNS subdomain.
const MAX_SUBDOMAIN: usize = 253;

/// Whether a text is a key of labels: a name, which a DNS subdomain and a slash may precede.
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// Whether a text is a value of a label.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// Whether a text is a DNS subdomain as in RFC 1123: the name of most objects.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(is_part)
}

/// Whether clients of Kubernetes can address an object with this name. They refuse other names before they send a request.
pub fn is_addressable(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}

/// Whether a text is a DNS label as in RFC 1123: the name of a namespace.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_part(text)
}

fn is_part(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LABEL
        && bytes.iter().all(|byte| is_inner(*byte))
        && is_outer(bytes.first())
        && is_outer(bytes.last())
}

#[cfg(test)]
mod differential;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_clients_address() {
        let texts = ["a", "A b", "...", "a.b", "", ".", "..", "a/b", "/", "%", "a%2fb"];
        let addressable = texts.into_iter().filter(|text| is_addressable(text)).collect::<Vec<_>>();
        assert_eq!(addressable, ["a", "A b", "...", "a.b"]);
    }

    #[test]
    fn keys_and_values_of_labels() {
        for (text, is_key, is_value) in [
            ("", false, true),
            ("a", true, true),
            ("A.b_c-1", true, true),
            ("-a", false, false),
            ("a.", false, false),
            ("example.com/a", true, false),
            ("Example.com/a", false, false),
            ("example..com/a", false, false),
            ("example.com/", false, false),
            ("/a", false, false),
            ("a/b/c", false, false),
            ("a b", false, false),
            ("\u{e9}", false, false),
            (&"a".repeat(63), true, true),
            (&"a".repeat(64), false, false),
        ] {
            assert_eq!((is_label_key(text), is_label_value(text)), (is_key, is_value), "{text:?}");
        }
    }
}
