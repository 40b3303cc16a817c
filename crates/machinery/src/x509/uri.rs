//! URIs as certificates contain them: in the form in which Go's `net/url` prints them, because approvers see that form.
//!
//! Only URIs are accepted that `net/url` prints as they are, apart from the scheme, which it prints in lower case. Everything that
//! it would escape, shorten or refuse is refused, and user names, characters outside of RFC 3986 and empty fragments are.

use std::net::Ipv6Addr;

/// Domain names are no longer than this.
const MAX_HOST: usize = 253;
const MAX_LABEL: usize = 63;

/// Returns the URI in the form that `net/url` prints; `None` if it is not accepted.
pub fn normalize(uri: &str) -> Option<String> {
    let end = uri.find(['/', '?', '#']).unwrap_or(uri.len());
    let (scheme, rest) = match uri[..end].split_once(':') {
        Some((scheme, _)) => (Some(scheme), &uri[scheme.len() + 1..]),
        // A relative reference.
        None => (None, uri),
    };
    let is_scheme = scheme.map_or(!rest.is_empty(), |scheme| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    });
    let (before, fragment) =
        rest.split_once('#').map_or((rest, None), |(before, fragment)| (before, Some(fragment)));
    let (before, query) =
        before.split_once('?').map_or((before, None), |(before, query)| (before, Some(query)));
    let is_location = match before.strip_prefix("//") {
        Some(after) => {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            has_characters(path, b"/")
                && (is_authority(authority) || authority.is_empty() && !path.is_empty())
        }
        None => has_characters(before, b"/"),
    };
    let is_accepted = is_scheme
        && is_location
        && query.is_none_or(|query| has_characters(query, b"/?"))
        && fragment.is_none_or(|fragment| !fragment.is_empty() && has_characters(fragment, b"/?"));
    is_accepted.then(|| match scheme {
        Some(scheme) => format!("{}:{rest}", scheme.to_ascii_lowercase()),
        None => rest.to_owned(),
    })
}

/// Whether `net/url` reads a URI, in whichever form it prints it: certificates have URIs that nobody compares, and Go refuses a
/// certificate only if a URI is malformed. Returns false for some URIs that `net/url` reads.
pub fn is_readable(uri: &str) -> bool {
    let is_scheme =
        |scheme: &str| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let Some((scheme, rest)) = uri.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return normalize(uri).is_some();
    };
    let (authority, rest) = match rest.strip_prefix("//") {
        Some(after) => after.split_at(after.find(['/', '?', '#']).unwrap_or(after.len())),
        None => ("", rest),
    };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    // Behind the location `net/url` takes all characters but control characters, and escapes those that it would not print.
    let (before, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let usual =
        |text: &str| text.replace([' ', '"', '#', '<', '>', '[', '\\', ']', '^', '`', '{', '|', '}'], "x");
    let slashes = if host.is_empty() { "" } else { "//" };
    let plain = format!("{scheme}:{slashes}{host}{}", usual(before));
    has_characters(user, b"") && has_characters(&usual(fragment), b"/?") && normalize(&plain).is_some()
}

/// Whether a text has only characters of path segments (RFC 3986: `pchar`) and these others.
fn has_characters(text: &str, others: &[u8]) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_character = match byte {
            b'%' => (0..2).all(|_| bytes.next().is_some_and(|digit| digit.is_ascii_hexdigit())),
            byte => {
                // Linear: the callers name one or two.
                byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte) || others.contains(&byte)
            }
        };
        if !is_character {
            return false;
        }
    }
    true
}

/// Whether a text is a domain name or an IP address, with or without a port.
fn is_authority(text: &str) -> bool {
    if let Some(text) = text.strip_prefix('[') {
        let Some((address, after)) = text.split_once(']') else { return false };
        // An IPv4 address within is refused, as are zones.
        return !address.contains('.') && address.parse::<Ipv6Addr>().is_ok() && is_port(after);
    }
    let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
    let is_label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    host.len() <= MAX_HOST && host.split('.').all(is_label) && is_port(port)
}

/// Whether a text is empty, or a colon and digits.
fn is_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}
