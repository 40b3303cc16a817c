//! The secure port, and the certificates that controllers sign with.

use super::Check;
use super::files::Pair;
use crate::options::controllers::DISABLE_ONLY;

impl Check<'_> {
    pub(super) fn serving(&mut self) {
        let flags = self.flags;
        let port = flags.secure_port;
        if !(0..=65535).contains(&port) {
            self.fail("secure-port", format!("{port} is not a port"), "1 to 65535, or 0 to disable the port");
        }
        self.admin();
        if port == 0 && flags.admin_port == 0 {
            let message = "0 disables health checks and metrics; serving flags are ignored";
            self.warn("secure-port", message);
            return;
        }
        if !(0..=i64::from(u32::MAX)).contains(&flags.http2_max_streams_per_connection) {
            let message = "out of range; using the default limit";
            self.warn("http2-max-streams-per-connection", message);
        }
        self.pair(&Pair {
            cert_flag: "tls-cert-file",
            cert_file: &flags.tls_cert_file,
            key_flag: "tls-private-key-file",
            key_file: &flags.tls_private_key_file,
        });
        for sni in &flags.tls_sni_cert_key {
            self.pair(&Pair {
                cert_flag: "tls-sni-cert-key",
                cert_file: &sni.cert_file,
                key_flag: "tls-sni-cert-key",
                key_file: &sni.key_file,
            });
        }
        if !flags.cert_dir.is_empty()
            && flags.tls_cert_file.is_empty()
            && std::path::Path::new(&flags.cert_dir).is_file()
        {
            let problem = format!("{:?} is a file", flags.cert_dir);
            self.fail("cert-dir", problem, "a directory, which is created if it does not exist");
        }
    }

    fn admin(&mut self) {
        let flags = self.flags;
        let port = flags.admin_port;
        if !(0..=65535).contains(&port) {
            let allowed = "1 to 65535, or 0 to serve the admin API on the secure port";
            self.fail("admin-port", format!("{port} is not a port"), allowed);
        }
        if port != 0 && port == flags.secure_port {
            let allowed = "another port, or 0 to serve the admin API on the secure port";
            self.fail("admin-port", format!("{port} is also --secure-port"), allowed);
        }
        if !matches!(flags.admin_overrides.as_str(), "all" | DISABLE_ONLY) {
            let problem = format!("unknown value {:?}", flags.admin_overrides);
            self.fail("admin-overrides", problem, "all, or disable-only");
        }
        for origin in flags.admin_cors_allowed_origins.iter().filter(|origin| *origin != "*") {
            if !is_origin(origin) {
                let allowed = "SCHEME://HOST[:PORT] as browsers send it, without a path, or * for all";
                self.fail("admin-cors-allowed-origins", format!("{origin:?} is not an origin"), allowed);
            }
        }
        if !flags.admin_cors_allowed_origins.is_empty() && !flags.admin_grpc_web {
            self.warn("admin-cors-allowed-origins", "has no effect without --admin-grpc-web");
        }
    }

    pub(super) fn signing(&mut self) {
        let flags = self.flags;
        let general = Pair {
            cert_flag: "cluster-signing-cert-file",
            cert_file: &flags.cluster_signing_cert_file,
            key_flag: "cluster-signing-key-file",
            key_file: &flags.cluster_signing_key_file,
        };
        let single = [
            Pair {
                cert_flag: "cluster-signing-kubelet-serving-cert-file",
                cert_file: &flags.cluster_signing_kubelet_serving_cert_file,
                key_flag: "cluster-signing-kubelet-serving-key-file",
                key_file: &flags.cluster_signing_kubelet_serving_key_file,
            },
            Pair {
                cert_flag: "cluster-signing-kubelet-client-cert-file",
                cert_file: &flags.cluster_signing_kubelet_client_cert_file,
                key_flag: "cluster-signing-kubelet-client-key-file",
                key_file: &flags.cluster_signing_kubelet_client_key_file,
            },
            Pair {
                cert_flag: "cluster-signing-kube-apiserver-client-cert-file",
                cert_file: &flags.cluster_signing_kube_apiserver_client_cert_file,
                key_flag: "cluster-signing-kube-apiserver-client-key-file",
                key_file: &flags.cluster_signing_kube_apiserver_client_key_file,
            },
            Pair {
                cert_flag: "cluster-signing-legacy-unknown-cert-file",
                cert_file: &flags.cluster_signing_legacy_unknown_cert_file,
                key_flag: "cluster-signing-legacy-unknown-key-file",
                key_file: &flags.cluster_signing_legacy_unknown_key_file,
            },
        ];
        let any_general = !(general.cert_file.is_empty() && general.key_file.is_empty());
        for pair in &single {
            let flag = if pair.cert_file.is_empty() { pair.key_flag } else { pair.cert_flag };
            if any_general && !(pair.cert_file.is_empty() && pair.key_file.is_empty()) {
                let problem = "conflicts with --cluster-signing-cert-file and --cluster-signing-key-file";
                self.fail(flag, problem, "one CA for all signers, or one for each signer");
            }
        }
        // Half a pair for one signer stops the original; half a general one makes its controller skip itself. The
        // files themselves matter only to that controller.
        let runs = self.runs("certificatesigningrequest-signing-controller");
        for pair in &single {
            if self.whole(pair) && runs {
                self.authority(pair);
            }
        }
        if general.cert_file.is_empty() != general.key_file.is_empty() {
            let flag = if general.cert_file.is_empty() { general.key_flag } else { general.cert_flag };
            self.warn(flag, "the other file of the pair is missing; nothing is signed");
        } else if any_general && runs {
            self.authority(&general);
        }
    }

    pub(super) fn service_accounts(&mut self) {
        let flags = self.flags;
        let makes_tokens = !flags.service_account_private_key_file.is_empty();
        let publishers = [
            "kube-apiserver-serving-clustertrustbundle-publisher-controller",
            "root-ca-certificate-publisher-controller",
        ];
        if makes_tokens || publishers.iter().any(|name| self.runs(name)) {
            self.authorities("root-ca-file", &flags.root_ca_file);
        }
        if makes_tokens {
            self.token_key("service-account-private-key-file", &flags.service_account_private_key_file);
        } else if flags.use_service_account_credentials {
            // Since tokens come from TokenRequest, credentials need no key of the manager's; the original warns too.
            // Differs: no.
            self.warn(
                "use-service-account-credentials",
                "--service-account-private-key-file is not set, so token Secrets stay empty",
            );
        }
    }
}

/// Whether a text is what browsers send as an origin: a scheme and an authority, nothing after.
fn is_origin(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok_and(|uri| {
        let authority = uri.authority().map(http::uri::Authority::as_str);
        uri.scheme_str().zip(authority).is_some_and(|(scheme, authority)| {
            !authority.contains('@') && text == format!("{scheme}://{authority}")
        })
    })
}
