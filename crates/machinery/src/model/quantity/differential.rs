//! Coxswain's reading of quantities next to that of Kubernetes' library.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::{Quantity, UNIT};
use crate::oracle::{Comparison, KnownDifference, Random, SEPARATOR};

fn shown(amount: Quantity) -> serde_json::Map<String, Value> {
    let limit = if amount.billionths < 0 { i64::MIN } else { i64::MAX };
    let value = i64::try_from(amount.rounded_up().billionths / UNIT).unwrap_or(limit);
    let read = json!({
        "canonical": amount.to_string(),
        "milli": amount.milli(),
        "value": value,
        "rounded": amount.rounded_up().to_string(),
        "sign": amount.billionths.signum() as i64,
    });
    read.as_object().cloned().unwrap_or_default()
}

/// Whether an exponent has more than three digits. The library computes such a power of ten for minutes.
fn is_endless(text: &str) -> bool {
    text.split(['e', 'E']).skip(1).any(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent).trim_start_matches('0');
        digits.bytes().take_while(u8::is_ascii_digit).count() > 3
    })
}

/// Whether an amount of the question, or their sum or difference, is beyond all that there is room for.
fn saturates(text: &str, _: &Value, _: &Value) -> bool {
    let amounts: Vec<Quantity> = text.split(SEPARATOR).filter_map(|amount| amount.parse().ok()).collect();
    let sizes = || amounts.iter().map(|amount| amount.billionths.unsigned_abs());
    sizes().any(|size| size >= i128::MAX.unsigned_abs()) || sizes().sum::<u128>() > i128::MAX.unsigned_abs()
}

fn is_limit(number: &Value) -> bool {
    [i64::MIN, i64::MAX].map(Value::from).contains(number)
}

/// Whether the first amount of the question is no whole number, or has more than 64 bits in billionths.
fn is_long(text: &str) -> bool {
    let first = text.split(SEPARATOR).next().unwrap_or_default();
    first
        .parse::<Quantity>()
        .is_ok_and(|amount| amount.billionths % UNIT != 0 || i64::try_from(amount.billionths).is_err())
}

fn read(text: &str) -> Option<Value> {
    if is_endless(text) {
        return None;
    }
    let (left, right) = text.split_once(SEPARATOR).unwrap_or((text, ""));
    let left: Quantity = left.parse().ok()?;
    let mut read = shown(left);
    if !right.is_empty() {
        let right: Quantity = right.parse().ok()?;
        let order = match (left.exceeds(right), right.exceeds(left)) {
            (true, _) => Ordering::Greater,
            (_, true) => Ordering::Less,
            _ => Ordering::Equal,
        };
        read.insert("order".to_owned(), json!(order as i8));
        read.insert("sum".to_owned(), left.plus(right).to_string().into());
        read.insert("difference".to_owned(), left.minus(right).to_string().into());
    }
    Some(read.into())
}

fn amount(random: &mut Random) -> String {
    let sign = random.one_of(&["", "", "", "+", "-"]);
    let digits = [3, 6, 12, 20, 32][random.below(5)];
    let whole = random.number(digits);
    let number = match random.below(6) {
        0 => format!("{whole}.{}", random.number(digits)),
        1 => format!(".{}", random.number(digits)),
        2 => format!("{whole}."),
        _ => whole,
    };
    let suffix = match random.below(3) {
        0 => random.one_of(&["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]).to_owned(),
        1 => random.one_of(&["n", "u", "m", "", "", "k", "M", "G", "T", "P", "E"]).to_owned(),
        _ => {
            let sign = random.one_of(&["", "+", "-"]);
            format!("{}{sign}{}", random.one_of(&["e", "E"]), random.below(30))
        }
    };
    format!("{sign}{number}{suffix}")
}

fn generate(random: &mut Random) -> String {
    if random.one_in(2) { amount(random) } else { format!("{}{SEPARATOR}{}", amount(random), amount(random)) }
}

#[test]
fn quantities_are_never_read_differently() {
    Comparison {
        question: "quantity",
        seeds: &[
            "0",
            "500m",
            "64Gi",
            "1e3",
            "1.5Gi",
            "0.5Ki",
            "-1500m",
            "100E",
            "1Ei",
            "12e17",
            "0.0000000001",
            "8E\u{1f}8E",
            "1Gi\u{1f}1G",
            "9223372036854775807\u{1f}1",
            "1m\u{1f}1Gi",
            "0\u{1f}1Gi",
            "0.1\u{1f}100m",
            "1023Mi\u{1f}1Mi",
            "1000E",
            "9e99",
            "-0.0000000001",
        ],
        words: &[
            "Ki",
            "Mi",
            "Gi",
            "Ti",
            "Pi",
            "Ei",
            "n",
            "u",
            "m",
            "k",
            "M",
            "G",
            "T",
            "P",
            "E",
            "e",
            "e+3",
            "E-3",
            ".",
            "+",
            "-",
            "0",
            "00",
            "999999999999999999999",
            "\u{1f}",
            "i",
            "K",
        ],
        generate,
        read,
        refusals: &[],
        differences: &[
            KnownDifference {
                reason: "Go wraps around where a number has more than 64 bits. Differs: large-numbers",
                fields: &["milli"],
                covers: |_, ours, _| is_limit(&ours["milli"]),
            },
            KnownDifference {
                reason: "Go wraps around where a number has more than 64 bits. Differs: large-numbers",
                fields: &["value"],
                covers: |_, ours, _| is_limit(&ours["value"]),
            },
            KnownDifference {
                reason: "Go counts long negative amounts in 64 bits of billionths, and rounds their fractions towards zero and beyond. Differs: large-numbers",
                fields: &["milli", "value"],
                covers: |text, ours, _| ours["sign"] == -1 && is_long(text),
            },
            KnownDifference {
                reason: "amounts beyond 10^29 are cut off. Differs: large-numbers",
                fields: &["canonical", "rounded", "sum", "difference", "order", "milli", "value"],
                covers: saturates,
            },
            KnownDifference {
                reason: "Go drops the suffix of amounts from 10^21 on. Differs: large-numbers",
                fields: &["canonical", "rounded", "sum", "difference"],
                covers: |_, ours, theirs| {
                    ["canonical", "rounded", "sum", "difference"].iter().all(|name| {
                        let (ours, theirs) = (ours[name].as_str(), theirs[name].as_str());
                        ours == theirs || ours.and_then(|text| text.strip_suffix("000E")).is_some()
                    })
                },
            },
        ],
    }
    .run();
}
