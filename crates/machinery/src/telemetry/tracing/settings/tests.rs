//! Settings from flags, files and variables.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::document::{TracingDocument, parse};
use super::{Given, Protocol, Root, Sampling, SettingSource, TracingSettings};
use crate::random::HashMap;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
const NOTHING: Given<'_> = Given { endpoint: "", rate_per_million: -1, file: "" };

type Completed = Result<Option<TracingSettings>, Vec<super::SettingProblem>>;

fn complete(given: Given<'_>, variables: &[(&str, &str)]) -> Completed {
    let variables: HashMap<&str, &str> = variables.iter().copied().collect();
    TracingSettings::complete(given, &|name| variables.get(name).map(|value| (*value).to_owned()))
}

fn on(given: Given<'_>, variables: &[(&str, &str)]) -> TracingSettings {
    complete(given, variables).unwrap().unwrap()
}

fn endpoint(settings: &TracingSettings) -> String {
    settings.endpoint.to_string()
}

#[test]
fn nothing_asks_for_traces() {
    assert_eq!(complete(NOTHING, &[]), Ok(None));
    assert_eq!(complete(Given { rate_per_million: 5, ..NOTHING }, &[]), Ok(None));
    for off in [
        ("OTEL_SDK_DISABLED", "TRUE"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", " "),
    ] {
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:4318"), off];
        let expected = off.0 == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        assert_eq!(complete(NOTHING, &variables).unwrap().is_some(), expected, "{off:?}");
        let flag = Given { endpoint: "y:1", ..NOTHING };
        assert_eq!(endpoint(&on(flag, &variables)), "http://y:1/", "a flag wins over {off:?}");
    }
}

#[test]
fn endpoints_and_protocols() {
    let flag = |endpoint| Given { endpoint, ..NOTHING };
    let grpc = &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    let http = &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")];
    for (given, variables, protocol, expected) in [
        (flag("host:4317"), &[][..], Protocol::Grpc, "http://host:4317/"),
        (flag("https://[::1]:4317"), &[], Protocol::Grpc, "https://[::1]:4317/"),
        (flag("host:4318"), http, Protocol::HttpProtobuf, "http://host:4318/v1/traces"),
        (flag("http://host/own"), http, Protocol::HttpProtobuf, "http://host/own"),
        (
            NOTHING,
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://host:4318/base/")],
            Protocol::HttpProtobuf,
            "http://host:4318/base/v1/traces",
        ),
        (
            NOTHING,
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"),
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b/c"),
            ],
            Protocol::HttpProtobuf,
            "http://b/c",
        ),
        (
            NOTHING,
            &[("OTEL_TRACES_EXPORTER", "otlp")],
            Protocol::HttpProtobuf,
            "http://localhost:4318/v1/traces",
        ),
        (NOTHING, &[("OTEL_TRACES_EXPORTER", "otlp"), grpc[0]], Protocol::Grpc, "http://localhost:4317/"),
    ] {
        let settings = on(given, variables);
        assert_eq!((settings.protocol, endpoint(&settings).as_str()), (protocol, expected));
    }
}

#[test]
fn what_is_given_is_taken() {
    let settings = on(
        Given { endpoint: "h:1", ..NOTHING },
        &[
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc,x-y=z"),
            ("OTEL_SERVICE_NAME", "kube-controller-manager"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,k8s.cluster.name=a%2Cb"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
            ("OTEL_BSP_SCHEDULE_DELAY", "250"),
        ],
    );
    assert_eq!(settings.timeout, Duration::from_millis(1500));
    assert_eq!(settings.certificate.as_deref(), Some(Path::new("/ca.pem")));
    assert_eq!(settings.service_name.as_deref(), Some("kube-controller-manager"));
    assert!(settings.attributes.contains(&("k8s.cluster.name".to_owned(), "a,b".to_owned())));
    let batching = settings.batching;
    assert_eq!((batching.queue, batching.batch, batching.delay.as_millis()), (100, 100, 250));
    assert!(!format!("{settings:?}").contains("abc"), "headers are secret");
    let named =
        on(Given { endpoint: "h:1", ..NOTHING }, &[("OTEL_RESOURCE_ATTRIBUTES", "service.name=other")]);
    assert_eq!(named.service_name.as_deref(), Some("other"));
}

#[test]
fn sampling_is_the_flags_the_files_or_the_variables() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tracing.yaml");
    std::fs::write(&path, format!("{HEAD}samplingRatePerMillion: 1000\n")).unwrap();
    let file = path.to_str().unwrap();
    let ratio = |ratio| Sampling { parent_based: true, root: Root::Ratio(ratio) };
    let variables = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.25")];
    let settings = on(Given { file, ..NOTHING }, &variables);
    assert_eq!((settings.sampling, endpoint(&settings).as_str()), (ratio(0.001), "http://localhost:4317/"));
    let settings = on(Given { file, rate_per_million: 500_000, endpoint: "flag:1" }, &variables);
    assert_eq!((settings.sampling, endpoint(&settings).as_str()), (ratio(0.5), "http://flag:1/"));
    for (sampler, parent_based, root) in [
        ("", true, Root::Always),
        ("always_on", false, Root::Always),
        ("always_off", false, Root::Never),
        ("parentbased_always_off", true, Root::Never),
        ("traceidratio", false, Root::Ratio(0.25)),
        ("parentbased_traceidratio", true, Root::Ratio(0.25)),
    ] {
        let variables = [("OTEL_TRACES_SAMPLER", sampler), variables[1]];
        let settings = on(Given { endpoint: "h:1", ..NOTHING }, &variables);
        assert_eq!(settings.sampling, Sampling { parent_based, root }, "{sampler}");
    }
}

#[test]
fn everything_wrong_is_said_and_no_secret() {
    let problems = complete(
        Given { endpoint: "ftp://h", rate_per_million: 1_000_001, file: "/does/not/exist" },
        &[
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_TRACES_SAMPLER", "some"),
            ("OTEL_RESOURCE_ATTRIBUTES", "nothing"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ],
    )
    .unwrap_err();
    let mut sources: Vec<_> = problems.iter().map(|problem| problem.source).collect();
    sources.dedup();
    for expected in [
        SettingSource::Flag("tracing-endpoint"),
        SettingSource::Flag("tracing-sampling-rate-per-million"),
        SettingSource::Flag("tracing-config-file"),
        SettingSource::Variable("OTEL_EXPORTER_OTLP_PROTOCOL"),
        SettingSource::Variable("OTEL_EXPORTER_OTLP_HEADERS"),
        SettingSource::Variable("OTEL_EXPORTER_OTLP_TIMEOUT"),
        SettingSource::Variable("OTEL_EXPORTER_OTLP_COMPRESSION"),
        SettingSource::Variable("OTEL_TRACES_SAMPLER"),
        SettingSource::Variable("OTEL_RESOURCE_ATTRIBUTES"),
        SettingSource::Variable("OTEL_BSP_MAX_QUEUE_SIZE"),
    ] {
        assert!(sources.contains(&expected), "{expected:?} in {sources:?}");
    }
    assert!(!format!("{problems:?}").contains("s3cret"));
    for endpoint in ["http://", "a b:1", "unix:///x", "http://user:pass@h:1"] {
        let problems = complete(Given { endpoint, ..NOTHING }, &[]).unwrap_err();
        assert_eq!(problems.len(), 1, "{endpoint}");
        assert!(!problems[0].problem.contains("pass"), "{endpoint}");
    }
    assert!(complete(NOTHING, &[("OTEL_TRACES_EXPORTER", "zipkin")]).is_err());
}

#[test]
fn documents_are_read_strictly() {
    let rate = |text: &str| parse(text).map(|document| document.rate_per_million);
    for version in ["v1", "v1beta1"] {
        let head = HEAD.replace("/v1", &format!("/{version}"));
        assert_eq!(
            parse(&format!("{head}endpoint: h:1\nsamplingRatePerMillion: 7\n")),
            Ok(TracingDocument { endpoint: Some("h:1".to_owned()), rate_per_million: 7 })
        );
    }
    assert_eq!(rate(HEAD), Ok(0), "nobody asked for any");
    for (text, expected) in [
        ("hello".to_owned(), "invalid type"),
        (HEAD.replace("/v1", "/v2"), "unknown apiVersion"),
        (HEAD.replace("Tracing", "Tracking"), "TrackingConfiguration"),
        (format!("{HEAD}endpont: x\n"), "endpont"),
        (format!("{HEAD}samplingRatePerMillion: -1\n"), "-1"),
        (format!("{HEAD}samplingRatePerMillion: 1000001\n"), "1000001"),
        (format!("{HEAD}samplingRatePerMillion: many\n"), "invalid type"),
    ] {
        let problems = parse(&text).unwrap_err();
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{text}: {problems:?}");
    }
}

proptest! {
    #[test]
    fn no_input_panics(
        endpoint in "\\PC{0,24}", document in "\\PC{0,64}", headers in "\\PC{0,24}", rate in any::<i32>()
    ) {
        drop(parse(&document));
        drop(parse(&format!("{HEAD}{document}")));
        let given = Given { endpoint: &endpoint, rate_per_million: rate, file: "" };
        let variables = [("OTEL_EXPORTER_OTLP_HEADERS", headers.as_str()), ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)];
        drop(complete(given, &variables));
    }
}
