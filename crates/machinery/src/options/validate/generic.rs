//! The generic flags: the API server, the cloud, and leader election.

use std::path::Path;
use std::time::Duration;

use super::Check;
use crate::model::names::is_subdomain;
use crate::options::duration::format as format_go;

/// How much longer than a retry period the renew deadline must be, because a retry waits up to this much longer by
/// chance; client-go's own factor, in tenths.
const JITTER_TENTHS: u32 = 12;

const CONTENT_TYPES: [&str; 2] = ["application/vnd.kubernetes.protobuf", "application/json"];

impl Check<'_> {
    pub(super) fn generic(&mut self) {
        let flags = self.flags;
        if !matches!(flags.cloud_provider.as_str(), "" | "external") {
            let problem = format!("unknown cloud provider {:?}", flags.cloud_provider);
            self.fail("cloud-provider", problem, "external, or empty for none");
        }
        if flags.cidr_allocator_type != "RangeAllocator" {
            let problem = format!("unknown allocator {:?}", flags.cidr_allocator_type);
            self.fail("cidr-allocator-type", problem, "RangeAllocator");
        }
        if !flags.kube_api_content_type.is_empty()
            && !CONTENT_TYPES.contains(&flags.kube_api_content_type.as_str())
        {
            let problem = format!("unsupported media type {:?}", flags.kube_api_content_type);
            self.fail("kube-api-content-type", problem, CONTENT_TYPES.join(", "));
        }
        if flags.kube_api_qps > 0.0 && flags.kube_api_burst < 1 {
            let problem = format!("a burst of {} would block all requests", flags.kube_api_burst);
            self.fail("kube-api-burst", problem, "1 or more while --kube-api-qps is above 0");
        }
        self.file_if_named("kubeconfig", &flags.kubeconfig);
        if !flags.master.is_empty() && !is_server_address(&flags.master) {
            let problem = format!("{:?} is not a server address", flags.master);
            self.fail("master", problem, "HOST:PORT or a URL that begins with https:// or http://");
        }
    }

    pub(super) fn election(&mut self) {
        let flags = self.flags;
        if flags.enable_leader_migration && !flags.leader_elect {
            self.warn("enable-leader-migration", "has no effect with --leader-elect=false");
        }
        if !flags.leader_elect {
            return;
        }
        if flags.leader_elect_resource_lock != "leases" {
            let problem = format!("unknown lock {:?}", flags.leader_elect_resource_lock);
            self.fail("leader-elect-resource-lock", problem, "leases");
        }
        for (flag, value) in [
            ("leader-elect-resource-name", &flags.leader_elect_resource_name),
            ("leader-elect-resource-namespace", &flags.leader_elect_resource_namespace),
        ] {
            if !is_subdomain(value) {
                self.fail(
                    flag,
                    format!("{value:?} is not a valid object name"),
                    "lower-case letters, digits, - and .",
                );
            }
        }
        self.election_timings();
    }

    fn election_timings(&mut self) {
        let lease = self.flags.leader_elect_lease_duration;
        let renew = self.flags.leader_elect_renew_deadline;
        let retry = self.flags.leader_elect_retry_period;
        let longest_retry = retry * JITTER_TENTHS / 10;
        let [lease_text, renew_text, retry_text, longest_text] =
            [lease, renew, retry, longest_retry].map(format_go);
        // A Lease holds its duration in whole seconds.
        if lease < Duration::from_secs(1) {
            self.fail("leader-elect-lease-duration", format!("{lease_text} is too short"), "1s or more");
        }
        if retry.is_zero() {
            self.fail("leader-elect-retry-period", "0s is too short", "more than 0s");
        }
        if lease <= renew {
            let problem = format!(
                "{lease_text} is not longer than --leader-elect-renew-deadline={renew_text}, so two replicas could \
                 lead at the same time"
            );
            self.fail("leader-elect-lease-duration", problem, format!("more than {renew_text}"));
        }
        if renew <= longest_retry {
            let problem = format!(
                "{renew_text} is too short for two attempts with --leader-elect-retry-period={retry_text}"
            );
            let allowed = format!("more than {longest_text} (1.2 retry periods)");
            self.fail("leader-elect-renew-deadline", problem, allowed);
        }
    }

    /// Requires a file that a flag names to be readable.
    pub(super) fn file_if_named(&mut self, flag: &str, path: &str) {
        if path.is_empty() {
            return;
        }
        let problem = match std::fs::File::open(path) {
            Ok(_) if Path::new(path).is_dir() => "is a directory".to_owned(),
            Ok(_) => return,
            Err(error) => error.to_string(),
        };
        self.unreadable(flag, path, problem);
    }
}

fn is_server_address(text: &str) -> bool {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    with_scheme.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    })
}
