//! Private keys, each with the handshakes that Go and Coxswain complete with it, and signatures that both verify.

/// A private key that both sides of a connection present.
#[derive(Clone, Copy, Debug)]
pub struct KeyCase {
    /// Its kind and size.
    pub name: &'static str,
    /// The key in PEM.
    pub pem: &'static str,
    /// Whether Go completes a handshake in TLS 1.2 and in TLS 1.3.
    pub go: [bool; 2],
    /// Whether Coxswain does.
    pub coxswain: [bool; 2],
}

macro_rules! case {
    ($name:literal, $path:literal, $go:expr, $coxswain:expr) => {
        KeyCase {
            name: $name,
            pem: include_str!(concat!("../../../../tests/data/", $path, ".key")),
            go: $go,
            coxswain: $coxswain,
        }
    };
    ($name:literal, $path:literal, $both:expr) => {
        case!($name, $path, $both, $both)
    };
}

/// The keys.
pub const KEY_CASES: [KeyCase; 19] = [
    case!("RSA of 1023 bits", "tls/keys/rsa1023", [false, false]),
    case!("RSA of 1024 bits", "authorities/rsa1024", [true, true]),
    // PSS with SHA-512 does not fit.
    case!("RSA of 1032 bits", "tls/keys/rsa1032", [true, true]),
    case!("RSA of 1536 bits", "tls/keys/rsa1536", [true, true]),
    case!("RSA of 2047 bits", "tls/keys/rsa2047", [true, true]),
    case!("RSA of 2048 bits", "authorities/rsa", [true, true]),
    // OpenSSL was asked for 2049 bits.
    case!("RSA of 2048 bits with primes of unequal size", "tls/keys/rsa2049", [true, true]),
    case!("RSA of 4104 bits", "authorities/rsa4104", [true, true]),
    case!("RSA of 8192 bits", "authorities/rsa8192", [true, true]),
    case!("RSA of 8200 bits", "tls/keys/rsa8200", [false, false]),
    case!("P-224", "tls/keys/p224", [true, false], [false, false]),
    case!("P-256", "authorities/p256", [true, true]),
    case!("P-256 without the public part", "authorities/p256-no-public", [true, true]),
    case!("P-384", "authorities/p384", [true, true]),
    case!("P-384 without the public part", "authorities/p384-no-public", [true, true]),
    case!("P-521", "authorities/p521", [true, true]),
    case!("P-521 without the public part", "authorities/p521-no-public", [true, true]),
    case!("secp256k1", "tls/keys/p256k1", [false, false]),
    case!("Ed25519", "authorities/ed25519", [true, true]),
];

macro_rules! chain {
    ($ca:literal, $leaf:literal) => {
        (
            $leaf,
            include_str!(concat!("../../../../tests/data/tls/ca-", $ca, ".crt")),
            include_str!(concat!("../../../../tests/data/tls/leaf-", $leaf, ".crt")),
        )
    };
}

/// Certificates that OpenSSL signed: the name, the CA and the certificate in PEM.
pub const CHAINS: [(&str, &str, &str); 17] = [
    chain!("p224", "p224-sha256"),
    chain!("p224", "p224-sha384"),
    chain!("p224", "p224-sha512"),
    chain!("p256", "p256-sha512"),
    chain!("p384", "p384-sha512"),
    chain!("p521", "p521-sha256"),
    chain!("p521", "p521-sha384"),
    chain!("p521", "p521-sha512"),
    chain!("rsa1024", "rsa1024-sha256"),
    chain!("rsa1024", "rsa1024-sha384"),
    chain!("rsa1024", "rsa1024-sha512"),
    chain!("rsa1536", "rsa1536-sha256"),
    chain!("rsa1536", "rsa1536-sha384"),
    chain!("rsa1536", "rsa1536-sha512"),
    chain!("rsa1536", "rsa1536-pss-sha256"),
    chain!("rsa1536", "rsa1536-pss-sha384"),
    chain!("rsa1536", "rsa1536-pss-sha512"),
];
