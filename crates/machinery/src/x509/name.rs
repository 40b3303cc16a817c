//! Names in certificates and requests: their attributes, and the texts that those contain.

use x509_cert::der::Tag;

use super::der::{Element, Elements, Malformed};

/// Returns the attributes of a name, each by the encoding of its object identifier, in their order. `content` is the content of the
/// name's SEQUENCE; `part` names it in errors.
pub fn attributes<'a>(
    content: &'a [u8],
    part: &'static str,
) -> Result<Vec<(&'a [u8], Element<'a>)>, Malformed> {
    let mut found = Vec::new();
    let mut sets = Elements::new(content, part)?;
    while let Some(set) = sets.next()? {
        if set.tag != Tag::Set {
            return Err(sets.malformed());
        }
        let mut attributes = Elements::new(set.content, part)?;
        while let Some(attribute) = attributes.next()? {
            if attribute.tag != Tag::Sequence {
                return Err(attributes.malformed());
            }
            let mut pair = Elements::new(attribute.content, part)?;
            let identifier = pair.identifier()?;
            let value = pair.next()?.ok_or_else(|| pair.malformed())?;
            pair.finish()?;
            found.push((identifier, value));
        }
    }
    Ok(found)
}

/// Returns the text of a string of a type that Go reads; `None` for other elements and other characters than the type has.
pub fn text(value: Element<'_>) -> Option<String> {
    let content = value.content;
    let of_utf8 = || String::from_utf8(content.to_vec()).ok();
    // Go allows the asterisk and the ampersand, which many authorities wrote.
    let is_printable = |byte: &u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(byte);
    let is_numeric = |byte: &u8| byte.is_ascii_digit() || *byte == b' ';
    match value.tag {
        Tag::Utf8String => of_utf8(),
        Tag::PrintableString if content.iter().all(is_printable) => of_utf8(),
        Tag::NumericString if content.iter().all(is_numeric) => of_utf8(),
        Tag::Ia5String if content.is_ascii() => of_utf8(),
        // Latin-1, as Go reads it.
        Tag::TeletexString => Some(content.iter().map(|byte| char::from(*byte)).collect()),
        Tag::BmpString => basic_plane(content),
        _ => None,
    }
}

/// Returns the text of two bytes for each character, without a terminator. It has no surrogates and no noncharacters.
fn basic_plane(content: &[u8]) -> Option<String> {
    let content = content.strip_suffix(&[0, 0]).unwrap_or(content);
    let (pairs, []) = content.as_chunks() else { return None };
    let character = |pair: &[u8; 2]| match u16::from_be_bytes(*pair) {
        0xfdd0..=0xfdef | 0xfffe..=0xffff => None,
        unit => char::from_u32(unit.into()),
    };
    pairs.iter().map(character).collect()
}
