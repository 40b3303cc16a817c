//! Mutations of texts.

use super::{Random, SEPARATOR};

/// Characters that parsers may read as something else: other digits, spaces and letters, signs, controls.
const CHARACTERS: &str = "0123456789aAzZeEn+-.,:;/\\_=!()<>[]{}%@#?*&|~^'\"` \t\r\n\0\u{1f}\u{7f}\u{85}\u{a0}\u{b5}\u{3bc}\u{e9}\u{660}\u{ff11}\u{2028}\u{feff}\u{fffd}\u{212a}\u{17f}\u{10ffff}";

/// Changes a text in one to three places. `words` are inserted; parts of `others` replace its end.
pub(super) fn mutate(text: &str, words: &[&str], others: &[&str], random: &mut Random) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(3) {
        change(&mut chars, words, others, random);
    }
    chars.into_iter().collect()
}

fn change(chars: &mut Vec<char>, words: &[&str], others: &[&str], random: &mut Random) {
    let at = random.below(chars.len() + 1);
    let length = random.below(3).min(chars.len() - at);
    let span = at..at + length;
    match random.below(10) {
        0 => drop(chars.drain(span)),
        1 | 2 if !words.is_empty() => drop(chars.splice(span, random.one_of(words).chars())),
        3 => {
            let other = any(random);
            drop(chars.splice(span, [other]));
        }
        4 => {
            let end = at + random.below(chars.len() - at + 1).min(8);
            let copy: Vec<char> = chars[at..end].to_vec();
            drop(chars.splice(at..at, copy));
        }
        5 if at + 1 < chars.len() => chars.swap(at, at + 1),
        6 if !others.is_empty() => {
            let other: Vec<char> = random.one_of(others).chars().collect();
            let from = random.below(other.len() + 1);
            chars.truncate(at);
            chars.extend(&other[from..]);
        }
        7 => chars.truncate(at),
        8 if at < chars.len() => {
            let old = chars[at];
            chars[at] = match old {
                '0'..='8' => char::from(old as u8 + 1),
                '9' => '0',
                _ if old.is_ascii_lowercase() => old.to_ascii_uppercase(),
                _ => old.to_ascii_lowercase(),
            };
        }
        _ => chars.insert(at, any(random)),
    }
}

fn any(random: &mut Random) -> char {
    CHARACTERS.chars().nth(random.below(CHARACTERS.chars().count())).unwrap_or(' ')
}

/// Returns texts that are simpler than this one, the simplest first.
pub(super) fn simpler(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut all = Vec::new();
    let mut length = chars.len() / 2;
    while length > 0 {
        for at in (0..=chars.len() - length).step_by((length / 2).max(1)) {
            all.push(chars[..at].iter().chain(&chars[at + length..]).collect());
        }
        length /= 2;
    }
    for (at, char) in chars.iter().enumerate() {
        // A plain character is simpler than an odd one, and 0 or `a` the simplest of their kinds.
        let plain = match char {
            &SEPARATOR | '0' | 'a' => None,
            '1' => Some('0'),
            _ if char.is_ascii_digit() => Some('1'),
            'A'..='Z' => Some(char.to_ascii_lowercase()),
            _ => Some('a'),
        };
        all.extend(plain.map(|plain| {
            let mut chars = chars.clone();
            chars[at] = plain;
            chars.into_iter().collect()
        }));
    }
    all
}
