//! A picture of what the dashboard shows: its panels side by side under their headings, as an SVG that follows the reader's
//! choice of light or dark.

use std::fmt::Write as _;

use super::dashboard::Panel;
use super::server::Series;

const COLUMNS: usize = 3;
const PANEL: f64 = 350.0;
const GAP: f64 = 14.0;
/// Height of a panel's graph.
const GRAPH: f64 = 110.0;
/// From a panel's left to its graph: room for numbers with their unit.
const AXIS: f64 = 58.0;
/// From a panel's top to its graph: its title.
const TITLE: f64 = 24.0;
/// A line of a legend.
const LINE: f64 = 13.0;
/// Lines that have a color and a name; of more, those with the largest values.
const NAMED: usize = 6;
/// Characters of a name that have room.
const NAME: usize = 22;
const HEADING: f64 = 30.0;
const TOP: f64 = 34.0;

const STYLE: &str = "\
text{font-family:sans-serif;font-size:10px;fill:#1c2530}\
.h{font-size:14px;font-weight:bold}.t{font-size:12px;font-weight:bold}.d{fill:#57606a}\
.b{fill:#ffffff}.g{stroke:#d8dee4;stroke-width:1}.l{fill:none;stroke-width:1.5}.o{stroke:#b6bec8;stroke-width:1}\
.c0{stroke:#0969da;fill:#0969da}.c1{stroke:#bc4c00;fill:#bc4c00}.c2{stroke:#1a7f37;fill:#1a7f37}\
.c3{stroke:#8250df;fill:#8250df}.c4{stroke:#bf3989;fill:#bf3989}.c5{stroke:#7d6608;fill:#7d6608}.l{fill:none}\
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.d{fill:#9198a1}.b{fill:#0d1117}.g{stroke:#30363d}.o{stroke:#59626d}\
.c0{stroke:#58a6ff;fill:#58a6ff}.c1{stroke:#ffa657;fill:#ffa657}.c2{stroke:#56d364;fill:#56d364}\
.c3{stroke:#d2a8ff;fill:#d2a8ff}.c4{stroke:#ff9bce;fill:#ff9bce}.c5{stroke:#e3b341;fill:#e3b341}.l{fill:none}}";

/// Draws panels with their lines, from `start` to `end` in seconds.
pub(super) fn draw(panels: &[(Panel, Vec<(String, Series)>)], start: f64, end: f64) -> String {
    let width = GAP + COLUMNS as f64 * (PANEL + GAP);
    let (mut body, mut y, mut column, mut row) = (String::new(), TOP, 0, "");
    let mut tallest = 0.0;
    for (panel, lines) in panels {
        if panel.row != row || column == COLUMNS {
            y += tallest;
            (tallest, column) = (0.0, 0);
        }
        if panel.row != row {
            row = &panel.row;
            let _ =
                writeln!(body, "<text class=\"h\" x=\"{GAP}\" y=\"{:.0}\">{}</text>", y + 20.0, escaped(row));
            y += HEADING;
        }
        let x = GAP + column as f64 * (PANEL + GAP);
        tallest = f64::max(tallest, draw_panel(&mut body, (x, y), panel, lines, (start, end)));
        column += 1;
    }
    let height = y + tallest + GAP;
    let seconds = end - start;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" viewBox=\"0 0 {width} {height:.0}\">\n\
         <title>The Coxswain dashboard over a test's run</title>\n<style>{STYLE}</style>\n\
         <rect class=\"b\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"d\" x=\"{GAP}\" y=\"20\">A run of {seconds:.0} seconds: three Deployments of 12 pods are rolled out twice and \
         scaled down, one is deleted, and a namespace. Across: seconds since its start.</text>\n{body}</svg>\n"
    )
}

/// Draws one panel at its place, and says how high it is.
fn draw_panel(
    svg: &mut String,
    (x, y): (f64, f64),
    panel: &Panel,
    lines: &[(String, Series)],
    (start, end): (f64, f64),
) -> f64 {
    let peak = |series: &Series| series.points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let mut lines: Vec<(&String, &Series, f64)> =
        lines.iter().map(|(name, series)| (name, series, peak(series))).collect();
    lines.sort_by(|one, other| other.2.total_cmp(&one.2).then_with(|| one.0.cmp(other.0)));
    let step = step(lines.first().map_or(0.0, |line| line.2), &panel.unit);
    let count = (lines.first().map_or(0.0, |line| line.2) / step).ceil().max(1.0);
    let _ = writeln!(
        svg,
        "<text class=\"t\" x=\"{x:.0}\" y=\"{:.0}\">{}</text>",
        y + 15.0,
        escaped(&panel.title)
    );
    let (left, top, right) = (x + AXIS, y + TITLE, x + PANEL);
    for at in 0..=count as u32 {
        let value = f64::from(at) * step;
        let line = top + GRAPH * (1.0 - value / (count * step));
        let _ = writeln!(
            svg,
            "<path class=\"g\" d=\"M{left:.0} {line:.1}H{right:.0}\"/>\
             <text class=\"d\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 5.0,
            line + 3.5,
            quantity(value, &panel.unit)
        );
    }
    let seconds = end - start;
    let tick =
        [10.0, 20.0, 30.0, 60.0, 120.0, 300.0].into_iter().find(|tick| seconds / tick < 6.0).unwrap_or(600.0);
    let at = |time: f64| left + (right - left) * (time - start) / seconds;
    for number in 0..=(seconds / tick) as u32 {
        let time = f64::from(number) * tick;
        let (place, below) = (at(start + time), top + GRAPH + 12.0);
        let _ = writeln!(
            svg,
            "<text class=\"d\" x=\"{place:.0}\" y=\"{below:.0}\" text-anchor=\"middle\">{time:.0} s</text>"
        );
    }
    // What is nothing all the time has a name at most: a hundred lines at zero are one.
    let seen = lines.iter().enumerate().filter(|(place, line)| *place < NAMED || line.2 > 0.0);
    for (place, (_, series, _)) in seen.rev() {
        let class = if place < NAMED { format!("c{place}") } else { "o".to_owned() };
        let path = path(series, at, |value| top + GRAPH * (1.0 - value / (count * step)));
        let _ = writeln!(svg, "<path class=\"{class} l\" d=\"{path}\"/>");
    }
    TITLE + GRAPH + 18.0 + legend(svg, (left, top + GRAPH + 18.0), &lines) + 10.0
}

/// A line, broken where there was nothing for more than a few seconds.
fn path(series: &Series, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    let mut last: Option<f64> = None;
    for (time, value) in &series.points {
        let goes_on = last.is_some_and(|last| time - last < 3.0);
        let _ = write!(path, "{}{:.1} {:.1}", if goes_on { 'L' } else { 'M' }, x(*time), y(*value));
        last = Some(*time);
    }
    path
}

/// Names beside their colors, in two columns; says how high they are.
fn legend(svg: &mut String, (x, y): (f64, f64), lines: &[(&String, &Series, f64)]) -> f64 {
    let mut entries: Vec<(String, String)> = Vec::new();
    for (place, (name, ..)) in lines.iter().take(NAMED).enumerate() {
        let short: String = if name.chars().count() > NAME {
            name.chars().take(NAME - 1).chain(['…']).collect()
        } else {
            (*name).clone()
        };
        entries.push((format!("c{place}"), short));
    }
    if lines.len() > NAMED {
        entries.push(("o".to_owned(), format!("and {} more", lines.len() - NAMED)));
    }
    if entries.is_empty() {
        entries.push(("g".to_owned(), "nothing: all went well".to_owned()));
    }
    for (at, (class, name)) in entries.iter().enumerate() {
        let (across, down) = (x + (at % 2) as f64 * 148.0, y + (at / 2) as f64 * LINE + 9.0);
        let _ = writeln!(
            svg,
            "<path class=\"{class} l\" d=\"M{across:.0} {:.1}h10\"/><text x=\"{:.0}\" y=\"{down:.1}\">{}</text>",
            down - 3.5,
            across + 14.0,
            escaped(name)
        );
    }
    entries.len().div_ceil(2) as f64 * LINE
}

/// The distance of grid lines below `peak`: 1, 2 or 5 times a power of ten, or of two for bytes.
fn step(peak: f64, unit: &str) -> f64 {
    if peak <= 0.0 {
        return 1.0;
    }
    if matches!(unit, "bytes" | "Bps") {
        return (peak / 4.0).log2().ceil().exp2();
    }
    let power = 10f64.powf((peak / 4.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|times| times * power)
        .find(|step| peak / step <= 4.0)
        .unwrap_or(power)
}

/// A number with its unit.
fn quantity(value: f64, unit: &str) -> String {
    let scaled = |value: f64, base: f64, names: [&str; 4]| {
        let at = (0..3).find(|at| value < base.powi(at + 1)).unwrap_or(3);
        format!("{} {}", short(value / base.powi(at)), names[at as usize])
    };
    match unit {
        _ if value == 0.0 => "0".to_owned(),
        "s" if value < 0.001 => format!("{} µs", short(value * 1e6)),
        "s" if value < 1.0 => format!("{} ms", short(value * 1e3)),
        "s" => format!("{} s", short(value)),
        "bytes" => scaled(value, 1024.0, ["B", "KiB", "MiB", "GiB"]),
        "Bps" => scaled(value, 1024.0, ["B/s", "KiB/s", "MiB/s", "GiB/s"]),
        "ops" | "reqps" => format!("{} /s", short(value)),
        "percentunit" => format!("{} %", short(value * 100.0)),
        _ => short(value),
    }
}

/// With no more digits than it needs, and four at most.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
