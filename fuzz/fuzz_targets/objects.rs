//! Whatever bytes an object of any kind has, it is decoded or refused, and what is spliced into it loses none of its fields. As a
//! string, it keeps its bytes.
//!
//! The first byte chooses the kind, the second a field, the rest is the object.

#![no_main]

use bytes::Bytes;
use coxswain_machinery::api::kinds;
use coxswain_machinery::wire::splice;
use coxswain_machinery::wire::text::{held_text, raw_bytes};
use coxswain_machinery::wire::{Reader, WireError};
use libfuzzer_sys::fuzz_target;

/// The numbers of the fields of a message, in order; an error where it is none.
fn fields(message: &[u8]) -> Result<Vec<u32>, WireError> {
    let (mut reader, mut numbers) = (Reader::new(message), Vec::new());
    while let Some((number, _)) = reader.next_field()? {
        numbers.push(number);
    }
    Ok(numbers)
}

fuzz_target!(|input: &[u8]| {
    let [kind, field, object @ ..] = input else { return };
    assert_eq!(*raw_bytes(&held_text(object)), *object, "the text form of a string keeps its bytes");
    let kind = kinds::ALL[usize::from(*kind) % kinds::ALL.len()];
    let _ = (kind.decode)(&Bytes::copy_from_slice(object));
    let field = u32::from(*field % 64) + 1;
    let mut content = Vec::new();
    splice::put_bytes(&mut content, field, b"content");
    let Ok(spliced) = splice::replace_fields(object, &[(field, content)]) else { return };
    let others =
        |numbers: Vec<u32>| numbers.into_iter().filter(|number| *number != field).collect::<Vec<_>>();
    let before = fields(object).expect("what can be spliced can be read");
    let after = fields(&spliced).expect("what was spliced can be read");
    assert_eq!(others(before), others(after), "a field was lost");
});
