//! Coxswain's reading of addresses and ranges next to that of Kubernetes' library.

use serde_json::{Value, json};

use super::*;
use crate::oracle::{Comparison, Random};

fn shown(address: Option<IpAddr>, range: Option<IpNet>) -> Option<Value> {
    let mut read = serde_json::Map::new();
    if let Some(address) = address {
        read.insert("address".to_owned(), address.to_string().into());
    }
    if let Some(range) = range {
        read.insert("range".to_owned(), range.to_string().into());
    }
    (!read.is_empty()).then(|| json!(read))
}

fn generate(random: &mut Random) -> String {
    let octets = |random: &mut Random, count: usize| {
        let octets: Vec<String> = (0..count).map(|_| random.number(3)).collect();
        octets.join(".")
    };
    let mut text = if random.one_in(2) {
        octets(random, 4)
    } else {
        let (mut groups, gap) = (Vec::new(), random.below(9));
        for at in 0..random.below(9) {
            groups.push(if at == gap { String::new() } else { random.text("0123456789abcdefABCDEF", 1, 5) });
        }
        let groups = groups.join(":");
        match random.below(5) {
            0 => {
                let front = random.one_of(&["::ffff:", "::FFFF:", "64:ff9b::", "1:2:3:4:5:6:"]);
                format!("{front}{}", octets(random, 4))
            }
            1 => format!("::{groups}"),
            2 => format!("{groups}::{}", random.text("0123456789abcdef", 1, 4)),
            _ => groups,
        }
    };
    if random.one_in(2) {
        text = format!("{text}/{}", random.number(2));
    }
    text
}

const SEEDS: &[&str] = &[
    "10.0.0.1",
    "010.000.0.001",
    "10.0.0.0/8",
    "10.1.2.3/016",
    "fd00::5",
    "FD00:0:0:0::5/64",
    "::ffff:10.0.0.1",
    "::ffff:10.0.0.0/104",
    "1:2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7::",
    "fe80::1%eth0",
    "2001:db8::192.0.2.1/128",
    "::/0",
    "0.0.0.0/0",
];

const WORDS: &[&str] =
    &["::", ":", ".", "/", "0", "00", "ffff", "::ffff:", "255", "256", "%eth0", "/128", "/32", "+", "-"];

fn compare(question: &'static str, read: fn(&str) -> Option<Value>) {
    let (seeds, words) = (SEEDS, WORDS);
    Comparison { question, seeds, words, generate, read, refusals: &[], differences: &[] }.run();
}

#[test]
fn addresses_and_ranges_are_never_read_differently() {
    compare("address", |text| shown(parse_address(text), parse_range(text)));
}

#[test]
fn strict_addresses_and_ranges_are_never_read_differently() {
    compare("strict-address", |text| shown(parse_strict_address(text), parse_strict_range(text)));
}
