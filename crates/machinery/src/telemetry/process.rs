//! `process_*`: what the kernel knows of this process, read from `/proc` when it is asked for.
//!
//! The library's own collector needs two crates for what are nine lines of text files, and has no network counters.
//! A value that cannot be read is left out, as the original leaves it out; where there is no `/proc`, all are.

use std::path::PathBuf;
use std::{fs, io};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, Metric, MetricFamily, MetricType};

use super::metrics::{MetricsError, Registrar};
use super::registry::Registry;

/// Clock ticks per second in `/proc/PID/stat`: `USER_HZ`, which is 100 on every architecture that we build for.
const TICKS_PER_SECOND: f64 = 100.0;

/// One metric: name, type and help.
#[derive(Debug)]
struct Row(&'static str, MetricType, &'static str);

const CPU: Row = Row(
    "process_cpu_seconds_total",
    MetricType::COUNTER,
    "User and system CPU time of the process in seconds.",
);
const MAX_FDS: Row = Row("process_max_fds", MetricType::GAUGE, "Maximum number of open file descriptors.");
const RECEIVED: Row = Row(
    "process_network_receive_bytes_total",
    MetricType::COUNTER,
    "IP traffic received by the network namespace of the process in bytes.",
);
const SENT: Row = Row(
    "process_network_transmit_bytes_total",
    MetricType::COUNTER,
    "IP traffic sent by the network namespace of the process in bytes.",
);
const OPEN_FDS: Row = Row("process_open_fds", MetricType::GAUGE, "Number of open file descriptors.");
const RSS: Row = Row("process_resident_memory_bytes", MetricType::GAUGE, "Resident memory in bytes.");
const START: Row =
    Row("process_start_time_seconds", MetricType::GAUGE, "Start time of the process in seconds since 1970.");
const VSIZE: Row = Row("process_virtual_memory_bytes", MetricType::GAUGE, "Virtual memory in bytes.");
const MAX_VSIZE: Row = Row(
    "process_virtual_memory_max_bytes",
    MetricType::GAUGE,
    "Maximum virtual memory of the process in bytes; 2^64 without a limit.",
);

static ROWS: [Row; 9] = [CPU, MAX_FDS, RECEIVED, SENT, OPEN_FDS, RSS, START, VSIZE, MAX_VSIZE];

/// The collector of `process_*`.
#[derive(Debug)]
pub struct ProcessMetrics {
    proc: PathBuf,
    rows: &'static [Row],
    descriptions: Vec<Desc>,
}

impl ProcessMetrics {
    /// Registers the metrics of this process.
    pub fn register(registry: &Registry) -> Result<(), MetricsError> {
        Self::register_at(PathBuf::from("/proc"), registry)
    }

    /// Registers nothing but when the process started.
    pub(super) fn register_start(registry: &Registry) -> Result<(), MetricsError> {
        Self::register_rows(PathBuf::from("/proc"), &[START], registry)
    }

    /// Registers the metrics of the process `self` under another root than `/proc`.
    pub(super) fn register_at(proc: PathBuf, registry: &Registry) -> Result<(), MetricsError> {
        Self::register_rows(proc, &ROWS, registry)
    }

    fn register_rows(proc: PathBuf, rows: &'static [Row], registry: &Registry) -> Result<(), MetricsError> {
        let describe = |Row(name, _, help): &Row| {
            #[expect(clippy::disallowed_types, reason = "it is prometheus', and empty")]
            let no_labels = std::collections::HashMap::default();
            Desc::new((*name).to_owned(), (*help).to_owned(), Vec::new(), no_labels)
                .map_err(|error| MetricsError::new(name, error))
        };
        let descriptions = rows.iter().map(describe).collect::<Result<_, _>>()?;
        Registrar::new(registry).collector("process_*", Box::new(Self { proc, rows, descriptions }))
    }

    fn read(&self, file: &str) -> Option<String> {
        match fs::read_to_string(self.proc.join(file)) {
            Ok(text) => Some(text),
            Err(error) => {
                tracing::debug!(file, %error, "Failed to read a process metric");
                None
            }
        }
    }

    /// User and system time in seconds, and the start in seconds since boot.
    fn times(&self) -> Option<(f64, f64)> {
        let stat = self.read("self/stat")?;
        // The second field, the command in brackets, may itself hold spaces and brackets.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let (user, kernel, begun) = (ticks(11)?, ticks(12)?, ticks(19)?);
        Some(((user + kernel) as f64 / TICKS_PER_SECOND, begun as f64 / TICKS_PER_SECOND))
    }

    /// When the machine was booted, in seconds since 1970.
    fn boot_time(&self) -> Option<f64> {
        after(&self.read("stat")?, "btime ")?.trim().parse().ok()
    }

    fn open_fds(&self) -> io::Result<u64> {
        // One of them is the directory that is being read.
        Ok((fs::read_dir(self.proc.join("self/fd"))?.count() as u64).saturating_sub(1))
    }

    fn network(&self) -> Option<(f64, f64)> {
        let text = self.read("self/net/netstat")?;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt: "));
        let (names, values) = (lines.next()?, lines.next()?);
        let value = |wanted: &str| {
            let at = names.split_ascii_whitespace().position(|name| name == wanted)?;
            values.split_ascii_whitespace().nth(at)?.parse().ok()
        };
        Some((value("InOctets")?, value("OutOctets")?))
    }

    fn values(&self) -> Vec<(Row, f64)> {
        let mut values = Vec::with_capacity(ROWS.len());
        let mut push = |row: Row, value: Option<f64>| values.extend(value.map(|value| (row, value)));
        let times = self.times();
        push(CPU, times.map(|(cpu, _)| cpu));
        push(START, times.and_then(|(_, start)| Some(self.boot_time()? + start)));
        if let Some(status) = self.read("self/status") {
            push(RSS, kilobytes(&status, "VmRSS:"));
            push(VSIZE, kilobytes(&status, "VmSize:"));
        }
        if let Some(limits) = self.read("self/limits") {
            push(MAX_FDS, soft_limit(&limits, "Max open files"));
            push(MAX_VSIZE, soft_limit(&limits, "Max address space"));
        }
        push(OPEN_FDS, self.open_fds().ok().map(|count| count as f64));
        let network = self.network();
        push(RECEIVED, network.map(|(received, _)| received));
        push(SENT, network.map(|(_, sent)| sent));
        values
    }
}

/// The rest of the line that begins with `prefix`.
fn after<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(prefix))
}

fn kilobytes(status: &str, field: &str) -> Option<f64> {
    let kilobytes: u64 = after(status, field)?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes as f64 * 1024.0)
}

fn soft_limit(limits: &str, name: &str) -> Option<f64> {
    match after(limits, name)?.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        limit => limit.parse().ok(),
    }
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let asked = |row: &Row| self.rows.iter().any(|each| each.0 == row.0);
        let values = self.values().into_iter().filter(|(row, _)| asked(row));
        values.map(|(row, value)| family(&row, value)).collect()
    }
}

fn family(&Row(name, kind, help): &Row, value: f64) -> MetricFamily {
    let mut metric = Metric::default();
    if kind == MetricType::COUNTER {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    }
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(vec![metric]);
    family
}
