//! Lines as klog writes them, by verbosity and module.

use std::io::{self, Write as _};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing_subscriber::Registry;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriter as _};
use tracing_subscriber::layer::SubscriberExt as _;

use super::filter::VerbosityFilter;
use super::{HeldBack, layer_to, writer};
use crate::model::clock::ManualClock;
use crate::options::{Config, Flags, ModuleVerbosity, Verbosity};
use crate::telemetry::tracing::{TraceLayer, Tracing};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What `run` logs with these flags, at one moment in time.
fn logged(flags: Flags, run: impl FnOnce()) -> Vec<String> {
    logged_beside(None, flags, run)
}

fn logged_beside(traces: Option<TraceLayer<Registry>>, flags: Flags, run: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let writer = lines.clone();
    log_to(&Config { flags, ..Config::default() }, traces, BoxMakeWriter::new(move || writer.clone()), run);
    lines.said().lines().map(str::to_owned).collect()
}

fn log_to(config: &Config, traces: Option<TraceLayer<Registry>>, writer: BoxMakeWriter, run: impl FnOnce()) {
    let clock = Arc::new(ManualClock::new("2026-11-21T13:02:05.000001Z".parse::<Timestamp>().unwrap()));
    let filter = VerbosityFilter::new(config.flags.v, config.flags.vmodule.clone());
    let layer = layer_to(config, clock, writer, filter);
    let layers: Vec<_> = [layer].into_iter().chain(traces).collect();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layers), run);
}

impl Lines {
    fn said(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

#[test]
fn streams_are_split_where_the_flag_of_the_format_says_so() {
    for (logging_format, split_text, split_json, is_split) in [
        ("text", false, true, false),
        ("text", true, false, true),
        ("json", true, false, false),
        ("json", false, true, true),
    ] {
        let flags = Flags {
            logging_format: logging_format.to_owned(),
            log_text_split_stream: split_text,
            log_json_split_stream: split_json,
            ..Flags::default()
        };
        let (out, err) = (Lines::default(), Lines::default());
        let (to_out, to_err) = (out.clone(), err.clone());
        let config = Config { flags, ..Config::default() };
        let (writer, held_back) = writer(&config, move || to_out.clone(), move || to_err.clone());
        assert!(held_back.is_none());
        log_to(&config, None, writer, say);
        let [told_out, told_err] =
            [out, err].map(|lines| (lines.said().contains("Synced"), lines.said().contains("Failed")));
        let expected = if is_split { ((true, false), (false, true)) } else { ((false, false), (true, true)) };
        assert_eq!((told_out, told_err), expected, "{logging_format} {split_text} {split_json}");
    }
}

#[test]
fn what_is_held_back_is_as_much_as_the_flag_of_the_format_says() {
    for (logging_format, is_told_at_once) in [("text", false), ("json", true)] {
        let flags = Flags {
            logging_format: logging_format.to_owned(),
            log_text_split_stream: true,
            log_json_split_stream: true,
            log_text_info_buffer_size: (1_u64 << 20).into(),
            log_json_info_buffer_size: 1_u64.into(),
            ..Flags::default()
        };
        let (out, err) = (Lines::default(), Lines::default());
        let (to_out, to_err) = (out.clone(), err.clone());
        let config = Config { flags, ..Config::default() };
        let (writer, held_back) = writer(&config, move || to_out.clone(), move || to_err.clone());
        log_to(&config, None, writer, say);
        assert!(err.said().contains("Failed"), "errors are never held back");
        assert_eq!(out.said().contains("Synced"), is_told_at_once, "{logging_format}");
        held_back.unwrap().write_out().unwrap();
        assert!(out.said().contains("Synced"), "{logging_format}");
    }
}

fn say() {
    let span =
        tracing::info_span!("reconcile", controller = "deployment-controller", key = tracing::field::Empty);
    let _entered = span.enter();
    span.record("key", "default/web");
    tracing::info!(replicas = 3, error = %"no \"luck\"", "Synced {}", "it");
    tracing::warn!(left = ?Some(1), "Slow");
    tracing::error!("Failed\nbadly");
    tracing::debug!("Detail");
}

#[test]
fn text_lines_are_klogs() {
    let lines = logged(Flags::default(), say);
    let (head, tail) = lines[0].split_once("] ").unwrap();
    assert!(head.starts_with("I1121 13:02:05.000001 "), "{head}");
    assert!(head.contains(" coxswain_machinery::options::logging::tests:"), "{head}");
    let span = r#"controller="deployment-controller" key="default/web""#;
    assert_eq!(tail, format!(r#""Synced it" replicas=3 err="no \"luck\"" {span}"#));
    assert!(
        lines[1].starts_with("W1121") && lines[1].contains(r#"] "Slow" left="Some(1)" "#),
        "{}",
        lines[1]
    );
    assert!(lines[2].starts_with("E1121") && lines[2].contains(r#"] "Failed\nbadly" "#), "{}", lines[2]);
    assert_eq!(lines.len(), 3, "debug needs -v=4");
}

#[test]
fn json_lines_have_kubernetes_names() {
    let flags = Flags { logging_format: "json".to_owned(), v: Verbosity(4), ..Flags::default() };
    let lines: Vec<Value> =
        logged(flags, say).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut first = lines[0].clone();
    let caller = first.as_object_mut().unwrap().remove("caller").unwrap();
    assert!(caller.as_str().unwrap().starts_with("coxswain_machinery::options::logging::tests:"));
    assert_eq!(
        first,
        json!({
            "ts": 1_795_266_125_000.001, "msg": "Synced it", "level": "info", "v": 0, "replicas": 3,
            "err": "no \"luck\"", "controller": "deployment-controller", "key": "default/web",
        })
    );
    assert_eq!(lines[2].get("v"), None, "an error has no verbosity");
    assert_eq!(lines[3]["v"], 4);
}

#[test]
fn a_line_with_a_target_of_its_own_shows_it_in_both_formats() {
    for format in ["text", "json"] {
        let flags = Flags { logging_format: format.to_owned(), ..Flags::default() };
        let lines = logged(flags, || {
            tracing::info!(target: "audit", user = "jane", "admin call");
            tracing::info!(user = "jane", "no call");
        });
        if format == "text" {
            assert!(lines[0].ends_with(r#""admin call" user="jane" target="audit""#), "{}", lines[0]);
            assert!(!lines[1].contains("target"), "{}", lines[1]);
        } else {
            let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!((&lines[0]["target"], lines[1].get("target")), (&json!("audit"), None));
        }
    }
}

#[test]
fn a_value_that_begins_with_a_quote_begins_no_line_of_its_own() {
    for (value, expected) in [
        ("web", r#""web""#),
        (
            "\"x\nI0101 00:00:00.000000 1 coxswain:1] \"forged\"",
            r#""\"x\nI0101 00:00:00.000000 1 coxswain:1] \"forged\"""#,
        ),
        ("\"a\" b=\"c\"", r#""\"a\" b=\"c\"""#),
        ("\"", r#""\"""#),
        ("\"a\\\"", r#""\"a\\\"""#),
        ("\"a\u{202e}b\"", r#""\"a\u{202e}b\"""#),
        ("7.5", "7.5"),
    ] {
        let lines = logged(Flags::default(), || tracing::info!(name = %value, "Said"));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].ends_with(&format!(r#""Said" name={expected}"#)), "{} {expected}", lines[0]);
        let lines = logged(Flags::default(), || tracing::info!(name = ?value, "Said"));
        assert!(lines[0].ends_with(&format!(r#""Said" name={value:?}"#)), "{} {value:?}", lines[0]);
    }
}

#[test]
fn lines_of_a_recorded_span_have_its_ids() {
    for format in ["text", "json"] {
        let mut tracing = Tracing::unsent(-1);
        let flags = Flags { logging_format: format.to_owned(), v: Verbosity(10), ..Flags::default() };
        let lines = logged_beside(Some(tracing.layer()), flags, || {
            let span = tracing::info_span!("reconcile", otel.name = "reconcile x", controller = "x");
            let _entered = span.enter();
            tracing::debug_span!("plan", deep = true).in_scope(|| tracing::info!("Here"));
        });
        let spans = tracing.recorded();
        let (trace, id) = (spans[0].span_context.trace_id(), spans[0].span_context.span_id());
        assert_eq!(&*spans[0].name, "plan");
        if format == "text" {
            let expected = format!(r#""Here" trace_id="{trace}" span_id="{id}" controller="x""#);
            assert!(lines[0].ends_with(&expected), "{} {expected}", lines[0]);
        } else {
            let line: Value = serde_json::from_str(&lines[0]).unwrap();
            assert_eq!(
                (&line["trace_id"], &line["span_id"]),
                (&json!(trace.to_string()), &json!(id.to_string()))
            );
            assert_eq!((line.get("deep"), line.get("otel.name")), (None, None));
        }
    }
}

#[test]
fn a_module_may_say_more() {
    let vmodule = ModuleVerbosity(vec![("logging::tests".to_owned(), Verbosity(4))]);
    assert_eq!(logged(Flags { vmodule, ..Flags::default() }, say).len(), 4);
}

#[test]
fn lines_are_held_back_until_there_are_too_many_or_somebody_flushes() {
    let lines = Lines::default();
    let held_back = HeldBack::new(20, lines.clone());
    let write = |line: &str| held_back.make_writer().write_all(line.as_bytes()).unwrap();
    let seen = || String::from_utf8(lines.0.lock().clone()).unwrap();
    write("one of them\n");
    held_back.make_writer().flush().unwrap();
    assert_eq!(seen(), "", "a layer that flushes after each line is not heard");
    write("another one\n");
    assert_eq!(seen(), "one of them\n");
    held_back.write_out().unwrap();
    assert_eq!(seen(), "one of them\nanother one\n");
    write("one\n");
    write("a line that is longer than all\n");
    assert_eq!(seen(), "one of them\nanother one\none\na line that is longer than all\n");
}

#[tokio::test(start_paused = true)]
async fn lines_are_held_back_for_so_long() {
    let lines = Lines::default();
    let held_back = HeldBack::new(1000, lines.clone());
    let mut flushing = tokio::task::JoinSet::new();
    flushing.spawn(held_back.clone().write_out_every(std::time::Duration::from_secs(5)));
    held_back.make_writer().write_all(b"one\n").unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert_eq!(lines.0.lock().as_slice(), b"");
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(lines.0.lock().as_slice(), b"one\n");
}
