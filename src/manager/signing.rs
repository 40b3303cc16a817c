//! The authorities that sign certificates, in the files that `--cluster-signing-*` names.
//!
//! The files are read again at each signing, so what signs is what they hold at that moment. Files that can't be used change
//! nothing: what was in force stays, and so one file can be replaced after the other. They are also read every few seconds
//! when nobody signs, by standbys too: else what was in force could be an authority that was replaced long ago. Nothing here
//! shows what is in a file.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use prometheus::IntGaugeVec;
use ring::digest;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::error::ManagerError;
use coxswain_controllers::identity::certificatesigningrequest_signing::authority::{
    Authority, AuthorityError,
};
use coxswain_controllers::identity::certificatesigningrequest_signing::{DESCRIPTOR, finisher};
use coxswain_controllers::identity::signers::Signer;
use coxswain_machinery::environment::Threads;
use coxswain_machinery::executor::{FinishError, Finisher, Finishers};
use coxswain_machinery::framework::BlockingPool;
use coxswain_machinery::options::{Config, Flags, SelectionState};
use coxswain_machinery::serve::{ServingSigner, SignedCertificate, SigningCa};
use coxswain_machinery::telemetry::{Registrar, Registry};

/// How often the files are read when nobody signs.
const LOOK: Duration = Duration::from_secs(5);

/// Those that sign.
#[derive(Default)]
pub(super) struct Authorities(Vec<Arc<FileAuthority>>);

impl Authorities {
    /// Those for which there are files. They must be of use if somebody is to sign with them.
    pub(super) fn load(
        config: &Config,
        threads: Threads,
        pool: &BlockingPool,
        metrics: &Registry,
    ) -> Result<Self, ManagerError> {
        let ends = Registrar::new(metrics).int_gauges(
            "coxswain_signing_ca_not_after_seconds",
            "Expiry of a signer's CA certificate, in seconds since 1970.",
            &["signer"],
        )?;
        if !config.selection(&DESCRIPTOR).selected && config.overrides_only_disable() {
            // Nobody can sign with them.
            return Ok(Self::default());
        }
        let are_needed = config.controller_state(&DESCRIPTOR) == SelectionState::Enabled;
        let mut all = Vec::new();
        for signer in Signer::ALL {
            let Some([certificate, key]) = files(&config.flags, signer) else { continue };
            match FileAuthority::load(signer, [certificate, key].map(PathBuf::from), (threads, pool), &ends) {
                Ok(authority) => all.push(Arc::new(authority)),
                Err(error) if are_needed => return Err(error),
                Err(_) => {}
            }
        }
        Ok(Self(all))
    }

    /// The same finishers and these.
    pub(super) fn join(&self, finishers: Finishers) -> Finishers {
        self.0.iter().fold(finishers, |finishers, authority| {
            finishers.with(finisher(authority.signer), Arc::clone(authority) as _)
        })
    }

    /// The one of `--cluster-signing-cert-file` and `--cluster-signing-key-file`, to sign this replica's serving certificate. `None`
    /// without these flags, and where the signing controller may not run: then nothing is signed by the CA.
    pub(super) fn serving_signer(&self, flags: &Flags) -> Option<Arc<dyn ServingSigner>> {
        let [certificate, key] = [&flags.cluster_signing_cert_file, &flags.cluster_signing_key_file];
        let is_given = !certificate.is_empty() && !key.is_empty();
        let has_files = |each: &&Arc<FileAuthority>| {
            [&each.certificate, &each.key] == [Path::new(certificate), Path::new(key)]
        };
        self.0.iter().filter(|_| is_given).find(has_files).map(|found| Arc::clone(found) as _)
    }

    /// Reads the files again and again.
    pub(super) async fn keep_current(&self) -> Infallible {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        loop {
            sleep(LOOK).await;
            for authority in &self.0 {
                // Why one can't sign is said when it is to sign.
                drop(authority.current().await);
            }
        }
    }
}

/// Certificate and key of a signer: its own, or those for all.
fn files(flags: &Flags, signer: Signer) -> Option<[&str; 2]> {
    let own = match signer {
        Signer::KubeletServing => [
            &flags.cluster_signing_kubelet_serving_cert_file,
            &flags.cluster_signing_kubelet_serving_key_file,
        ],
        Signer::KubeletClient => {
            [&flags.cluster_signing_kubelet_client_cert_file, &flags.cluster_signing_kubelet_client_key_file]
        }
        Signer::ApiServerClient => [
            &flags.cluster_signing_kube_apiserver_client_cert_file,
            &flags.cluster_signing_kube_apiserver_client_key_file,
        ],
        Signer::LegacyUnknown => {
            [&flags.cluster_signing_legacy_unknown_cert_file, &flags.cluster_signing_legacy_unknown_key_file]
        }
    };
    let general = [&flags.cluster_signing_cert_file, &flags.cluster_signing_key_file];
    let given = |pair: &[&String; 2]| pair.iter().all(|file| !file.is_empty());
    [own, general].into_iter().find(given).map(|pair| pair.map(String::as_str))
}

/// An authority in two files.
struct FileAuthority {
    signer: Signer,
    certificate: PathBuf,
    key: PathBuf,
    threads: Threads,
    pool: BlockingPool,
    /// When CAs expire, by signer.
    ends: IntGaugeVec,
    /// Held while the files are read, so that what was read last is what is in force.
    held: Mutex<Held>,
}

/// What was read last, and what is in force.
struct Held {
    /// The digest of what was read.
    seen: [u8; digest::SHA256_OUTPUT_LEN],
    /// The authority, or why none can sign.
    authority: Result<Arc<Authority>, String>,
    /// Whether the files could not be read the last time.
    lost: bool,
}

impl FileAuthority {
    fn load(
        signer: Signer,
        [certificate, key]: [PathBuf; 2],
        (threads, pool): (Threads, &BlockingPool),
        ends: &IntGaugeVec,
    ) -> Result<Self, ManagerError> {
        let wrong = |path: &Path, why: String| ManagerError::Authority {
            signer: signer.name(),
            path: path.to_owned(),
            why,
        };
        let read = |path: &Path| std::fs::read(path).map_err(|error| wrong(path, error.to_string()));
        let contents = [read(&certificate)?, read(&key)?];
        let authority = Authority::from_pem(&contents[0], &contents[1])
            .map_err(|error| wrong(&certificate, error.to_string()))?;
        let held = Held { seen: digest_of(&contents), authority: Ok(Arc::new(authority)), lost: false };
        let (pool, ends) = (pool.clone(), ends.clone());
        report(signer, &held.authority, &ends);
        Ok(Self { signer, certificate, key, threads, pool, ends, held: Mutex::new(held) })
    }

    async fn current(&self) -> Result<Arc<Authority>, String> {
        let mut held = self.held.lock().await;
        let paths = [self.certificate.clone(), self.key.clone()];
        let read = move || -> io::Result<[Vec<u8>; 2]> {
            let [certificate, key] = paths.map(std::fs::read);
            Ok([certificate?, key?])
        };
        match self.threads.blocking(read).await.map_err(io::Error::other).flatten() {
            Ok(contents) => {
                held.lost = false;
                self.take(&mut held, &contents);
            }
            Err(error) if !held.lost => {
                held.lost = true;
                tracing::error!(signer = self.signer.name(), %error, "Failed to read the signing CA; keeping the previous one");
            }
            Err(_) => {}
        }
        report(self.signer, &held.authority, &self.ends);
        held.authority.clone()
    }

    /// Puts in force what was read, if it is new and of use.
    fn take(&self, held: &mut Held, contents: &[Vec<u8>; 2]) {
        let seen = digest_of(contents);
        if seen == held.seen {
            return;
        }
        held.seen = seen;
        match Authority::from_pem(&contents[0], &contents[1]) {
            Ok(authority) => {
                tracing::info!(signer = self.signer.name(), "Reloaded the signing CA");
                held.authority = Ok(Arc::new(authority));
            }
            // Which of them is meant is not known: nothing is signed until the file is put right, as in the original.
            Err(error @ AuthorityError::NotOne(_)) => {
                let why = format!("error reading CA cert file \"{}\": {error}", self.certificate.display());
                tracing::error!(
                    signer = self.signer.name(),
                    why,
                    "The signing CA is unusable; certificates are not signed"
                );
                held.authority = Err(why);
            }
            Err(error) => {
                tracing::error!(signer = self.signer.name(), %error, "Failed to load the signing CA; keeping the previous one");
            }
        }
    }
}

/// Sets when the CA of a signer expires; there is no series for a signer that has none.
fn report(signer: Signer, authority: &Result<Arc<Authority>, String>, ends: &IntGaugeVec) {
    match authority {
        Ok(authority) => ends.with_label_values(&[signer.name()]).set(authority.not_after()),
        // There may be no series: this is also the state before.
        Err(_) => drop(ends.remove_label_values(&[signer.name()])),
    }
}

fn digest_of(contents: &[Vec<u8>; 2]) -> [u8; digest::SHA256_OUTPUT_LEN] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&(contents[0].len() as u64).to_be_bytes());
    for content in contents {
        context.update(content);
    }
    let mut out = [0; digest::SHA256_OUTPUT_LEN];
    out.copy_from_slice(context.finish().as_ref());
    out
}

impl Finisher for FileAuthority {
    fn finish<'a>(
        &'a self,
        object: &'a [u8],
        details: &'a Value,
    ) -> BoxFuture<'a, Result<Vec<u8>, FinishError>> {
        Box::pin(async move {
            let authority = self
                .current()
                .await
                .map_err(|why| FinishError::Failed(format!("error auto signing csr: {why}")))?;
            let (object, details) = (Bytes::copy_from_slice(object), details.clone());
            self.pool.run(move || authority.finish(&object, &details)).await
        })
    }
}

impl ServingSigner for FileAuthority {
    fn ca(&self) -> BoxFuture<'_, Result<SigningCa, String>> {
        Box::pin(async { self.current().await.map(|authority| authority.ca()) })
    }

    fn sign(&self, public_key: Vec<u8>, now: Timestamp) -> BoxFuture<'_, Result<SignedCertificate, String>> {
        Box::pin(async move {
            let authority = self.current().await?;
            self.pool.run(move || authority.issue_serving(&public_key, now)).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coxswain_machinery::telemetry::encode_text;

    /// A directory with an authority in it, and others to put in its place.
    struct Files(tempfile::TempDir);

    fn authority(name: &str) -> [String; 2] {
        authority_until(name, 4096)
    }

    /// One that expires at the beginning of a year.
    fn authority_until(name: &str, year: i32) -> [String; 2] {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        [params.self_signed(&key).unwrap().pem(), key.serialize_pem()]
    }

    fn ends() -> IntGaugeVec {
        IntGaugeVec::new(prometheus::Opts::new("ends", "Ends."), &["signer"]).unwrap()
    }

    impl Files {
        fn path(&self, file: &str) -> PathBuf {
            self.0.path().join(file)
        }

        fn put(&self, file: &str, content: &str) {
            std::fs::write(self.path(file), content).unwrap();
        }

        fn load(&self) -> Result<FileAuthority, ManagerError> {
            let on = (Threads::Own, &BlockingPool::new(Threads::Own, 1));
            FileAuthority::load(Signer::KubeletServing, [self.path("crt"), self.path("key")], on, &ends())
        }
    }

    /// Who signs now.
    async fn name(authority: &FileAuthority) -> Result<String, String> {
        authority.current().await.map(|authority| format!("{authority:?}"))
    }

    #[tokio::test]
    async fn what_signs_is_what_the_files_hold() {
        let files = Files(tempfile::tempdir().unwrap());
        let ([a, a_key], [b, b_key]) = (authority("a"), authority("b"));
        files.put("crt", &a);
        files.put("key", &a_key);
        let loaded = files.load().unwrap();
        let is = |name: &str| Ok(format!("Authority {{ name: \"CN={name}\", .. }}"));
        assert_eq!(name(&loaded).await, is("a"));
        files.put("crt", &b);
        assert_eq!(name(&loaded).await, is("a"), "half-way");
        files.put("key", &b_key);
        assert_eq!(name(&loaded).await, is("b"));
        files.put("key", &a_key);
        assert_eq!(name(&loaded).await, is("b"), "half-way, the other way");
        files.put("crt", &a);
        assert_eq!(name(&loaded).await, is("a"));
        std::fs::remove_file(files.path("key")).unwrap();
        assert_eq!(name(&loaded).await, is("a"), "without the file");
        files.put("key", "nonsense");
        assert_eq!(name(&loaded).await, is("a"), "without a key");
        files.put("key", &a_key);
        files.put("crt", &format!("{a}{b}"));
        let several = name(&loaded).await.unwrap_err();
        assert!(several.ends_with("expected 1 certificate, found 2"), "{several}");
        assert!(several.starts_with("error reading CA cert file"), "{several}");
        files.put("crt", &a);
        assert_eq!(name(&loaded).await, is("a"), "put right");
    }

    #[tokio::test]
    async fn keys_that_no_controller_may_use_are_not_loaded() {
        let files = Files(tempfile::tempdir().unwrap());
        let [certificate, key] = authority("a");
        files.put("crt", &certificate);
        files.put("key", &key);
        let loaded = |selectors: &[&str], overrides: &str| {
            let flags = Flags {
                cluster_signing_cert_file: files.path("crt").to_string_lossy().into_owned(),
                cluster_signing_key_file: files.path("key").to_string_lossy().into_owned(),
                controllers: selectors.iter().map(|selector| (*selector).to_owned()).collect(),
                admin_overrides: overrides.to_owned(),
                ..Flags::default()
            };
            let config = Config { flags, ..Config::default() };
            Authorities::load(&config, Threads::Own, &BlockingPool::inline(), &Registry::new())
                .unwrap()
                .0
                .len()
        };
        let without = ["*", "-certificatesigningrequest-signing-controller"];
        assert_eq!(loaded(&["*"], "disable-only"), Signer::ALL.len());
        assert_eq!(loaded(&without, "all"), Signer::ALL.len(), "an order with force may run it");
        assert_eq!(loaded(&without, "disable-only"), 0);
    }

    #[tokio::test]
    async fn serving_certificates_are_signed_by_the_general_pair_alone() {
        let files = Files(tempfile::tempdir().unwrap());
        let [certificate, key] = authority("a");
        files.put("crt", &certificate);
        files.put("key", &key);
        let [crt, key] = ["crt", "key"].map(|file| files.path(file).display().to_string());
        let signer = |flags: &Flags| {
            let config = Config { flags: flags.clone(), ..Config::default() };
            let all =
                Authorities::load(&config, Threads::Own, &BlockingPool::inline(), &Registry::new()).unwrap();
            all.serving_signer(flags)
        };
        let general = Flags {
            cluster_signing_cert_file: crt.clone(),
            cluster_signing_key_file: key.clone(),
            ..Flags::default()
        };
        let subject = rcgen::PublicKeyData::subject_public_key_info(&rcgen::KeyPair::generate().unwrap());
        let now: Timestamp = "2026-07-01T00:00:00Z".parse().unwrap();
        let found = signer(&general).unwrap();
        let signed = found.sign(subject, now).await.unwrap();
        assert_eq!(signed.ca, found.ca().await.unwrap());
        assert!(signed.not_after > now.as_second());

        let nodes = Flags {
            cluster_signing_kubelet_serving_cert_file: crt,
            cluster_signing_kubelet_serving_key_file: key,
            ..Flags::default()
        };
        assert!(signer(&nodes).is_none(), "clients do not trust the CA of kubelets");
        assert!(signer(&Flags::default()).is_none());
        let controllers = ["*", "-certificatesigningrequest-signing-controller"].map(str::to_owned).to_vec();
        let without = Flags { controllers, admin_overrides: "disable-only".to_owned(), ..general };
        assert!(signer(&without).is_none(), "the CA's key signs nothing then");
    }

    /// An authority that was in the files while nobody signed is the one that files of no use leave in force, not the one
    /// before it.
    #[tokio::test(start_paused = true)]
    async fn what_was_replaced_when_nobody_signed_does_not_come_back() {
        let files = Files(tempfile::tempdir().unwrap());
        let ([a, a_key], [b, b_key], [c, _]) = (authority("a"), authority("b"), authority("c"));
        files.put("crt", &a);
        files.put("key", &a_key);
        let flags = Flags {
            cluster_signing_cert_file: files.path("crt").display().to_string(),
            cluster_signing_key_file: files.path("key").display().to_string(),
            ..Flags::default()
        };
        let config = Config { flags, ..Config::default() };
        let all =
            Authorities::load(&config, Threads::Callers, &BlockingPool::inline(), &Registry::new()).unwrap();
        files.put("crt", &b);
        files.put("key", &b_key);
        let soon = tokio::time::timeout(LOOK * 2, all.keep_current());
        assert!(soon.await.is_err(), "it goes on");
        files.put("crt", &c);
        for signs in &all.0 {
            assert_eq!(name(signs).await, Ok("Authority { name: \"CN=b\", .. }".to_owned()));
        }
        assert_eq!(all.0.len(), Signer::ALL.len());
    }

    #[tokio::test]
    async fn end_of_each_signing_ca_in_force_is_a_metric() {
        let files = Files(tempfile::tempdir().unwrap());
        let metrics = Registry::new();
        let put = |[certificate, key]: &[String; 2]| {
            files.put("crt", certificate);
            files.put("key", key);
        };
        let flags = Flags {
            cluster_signing_kubelet_client_cert_file: files.path("crt").display().to_string(),
            cluster_signing_kubelet_client_key_file: files.path("key").display().to_string(),
            ..Flags::default()
        };
        let config = Config { flags, ..Config::default() };
        let (first, second) = (authority_until("a", 2027), authority_until("b", 2037));
        put(&first);
        let all = Authorities::load(&config, Threads::Own, &BlockingPool::inline(), &metrics).unwrap();
        let series = || {
            let page = encode_text(&metrics);
            let of_ca =
                page.lines().filter_map(|line| line.strip_prefix("coxswain_signing_ca_not_after_seconds"));
            let parsed = of_ca.map(|line| {
                let (labels, seconds) = line.split_once(' ').unwrap();
                (
                    labels.to_owned(),
                    Timestamp::from_second(seconds.parse::<f64>().unwrap() as i64).unwrap().to_string(),
                )
            });
            parsed.collect::<Vec<_>>()
        };
        let is = |year: &str| {
            let labels = r#"{signer="kubernetes.io/kube-apiserver-client-kubelet"}"#.to_owned();
            vec![(labels, format!("{year}-01-01T00:00:00Z"))]
        };
        assert_eq!(series(), is("2027"));
        put(&second);
        all.0[0].current().await.unwrap();
        assert_eq!(series(), is("2037"));
        files.put("crt", &format!("{}{}", second[0], first[0]));
        all.0[0].current().await.unwrap_err();
        assert!(series().is_empty(), "nothing can sign");
    }

    #[test]
    fn what_cannot_sign_is_refused_at_once() {
        let files = Files(tempfile::tempdir().unwrap());
        let ([a, a_key], [b, _]) = (authority("a"), authority("b"));
        let canary = "canary-in-the-file";
        let two = format!("{a}{b}");
        for (certificate, key, expected) in [
            (a.as_str(), "", "has no PEM private key"),
            (&a, canary, "has no PEM private key"),
            ("", &a_key, "has no valid PEM certificate"),
            (canary, &a_key, "has no valid PEM certificate"),
            (&b, &a_key, "does not match the certificate"),
            (&two, &a_key, "expected 1 certificate, found 2"),
        ] {
            files.put("crt", certificate);
            files.put("key", key);
            let error = files.load().map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("failed to init kubernetes.io/kubelet-serving certificate controller"));
            assert!(error.contains(expected) && !error.contains(canary), "{error}");
        }
    }

    #[test]
    fn a_signer_has_files_of_its_own_or_those_for_all() {
        let flags = Flags::default();
        assert!(Signer::ALL.into_iter().all(|signer| files(&flags, signer).is_none()));
        let half = Flags { cluster_signing_cert_file: "crt".to_owned(), ..Flags::default() };
        assert!(Signer::ALL.into_iter().all(|signer| files(&half, signer).is_none()));
        let all = Flags { cluster_signing_key_file: "key".to_owned(), ..half };
        assert!(Signer::ALL.into_iter().all(|signer| files(&all, signer) == Some(["crt", "key"])));
        let one = Flags {
            cluster_signing_kubelet_client_cert_file: "crt".to_owned(),
            cluster_signing_kubelet_client_key_file: "key".to_owned(),
            ..Flags::default()
        };
        let given: Vec<Signer> =
            Signer::ALL.into_iter().filter(|signer| files(&one, *signer).is_some()).collect();
        assert_eq!(given, [Signer::KubeletClient]);
    }
}
