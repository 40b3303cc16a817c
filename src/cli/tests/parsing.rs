//! What the command line and the names on it mean.

use std::time::Duration;

use clap::ArgMatches;

use crate::admin::proto::stream_events_request::Start;
use crate::admin::proto::{EventType, ObjectKey, Queue, Severity};
use crate::cli::commands::{self, Picked, events, resolve};
use crate::cli::common::Common;
use crate::cli::connect::Address;
use crate::cli::environment::Environment;
use crate::cli::error::Exit;
use crate::cli::kinds;
use crate::cli::output::human;

fn matches(line: &[&str]) -> Result<ArgMatches, clap::Error> {
    commands::command().try_get_matches_from(["coxswain"].iter().chain(line))
}

fn environment(variables: &[(&'static str, &str)]) -> Environment {
    let clock = coxswain_machinery::model::clock::ManualClock::new(super::now());
    Environment::new(std::sync::Arc::new(clock), variables)
}

#[test]
fn the_command_line_is_sound() {
    commands::command().debug_assert();
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused() {
    for line in [
        &["events", "--tail", "1", "--since", "2"][..],
        &["events", "--severity", "loud"],
        &["controllers", "--every", "5s"],
        &["controllers", "--enabled", "--disabled"],
        &["disable"],
        &["disable", "x", "--for", "soon"],
        &["reset"],
        &["restart"],
        &["check-left"],
        &["restart", "x", "--for", "1h"],
        &["reset", "x", "--for", "1h"],
        &["leader", "--timeout", "0s"],
        &["leader", "--client-key", "k"],
        &["leader", "--leader-elect-resource-name", "a/b"],
        &["leader", "--leader-elect-resource-namespace", ""],
        &["queue", "q", "--keys", "0"],
        &["explain", "deploy"],
        &["completion", "tcsh"],
        &["debug"],
        &["debug", "dump", "here"],
        &["preflight", "all"],
        &["install"],
        &["install", "deployment"],
        &["install", "static-pod", "--backup", "b"],
        &["uninstall"],
        &["uninstall", "all"],
        // A token has no place where others can read it.
        &["leader", "--token", "t"],
    ] {
        let error = matches(line).unwrap_err();
        assert!(error.use_stderr(), "{line:?}");
    }
    let unknown = matches(&["controlers"]).unwrap_err().render().to_string();
    assert!(unknown.contains("'controllers'"), "{unknown}");
}

fn common(line: &[&str], variables: &[(&'static str, &str)]) -> Common {
    Common::read(matches(line).unwrap().subcommand().unwrap().1, &environment(variables))
}

#[test]
fn flags_win_over_variables() {
    let variables = [("COXSWAIN_SERVER", "a:1"), ("COXSWAIN_TOKEN_FILE", "/t")];
    let read = common(&["leader"], &variables);
    assert_eq!(read.server.as_deref(), Some("a:1"));
    assert_eq!(read.token_file.unwrap().to_str(), Some("/t"));
    let read = common(&["leader", "--server", "b:2", "--token-file", "/u", "--timeout", "90s"], &variables);
    assert_eq!(read.server.as_deref(), Some("b:2"));
    assert_eq!(read.token_file.unwrap().to_str(), Some("/u"));
    assert_eq!(read.timeout, Some(Duration::from_secs(90)));
    let read = common(&["leader", "--client-certificate", "c", "--client-key", "k"], &variables);
    assert!(read.token_file.is_none(), "the certificate alone was asked for");
    assert!(common(&["leader"], &[("COXSWAIN_SERVER", "")]).server.is_none());
}

#[test]
fn colors_are_for_terminals_unless_somebody_says_otherwise() {
    let mut terminal = environment(&[("TERM", "xterm")]);
    terminal.terminal = true;
    assert!(terminal.wants_color());
    for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        let mut environment = environment(&variables);
        environment.terminal = true;
        assert!(!environment.wants_color(), "{variables:?}");
    }
    assert!(!common(&["events"], &[]).palette.colored);
    assert!(common(&["events", "--color", "always"], &[("NO_COLOR", "1")]).palette.colored);
}

fn request(line: &[&str]) -> crate::admin::proto::StreamEventsRequest {
    events::request(matches(line).unwrap().subcommand().unwrap().1).unwrap()
}

#[test]
fn events_begin_where_asked() {
    assert_eq!(request(&["events"]).start, Some(Start::SinceSequence(0)));
    assert!(request(&["events"]).replay_only);
    assert_eq!(request(&["events", "-f"]).start, Some(Start::Last(10)));
    assert!(!request(&["events", "-f"]).replay_only);
    assert_eq!(request(&["events", "-f", "--since", "7"]).start, Some(Start::SinceSequence(7)));
    assert_eq!(request(&["events", "--tail=0"]).start, Some(Start::Last(0)));
    let line = [
        "events",
        "--controller",
        "a,b",
        "--type",
        "api-write",
        "--type",
        "Reconcile-Failed",
        "-n",
        "x",
        "--object",
        "pods/x/y",
        "--object",
        "x/z",
        "--severity",
        "warning",
    ];
    let filter = request(&line).filter.unwrap();
    assert_eq!(filter.controllers, ["a", "b"]);
    assert_eq!(filter.types, [EventType::ApiWrite as i32, EventType::ReconcileFailed as i32]);
    assert_eq!(filter.namespaces, ["x"]);
    let objects: Vec<_> = filter
        .objects
        .iter()
        .map(|object| (object.resource.as_str(), object.namespace.as_str(), object.name.as_str()))
        .collect();
    assert_eq!(objects, [("pods", "x", "y"), ("", "x", "z")]);
    assert_eq!(filter.min_severity, Severity::Warning as i32);
}

#[test]
fn addresses_are_host_and_port() {
    for (text, shown) in [
        ("localhost:1", "localhost:1"),
        ("https://10.0.0.1:10257/", "10.0.0.1:10257"),
        ("[fd00::1]:443", "[fd00::1]:443"),
    ] {
        assert_eq!(Address::parse(text).unwrap().to_string(), shown);
    }
    for text in [
        "",
        "host",
        "host:",
        "host:0",
        "host:70000",
        ":1",
        "a b:1",
        "http://h:1",
        "fd00::1:443",
        "u@h:1",
        "h/p:1",
    ] {
        assert!(Address::parse(text).is_err(), "{text}");
    }
}

#[test]
fn kinds_go_by_the_names_that_kubectl_takes() {
    for name in
        ["deploy", "deployment", "Deployments", "deployment.apps", "deployments.v1.apps", "deployments.apps"]
    {
        assert!(kinds::names(name, "deployments.apps"), "{name}");
    }
    for name in ["deploys", "deployments.batch", "deployments.v1", "deployments.x.apps", "apps", ""] {
        assert!(!kinds::names(name, "deployments.apps"), "{name}");
    }
    assert!(
        kinds::names("po", "pods") && kinds::names("pod.v1", "pods") && !kinds::names("pod.apps", "pods")
    );
    assert!(
        kinds::names("widget", "widgets.example.com")
            && kinds::names("widgets.example.com", "widgets.example.com")
    );
    let both = ["widgets.a.io", "widgets.b.io"];
    assert!(kinds::resolve("widget", both).unwrap_err().contains("widgets.a.io or widgets.b.io"));
    assert_eq!(kinds::resolve("widget.b.io", both), Ok("widgets.b.io"));
}

fn queue(name: &str, controller: &str, resource: &str) -> Queue {
    Queue { name: name.into(), controller: controller.into(), resource: resource.into(), ..Queue::default() }
}

fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey { namespace: namespace.into(), name: name.into() }
}

#[test]
fn an_object_to_explain_finds_its_controller() {
    let queues = [
        queue("deployment", "deployment-controller", "deployments.apps"),
        queue("endpoint_slice", "endpointslice-controller", "services"),
        queue("endpoint", "endpoints-controller", "services"),
        queue("taints", "taint-controller", "nodes"),
        queue("odd", "odd-controller", ""),
    ];
    let nobody = Picked::default();
    let found = resolve("deploy", &key("ns", "web"), &nobody, &queues).unwrap();
    assert_eq!((found.controller.as_str(), found.queue.as_str()), ("deployment-controller", "deployment"));
    assert!(found.explain);
    assert!(resolve("node", &key("", "n1"), &nobody, &queues).is_ok());

    let ambiguous = resolve("svc", &key("ns", "web"), &nobody, &queues).unwrap_err();
    assert_eq!(ambiguous.exit(), Exit::Usage);
    for choice in ["--controller endpointslice-controller", "--queue endpoint"] {
        assert!(ambiguous.to_string().contains(choice), "{ambiguous}");
    }
    let picked = Picked { queue: Some("endpoint".into()), ..Picked::default() };
    assert_eq!(
        resolve("svc", &key("ns", "web"), &picked, &queues).unwrap().controller,
        "endpoints-controller"
    );

    let error = |kind: &str, key: ObjectKey, picked: &Picked, queues: &[Queue]| {
        let error = resolve(kind, &key, picked, queues).unwrap_err();
        (error.exit(), error.to_string())
    };
    let (exit, text) = error("cronjob", key("ns", "x"), &nobody, &queues);
    assert!(exit == Exit::NotFound && text.contains("deployments.apps, nodes, services"), "{text}");
    let (exit, text) = error("deploy", key("", "web"), &nobody, &queues);
    assert!(exit == Exit::Usage && text.contains("NAMESPACE/web"), "{text}");
    assert_eq!(error("node", key("ns", "n1"), &nobody, &queues).0, Exit::Usage);
    assert_eq!(error("deploy", key("ns", "x"), &nobody, &[]).0, Exit::NotFound);
    let gone = Picked { controller: Some("x".into()), ..Picked::default() };
    assert!(
        error("deploy", key("ns", "x"), &gone, &[]).1.contains("--controller \"x\": no running controller")
    );
    let gone = Picked { queue: Some("x".into()), ..Picked::default() };
    assert!(error("deploy", key("ns", "x"), &gone, &queues).1.contains("--queue \"x\": no such queue"));
}

#[test]
fn objects_are_namespace_and_name() {
    let parse = |text: &str, namespace: Option<&str>| commands::object_key(text, namespace).ok();
    assert_eq!(parse("ns/web", None), Some(key("ns", "web")));
    assert_eq!(parse("web", Some("ns")), Some(key("ns", "web")));
    assert_eq!(parse("ns/web", Some("ns")), Some(key("ns", "web")));
    assert_eq!(parse("node-1", None), Some(key("", "node-1")));
    for (text, namespace) in
        [("ns/web", Some("other")), ("a/b/c", None), ("/web", None), ("ns/", None), ("", None)]
    {
        assert_eq!(parse(text, namespace), None, "{text}");
    }
}

#[test]
fn durations_are_as_coarse_as_they_are_long() {
    for (seconds, text) in [
        (0.0, "0s"),
        (0.000_4, "400µs"),
        (0.012, "12ms"),
        (1.9, "1s"),
        (95.0, "95s"),
        (192.0, "3m12s"),
        (240.0, "4m"),
        (2700.0, "45m"),
        (11_100.0, "3h5m"),
        (93_600.0, "26h"),
        (273_600.0, "3d4h"),
        (34_560_000.0, "400d"),
    ] {
        assert_eq!(human::duration(Duration::from_secs_f64(seconds)), text);
    }
    let negative = prost_types::Duration { seconds: -1, nanos: i32::MIN };
    assert_eq!(human::duration_or_none(Some(&negative)), "0s");
    let beyond = prost_types::Timestamp { seconds: i64::MAX, nanos: -5 };
    assert_eq!(human::age(Some(&beyond), super::now()), "<none>");
    assert_eq!(human::age(Some(&super::time(60)), super::now()), "0s", "a clock that is ahead");
}
