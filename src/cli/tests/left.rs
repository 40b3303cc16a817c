//! Controllers that a kube-controller-manager has given up, by its flags.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::cli::left::{check, managers};
use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::framework::Descriptor;

fn pod(name: &str, command: &[&str], args: &[&str]) -> Value {
    let container = json!({ "name": "kube-controller-manager", "command": command, "args": args });
    json!({ "metadata": { "name": name, "labels": { "component": "kube-controller-manager" } }, "spec": { "containers": [container] } })
}

fn checked(pods: &[Value]) -> Result<usize, String> {
    let pods: Vec<Pod> = pods.iter().map(|pod| serde_json::from_value(pod.clone()).unwrap()).collect();
    let wanted: Vec<&Descriptor> = ["job-controller", "cronjob-controller"]
        .iter()
        .map(|name| REGISTRY.iter().find(|descriptor| descriptor.name == *name).unwrap())
        .collect();
    check(&pods, &wanted)
}

#[test]
fn kube_controller_manager_that_still_runs_a_controller_is_named() {
    const PROGRAM: &str = "kube-controller-manager";
    const LEFT: &str = "--controllers=*,bootstrapsigner,-cronjob-controller,-job-controller";
    let left = || pod("node-1", &[PROGRAM, "--leader-elect=true", LEFT], &[]);
    let others = [
        (pod("node-2", &[PROGRAM, "--controllers=*,-cronjob"], &[]), "node-2: runs job-controller"),
        (
            pod("node-2", &["/usr/local/bin/kube-controller-manager"], &["--kubeconfig", "/k"]),
            "node-2: runs job-controller, cronjob-controller",
        ),
        (
            pod("node-2", &[], &["--controllers=*", "--controllers=-job,cronjob"]),
            "node-2: runs cronjob-controller",
        ),
    ];
    assert_eq!(checked(&[left()]), Ok(1));
    for (other, expected) in others {
        assert_eq!(checked(&[left(), other]), Err(expected.to_owned()));
    }
    let named = pod("node-2", &[PROGRAM, "--controllers", "deployment,-job"], &[]);
    assert_eq!(checked(&[left(), named]), Ok(2), "without a star only what is named runs");
    let unreadable = checked(&[pod("node-2", &[PROGRAM, "--no-such-flag"], &[])]).unwrap_err();
    assert!(unreadable.starts_with("node-2: ") && unreadable.contains("no-such-flag"), "{unreadable}");
}

#[test]
fn pods_that_run_no_kube_controller_manager_prove_nothing() {
    let mut coxswain = pod("coxswain-1", &[], &["--controllers=job-controller"]);
    coxswain["metadata"]["labels"]["app.kubernetes.io/name"] = json!("coxswain");
    coxswain["metadata"]["labels"]["app.kubernetes.io/component"] = json!("controller-manager");
    let mut ended = pod("node-1", &["kube-controller-manager"], &[]);
    ended["status"] = json!({ "phase": "Failed" });
    for pods in [vec![], vec![coxswain], vec![ended], vec![pod("static", &["coxswain"], &[])]] {
        let why = checked(&pods).unwrap_err();
        assert!(why.starts_with("no pod with the label"), "{why}");
    }
}

/// A wrapper takes the program as an argument. A script hides the flags, and its pod may run every controller.
#[test]
fn kube_controller_manager_in_a_wrapper_is_named() {
    const LEFT: &str = "--controllers=*,-cronjob,-job";
    let left = || pod("node-1", &["kube-controller-manager", LEFT], &[]);
    let runner = |flag: &str| {
        pod("node-2", &["/go-runner"], &["--log-file=/k.log", "/usr/local/bin/kube-controller-manager", flag])
    };
    assert_eq!(
        checked(&[left(), runner("--controllers=*,-job")]),
        Err("node-2: runs cronjob-controller".into())
    );
    assert_eq!(checked(&[left(), runner(LEFT)]), Ok(2));
    let entrypoint = pod("node-2", &[], &["kube-controller-manager", "--controllers=job"]);
    assert_eq!(checked(&[left(), entrypoint]), Err("node-2: runs job-controller".into()));
    let shell =
        pod("node-2", &["/bin/sh", "-c", "exec kube-controller-manager --controllers=* >>/k.log"], &[]);
    let script = pod("node-3", &["/start.sh"], &[LEFT]);
    for (hidden, program) in [(shell, "node-2: starts /bin/sh,"), (script, "node-3: starts /start.sh,")] {
        let why = checked(&[left(), hidden]).unwrap_err();
        assert!(why.starts_with(program) && why.ends_with("by hand"), "{why}");
    }
    let words = |pod: Value| managers(&[serde_json::from_value(pod).unwrap()]);
    assert_eq!(words(runner(LEFT)), [("node-2".to_owned(), Ok(vec![LEFT.to_owned()]))]);
    let why = "starts /start.sh, which may start kube-controller-manager".to_owned();
    assert_eq!(words(pod("node-3", &["/start.sh"], &[LEFT])), [("node-3".to_owned(), Err(why))]);
}

/// The value of a flag is no program, and an argument of a script may be a directory.
#[test]
fn program_is_the_first_word_or_an_argument_that_no_flag_takes() {
    const LEFT: &str = "--controllers=*,-cronjob,-job";
    const PROGRAM: &str = "kube-controller-manager";
    let left = || pod("node-1", &[PROGRAM, LEFT], &[]);
    let coxswain = pod("node-2", &["/usr/bin/coxswain", "--leader-elect-resource-name", PROGRAM], &[]);
    assert_eq!(checked(&[left(), coxswain]), Ok(1));
    let terminated = pod("node-2", &["tini", "--", PROGRAM, LEFT], &[]);
    assert_eq!(checked(&[left(), terminated]), Ok(2));
    for command in [
        &["/start.sh", "/var/log/coxswain"][..],
        &["/go-runner", "/usr/local/bin/coxswain", LEFT],
        &["/start.sh", "--leader-elect-resource-name", PROGRAM, LEFT],
        &["/start.sh", "--log-dir=/var/log/kube-controller-manager", LEFT],
    ] {
        let why = checked(&[left(), pod("node-2", command, &[])]).unwrap_err();
        let expected = format!("node-2: starts {}, which may start kube-controller-manager", command[0]);
        assert!(why.starts_with(&expected), "{command:?}: {why}");
    }
}
