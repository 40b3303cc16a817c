//! Coxswain's reading of percentages next to that of Kubernetes' library.

use serde_json::{Value, json};

use super::*;
use crate::oracle::{Comparison, KnownDifference, Random, SEPARATOR};

fn read(text: &str) -> Option<Value> {
    let (written, total) = text.split_once(SEPARATOR).unwrap_or((text, ""));
    let total = i64::from(total.parse::<i32>().ok()?);
    let value = IntOrString::Str(written.into());
    let (up, down) = (scaled(&value, total, Rounding::Up)?, scaled(&value, total, Rounding::Down)?);
    Some(json!({ "up": up, "down": down }))
}

fn generate(random: &mut Random) -> String {
    let sign = random.one_of(&["", "", "", "+", "-"]);
    let end = random.one_of(&["%", "%", "%", "", "%%", " %"]);
    format!("{sign}{}{end}{SEPARATOR}{}", random.number(4), random.number(4))
}

#[test]
fn percentages_are_never_read_differently() {
    Comparison {
        question: "int-or-string",
        seeds: &["25%\u{1f}10", "100%\u{1f}3", "-1%\u{1f}2147483647", "9223372036854775807%\u{1f}3", "25\u{1f}4"],
        words: &["%", "-", "+", "0", "00", "_", ".", "e1", "0x"],
        generate,
        read,
        refusals: &[],
        differences: &[KnownDifference {
            reason: "Go computes in doubles, which have no room for more than 2^53 hundredths, and wraps around. Differs: large-numbers",
            fields: &["up", "down"],
            covers: |text, _, _| {
                let (percent, total) = text.split_once('%').unwrap_or_default();
                let total = total.trim_start_matches(SEPARATOR);
                let product = percent.parse::<i64>().ok().zip(total.parse::<i64>().ok());
                product.is_some_and(|(percent, total)| {
                    percent.checked_mul(total).is_none_or(|product| product.unsigned_abs() > 1 << 53)
                })
            },
        }],
    }
    .run();
}
