//! grpcurl, which knows the API by reflection alone, operates a running manager. What is typed and what comes back is
//! `tests/data/admin-transcript.txt`. The manual shows a part of it. COXSWAIN_REGENERATE=1 writes it again.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use coxswain::admin::proto;
use serde_json::Value;

use super::{Admin, LIMIT, all_run, bare, files};
use crate::harness::{ControlPlane, binaries, turn, until};

const TRANSCRIPT: &str = "tests/data/admin-transcript.txt";
/// In the place of what is different every time.
const MASK: &str = "…";
/// Fields that are.
const VOLATILE: &[&str] = &[
    "acquireTime",
    "adminAddress",
    "createTime",
    "expireTime",
    "holder",
    "holderIdentity",
    "identity",
    "logId",
    "newestSequence",
    "oldestSequence",
    "phaseTime",
    "previousHolder",
    "renewTime",
    "replicaIdentity",
    "selectionDigest",
    "sequence",
    "startTime",
    "time",
];

/// A headline, and what is typed under it. Definitions print nothing and hold for all that follows.
struct Part(&'static str, &'static [&'static str]);

const PREPARATION: Part = Part(
    "Create the roles and bind them to users",
    &[
        "kubectl apply -f deploy/kustomize/roles/operator.yaml -f deploy/kustomize/roles/viewer.yaml",
        "kubectl create serviceaccount robot",
        "kubectl create clusterrolebinding operators --clusterrole=coxswain-admin-operator \\
    --group=operators --serviceaccount=default:robot",
        "kubectl create clusterrolebinding viewers --clusterrole=coxswain-admin-viewer \\
    --serviceaccount=default:default",
    ],
);

const CERTIFICATE: Part = Part(
    "With a client certificate of the group operators",
    &["call() { grpcurl -cacert ca.crt -cert operator.crt -key operator.key \"$@\"; }"],
);

const TOKEN: Part = Part(
    "With the token of a service account, the same calls succeed",
    &[
        "TOKEN=$(kubectl create token robot)",
        "call() { grpcurl -cacert ca.crt -H \"authorization: Bearer $TOKEN\" \"$@\"; }",
    ],
);

/// What both do.
const OPERATION: &[&str] = &[
    "call $ADMIN list",
    "call -d '{\"filter\": {\"names\": [\"deployment\", \"replicaset\"]}}' \\
    $ADMIN coxswain.admin.v1.ControllerService/ListControllers",
    "call -d '{\"name\": \"deployment\", \"reason\": \"incident 17\", \"duration\": \"1800s\", \"wait\": true}' \\
    $ADMIN coxswain.admin.v1.ControllerService/DisableController",
    "call -d '{\"name\": \"deployment\", \"wait\": true}' \\
    $ADMIN coxswain.admin.v1.ControllerService/ClearOverrides",
    "call -d '{\"last\": 6, \"replay_only\": true, \"filter\": {\"controllers\": [\"deployment\"]}}' \\
    $ADMIN coxswain.admin.v1.EventService/StreamEvents",
    "call $ADMIN coxswain.admin.v1.LeaderService/GetLeader",
];

const VIEWER: Part = Part(
    "With the token of an account that can only view",
    &[
        "TOKEN=$(kubectl create token default)",
        "call -d '{\"name\": \"replicaset\"}' $ADMIN coxswain.admin.v1.ControllerService/DisableController",
    ],
);

/// A shell in a directory with the credentials.
struct Shell<'a> {
    plane: &'a ControlPlane,
    dir: &'a Path,
    admin: &'a str,
    definitions: String,
    transcript: String,
}

impl Shell<'_> {
    fn run(&mut self, Part(headline, commands): &Part) {
        if !self.transcript.is_empty() {
            self.transcript.push('\n');
        }
        writeln!(self.transcript, "# {headline}").expect("a string");
        self.type_all(commands);
    }

    fn type_all(&mut self, commands: &[&str]) {
        for command in commands {
            let output = self.type_in(command);
            write!(self.transcript, "$ {command}\n{output}").expect("a string");
        }
    }

    /// What a command says.
    fn type_in(&mut self, command: &str) -> String {
        if command.starts_with("call()") || command.starts_with("TOKEN=") {
            self.definitions.push_str(command);
            self.definitions.push('\n');
            return String::new();
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("bash")
            .args(["-c", &format!("exec 2>&1\n{}{command}", self.definitions)])
            .current_dir(self.dir)
            .env("PATH", format!("{}:{path}", binaries().display()))
            .env("KUBECONFIG", &self.plane.report.kubeconfigs["admin"])
            .env("ADMIN", self.admin)
            .output()
            .expect("bash runs");
        normalized(&String::from_utf8(output.stdout).expect("text"))
    }
}

/// JSON with masks, or the text as it is.
fn normalized(output: &str) -> String {
    let messages = serde_json::Deserializer::from_str(output).into_iter::<Value>();
    let Ok(messages) = messages.collect::<Result<Vec<_>, _>>() else { return output.to_owned() };
    let mut text = String::new();
    for mut message in messages {
        mask(&mut message);
        writeln!(text, "{message:#}").expect("a string");
    }
    text
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_version = name == "version" && *value == env!("CARGO_PKG_VERSION");
                if is_version || VOLATILE.contains(&name.as_str()) && value.is_string() {
                    *value = MASK.into();
                } else {
                    mask(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(text) => *text = without_times(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Masks what looks like `2026-01-02T03:04:05Z`.
fn without_times(text: &str) -> String {
    let masked = |word: &str| {
        let time = word.trim_end_matches(':');
        if time.parse::<jiff::Timestamp>().is_ok() { word.replace(time, MASK) } else { word.to_owned() }
    };
    text.split(' ').map(masked).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcurl_operates_a_running_manager() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&bare());
    let manager = plane.coxswain("coxswain", &[]);
    let master = Admin::master(&plane, &manager);
    all_run(&master).await;
    let leader = || async {
        let answer = master.leader().get_leader(proto::GetLeaderRequest::default()).await.expect("an answer");
        answer.into_inner()
    };
    let is_announced = |answer: &proto::GetLeaderResponse| {
        answer.replicas.len() == 1
            && answer.leader.as_ref().is_some_and(|leader| !leader.admin_address.is_empty())
    };
    until("the replica to be announced", LIMIT, leader, is_announced).await;

    let dir = tempfile::tempdir().expect("a directory");
    let (certificate, key) = files(&plane.identity("operator", &["operators"]));
    fs::write(dir.path().join("operator.crt"), certificate).expect("written");
    fs::write(dir.path().join("operator.key"), key).expect("written");
    fs::copy(&plane.report.ca_file, dir.path().join("ca.crt")).expect("copied");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    symlink(root.join("deploy"), dir.path().join("deploy")).expect("a link");

    let admin = manager.url.trim_start_matches("https://");
    let mut shell = Shell {
        plane: &plane,
        dir: dir.path(),
        admin,
        definitions: String::new(),
        transcript: String::new(),
    };
    shell.run(&PREPARATION);
    shell.run(&CERTIFICATE);
    shell.type_all(OPERATION);
    shell.run(&TOKEN);
    shell.type_all(OPERATION);
    shell.run(&VIEWER);

    let golden = root.join(TRANSCRIPT);
    if std::env::var_os("COXSWAIN_REGENERATE").is_some() {
        fs::write(&golden, &shell.transcript).expect("the transcript is written");
    }
    let expected = fs::read_to_string(&golden).expect("the transcript");
    let differs = shell.transcript.lines().zip(expected.lines()).position(|(now, then)| now != then);
    assert_eq!(
        shell.transcript, expected,
        "line {differs:?} of {TRANSCRIPT} is different: COXSWAIN_REGENERATE=1 writes it anew, then run `make docs`"
    );
}
