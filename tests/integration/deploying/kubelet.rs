//! Plays the kubelet for pods of the manager: each one's container is a process in the root filesystem of the image, with the
//! arguments, variables and volumes that the pod says. That they run and are ready is kwok's word.
//!
//! One thing is different: each process is told a loopback address of its own to serve on, in the place of a pod's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Request;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{NAMESPACE, said, script, text};
use crate::harness::{ControlPlane, until};

const LIMIT: Duration = Duration::from_mins(2);
/// Selects the manager's pods.
const SELECTOR: &str = "app.kubernetes.io/name=coxswain";
/// Selects the pods of the chart's hooks.
const HOOKS: &str = "app.kubernetes.io/name=coxswain-uninstall";
/// How long a probe waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where a replica's Lease says how it is reached.
const ADDRESS: &str = "coxswain.dev/admin-address";
/// The pod that stands for the static pod of the node in the API.
const MIRROR: &str = "kube-controller-manager-node-0";
/// The probes of a container.
pub(super) const PROBES: [&str; 3] = ["startupProbe", "livenessProbe", "readinessProbe"];

pub(super) struct Kubelet<'a> {
    plane: &'a ControlPlane,
    dir: TempDir,
    /// Where the files of its node are.
    pub(super) host: PathBuf,
    /// By the UIDs of their pods.
    pub(super) replicas: BTreeMap<String, Replica>,
    /// The pods of the chart's hooks, by UID.
    hooks: BTreeMap<String, Hook>,
    /// The names and outputs of hooks that have ended.
    pub(super) ended_hooks: Vec<(String, String)>,
}

/// A pod that runs to completion.
enum Hook {
    Running(Child),
    Ended,
}

/// A process of a pod.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    /// Of the component, by which it is operated.
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
    container: Value,
}

impl<'a> Kubelet<'a> {
    /// A kubelet with an image.
    pub(super) fn new(plane: &'a ControlPlane) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let rootfs = dir.path().join("rootfs");
        script("deploy/image/rootfs.sh", &[&ControlPlane::coxswain_binary(), text(&rootfs)]);
        let host = dir.path().join("host");
        Self { plane, dir, host, replicas: BTreeMap::new(), hooks: BTreeMap::new(), ended_hooks: Vec::new() }
    }

    fn get(&self, args: &[&str]) -> Value {
        let args = [&["-n", NAMESPACE, "get", "-o", "json"], args].concat();
        serde_json::from_str(&self.plane.kubectl(&args)).expect("JSON")
    }

    /// The pods of a selector that are on a node and are to run.
    fn pods(&self, selector: &str) -> Vec<Value> {
        let Value::Array(mut all) = self.get(&["pods", "-l", selector])["items"].take() else {
            panic!("a list")
        };
        all.retain(|pod| {
            pod["spec"]["nodeName"].is_string() && pod["metadata"]["deletionTimestamp"].is_null()
        });
        all
    }

    /// Has processes run for the pods that are there, and none for pods that are gone.
    pub(super) fn sync(&mut self) {
        self.sync_hooks();
        let pods = self.pods(SELECTOR);
        let wanted: BTreeSet<String> = pods.iter().map(uid).collect();
        let gone = self.replicas.extract_if(.., |uid, _| !wanted.contains(uid));
        for (_, replica) in gone {
            self.plane.operate("stop", &replica.name);
        }
        for pod in &pods {
            if !self.replicas.contains_key(&uid(pod)) {
                self.replicas.insert(uid(pod), self.start(pod));
            }
        }
    }

    /// Runs the pods of hooks, and reports how they ended. kwok reports that they run.
    fn sync_hooks(&mut self) {
        for pod in self.pods(HOOKS) {
            let name = pod["metadata"]["name"].as_str().expect("a name");
            let Some(Hook::Running(child)) = self.hooks.get_mut(&uid(&pod)) else {
                if pod["status"]["phase"] == "Running" && !self.hooks.contains_key(&uid(&pod)) {
                    let args = self.arguments(&pod, address());
                    let mut env = Command::new("/usr/bin/env");
                    let child = env.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
                    self.hooks.insert(uid(&pod), Hook::Running(child.expect("it starts")));
                }
                continue;
            };
            if child.try_wait().expect("a child").is_none() {
                continue;
            }
            let Some(Hook::Running(child)) = self.hooks.insert(uid(&pod), Hook::Ended) else {
                unreachable!("it was there")
            };
            let output = child.wait_with_output().expect("its output");
            let phase = if output.status.success() { "Succeeded" } else { "Failed" };
            self.ended_hooks.push((name.to_owned(), said(&output)));
            let status = format!(r#"{{"status":{{"phase":"{phase}"}}}}"#);
            let patch = ["patch", "pod", name, "--subresource=status", "--type=merge", "--patch", &status];
            self.plane.kubectl(&[&["-n", NAMESPACE], &patch[..]].concat());
        }
    }

    /// Waits for so many pods on nodes, and until their processes are ready and have announced themselves.
    pub(super) async fn run(&mut self, count: usize) {
        until("pods on nodes", LIMIT, || async { self.pods(SELECTOR).len() }, |found| *found == count).await;
        self.sync();
        self.ready().await;
    }

    /// Waits until all processes are ready and have announced themselves.
    pub(super) async fn ready(&self) {
        for replica in self.replicas.values() {
            self.announced(replica).await;
        }
    }

    /// Waits until a process is ready, as far as its probes can say, and has announced itself.
    pub(super) async fn announced(&self, replica: &Replica) {
        let last =
            if replica.container["readinessProbe"].is_null() { "livenessProbe" } else { "readinessProbe" };
        let ready = || replica.passes(last);
        until(&format!("{} to be ready", replica.name), LIMIT, ready, |ready| *ready).await;
        let address = format!("{}:", replica.address);
        let announced = || async {
            let leases = self.get(&["leases", "-l", "coxswain.dev/component=replica"]);
            let all = leases["items"].as_array().expect("a list");
            let addresses = all.iter().map(|lease| &lease["metadata"]["annotations"][ADDRESS]);
            addresses.filter_map(Value::as_str).any(|each| each.starts_with(&address))
        };
        until(&format!("the Lease of {}", replica.name), LIMIT, announced, |seen| *seen).await;
    }

    /// Runs the container of a pod.
    pub(super) fn start(&self, pod: &Value) -> Replica {
        static STARTED: AtomicU8 = AtomicU8::new(0);
        let count = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{count}", pod["metadata"]["name"].as_str().expect("a name"));
        let address = address();
        let mut args = self.arguments(pod, address);
        args.push(format!("--bind-address={address}"));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.plane.add(&name, Path::new("/usr/bin/env"), &args);
        Replica { name, address, container: pod["spec"]["containers"][0].clone() }
    }

    /// The arguments of `env` that run the container of a pod.
    fn arguments(&self, pod: &Value, address: Ipv4Addr) -> Vec<String> {
        let container = &pod["spec"]["containers"][0];
        let mut args: Vec<String> = Vec::new();
        for variable in container["env"].as_array().into_iter().flatten() {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("status.podIP") => address.to_string(),
                Some(other) => panic!("{other} is not known here"),
                None => variable["value"].as_str().unwrap_or_default().to_owned(),
            };
            args.push(format!("{}={value}", variable["name"].as_str().expect("a name")));
        }
        let server = self.plane.server();
        args.push(format!("KUBERNETES_SERVICE_HOST={}", server.ip()));
        args.push(format!("KUBERNETES_SERVICE_PORT={}", server.port()));
        args.push(text(&super::file("deploy/image/run.sh")).to_owned());
        args.push(text(&self.dir.path().join("rootfs")).to_owned());
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            let from = self.volume(pod, mount["name"].as_str().expect("a name"));
            let to = mount["mountPath"].as_str().expect("a path");
            let mode = if mount["readOnly"] == true { "ro" } else { "rw" };
            args.extend(["--mount".to_owned(), format!("{}:{to}:{mode}", from.display())]);
        }
        // The image's own entry point, unless the pod names a program, which then is on the image's path.
        args.extend(["--".to_owned(), "/usr/local/bin/coxswain".to_owned()]);
        let mut command = container["command"].as_array().into_iter().flatten();
        assert!(command.next().is_none_or(|program| program == "coxswain"), "{container}");
        let given = container["args"].as_array().into_iter().flatten();
        args.extend(command.chain(given).map(|each| each.as_str().expect("text").to_owned()));
        args
    }

    /// A directory with what a volume of a pod holds.
    fn volume(&self, pod: &Value, name: &str) -> PathBuf {
        let volumes = pod["spec"]["volumes"].as_array().expect("volumes");
        let volume = volumes.iter().find(|volume| volume["name"] == *name).expect("the volume");
        if let Some(path) = volume["hostPath"]["path"].as_str() {
            let path = self.host.join(path.trim_start_matches('/'));
            if !path.exists() {
                fs::create_dir_all(&path).expect("a directory");
            }
            return path;
        }
        let dir = self.dir.path().join(pod["metadata"]["uid"].as_str().expect("a UID")).join(name);
        fs::create_dir_all(&dir).expect("a directory");
        if volume["emptyDir"].is_object() {
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("permissions");
            return dir;
        }
        if let Some(secret) = volume["secret"]["secretName"].as_str() {
            let secret = self.get(&["secret", secret]);
            for (key, value) in secret["data"].as_object().expect("data") {
                let value = BASE64_STANDARD.decode(value.as_str().expect("text")).expect("base64");
                fs::write(dir.join(key), value).expect("written");
            }
            return dir;
        }
        for source in volume["projected"]["sources"].as_array().expect("a volume of a known kind") {
            self.project(pod, source, &dir);
        }
        dir
    }

    fn project(&self, pod: &Value, source: &Value, dir: &Path) {
        let metadata = &pod["metadata"];
        if let Some(path) = source["serviceAccountToken"]["path"].as_str() {
            let account = pod["spec"]["serviceAccountName"].as_str().expect("an account");
            let named = |flag: &str, field: &str| {
                format!("--bound-object-{flag}={}", metadata[field].as_str().expect("text"))
            };
            let (name, uid) = (named("name", "name"), named("uid", "uid"));
            let bound = ["--bound-object-kind=Pod", &name, &uid];
            let token = [&["-n", NAMESPACE, "create", "token", account], &bound[..]].concat();
            fs::write(dir.join(path), self.plane.kubectl(&token)).expect("written");
        } else if let Some(name) = source["configMap"]["name"].as_str() {
            let map = self.get(&["configmap", name]);
            for item in source["configMap"]["items"].as_array().expect("items") {
                let (key, path) =
                    (item["key"].as_str().expect("a key"), item["path"].as_str().expect("a path"));
                fs::write(dir.join(path), map["data"][key].as_str().expect("text")).expect("written");
            }
        } else {
            let item = &source["downwardAPI"]["items"][0];
            assert_eq!(item["fieldRef"]["fieldPath"], "metadata.namespace", "{source}");
            fs::write(dir.join(item["path"].as_str().expect("a path")), NAMESPACE).expect("written");
        }
    }
}

/// Creates the mirror pod of a static pod, which kwok reports as ready. It has neither the host's network nor volumes, because the
/// namespace takes none but restricted pods.
pub(super) fn create_mirror(plane: &ControlPlane, manifest: &Value) {
    let container = &manifest["spec"]["containers"][0];
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": MIRROR, "namespace": NAMESPACE, "labels": manifest["metadata"]["labels"],
            "annotations": { "kubernetes.io/config.mirror": "mirror" },
        },
        "spec": {
            "nodeName": "node-0",
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": container["name"], "image": container["image"], "command": container["command"],
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    });
    let path = plane.report.dir.join("mirror.json");
    fs::write(&path, pod.to_string()).expect("written");
    plane.kubectl(&["create", "-f", text(&path)]);
}

/// Deletes the mirror pod at once.
pub(super) fn delete_mirror(plane: &ControlPlane) {
    plane.kubectl(&["-n", NAMESPACE, "delete", "pod", MIRROR, "--force", "--grace-period=0"]);
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().expect("a UID").to_owned()
}

/// A loopback address that no other test and no other run of tests uses.
fn address() -> Ipv4Addr {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let [low, high, ..] = std::process::id().to_le_bytes();
    Ipv4Addr::new(127, high | 0x80, low, COUNT.fetch_add(1, Ordering::Relaxed))
}

impl Replica {
    /// What a probe of its container says, made as a kubelet does: whatever certificate it has.
    pub(super) async fn passes(&self, probe: &str) -> bool {
        let get = &self.container[probe]["httpGet"];
        let port = match &get["port"] {
            Value::String(name) => {
                let ports = self.container["ports"].as_array().expect("ports");
                &ports.iter().find(|port| port["name"] == *name).expect("the port")["containerPort"]
            }
            number => number,
        };
        let scheme = get["scheme"].as_str().expect("a scheme").to_lowercase();
        let url = format!("{scheme}://{}:{port}", self.address);
        let mut config = Config::new(url.parse().expect("a URL"));
        config.accept_invalid_certs = true;
        config.default_retry = false;
        let client = Client::try_from(config).expect("a client");
        let request = Request::get(get["path"].as_str().expect("a path")).body(Body::empty());
        let answer = client.send(request.expect("a request"));
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        answer.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status().is_success()))
    }
}
