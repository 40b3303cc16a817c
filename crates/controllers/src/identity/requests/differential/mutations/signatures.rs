//! Variants of the algorithm, the signature and the public key of a request. Few of them are good.

use super::tree::{Length, Node};
use crate::identity::requests::fixtures::element;

/// Object identifiers of algorithms: ECDSA with SHA-1, SHA-224, SHA-256, SHA-384, SHA-512 and SHA3-256, RSA with MD5, SHA-1 (two of
/// them), SHA-256, SHA-384 and SHA-512, PSS, and Ed25519.
const ALGORITHMS: &[&[u8]] = &[
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 1],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4],
    &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 10],
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4],
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5],
    &[0x2b, 0x0e, 3, 2, 29],
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11],
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12],
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13],
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10],
    &[0x2b, 0x65, 0x70],
];

/// Parameters of an algorithm: none, NULL, NULL with a content, an empty sequence, an object identifier.
const PARAMETERS: &[&[u8]] = &[&[], &[5, 0], &[5, 1, 0], &[0x30, 0], &[6, 1, 0x2a]];

/// Curves: P-224, P-256, P-384, P-521, secp256k1 and P-192.
const CURVES: &[&[u8]] = &[
    &[0x2b, 0x81, 4, 0, 0x21],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7],
    &[0x2b, 0x81, 4, 0, 0x22],
    &[0x2b, 0x81, 4, 0, 0x23],
    &[0x2b, 0x81, 4, 0, 0x0a],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 1],
];

/// Returns the request with each of its variants, in DER or nearly so.
pub(in crate::identity::requests::differential) fn variants(der: &[u8]) -> Vec<Vec<u8>> {
    let request = Node::parse(der);
    let mut all = Vec::new();
    let mut push = |change: &dyn Fn(&mut Node)| {
        let mut request = request.clone();
        change(&mut request);
        all.push(request.encode());
    };
    for algorithm in ALGORITHMS {
        for parameters in PARAMETERS {
            let changed = [&element(6, algorithm), *parameters].concat();
            push(&|request| request.children()[1].set_bytes(changed.clone()));
        }
    }
    let part = |at: usize| request.clone().children()[at].content();
    for bits in signatures(&part(2)) {
        push(&|request| request.children()[2].set_bytes(bits.clone()));
    }
    let key = request.clone().children()[0].children()[2].clone();
    for key in keys(&key) {
        push(&|request| request.children()[0].children()[2] = key.clone());
    }
    all
}

/// Returns variants of the bits of a signature.
fn signatures(bits: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(), vec![0], bits[..bits.len() - 1].to_vec(), [bits, &[0]].concat()];
    all.extend((1..=8).map(|unused| [&[unused], &bits[1..]].concat()));
    all.push([&[0, 0], &bits[1..]].concat());
    for at in (1..bits.len()).step_by(bits.len().div_ceil(12)) {
        let mut changed = bits.to_vec();
        changed[at] ^= 1;
        all.push(changed);
    }
    if bits.get(1) != Some(&0x30) {
        return all;
    }
    let numbers = Node::parse_or_bytes(&bits[1..]);
    let mut push = |change: &dyn Fn(&mut Node)| {
        let mut numbers = numbers.clone();
        change(&mut numbers);
        all.push([&[0], &numbers.encode()[..]].concat());
    };
    for length in [Length::Long, Length::Indefinite, Length::More, Length::Less] {
        push(&|numbers| numbers.length = length);
        for at in 0..numbers.clone().children().len() {
            push(&|numbers| numbers.children()[at].length = length);
        }
    }
    push(&|numbers| numbers.children().reverse());
    push(&|numbers| numbers.children().truncate(1));
    push(&|numbers| numbers.children().push(Node::parse(&[5, 0])));
    push(&|numbers| numbers.tag = 0x31);
    for at in 0..numbers.clone().children().len() {
        let content = numbers.clone().children()[at].content();
        let contents = [
            Vec::new(),
            vec![0],
            vec![1],
            [&[0], &content[..]].concat(),
            [&[0xff], &content[..]].concat(),
            content[1..].to_vec(),
            [&[content[0] | 0x80], &content[1..]].concat(),
            vec![0x7f; content.len()],
            [&[0], &vec![0xff; content.len()][..]].concat(),
        ];
        for content in contents {
            push(&|numbers| numbers.children()[at].set_bytes(content.clone()));
        }
        push(&|numbers| numbers.children()[at].tag = 4);
    }
    all
}

/// Returns variants of a public key.
fn keys(key: &Node) -> Vec<Node> {
    let mut all = Vec::new();
    let mut push = |change: &dyn Fn(&mut Node)| {
        let mut key = key.clone();
        change(&mut key);
        all.push(key);
    };
    let bits = key.clone().children()[1].content();
    let mut with = |bits: Vec<u8>| push(&|key| key.children()[1].set_bytes(bits.clone()));
    for at in [0, 1, 2, bits.len() / 2, bits.len() - 1] {
        for bit in [0, 7] {
            let mut changed = bits.clone();
            changed[at] ^= 1 << bit;
            with(changed);
        }
    }
    // Compressed, hybrid and infinite points.
    let half = bits.len() / 2 + 1;
    for form in [0, 2, 3] {
        with([&[0, form], &bits[2..half]].concat());
    }
    for form in [6, 7] {
        with([&[0, form], &bits[2..]].concat());
    }
    with(vec![0, 0]);
    with([&[0, 4], &vec![0; bits.len() - 2][..]].concat());
    with([&[0, 4], &vec![0xff; bits.len() - 2][..]].concat());
    for curve in CURVES {
        push(&|key| {
            if let Some(parameters) = key.children()[0].children().get_mut(1) {
                *parameters = Node::parse(&element(6, curve));
            }
        });
    }
    for parameters in PARAMETERS {
        push(&|key| {
            let algorithm = key.children()[0].children()[0].encode();
            key.children()[0].set_bytes([&algorithm, *parameters].concat());
        });
    }
    all
}
