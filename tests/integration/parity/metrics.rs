//! What rooms count of their own work: under Coxswain the same metrics have the same labels and grow by as much.
//!
//! Of the metrics that the original has, each counter, gauge and number of observations is compared, but for those of the
//! machinery. `tests/parity/metrics.tsv` lists them, and the ones of which only chance says how much: of those it is compared
//! whether there is any. Scenarios play beside each other, so what was recorded for each controller's scenarios is added up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use parking_lot::Mutex;

/// Shards are recorded beside each other, into one file.
static STORED: Mutex<()> = Mutex::new(());
/// Where they are stored, below the scenarios: `CONTROLLER SERIES INCREMENT` a line.
const FILE: &str = "outcomes/metrics.tsv";
/// The original's metrics by name.
const KNOWN: &str = include_str!("../../data/peer/metrics.tsv");
/// Others, seen there only once there is something to count.
const SEEN_LATE: [&str; 11] = [
    "attach_detach_controller_attachdetach_controller_forced_detaches",
    "attachdetach_controller_total_volumes",
    "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
    "horizontal_pod_autoscaler_controller_metric_computation_total",
    "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
    "horizontal_pod_autoscaler_controller_reconciliations_total",
    "pod_gc_collector_force_delete_pod_errors_total",
    "pod_gc_collector_force_delete_pods_total",
    "selinux_warning_controller_selinux_volume_conflict",
    "storage_count_attachable_volumes_in_use",
    "storage_operation_duration_seconds",
];
/// How they are compared, below the scenarios: `BEGINNING HOW REASON` a line.
const RULES: &str = "metrics.tsv";

/// Values by series, `NAME{LABEL="VALUE"}`.
pub(super) type Series = BTreeMap<String, f64>;

/// How a series is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Exactly,
    Whether,
    Never,
}

/// How series are compared that begin with a text, and the names of those that are.
pub(super) struct Rules(Vec<(String, How)>, BTreeSet<String>);

impl Rules {
    pub(super) fn read(root: &Path) -> Self {
        Self::parse(&fs::read_to_string(root.join(RULES)).expect("the rules of metrics"), KNOWN)
    }

    fn parse(text: &str, known: &str) -> Self {
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        let rules = rows.map(|line| {
            let [beginning, how, reason] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{RULES}: not three columns: {line}");
            };
            assert!(!reason.trim().is_empty(), "{RULES}: no reason: {line}");
            let how = match how {
                "whether" => How::Whether,
                "never" => How::Never,
                how => panic!("{RULES}: neither whether nor never: {how}"),
            };
            (beginning.to_owned(), how)
        });
        let known = known.lines().filter_map(|line| line.split('\t').next()).chain(SEEN_LATE);
        Self(rules.collect(), known.map(str::to_owned).collect())
    }

    fn how(&self, series: &str) -> How {
        let rule = self.0.iter().find(|(beginning, _)| series.starts_with(beginning.as_str()));
        rule.map_or(How::Exactly, |(_, how)| *how)
    }

    /// The series of a page that are compared and are not zero.
    pub(super) fn of_page(&self, page: &str) -> Series {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| line.rsplit_once(' ')).filter_map(|(series, value)| {
            let name = series.split('{').next().unwrap_or_default();
            let is_part = name.ends_with("_bucket") || name.ends_with("_sum");
            let value: f64 = value.parse().expect("a number");
            let is_compared = !is_part
                && self.1.contains(name.trim_end_matches("_count"))
                && self.how(series) != How::Never;
            // The names of zones have zeros in them.
            (is_compared && value != 0.0).then(|| (sorted(&series.replace('\0', "NUL")), value))
        });
        let mut all = Series::new();
        for (series, value) in series {
            *all.entry(series).or_default() += value;
        }
        all
    }

    /// Where `ours` differ from `theirs`.
    pub(super) fn judge(&self, theirs: &Series, ours: &Series) -> Result<(), String> {
        self.compare(theirs, ours, |theirs, ours| (theirs == 0.0) == (ours == 0.0))
    }

    /// Where the same scenarios counted something else the second time. Chance may have decided what is a matter of time.
    pub(super) fn judge_again(&self, first: &Series, second: &Series) -> Result<(), String> {
        self.compare(first, second, |_, _| true)
    }

    fn compare(
        &self,
        theirs: &Series,
        ours: &Series,
        whether: impl Fn(f64, f64) -> bool,
    ) -> Result<(), String> {
        let mut complaints = String::new();
        let only_ours = ours.keys().filter(|series| !theirs.contains_key(*series));
        for series in theirs.keys().chain(only_ours) {
            let [theirs, ours] = [theirs, ours].map(|all| all.get(series).copied().unwrap_or(0.0));
            let is_same = match self.how(series) {
                How::Exactly => (theirs - ours).abs() < 0.5,
                How::Whether => whether(theirs, ours),
                How::Never => true,
            };
            if !is_same {
                let _ = write!(complaints, "\n  {series}: {theirs} -> {ours}");
            }
        }
        if complaints.is_empty() { Ok(()) } else { Err(format!("metrics differ:{complaints}")) }
    }
}

/// A series with its labels in order. Namespaces have random names, of which nothing is said; what differs in these alone is added up.
fn sorted(series: &str) -> String {
    let Some((name, labels)) = series.split_once('{') else { return series.to_owned() };
    // No value has a comma or a quotation mark in it: they are names of resources, results and codes.
    let mut labels: Vec<&str> = labels.trim_end_matches('}').split(',').collect();
    labels.sort_unstable();
    let plain = labels.into_iter().map(|label| match label.split_once('=') {
        Some((name, _)) if name == "namespace" || name.ends_with("_namespace") => {
            format!("{name}=\"NAMESPACE\"")
        }
        _ => label.to_owned(),
    });
    format!("{name}{{{}}}", plain.collect::<Vec<_>>().join(","))
}

/// How much each series has grown.
pub(super) fn growth(before: &Series, after: &Series) -> Series {
    let both = before.keys().chain(after.keys());
    let grown = both.map(|series| {
        let [before, after] = [before, after].map(|all| all.get(series).copied().unwrap_or(0.0));
        (series.clone(), after - before)
    });
    grown.filter(|(_, by)| *by != 0.0).collect()
}

/// What was recorded from the Go manager, by controller.
pub(super) fn recorded(root: &Path) -> BTreeMap<String, Series> {
    let text = fs::read_to_string(root.join(FILE)).unwrap_or_default();
    let mut all: BTreeMap<String, Series> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [controller, series, by] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{FILE}: not three columns: {line}");
        };
        let its = all.entry(controller.to_owned()).or_default();
        // One whose scenarios count nothing has one row, without a series.
        if !series.is_empty() {
            its.insert(series.to_owned(), by.parse().expect("a number"));
        }
    }
    all
}

/// What was recorded for several controllers, added up.
pub(super) fn sum(recorded: &BTreeMap<String, Series>, controllers: &[&str]) -> Result<Series, String> {
    let mut sum = Series::new();
    for controller in controllers {
        let own = recorded.get(*controller);
        let own = own
            .ok_or_else(|| format!("{controller}: its metrics were not recorded: run make parity-record"))?;
        for (series, by) in own {
            *sum.entry(series.clone()).or_default() += by;
        }
    }
    Ok(sum)
}

/// Stores what was counted, beside what was recorded of other controllers.
pub(super) fn store(root: &Path, version: &str, counted: BTreeMap<String, Series>) -> std::io::Result<()> {
    let _alone = STORED.lock();
    let mut all = recorded(root);
    all.extend(counted);
    let mut text =
        format!("# By how much the Go manager's metrics grow, {version}, by `make parity-record`.\n");
    for (controller, series) in all.iter().filter(|(controller, _)| root.join(controller).is_dir()) {
        // Writing to a string does not fail.
        if series.is_empty() {
            let _ = writeln!(text, "{controller}\t\t0");
        }
        for (series, by) in series {
            let _ = writeln!(text, "{controller}\t{series}\t{by}");
        }
    }
    fs::write(root.join(FILE), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_compared_by_name_labels_and_increments() {
        let known = "a_total\tcounter\na_seconds\thistogram\na_syncs\tcounter\nworkqueue_depth\tgauge\n";
        let rules =
            Rules::parse("# a comment\nworkqueue_\tnever\tmachinery\na_syncs\twhether\tchance\n", known);
        let page = "# TYPE a_total counter\na_total{code=\"200\",by=\"us\"} 3\na_total{code=\"500\"} 0\n\
            a_seconds_bucket{le=\"1\"} 2\na_seconds_sum 0.3\na_seconds_count 2\nworkqueue_depth{name=\"a\"} 1\na_syncs 9\ngo_threads 4\n";
        let seen = rules.of_page(page);
        let expected = [("a_seconds_count", 2.0), ("a_syncs", 9.0), ("a_total{by=\"us\",code=\"200\"}", 3.0)];
        assert_eq!(seen, expected.map(|(series, value)| (series.to_owned(), value)).into());
        for (series, value, is_same) in [
            ("a_syncs", 4.0, true),
            ("a_syncs", 0.0, false),
            ("a_seconds_count", 3.0, false),
            ("a_total{code=\"200\"}", 3.0, false),
        ] {
            let mut ours = seen.clone();
            ours.insert(series.to_owned(), value);
            assert_eq!(rules.judge(&seen, &ours).is_ok(), is_same, "{series}");
            assert_eq!(rules.judge_again(&seen, &ours).is_ok(), is_same || series == "a_syncs", "{series}");
        }
    }

    #[test]
    fn what_was_recorded_is_added_up() {
        let series = |value| Series::from([("a".to_owned(), value)]);
        let recorded = [("one".to_owned(), series(1.0)), ("two".to_owned(), series(2.0))].into();
        assert_eq!(sum(&recorded, &["one", "two"]), Ok(series(3.0)));
        assert!(sum(&recorded, &["one", "three"]).is_err(), "what was not recorded");
        assert_eq!(growth(&series(1.0), &series(3.0)), series(2.0));
        assert_eq!(growth(&series(3.0), &series(3.0)), Series::new());
    }
}
