//! Addresses of Pods, Services and Nodes.

use ipnet::IpNet;

use super::Check;

/// The bits by which a Node's range may be longer than the cluster's, as the original's allocator has it: more would
/// need a table of every possible range too large to keep.
const MAX_NODE_BITS: u8 = 16;

impl Check<'_> {
    pub(super) fn network(&mut self) {
        let flags = self.flags;
        let cluster = self.cidrs("cluster-cidr", &flags.cluster_cidr);
        let service = self.cidrs("service-cluster-ip-range", &flags.service_cluster_ip_range);
        let ipv4 = self.mask("node-cidr-mask-size-ipv4", flags.node_cidr_mask_size_ipv4, 32);
        let ipv6 = self.mask("node-cidr-mask-size-ipv6", flags.node_cidr_mask_size_ipv6, 128);
        let any = self.mask("node-cidr-mask-size", flags.node_cidr_mask_size, 128);
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
        let (Some(cluster), Some(service)) = (cluster, service) else { return };
        if cluster.is_empty() {
            self.fail(
                "cluster-cidr",
                "--allocate-node-cidrs has nothing to allocate from",
                "one or two CIDRs",
            );
        }
        let dual = cluster.len() > 1;
        if dual && any.is_some() {
            let allowed = "--node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 instead";
            self.fail(
                "node-cidr-mask-size",
                "it does not say which of two address families it is for",
                allowed,
            );
        }
        if !dual && any.is_some() && (ipv4.is_some() || ipv6.is_some()) {
            let allowed = "it alone, or those for IPv4 and IPv6 alone";
            self.fail("node-cidr-mask-size", "it is given together with one for IPv4 or IPv6", allowed);
        }
        for net in &cluster {
            let (family, flag, default) = match net {
                IpNet::V4(_) => (ipv4, "node-cidr-mask-size-ipv4", 24),
                IpNet::V6(_) => (ipv6, "node-cidr-mask-size-ipv6", 64),
            };
            let flag = if family.is_none() && any.is_some() { "node-cidr-mask-size" } else { flag };
            let size = family.or(any.filter(|_| !dual)).unwrap_or(default);
            self.fits(flag, size, net);
        }
        for net in &service {
            if cluster.iter().any(|pods| pods.contains(net) || net.contains(pods)) && !cluster.contains(net) {
                // Nodes are then never given the overlap, which is how the original treats it.
                self.warn("service-cluster-ip-range", format!("{net} overlaps --cluster-cidr"));
            }
        }
    }

    /// Reads one or two CIDRs, two being of different families. `None` if they can't be read.
    fn cidrs(&mut self, flag: &str, text: &str) -> Option<Vec<IpNet>> {
        if text.trim().is_empty() {
            return Some(Vec::new());
        }
        let allowed = "a CIDR such as 10.0.0.0/16, or an IPv4 and an IPv6 one separated by a comma";
        let mut nets = Vec::new();
        for part in text.split(',').map(str::trim) {
            match part.parse::<IpNet>() {
                Ok(net) => nets.push(net.trunc()),
                Err(_) => self.fail(flag, format!("{part:?} is not a CIDR"), allowed),
            }
        }
        if nets.len() != text.split(',').count() {
            return None;
        }
        let families = |v4: bool| nets.iter().filter(|net| matches!(net, IpNet::V4(_)) == v4).count();
        if families(true) > 1 || families(false) > 1 {
            self.fail(flag, format!("{text:?} has more than one CIDR of a family"), allowed);
            return None;
        }
        Some(nets)
    }

    /// A prefix length; 0 stands for none given.
    fn mask(&mut self, flag: &str, size: i32, bits: u8) -> Option<u8> {
        self.range(flag, size, 0..=i64::from(bits));
        u8::try_from(size).ok().filter(|size| *size > 0 && *size <= bits)
    }

    fn fits(&mut self, flag: &str, size: u8, cluster: &IpNet) {
        let shortest = cluster.prefix_len();
        let longest = cluster.max_prefix_len().min(shortest.saturating_add(MAX_NODE_BITS));
        if !(shortest..=longest).contains(&size) {
            let problem = format!("a range of /{size} for each Node can't be cut out of {cluster}");
            self.fail(flag, problem, format!("{shortest} to {longest} with this --cluster-cidr"));
        }
    }
}
