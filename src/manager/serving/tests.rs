//! Flags for serving reach the ports.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use coxswain_machinery::options::{Config, FlagValue as _, Flags, NamedCertKey, Repetition};
use coxswain_machinery::serve::ServeOptions;

type Set = fn(&mut Flags);

fn served(set: Set) -> ServeOptions {
    let mut flags = Flags::default();
    set(&mut flags);
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    super::options(&Config { flags, ..Config::default() }, address, &[])
}

/// What differs, with a line for each value.
fn differences(set: Set) -> Vec<String> {
    let shown = |options: &ServeOptions| -> Vec<String> {
        format!("{options:#?}").lines().map(|line| line.trim().trim_end_matches(',').to_owned()).collect()
    };
    let (usual, changed) = (shown(&served(|_| {})), shown(&served(set)));
    let mut new = changed;
    for line in usual {
        if let Some(at) = new.iter().position(|other| *other == line) {
            new.remove(at);
        }
    }
    new
}

/// Flags, how they are set, and a line that is there then.
const TABLE: [(&str, Set, &str); 21] = [
    ("authentication-skip-lookup", |flags| flags.authentication_skip_lookup = true, "skip_lookup: true"),
    (
        "authentication-token-webhook-cache-ttl",
        |flags| flags.authentication_token_webhook_cache_ttl = Duration::from_secs(7),
        "token_cache_ttl: 7s",
    ),
    (
        "authentication-tolerate-lookup-failure",
        |flags| flags.authentication_tolerate_lookup_failure = true,
        "tolerate_lookup_failure: true",
    ),
    (
        "authorization-always-allow-paths",
        |flags| flags.authorization_always_allow_paths.push("/seven".to_owned()),
        "\"/seven\"",
    ),
    (
        "authorization-webhook-cache-authorized-ttl",
        |flags| flags.authorization_webhook_cache_authorized_ttl = Duration::from_secs(7),
        "authorized_ttl: 7s",
    ),
    (
        "authorization-webhook-cache-unauthorized-ttl",
        |flags| flags.authorization_webhook_cache_unauthorized_ttl = Duration::from_secs(7),
        "unauthorized_ttl: 7s",
    ),
    ("cert-dir", |flags| flags.cert_dir = "/seven".to_owned(), "\"/seven\""),
    ("client-ca-file", |flags| flags.client_ca_file = "/seven".to_owned(), "\"/seven\""),
    ("disable-http2-serving", |flags| flags.disable_http2_serving = true, "disable_http2: true"),
    (
        "http2-max-streams-per-connection",
        |flags| flags.http2_max_streams_per_connection = 7,
        "http2_max_streams: 7",
    ),
    ("permit-address-sharing", |flags| flags.permit_address_sharing = true, "permit_address_sharing: true"),
    ("permit-port-sharing", |flags| flags.permit_port_sharing = true, "permit_port_sharing: true"),
    (
        "requestheader-allowed-names",
        |flags| flags.requestheader_allowed_names = vec!["seven".to_owned()],
        "\"seven\"",
    ),
    (
        "requestheader-client-ca-file",
        |flags| flags.requestheader_client_ca_file = "/seven".to_owned(),
        "\"/seven\"",
    ),
    (
        "requestheader-extra-headers-prefix",
        |flags| flags.requestheader_extra_headers_prefix.push("seven-".to_owned()),
        "\"seven-\"",
    ),
    (
        "requestheader-group-headers",
        |flags| flags.requestheader_group_headers.push("seven".to_owned()),
        "\"seven\"",
    ),
    (
        "requestheader-uid-headers",
        |flags| flags.requestheader_uid_headers.push("seven".to_owned()),
        "\"seven\"",
    ),
    (
        "requestheader-username-headers",
        |flags| flags.requestheader_username_headers.push("seven".to_owned()),
        "\"seven\"",
    ),
    (
        "tls-cert-file",
        |flags| {
            flags.tls_cert_file = "/seven.crt".to_owned();
            flags.tls_private_key_file = "/seven.key".to_owned();
        },
        "\"/seven.crt\"",
    ),
    (
        "tls-private-key-file",
        |flags| {
            flags.tls_cert_file = "/seven.crt".to_owned();
            flags.tls_private_key_file = "/seven.key".to_owned();
        },
        "\"/seven.key\"",
    ),
    (
        "tls-sni-cert-key",
        |flags| {
            Vec::<NamedCertKey>::set(&mut flags.tls_sni_cert_key, "/a.crt,/a.key:seven", Repetition::First)
                .expect("a pair");
        },
        "\"seven\"",
    ),
];

#[test]
fn each_flag_is_in_what_is_served() {
    for (name, set, expected) in TABLE {
        let differences = differences(set);
        assert!(differences.iter().any(|line| line == expected), "--{name}: {differences:?}");
        assert!(differences.len() <= 12, "--{name} changes other things: {differences:?}");
    }
}

#[test]
fn what_tls_speaks_is_what_flags_come_to() {
    let mut config = Config::default();
    config.serving_tls.versions.truncate(1);
    config.serving_tls.cipher_suites.truncate(1);
    config.serving_tls.groups.truncate(1);
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    let spoken = super::options(&config, address, &[]).tls.spoken;
    assert_eq!((spoken.versions.len(), spoken.cipher_suites.len(), spoken.groups.len()), (1, 1, 1));
}
