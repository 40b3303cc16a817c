//! A control plane and the managers that run on it, by the launcher in `tests/controlplane`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Seek as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use kube::config::Kubeconfig;
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use super::audit::{self, AuditEvent, AuditTail};
use super::port::{Caller, Page, Port};
use super::{Cluster, timing, until};

/// Lines of a component's log that a failed test prints.
const LOG_TAIL: usize = 60;
/// When this is set, control planes leave their directories, with all logs, in the directory for temporary files.
const KEEP: &str = "COXSWAIN_KEEP";

/// Gates of controllers that are off by default in Kubernetes 1.36, of the APIs that they read, and of fields of pods.
const GATES: &str = "ClusterTrustBundle=true,ClusterTrustBundleProjection=true,ContainerStopSignals=true,\
    DRADeviceTaintRules=true,DRAResourcePoolStatus=true,\
    DRAWorkloadResourceClaims=true,GangScheduling=true,GenericWorkload=true,PodCertificateRequest=true,\
    StorageVersionAPI=true,StorageVersionMigrator=true,WorkloadWithJob=true";
/// Those of the API server alone: its managers elect their leaders themselves.
const SERVER_GATES: &str = "feature-gates=CoordinatedLeaderElection=true";
/// The versions in which these APIs are served.
const RUNTIME_CONFIG: &str = "runtime-config=certificates.k8s.io/v1alpha1=true,certificates.k8s.io/v1beta1=true,\
    coordination.k8s.io/v1beta1=true,internal.apiserver.k8s.io/v1alpha1=true,resource.k8s.io/v1alpha3=true,\
    resource.k8s.io/v1beta2=true,scheduling.k8s.io/v1alpha2=true,storagemigration.k8s.io/v1beta1=true";

/// What a control plane is started with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Number of nodes.
    pub(crate) nodes: u32,
    /// Further arguments of `controlplane up`.
    pub(crate) args: Vec<&'static str>,
}

/// The launcher's report, as far as tests need it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) dir: PathBuf,
    pub(crate) log_dir: PathBuf,
    pub(crate) kubeconfigs: BTreeMap<String, PathBuf>,
    pub(crate) audit_log: PathBuf,
    pub(crate) manager_args: Vec<String>,
    /// The URL of etcd, which speaks plain HTTP.
    pub(crate) etcd: String,
    #[serde(rename = "caFile")]
    pub(crate) ca_file: PathBuf,
    /// A serving certificate for the loopback address, by the authority of the API server's.
    pub(crate) manager_serving: KeyPair,
}

impl Report {
    /// Has the launcher do something.
    pub(crate) fn ctl(&self, args: &[&str]) -> String {
        let output = Command::new(binaries().join("controlplane"))
            .args(["ctl", "--dir"])
            .arg(&self.dir)
            .args(args)
            .output()
            .expect("ctl runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ctl {args:?}: {stderr}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// A request of etcd, past the API server, and its answer.
    pub(crate) async fn etcd(&self, call: &str, body: &Value) -> Value {
        let config = Config::new(self.etcd.parse().expect("a URL"));
        let client = Client::try_from(config).expect("a client");
        let request =
            http::Request::post(format!("/v3/kv/{call}")).header("content-type", "application/json");
        let request = request.body(body.to_string().into_bytes()).expect("a request");
        client.request(request).await.expect("etcd's answer")
    }
}

/// A certificate and its key.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyPair {
    pub(crate) cert_file: PathBuf,
    pub(crate) key_file: PathBuf,
}

/// A running control plane.
pub(crate) struct ControlPlane {
    pub(crate) report: Report,
    launcher: Child,
    /// Held open: the launcher ends when it is closed.
    stdin: Option<ChildStdin>,
    _dir: TempDir,
}

/// A controller manager, Coxswain or the original, on a control plane.
pub(crate) struct Manager<'a> {
    plane: &'a ControlPlane,
    pub(crate) name: String,
    /// Where its secure port is.
    pub(crate) url: String,
    /// Its process id when it was started.
    pub(crate) pid: u32,
}

#[derive(Debug, Deserialize)]
struct Component {
    pid: Option<u32>,
    #[serde(default)]
    url: String,
    /// How its process ended, as `os/exec` words it; empty while it runs.
    #[serde(default)]
    exit: String,
}

/// The directory of the control plane's binaries, which are built on first use.
pub(crate) fn binaries() -> &'static Path {
    static BINARIES: OnceLock<PathBuf> = OnceLock::new();
    BINARIES.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/controlplane/build.sh");
        let output = Command::new(script).stderr(Stdio::inherit()).output().expect("build.sh runs");
        assert!(output.status.success(), "the control plane was not built");
        let stdout = String::from_utf8(output.stdout).expect("a path");
        PathBuf::from(stdout.lines().last().expect("the directory of the binaries"))
    })
}

/// kubectl as somebody, whatever comes of it.
pub(crate) fn kubectl_as(kubeconfig: &Path, args: &[&str]) -> Output {
    let mut kubectl = Command::new(binaries().join("kubectl"));
    kubectl.arg("--kubeconfig").arg(kubeconfig).args(args).output().expect("kubectl runs")
}

impl ControlPlane {
    /// Starts a control plane of its own.
    pub(crate) fn start(options: &Options) -> Self {
        let _starting = timing::starts();
        let kept = std::env::var_os(KEEP).is_some();
        let dir = tempfile::Builder::new().prefix("coxswain-").disable_cleanup(kept).tempdir();
        let dir = dir.expect("a directory");
        // Not a pipe: what it says while it stops is said when this process, and with it the other end, may be gone.
        // Of no name, for the launcher takes an empty directory only.
        let mut words = tempfile::tempfile_in(dir.path()).expect("a file");
        let mut launcher = Command::new(binaries().join("controlplane"))
            .args(["up", "--stdin-lifetime", "--nodes", &options.nodes.to_string(), "--dir"])
            .arg(dir.path())
            // Tests' shared control plane is never dropped, so its directory is not ours to remove.
            .args((!kept).then_some("--rm"))
            .args(&options.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(words.try_clone().expect("another handle on it"))
            .spawn()
            .expect("the launcher starts");
        let mut stdin = launcher.stdin.take();
        let mut line = String::new();
        let stdout = launcher.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("the launcher's report");
        let report = serde_json::from_str(&line).unwrap_or_else(|error| {
            drop(stdin.take());
            let _ = launcher.wait();
            let said = words.rewind().and_then(|()| std::io::read_to_string(&words)).unwrap_or_default();
            panic!("the control plane did not start: {error}\n{said}")
        });
        Self { report, launcher, stdin, _dir: dir }
    }

    /// What gives a control plane, and its managers, the gates and APIs of controllers that are off by default.
    pub(crate) const GATED_ARGS: &[&str] =
        &["--feature-gates", GATES, "--apiserver-arg", RUNTIME_CONFIG, "--apiserver-arg", SERVER_GATES];

    /// The one that tests share, with Coxswain as its only manager. Each test keeps to namespaces of its own.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<ControlPlane> = OnceLock::new();
        timing::begin();
        SHARED.get_or_init(|| {
            let plane = Self::start(&Options { nodes: 5, args: vec!["--audit"] });
            plane.coxswain("coxswain", &[]);
            plane
        })
    }

    /// Another one that tests share: with the feature gates and APIs of controllers that are off by default. It has no
    /// manager; tests start their own, which gets the gates too. It is only there when a test asks for it.
    pub(crate) fn gated() -> &'static Self {
        static GATED: OnceLock<ControlPlane> = OnceLock::new();
        timing::begin();
        GATED.get_or_init(|| {
            let args = [&["--audit"][..], Self::GATED_ARGS].concat();
            Self::start(&Options { nodes: 3, args })
        })
    }

    /// A client with all rights.
    pub(crate) async fn cluster(&self) -> Cluster {
        timing::begin();
        Cluster::connect(&self.report.kubeconfigs["admin"]).await
    }

    /// Starts Coxswain with the cluster's usual flags and `args`, and waits until it serves.
    pub(crate) fn coxswain(&self, name: &str, args: &[&str]) -> Manager<'_> {
        self.manager(name, &Self::coxswain_binary(), args)
    }

    /// The build under test. `COXSWAIN` names another one, such as the one that ships.
    pub(crate) fn coxswain_binary() -> String {
        std::env::var("COXSWAIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_coxswain").to_owned())
    }

    /// Starts the Go manager with the cluster's usual flags and `args`, and waits until it serves.
    pub(crate) fn go_manager(&self, name: &str, args: &[&str]) -> Manager<'_> {
        self.manager(name, "kube-controller-manager", args)
    }

    /// Starts any program as a manager with the cluster's usual flags and `args`, and waits until it serves.
    pub(crate) fn manager(&self, name: &str, program: &str, args: &[&str]) -> Manager<'_> {
        let mut all = vec!["add-manager", name, program];
        all.extend(args);
        self.ctl(&all);
        self.running(name)
    }

    /// Starts Coxswain with the cluster's usual flags and `args` on a port of the test's own choice, and does not wait
    /// until it serves: for a certificate that the launcher would not trust.
    pub(crate) fn coxswain_unawaited(&self, name: &str, args: &[&str]) -> Manager<'_> {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port();
        let secure_port = format!("--secure-port={port}");
        let mut all = vec!["add", name, env!("CARGO_BIN_EXE_coxswain")];
        all.extend(self.report.manager_args.iter().map(String::as_str));
        all.push(&secure_port);
        all.extend(args);
        self.ctl(&all);
        Manager { url: format!("https://127.0.0.1:{port}"), ..self.running(name) }
    }

    /// Starts Coxswain with the cluster's usual flags and `args`, and variables (`NAME=VALUE`) in its environment, and waits
    /// until it serves.
    pub(crate) fn coxswain_with(&self, name: &str, variables: &[&str], args: &[&str]) -> Manager<'_> {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port();
        let secure_port = format!("--secure-port={port}");
        let binary = Self::coxswain_binary();
        let mut all: Vec<&str> = variables.to_vec();
        all.push(&binary);
        all.extend(self.report.manager_args.iter().map(String::as_str));
        all.push(&secure_port);
        all.extend(args);
        self.add(name, Path::new("/usr/bin/env"), &all);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
        Manager { url: format!("https://127.0.0.1:{port}"), ..self.running(name) }
    }

    /// Starts any program as a component, to be operated by its name.
    pub(crate) fn add(&self, name: &str, program: &Path, args: &[&str]) {
        let program = program.to_str().expect("a path that is text");
        let mut all = vec!["add", name, program];
        all.extend(args);
        self.ctl(&all);
    }

    /// A manager that was started before.
    pub(crate) fn running(&self, name: &str) -> Manager<'_> {
        let component = self.component(name);
        let pid = component.pid.expect("a manager that serves has a process");
        Manager { plane: self, name: name.to_owned(), url: component.url, pid }
    }

    /// Does something to a component: `kill`, `stop`, `start`, `restart`, `pause`, `resume`.
    pub(crate) fn operate(&self, operation: &str, name: &str) {
        self.ctl(&[operation, name]);
    }

    fn component(&self, name: &str) -> Component {
        #[derive(Deserialize)]
        struct Named {
            name: String,
            #[serde(flatten)]
            component: Component,
        }
        let all: Vec<Named> = serde_json::from_str(&self.ctl(&["--json", "list"])).expect("components");
        let found = all.into_iter().find(|each| each.name == name);
        found.unwrap_or_else(|| panic!("there is no component {name}")).component
    }

    /// The kubeconfig of a further user, made by the cluster's authority.
    pub(crate) fn identity(&self, name: &str, groups: &[&str]) -> PathBuf {
        let mut all = vec!["identity", name];
        all.extend(groups);
        self.ctl(&all);
        self.report.dir.join(format!("{name}.kubeconfig"))
    }

    /// Every request that the API server has answered so far, in the order of its audit log.
    pub(crate) fn audit(&self) -> Vec<AuditEvent> {
        self.audit_from(0)
    }

    /// The same from this many bytes of its audit log on, where a line must begin.
    pub(crate) fn audit_from(&self, bytes: u64) -> Vec<AuditEvent> {
        assert!(self.report.audit_log.is_absolute(), "this control plane was started without --audit");
        audit::read(&self.report.audit_log, bytes)
    }

    /// Where the API server listens.
    pub(crate) fn server(&self) -> std::net::SocketAddr {
        let kubeconfig = Kubeconfig::read_from(&self.report.kubeconfigs["admin"]).expect("the kubeconfig");
        let cluster = kubeconfig.clusters.first().and_then(|named| named.cluster.as_ref());
        let url = cluster.and_then(|cluster| cluster.server.as_deref()).expect("the server's address");
        url.trim_start_matches("https://").parse().expect("an address and a port")
    }

    /// Its audit log from the beginning on, to be read as it grows.
    pub(crate) fn audit_tail(&self) -> AuditTail {
        assert!(self.report.audit_log.is_absolute(), "this control plane was started without --audit");
        AuditTail::new(self.report.audit_log.clone())
    }

    fn ctl(&self, args: &[&str]) -> String {
        self.report.ctl(args)
    }

    /// A request of etcd, past the API server, and its answer.
    pub(crate) async fn etcd(&self, call: &str, body: &Value) -> Value {
        self.report.etcd(call, body).await
    }

    /// Runs kubectl as the cluster's administrator; panics with its words when it fails.
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        let output = self.try_kubectl(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {stderr}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// The same, whatever comes of it.
    pub(crate) fn try_kubectl(&self, args: &[&str]) -> Output {
        kubectl_as(&self.report.kubeconfigs["admin"], args)
    }

    /// The log of a component.
    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.report.log_dir.join(format!("{name}.log"))).unwrap_or_default()
    }

    fn print_logs(&self) {
        let Ok(logs) = fs::read_dir(&self.report.log_dir) else { return };
        for path in logs.flatten().map(|entry| entry.path()).filter(|path| !path.ends_with("audit.log")) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = &lines[lines.len().saturating_sub(LOG_TAIL)..];
            eprintln!("--- {} (last {} lines)\n{}", path.display(), tail.len(), tail.join("\n"));
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_logs();
        }
        drop(self.stdin.take());
        let _ = self.launcher.wait();
    }
}

impl Manager<'_> {
    /// The same manager at another port of its own.
    pub(crate) fn at_port(&self, port: u16) -> Manager<'_> {
        let url = format!("https://127.0.0.1:{port}");
        Manager { plane: self.plane, name: self.name.clone(), url, pid: self.pid }
    }

    /// Ends it with SIGTERM and waits until it has.
    pub(crate) fn stop(&self) {
        self.plane.operate("stop", &self.name);
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&self) {
        self.plane.operate("kill", &self.name);
    }

    /// Starts it anew, with the same command line, after it has ended.
    pub(crate) fn start_again(&self) {
        self.plane.operate("start", &self.name);
    }

    /// Freezes it with SIGSTOP.
    pub(crate) fn pause(&self) {
        self.plane.operate("pause", &self.name);
    }

    /// Lets it go on after [`Manager::pause`].
    pub(crate) fn resume(&self) {
        self.plane.operate("resume", &self.name);
    }

    /// How its process ended (`exit status 1 after 3s`); empty while it runs.
    pub(crate) fn exit(&self) -> String {
        self.plane.component(&self.name).exit
    }

    /// Waits until it has ended by itself, and says how.
    pub(crate) async fn exited(&self, limit: Duration) -> String {
        until(&format!("the end of {}", self.name), limit, || async { self.exit() }, |exit| !exit.is_empty())
            .await
    }

    /// Waits until its log shows that a controller has started. A manager starts controllers after it has acquired the Lease.
    pub(crate) async fn await_start(&self, limit: Duration) {
        let log = || async { self.log() };
        until(&format!("{} leads", self.name), limit, log, |text| {
            text.contains("Caches are synced") || text.contains("\"Controller started\" controller=")
        })
        .await;
    }

    /// A caller of its secure port, with connections of its own.
    pub(crate) async fn port(&self, caller: Caller<'_>) -> Port {
        Port::open(&self.plane.report, &self.url, caller).await
    }

    /// What a page of its secure port answers; `None` when it does not.
    pub(crate) async fn try_page(&self, caller: Caller<'_>, path: &str) -> Option<Page> {
        self.port(caller).await.try_get(path).await
    }

    /// What a page of its secure port answers.
    pub(crate) async fn page(&self, caller: Caller<'_>, path: &str) -> Page {
        let page = self.try_page(caller, path).await;
        page.unwrap_or_else(|| panic!("{} does not answer {path}", self.name))
    }

    /// The errors in its log.
    pub(crate) fn errors(&self) -> Vec<String> {
        // As klog writes them: E, month and day.
        let is_error = |line: &&str| {
            line.strip_prefix('E').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        };
        self.log().lines().filter(is_error).map(str::to_owned).collect()
    }

    /// Its log.
    pub(crate) fn log(&self) -> String {
        self.plane.log(&self.name)
    }
}
