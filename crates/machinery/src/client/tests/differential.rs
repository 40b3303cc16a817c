//! Coxswain's reading of servers' addresses and answers next to that of Kubernetes' client library.

use std::convert::Infallible;

use futures::FutureExt as _;
use http::{Request, Uri};
use kube::client::ConfigExt as _;
use serde_json::{Value, json};
use tower::{Layer as _, ServiceExt as _};

use crate::client::config::master_url;
use crate::oracle::{Comparison, KnownRefusal, Random, SEPARATOR};

/// Returns where a request for /version is sent.
fn destination(server: &Uri) -> Option<Value> {
    let layer = kube::Config::new(server.clone()).base_uri_layer();
    let sent = layer
        .layer(tower::service_fn(async |request: Request<()>| Ok::<_, Infallible>(request.uri().clone())));
    let sent = sent.oneshot(Request::get("/version").body(()).ok()?).now_or_never()?.ok()?;
    let (scheme, host) = (sent.scheme_str()?, sent.host()?);
    let port = sent.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    Some(json!({
        "scheme": scheme,
        "host": host.trim_start_matches('[').trim_end_matches(']'),
        "port": port,
        "path": sent.path(),
    }))
}

fn read_server(text: &str) -> Option<Value> {
    let (security, address) = text.split_once(SEPARATOR)?;
    destination(&master_url(address, security == "tls").ok()?)
}

fn host(random: &mut Random) -> String {
    match random.below(7) {
        0 => "localhost".to_owned(),
        1 => format!("10.{}.0.{}", random.below(300), random.below(300)),
        2 => random
            .one_of(&["[::1]", "[fd00::1]", "[fe80::1%25eth0]", "[fe80::1%eth0]", "::1", "[]", "[::1"])
            .to_owned(),
        3 => random.text("abcXYZ019-._~", 0, 12),
        4 => random.text("abc.%2F@:!$&'()*+,;=", 0, 8),
        _ => random
            .one_of(&[
                "api.test",
                "API.Test",
                "api.test.",
                "kubernetes.default.svc",
                "a_b.test",
                "b\u{fc}cher.test",
            ])
            .to_owned(),
    }
}

fn generate_server(random: &mut Random) -> String {
    let security = random.one_of(&["tls", ""]);
    let scheme = random
        .one_of(&["", "", "https://", "https://", "http://", "HTTPS://", "ftp://", "//", "https:", "://"]);
    let host = host(random);
    let port = match random.below(6) {
        0 => ":".to_owned(),
        1 => format!(":{}", random.number(5)),
        2 => String::new(),
        _ => random.one_of(&[":6443", ":443", ":80", ":8080", ":0443"]).to_owned(),
    };
    let path = match random.below(3) {
        0 => random
            .one_of(&[
                "/",
                "/k8s/clusters/c-1",
                "/a/",
                "//a",
                "/a//b",
                "/a/../b",
                "/a%2Fb",
                "/a b",
                "/\u{e9}",
                "?a=b",
                "#a",
                "/a;b",
            ])
            .to_owned(),
        1 => format!("/{}", random.text("ab/.%20;:@&=+$,!~*'()?#\"<>[]{}|^`\\", 0, 8)),
        _ => String::new(),
    };
    format!("{security}{SEPARATOR}{scheme}{host}{port}{path}")
}

#[test]
fn addresses_of_servers_are_never_read_differently() {
    Comparison {
        question: "server",
        seeds: &[
            "\u{1f}localhost:8080",
            "tls\u{1f}localhost",
            "\u{1f}https://api.test:6443/prefix",
            "\u{1f}http://10.0.0.1",
            "tls\u{1f}[::1]:6443",
            "\u{1f}https://[fd00::1]/a/",
            "\u{1f}",
            "\u{1f}localhost:8080/a",
            "\u{1f}https://api.test/a%20b",
        ],
        words: &[
            "://", "http", "https", "/", ":", "@", "?", "#", "%", "%25", "%2f", "[", "]", ".", "..", "//",
            "\\",
        ],
        generate: generate_server,
        read: read_server,
        refusals: &[
            KnownRefusal { reason: "there is no host. Differs: odd-server-addresses", covers: |_, theirs| theirs["host"] == "" },
            KnownRefusal {
                reason: "the scheme is neither http nor https. Differs: odd-server-addresses",
                covers: |_, theirs| !matches!(theirs["scheme"].as_str(), Some("http" | "https")),
            },
            KnownRefusal {
                reason: "Go drops a query and a fragment, and sends credentials. Differs: odd-server-addresses",
                covers: |text, theirs| text.contains(['?', '#']) || theirs.get("user").is_some(),
            },
            KnownRefusal {
                reason: "a URL has no such characters. Differs: odd-server-addresses",
                covers: |text, _| {
                    let (_, address) = text.split_once(SEPARATOR).unwrap_or_default();
                    address.contains(|char: char| !char.is_ascii_graphic() || "\"<>[]\\^`{|}%".contains(char))
                },
            },
        ],
        differences: &[],
    }
    .run();
}
