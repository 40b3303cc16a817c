//! Short hashes in object names, and digests by which large contents are compared.
//!
//! The alphabet is Kubernetes' own for generated names: no vowels and nothing that is easily misread, so that no words
//! come about. See "pod-template-hash" in the documentation of Deployments.

const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The 32-bit FNV-1a hash of all `parts`, one after the other.
pub fn fnv1a<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    for &byte in parts.into_iter().flatten() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    hash
}

/// The 32-bit FNV-1 hash of all `parts`, one after the other: as [`fnv1a`], but it multiplies first.
pub fn fnv1<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    for &byte in parts.into_iter().flatten() {
        hash = hash.wrapping_mul(0x0100_0193) ^ u32::from(byte);
    }
    hash
}

/// `hash` as it may stand in a name or label: at most ten letters and digits.
pub fn encode(hash: u32) -> String {
    let letter = |digit: char| char::from(ALPHABET[digit as usize % ALPHABET.len()]);
    hash.to_string().chars().map(letter).collect()
}

/// A digest of `content` by which it is told from any other: 128 bits of its SHA-256.
pub fn digest(content: &[u8]) -> u128 {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    digest.as_ref().iter().take(16).fold(0, |digest, byte| digest << 8 | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values published with the definition of FNV.
    #[test]
    fn the_published_values_come_out() {
        assert_eq!(fnv1a([b"".as_slice()]), 0x811c_9dc5);
        assert_eq!(fnv1a([b"a".as_slice()]), 0xe40c_292c);
        assert_eq!(fnv1a([b"foo".as_slice(), b"bar".as_slice()]), 0xbf9c_f968);
        assert_eq!(fnv1([b"".as_slice()]), 0x811c_9dc5);
        assert_eq!(fnv1([b"a".as_slice()]), 0x050c_5d7e);
        assert_eq!(fnv1([b"foo".as_slice(), b"bar".as_slice()]), 0x31f0_b262);
    }

    #[test]
    fn every_hash_is_a_short_label_value() {
        for hash in [0, 1, 1_234_567_890, u32::MAX] {
            let text = encode(hash);
            assert!(!text.is_empty() && text.len() <= 10, "{text}");
            assert!(text.bytes().all(|byte| ALPHABET.contains(&byte)), "{text}");
        }
        assert_eq!(encode(0), encode(0));
        assert_ne!(encode(1_234_567_890), encode(1_234_567_891));
    }

    /// From the examples of the Secure Hash Standard.
    #[test]
    fn a_digest_is_the_beginning_of_a_sha256() {
        assert_eq!(digest(b"abc"), 0xba78_16bf_8f01_cfea_4141_40de_5dae_2223);
        assert_ne!(digest(b""), digest(b"\0"));
    }
}
