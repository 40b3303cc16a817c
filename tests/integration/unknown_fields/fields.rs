//! Protobuf messages with fields that this program does not know, as a newer API server would send them.

use bytes::Bytes;
use coxswain_machinery::wire::splice::{put_bytes, put_varint, put_varint_field};
use coxswain_machinery::wire::{ENVELOPE_MAGIC, Reader, Value, unwrap_envelope};

/// Numbers of the fields of tomorrow: a message or text, a number, and a word of four bytes.
const TEXT: u32 = 2000;
const NUMBER: u32 = 2001;
const WORD: u32 = 2002;

/// Where there are messages within a message: field number and shape.
pub(super) struct Shape(&'static [(u32, &'static Shape)]);

const LEAF: Shape = Shape(&[]);
const META: Shape = Shape(&[(13, &LEAF)]);
const SELECTOR: Shape = Shape(&[(2, &LEAF)]);
const CONTAINER: Shape = Shape(&[(6, &LEAF), (7, &LEAF), (8, &LEAF)]);
const POD_SPEC: Shape = Shape(&[(2, &CONTAINER), (14, &LEAF), (20, &CONTAINER)]);
const TEMPLATE: Shape = Shape(&[(1, &META), (2, &POD_SPEC)]);
const STATUS: Shape = Shape(&[(6, &LEAF)]);
const STRATEGY: Shape = Shape(&[(2, &LEAF)]);

/// The shape of the objects that are tampered with.
pub(super) fn shape_of(kind: &str) -> Option<&'static Shape> {
    const REPLICA_SET: Shape =
        Shape(&[(1, &META), (2, &Shape(&[(2, &SELECTOR), (3, &TEMPLATE)])), (3, &STATUS)]);
    const DEPLOYMENT: Shape =
        Shape(&[(1, &META), (2, &Shape(&[(2, &SELECTOR), (3, &TEMPLATE), (4, &STRATEGY)])), (3, &STATUS)]);
    const SERVICE_ACCOUNT: Shape = Shape(&[(1, &META), (2, &LEAF), (3, &LEAF)]);
    const SPECIFIED: Shape = Shape(&[(1, &META), (2, &LEAF)]);
    const STATED: Shape = Shape(&[(1, &META), (2, &LEAF), (3, &LEAF)]);
    const PLAIN: Shape = Shape(&[(1, &META)]);
    match kind {
        "ReplicaSet" => Some(&REPLICA_SET),
        "Deployment" => Some(&DEPLOYMENT),
        "ServiceAccount" => Some(&SERVICE_ACCOUNT),
        "Lease" => Some(&SPECIFIED),
        "ResourceQuota" | "ServiceCIDR" => Some(&STATED),
        "ConfigMap" | "Secret" => Some(&PLAIN),
        _ => None,
    }
}

/// The fields of a message, each with its whole encoding. What passes here comes from an API server or from the program
/// under test; if it is malformed the test is over.
pub(super) fn fields(message: &[u8]) -> Vec<(u32, Value<'_>, &[u8])> {
    let mut reader = Reader::new(message);
    std::iter::from_fn(|| reader.next_raw().expect("a well-formed message")).collect()
}

/// The message in field `number`; empty when there is none.
pub(super) fn inner(message: &[u8], number: u32) -> &[u8] {
    let found = fields(message).into_iter().rev().find(|(held, ..)| *held == number);
    found.map_or(&[], |(_, value, _)| value.bytes().expect("a message"))
}

pub(super) fn text(message: &[u8], path: &[u32]) -> String {
    let found = path.iter().fold(message, |message, number| inner(message, *number));
    String::from_utf8(found.to_vec()).expect("text")
}

/// `message` with fields of tomorrow at its end, and at that of each message in it. Their content names the object and the
/// place, so that none can pass for another.
pub(super) fn with_unknown(message: &[u8], shape: &Shape, place: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 256);
    for (at, (number, value, raw)) in fields(message).into_iter().enumerate() {
        match shape.0.iter().find(|(held, _)| *held == number) {
            Some((_, shape)) => {
                let place = format!("{place}/{number}.{at}");
                put_bytes(&mut out, number, &with_unknown(value.bytes().expect("a message"), shape, &place));
            }
            None => out.extend_from_slice(raw),
        }
    }
    let mut content = place.as_bytes().to_vec();
    // No text, and no message either.
    content.extend([0, 0xff, 0xc0]);
    put_bytes(&mut out, TEXT, &content);
    put_varint_field(&mut out, NUMBER, place.len() as u64 + 1);
    put_varint(&mut out, u64::from(WORD) << 3 | 5);
    out.extend([1, 2, 3, place.len() as u8]);
    out
}

/// The fields of tomorrow in `message` itself, not in messages within.
pub(super) fn unknown(message: &[u8]) -> Vec<Vec<u8>> {
    let all = fields(message).into_iter().filter(|(number, ..)| *number >= TEXT);
    all.map(|(.., raw)| raw.to_vec()).collect()
}

/// `message` without what is at `paths`.
pub(super) fn without(message: &[u8], paths: &[&[u32]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len());
    for (number, value, raw) in fields(message) {
        let deeper: Vec<&[u32]> =
            paths.iter().filter(|path| path[0] == number).map(|path| &path[1..]).collect();
        if deeper.is_empty() {
            out.extend_from_slice(raw);
        } else if !deeper.contains(&[].as_slice()) {
            put_bytes(&mut out, number, &without(value.bytes().expect("a message"), &deeper));
        }
    }
    out
}

/// Kind and content of what is in an envelope.
pub(super) fn open(body: &Bytes) -> (String, Bytes) {
    let envelope = body.strip_prefix(ENVELOPE_MAGIC.as_slice()).expect("an envelope");
    (text(envelope, &[1, 2]), unwrap_envelope(body).expect("an envelope"))
}

/// `body` with other content.
pub(super) fn refill(body: &Bytes, content: &[u8]) -> Vec<u8> {
    let mut out = ENVELOPE_MAGIC.to_vec();
    for (number, _, raw) in fields(&body[ENVELOPE_MAGIC.len()..]) {
        if number == 2 {
            put_bytes(&mut out, 2, content);
        } else {
            out.extend_from_slice(raw);
        }
    }
    out
}

/// `message` with each message in field `number` replaced by what `change` makes of it.
pub(super) fn each(message: &[u8], number: u32, mut change: impl FnMut(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len());
    for (held, value, raw) in fields(message) {
        if held == number {
            put_bytes(&mut out, number, &change(value.bytes().expect("a message")));
        } else {
            out.extend_from_slice(raw);
        }
    }
    out
}
