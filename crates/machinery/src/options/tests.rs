//! Command lines from end to end.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;

use super::parser::{self, Parsed};
use super::{
    Config, FlagEffect, FlagValue, Flags, Invocation, LeaderMigration, NamedCertKey, Repetition,
    SelectionState, Startup, TABLE, Verbosity, VersionRequest, controllers, parse,
};
use crate::options::fixture::registry;

const OBSERVED: &str = include_str!("../../../../tests/data/peer/flags.tsv");

/// The sections of the flags that the original does not have.
const OUR_OWN: [&str; 2] = ["Admin API", "Traces"];

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

fn read(line: &[&str]) -> Parsed {
    parser::parse(&words(line))
}

fn flags(line: &[&str]) -> Flags {
    let parsed = read(line);
    assert_eq!(parsed.errors, [], "{line:?}");
    parsed.flags
}

fn errors(line: &[&str]) -> Vec<String> {
    match parse(line.iter().map(OsString::from), registry()) {
        Ok(invocation) => panic!("{line:?} is valid: {invocation:?}"),
        Err(errors) => errors.0.iter().map(ToString::to_string).collect(),
    }
}

fn startup(line: &[&str]) -> Startup {
    match parse(line.iter().map(OsString::from), registry()) {
        Ok(Invocation::Run(startup)) => *startup,
        other => panic!("{line:?}: {other:?}"),
    }
}

fn printed(line: &[&str]) -> String {
    match parse(line.iter().map(OsString::from), registry()) {
        Ok(Invocation::Print(text)) => text,
        other => panic!("{line:?}: {other:?}"),
    }
}

/// The flags of the original that its `--help` lists: section, name, type, default.
fn observed() -> Vec<(&'static str, &'static str, &'static str, String)> {
    let mut section = "";
    let mut flags = Vec::new();
    for line in OBSERVED.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some(row) = line.strip_prefix("--") {
            let fields: Vec<&str> = row.split('\t').collect();
            let default = fields.get(2).copied().unwrap_or("").trim_matches('"').to_owned();
            flags.push((section, fields[0], fields[1], default));
        }
    }
    flags
}

#[test]
fn every_flag_of_the_original_is_there_with_its_section_type_and_default() {
    // What the original shows no default for.
    let zero = |default: String| match default.as_str() {
        "0" | "0s" | "false" | "[]" => String::new(),
        _ => default,
    };
    let ours: BTreeSet<_> = TABLE
        .iter()
        .filter(|flag| flag.deprecated.is_none() && !OUR_OWN.contains(&flag.section))
        .map(|flag| (flag.section, flag.name(), flag.kind, zero(flag.default())))
        .collect();
    let mut expected: BTreeSet<_> = observed()
        .into_iter()
        .map(|(section, name, kind, default)| (section, name.to_owned(), kind, zero(default)))
        .collect();
    assert_eq!(expected.len(), 146);
    // Listed in two lines, or by another rule, and so not in the table of observations.
    expected.insert(("Logs", "vmodule".to_owned(), "pattern=N,...", String::new()));
    expected.insert(("Global", "version".to_owned(), "version", String::new()));
    assert_eq!(ours, expected);
}

#[test]
fn every_flag_takes_its_own_default_back() {
    for flag in
        TABLE.iter().filter(|flag| !matches!(flag.kind, "namedCertKey" | "stringToString" | "int32Slice"))
    {
        let default = flag.default();
        let text = default.trim_start_matches('[').trim_end_matches(']');
        let mut flags = Flags::default();
        assert_eq!((flag.set)(&mut flags, text, Repetition::First), Ok(()), "{}", flag.name());
        assert_eq!(flags, Flags::default(), "{}", flag.name());
    }
}

#[test]
fn names_are_unique_and_every_row_is_its_own_field() {
    let names: BTreeSet<String> = TABLE.iter().map(super::Flag::name).collect();
    assert_eq!(names.len(), TABLE.len());
    for flag in TABLE {
        let text = match flag.kind {
            "bool" if flag.default() == "true" => "false",
            "bool" | "version" => "true",
            "int" | "int32" | "float" | "float32" | "Level" | "int32Slice" => "7",
            "duration" => "7s",
            "ip" => "192.0.2.7",
            "string" | "strings" => "seven",
            "stringToString" | "colonSeparatedMultimapStringString" | "pattern=N,..." => "seven=7",
            "namedCertKey" => "seven,key",
            "quantity" => "7Ki",
            other => panic!("no example of {other}"),
        };
        let mut flags = Flags::default();
        (flag.set)(&mut flags, text, Repetition::First).unwrap();
        let changed: Vec<String> = TABLE
            .iter()
            .filter(|other| other.show(&flags) != other.default())
            .map(super::Flag::name)
            .collect();
        assert_eq!(changed, [flag.name()]);
    }
}

#[test]
fn values_are_given_as_go_takes_them() {
    assert_eq!(flags(&["--secure-port=1"]).secure_port, 1);
    assert_eq!(flags(&["--secure-port", "1"]).secure_port, 1);
    assert_eq!(flags(&["--secure_port=0x10"]).secure_port, 16);
    assert_eq!(flags(&["--concurrent_gc-syncs", "-1"]).concurrent_gc_syncs, -1);
    assert_eq!(flags(&["--concurrent-gc-syncs=010"]).concurrent_gc_syncs, 8);
    assert_eq!(flags(&["--concurrent-gc-syncs=1_000"]).concurrent_gc_syncs, 1000);
    assert!(!flags(&["--leader-elect=false"]).leader_elect);
    assert!(!flags(&["--leader-elect=F"]).leader_elect);
    assert!(flags(&["--contention-profiling"]).contention_profiling);
    assert_eq!(flags(&["--min-resync-period=1.5h"]).min_resync_period, Duration::from_mins(90));
    assert_eq!(flags(&["--master="]).master, "");
    assert_eq!(flags(&["--master=a=b"]).master, "a=b");
    for line in [&["-v4"][..], &["-v", "4"], &["-v=4"], &["--v=4"], &["--v", "4"], &["-v=1", "-v=4"]] {
        assert_eq!(flags(line).v, Verbosity(4), "{line:?}");
    }
    assert!((flags(&["--kube-api-qps=1e2"]).kube_api_qps - 100.0).abs() < f32::EPSILON);
    assert_eq!(flags(&["--bind-address="]).bind_address.to_string(), "0.0.0.0");
    assert_eq!(flags(&["--bind-address=::1"]).bind_address.to_string(), "::1");
    assert_eq!(flags(&["--bind-address=::ffff:10.0.0.1"]).bind_address.to_string(), "10.0.0.1");
    assert_eq!(flags(&["--bind-address=10.0.0.1", "--bind-address="]).bind_address.to_string(), "10.0.0.1");
    assert_eq!(flags(&["--version"]).version, VersionRequest::Line);
}

#[test]
fn lists_replace_their_default_and_then_grow() {
    assert_eq!(flags(&["--controllers=a,b", "--controllers=-c"]).controllers, ["a", "b", "-c"]);
    assert_eq!(flags(&["--controllers="]).controllers, [""; 0]);
    assert_eq!(flags(&["--disabled-metrics=\"a,b\",c"]).disabled_metrics, ["a,b", "c"]);
    assert_eq!(
        flags(&["--tls-curve-preferences=29,23", "--tls-curve-preferences=24"]).tls_curve_preferences,
        [29, 23, 24]
    );
    let labels =
        flags(&["--allow-metric-labels=m,l='a,b'", "--allow-metric-labels=n=1,o=2"]).allow_metric_labels;
    let expected = [("m,l", "'a,b'"), ("n", "1"), ("o", "2")];
    assert_eq!(labels, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    let certificates = flags(&["--tls-sni-cert-key=a,b", "--tls-sni-cert-key=c,d:*.x,y"]).tls_sni_cert_key;
    let named = |cert: &str, key: &str, names: &[&str]| NamedCertKey {
        cert_file: cert.to_owned(),
        key_file: key.to_owned(),
        names: words(names),
    };
    assert_eq!(certificates, [named("a", "b", &[]), named("c", "d", &["*.x", "y"])]);
    let gates = flags(&["--feature-gates=A=true, kube:B=false", "--feature-gates=x:C=true"]).feature_gates;
    assert_eq!(gates.show(), "kube:A=true,kube:B=false,x:C=true");
    let modules = flags(&["--vmodule=a=1,b::c*=2"]).vmodule;
    assert_eq!(modules.show(), "a=1,b::c*=2");
    for (text, bytes) in [("512", 512), ("1k", 1000), ("2Ki", 2048), ("1.5Mi", 1_572_864), ("3e3", 3000)] {
        let flag = format!("--log-text-info-buffer-size={text}");
        assert_eq!(flags(&[&flag]).log_text_info_buffer_size.0, bytes, "{text}");
    }
}

/// The package `encoding/csv` of Go reads these texts in the same way.
#[test]
fn a_list_ends_at_a_line_break_outside_of_quotes() {
    for (text, list) in [
        ("a,b\nc", Some(&["a", "b"][..])),
        ("\n\r\na", Some(&["a"])),
        ("a,\r", Some(&["a", ""])),
        ("a\rb", Some(&["a\rb"])),
        ("\"a\r\nb\",c\n\"", Some(&["a\nb", "c"])),
        ("", Some(&[])),
        ("\n", None),
        ("\"a", None),
        ("a\"", None),
    ] {
        let list: Option<Vec<String>> = list.map(|list| list.iter().map(|&item| item.to_owned()).collect());
        assert_eq!(super::value::split_csv(text).ok(), list, "{text:?}");
    }
}

#[test]
fn what_can_not_be_read_is_refused() {
    for (line, expected) in [
        (&["--nope"][..], "unknown flag --nope"),
        (&["--conc=3"], "unknown flag --conc; did you mean"),
        (&["--leader-elect-lease-duratoin", "3s"], "did you mean --leader-elect-lease-duration"),
        (&["-x"], "unknown flag -x"),
        (&["--=x"], "\"--=x\" is not a flag"),
        (&["---x"], "\"---x\" is not a flag"),
        (&["--secure-port"], "--secure-port: missing value (int)"),
        (&["-v"], "-v: missing value (Level)"),
        (&["foo"], "unexpected argument \"foo\""),
        (&["--leader-elect", "false"], "unexpected argument \"false\""),
        (&["--", "--v=4"], "unexpected argument \"--v=4\""),
        (&["--leader-elect=yes"], "--leader-elect: invalid value \"yes\": expected true or false"),
        (&["--concurrent-gc-syncs=abc"], "expected a whole number from -2147483648 to 2147483647"),
        (&["--concurrent-gc-syncs=99999999999"], "expected a whole number"),
        (&["--concurrent-gc-syncs=1__0"], "expected a whole number"),
        (&["--concurrent-gc-syncs=_1"], "expected a whole number"),
        (&["--concurrent-gc-syncs=08"], "expected a whole number"),
        (&["--tls-curve-preferences="], "expected a whole number"),
        (&["--min-resync-period=5"], "has no unit"),
        (&["--min-resync-period=-5s"], "expected a duration of 0 or more"),
        (&["--kube-api-qps=NaN"], "expected a number"),
        (&["--log-text-info-buffer-size=1K"], "expected a number of bytes"),
        (&["--bind-address=foo"], "expected an IPv4 or IPv6 address"),
        (&["--bind-address= "], "expected an IPv4 or IPv6 address"),
        (&["--concurrent-gc-syncs=0x_+a"], "expected a whole number"),
        (&["--concurrent-gc-syncs=0_-1"], "expected a whole number"),
        (&["--tls-sni-cert-key=a"], "expected CERT,KEY"),
        (&["--tls-sni-cert-key=a,b:"], "expected CERT,KEY"),
        (&["--allow-metric-labels=a"], "expected key=value"),
        (&["--log-text-info-buffer-size=12x"], "expected a number of bytes"),
        (&["--vmodule=foo"], "expected PATTERN=LEVEL"),
        (&["-v=-1"], "expected a level"),
        (&["--feature-gates=AllAlpha"], "AllAlpha has no value"),
        (&["--disabled-metrics=\"a"], "quotes must enclose"),
        (&["--version=v1.35.0"], "expected v1.36.3"),
        (&["--version=foo"], "expected true, false, raw"),
    ] {
        let errors = errors(line);
        assert_eq!(errors.len(), 1, "{line:?}: {errors:?}");
        assert!(errors[0].contains(expected), "{line:?}: {}", errors[0]);
    }
}

#[test]
fn everything_wrong_is_reported_together_and_once() {
    let three = "--service-cluster-ip-range=10.0.0.0/24,10.0.1.0/24,fd00::/108";
    let errors = errors(&["--nope", "3", "--secure-port=x", "--controllers=foo", three, "bar"]);
    let ranges = "--service-cluster-ip-range:";
    let starts = ["unknown flag --nope", "--secure-port:", "unexpected", "--controllers:", ranges];
    assert_eq!(errors.len(), starts.len(), "{errors:?}");
    for start in starts {
        assert!(errors.iter().any(|error| error.starts_with(start)), "{start}: {errors:?}");
    }
}

#[cfg(unix)]
#[test]
fn an_argument_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStringExt as _;
    let argument = OsString::from_vec(b"--master=\xff".to_vec());
    let errors = parse([argument], registry()).unwrap_err().to_string();
    assert!(errors.contains("not valid UTF-8"), "{errors}");
}

#[test]
fn versions_are_printed() {
    assert_eq!(
        printed(&["--version"]),
        format!("Coxswain v{} (Kubernetes v1.36.3)\n", super::versions::COXSWAIN)
    );
    assert!(printed(&["--version=raw", "--secure-port=99999"]).contains("kubernetes: \"v1.36.3\""));
    let startup = startup(&["--version=v1.36.3+local"]);
    assert_eq!(startup.config.kubernetes_version, "v1.36.3+local");
}

#[test]
fn help_lists_every_flag_by_section() {
    let help = printed(&["--help"]);
    assert_eq!(help, printed(&["-h", "--secure-port=99999"]), "help comes before validation");
    let sections: Vec<&str> = observed().iter().map(|flag| flag.0).collect();
    let mut position = 0;
    for section in sections {
        let at = help[position..].find(&format!("{section} flags:")).map(|at| at + position);
        position = at.unwrap_or_else(|| panic!("{section} is not there, or not in its place"));
    }
    for flag in TABLE {
        let listed = help.lines().any(|line| line.trim_start().starts_with(&format!("--{}", flag.name())));
        let short = flag.shorthand().is_some();
        assert_eq!(listed || short, flag.deprecated.is_none(), "{}", flag.name());
    }
    assert!(help.contains("HPAScaleToZero (ALPHA, off)"));
    let joined = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        joined.contains(
            "AtomicFIFO (BETA, on; no effect: Coxswain has no queue between a watch and its cache)"
        )
    );
    assert!(joined.contains("(no effect: KCM profiles the Go runtime;"));
    assert!(help.contains("Off by default: bootstrap-signer-controller"));
    assert!(help.lines().all(|line| line.len() <= 130), "it fits a screen");
}

#[test]
fn flags_without_effect_say_so() {
    let warnings = |line: &[&str]| {
        startup(line)
            .warnings
            .iter()
            .map(ToString::to_string)
            .filter(|w| w.contains("has no effect"))
            .collect::<Vec<_>>()
    };
    assert_eq!(warnings(&["--contention-profiling=false"]), [""; 0], "it is the default");
    let said = warnings(&["--contention-profiling", "--concurrent-deployment-syncs=6"]);
    let why = "KCM profiles the Go runtime; for waiting tasks, see the coxswain_runtime_ metrics";
    assert_eq!(said, [format!("--contention-profiling: true has no effect: {why}")]);
    assert_eq!(warnings(&["--concurrent-service-syncs=6"]), [""; 0], "nor has it in the original");
    let deprecated = startup(&["--node-sync-period=3s"]).warnings;
    assert_eq!(deprecated.len(), 1);
    assert!(deprecated[0].message.contains("deprecated"));
    assert!(TABLE.iter().all(|flag| (flag.effect == FlagEffect::None) == flag.deprecated.is_some()));
}

#[test]
fn a_kubeadm_command_line_is_taken() {
    let startup = startup(&[
        "--allocate-node-cidrs=true",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        "--bind-address=127.0.0.1",
        "--cluster-cidr=10.244.0.0/16",
        "--cluster-name=kubernetes",
        "--controllers=*,bootstrapsigner,tokencleaner",
        "--leader-elect=true",
        "--service-cluster-ip-range=10.96.0.0/12",
        "--use-service-account-credentials=true",
    ]);
    let config = &startup.config;
    let enabled = registry()
        .iter()
        .filter(|descriptor| config.controller_state(descriptor) == SelectionState::Enabled)
        .count();
    // All but the SELinux one, the three for clouds and the six whose gates are off.
    assert_eq!(enabled, 52 - 1 - 3 - 6);
    assert_eq!(config.flags.controllers, ["*", "bootstrap-signer-controller", "token-cleaner-controller"]);
    assert_eq!(config.secure_port(), Some(10257));
    assert_eq!(startup.given.len(), 9);
}

#[test]
fn shutdown_timeout_of_zero_is_no_limit() {
    for (given, limit, shown) in [
        (None, Some(Duration::from_secs(10)), "10s"),
        (Some("0"), None, "0s"),
        (Some("0s"), None, "0s"),
        (Some("1ns"), Some(Duration::from_nanos(1)), "1ns"),
        (Some("90s"), Some(Duration::from_secs(90)), "1m30s"),
    ] {
        let line: Vec<String> =
            given.iter().map(|value| format!("--controller-shutdown-timeout={value}")).collect();
        let flags = flags(&line.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(flags.controller_shutdown_timeout, limit, "{given:?}");
        assert_eq!(flags.controller_shutdown_timeout.show(), shown);
    }
}

/// The original's `/configz` for a command line, and ours.
fn configz(line: &str) -> Value {
    let Parsed { mut flags, errors, .. } =
        parser::parse(&line.lines().map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(errors, []);
    let mut errors = Vec::new();
    controllers::complete(&mut flags.controllers, registry(), &mut errors, &mut Vec::new());
    let leader_migration = LeaderMigration::complete(&flags, &mut errors);
    assert_eq!(errors, []);
    Config { flags, leader_migration, ..Config::default() }.configz()
}

#[test]
fn configz_is_the_originals() {
    for (line, observed) in [
        ("", include_str!("../../../../tests/data/peer/configz.json")),
        (
            include_str!("../../../../tests/data/peer/configz-set.flags"),
            include_str!("../../../../tests/data/peer/configz-set.json"),
        ),
    ] {
        let observed: Value = serde_json::from_str(observed).unwrap();
        let (mut ours, mut theirs) = (BTreeMap::new(), BTreeMap::new());
        flatten("", &configz(line), &mut ours);
        flatten("", &observed, &mut theirs);
        assert_eq!(ours, theirs);
    }
}

fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                flatten(&format!("{path}.{name}"), value, into);
            }
        }
        _ => {
            into.insert(path.to_owned(), value.clone());
        }
    }
}

proptest! {
    #[test]
    fn no_command_line_panics(line in proptest::collection::vec("(--?[a-z-]{0,12}=?)?\\PC{0,8}", 0..6)) {
        let _ = parser::parse(&line);
    }

    #[test]
    fn no_value_panics(row in 0..TABLE.len(), text in "[-+0-9a-zA-Z.,:=\"/*_ \u{b5}]{0,24}") {
        let _ = (TABLE[row].set)(&mut Flags::default(), &text, Repetition::First);
    }

    #[test]
    fn whole_numbers_are_what_they_say(number in any::<i32>()) {
        let decimal = format!("--concurrent-gc-syncs={number}");
        prop_assert_eq!(flags(&[&decimal]).concurrent_gc_syncs, number);
        let sign = if number < 0 { "-" } else { "" };
        let hexadecimal = format!("--concurrent-gc-syncs={sign}0x{:x}", i64::from(number).abs());
        prop_assert_eq!(flags(&[&hexadecimal]).concurrent_gc_syncs, number);
    }
}
