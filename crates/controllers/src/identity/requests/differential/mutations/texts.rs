//! Texts of requests: PEM in all the forms that decoders may read differently.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::{Random, noise};
use crate::identity::requests::LABEL;

/// Lines that begin or end a block, or nearly so. `L` stands for the label.
pub(in crate::identity::requests::differential) const FRAMES: &[&str] = &[
    "-----BEGIN L-----",
    "-----END L-----",
    "-----BEGIN L----- ",
    "-----BEGIN L-----\t",
    "-----BEGIN L-----\r",
    "-----BEGIN L----- \r ",
    "-----BEGIN L----- anything",
    "-----BEGIN L----",
    "-----BEGIN L------",
    "----BEGIN L-----",
    "------BEGIN L-----",
    " -----BEGIN L-----",
    "-----BEGIN  L-----",
    "-----BEGIN L -----",
    "-----BEGIN L-X-----",
    "-----BEGIN X-----",
    "-----BEGIN -----",
    "-----BEGIN-----",
    "-----BEGIN NEW L-----",
    "-----begin L-----",
    "-----END L----- ",
    "-----END L-----\r",
    "-----END L----- anything",
    "-----END L----",
    "-----END L------",
    "----END L-----",
    " -----END L-----",
    "-----END  L-----",
    "-----END L-X-----",
    "-----END X-----",
    "-----END -----",
    "-----END-----",
    "-----END NEW L-----",
    "text",
    "",
    " ",
    "\t",
    "\r",
    "=",
    "====",
    "-",
    "Proc-Type: 4,ENCRYPTED",
    "Key: value",
    "Key:",
    ":",
    "\u{b}",
    "\u{a0}",
];

/// A request in the plainest form.
pub(super) fn plain(der: &[u8]) -> Vec<u8> {
    let body = BASE64_STANDARD.encode(der);
    format!("-----BEGIN {LABEL}-----\n{body}\n-----END {LABEL}-----\n").into_bytes()
}

/// The lines of a block, as good as any.
fn lines(der: &[u8], random: &mut Random) -> Vec<Vec<u8>> {
    let width = [64, 76, 1 << 20, 1 + random.below(90)][random.below(4)];
    let mut lines = vec![frame("-----BEGIN L-----")];
    lines.extend(BASE64_STANDARD.encode(der).as_bytes().chunks(width).map(<[u8]>::to_vec));
    lines.push(frame("-----END L-----"));
    lines
}

pub(in crate::identity::requests::differential) fn frame(line: &str) -> Vec<u8> {
    line.replace('L', LABEL).into_bytes()
}

/// A text with the one request, often with the other one, too, changed in lines and bytes.
pub(super) fn mutated(one: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut all = lines(one, random);
    if random.below(2) == 0 {
        let at = if random.below(2) == 0 { 0 } else { all.len() };
        all.splice(at..at, lines(other, random));
    }
    let changes = random.below(4);
    for _ in 0..changes {
        change(&mut all, random);
    }
    let ending: &[u8] = random.one_of(&[&b"\n"[..], b"\n", b"\r\n", b" \n", b"\t\r\n", b"\n\n", b"\r"]);
    let mut text = if random.below(20) == 0 {
        // Different endings.
        all.iter()
            .flat_map(|line| [&line[..], random.one_of(&[&b"\n"[..], b"\r\n", b"\r", b""])].concat())
            .collect()
    } else {
        all.join(ending)
    };
    text.extend(random.one_of(&[&b"\n"[..], b"", b"\r\n", b"\r", b" ", b" \n", b"text", b"\ntext"]));
    if random.below(8) == 0 {
        noise(&mut text, random);
    }
    text
}

/// Changes a line: mostly one that frames a block.
fn change(lines: &mut Vec<Vec<u8>>, random: &mut Random) {
    let frames: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].starts_with(b"-----")).collect();
    let at = match random.below(3) {
        0 if !frames.is_empty() => frames[random.below(frames.len())],
        _ => random.below(lines.len().max(1)),
    };
    let place = at + random.below(2);
    match random.below(10) {
        0 | 1 => lines.insert(place.min(lines.len()), frame(random.one_of(FRAMES))),
        2 if at < lines.len() => lines[at] = frame(random.one_of(FRAMES)),
        3 if at < lines.len() => drop(lines.remove(at)),
        4 if at < lines.len() => {
            lines[at].extend(random.one_of(&[&b" "[..], b"\t", b"\r", b"=", b"x", b"\xff", b"\0"]));
        }
        5 if at < lines.len() => {
            drop(lines[at].splice(0..0, random.one_of(&[" ", "\t", "\r", "x", "-"]).bytes()));
        }
        6 if at + 1 < lines.len() => {
            let next = lines.remove(at + 1);
            lines[at].extend(next);
        }
        7 if at < lines.len() => {
            let middle = random.below(lines[at].len() + 1);
            let rest = lines[at].split_off(middle);
            lines.insert(at + 1, rest);
        }
        8 => lines.insert(0, b"Certificate Request: \xff \0 - text".to_vec()),
        _ if at < lines.len() => noise(&mut lines[at], random),
        _ => {}
    }
}
