//! Chains, each with the verdicts of Go and of [`Roots`](super::Roots). Where these differ, Coxswain refuses.
#![expect(clippy::expect_used, reason = "for tests")]

use rcgen::KeyPair;

use super::Purpose;
use crate::x509::Certificate;
use crate::x509::fixtures::{Draft, ECDSA_SHA256, element, extension, name_part, public_key};

/// The time at which chains are verified, in seconds since 1970: the year 2027.
pub const NOW: u64 = 1_800_000_000;

/// A chain.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is special about it.
    pub name: &'static str,
    /// The certificate to be verified.
    pub leaf: Vec<u8>,
    /// The certificates that are presented with it.
    pub intermediates: Vec<Vec<u8>>,
    /// The CA bundle.
    pub roots: Vec<Vec<u8>>,
    /// The side of the connection.
    pub purpose: Purpose,
    /// Whether Coxswain accepts it.
    pub is_accepted: bool,
    /// Whether Go does.
    pub is_accepted_by_go: bool,
}

/// A key and the name that belongs to it.
struct Party {
    key: KeyPair,
    name: Vec<u8>,
}

impl Party {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key on P-256");
        Self { key, name: name_part(3, 0x0c, name.as_bytes()) }
    }

    fn draft(&self, extensions: &[Vec<u8>]) -> Draft {
        let draft = Draft::new(public_key(&self.key), self.name.clone());
        Draft { extensions: extensions.concat(), ..draft }
    }

    fn issue(&self, draft: &Draft) -> Vec<u8> {
        draft.sign(&self.name, |message| rcgen::SigningKey::sign(&self.key, message).expect("a signature"))
    }
}

fn constraints(is_ca: bool, path_length: Option<u8>) -> Vec<u8> {
    let flag: &[u8] = if is_ca { &[1, 1, 0xff] } else { &[] };
    let length = path_length.map(|length| vec![2, 1, length]).unwrap_or_default();
    extension(19, true, &element(0x30, &[flag, &length].concat()))
}

fn usage(bits: u8) -> Vec<u8> {
    extension(15, true, &[3, 2, 0, bits])
}

/// id-kp-N, of which 1 are servers, 2 clients and 3 signers of code.
fn purposes(numbers: &[u8]) -> Vec<u8> {
    let all: Vec<u8> = numbers.iter().flat_map(|number| [6, 8, 0x2b, 6, 1, 5, 5, 7, 3, *number]).collect();
    extension(37, false, &element(0x30, &all))
}

const DIGITAL_SIGNATURE: u8 = 0x80;
const CERT_SIGN: u8 = 0x04;

fn unknown() -> Vec<u8> {
    extension(99, true, &[5, 0])
}

fn alternative_name(name: &str) -> Vec<u8> {
    extension(17, false, &element(0x30, &element(0x82, name.as_bytes())))
}

fn permitted(base: &[u8]) -> Vec<u8> {
    extension(30, true, &element(0x30, &element(0xa0, &element(0x30, base))))
}

fn version_1(draft: Draft) -> Draft {
    Draft { version: None, extensions: Vec::new(), ..draft }
}

fn expired(draft: Draft) -> Draft {
    Draft { not_after: "20200101000000Z", ..draft }
}

fn future(draft: Draft) -> Draft {
    Draft { not_before: "20300101000000Z", ..draft }
}

fn tampered(mut der: Vec<u8>) -> Vec<u8> {
    let last = der.len() - 1;
    der[last] ^= 1;
    der
}

/// The part of a chain that is mutated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Leaf,
    LeafWithCa,
    Pinned,
    Intermediate,
    Root,
}

/// Returns chains of which one certificate has one bit changed and is signed again by its issuer. Verdicts on them are unknown.
pub fn mutants() -> impl Iterator<Item = Case> {
    let (root, middle, leaf) = (Party::new("root"), Party::new("middle"), Party::new("jane"));
    let names = extension(17, true, &element(0x30, &element(0x82, b"jane.test")));
    let client = leaf.draft(&[purposes(&[2, 1]), names, constraints(false, None)]);
    let old = version_1(leaf.draft(&[]));
    let names = extension(17, false, &element(0x30, &element(0x82, b"jane.test")));
    let authority = leaf.draft(&[constraints(true, Some(1)), purposes(&[2]), names]);
    let ca =
        [constraints(true, Some(1)), usage(CERT_SIGN), permitted(&element(0x82, b"test")), purposes(&[2])];
    let (root_draft, middle_draft) = (root.draft(&ca), middle.draft(&ca));
    let open_draft = root.draft(&[constraints(true, Some(0)), purposes(&[2])]);
    let chains = [
        (Part::Leaf, root.issue(&client)),
        (Part::Leaf, root.issue(&old)),
        (Part::LeafWithCa, root.issue(&authority)),
        (Part::Pinned, leaf.issue(&client)),
        (Part::Pinned, leaf.issue(&old)),
        (Part::Intermediate, root.issue(&middle_draft)),
        (Part::Root, root.issue(&root_draft)),
    ];
    chains.into_iter().flat_map(move |(part, der)| {
        let (good_root, good_middle) = (root.issue(&root_draft), root.issue(&middle_draft));
        let open_root = root.issue(&open_draft);
        let below = middle.issue(&client);
        let key = if part == Part::Pinned { &leaf.key } else { &root.key };
        let mutants: Vec<Vec<u8>> = signed_mutants(&der, key);
        let case = move |mutant: Vec<u8>| {
            let (leaf, intermediates, roots) = match part {
                Part::Leaf => (mutant, Vec::new(), vec![good_root.clone()]),
                Part::LeafWithCa => (mutant, Vec::new(), vec![open_root.clone()]),
                Part::Pinned => (mutant.clone(), Vec::new(), vec![mutant]),
                Part::Intermediate => (below.clone(), vec![mutant], vec![good_root.clone()]),
                Part::Root => (below.clone(), vec![good_middle.clone()], vec![mutant]),
            };
            Case {
                name: "a mutant",
                leaf,
                intermediates,
                roots,
                purpose: Purpose::Client,
                is_accepted: false,
                is_accepted_by_go: false,
            }
        };
        mutants.into_iter().map(case).collect::<Vec<_>>()
    })
}

/// Returns a certificate with each bit of its signed part changed, and signed again.
fn signed_mutants(der: &[u8], key: &KeyPair) -> Vec<Vec<u8>> {
    let signed = Certificate::read(der).expect("a certificate").signed;
    let changed = (0..signed.len() * 8).map(|bit| {
        let mut changed = signed.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        let signature = rcgen::SigningKey::sign(key, &changed).expect("a signature");
        let bits = element(3, &[&[0][..], &signature].concat());
        element(0x30, &[&changed[..], ECDSA_SHA256, &bits].concat())
    });
    changed.collect()
}

/// Returns all cases.
#[expect(clippy::too_many_lines, reason = "a table")]
pub fn cases() -> Vec<Case> {
    let (root, middle, lower, leaf) =
        (Party::new("root"), Party::new("m"), Party::new("l"), Party::new("jane"));
    let namesake = Party::new("root");
    let ca = [constraints(true, None), usage(CERT_SIGN)];
    let client = [purposes(&[2]), alternative_name("jane.test")];
    let ca_of = |extensions: &[Vec<u8>]| root.issue(&root.draft(extensions));
    let good_root = ca_of(&ca);
    let good_leaf = root.issue(&leaf.draft(&client));
    let plain_leaf = leaf.draft(&client);
    let old_leaf = version_1(leaf.draft(&[]));
    let old_root = root.issue(&version_1(root.draft(&[])));
    let middle_of = |extensions: &[Vec<u8>]| root.issue(&middle.draft(extensions));
    let below_middle = middle.issue(&plain_leaf);
    let self_signed = |extensions: &[Vec<u8>]| leaf.issue(&leaf.draft(extensions));

    let mut all = Vec::new();
    let mut add = |name, leaf: &[u8], intermediates: &[Vec<u8>], roots: &[Vec<u8>], ours, go| {
        all.push(Case {
            name,
            leaf: leaf.to_vec(),
            intermediates: intermediates.to_vec(),
            roots: roots.to_vec(),
            purpose: Purpose::Client,
            is_accepted: ours,
            is_accepted_by_go: go,
        });
    };

    // A leaf of version 3 below a root.
    let trust = std::slice::from_ref(&good_root);
    add("a client certificate", &good_leaf, &[], trust, true, true);
    add("no purpose", &root.issue(&leaf.draft(&[])), &[], trust, true, true);
    add("signature tampered with", &tampered(good_leaf.clone()), &[], trust, false, false);
    add("another CA of the same name", &namesake.issue(&plain_leaf), &[], trust, false, false);
    add("expired", &root.issue(&expired(plain_leaf.clone())), &[], trust, false, false);
    add("not yet valid", &root.issue(&future(plain_leaf.clone())), &[], trust, false, false);
    add("for servers", &root.issue(&leaf.draft(&[purposes(&[1])])), &[], trust, false, false);
    let any = extension(37, false, &element(0x30, &[6, 4, 0x55, 0x1d, 0x25, 0]));
    add("for any purpose", &root.issue(&leaf.draft(std::slice::from_ref(&any))), &[], trust, true, true);
    add("unknown critical extension", &root.issue(&leaf.draft(&[unknown()])), &[], trust, false, false);
    add("no roots", &good_leaf, &[], &[], false, false);
    let endless = |draft: Draft| Draft { not_after: "99991231235959Z", ..draft };
    add("to the end of 9999", &root.issue(&endless(plain_leaf.clone())), &[], trust, true, true);
    let explicit = extension(36, false, &element(0x30, &[0x80, 1, 0]));
    add("explicit policy", &root.issue(&leaf.draft(&[explicit])), &[], trust, false, false);
    let spare = vec![good_leaf.clone(); 9];
    add("nine intermediates", &good_leaf, &spare, trust, false, true);

    // The root.
    let policies = extension(32, true, &element(0x30, &element(0x30, &[6, 3, 0x2a, 3, 4])));
    let rules = extension(54, true, &[2, 1, 0]);
    let padded = extension(15, true, &[3, 2, 3, CERT_SIGN]);
    let long = element(0x30, &[1, 1, 0xff, 2, 2, 3, 0xe8]);
    let expired_root = root.issue(&expired(root.draft(&ca)));
    let future_root = root.issue(&future(root.draft(&ca)));
    for (name, bundle, is_good) in [
        ("root: expired", expired_root.clone(), false),
        ("root: not yet valid", future_root, false),
        ("root: no basic constraints", ca_of(&[]), false),
        ("root: no CA", ca_of(&[constraints(false, None)]), false),
        ("root: may not sign", ca_of(&[constraints(true, None), usage(DIGITAL_SIGNATURE)]), false),
        ("root: for servers", ca_of(&[ca.concat(), purposes(&[1])]), false),
        ("root: for clients", ca_of(&[ca.concat(), purposes(&[2])]), true),
        ("root: for any purpose", ca_of(&[ca.concat(), any]), true),
        ("root: unknown critical extension", ca_of(&[ca.concat(), unknown()]), false),
        ("root: no key usage", ca_of(&[constraints(true, None)]), true),
        ("root: to the end of 9999", root.issue(&endless(root.draft(&ca))), true),
        ("root: critical policies", ca_of(&[ca.concat(), policies.clone()]), true),
        ("root: critical rules about policies", ca_of(&[ca.concat(), rules.clone()]), true),
        ("root: padding of the key usage", ca_of(&[constraints(true, None), padded.clone()]), false),
        ("root: a long path length", ca_of(&[extension(19, true, &long)]), true),
        ("root: no intermediates", ca_of(&[constraints(true, Some(0))]), true),
        ("root: version 1", old_root.clone(), true),
        ("root: permits the name", ca_of(&[ca.concat(), permitted(&element(0x82, b"test"))]), true),
        ("root: permits another name", ca_of(&[ca.concat(), permitted(&element(0x82, b"com"))]), false),
        ("root: permits a directory", ca_of(&[ca.concat(), permitted(&element(0xa4, &[0x30, 0]))]), false),
    ] {
        add(name, &good_leaf, &[], &[bundle], is_good, is_good);
    }

    let constrained = ca_of(&[ca.concat(), permitted(&element(0x82, b"test"))]);
    for (name, tag, value) in [
        ("constrained: odd email address", 0x81, &b"x"[..]),
        ("constrained: URI without a host", 0x86, b"urn:x:y"),
        ("constrained: URI of an address", 0x86, b"http://1.2.3.4/"),
        ("constrained: odd DNS name", 0x82, b"a..test"),
    ] {
        let names = extension(17, false, &element(0x30, &element(tag, value)));
        let constrained = std::slice::from_ref(&constrained);
        add(name, &root.issue(&leaf.draft(&[names])), &[], constrained, false, false);
    }
    for (name, content) in [
        ("malformed DNS name", element(0x82, b"\xe9")),
        ("malformed URI", element(0x86, b"http://a b/")),
        ("malformed address", element(0x87, &[1, 2, 3, 4, 5])),
    ] {
        let names = extension(17, false, &element(0x30, &content));
        add(name, &root.issue(&leaf.draft(&[names])), &[], trust, false, false);
    }
    let uri = extension(17, false, &element(0x30, &element(0x86, b"spiffe://cluster.local/ns/a/sa/b")));
    add("URI", &root.issue(&leaf.draft(&[uri])), &[], trust, true, true);
    for (name, uri, is_good) in [
        ("URI with a user", "https://ops:x@example.com/x", true),
        ("URI with a space in its user", "https://o ps@example.com/x", false),
        ("URI with a malformed escape in its user", "https://o%zz@example.com/x", false),
        ("URI with other characters", "https://example.com/a|b c?d|e#f#g", true),
        ("URI with other characters in its host", "https://e|x.com/", false),
        ("URI with a malformed escape", "https://example.com/%zz", false),
        ("URI with an empty fragment", "https://example.com/#", true),
        ("URI without a location", "urn:a|b", true),
        ("URI with a control character", "urn:a\n", false),
        ("URI after a space", " https://example.com/", false),
    ] {
        let names = extension(17, false, &element(0x30, &element(0x86, uri.as_bytes())));
        add(name, &root.issue(&leaf.draft(&[names])), &[], trust, is_good, is_good);
    }
    // 2.25 and a number beyond 32 bits, as UUIDs are.
    let of_uuid = element(0x30, &element(0x30, &[6, 6, 0x69, 0x90, 0x80, 0x80, 0x80, 0]));
    let of_uuid = extension(32, false, &of_uuid);
    add("policy of a UUID", &root.issue(&leaf.draft(std::slice::from_ref(&of_uuid))), &[], trust, true, true);
    add("root: policy of a UUID", &good_leaf, &[], &[ca_of(&[ca.concat(), of_uuid])], true, true);

    // Intermediates.
    let good_middle = middle_of(&ca);
    let next = middle.issue(&lower.draft(&ca));
    let below_next = lower.issue(&plain_leaf);
    for (name, presented, is_good) in [
        ("intermediate", good_middle.clone(), true),
        ("intermediate: tampered with", tampered(good_middle.clone()), false),
        ("intermediate: no CA", middle_of(&[constraints(false, None)]), false),
        ("intermediate: no basic constraints", middle_of(&[]), false),
        (
            "intermediate: may not sign",
            middle_of(&[constraints(true, None), usage(DIGITAL_SIGNATURE)]),
            false,
        ),
        ("intermediate: for servers", middle_of(&[ca.concat(), purposes(&[1])]), false),
        ("intermediate: unknown critical extension", middle_of(&[ca.concat(), unknown()]), false),
        ("intermediate: padding of the key usage", middle_of(&[constraints(true, None), padded]), false),
        ("intermediate: expired", root.issue(&expired(middle.draft(&ca))), false),
        ("intermediate: version 1", root.issue(&version_1(middle.draft(&[]))), false),
        ("intermediate: of another CA", namesake.issue(&middle.draft(&ca)), false),
        (
            "intermediate: permits a directory",
            middle_of(&[ca.concat(), permitted(&element(0xa4, &[0x30, 0]))]),
            false,
        ),
    ] {
        add(name, &below_middle, &[presented], trust, is_good, is_good);
    }
    let short_root = ca_of(&[constraints(true, Some(0))]);
    add(
        "root: too many intermediates",
        &below_middle,
        std::slice::from_ref(&good_middle),
        &[short_root],
        false,
        false,
    );
    let short_middle = middle_of(&[constraints(true, Some(0))]);
    add("two intermediates", &below_next, &[next.clone(), good_middle.clone()], trust, true, true);
    add("intermediate: too many below", &below_next, &[next, short_middle], trust, false, false);

    // A leaf of version 1.
    let old = root.issue(&old_leaf);
    add("version 1", &old, &[], trust, true, true);
    add("version 1: root of version 1", &old, &[], &[old_root], true, true);
    add("version 1: tampered with", &tampered(old.clone()), &[], trust, false, false);
    add("version 1: another CA of the same name", &namesake.issue(&old_leaf), &[], trust, false, false);
    add("version 1: self-signed", &leaf.issue(&old_leaf), &[], trust, false, false);
    add("version 1: no roots", &old, &[], &[], false, false);
    add("version 1: expired", &root.issue(&expired(old_leaf.clone())), &[], trust, false, false);
    add("version 1: not yet valid", &root.issue(&future(old_leaf.clone())), &[], trust, false, false);
    add(
        "version 1: intermediate",
        &middle.issue(&old_leaf),
        std::slice::from_ref(&good_middle),
        trust,
        false,
        true,
    );
    add(
        "version 1: intermediate in the bundle",
        &middle.issue(&old_leaf),
        &[],
        std::slice::from_ref(&good_middle),
        true,
        true,
    );
    for (name, bundle) in [
        ("version 1: root expired", expired_root),
        ("version 1: root is no CA", ca_of(&[constraints(false, None)])),
        ("version 1: root without basic constraints", ca_of(&[])),
        ("version 1: root may not sign", ca_of(&[constraints(true, None), usage(DIGITAL_SIGNATURE)])),
        ("version 1: root for servers", ca_of(&[ca.concat(), purposes(&[1])])),
        ("version 1: root with an unknown critical extension", ca_of(&[ca.concat(), unknown()])),
    ] {
        add(name, &old, &[], &[bundle], false, false);
    }
    let constrained = ca_of(&[ca.concat(), permitted(&element(0x82, b"test"))]);
    add("version 1: root with name constraints", &old, &[], &[constrained], false, true);
    let version_2 = root.issue(&Draft { version: Some(1), extensions: Vec::new(), ..plain_leaf.clone() });
    add("version 2", &version_2, &[], trust, false, true);

    // A leaf with `CA:TRUE`.
    let authority = [constraints(true, None), client.concat()];
    let below = |extensions: &[Vec<u8>]| root.issue(&leaf.draft(extensions));
    let draft = leaf.draft(&authority);
    let constrains_itself = permitted(&element(0x82, b"com"));
    for (name, der, is_good) in [
        ("CA: for any purpose", below(&[constraints(true, None)]), true),
        ("CA: may sign", below(&[ca.concat(), client.concat()]), true),
        ("CA: may not sign", below(&[authority.concat(), usage(DIGITAL_SIGNATURE)]), true),
        ("CA: for servers", below(&[constraints(true, None), purposes(&[1])]), false),
        ("CA: unknown critical extension", below(&[authority.concat(), unknown()]), false),
        ("CA: constrains its own name", below(&[authority.concat(), constrains_itself]), true),
        ("CA: tampered with", tampered(root.issue(&draft)), false),
        ("CA: another CA of the same name", namesake.issue(&draft), false),
        ("CA: self-signed", leaf.issue(&draft), false),
        ("CA: expired", root.issue(&expired(draft.clone())), false),
        ("CA: not yet valid", root.issue(&future(draft.clone())), false),
        ("CA: named as its issuer", root.issue(&namesake.draft(&authority)), true),
        // Go takes it for the root itself, which it is not.
        ("CA: renewed root", root.issue(&Draft { not_after: "20980101000000Z", ..root.draft(&ca) }), false),
        ("CA: renewed root with a name", ca_of(&[ca.concat(), client.concat()]), true),
    ] {
        add(name, &der, &[], trust, is_good, is_good);
    }
    let authority_leaf = root.issue(&draft);
    let purposeless = below(&[constraints(true, None), purposes(&[])]);
    add("CA: an empty extended key usage", &purposeless, &[], trust, false, true);
    for (name, bundle, is_good) in [
        ("CA: no roots", None, false),
        ("CA: no intermediates", Some(ca_of(&[constraints(true, Some(0))])), true),
        ("CA: root of version 1", Some(root.issue(&version_1(root.draft(&[])))), true),
        ("CA: root expired", Some(root.issue(&expired(root.draft(&ca)))), false),
        ("CA: root is no CA", Some(ca_of(&[constraints(false, None)])), false),
        ("CA: root may not sign", Some(ca_of(&[constraints(true, None), usage(DIGITAL_SIGNATURE)])), false),
        ("CA: root for servers", Some(ca_of(&[ca.concat(), purposes(&[1])])), false),
    ] {
        add(name, &authority_leaf, &[], bundle.as_slice(), is_good, is_good);
    }
    let constrained = ca_of(&[ca.concat(), permitted(&element(0x82, b"test"))]);
    add("CA: root with name constraints", &authority_leaf, &[], &[constrained], false, true);
    let below = middle.issue(&draft);
    add("CA: intermediate", &below, std::slice::from_ref(&good_middle), trust, false, true);
    add("CA: intermediate in the bundle", &below, &[], &[good_middle], true, true);

    // A certificate that is itself in the bundle.
    for (name, der, is_good) in [
        ("pinned: of an unknown CA", namesake.issue(&plain_leaf), true),
        ("pinned: self-signed CA", self_signed(&ca), true),
        ("pinned: self-signed, no CA", self_signed(&client), true),
        ("pinned: version 1", leaf.issue(&old_leaf), true),
        ("pinned: expired", leaf.issue(&expired(plain_leaf.clone())), false),
        ("pinned: not yet valid", leaf.issue(&future(plain_leaf.clone())), false),
        ("pinned: version 1, expired", leaf.issue(&expired(old_leaf.clone())), false),
        ("pinned: for servers", self_signed(&[purposes(&[1])]), false),
        ("pinned: unknown critical extension", self_signed(&[unknown()]), false),
    ] {
        add(name, &der, &[], std::slice::from_ref(&der), is_good, is_good);
    }
    let similar = leaf.issue(&Draft { not_after: "20980101000000Z", ..plain_leaf.clone() });
    add(
        "pinned: another with the same name and key",
        &leaf.issue(&plain_leaf),
        &[],
        &[similar],
        false,
        false,
    );
    let issuer = self_signed(&client);
    add("below a pinned leaf", &leaf.issue(&lower.draft(&client)), &[], &[issuer], false, false);
    all
}
