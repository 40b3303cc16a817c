//! Addresses of Pods, Services and Nodes.

use ipnet::IpNet;

use super::Check;
use crate::model::addresses::parse_range;

/// The bits by which an IPv6 range for a Node may be longer than the cluster's: the original's allocator, which keeps a
/// bit for each possible range, dies of more. It has no such limit for IPv4.
/// Differs: strict-flags.
const MAX_IPV6_NODE_BITS: u8 = 16;
/// One for each address family.
const MAX_SERVICE_RANGES: usize = 2;

impl Check<'_> {
    pub(super) fn network(&mut self) {
        let flags = self.flags;
        let services = flags.service_cluster_ip_range.split(',').count();
        if services > MAX_SERVICE_RANGES {
            let problem = format!("{services} CIDRs are set");
            self.fail("service-cluster-ip-range", problem, "one CIDR, or an IPv4 and an IPv6 one");
            return;
        }
        if !flags.allocate_node_cidrs {
            for (flag, value) in [
                ("cluster-cidr", &flags.cluster_cidr),
                ("service-cluster-ip-range", &flags.service_cluster_ip_range),
            ] {
                if !value.is_empty() {
                    self.warn(flag, "is ignored without --allocate-node-cidrs");
                }
            }
            return;
        }
        let service = self.service_ranges();
        let Some(cluster) = self.cidrs("cluster-cidr", &flags.cluster_cidr) else { return };
        if self.runs("node-ipam-controller") {
            self.node_ranges(&cluster, &service);
        }
    }

    /// What the allocator of Node ranges needs.
    fn node_ranges(&mut self, cluster: &[IpNet], service: &[IpNet]) {
        let flags = self.flags;
        self.dual_stack("cluster-cidr", cluster);
        self.dual_stack("service-cluster-ip-range", service);
        let ipv4 = self.mask("node-cidr-mask-size-ipv4", flags.node_cidr_mask_size_ipv4, 32);
        let ipv6 = self.mask("node-cidr-mask-size-ipv6", flags.node_cidr_mask_size_ipv6, 128);
        let any = self.mask("node-cidr-mask-size", flags.node_cidr_mask_size, 128);
        if cluster.is_empty() {
            let problem = "missing, but --allocate-node-cidrs is set";
            self.fail("cluster-cidr", problem, "one or two CIDRs");
        }
        self.mask_is_of_family(cluster, (ipv4, ipv6));
        let dual = cluster.len() > 1;
        if dual && any.is_some() {
            let allowed = "--node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 instead";
            let problem = "ambiguous in a dual-stack cluster";
            self.fail("node-cidr-mask-size", problem, allowed);
        } else if any.is_some() && (ipv4.is_some() || ipv6.is_some()) {
            let allowed = "either this flag, or the flags for IPv4 and IPv6";
            self.fail("node-cidr-mask-size", "also set for IPv4 or IPv6", allowed);
        }
        for net in cluster {
            let (family, flag, default) = match net {
                IpNet::V4(_) => (ipv4, "node-cidr-mask-size-ipv4", 24),
                IpNet::V6(_) => (ipv6, "node-cidr-mask-size-ipv6", 64),
            };
            let flag = if family.is_none() && any.is_some() { "node-cidr-mask-size" } else { flag };
            let size = family.or(any.filter(|_| !dual)).unwrap_or(default);
            self.fits(flag, size, net);
        }
        for net in service {
            if cluster.iter().any(|pods| pods.contains(net) || net.contains(pods)) {
                self.warn("service-cluster-ip-range", format!("{net} overlaps --cluster-cidr"));
            }
        }
    }

    /// Refuses a mask size for the family of which the cluster has no range.
    fn mask_is_of_family(&mut self, cluster: &[IpNet], (ipv4, ipv6): (Option<u8>, Option<u8>)) {
        let (flag, family) = match cluster {
            [IpNet::V4(_)] if ipv6.is_some() => ("node-cidr-mask-size-ipv6", "IPv4"),
            [IpNet::V6(_)] if ipv4.is_some() => ("node-cidr-mask-size-ipv4", "IPv6"),
            _ => return,
        };
        let problem = format!("not allowed in a single-stack {family} cluster");
        self.fail(flag, problem, "only with a --cluster-cidr of the same address family");
    }

    /// Reads the ranges of Services. One that can't be read counts as absent.
    fn service_ranges(&mut self) -> Vec<IpNet> {
        let flags = self.flags;
        let text = &flags.service_cluster_ip_range;
        let mut nets = Vec::new();
        for part in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            match parse_range(part) {
                Some(net) => nets.push(net),
                None => {
                    self.warn("service-cluster-ip-range", format!("ignored {part:?}, which is not a CIDR"));
                }
            }
        }
        nets
    }

    /// Reads a comma-separated list of CIDRs. `None` if they can't be read.
    fn cidrs(&mut self, flag: &str, text: &str) -> Option<Vec<IpNet>> {
        if text.trim().is_empty() {
            return Some(Vec::new());
        }
        let allowed = "a CIDR such as 10.0.0.0/16, or an IPv4 and an IPv6 one separated by a comma";
        let mut nets = Vec::new();
        for part in text.split(',').map(str::trim) {
            match parse_range(part) {
                Some(net) => nets.push(net),
                None => self.fail(flag, format!("{part:?} is not a CIDR"), allowed),
            }
        }
        if nets.len() != text.split(',').count() {
            return None;
        }
        Some(nets)
    }

    /// Requires one CIDR, or two of different families.
    fn dual_stack(&mut self, flag: &str, nets: &[IpNet]) {
        let of_v4 = nets.iter().filter(|net| matches!(net, IpNet::V4(_))).count();
        if of_v4 > 1 || nets.len() - of_v4 > 1 {
            self.fail(
                flag,
                "more than one CIDR of the same address family",
                "one CIDR, or an IPv4 and an IPv6 one",
            );
        }
    }

    /// A prefix length; 0 stands for none given.
    fn mask(&mut self, flag: &str, size: i32, bits: u8) -> Option<u8> {
        self.range(flag, size, 0..=i64::from(bits));
        u8::try_from(size).ok().filter(|size| *size > 0 && *size <= bits)
    }

    fn fits(&mut self, flag: &str, size: u8, cluster: &IpNet) {
        let shortest = cluster.prefix_len();
        let longest = match cluster {
            IpNet::V4(_) => cluster.max_prefix_len(),
            IpNet::V6(_) => cluster.max_prefix_len().min(shortest.saturating_add(MAX_IPV6_NODE_BITS)),
        };
        if !(shortest..=longest).contains(&size) {
            let problem = format!("{cluster} has no block of /{size} for each Node");
            self.fail(flag, problem, format!("{shortest} to {longest} with this --cluster-cidr"));
        }
    }
}
