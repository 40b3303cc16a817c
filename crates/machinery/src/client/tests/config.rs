//! The choice of a configuration, and errors that name the flag and no secret.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::client::testing::Pki;
use crate::client::{ConfigError, Connection, KeepAlive, Origin, Transport};

const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://api.test:6443"}}]
users: [{name: u, user: {token: s3cret}}]
"#;

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn proxied(url: &str) -> String {
    KUBECONFIG.replace("{server:", &format!("{{proxy-url: \"{url}\", server:"))
}

async fn load(text: &str, master: Option<&str>) -> Result<Connection, ConfigError> {
    let (_dir, path) = file(text);
    Connection::load(Some(&path), master).await
}

#[tokio::test]
async fn a_kubeconfig_comes_first_and_master_overrides_its_server() {
    let connection = load(KUBECONFIG, None).await.unwrap();
    assert_eq!(connection.server(), "https://api.test:6443/");
    assert!(matches!(connection.origin(), Origin::Kubeconfig { flag: "--kubeconfig", .. }));
    assert_eq!(load(KUBECONFIG, Some("")).await.unwrap().server(), "https://api.test:6443/");
    let connection = load(KUBECONFIG, Some("https://other:1/prefix")).await.unwrap();
    assert_eq!(connection.server(), "https://other:1/prefix");
    let without_server =
        KUBECONFIG.replace("server: \"https://api.test:6443\"", "insecure-skip-tls-verify: true");
    assert!(load(&without_server, None).await.is_err());
    let connection = load(&without_server, Some("other:1")).await.unwrap();
    assert_eq!(connection.server(), "https://other:1/", "what is meant for TLS decides the scheme");
}

#[tokio::test]
async fn master_alone_and_nothing_at_all() {
    let connection = Connection::load(None, Some("127.0.0.1:8080")).await.unwrap();
    assert_eq!(
        (connection.server().to_string().as_str(), connection.origin()),
        ("http://127.0.0.1:8080/", &Origin::Master)
    );
    let error = Connection::load(Some(Path::new("")), Some("")).await.unwrap_err();
    assert_eq!(error, ConfigError::NotInCluster);
    assert!(error.to_string().contains("--kubeconfig"));
    for master in [
        "ftp://x",
        "https://",
        "https://user:s3cret@host",
        "https://host?x=1",
        "ht tp",
        "host/path",
        "host//",
        "/",
        "https://host#a",
        "https://[]",
        "https://[::%250]",
        "https://host:65536",
        "https://[::1]1",
        "host[]",
        "https://host/%2",
    ] {
        let error = Connection::load(None, Some(master)).await.unwrap_err().to_string();
        assert!(error.starts_with("--master: ") && !error.contains("s3cret"), "{master}: {error}");
    }
}

#[tokio::test]
async fn paths_of_servers_are_sent_as_go_sends_them() {
    for (server, expected) in [
        ("https://api.test", "https://api.test/"),
        ("https://api.test/a/", "https://api.test/a"),
        ("https://api.test//a/./b/../c%2Fd", "https://api.test/a/c/d"),
        ("https://api.test/..", "https://api.test/"),
        ("https://api.test/a!b%20%7e%3f;@", "https://api.test/a%21b%20~%3F;@"),
        ("https://api.test:0443", "https://api.test:0443/"),
        ("https://[fd00::1]:6443", "https://[fd00::1]:6443/"),
    ] {
        let connection = Connection::load(None, Some(server)).await.unwrap();
        assert_eq!(connection.server().to_string(), expected, "{server}");
        let connection = load(&KUBECONFIG.replace("https://api.test:6443", server), None).await.unwrap();
        assert_eq!(connection.server().to_string(), expected, "{server} in a kubeconfig");
    }
    for (master, expected) in [("api.test/", "http://api.test/"), ("api.test:8080/", "http://api.test:8080/")]
    {
        let connection = Connection::load(None, Some(master)).await.unwrap();
        assert_eq!(connection.server().to_string(), expected, "{master}");
    }
    for server in ["https://api.test#a", "https://[]", "https://api.test/%2"] {
        let error = load(&KUBECONFIG.replace("https://api.test:6443", server), None).await.unwrap_err();
        assert!(error.to_string().contains("the server URL"), "{server}: {error}");
    }
}

#[tokio::test]
async fn errors_name_the_file_and_quote_none_of_it() {
    let missing =
        Connection::from_kubeconfig("--authentication-kubeconfig", Path::new("/does/not/exist"), None).await;
    assert_eq!(
        missing.unwrap_err().to_string(),
        "--authentication-kubeconfig /does/not/exist: No such file or directory (os error 2)"
    );
    for (text, expected) in [
        (KUBECONFIG.replace("token: s3cret", "token: [s3cret"), "invalid YAML at line"),
        (KUBECONFIG.replace("users: [", "users: [s3cret, "), "invalid YAML at line"),
        (KUBECONFIG.replace("current-context: here", "current-context: there"), "current-context \"there\""),
        (KUBECONFIG.replace("current-context: here", ""), "current-context is not set"),
        (KUBECONFIG.replace("name: c,", "name: d,"), "the cluster \"c\""),
        (KUBECONFIG.replace("https://api.test", "ftp://api.test"), "must begin with https://"),
        (proxied("ftp://u:s3cret@proxy:1"), "proxy-url must begin with http://, https:// or socks5://"),
        (proxied("http://u:s3cret@"), "proxy-url"),
        (proxied("http://u:s3cret%ff@proxy"), "not UTF-8"),
        (proxied(&format!("socks5://u:s3cret{}@proxy", "x".repeat(250))), "more than 255 bytes"),
        (proxied("s3cret proxy"), "proxy-url is not a URL"),
    ] {
        let error = load(&text, None).await.unwrap_err().to_string();
        assert!(error.starts_with("--kubeconfig /"), "{error}");
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn no_secret_is_shown() {
    let connection = load(KUBECONFIG, None).await.unwrap();
    let transport = Transport::new(connection.clone(), KeepAlive::default()).await.unwrap();
    for shown in
        [format!("{connection:?}"), format!("{transport:?}"), format!("{:?}", connection.anonymous())]
    {
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("api.test"), "{shown}");
    }
}

#[tokio::test]
async fn a_plugin_that_fails_is_named_and_its_output_is_not_shown() {
    for (script, expected) in [
        ("echo s3cret; exit 3", "failed: exit status: 3"),
        ("echo s3cret", "did not return an ExecCredential"),
    ] {
        let exec = format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [\"-c\", {script:?}], \
             interactiveMode: Never}}"
        );
        let connection = load(&KUBECONFIG.replace("token: s3cret", &exec), None).await.unwrap();
        let error = Transport::new(connection, KeepAlive::default()).await.unwrap_err().to_string();
        assert!(error.starts_with("--kubeconfig ") && error.contains(expected), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn certificates_in_files_are_found_beside_the_kubeconfig() {
    let pair = Pki::new().sign("someone", &[]);
    let user = KUBECONFIG.replace("token: s3cret", "client-certificate: tls.crt, client-key: sub/tls.key");
    let (dir, path) = file(&user);
    let connection = Connection::load(Some(&path), None).await.unwrap();
    assert_eq!(connection.certificate_files(), [dir.path().join("tls.crt"), dir.path().join("sub/tls.key")]);
    let missing = Transport::new(connection.clone(), KeepAlive::default()).await.unwrap_err().to_string();
    assert!(missing.contains("tls.crt"), "{missing}");
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("tls.crt"), pair.certificate).unwrap();
    std::fs::write(dir.path().join("sub/tls.key"), pair.key).unwrap();
    Transport::new(connection.clone(), KeepAlive::default()).await.unwrap();
    assert!(connection.anonymous().certificate_files().is_empty());
}

#[tokio::test]
async fn a_token_that_can_not_be_sent_is_refused_and_not_shown() {
    let trimmed = KUBECONFIG.replace("token: s3cret", "token: \"s3cret\\n\"");
    let connection = load(&trimmed, None).await.unwrap();
    assert!(
        Transport::new(connection, KeepAlive::default()).await.is_ok(),
        "a newline at the end is none of it"
    );
    let broken = KUBECONFIG.replace("token: s3cret", "token: \"s3\\ncret\"");
    let connection = load(&broken, None).await.unwrap();
    let error = Transport::new(connection, KeepAlive::default()).await.unwrap_err().to_string();
    assert!(error.starts_with("--kubeconfig ") && error.contains("control character"), "{error}");
    assert!(!error.contains("cret"), "{error}");
}

/// As `base64 ca.crt` writes them: lines of 76 characters, in each of the three fields.
#[tokio::test]
async fn data_may_have_ends_of_lines_and_is_absent_if_empty() {
    let pki = Pki::new();
    let pair = pki.sign("someone", &[]);
    let texts = [&pki.ca_pem, &pair.certificate, &pair.key];
    for end in ["\n", "\r\n"] {
        let [authority, certificate, key] = texts.map(|text| {
            let data = STANDARD.encode(text);
            let lines =
                data.as_bytes().chunks(76).map(|line| String::from_utf8(line.to_vec()).unwrap() + end);
            serde_json::to_string(&lines.collect::<String>()).unwrap()
        });
        let kubeconfig = KUBECONFIG
            .replace("server:", &format!("certificate-authority-data: {authority}, server:"))
            .replace(
                "token: s3cret",
                &format!("client-certificate-data: {certificate}, client-key-data: {key}"),
            );
        let connection = load(&kubeconfig, None).await.unwrap();
        assert_eq!(connection.authorities(), Some(pki.ca_pem.as_bytes()));
        assert_eq!(connection.root_certificates(), Some(&[pki.ca.to_vec()][..]));
        Transport::new(connection, KeepAlive::default()).await.unwrap();
    }
    let kubeconfig = KUBECONFIG
        .replace("server:", "certificate-authority-data: \"\\n\", certificate-authority: ca.crt, server:");
    let (dir, path) = file(&kubeconfig);
    std::fs::write(dir.path().join("ca.crt"), &pki.ca_pem).unwrap();
    let connection = Connection::load(Some(&path), None).await.unwrap();
    assert_eq!((connection.authorities(), connection.authorities_file().is_some()), (None, true));
    let kubeconfig = KUBECONFIG.replace("server:", "certificate-authority-data: s3cret!, server:");
    let error = load(&kubeconfig, None).await.unwrap_err().to_string();
    assert!(error.starts_with("--kubeconfig /") && !error.contains("s3cret"), "{error}");
}

#[tokio::test]
async fn empty_fields_of_a_kubeconfig_count_as_absent() {
    let with = |cluster: &str, user: &str| {
        let text = KUBECONFIG.replace("{server:", &format!("{{{cluster}server:"));
        text.replace("user: {token: s3cret}", &format!("user: {{{user}}}"))
    };
    for (cluster, user) in [
        ("tls-server-name: \"\", ", "token: s3cret"),
        ("certificate-authority: \"\", ", "token: s3cret"),
        ("", "client-certificate: \"\", client-key: \"\", token: s3cret"),
        ("", "tokenFile: \"\", token: s3cret"),
        ("", "username: \"\", password: \"\", token: s3cret"),
    ] {
        let text = with(cluster, user);
        let connection = load(&text, None).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(connection.server(), "https://api.test:6443/");
        assert_eq!(connection.authorities_file(), None, "{text}");
        assert_eq!(connection.certificate_files(), [""; 0].map(PathBuf::from), "{text}");
    }
    let pki = Pki::new();
    let (dir, path) =
        file(&with("certificate-authority-data: \"\", certificate-authority: ca.crt, ", "token: \"\""));
    std::fs::write(dir.path().join("ca.crt"), &pki.ca_pem).unwrap();
    let connection = Connection::load(Some(&path), None).await.unwrap();
    assert_eq!(connection.authorities_file(), Some(dir.path().join("ca.crt").as_path()));
    assert_eq!(connection.root_certificates().map(<[Vec<u8>]>::len), Some(1));
}

#[tokio::test]
async fn master_needs_no_current_context() {
    for context in ["", "current-context: \"\"\n"] {
        let text = KUBECONFIG.replace("current-context: here\n", context);
        let connection = load(&text, Some("https://other:1")).await.unwrap();
        assert_eq!(connection.server(), "https://other:1/");
        assert!(load(&text, None).await.is_err());
    }
}

#[tokio::test]
async fn entries_that_are_not_used_may_lack_a_name_or_a_cluster() {
    let pki = Pki::new();
    let (dir, path) = file(
        &KUBECONFIG
            .replace("contexts: [", "contexts: [{name: other, context: {user: u}}, {context: {cluster: c}}, ")
            .replace("clusters: [", "clusters: [{cluster: {server: \"https://other.test\"}}, ")
            .replace("users: [", "users: [{user: {token: other}}, ")
            .replace("{server:", "{certificate-authority: ca.crt, server:"),
    );
    std::fs::write(dir.path().join("ca.crt"), &pki.ca_pem).unwrap();
    let connection = Connection::load(Some(&path), None).await.unwrap();
    assert_eq!(connection.server(), "https://api.test:6443/");
    assert_eq!(connection.authorities_file(), Some(dir.path().join("ca.crt").as_path()));
    // A context that is used needs its cluster, and what is no kubeconfig stays none.
    let used = KUBECONFIG.replace("context: {cluster: c, user: u}", "context: {user: u}");
    for text in [used.as_str(), "contexts: [{context: 7}]", "clusters: {name: s3cret}"] {
        let error = load(text, None).await.unwrap_err().to_string();
        assert!(error.starts_with("--kubeconfig /") && !error.contains("s3cret"), "{error}");
    }
}
