//! Extensions of certificates (RFC 5280, section 4.2). Contents that Go refuses to read are refused.

use std::collections::BTreeSet;

use x509_cert::der::asn1::UintRef;
use x509_cert::der::{Decode as _, Tag};
use x509_cert::spki::ObjectIdentifier;

use super::der::{Element, Elements, Malformed, context};
use super::uri;

/// id-ce, of which the last arc is one byte.
const STANDARD: [u8; 2] = [0x55, 0x1d];
const AUTHORITY_ACCESS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.1.1");

/// The bit of a key usage that allows signing certificates, in its first byte.
const SIGNS_CERTIFICATES: u8 = 0x80 >> 5;

const EMAIL: Tag = context(1, false);
const DNS: Tag = context(2, false);
const URI: Tag = context(6, false);
const IP: Tag = context(7, false);

/// The extensions that chains are judged by.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
pub struct Extensions<'a> {
    /// The basic constraints.
    pub basic_constraints: Option<BasicConstraints>,
    /// Whether the key may sign certificates, if there is a key usage.
    pub may_sign: Option<bool>,
    /// The object identifiers of the extended key usage.
    pub purposes: Option<Vec<&'a [u8]>>,
    /// The alternative names, in their encoding.
    pub alternative_names: Option<&'a [u8]>,
    /// Whether there are name constraints.
    pub has_name_constraints: bool,
    /// Whether there are alternative names that constraints on names are not compared with: email addresses, URIs and odd DNS names.
    pub has_unconstrained_names: bool,
    /// Whether there are rules about policies. Go follows these below a root, and nobody here does.
    pub has_policy_rules: bool,
    /// Whether a critical extension has a type or a content that Go does not handle.
    pub has_unknown: bool,
}

/// The basic constraints of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasicConstraints {
    /// Whether it may issue certificates.
    pub is_ca: bool,
    /// The number of intermediates that may follow in a chain.
    pub path_length: Option<usize>,
}

/// An extension of a certificate or of a request.
#[derive(Clone, Copy, Debug)]
pub struct Extension<'a> {
    /// The object identifier, in its encoding.
    pub identifier: &'a [u8],
    /// Whether a reader that does not know it must refuse the certificate.
    pub is_critical: bool,
    /// The content of its OCTET STRING.
    pub value: &'a [u8],
}

impl<'a> Extension<'a> {
    /// Reads the content of an extension's SEQUENCE.
    pub fn read(content: &'a [u8]) -> Result<Self, Malformed> {
        let mut parts = Elements::new(content, "extensions")?;
        let identifier = parts.identifier()?;
        let mut next = parts.next()?.ok_or_else(|| parts.malformed())?;
        let mut is_critical = false;
        if next.tag == Tag::Boolean {
            is_critical = boolean(next.content).ok_or_else(|| parts.malformed())?;
            next = parts.next()?.ok_or_else(|| parts.malformed())?;
        }
        if next.tag != Tag::OctetString {
            return Err(parts.malformed());
        }
        parts.finish()?;
        Ok(Self { identifier, is_critical, value: next.content })
    }
}

impl<'a> Extensions<'a> {
    pub(super) fn read(content: &'a [u8]) -> Result<Self, Malformed> {
        let (mut found, mut seen) = (Self::default(), BTreeSet::new());
        let mut all = Elements::new(content, "extensions")?;
        while let Some(each) = all.next()? {
            if each.tag != Tag::Sequence {
                return Err(all.malformed());
            }
            let extension = Extension::read(each.content)?;
            if !seen.insert(extension.identifier) {
                return Err(Malformed("duplicate extension"));
            }
            let is_handled = found.add(&extension)?;
            found.has_unknown |= extension.is_critical && !is_handled;
        }
        Ok(found)
    }

    /// Adds an extension. Returns whether Go handles it, so that it may be critical.
    fn add(&mut self, extension: &Extension<'a>) -> Result<bool, Malformed> {
        let value = extension.value;
        if extension.identifier == AUTHORITY_ACCESS.as_bytes() {
            let mut all = sequence(value, "authority information access")?;
            while let Some(each) = all.next()? {
                nested(&each, "authority information access")?.identifier()?;
            }
            return Ok(false);
        }
        let Some([number]) = extension.identifier.strip_prefix(&STANDARD) else { return Ok(false) };
        match number {
            14 => {
                Elements::new(value, "subject key identifier")?.content(Tag::OctetString)?;
                return Ok(false);
            }
            15 => self.may_sign = Some(may_sign(value)?),
            17 => {
                self.alternative_names = Some(value);
                return self.add_names(value);
            }
            19 => self.basic_constraints = Some(basic_constraints(value)?),
            30 => {
                self.has_name_constraints = true;
                let is_known = has_known_constraints(value)?;
                // Also if it is not critical: Go applies some of the constraints and not others.
                self.has_unknown |= !is_known;
            }
            31 => distribution_points(value)?,
            32 => policies(value)?,
            33 => {
                self.has_policy_rules = true;
                let mut all = sequence(value, "policy mappings")?;
                while let Some(mapping) = all.next()? {
                    let mut pair = nested(&mapping, "policy mappings")?;
                    pair.identifier()?;
                    pair.identifier()?;
                }
            }
            36 => {
                self.has_policy_rules = true;
                let mut all = sequence(value, "policy constraints")?;
                while let Some(number) = all.next()? {
                    let is_known = [0, 1].into_iter().any(|known| number.tag == context(known, false));
                    if !is_known || !matches!(number.content, [0..=0x7f]) {
                        return Err(all.malformed());
                    }
                }
            }
            35 => {
                sequence(value, "authority key identifier")?.next()?;
                return Ok(false);
            }
            37 => self.purposes = Some(purposes(value)?),
            54 => {
                self.has_policy_rules = true;
                Elements::new(value, "policy rules")?.element(Tag::Integer)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads the alternative names. Returns whether there is one of a kind that Go reads.
    fn add_names(&mut self, value: &[u8]) -> Result<bool, Malformed> {
        const PART: &str = "alternative names";
        let (mut names, mut is_known) = (sequence(value, PART)?, false);
        while let Some(name) = names.next()? {
            let text = || std::str::from_utf8(name.content).ok().filter(|text| text.is_ascii());
            let is_good = match name.tag {
                EMAIL | DNS => text().is_some(),
                URI => text().is_some_and(uri::is_readable),
                IP => matches!(name.content.len(), 4 | 16),
                _ => continue,
            };
            if !is_good {
                return Err(Malformed(PART));
            }
            is_known = true;
            self.has_unconstrained_names |= match name.tag {
                IP => false,
                DNS => name.content.is_empty() || !is_domain(name.content),
                _ => true,
            };
        }
        Ok(is_known)
    }
}

/// Starts at the first element of a SEQUENCE.
fn sequence<'a>(value: &'a [u8], part: &'static str) -> Result<Elements<'a>, Malformed> {
    let mut outer = Elements::new(value, part)?;
    let content = outer.content(Tag::Sequence)?;
    outer.finish()?;
    Elements::new(content, part)
}

/// Starts at the first element of an element, which must be a SEQUENCE.
fn nested<'a>(element: &Element<'a>, part: &'static str) -> Result<Elements<'a>, Malformed> {
    if element.tag == Tag::Sequence { Elements::new(element.content, part) } else { Err(Malformed(part)) }
}

fn boolean(content: &[u8]) -> Option<bool> {
    match content {
        [0] => Some(false),
        [0xff] => Some(true),
        _ => None,
    }
}

fn may_sign(value: &[u8]) -> Result<bool, Malformed> {
    let mut outer = Elements::new(value, "key usage")?;
    let bits = outer.content(Tag::BitString)?;
    outer.finish()?;
    match bits {
        [0] => Ok(false),
        [padding @ 0..=7, bytes @ ..]
            if bytes.last().is_some_and(|last| last & ((1 << padding) - 1) == 0) =>
        {
            Ok(bytes[0] & SIGNS_CERTIFICATES != 0)
        }
        _ => Err(Malformed("key usage")),
    }
}

fn basic_constraints(value: &[u8]) -> Result<BasicConstraints, Malformed> {
    let mut parts = sequence(value, "basic constraints")?;
    let mut found = BasicConstraints { is_ca: false, path_length: None };
    let mut next = parts.next()?;
    if let Some(flag) = next.filter(|element| element.tag == Tag::Boolean) {
        found.is_ca = boolean(flag.content).ok_or_else(|| parts.malformed())?;
        next = parts.next()?;
    }
    if let Some(length) = next {
        if length.tag != Tag::Integer || length.content.len() > 4 {
            return Err(parts.malformed());
        }
        let length = UintRef::from_der(length.der).map_err(|_| parts.malformed())?;
        found.path_length = Some(length.as_bytes().iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)));
    }
    parts.finish()?;
    Ok(found)
}

fn purposes(value: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let (mut parts, mut found) = (sequence(value, "extended key usage")?, Vec::new());
    while let Some(element) = parts.next()? {
        found.push(Elements::new(element.der, "extended key usage")?.identifier()?);
    }
    Ok(found)
}

fn policies(value: &[u8]) -> Result<(), Malformed> {
    let (mut all, mut seen) = (sequence(value, "certificate policies")?, BTreeSet::new());
    while let Some(policy) = all.next()? {
        // Go reads UUIDs (2.25) here, which are longer than the arcs of its other object identifiers.
        if !seen.insert(nested(&policy, "certificate policies")?.long_identifier()?) {
            return Err(all.malformed());
        }
    }
    Ok(())
}

fn distribution_points(value: &[u8]) -> Result<(), Malformed> {
    const PART: &str = "CRL distribution points";
    let mut points = sequence(value, PART)?;
    while let Some(point) = points.next()? {
        let Some(name) = nested(&point, PART)?.next()?.filter(|name| name.tag == context(0, true)) else {
            continue;
        };
        let mut full = Elements::new(Elements::new(name.content, PART)?.content(context(0, true))?, PART)?;
        while full.next()?.is_some() {}
    }
    Ok(())
}

/// Whether Go handles all names that constraints permit or exclude.
fn has_known_constraints(value: &[u8]) -> Result<bool, Malformed> {
    const PART: &str = "name constraints";
    let (mut kinds, mut all_known, mut count, mut last) = (sequence(value, PART)?, true, 0, None);
    while let Some(kind) = kinds.next()? {
        // Permitted names, then excluded ones.
        let place = [context(0, true), context(1, true)].iter().position(|tag| *tag == kind.tag);
        if place.is_none() || place <= last {
            return Err(kinds.malformed());
        }
        last = place;
        let mut subtrees = Elements::new(kind.content, PART)?;
        while let Some(subtree) = subtrees.next()? {
            let base = nested(&subtree, PART)?.next()?.ok_or_else(|| subtrees.malformed())?;
            let domain = base.content.strip_prefix(b".").unwrap_or(base.content);
            let is_good = match base.tag {
                DNS => is_domain(domain),
                // No IP address, and no mailbox: Go reads these by rules of their own.
                URI | EMAIL => {
                    all_known &= !domain.iter().any(|byte| b"@:".contains(byte))
                        && !domain.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
                    is_domain(domain)
                }
                IP => is_network(base.content),
                _ => {
                    all_known = false;
                    true
                }
            };
            if !is_good {
                return Err(kinds.malformed());
            }
            count += 1;
        }
    }
    if count == 0 { Err(Malformed(PART)) } else { Ok(all_known) }
}

/// Whether a text is empty or has labels of visible ASCII characters.
fn is_domain(text: &[u8]) -> bool {
    let is_label = |label: &[u8]| !label.is_empty() && label.iter().all(u8::is_ascii_graphic);
    text.is_empty() || text.split(|byte| *byte == b'.').all(is_label)
}

/// Whether bytes are an address and a mask of the same length.
fn is_network(bytes: &[u8]) -> bool {
    if !matches!(bytes.len(), 8 | 32) {
        return false;
    }
    let mask = &bytes[bytes.len() / 2..];
    let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    let leading: u32 = mask
        .iter()
        .scan(true, |goes_on, byte| {
            let count = if *goes_on { byte.leading_ones() } else { 0 };
            *goes_on &= *byte == 0xff;
            Some(count)
        })
        .sum();
    ones == leading
}
