//! CPU time as the kernel counts it, for the benchmarks.

/// Name and CPU seconds by the text of a `stat` file, of a process or of a thread.
pub(crate) fn cpu(stat: &str) -> (&str, f64) {
    let (name, rest) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).expect("a name");
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("ticks");
    // Linux counts in hundredths of a second wherever this runs.
    (name, (ticks(11) + ticks(12)) / 100.0)
}
