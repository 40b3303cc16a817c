//! The authority that signs certificates, in its two files, as an admin keeps them: replaced by another with or without a pause
//! between the files, taken away, spoiled, and put right. Whoever checks certificates is told at once what the files hold.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tempfile::TempDir;
use tokio::time::sleep;

use super::Calm;
use crate::faults::Muted;
use crate::server::Server;
use apiserver_model::dice::Dice;

const ROTATED: &str = "the authority is replaced";
const BROKEN: &str = "the authority's files are of no use";
/// What happens to the files.
pub(super) const ACTS: &[&str] = &[ROTATED, BROKEN];

/// The two files.
pub(crate) struct Files {
    directory: TempDir,
}

/// What one of the files holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    /// What is of the authority of this number.
    Of(u32),
    /// What is of two authorities.
    Two(u32, u32),
    /// The beginning of what is of this authority.
    Begun(u32),
    Nonsense,
    /// There is no file.
    Missing,
}

/// An Ed25519 key in PKCS#8, before its 32 bytes.
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The key of this number, which is no secret.
pub(super) fn key(number: u32) -> rcgen::KeyPair {
    let mut der = PKCS8.to_vec();
    der.extend([0x5a; 28]);
    der.extend(number.to_be_bytes());
    let text = BASE64_STANDARD.encode(&der);
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n");
    rcgen::KeyPair::from_pem(&pem).expect("a key")
}

/// The certificate of an authority: as PEM, and as DER. Some authorities bear the same name.
fn certificate(number: u32) -> (String, Vec<u8>) {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, format!("authority-{}", number % 2));
    let made = params.self_signed(&key(number)).expect("a certificate");
    (made.pem(), made.der().to_vec())
}

/// The bundle that managers are told to publish: of an authority that signs nothing here.
pub(crate) static BUNDLE: LazyLock<String> = LazyLock::new(|| certificate(1_000_000).0);

impl Half {
    /// What is in the file, of what authorities have in theirs.
    fn content(self, of: impl Fn(u32) -> String) -> Option<String> {
        Some(match self {
            Self::Of(number) => of(number),
            Self::Two(one, other) => of(one) + &of(other),
            Self::Begun(number) => of(number).chars().take(70).collect(),
            Self::Nonsense => "nonsense".to_owned(),
            Self::Missing => return None,
        })
    }
}

impl Files {
    /// Files with an authority that can sign.
    pub(crate) fn new(server: &Server) -> Self {
        let files = Self { directory: tempfile::tempdir().expect("a directory") };
        std::fs::write(files.path("root.crt"), &*BUNDLE).expect("a file");
        files.put(server, Half::Of(0), Half::Of(0));
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where they are: somewhere else in each run.
    pub(crate) fn directory(&self) -> String {
        self.directory.path().display().to_string()
    }

    /// By which managers find them.
    pub(crate) fn flags(&self) -> [String; 3] {
        let flag =
            |half: &str, name: &str| format!("--cluster-signing-{half}-file={}", self.path(name).display());
        let root = format!("--root-ca-file={}", self.path("root.crt").display());
        [flag("cert", "ca.crt"), flag("key", "ca.key"), root]
    }

    fn put(&self, server: &Server, first: Half, second: Half) {
        let write = |name: &str, content: Option<String>| match content {
            Some(content) => std::fs::write(self.path(name), content).expect("a file"),
            None => drop(std::fs::remove_file(self.path(name))),
        };
        write("ca.crt", first.content(|number| certificate(number).0));
        write("ca.key", second.content(|number| key(number).serialize_pem()));
        let of_use = match (first, second) {
            (Half::Of(number), Half::Of(of)) if number == of => Some(certificate(number).1),
            _ => None,
        };
        server.tell(&format!("  the authority's files: {first:?}, {second:?}"));
        let now = server.now();
        server.checks(|checks| checks.published(now, of_use));
    }
}

/// Replaces and spoils the authority until it is calm; then it is put right for good.
pub(crate) async fn authority(server: Arc<Server>, files: &Files, seed: u64, calm: Calm, muted: Muted) {
    let mut dice = Dice::new(seed, "authority");
    let longest = *dice.pick(&[20_000, 60_000, 120_000]).unwrap_or(&60_000);
    // Managers that end while the files are of no use do not come back: most runs do not leave them so for long.
    let pause = *dice.pick(&[5_000, 20_000, 60_000]).unwrap_or(&20_000);
    let (mut current, mut newest) = (0_u32, 0_u32);
    loop {
        sleep(dice.millis(1_000, longest)).await;
        if calm.has_begun() {
            break;
        }
        let next = match dice.below(10) {
            0..7 => {
                newest += 1;
                newest
            }
            7 => newest.saturating_sub(1),
            _ => current,
        };
        let (old, new) = (Half::Of(current), Half::Of(next));
        // What is there between the two.
        let halves = [
            (new, old),
            (old, new),
            (Half::Missing, old),
            (old, Half::Missing),
            (Half::Begun(next), old),
            (new, Half::Begun(next)),
            (Half::Nonsense, Half::Nonsense),
            (Half::Two(next, current), new),
        ];
        let (between, pause) = (dice.pick(&halves).copied(), dice.millis(100, pause));
        if let Some((first, second)) = between
            && !muted.contains(BROKEN)
        {
            files.put(&server, first, second);
            sleep(pause).await;
        }
        if !muted.contains(ROTATED) {
            current = next;
        }
        files.put(&server, Half::Of(current), Half::Of(current));
    }
    std::future::pending::<()>().await;
}
