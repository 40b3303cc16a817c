//! Types the commands of the manual about installation, operation and the way back, on a control plane whose node has kubeadm's files.
//!
//! Different from a real node: `/etc/kubernetes` and `/usr/local/bin` are in a directory of the test, which is the root of the node for
//! `coxswain preflight`; a script stands in for `crictl`; and the test of the image types `make image`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node as ClusterNode;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use super::beside::{run_job, writers};
use super::commands::assert_printed;
use super::flags::{custom_manifest, flags, flags_of_pod};
use super::kubelet::{Kubelet, Replica, create_mirror, delete_mirror};
use super::manifests::define_monitors;
use super::replicas::{leader, led};
use super::uninstall::assert_nothing_left;
use super::{NAMESPACE, copy_deploy, file, prepare, text};
use crate::harness::{ControlPlane, Options, binaries, by_depth, create, turn_beside_another, until};

const LIMIT: Duration = Duration::from_mins(2);
const MANIFEST: &str = "etc/kubernetes/manifests/kube-controller-manager.yaml";
/// The registry that the reader has chosen.
pub(super) const REGISTRY: &str = "registry.test/own";
/// Ends what a command says, before its exit code.
const END: &str = "--- ended with";

/// Condition that holds when the commands of a section have been typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// No more than that all commands succeed.
    Success,
    /// The last command prints the version of this program.
    Version,
    /// The last command found nothing that blocks.
    Ready,
    /// A replica of the Deployment leads, with the flags of the cluster.
    Deployment,
    /// The same, and the last command was answered by the leader.
    Answered,
    /// The static pod leads, with the flags of the node's manifest.
    StaticPod,
    /// Each manager leads by its own Lease, and runs its own controllers.
    BesideKcm,
    /// KCM leads, and no replica runs.
    KcmLeads,
    /// The same, and no object of Coxswain is left.
    NothingLeft,
}

/// The sections of the manual that are typed: page, headline and outcome, in the order of a life of a cluster.
pub(super) const SEQUENCE: [(&str, &str, Outcome); 27] = [
    ("install/image", "Build the image", Outcome::Success),
    ("install/image", "Name the image in the manifests", Outcome::Success),
    ("install/image", "Install the program", Outcome::Version),
    ("install/preflight", "Run the checks", Outcome::Ready),
    ("install/preflight", "Control-plane nodes", Outcome::Success),
    ("install/deployment", "Take over the flags of KCM", Outcome::Success),
    ("install/deployment", "Create the Secret with the keys", Outcome::Success),
    ("install/deployment", "Start the replicas", Outcome::Success),
    ("install/deployment", "Hand over", Outcome::Deployment),
    ("install/verify", "A replica leads", Outcome::Success),
    ("install/verify", "All controllers are healthy", Outcome::Success),
    ("install/verify", "A workload is reconciled", Outcome::Success),
    ("operate/access", "Groups of users", Outcome::Success),
    ("operate/access", "A program with a token", Outcome::Answered),
    FIRST_IN_FULL,
    ("operate/certificates", "The keys of the cluster", Outcome::Deployment),
    ("operate/certificates", "The serving certificate", Outcome::Success),
    ("install/roll-back", "From a Deployment", Outcome::KcmLeads),
    ("install/uninstall", "After a Deployment", Outcome::NothingLeft),
    ("install/static-pod", "Apply the roles and the policy", Outcome::Success),
    ("install/static-pod", "Change the manifest", Outcome::StaticPod),
    ("install/roll-back", "From a static pod", Outcome::KcmLeads),
    ("install/uninstall", "After a static pod", Outcome::NothingLeft),
    ("install/beside-kcm", "Remove the controllers from KCM", Outcome::Success),
    ("install/beside-kcm", "Start Coxswain", Outcome::BesideKcm),
    ("install/roll-back", "From next to KCM", Outcome::KcmLeads),
    ("install/uninstall", "After next to KCM", Outcome::NothingLeft),
];

/// `make test` leaves this section and all that follow to `make test-all`.
const FIRST_IN_FULL: (&str, &str, Outcome) =
    ("operate/monitoring", "Deployment with the Prometheus Operator", Outcome::Deployment);

/// A page of the manual.
pub(super) fn page(name: &str) -> String {
    fs::read_to_string(file(&format!("docs/{name}.md"))).expect("a page of the manual")
}

/// A headline and the commands under it.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) headline: String,
    pub(super) commands: Vec<String>,
    /// Output that the page expects of the last command.
    pub(super) output: Option<String>,
}

pub(super) fn parts(document: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut typing = false;
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if line == "```text" {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if let Some(part) = parts.last_mut().filter(|part| !part.commands.is_empty()) {
                part.output.get_or_insert(block.join("\n"));
            }
        } else if line.starts_with("```") {
            typing = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| typing) {
            let mut command = command.to_owned();
            while ['\\', '&', '|'].iter().any(|end| command.ends_with(*end)) {
                command.push('\n');
                command.push_str(lines.next().expect("the rest of a command"));
            }
            parts.last_mut().expect("a headline").commands.push(command);
        } else if let Some(headline) =
            line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))
        {
            parts.push(Part { headline: headline.to_owned(), ..Part::default() });
        } else {
            assert!(!typing, "neither a command nor its output belongs here: {line}");
        }
    }
    parts.retain(|part| !part.commands.is_empty());
    parts
}

/// A shell in which one command comes after the other.
struct Shell {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Shell {
    fn start(plane: &ControlPlane, host: &Path, dir: &Path) -> Self {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Command::new("bash")
            .args(["--noprofile", "--norc"])
            .current_dir(dir)
            .env("PATH", format!("{}/usr/local/bin:{}:{path}", host.display(), binaries().display()))
            .env("KUBECONFIG", &plane.report.kubeconfigs["admin"])
            .env("REGISTRY", REGISTRY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash");
        let mut stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        writeln!(stdin, "exec 2>&1").expect("it reads");
        Self { child, stdin, stdout }
    }

    /// Types a command, and gives what it says; panics with that if it fails.
    fn type_in(&mut self, command: &str) -> String {
        writeln!(self.stdin, "{command}\necho $'\\n'\"{END} $?\"").expect("it reads");
        let (mut said, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            assert!(self.stdout.read_line(&mut line).expect("text") > 0, "the shell has ended: {said}");
            if let Some(code) = line.strip_prefix(END) {
                assert_eq!(code.trim(), "0", "{command}: {said}");
                return said;
            }
            said.push_str(&line);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a program that stands in for `crictl`: it pulls every image of the reader's registry.
pub(super) fn install_crictl(programs: &Path) {
    let path = programs.join("crictl");
    let script = format!("#!/bin/sh\ncase $1/$2 in pull/{REGISTRY}/coxswain:*) ;; *) exit 1 ;; esac\n");
    fs::write(&path, script).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it may be run");
}

/// A node of a control plane: its kubelet runs the manager's pods, and what is in the manifests' directory.
struct Node<'a> {
    plane: &'a ControlPlane,
    kubelet: Kubelet<'a>,
    /// The manifest that runs, and its component.
    running: Option<(String, String)>,
    /// The static pod, if it is one of ours.
    static_pod: Option<Replica>,
    starts: u32,
}

impl<'a> Node<'a> {
    /// What kubeadm has put there.
    fn new(plane: &'a ControlPlane) -> Self {
        let kubelet = Kubelet::new(plane);
        let kubernetes = kubelet.host.join("etc/kubernetes");
        for dir in ["manifests", "pki"] {
            fs::create_dir_all(kubernetes.join(dir)).expect("a directory");
        }
        let pki = plane.report.ca_file.parent().expect("a directory");
        for name in ["ca.crt", "ca.key", "sa.key", "sa.pub", "front-proxy-ca.crt"] {
            fs::copy(pki.join(name), kubernetes.join("pki").join(name)).expect("copied");
        }
        let config = &plane.report.kubeconfigs["controller-manager"];
        fs::copy(config, kubernetes.join("controller-manager.conf")).expect("copied");
        fs::write(kubelet.host.join(MANIFEST), custom_manifest()).expect("written");
        let programs = kubelet.host.join("usr/local/bin");
        fs::create_dir_all(&programs).expect("a directory");
        symlink(ControlPlane::coxswain_binary(), programs.join("coxswain")).expect("a link");
        install_crictl(&programs);
        symlink("/proc", kubelet.host.join("proc")).expect("a link");
        Self { plane, kubelet, running: None, static_pod: None, starts: 0 }
    }

    /// Runs what is to run, and ends what is not.
    fn sync(&mut self) {
        self.kubelet.sync();
        // It is empty while it is written.
        let manifest = fs::read_to_string(self.kubelet.host.join(MANIFEST)).unwrap_or_default();
        if self.running.as_ref().map_or("", |(running, _)| running.as_str()) == manifest {
            return;
        }
        if let Some((_, name)) = self.running.take() {
            self.plane.operate("stop", &name);
            self.static_pod = None;
            delete_mirror(self.plane);
        }
        if manifest.is_empty() {
            return;
        }
        let pod: Value = serde_yaml_ng::from_str(&manifest).expect("a manifest");
        create_mirror(self.plane, &pod);
        let container = &pod["spec"]["containers"][0];
        let command = container["command"].as_array().expect("a command");
        let name = if command[0] == "kube-controller-manager" {
            self.starts += 1;
            let name = format!("go-{}", self.starts);
            let controllers =
                command.iter().filter_map(Value::as_str).find(|arg| arg.starts_with("--controllers="));
            self.plane.go_manager(&name, &[controllers.expect("the flag")]);
            name
        } else {
            let replica = self.kubelet.start(&pod);
            let name = replica.name.clone();
            self.static_pod = Some(replica);
            name
        };
        self.running = Some((manifest, name));
    }

    /// Types a command, and does meanwhile, and after it, what a kubelet does.
    async fn type_in(&mut self, mut shell: Shell, command: &str) -> (Shell, String) {
        let host = text(&self.kubelet.host).to_owned();
        let mut command = command.to_owned();
        command = command.replace("coxswain preflight", &format!("coxswain preflight --node-root={host}"));
        for path in ["/etc/kubernetes", "/usr/local/bin"] {
            command = command.replace(path, &format!("{host}{path}"));
        }
        let typed = tokio::task::spawn_blocking(move || {
            let said = shell.type_in(&command);
            (shell, said)
        });
        until(
            "the command to end",
            LIMIT * 2,
            || {
                self.sync();
                let ended = typed.is_finished();
                async move { ended }
            },
            |ended| *ended,
        )
        .await;
        let ended = typed.await.expect("it does not fail");
        self.sync();
        self.kubelet.ready().await;
        if let Some(replica) = &self.static_pod {
            self.kubelet.announced(replica).await;
        }
        ended
    }

    /// Checks what the commands of a section have done.
    async fn assert_outcome(&self, outcome: Outcome, said: &str) {
        let replicas: Vec<Replica> = self.kubelet.replicas.values().cloned().collect();
        match outcome {
            Outcome::Success => {}
            Outcome::Version => assert!(said.contains(concat!("v", env!("CARGO_PKG_VERSION"))), "{said}"),
            Outcome::Deployment => {
                assert_eq!(replicas.len(), 3);
                led(self.plane, &replicas).await;
                self.assert_flags_of_the_deployment();
                self.assert_new_node_has_addresses("joins-a-deployment").await;
            }
            Outcome::Ready => {
                assert!(said.contains("\nReady, with "), "{said}");
                let rows = ["server", "flags", "access", "leases", "files", "port"];
                let is_row = |line: &str, name: &str| {
                    line.strip_prefix(name).is_some_and(|rest| rest.starts_with("   "))
                };
                for row in rows {
                    let line = said.lines().find(|line| is_row(line, row)).expect("a row for each check");
                    assert!(!line.contains("skipped"), "{line}");
                }
            }
            Outcome::Answered => assert!(said.contains("\"holderIdentity\""), "{said}"),
            Outcome::StaticPod => {
                led(self.plane, self.static_pod.as_slice()).await;
                let manifest = fs::read_to_string(self.kubelet.host.join(MANIFEST)).expect("a manifest");
                assert_eq!(flags_of_pod(&manifest), flags_of_pod(&custom_manifest()));
                self.assert_new_node_has_addresses("joins-a-static-pod").await;
            }
            Outcome::BesideKcm => {
                let lease = ["-n", NAMESPACE, "get", "lease", "coxswain-controller-manager", "-o"];
                let lease = [&lease[..], &["jsonpath={.spec.holderIdentity}"]].concat();
                assert_ne!(self.plane.kubectl(&lease), "", "it leads by a Lease of its own");
                assert_eq!(leader(self.plane), None, "the Go manager leads");
                assert!(said.contains("job-controller"), "{said}");
                run_job(self.plane, "default", "beside").await;
                let (theirs, ours) = writers(self.plane);
                assert!(theirs.contains("replicaset-controller"), "{theirs:?}");
                assert!(ours.contains("job-controller"), "{ours:?}");
            }
            Outcome::KcmLeads | Outcome::NothingLeft => {
                assert!(replicas.is_empty() && self.static_pod.is_none(), "{replicas:?}");
                self.go_leads().await;
                if outcome == Outcome::NothingLeft {
                    assert_nothing_left(self.plane).await;
                }
            }
        }
    }

    /// The Deployment has the flags of the node's manifest that are the cluster's.
    fn assert_flags_of_the_deployment(&self) {
        let args = "jsonpath={.spec.template.spec.containers[0].args}";
        let args = self.plane.kubectl(&["-n", NAMESPACE, "get", "deployment", "coxswain", "-o", args]);
        let found = flags(&serde_json::from_str(&args).expect("JSON"));
        for flag in [
            "allocate-node-cidrs",
            "cluster-cidr",
            "controllers",
            "node-cidr-mask-size",
            "service-cluster-ip-range",
        ] {
            let of = |flags: &[(String, String)]| -> Vec<String> {
                flags.iter().filter(|(name, _)| name == flag).map(|(_, value)| value.clone()).collect()
            };
            assert_eq!(of(&found), of(&flags_of_pod(&custom_manifest())), "--{flag}");
        }
    }

    /// A node that joins gets pod addresses of the cluster.
    async fn assert_new_node_has_addresses(&self, name: &str) {
        let nodes: Api<ClusterNode> = Api::all(self.plane.cluster().await.client);
        create(nodes.clone(), json!({ "metadata": { "name": name } })).await;
        let range = || async { nodes.get(name).await.expect("the node").spec.and_then(|spec| spec.pod_cidr) };
        let range = until("pod addresses of a node", LIMIT, range, Option::is_some).await.expect("just seen");
        assert!(range.starts_with("10.200.") && range.ends_with("/25"), "{range}");
        nodes.delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    /// Waits until a manager holds the main Lease that is none of ours.
    async fn go_leads(&self) {
        let holder = || async {
            let lease =
                ["-n", NAMESPACE, "get", "lease", "kube-controller-manager", "--ignore-not-found", "-o"];
            let renewed = [&lease[..], &["jsonpath={.spec.holderIdentity} {.spec.renewTime}"]].concat();
            self.plane.kubectl(&renewed)
        };
        let before = holder().await;
        let goes_on = |now: &String| {
            now != &before
                && !now.trim_start().is_empty()
                && !now.starts_with(' ')
                && leader(self.plane).is_none()
        };
        until("the Go manager to lead", LIMIT, holder, goes_on).await;
    }
}

/// Every command of these pages is typed, once.
#[test]
fn sequence_has_every_section_with_commands_once() {
    let mut due: Vec<(&str, String)> = SEQUENCE.map(|(page, headline, _)| (page, headline.to_owned())).into();
    due.sort_unstable();
    let mut names: Vec<&str> = due.iter().map(|(page, _)| *page).collect();
    names.dedup();
    let mut found: Vec<(&str, String)> = names
        .into_iter()
        .flat_map(|name| parts(&page(name)).into_iter().map(move |part| (name, part.headline)))
        .collect();
    found.sort_unstable();
    assert_eq!(found, due);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_is_what_comes() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 3, args: vec!["--audit"] });
    prepare(&plane);
    define_monitors(&plane);
    let mut node = Node::new(&plane);
    node.sync();
    node.go_leads().await;
    let dir = tempfile::tempdir().expect("a directory");
    copy_deploy(dir.path());
    let mut shell = Shell::start(&plane, &node.kubelet.host, dir.path());
    let is_typed = |section: &&(&str, &str, Outcome)| by_depth(**section != FIRST_IN_FULL, true);
    for (name, headline, outcome) in SEQUENCE.iter().take_while(is_typed) {
        let parts = parts(&page(name));
        let part = parts.iter().find(|part| part.headline == *headline);
        let part = part.unwrap_or_else(|| panic!("docs/{name}.md has no commands under {headline:?}"));
        let mut said = String::new();
        // Both build the program that ships, which is here already.
        let builds =
            |command: &&String| *command == "make image" || command.contains("deploy/image/build.sh");
        for command in part.commands.iter().filter(|command| !builds(command)) {
            (shell, said) = node.type_in(shell, command).await;
        }
        if let Some(output) = &part.output {
            assert_printed(output, &said, name);
        }
        node.assert_outcome(*outcome, &said).await;
    }
}
