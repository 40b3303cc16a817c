//! `install static-pod`: files of a node, and which of them change.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::server::{Ran, run};
use crate::cli::environment::Environment;
use crate::cli::error::Exit;
use coxswain_machinery::model::clock::ManualClock;

const KUBEADM: &str = include_str!("../../../tests/data/peer/kubeadm-controller-manager.yaml");
const IMAGE: &str = "registry.test/coxswain:0.1.0";

/// A node's `/etc/kubernetes` with kubeadm's manifest.
struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        fs::create_dir(node.path("manifests")).unwrap();
        write(&node.manifest(), KUBEADM);
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn manifest(&self) -> String {
        self.text("manifests/kube-controller-manager.yaml")
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The files of a directory.
    fn files(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).unwrap().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    async fn install(&self, args: &[&str]) -> Ran {
        let manifest = self.manifest();
        let environment = Environment::new(std::sync::Arc::new(ManualClock::new(super::now())), &[]);
        let from = if args.contains(&"--from") { vec![] } else { vec!["--from", manifest.as_str()] };
        run(environment, &[&["install", "static-pod"][..], &from, args].concat()).await
    }
}

fn write(path: &str, text: &str) {
    fs::write(path, text).unwrap();
}

const SAVED: &str = "kube-controller-manager.yaml";

#[tokio::test]
async fn static_pod_replaces_the_manifest_and_keeps_the_way_back_outside() {
    let node = Node::new();
    let manifest = node.manifest();
    let printed = node.install(&["--image", IMAGE]).await;
    assert_eq!((printed.exit, printed.err.as_str()), (Exit::Done, ""));
    assert_eq!(node.files("."), ["manifests"], "nothing is written without --output");
    let difference = node.install(&["--image", IMAGE, "--output", &manifest, "--dry-run"]).await;
    for line in ["-    - kube-controller-manager\n", "+    - coxswain\n", "+    runAsUser: 0\n"] {
        assert!(difference.out.contains(line), "{difference:?}");
    }
    assert!(!difference.out.contains("\n-    - --"), "no flag changes: {difference:?}");
    assert_eq!(
        (node.files("."), node.read("manifests/kube-controller-manager.yaml")),
        (vec!["manifests".into()], KUBEADM.into())
    );

    let ran = node.install(&["--image", IMAGE, "--output", &manifest]).await;
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    assert!(ran.out.contains(&format!("/{SAVED} is the way back")), "{ran:?}");
    assert_eq!(node.read("manifests/kube-controller-manager.yaml"), printed.out);
    assert_eq!(node.read(SAVED), KUBEADM);
    assert_eq!(node.files("manifests"), [SAVED], "the kubelet runs nothing else");
    for path in [manifest.clone(), node.text(SAVED)] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    // Again: nothing changes. Another image: KCM's manifest stays the way back.
    let ran = node.install(&["--output", &manifest]).await;
    assert_eq!((ran.exit, ran.out), (Exit::Done, format!("{manifest} unchanged\n")));
    assert_eq!(node.install(&["--dry-run"]).await.out, "");
    let ran = node.install(&["--image", "registry.test/coxswain:0.2.0", "--output", &manifest]).await;
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    assert_eq!(node.read("manifests/kube-controller-manager.yaml"), printed.out.replace(":0.1.0", ":0.2.0"));
    assert_eq!(node.read(SAVED), KUBEADM);
}

#[tokio::test]
async fn static_pod_is_refused_where_two_managers_would_run_or_no_way_back_remains() {
    let node = Node::new();
    let manifest = node.manifest();
    let second = node.text("manifests/coxswain.yaml");
    let (inside, missing) = (node.text("manifests/saved.yaml"), node.text("nowhere/saved.yaml"));
    fs::create_dir(node.path("manifests/below")).unwrap();
    let below = node.text("manifests/below/saved.yaml");
    for (args, expected) in [
        (&["--output", &second][..], "the kubelet runs every manifest in"),
        (&["--output", &manifest, "--backup", &inside], "the kubelet runs every manifest in"),
        (&["--output", &manifest, "--backup", &below], "the kubelet runs every manifest in"),
        (&["--output", &manifest, "--backup", &missing], "nowhere: No such file"),
    ] {
        let ran = node.install(&[&["--image", IMAGE][..], args].concat()).await;
        assert!(ran.exit == Exit::Refused && ran.err.contains(expected), "{ran:?}");
    }
    // A copy that is not of this manifest is somebody's only one.
    write(&node.text(SAVED), "kind: Pod\n");
    let ran = node.install(&["--image", IMAGE, "--output", &manifest]).await;
    assert!(ran.exit == Exit::Refused && ran.err.contains("exists with other content"), "{ran:?}");
    assert_eq!(node.read(SAVED), "kind: Pod\n");
    assert_eq!(node.read("manifests/kube-controller-manager.yaml"), KUBEADM);
    let other = node.text("before.yaml");
    let ran = node.install(&["--image", IMAGE, "--output", &manifest, "--backup", &other]).await;
    assert!(ran.exit == Exit::Done && node.read("before.yaml") == KUBEADM, "{ran:?}");

    // Coxswain's own manifest is replaced only while the way back is there.
    let newer = ["--image", "registry.test/coxswain:0.2.0", "--output", &manifest];
    for (content, expected) in
        [(Some("kind: Pod\n"), "is not a manifest of kube-controller-manager"), (None, " does not exist; ")]
    {
        match content {
            Some(content) => write(&node.text(SAVED), content),
            None => fs::remove_file(node.path(SAVED)).unwrap(),
        }
        let ran = node.install(&newer).await;
        assert!(ran.exit == Exit::Refused && ran.err.contains(expected), "{ran:?}");
    }
    let ran = node.install(&[&newer[..], &["--backup", &other]].concat()).await;
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    assert_eq!(node.files("manifests"), ["below", SAVED]);
}

/// The source lies elsewhere, and the kubelet's directory has a manager under another name.
#[tokio::test]
async fn static_pod_is_refused_next_to_another_manifest_of_a_manager() {
    let node = Node::new();
    let (copy, second) = (node.text("kcm.yaml"), node.text("manifests/coxswain.yaml"));
    write(&copy, KUBEADM);
    let args = ["--from", &copy, "--image", IMAGE, "--output", &second];
    // By its program although Coxswain refuses its flag, and by its image.
    let unknown_flag = KUBEADM.replace("--cluster-name=", "--cluster-nam=");
    let image_alone = "kind: Pod\nspec:\n  containers:\n  - image: registry.test:5000/coxswain:0.1.0\n";
    for manager in [KUBEADM, &unknown_flag, image_alone] {
        write(&node.manifest(), manager);
        for dry_run in [&[][..], &["--dry-run"]] {
            let ran = node.install(&[&args[..], dry_run].concat()).await;
            let expected = format!("/manifests/{SAVED} already starts a controller manager");
            assert!(ran.exit == Exit::Refused && ran.err.contains(&expected), "{ran:?}");
        }
        assert_eq!(node.files("manifests"), [SAVED]);
    }
    // Kubelets skip hidden files. Other pods are no managers.
    fs::rename(node.manifest(), node.path("manifests/.saved")).unwrap();
    write(&node.text("manifests/proxy.yaml"), "kind: Pod\nspec:\n  containers:\n  - image: haproxy:3\n");
    fs::write(node.path("manifests/other"), [0xff]).unwrap();
    std::os::unix::fs::symlink("nothing", node.path("manifests/link")).unwrap();
    let ran = node.install(&args).await;
    assert!(ran.exit == Exit::Done && ran.out.ends_with("coxswain.yaml written\n"), "{ran:?}");
    assert_eq!(node.files("manifests"), [".saved", "coxswain.yaml", "link", "other", "proxy.yaml"]);
}

#[tokio::test]
async fn static_pod_dry_run_has_the_refusals_of_a_run_and_writes_nothing() {
    let node = Node::new();
    let (manifest, second) = (node.manifest(), node.text("manifests/coxswain.yaml"));
    write(&node.text(SAVED), "kind: Pod\n");
    for (output, expected) in
        [(&second, "the kubelet runs every manifest in"), (&manifest, "exists with other content")]
    {
        let ran = node.install(&["--image", IMAGE, "--output", output, "--dry-run"]).await;
        assert!(ran.exit == Exit::Refused && ran.err.contains(expected) && ran.out.is_empty(), "{ran:?}");
    }
    assert_eq!((node.files("manifests"), node.read(SAVED)), (vec![SAVED.into()], "kind: Pod\n".into()));
}

#[tokio::test]
async fn static_pod_of_something_else_is_refused() {
    let node = Node::new();
    let output = node.text("out.yaml");
    for (args, expected) in [
        (&["--output", &output][..], "--image is missing"),
        (&["--image", "registry.test/coxswain :1"], "expected REGISTRY/NAME:TAG"),
    ] {
        let ran = node.install(args).await;
        assert!(ran.exit == Exit::Usage && ran.err.contains(expected), "{ran:?}");
    }
    write(&output, "mine\n");
    let ran = node.install(&["--image", IMAGE, "--output", &output]).await;
    assert!(
        ran.exit == Exit::Refused && ran.err.contains("the file is not a manifest of a controller manager"),
        "{ran:?}"
    );
    assert_eq!(node.read("out.yaml"), "mine\n");
    write(&node.manifest(), &KUBEADM.replace("--cluster-name=", "--cluster-nam="));
    let ran = node.install(&["--image", IMAGE]).await;
    assert!(ran.exit == Exit::Usage && ran.err.contains("did you mean --cluster-name"), "{ran:?}");
    assert!(ran.err.contains("allowed are the flags of kube-controller-manager"), "{ran:?}");
}
