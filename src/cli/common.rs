//! The flags that all commands share: which replica, trust, credentials, time, colors.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::discover::MainLease;
use super::environment::{self, Environment};
use super::output::{Format, Palette};
use coxswain_machinery::options::duration;

const FINDING: &str = "Finding a replica";
const SECURITY: &str = "Trust and credentials";
const GENERAL: &str = "General";

/// What the shared flags and variables say.
#[derive(Clone, Debug, Default)]
pub(super) struct Common {
    /// Host and port of a replica.
    pub(super) server: Option<String>,
    /// Go through the API server to the pods of replicas.
    pub(super) via_pod: bool,
    /// A kubeconfig file.
    pub(super) kubeconfig: Option<PathBuf>,
    /// Its context.
    pub(super) context: Option<String>,
    /// The Lease by which the leader leads.
    pub(super) main_lease: MainLease,
    /// Whom to trust.
    pub(super) certificate_authority: Option<PathBuf>,
    /// Trust the authority that a replica announces, with a token too.
    pub(super) trust_announced: bool,
    /// The name that the replica's certificate must have.
    pub(super) tls_server_name: Option<String>,
    /// Trust anyone.
    pub(super) insecure: bool,
    /// A client certificate, and its key.
    pub(super) client_certificate: Option<(PathBuf, PathBuf)>,
    /// A bearer token.
    pub(super) token_file: Option<PathBuf>,
    /// How long a call may take.
    pub(super) timeout: Option<Duration>,
    /// The colors.
    pub(super) palette: Palette,
}

fn option(name: &'static str, value: &'static str, heading: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).global(true).help_heading(heading)
}

/// Adds the shared flags.
pub(super) fn add(command: Command) -> Command {
    let path = || clap::value_parser!(PathBuf);
    command
        .arg(
            option("server", "HOST:PORT", FINDING)
                .help("Replica to call, without looking for replicas [env: COXSWAIN_SERVER]"),
        )
        .arg(
            option("via-pod", "", FINDING)
                .action(ArgAction::SetTrue)
                .conflicts_with("server")
                .help("Connect by port-forward to the replica's pod in kube-system"),
        )
        .arg(
            option("kubeconfig", "FILE", FINDING)
                .value_parser(path())
                .help("Kubeconfig [env: KUBECONFIG] [default: ~/.kube/config, else in-cluster]"),
        )
        .arg(
            option("context", "NAME", FINDING)
                .help("Context of the kubeconfig [default: the current context]"),
        )
        .arg(
            option("leader-elect-resource-name", "NAME", FINDING)
                .value_parser(parse_object_name)
                .help("Leader-election Lease, as set on the manager [default: kube-controller-manager]"),
        )
        .arg(
            option("leader-elect-resource-namespace", "NAMESPACE", FINDING)
                .value_parser(parse_object_name)
                .help("Namespace of the leader-election Lease [default: kube-system]"),
        )
        .arg(
            option("certificate-authority", "FILE", SECURITY)
                .value_parser(path())
                .help("CA certificates (PEM) to trust instead of the cluster's"),
        )
        .arg(
            option("trust-announced-authority", "", SECURITY)
                .action(ArgAction::SetTrue)
                .help(
                    "Send the token to a replica whose CA is known only from the replica's Lease; accounts that can write \
                     Leases can then steal the token",
                ),
        )
        .arg(
            option("tls-server-name", "NAME", SECURITY)
                .help("Name to expect in the replica's certificate [default: host of its address]"),
        )
        .arg(
            option("insecure-skip-tls-verify", "", SECURITY)
                .action(ArgAction::SetTrue)
                .help("Skip TLS verification; exposes the credentials to any server that answers"),
        )
        .arg(
            option("client-certificate", "FILE", SECURITY)
                .value_parser(path())
                .requires("client-key")
                .help("Client certificate (PEM), instead of the kubeconfig's user"),
        )
        .arg(
            option("client-key", "FILE", SECURITY)
                .value_parser(path())
                .requires("client-certificate")
                .help("Private key (PEM) of the client certificate"),
        )
        .arg(
            option("token-file", "FILE", SECURITY)
                .value_parser(path())
                .help("Bearer token file, instead of the kubeconfig's user [env: COXSWAIN_TOKEN_FILE]"),
        )
        .arg(
            option("timeout", "DURATION", GENERAL)
                .value_parser(parse_timeout)
                .help("Timeout of a call, such as 90s [default: 30s, 3m with --wait; none for streams]"),
        )
        .arg(
            option("color", "WHEN", GENERAL)
                .value_parser(["auto", "always", "never"])
                .default_value("auto")
                .help("Color of events; auto means on a terminal, unless NO_COLOR is set"),
        )
}

/// The flag for the form of answers.
pub(super) fn output(description: &'static str) -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FORMAT")
        .value_parser(["table", "wide", "json", "yaml"])
        .default_value("table")
        .help(description)
}

/// What [`output`] says.
pub(super) fn format(matches: &ArgMatches) -> Format {
    match matches.get_one::<String>("output").map(String::as_str) {
        Some("wide") => Format::Wide,
        Some("json") => Format::Json,
        Some("yaml") => Format::Yaml,
        _ => Format::Table,
    }
}

/// A duration as flags take it.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_duration(text).and_then(|timeout| {
        if timeout.is_zero() { Err("timeout must be greater than zero".to_owned()) } else { Ok(timeout) }
    })
}

/// A name that becomes part of a request's path.
fn parse_object_name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let has_ends =
        text.bytes().next().is_some_and(is_plain) && text.bytes().next_back().is_some_and(is_plain);
    if has_ends && text.bytes().all(|byte| is_plain(byte) || matches!(byte, b'-' | b'.')) {
        return Ok(text.to_owned());
    }
    Err("use only lower-case letters, digits, - and .; the first and last characters must be a letter or digit"
        .to_owned())
}

/// A value of a flag, if it was given.
pub(super) fn text(matches: &ArgMatches, name: &str) -> Option<String> {
    matches.get_one::<String>(name).filter(|value| !value.is_empty()).cloned()
}

/// All values of a flag or argument.
pub(super) fn texts(matches: &ArgMatches, name: &str) -> Vec<String> {
    matches.get_many::<String>(name).unwrap_or_default().cloned().collect()
}

impl Common {
    /// What was given, by flag or by variable.
    pub(super) fn read(matches: &ArgMatches, environment: &Environment) -> Self {
        let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
        let usual = MainLease::default();
        let main_lease = MainLease {
            namespace: text(matches, "leader-elect-resource-namespace").unwrap_or(usual.namespace),
            name: text(matches, "leader-elect-resource-name").unwrap_or(usual.name),
        };
        let colored = match matches.get_one::<String>("color").map(String::as_str) {
            Some("always") => true,
            Some("never") => false,
            _ => environment.wants_color(),
        };
        Self {
            server: text(matches, "server").or_else(|| {
                // The variable names a replica for commands that do not say how to reach one.
                environment.text(environment::SERVER).filter(|_| !matches.get_flag("via-pod"))
            }),
            via_pod: matches.get_flag("via-pod"),
            kubeconfig: path("kubeconfig"),
            context: text(matches, "context"),
            main_lease,
            certificate_authority: path("certificate-authority"),
            trust_announced: matches.get_flag("trust-announced-authority"),
            tls_server_name: text(matches, "tls-server-name"),
            insecure: matches.get_flag("insecure-skip-tls-verify"),
            client_certificate: path("client-certificate").zip(path("client-key")),
            // A credential given by flag is all that counts then.
            token_file: path("token-file").or_else(|| match path("client-certificate") {
                None => environment.path(environment::TOKEN_FILE),
                Some(_) => None,
            }),
            timeout: matches.get_one::<Duration>("timeout").copied(),
            palette: Palette { colored },
        }
    }
}
