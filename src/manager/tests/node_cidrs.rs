//! The warning of a manager that takes over a cluster with podCIDRs and allocates none.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::seeded::Server;
use crate::manager::node_cidrs::{is_without_allocation, warn_at_takeover};
use coxswain_machinery::client::ApiClient;
use coxswain_machinery::election::{Leadership, Record};
use coxswain_machinery::latest;
use coxswain_machinery::options::Config;
use coxswain_machinery::serve::{Detail, HealthRegistry, Probe, Unobserved};

#[test]
fn allocation_is_missed_where_the_allocator_is_selected_and_its_flag_is_off() {
    let config = |allocate: bool, controllers: &str| {
        let mut config = Config::default();
        config.flags.allocate_node_cidrs = allocate;
        config.flags.controllers = controllers.split(',').map(str::to_owned).collect();
        is_without_allocation(&config)
    };
    assert!(config(false, "*") && config(false, "node-ipam-controller"));
    assert!(!config(true, "*"));
    // Another manager has it.
    assert!(!config(false, "job-controller") && !config(false, "*,-node-ipam-controller"));
}

/// The health page after a term in which the Lease has changed hands so often.
async fn health_after(transitions: i32, with_cidr: bool) -> String {
    let start = Timestamp::from_second(1_800_000_000).unwrap();
    let server = Server::new(start);
    for (name, cidr) in [("old", None), ("node", with_cidr.then_some("10.200.1.0/24"))] {
        let spec = cidr.map_or_else(|| json!({}), |cidr| json!({ "podCIDR": cidr, "podCIDRs": [cidr] }));
        let node = json!({ "metadata": { "name": name }, "spec": spec });
        server.model.lock().create("kubeadm", "nodes", "", node).unwrap();
    }
    let (client, health) = (ApiClient::new(server.service(), "test"), HealthRegistry::new());
    let sender = latest::Sender::<Leadership>::default();
    let taking = async {
        let record = |holder: &str| Record { transitions, ..Record::next(None, holder, 15, start) };
        sender.send_modify(|state| state.record = Some(record("kube-controller-manager")));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(health.names(), Vec::<String>::new(), "it does not lead yet");
        sender.send_modify(|state| *state = Leadership { leading: true, record: Some(record("coxswain")) });
        sleep(Duration::from_secs(5)).await;
    };
    let warning = timeout(Duration::from_secs(4), warn_at_takeover(sender.subscribe(), &client, &health));
    let (ended, ()) = tokio::join!(warning, taking);
    assert_eq!(ended.is_ok(), transitions > 0, "it ends when it is known");
    health.report(Probe::Healthz, &[], Detail::Remarks, &Unobserved).text
}

#[tokio::test(start_paused = true)]
async fn takeover_without_allocation_shows_on_the_health_page() {
    let line = "[+]nodePodCIDRs ok, nodes have podCIDRs and --allocate-node-cidrs is off\n";
    assert!(health_after(1, true).await.contains(line));
    assert!(!health_after(1, false).await.contains("nodePodCIDRs"), "no node has one");
    assert!(!health_after(0, true).await.contains("nodePodCIDRs"), "nobody has led before");
}
