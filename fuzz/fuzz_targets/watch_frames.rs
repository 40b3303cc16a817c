//! Whatever bytes a watch or a list is answered with, they are decoded or refused, as any kind of object.
//!
//! The first byte chooses the kind, the rest is a frame of a watch and a list, as a server that is not one would send them.

#![no_main]

use bytes::Bytes;
use coxswain_machinery::api::kinds;
use coxswain_machinery::wire::{ObjectHead, WatchFrame, decode_list, envelope_kind, unwrap_envelope};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [kind, rest @ ..] = input else { return };
    let kind = kinds::ALL[usize::from(*kind) % kinds::ALL.len()];
    let bytes = Bytes::copy_from_slice(rest);
    let decode = |object: &Bytes| {
        // What is refused has a head all the same, or none.
        let _ = ObjectHead::read(object).and_then(|head| head.has_annotation("a", "b"));
        let _ = (kind.decode)(object);
    };
    if let Ok(frame) = WatchFrame::decode(&bytes) {
        assert!(frame.object.len() <= bytes.len(), "an object is a part of its frame");
        decode(&frame.object);
    }
    let _ = envelope_kind(&bytes);
    let list = unwrap_envelope(&bytes).unwrap_or_else(|_| bytes.clone());
    if let Ok(page) = decode_list(&list) {
        assert!(
            page.items.iter().map(Bytes::len).sum::<usize>() <= list.len(),
            "items are parts of their list"
        );
        page.items.iter().for_each(decode);
    }
});
