//! Mutates requests: their elements, which are signed afterwards, their texts, and single bytes. A seed chooses the same mutations
//! again, apart from ECDSA keys and signatures, which are random.

mod signatures;
mod texts;
mod tree;

use rcgen::KeyPair;

use crate::identity::requests::fixtures::{
    element, extension_request, names_extension, sign, subject_part, to_der,
};
use crate::identity::requests::tests::ordinary;
use coxswain_machinery::oracle::Random;
pub(super) use signatures::variants;
pub(super) use texts::{FRAMES, frame};
use tree::{Length, Node};

/// Contents of strings: some that every type has, some that only a few have, URIs, addresses, other characters.
pub(super) const CONTENTS: &[&[u8]] = &[
    b"",
    b"a",
    b"system:masters",
    b"system:node:n1",
    b"12 34",
    b"a*b&c",
    b"a@b",
    b"a\0b",
    b"\0",
    b"\xe9",
    b"\xc3\xa9",
    b"\xef\xbf\xbd",
    b"\xef\xbf\xbf",
    b"\0a\0b",
    b"\0a\0\0",
    b"\0a\0\0\0\0",
    b"\xd8\x3d\xde\x00",
    b"\xff\xfe\0a",
    b"\xfd\xd0",
    b"\0",
    b"\x0a\0\0\x01",
    b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x01",
    b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01",
    b"n1",
    b"*.example.com",
    b"a..b",
    b".",
    b"-a-",
    b"a b",
    b"kubernetes.default.svc",
    b"spiffe://td/ns/a/sa/b",
    b"SPIFFE://Td/x",
    b"https://a.b:8080/x?y=z#f",
    b"https://a.b:/%41%2f?%zz",
    b"https://[::1]:80/",
    b"https://[fe80::1%25en0]/",
    b"https://[::ffff:10.0.0.1]/",
    b"https://[1::2::3]/",
    b"https://10.0.0.1/x",
    b"https://user:pw@h/p",
    b"https://h/a b\"<>",
    b"https://h/p#a!$&'()*+,;=:@/?~-._b",
    b"https://h/p#%41%zz",
    b"https://h/p#",
    b"https://a_b.-c-/!$&'()*+,;=:@~-._",
    b"urn:uuid:1-2",
    b"urn:a%41/b?c",
    b"a:///b//c",
    b"a://",
    b"a:",
    b"//h/p",
    b"/p",
    b":a",
    b"1a:b",
];

/// Characters that URIs are made of at random.
const URI_CHARACTERS: &[u8] = b"aZ09-._~%4f:/?#[]@!$&'()*+,;=// ::\"<>\\^`{}|\x7f";

/// Object identifiers: kept attributes, others, extension requests, alternative names, Microsoft's, and ones that are malformed.
const IDENTIFIERS: &[&[u8]] = &[
    &[0x55, 4, 3],
    &[0x55, 4, 10],
    &[0x55, 4, 11],
    &[0x55, 4, 6],
    &[0x55, 4, 7],
    &[0x55, 4, 8],
    &[0x55, 4, 9],
    &[0x55, 4, 17],
    &[0x55, 4, 5],
    &[0x55, 4, 12],
    &[0x55, 4, 0x80, 10],
    &[0x55, 4, 0x8a],
    &[0x55, 0x1d, 0x11],
    &[0x55, 0x1d, 0x12],
    &[0x55, 0x1d, 15],
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14],
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 7],
    &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 1, 14],
    &[0x2a, 0x87, 0xff, 0xff, 0xff, 0x7f],
    &[0x2a, 0x88, 0x80, 0x80, 0x80, 0],
    &[0x2a, 0x8f, 0xff, 0xff, 0xff, 0x7f],
    &[0x80, 1],
    &[],
];

/// Tags of strings, and some of other types.
const STRINGS: &[u8] =
    &[0x0c, 0x13, 0x12, 0x14, 0x16, 0x1e, 0x1a, 0x1b, 0x1c, 0x04, 0x02, 0x05, 0x01, 0x17, 0x03];

/// Makes texts of requests.
pub(super) struct Mutator {
    /// The requests that are mutated, in DER.
    ordinary: Vec<Vec<u8>>,
    /// The keys that sign what was mutated.
    keys: Vec<KeyPair>,
}

impl Mutator {
    pub(super) fn new() -> Self {
        // The first one signs most of them, since it is fast without optimization, too.
        let keys = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ED25519];
        let keys = keys.map(|algorithm| KeyPair::generate_for(algorithm).unwrap());
        Self { ordinary: ordinary().into_iter().map(|(_, text)| to_der(text)).collect(), keys: keys.into() }
    }

    /// Returns as many texts, made from the seed. Keys and signatures are new with each process.
    pub(super) fn texts(&mut self, seed: u64, count: usize) -> Vec<Vec<u8>> {
        let mut random = Random::new(seed + 1);
        (0..count).map(|_| self.text(&mut random)).collect()
    }

    fn text(&self, random: &mut Random) -> Vec<u8> {
        let base = &self.ordinary[random.below(self.ordinary.len())];
        match random.below(10) {
            0 => {
                let mut der = base.clone();
                noise(&mut der, random);
                texts::plain(&der)
            }
            1 | 2 => texts::mutated(base, &self.ordinary[random.below(self.ordinary.len())], random),
            3 => texts::mutated(&self.resigned(base, random), base, random),
            _ => texts::plain(&self.resigned(base, random)),
        }
    }

    /// Changes the signed part of a request, or now and then what is around it, and signs it with a key of ours.
    fn resigned(&self, base: &[u8], random: &mut Random) -> Vec<u8> {
        let key = &self.keys[usize::from(random.below(8) == 0)];
        let mut request = Node::parse(base);
        let mut info = request.children()[0].clone();
        info.children()[2] = Node::parse(&rcgen::PublicKeyData::subject_public_key_info(key));
        for _ in 0..=random.below(4).saturating_sub(1) {
            if random.below(2) == 0 { grow(&mut info, random) } else { change(&mut info, random) }
        }
        let signed = sign(key, &info.encode());
        if random.below(12) != 0 {
            return signed;
        }
        // No signature covers these.
        if info.parses() {
            let mut request = Node::parse(&signed);
            change(&mut request, random);
            return request.encode();
        }
        signed
    }
}

/// Changes single bytes.
fn noise(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len().max(1));
        match random.below(5) {
            0 if at < bytes.len() => drop(bytes.remove(at)),
            1 => bytes.insert(at.min(bytes.len()), random.byte()),
            2 => bytes.truncate(at),
            3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ if at < bytes.len() => bytes[at] = random.byte(),
            _ => {}
        }
    }
}

/// Returns the content of a string.
fn content(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => {
            let mut uri = random
                .one_of(&["", "a:", "a:/", "a://", "a://h/", "a://h:1", "A://h/p?q", "a://h#"])
                .to_owned();
            for _ in 0..random.below(6) {
                uri.push(char::from(URI_CHARACTERS[random.below(URI_CHARACTERS.len())]));
            }
            uri.into_bytes()
        }
        1 => (0..random.below(20)).map(|_| b"abcXYZ019 -.:"[random.below(13)]).collect(),
        _ => random.one_of(CONTENTS).to_vec(),
    }
}

/// Returns a tag, or now and then the same in another class or form, or any.
fn near(tag: u8, random: &mut Random) -> u8 {
    match random.below(8) {
        0 => tag ^ [0x20, 0x40, 0x80, 0xc0, 0xa0][random.below(5)],
        1 if random.below(4) == 0 => random.byte(),
        _ => tag,
    }
}

/// Returns a part of a subject, mostly a good one.
fn part_of_subject(random: &mut Random) -> Vec<u8> {
    let number = [3, 5, 6, 7, 8, 9, 10, 11, 12, 17][random.below(10)];
    let tag = near(STRINGS[random.below(6)], random);
    subject_part(number, tag, &content(random))
}

/// Returns an alternative name, mostly a good one.
fn name(random: &mut Random) -> Vec<u8> {
    let tag = near([0x81, 0x82, 0x86, 0x87][random.below(4)], random);
    let content = match tag {
        0x87 if random.below(2) == 0 => vec![10, 0, 0, random.byte()],
        0x86 if random.below(2) == 0 => b"spiffe://td/a".to_vec(),
        _ => content(random),
    };
    element(tag, &content)
}

/// Returns an extension, mostly one of alternative names.
fn extension(random: &mut Random) -> Vec<u8> {
    if random.below(2) == 0 {
        return names_extension(&(0..random.below(3)).flat_map(|_| name(random)).collect::<Vec<u8>>());
    }
    let mut parts = element(6, random.one_of(IDENTIFIERS));
    match random.below(5) {
        0 => parts.extend([1, 1, 0xff]),
        1 => parts.extend([1, 1, 0]),
        2 => parts.extend([1, 1, random.byte()]),
        _ => {}
    }
    parts.extend(element(4, &content(random)));
    element(0x30, &parts)
}

/// Returns an attribute of a request, mostly an extension request.
fn attribute(random: &mut Random) -> Vec<u8> {
    let (tag, set) = (near(0x30, random), near(0x31, random));
    if random.below(2) == 0 {
        return extension_request(&extension(random), tag, set);
    }
    let value = element(STRINGS[random.below(6)], &content(random));
    element(tag, &[element(6, random.one_of(IDENTIFIERS)), element(set, &value)].concat())
}

/// Adds an element where elements of its sort are.
fn grow(info: &mut Node, random: &mut Random) {
    let added = match random.below(4) {
        0 => (info.find(&[1]), part_of_subject(random)),
        1 => (info.find(&[3]), attribute(random)),
        2 => (info.extensions(), extension(random)),
        _ => (info.names(), name(random)),
    };
    if let (Some(list), element) = added {
        let at = random.below(list.len() + 1);
        list.insert(at, Node::parse_or_bytes(&element));
    }
}

/// Changes one element: its tag, its length, its content, its place.
fn change(root: &mut Node, random: &mut Random) {
    let paths = root.paths();
    let path = &paths[random.below(paths.len())];
    let other = root.at(&paths[random.below(paths.len())]).clone();
    let node = root.at(path);
    match random.below(14) {
        0 => node.tag = random.byte(),
        1 => node.tag ^= [0x20, 0x40, 0x80, 0xc0, 1][random.below(5)],
        2 => node.tag = STRINGS[random.below(STRINGS.len())],
        3 => node.length = [Length::Long, Length::Indefinite, Length::More, Length::Less][random.below(4)],
        4 => *node = other,
        5 | 6 => node.set_bytes(content(random)),
        7 => {
            let mut bytes = node.content();
            noise(&mut bytes, random);
            node.set_bytes(bytes);
        }
        8 if node.tag == 6 => node.set_bytes(random.one_of(IDENTIFIERS).to_vec()),
        8 => {
            let mut bytes = node.content();
            bytes.extend([&[0][..], &[5, 0], &[0x0c, 1, b'x'], &[0, 0]][random.below(4)]);
            node.set_bytes(bytes);
        }
        choice => {
            let Some((last, above)) = path.split_last() else { return };
            let siblings = root.at(above).children();
            let place = random.below(siblings.len() + 1);
            match choice {
                9 => drop(siblings.remove(*last)),
                10 => siblings.insert(place, other),
                11 => siblings.insert(place, siblings[*last].clone()),
                12 => siblings.reverse(),
                _ => {
                    let place = place % siblings.len();
                    siblings.swap(*last, place);
                }
            }
        }
    }
}
