//! Who may ask the manager what.

use super::Check;

impl Check<'_> {
    pub(super) fn access(&mut self) {
        let flags = self.flags;
        self.headers();
        if flags.secure_port == 0 && flags.admin_port == 0 {
            return;
        }
        self.file_if_named("authentication-kubeconfig", &flags.authentication_kubeconfig);
        self.file_if_named("authorization-kubeconfig", &flags.authorization_kubeconfig);
        self.authorities("client-ca-file", &flags.client_ca_file);
        self.authorities("requestheader-client-ca-file", &flags.requestheader_client_ca_file);
        for path in &flags.authorization_always_allow_paths {
            // Observed: a star anywhere but at the end stops the original; a missing slash does not.
            if path.trim_end_matches('*').contains('*') || path.ends_with("**") {
                let problem = format!("{path:?} has a * before its end");
                self.fail(
                    "authorization-always-allow-paths",
                    problem,
                    "paths such as /healthz or /healthz/*",
                );
            }
        }
    }

    /// The headers in which a proxy names its user; the original looks at these even when it serves nothing.
    /// Differs: no.
    fn headers(&mut self) {
        let flags = self.flags;
        for (flag, names) in [
            ("requestheader-username-headers", &flags.requestheader_username_headers),
            ("requestheader-group-headers", &flags.requestheader_group_headers),
            ("requestheader-uid-headers", &flags.requestheader_uid_headers),
            ("requestheader-extra-headers-prefix", &flags.requestheader_extra_headers_prefix),
        ] {
            for name in names {
                if name.trim().is_empty() {
                    self.fail(flag, "empty name", "names such as x-remote-user");
                } else if http::HeaderName::try_from(name.trim()).is_err() {
                    let problem = format!("{name:?} is not a valid header name");
                    self.fail(flag, problem, "names such as x-remote-user");
                }
            }
        }
        if flags.requestheader_allowed_names.iter().any(|name| name.trim().is_empty()) {
            self.fail("requestheader-allowed-names", "empty name", "non-empty names, or an empty list");
        }
        let standard = |names: &[String], name: &str| {
            names.is_empty() || names.iter().any(|given| given.trim().eq_ignore_ascii_case(name))
        };
        if !standard(&flags.requestheader_uid_headers, "x-remote-uid") {
            let problem = "missing x-remote-uid, the standard header of API aggregation";
            self.fail("requestheader-uid-headers", problem, "a list with x-remote-uid, or an empty list");
        }
        for (flag, names, name) in [
            ("requestheader-username-headers", &flags.requestheader_username_headers, "x-remote-user"),
            ("requestheader-group-headers", &flags.requestheader_group_headers, "x-remote-group"),
        ] {
            if !standard(names, name) {
                self.warn(
                    flag,
                    format!("{name} is missing; requests through API aggregation will have no user"),
                );
            }
        }
        if !flags.requestheader_uid_headers.is_empty() && !self.gates.enabled("RemoteRequestHeaderUID") {
            let allowed = "only with --feature-gates=RemoteRequestHeaderUID=true";
            self.fail("requestheader-uid-headers", "the feature RemoteRequestHeaderUID is disabled", allowed);
        }
    }
}
