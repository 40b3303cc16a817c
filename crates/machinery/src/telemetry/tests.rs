//! Tables of the text format and of what is read from `/proc`.

use std::path::PathBuf;
use std::time::Duration;

use crate::telemetry::Registry;

use super::text::number;
use super::*;

#[test]
fn numbers_are_written_as_the_original_writes_them() {
    for (value, text) in [
        (0.0, "0"),
        (-1.0, "-1"),
        (1e-8, "1e-08"),
        (0.00004, "4e-05"),
        (0.0001, "0.0001"),
        (0.25, "0.25"),
        (604_800.0, "604800"),
        (999_999.0, "999999"),
        (1_048_576.0, "1.048576e+06"),
        (2_592_000.0, "2.592e+06"),
        (u64::MAX as f64, "1.8446744073709552e+19"),
        (1e100, "1e+100"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
        (f64::NAN, "NaN"),
    ] {
        assert_eq!(number(value), text);
    }
}

#[test]
fn buckets_carry_the_original_s_rounding() {
    let bounds: Vec<_> = exponential_buckets(1e-8, 10.0, 10).into_iter().map(number).collect();
    let expected = [
        "1e-08",
        "1e-07",
        "1e-06",
        "9.999999999999999e-06",
        "9.999999999999999e-05",
        "0.001",
        "0.01",
        "0.1",
        "1",
        "10",
    ];
    assert_eq!(bounds, expected);
    assert_eq!(linear_buckets(1.0, 0.5, 3), [1.0, 1.5, 2.0]);
}

#[test]
fn only_what_limits_leave_is_shown() {
    let registry = Registry::new();
    let registrar = Registrar::new(&registry);
    let counters = registrar.counters("c_total", "Counts.", &["name", "result"]).unwrap();
    for (name, result, by) in [("a", "ok", 1), ("b", "ok", 2), ("c", "ok", 4), ("c", "error", 8)] {
        counters.with_label_values(&[name, result]).inc_by(by);
    }
    registrar.gauges("g", "Measures.", &["name"]).unwrap().with_label_values(&["b"]).set(1.5);
    let histograms = registrar.histograms("h_seconds", "Takes.", &["name"], vec![1.0, 2.0]).unwrap();
    for (name, took) in [("a", 0.5), ("b", 1.5), ("c", 3.0)] {
        histograms.with_label_values(&[name]).observe(took);
    }
    registrar.counter("d_total", "Is not shown.").unwrap().inc();
    let labels = [("c_total,name", "a,z"), ("h_seconds,name", "a"), ("g,other", "b"), ("absent,name", "a")];
    let labels = labels.map(|(key, values)| (key.to_owned(), values.to_owned())).into();
    let limits = MetricLimits::new(&["d_total".to_owned(), "absent".to_owned()], &labels);
    assert_eq!(limits.disabled(), 2);
    registry.limit(limits);
    let text = encode_text(&registry);
    let shown: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "c_total{name=\"a\",result=\"ok\"} 1",
        "c_total{name=\"unexpected\",result=\"ok\"} 6",
        "c_total{name=\"unexpected\",result=\"error\"} 8",
        "g{name=\"b\"} 1.5",
        "h_seconds_bucket{name=\"a\",le=\"1\"} 1",
        "h_seconds_bucket{name=\"a\",le=\"2\"} 1",
        "h_seconds_bucket{name=\"a\",le=\"+Inf\"} 1",
        "h_seconds_sum{name=\"a\"} 0.5",
        "h_seconds_count{name=\"a\"} 1",
        "h_seconds_bucket{name=\"unexpected\",le=\"1\"} 0",
        "h_seconds_bucket{name=\"unexpected\",le=\"2\"} 1",
        "h_seconds_bucket{name=\"unexpected\",le=\"+Inf\"} 2",
        "h_seconds_sum{name=\"unexpected\"} 4.5",
        "h_seconds_count{name=\"unexpected\"} 2",
    ];
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    assert_eq!(
        sorted(shown.into_iter().map(str::to_owned).collect()),
        sorted(expected.map(str::to_owned).to_vec())
    );
    // What is counted is counted all the same.
    assert!(registry.declared().iter().any(|declared| declared.name == "d_total"));
}

#[test]
fn the_text_format_is_complete_and_escaped() {
    let registry = Registry::new();
    let registrar = Registrar::new(&registry);
    registrar
        .counters("c_total", "Counts\nthings \\ \"so\".", &["name"])
        .unwrap()
        .with_label_values(&["a\"b\\\n"])
        .inc_by(3);
    registrar.gauge("g", "A gauge.").unwrap().set(2.5);
    let histogram = registrar.histogram("h", "A histogram.", vec![0.001, 1.0]).unwrap();
    histogram.observe(0.5);
    histogram.observe(2.0);
    registrar.gauges("unused", "Has no children and is left out.", &["x"]).unwrap();
    let expected = "# HELP c_total Counts\\nthings \\\\ \"so\".\n# TYPE c_total counter\nc_total{name=\"a\\\"b\\\\\\n\"} 3\n\
        # HELP g A gauge.\n# TYPE g gauge\ng 2.5\n\
        # HELP h A histogram.\n# TYPE h histogram\n\
        h_bucket{le=\"0.001\"} 0\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 2.5\nh_count 2\n";
    assert_eq!(encode_text(&registry), expected);
}

#[test]
fn registration_errors_name_the_metric() {
    let registry = Registry::new();
    let registrar = Registrar::new(&registry);
    registrar.counter("twice_total", "Once.").unwrap();
    let again = registrar.counter("twice_total", "Once.").unwrap_err();
    assert_eq!(again.metric(), "twice_total");
    assert!(again.to_string().starts_with("metric twice_total: "), "{again}");
    assert!(registrar.counter("not a name", "Help.").is_err());
    assert!(registrar.histogram("falling", "Help.", vec![2.0, 1.0]).is_err());
}

#[test]
fn info_metrics_have_the_original_s_labels() {
    let registry = Registry::new();
    let build = BuildInfo {
        major: "1".into(),
        minor: "36".into(),
        git_version: "v1.36.3".into(),
        compiler: "rustc".into(),
        ..BuildInfo::default()
    };
    build.register(&registry).unwrap();
    let version = VersionInfo {
        binary: "1.36.3".into(),
        component: "kube".into(),
        emulation: "1.36".into(),
        min_compat: "1.35".into(),
    };
    version.register(&registry).unwrap();
    let features = FeatureStates::register(&registry).unwrap();
    features.set(FeatureMetric { name: "Shiny", stage: "ALPHA", enabled: false });
    features.set(FeatureMetric { name: "Old", stage: "", enabled: true });
    let manager = ManagerMetrics::register(&registry).unwrap();
    manager.set_leading("kube-controller-manager", false);
    manager.set_running("kube-controller-manager", "deployment-controller", true);
    manager.set_running("kube-controller-manager", "deployment-controller", false);
    let text = encode_text(&registry);
    for line in [
        "kubernetes_build_info{build_date=\"\",compiler=\"rustc\",git_commit=\"\",git_tree_state=\"\",git_version=\"v1.36.3\",go_version=\"\",major=\"1\",minor=\"36\",platform=\"\"} 1",
        "version_info{binary=\"1.36.3\",component=\"kube\",emulation=\"1.36\",min_compat=\"1.35\"} 1",
        "kubernetes_feature_enabled{name=\"Shiny\",stage=\"ALPHA\"} 0",
        "kubernetes_feature_enabled{name=\"Old\",stage=\"\"} 1",
        "leader_election_master_status{name=\"kube-controller-manager\"} 0",
        "running_managed_controllers{manager=\"kube-controller-manager\",name=\"deployment-controller\"} 0",
    ] {
        assert!(text.lines().any(|held| held == line), "{line}\nis not in\n{text}");
    }
}

/// Somebody who looks at `/healthz/NAME` once leaves no failure behind.
#[tokio::test(start_paused = true)]
async fn result_that_nobody_asked_for_in_five_minutes_is_forgotten() {
    let slis = SliMetrics::new().unwrap();
    slis.observe("job", "healthz", CheckStatus::Error);
    let held =
        || encode_text(slis.registry()).contains("kubernetes_healthcheck{name=\"job\",type=\"healthz\"} 0");
    for (minutes, expected) in [(4, true), (2, false)] {
        tokio::time::advance(Duration::from_mins(minutes)).await;
        slis.observe("job", "livez", CheckStatus::Success);
        slis.retain("livez", &["job".to_owned()]);
        assert_eq!(held(), expected);
    }
    assert!(encode_text(slis.registry()).contains("kubernetes_healthcheck{name=\"job\",type=\"livez\"} 1"));
}

#[test]
fn health_checks_are_counted_by_result() {
    let slis = SliMetrics::new().unwrap();
    slis.observe("ping", "healthz", CheckStatus::Success);
    slis.observe("ping", "healthz", CheckStatus::Error);
    slis.observe("leader", "readyz", CheckStatus::Pending);
    slis.observe("leader", "readyz", CheckStatus::Success);
    let text = encode_text(slis.registry());
    for line in [
        "kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 0",
        "kubernetes_healthcheck{name=\"leader\",type=\"readyz\"} 1",
        "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} 1",
        "kubernetes_healthchecks_total{name=\"ping\",status=\"error\",type=\"healthz\"} 1",
        "kubernetes_healthchecks_total{name=\"leader\",status=\"pending\",type=\"readyz\"} 1",
    ] {
        assert!(text.lines().any(|held| held == line), "{line}\nis not in\n{text}");
    }
    slis.observe("removed", "readyz", CheckStatus::Error);
    slis.observe("removed", "livez", CheckStatus::Error);
    slis.retain("readyz", &["leader".to_owned()]);
    let text = encode_text(slis.registry());
    let of_removed: Vec<_> =
        text.lines().filter(|line| line.starts_with("kubernetes_healthcheck{name=\"removed\"")).collect();
    assert_eq!(
        of_removed,
        ["kubernetes_healthcheck{name=\"removed\",type=\"livez\"} 0"],
        "of the other endpoint"
    );
    assert!(text.contains("kubernetes_healthcheck{name=\"leader\",type=\"readyz\"} 1"), "{text}");
    slis.reset();
    slis.retain("livez", &[]);
    let text = encode_text(slis.registry());
    let left: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(matches!(left[..], [start] if start.starts_with("process_start_time_seconds ")), "{text}");
}

/// A `/proc` whose process has a command meant to confuse a parser.
fn fake_proc() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let own = root.path().join("self");
    std::fs::create_dir_all(own.join("net")).unwrap();
    std::fs::create_dir_all(own.join("fd")).unwrap();
    for fd in 0..5 {
        std::fs::write(own.join("fd").join(fd.to_string()), "").unwrap();
    }
    let stat =
        "7 (a) R (b) S 1 7 7 0 -1 4194560 90 0 0 0 150 50 0 0 20 0 3 0 1234 8192 2 18446744073709551615";
    std::fs::write(own.join("stat"), stat).unwrap();
    std::fs::write(own.join("status"), "Name:\tx\nVmSize:\t    2048 kB\nVmRSS:\t      10 kB\n").unwrap();
    let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max open files            1024                 4096                 files     \n\
        Max address space         unlimited            unlimited            bytes     \n";
    std::fs::write(own.join("limits"), limits).unwrap();
    let netstat = "TcpExt: SyncookiesSent InOctets\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 77 88\n";
    std::fs::write(own.join("net/netstat"), netstat).unwrap();
    std::fs::write(root.path().join("stat"), "cpu  1 2 3\nbtime 1700000000\nprocesses 9\n").unwrap();
    root
}

fn samples(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn the_process_is_read_from_proc() {
    let root = fake_proc();
    let registry = Registry::new();
    ProcessMetrics::register_at(root.path().to_owned(), &registry).unwrap();
    let text = encode_text(&registry);
    assert_eq!(
        samples(&text),
        [
            "process_cpu_seconds_total 2",
            "process_max_fds 1024",
            "process_network_receive_bytes_total 77",
            "process_network_transmit_bytes_total 88",
            "process_open_fds 4",
            "process_resident_memory_bytes 10240",
            "process_start_time_seconds 1.70000001234e+09",
            "process_virtual_memory_bytes 2.097152e+06",
            "process_virtual_memory_max_bytes 1.8446744073709552e+19",
        ]
    );
    assert!(text.contains("# TYPE process_cpu_seconds_total counter\n"), "{text}");
    assert!(text.contains("# TYPE process_open_fds gauge\n"), "{text}");
}

#[test]
fn what_proc_does_not_say_is_left_out() {
    let root = fake_proc();
    std::fs::remove_file(root.path().join("stat")).unwrap();
    std::fs::write(root.path().join("self/stat"), "garbage").unwrap();
    std::fs::write(root.path().join("self/net/netstat"), "IpExt: InOctets\nIpExt:").unwrap();
    let registry = Registry::new();
    ProcessMetrics::register_at(root.path().to_owned(), &registry).unwrap();
    let text = encode_text(&registry);
    assert!(
        samples(&text)
            .iter()
            .all(|line| !line.contains("cpu") && !line.contains("network") && !line.contains("start"))
    );
    assert_eq!(samples(&text).len(), 5);

    let nowhere = Registry::new();
    ProcessMetrics::register_at(PathBuf::from("/nonexistent"), &nowhere).unwrap();
    assert_eq!(encode_text(&nowhere), "");
}

#[cfg(target_os = "linux")]
#[test]
fn this_process_is_there() {
    let registry = Registry::new();
    ProcessMetrics::register(&registry).unwrap();
    assert_eq!(samples(&encode_text(&registry)).len(), 9);
}
