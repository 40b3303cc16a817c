//! Who may ask the manager what.

use super::Check;

impl Check<'_> {
    pub(super) fn access(&mut self) {
        let flags = self.flags;
        self.file_if_named("authentication-kubeconfig", &flags.authentication_kubeconfig);
        self.file_if_named("authorization-kubeconfig", &flags.authorization_kubeconfig);
        self.authorities("client-ca-file", &flags.client_ca_file);
        self.authorities("requestheader-client-ca-file", &flags.requestheader_client_ca_file);
        for (flag, names) in [
            ("requestheader-username-headers", &flags.requestheader_username_headers),
            ("requestheader-group-headers", &flags.requestheader_group_headers),
            ("requestheader-uid-headers", &flags.requestheader_uid_headers),
            ("requestheader-extra-headers-prefix", &flags.requestheader_extra_headers_prefix),
        ] {
            for name in names {
                if http::HeaderName::try_from(name.trim()).is_err() {
                    self.fail(
                        flag,
                        format!("{name:?} is not the name of a header"),
                        "names such as x-remote-user",
                    );
                }
            }
        }
        if flags.requestheader_allowed_names.iter().any(|name| name.trim().is_empty()) {
            self.fail(
                "requestheader-allowed-names",
                "one of the names is empty",
                "names that are not, or no name",
            );
        }
        if !flags.requestheader_uid_headers.is_empty() && !self.gates.enabled("RemoteRequestHeaderUID") {
            let allowed = "--feature-gates=RemoteRequestHeaderUID=true with it";
            self.fail("requestheader-uid-headers", "the feature RemoteRequestHeaderUID is off", allowed);
        }
        for path in &flags.authorization_always_allow_paths {
            // Observed: a star anywhere but at the end stops the original; a missing slash does not.
            if path.trim_end_matches('*').contains('*') || path.ends_with("**") {
                let problem = format!("{path:?} has a * that is not at its end");
                self.fail(
                    "authorization-always-allow-paths",
                    problem,
                    "paths such as /healthz or /healthz/*",
                );
            }
        }
    }
}
