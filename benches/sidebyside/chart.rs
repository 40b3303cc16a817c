//! The chart: ratios by scenario, as an SVG of its own.

use std::fmt::Write as _;

use crate::figures::{Outcome, What};

/// What has a bar, with its color: they differ in lightness too.
const BARS: [(What, &str, &str); 4] = [
    (What::Cpu, "CPU", "#1b4f72"),
    (What::Settled, "settled RSS", "#2e86c1"),
    (What::Wall, "wall time", "#e59866"),
    (What::Received, "bytes received", "#aab7b8"),
];
const WIDTH: f64 = 860.0;
const LABELS: f64 = 220.0;
/// Where a ratio of 1 is.
const UNIT: f64 = 440.0;
/// Longer bars are cut.
const MOST: f64 = 1.35;
const BAR: f64 = 11.0;
const GAP: f64 = 14.0;
const TOP: f64 = 64.0;

/// Draws all scenarios that were measured with both managers.
pub(crate) fn draw(outcomes: &[&Outcome]) -> String {
    let mut groups = Vec::new();
    for outcome in outcomes {
        let bars: Vec<(f64, &str)> = BARS
            .iter()
            .filter_map(|(what, _, color)| Some((outcome.whole(what)?.ratio()?, *color)))
            .collect();
        if !bars.is_empty() {
            groups.push((&outcome.name, bars));
        }
    }
    let rows: usize = groups.iter().map(|(_, bars)| bars.len()).sum();
    let height = TOP + BAR * rows as f64 + GAP * groups.len() as f64 + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\" fill=\"#17202a\">\n\
         <title>Coxswain by the Go manager: ratios of medians, less is better</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"20\" font-size=\"14\">Coxswain by the Go manager (less is better)</text>\n"
    );
    legend(&mut svg);
    scale(&mut svg, height);
    let mut y = TOP;
    for (name, bars) in groups {
        let middle = y + BAR * bars.len() as f64 / 2.0 + 4.0;
        let x = LABELS - 8.0;
        let _ =
            writeln!(svg, "<text x=\"{x}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>", escaped(name));
        for (ratio, color) in bars {
            let width = (ratio.min(MOST) * UNIT).max(1.0);
            let (end, base) = (LABELS + width + 4.0, y + BAR - 2.5);
            let _ = writeln!(
                svg,
                "<rect x=\"{LABELS}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{color}\"/>\
                 <text x=\"{end:.1}\" y=\"{base:.1}\" font-size=\"9\">{ratio:.2}</text>",
                BAR - 1.5
            );
            y += BAR;
        }
        y += GAP;
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String) {
    let mut x = 12.0;
    for (_, words, color) in &BARS {
        let text = x + 14.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"31\" width=\"10\" height=\"10\" fill=\"{color}\"/><text x=\"{text}\" y=\"40\">{words}</text>"
        );
        x += 34.0 + 6.5 * words.len() as f64;
    }
}

/// Lines at quarters; the one at 1 is the Go manager.
fn scale(svg: &mut String, height: f64) {
    let bottom = height - 8.0;
    for quarter in 0..=5 {
        let ratio = f64::from(quarter) / 4.0;
        let x = LABELS + ratio * UNIT;
        let (color, width) = if quarter == 4 { ("#c0392b", 1.5) } else { ("#d5d8dc", 1.0) };
        let label = if quarter == 4 { "Go".to_owned() } else { format!("{ratio:.2}") };
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{bottom}\" stroke=\"{color}\" stroke-width=\"{width}\"/>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" font-size=\"9\">{label}</text>",
            TOP - 6.0,
            TOP - 9.0
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
