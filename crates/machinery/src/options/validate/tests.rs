//! What validation refuses, and how it says so.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::options::fixture::registry;
use crate::options::{Invocation, OptionErrors, Startup, parse};

fn validate(line: &[&str]) -> Result<Startup, OptionErrors> {
    match parse(line.iter().map(OsString::from), registry())? {
        Invocation::Run(startup) => Ok(*startup),
        Invocation::Print(text) => panic!("{line:?} prints {text}"),
    }
}

fn valid(line: &[&str]) -> Startup {
    validate(line).unwrap_or_else(|errors| panic!("{line:?}: {errors}"))
}

/// The only error of a command line, which begins with a flag and holds all parts.
fn refused(line: &[&str], flag: &str, parts: &[&str]) {
    let errors = match validate(line) {
        Ok(_) => panic!("{line:?} is valid"),
        Err(errors) => errors.0,
    };
    assert_eq!(errors.len(), 1, "{line:?}: {errors:?}");
    let text = errors[0].to_string();
    assert!(text.starts_with(&format!("--{flag}: ")), "{line:?}: {text}");
    for part in parts {
        assert!(text.contains(part), "{line:?}: {text} lacks {part:?}");
    }
}

fn warned(line: &[&str], flag: &str, part: &str) {
    let warnings = valid(line).warnings;
    let said =
        warnings.iter().any(|warning| warning.flag == format!("--{flag}") && warning.message.contains(part));
    assert!(said, "{line:?}: {warnings:?}");
}

/// A directory with certificates and keys.
struct Pki {
    directory: TempDir,
}

impl Pki {
    fn new() -> Self {
        let pki = Self { directory: tempfile::tempdir().unwrap() };
        for name in ["a", "b"] {
            let made = rcgen::generate_simple_self_signed([format!("{name}.example")]).unwrap();
            pki.write(&format!("{name}.crt"), &made.cert.pem());
            pki.write(&format!("{name}.key"), &made.signing_key.serialize_pem());
        }
        pki.write("text", "nothing");
        pki.write("broken.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        pki.write("broken.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
        pki
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// `--flag=path` for a file in it.
    fn flag(&self, flag: &str, name: &str) -> String {
        format!("--{flag}={}", self.path(name).display())
    }
}

#[test]
fn the_defaults_are_valid() {
    let startup = valid(&[]);
    assert_eq!(startup.warnings, []);
    assert_eq!(startup.given, []);
}

#[test]
fn ports_and_addresses() {
    valid(&["--secure-port=0"]);
    valid(&["--secure-port=65535"]);
    assert_eq!(valid(&["--secure-port=0"]).config.secure_port(), None);
    refused(&["--secure-port=65536"], "secure-port", &["65536 is not a port", "1 to 65535"]);
    refused(&["--secure-port=-1"], "secure-port", &["-1 is not a port"]);
    warned(&["--http2-max-streams-per-connection=-1"], "http2-max-streams-per-connection", "default limit");
    warned(&["--secure-port=0"], "secure-port", "disables health checks");
    for good in ["https://10.0.0.1:6443", "http://localhost:8080", "10.0.0.1:6443", "https://[::1]:6443"] {
        valid(&[&format!("--master={good}")]);
    }
    for bad in ["ftp://x", "https://", "a b"] {
        refused(&[&format!("--master={bad}")], "master", &["is not a server address"]);
    }
}

#[test]
fn clouds_and_content_types() {
    valid(&["--cloud-provider=external"]);
    refused(&["--cloud-provider=aws"], "cloud-provider", &["aws", "external"]);
    refused(&["--cidr-allocator-type=CloudAllocator"], "cidr-allocator-type", &["RangeAllocator"]);
    valid(&["--kube-api-content-type=application/json"]);
    refused(&["--kube-api-content-type=text/xml"], "kube-api-content-type", &["application/json"]);
    refused(&["--kube-api-burst=-1"], "kube-api-burst", &["1 or more"]);
    refused(&["--kube-api-burst=0"], "kube-api-burst", &["1 or more"]);
    valid(&["--kube-api-burst=-1", "--kube-api-qps=-1"]);
    valid(&["--kube-api-burst=0", "--kube-api-qps=0"]);
}

#[test]
fn leader_election() {
    let lease = "leader-elect-lease-duration";
    refused(&["--leader-elect-lease-duration=10s"], lease, &["two replicas could lead", "more than 10s"]);
    refused(&["--leader-elect-renew-deadline=15s"], lease, &["more than 15s"]);
    let renew = "leader-elect-renew-deadline";
    refused(&["--leader-elect-retry-period=9s"], renew, &["more than 10.8s"]);
    valid(&["--leader-elect-retry-period=8333ms"]);
    refused(&["--leader-elect-retry-period=0"], "leader-elect-retry-period", &["more than 0s"]);
    refused(&["--leader-elect-resource-lock=endpoints"], "leader-elect-resource-lock", &["leases"]);
    refused(&["--leader-elect-resource-name="], "leader-elect-resource-name", &["valid object name"]);
    refused(&["--leader-elect-resource-namespace=A"], "leader-elect-resource-namespace", &["\"A\""]);
    valid(&["--leader-elect=false", "--leader-elect-lease-duration=1s", "--leader-elect-resource-lock=x"]);
    let all = validate(&["--leader-elect-lease-duration=0", "--leader-elect-retry-period=20s"]).unwrap_err();
    assert_eq!(all.0.len(), 3, "{all}");
}

#[test]
fn admin_overrides_are_all_or_disable_only() {
    valid(&["--admin-overrides=all"]);
    valid(&["--admin-overrides=disable-only"]);
    refused(&["--admin-overrides=none"], "admin-overrides", &["\"none\"", "all, or disable-only"]);
    refused(&["--admin-overrides="], "admin-overrides", &["all, or disable-only"]);
}

#[test]
fn networks() {
    let allocate = "--allocate-node-cidrs";
    valid(&[allocate, "--cluster-cidr=10.0.0.0/16"]);
    valid(&[allocate, "--cluster-cidr=010.000.0.0/016"]);
    valid(&[
        allocate,
        "--cluster-cidr=10.0.0.0/16,fd00::/48",
        "--service-cluster-ip-range=10.96.0.0/12,fd01::/112",
    ]);
    valid(&[allocate, "--cluster-cidr=fd00::/56", "--node-cidr-mask-size=64"]);
    valid(&["--node-cidr-mask-size=24", "--node-cidr-mask-size-ipv4=24"]);
    warned(&["--cluster-cidr=10.0.0.0/16"], "cluster-cidr", "ignored without --allocate-node-cidrs");
    warned(
        &[
            allocate,
            "--cluster-cidr=10.0.0.0/8",
            "--node-cidr-mask-size=24",
            "--service-cluster-ip-range=10.96.0.0/12",
        ],
        "service-cluster-ip-range",
        "overlaps",
    );
    let unreadable = "--cluster-cidr=10.0.0.0";
    refused(&[allocate, unreadable], "cluster-cidr", &["\"10.0.0.0\" is not a CIDR", "10.0.0.0/16"]);
    warned(&[unreadable], "cluster-cidr", "ignored without --allocate-node-cidrs");
    let service = "service-cluster-ip-range";
    let unreadable = "--service-cluster-ip-range=10.0.0.0/33";
    warned(&[unreadable], service, "ignored without --allocate-node-cidrs");
    warned(
        &[allocate, "--cluster-cidr=10.0.0.0/16", unreadable],
        service,
        "\"10.0.0.0/33\", which is not a CIDR",
    );
    let three = "--service-cluster-ip-range=10.0.0.0/24,10.0.1.0/24,fd00::/108";
    refused(&[three], service, &["3 CIDRs"]);
    refused(&[allocate, "--cluster-cidr=10.4.0.0/16", three], service, &["3 CIDRs"]);
    for (cluster, mask, family) in [
        ("10.0.0.0/16", "node-cidr-mask-size-ipv6", "single-stack IPv4 cluster"),
        ("fd00::/56", "node-cidr-mask-size-ipv4", "single-stack IPv6 cluster"),
    ] {
        let line = [allocate.to_owned(), format!("--cluster-cidr={cluster}"), format!("--{mask}=28")];
        refused(&line.each_ref().map(String::as_str), mask, &[family]);
        valid(&[line[1].as_str(), line[2].as_str()]);
    }
    let two = "--cluster-cidr=10.0.0.0/16,10.1.0.0/16";
    refused(&[allocate, two], "cluster-cidr", &["more than one CIDR of the same address family"]);
    valid(&[two]);
    valid(&[allocate, two, "--controllers=ttl"]);
    valid(&[allocate, "--controllers=*,-nodeipam"]);
    valid(&["--node-cidr-mask-size=99"]);
    valid(&[allocate, "--cluster-cidr=10.0.0.0/7"]);
    valid(&[allocate, "--cluster-cidr=10.0.0.0/8", "--node-cidr-mask-size-ipv4=32"]);
    let mask = "node-cidr-mask-size-ipv4";
    refused(&[allocate, "--cluster-cidr=10.0.0.0/16", "--node-cidr-mask-size-ipv4=33"], mask, &["0 to 32"]);
    refused(&[allocate], "cluster-cidr", &["but --allocate-node-cidrs is set"]);
    refused(
        &[allocate, "--cluster-cidr=10.0.0.0/16,fd00::/48", "--node-cidr-mask-size=24"],
        "node-cidr-mask-size",
        &["--node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6"],
    );
    refused(
        &[
            allocate,
            "--cluster-cidr=10.0.0.0/16",
            "--node-cidr-mask-size=24",
            "--node-cidr-mask-size-ipv4=24",
        ],
        "node-cidr-mask-size",
        &["either this flag, or the flags for IPv4 and IPv6"],
    );
    refused(&[allocate, "--cluster-cidr=10.0.0.0/25"], "node-cidr-mask-size-ipv4", &["/24", "25 to 32"]);
    refused(
        &[allocate, "--cluster-cidr=fd00::/40", "--node-cidr-mask-size=64"],
        "node-cidr-mask-size",
        &["40 to 56"],
    );
}

#[test]
fn certificates_and_keys() {
    let pki = Pki::new();
    let (cert, key) = (pki.flag("tls-cert-file", "a.crt"), pki.flag("tls-private-key-file", "a.key"));
    valid(&[&cert, &key]);
    refused(&[&cert], "tls-private-key-file", &["missing, but --tls-cert-file is set", "both or neither"]);
    refused(&[&key], "tls-cert-file", &["missing, but --tls-private-key-file is set"]);
    let other = pki.flag("tls-private-key-file", "b.key");
    refused(&[&cert, &other], "tls-private-key-file", &["b.key", "does not match the certificate", "a.crt"]);
    let absent = pki.flag("tls-cert-file", "absent");
    refused(&[&absent, &key], "tls-cert-file", &["read ", "absent", "No such file"]);
    for (name, part) in
        [("text", "has no certificate"), ("broken.crt", "certificate 1"), ("a.key", "no certificate")]
    {
        refused(&[&pki.flag("tls-cert-file", name), &key], "tls-cert-file", &[part]);
    }
    for (name, part) in
        [("text", "has no private key"), ("broken.key", "is unsupported"), ("a.crt", "no private key")]
    {
        refused(&[&cert, &pki.flag("tls-private-key-file", name)], "tls-private-key-file", &[part]);
    }
    let sni = |cert: &str, key: &str| {
        format!("--tls-sni-cert-key={},{}:x.example", pki.path(cert).display(), pki.path(key).display())
    };
    valid(&[&sni("a.crt", "a.key"), &sni("b.crt", "b.key")]);
    refused(&[&sni("a.crt", "a.key"), &sni("b.crt", "a.key")], "tls-sni-cert-key", &["b.crt"]);
}

#[test]
fn nothing_secret_is_said() {
    let pki = Pki::new();
    let secret = fs::read_to_string(pki.path("b.key")).unwrap();
    let body: String = secret.lines().filter(|line| !line.starts_with('-')).collect();
    let line = [pki.flag("tls-cert-file", "a.crt"), pki.flag("tls-private-key-file", "b.key")];
    let errors = validate(&[&line[0], &line[1]]).unwrap_err();
    assert!(!format!("{errors} {errors:?}").contains(&body[..16]));
    let key = pki.flag("service-account-private-key-file", "b.key");
    assert!(!format!("{:?}", valid(&[&key])).contains(&body[..16]));
}

#[test]
fn authorities_and_kubeconfigs() {
    let pki = Pki::new();
    for flag in ["client-ca-file", "requestheader-client-ca-file", "root-ca-file"] {
        valid(&[&pki.flag(flag, "a.crt")]);
        refused(&[&pki.flag(flag, "text")], flag, &["has no certificate", "PEM"]);
        refused(&[&pki.flag(flag, "absent")], flag, &["read "]);
    }
    for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
        valid(&[&pki.flag(flag, "text")]);
        refused(&[&pki.flag(flag, "absent")], flag, &["read "]);
        refused(&[&pki.flag(flag, "")], flag, &["is a directory"]);
    }
    let key = "service-account-private-key-file";
    valid(&[&pki.flag(key, "a.key")]);
    refused(&[&pki.flag(key, "a.crt")], key, &["has no private key"]);
    warned(
        &["--use-service-account-credentials"],
        "use-service-account-credentials",
        "token Secrets stay empty",
    );
}

#[test]
fn signing_certificates() {
    let pki = Pki::new();
    let flag = |name: &str, file: &str| pki.flag(&format!("cluster-signing-{name}"), file);
    valid(&[&flag("cert-file", "a.crt"), &flag("key-file", "a.key")]);
    valid(&[&flag("kubelet-client-cert-file", "a.crt"), &flag("kubelet-client-key-file", "a.key")]);
    refused(
        &[&flag("kubelet-client-cert-file", "a.crt")],
        "cluster-signing-kubelet-client-key-file",
        &["missing, but --cluster-signing-kubelet-client-cert-file is set"],
    );
    refused(
        &[
            &flag("cert-file", "a.crt"),
            &flag("key-file", "a.key"),
            &flag("legacy-unknown-cert-file", "b.crt"),
            &flag("legacy-unknown-key-file", "b.key"),
        ],
        "cluster-signing-legacy-unknown-cert-file",
        &["conflicts with --cluster-signing-cert-file"],
    );
    refused(
        &[&flag("cert-file", "a.crt"), &flag("key-file", "b.key")],
        "cluster-signing-key-file",
        &["does not match"],
    );
}

#[test]
fn requests() {
    let paths = "authorization-always-allow-paths";
    for good in ["*", "/healthz,/metrics/*", "a", "/a,,/b"] {
        valid(&[&format!("--{paths}={good}")]);
    }
    for bad in ["/a*b", "**", "*/a", "/healthz,/a*b"] {
        refused(&[&format!("--{paths}={bad}")], paths, &["before its end"]);
    }
    refused(&["--requestheader-username-headers=a, ,b"], "requestheader-username-headers", &["empty"]);
    refused(
        &["--requestheader-group-headers=a b"],
        "requestheader-group-headers",
        &["not a valid header name"],
    );
    refused(&["--requestheader-allowed-names= "], "requestheader-allowed-names", &["empty"]);
    valid(&["--requestheader-uid-headers=X-Remote-Uid,b"]);
    refused(&["--requestheader-uid-headers=b"], "requestheader-uid-headers", &["a list with x-remote-uid"]);
    warned(
        &["--requestheader-username-headers=b"],
        "requestheader-username-headers",
        "x-remote-user is missing",
    );
    refused(
        &["--requestheader-uid-headers=x-remote-uid", "--feature-gates=RemoteRequestHeaderUID=false"],
        "requestheader-uid-headers",
        &["RemoteRequestHeaderUID"],
    );
}

#[test]
fn workers_and_limits() {
    for flag in ["job", "cron-job", "daemonset", "statefulset", "horizontal-pod-autoscaler", "resourceclaim"]
    {
        let flag = format!("concurrent-{flag}-syncs");
        refused(&[&format!("--{flag}=0")], &flag, &["0 is out of range", "1 or more"]);
    }
    for flag in ["deployment", "replicaset", "gc", "namespace", "serviceaccount-token"] {
        let flag = format!("concurrent-{flag}-syncs");
        warned(&[&format!("--{flag}=0")], &flag, "using 1 instead of 0");
    }
    for (flag, most) in [
        ("concurrent-service-endpoint-syncs", 50),
        ("mirroring-concurrent-service-endpoint-syncs", 50),
        ("max-endpoints-per-slice", 1000),
        ("mirroring-max-endpoints-per-subset", 1000),
    ] {
        valid(&[&format!("--{flag}={most}")]);
        refused(&[&format!("--{flag}={}", most + 1)], flag, &[&format!("1 to {most}")]);
        refused(&[&format!("--{flag}=0")], flag, &["0 is out of range"]);
    }
    let period = "attach-detach-reconcile-sync-period";
    valid(&[&format!("--{period}=1s")]);
    refused(&[&format!("--{period}=999ms")], period, &["1s or more"]);
}

#[test]
fn logs_and_metrics() {
    valid(&["--logging-format=json"]);
    refused(&["--logging-format=xml"], "logging-format", &["xml", "text, json"]);
    refused(
        &["--logging-format=json", "--feature-gates=LoggingBetaOptions=false"],
        "logging-format",
        &["text"],
    );
    refused(&["--logging-format=json", "--vmodule=a=1"], "vmodule", &["text"]);
    refused(&["--log-flush-frequency=0"], "log-flush-frequency", &["more than 0s"]);
    for flag in ["log-json-split-stream", "log-text-split-stream"] {
        refused(&[&format!("--{flag}")], flag, &["LoggingAlphaOptions"]);
        valid(&[&format!("--{flag}"), "--feature-gates=LoggingAlphaOptions=true"]);
    }
    valid(&["--show-hidden-metrics-for-version=1.35"]);
    refused(&["--show-hidden-metrics-for-version=1.34"], "show-hidden-metrics-for-version", &["1.35"]);
    valid(&["--allow-metric-labels=a:b,c=d"]);
    refused(&["--allow-metric-labels=a=d"], "allow-metric-labels", &["METRIC,LABEL"]);
    refused(&["--allow-metric-labels=a,b:c=d"], "allow-metric-labels", &["a,b:c"]);
    let pki = Pki::new();
    pki.write("labels", "\"m,l\": \"a,b\"\n");
    pki.write("nested", "allowListMapping:\n  \"m,l\": \"a,b\"\n");
    pki.write("empty", "");
    let manifest = "allow-metric-labels-manifest";
    valid(&[&pki.flag(manifest, "labels")]);
    refused(&[&pki.flag(manifest, "text")], manifest, &["METRIC,LABEL"]);
    valid(&[&pki.flag(manifest, "empty")]);
    refused(&[&pki.flag(manifest, "nested")], manifest, &["read "]);
    refused(&[&pki.flag(manifest, "absent")], manifest, &["read "]);
    refused(
        &[&pki.flag(manifest, "labels"), "--allow-metric-labels=m,l=a"],
        manifest,
        &["only one of the two flags"],
    );
    let labels = |flags: &[&str]| valid(flags).config.metric_labels;
    let expected = [("m,l".to_owned(), "a,b".to_owned())];
    assert_eq!(labels(&[&pki.flag(manifest, "labels")]), expected.clone().into());
    assert_eq!(labels(&["--allow-metric-labels=m,l=a,b"]), expected.into());
}

#[test]
fn releases() {
    let startup = valid(&["--emulated-version=kube=1.35"]);
    assert_eq!(startup.config.versions.emulated.to_string(), "1.35");
    assert_eq!(startup.config.versions.min_compatibility.to_string(), "1.34");
    assert_eq!(valid(&[]).config.versions.min_compatibility.to_string(), "1.35");
    valid(&["--emulated-version=1.36.0"]);
    valid(&["--emulated-version=1.34", "--min-compatibility-version=1.33"]);
    let emulated = "emulated-version";
    for bad in ["1.32", "1.37", "abc", "1", "1.36.3", "other=1.35", "2.36", "1.35,1.34"] {
        refused(&[&format!("--emulated-version={bad}")], emulated, &["1.33 to 1.36"]);
    }
    refused(
        &["--emulated-version=1.35", "--min-compatibility-version=1.36"],
        "min-compatibility-version",
        &["1.33 to 1.35"],
    );
    refused(
        &["--feature-gates=AtomicFIFO=true", "--emulated-version=1.35"],
        "feature-gates",
        &["1.36 or later"],
    );
}

#[test]
fn leader_migration() {
    assert!(valid(&[]).config.leader_migration.is_none());
    let usual = valid(&["--enable-leader-migration"]).config.leader_migration.unwrap();
    assert_eq!(usual.leader_name, "cloud-provider-extraction-migration");
    let pki = Pki::new();
    let file = pki.flag("leader-migration-config", "text");
    refused(
        &["--enable-leader-migration", &file],
        "leader-migration-config",
        &["LeaderMigrationConfiguration"],
    );
    valid(&[&file]);
    warned(&["--enable-leader-migration", "--leader-elect=false"], "enable-leader-migration", "no effect");
}

#[test]
fn every_error_names_a_flag_that_exists() {
    let line = [
        "--cloud-provider=x",
        "--service-cluster-ip-range=10.0.0.0/24,10.0.1.0/24,fd00::/108",
        "--controllers=x",
        "--secure-port=-1",
        "--tls-min-version=x",
        "--tls-cipher-suites=x",
        "--tls-curve-preferences=1",
        "--max-endpoints-per-slice=0",
        "--logging-format=x",
        "--emulated-version=x",
        "--feature-gates=X=true",
        "--client-ca-file=/nonexistent",
    ];
    let errors = validate(&line).unwrap_err();
    assert_eq!(errors.0.len(), line.len(), "{errors}");
    for (error, given) in errors.0.iter().map(|error| error.flag().unwrap()).map(|flag| (flag, &line)) {
        assert!(given.iter().any(|argument| argument.split('=').next() == Some(error)), "{error}");
    }
}

#[test]
fn what_is_not_used_is_not_looked_at() {
    let pki = Pki::new();
    let absent = |flag: &str| pki.flag(flag, "absent");
    for flag in
        ["client-ca-file", "requestheader-client-ca-file", "authentication-kubeconfig", "tls-cert-file"]
    {
        valid(&["--secure-port=0", &absent(flag)]);
    }
    for argument in
        ["--tls-min-version=x", "--tls-cipher-suites=x", "--authorization-always-allow-paths=/a*b"]
    {
        valid(&["--secure-port=0", argument]);
    }
    valid(&["--controllers=ttl", &absent("root-ca-file")]);
    valid(&["--controllers=ttl", &absent("cluster-signing-cert-file"), &absent("cluster-signing-key-file")]);
    let template = "pv-recycler-pod-template-filepath-nfs";
    valid(&["--controllers=ttl", &absent(template)]);
    refused(&[&absent(template)], template, &["failed to read file path"]);
    for loads in ["persistentvolume-binder", "persistentvolume-expander", "attachdetach"] {
        let only = format!("--controllers={loads}");
        refused(&[&only, &absent(template)], template, &["failed to read file path"]);
    }
    warned(
        &[&absent("cluster-signing-cert-file")],
        "cluster-signing-cert-file",
        "the other file of the pair",
    );
}

#[test]
fn a_key_on_p521_signs_tokens_and_certificates_and_serves() {
    let flag = |flag: &str, form: &str| {
        format!("--{flag}={}/../../tests/data/keys/p521{form}.pem", env!("CARGO_MANIFEST_DIR"))
    };
    let pki = Pki::new();
    for form in ["", "-pkcs8"] {
        valid(&[&flag("service-account-private-key-file", form)]);
        let (certificate, key) = (pki.flag("cluster-signing-cert-file", "a.crt"), "cluster-signing-key-file");
        refused(&[&certificate, &flag(key, form)], key, &["does not match the certificate"]);
        let (certificate, key) = (pki.flag("tls-cert-file", "a.crt"), "tls-private-key-file");
        refused(&[&certificate, &flag(key, form)], key, &["does not match the certificate"]);
    }
    let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/authorities/p521");
    let files =
        [format!("--tls-cert-file={authority}.crt"), format!("--tls-private-key-file={authority}.key")];
    valid(&[&files[0], &files[1]]);
}

#[test]
fn keys_of_odd_forms_sign_tokens_and_certificates_and_serve() {
    let flag = |flag: &str, file: &str| {
        format!("--{flag}={}/../../tests/data/authorities/{file}", env!("CARGO_MANIFEST_DIR"))
    };
    for name in
        ["rsa", "rsa1024", "rsa4104", "rsa8192", "p256-no-public", "p384-no-public", "p521", "p521-no-public"]
    {
        let (certificate, key) = (format!("{name}.crt"), format!("{name}.key"));
        valid(&[&flag("service-account-private-key-file", &key)]);
        valid(&[&flag("cluster-signing-cert-file", &certificate), &flag("cluster-signing-key-file", &key)]);
        let other =
            [&flag("cluster-signing-cert-file", "ed25519.crt")[..], &flag("cluster-signing-key-file", &key)];
        refused(&other, "cluster-signing-key-file", &["does not match the certificate"]);
        let serving = [&flag("tls-cert-file", &certificate)[..], &flag("tls-private-key-file", &key)];
        valid(&serving);
    }
    let key = "tls-private-key-file";
    let pair = |name: &str| {
        let file = format!("--{key}={}/../../tests/data/tls/keys/{name}.key", env!("CARGO_MANIFEST_DIR"));
        [flag("tls-cert-file", "rsa.crt"), file]
    };
    let refused_pair = |name: &str, problem: &str| {
        let [certificate, file] = pair(name);
        refused(&[&certificate, &file], key, &[problem, "RSA (1024 to 8192 bits), ECDSA"]);
    };
    refused_pair("rsa1023", "has 1023 bits");
    refused_pair("rsa8200", "has 8200 bits");
    refused_pair("p224", "is unsupported");
    refused_pair("p256k1", "is unsupported");
    let tokens = flag("service-account-private-key-file", "ed25519.key");
    let allowed = "RSA (1024 to 8192 bits) or ECDSA (P-256, P-384, P-521)";
    refused(&[&tokens], "service-account-private-key-file", &["is unsupported", allowed]);
    valid(&[
        &flag("cluster-signing-cert-file", "ed25519.crt"),
        &flag("cluster-signing-key-file", "ed25519.key"),
    ]);
}

#[test]
fn the_token_controller_starts_whatever_is_selected() {
    let pki = Pki::new();
    let key = "service-account-private-key-file";
    for selection in ["--controllers=ttl", "--controllers=*,-serviceaccount-token-controller"] {
        refused(&[selection, &pki.flag(key, "absent")], key, &["read "]);
        let line = [selection, &pki.flag(key, "a.key"), &pki.flag("root-ca-file", "absent")];
        refused(&[line[0], line[1], line[2]], "root-ca-file", &["read "]);
    }
    warned(&["--controllers=*,-serviceaccount-token"], "controllers", "cannot be disabled");
    let half = pki.flag("cluster-signing-kubelet-client-cert-file", "a.crt");
    refused(&["--controllers=ttl", &half], "cluster-signing-kubelet-client-key-file", &["both or neither"]);
}

/// The admin API's port is served with the certificates and by the rules of the secure port.
#[test]
fn with_a_port_of_the_admin_api_alone_flags_for_serving_count() {
    let only = ["--secure-port=0", "--admin-port=1"];
    let with = |argument: &'static str| [only[0], only[1], argument];
    let versions = |line: &[&str]| valid(line).config.serving_tls.versions.len();
    assert_eq!((versions(&only), versions(&with("--tls-min-version=VersionTLS13"))), (2, 1));
    refused(&with("--tls-min-version=x"), "tls-min-version", &["unknown TLS version"]);
    let absent = "--client-ca-file=/does/not/exist";
    refused(&with(absent), "client-ca-file", &["read "]);
}

#[test]
fn drivers_of_volumes_that_nobody_runs_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let flag = format!("--flex-volume-plugin-dir={}", directory.path().display());
    let said = |line: &[&str]| {
        let warnings = valid(line).warnings.into_iter().map(|warning| warning.message);
        warnings.filter(|message| message.contains("does not run")).collect::<Vec<_>>()
    };
    for folder in [".hidden", "vendor~empty", "vendor~disk", "plain"] {
        fs::create_dir(directory.path().join(folder)).unwrap();
    }
    fs::write(directory.path().join(".hidden/hidden"), "").unwrap();
    assert_eq!(said(&[&flag]), [""; 0]);
    for driver in ["vendor~disk/disk", "plain/plain"] {
        fs::write(directory.path().join(driver), "").unwrap();
    }
    let named = "found FlexVolume drivers (plain, vendor/disk), which Coxswain does not run; their volumes will not be \
         attached or detached";
    assert_eq!(said(&[&flag]), [named]);
    assert_eq!(said(&[&flag, "--controllers=attachdetach"]), [named]);
    assert_eq!(said(&[&flag, "--controllers=ttl"]), [""; 0], "the original would run none");
    warned(&[&flag], "flex-volume-plugin-dir", "Coxswain runs no FlexVolume drivers");
}
