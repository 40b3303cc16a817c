//! Manifests as kubeadm writes them, with what a ClusterConfiguration adds.

use std::collections::BTreeMap;

use coxswain_machinery::options;
use serde_json::{Value, json};

use super::static_pod::judge;
use super::yaml::emit;
use super::{Converted, Manifest, overlay, static_pod};

const KUBEADM: &str = include_str!("../../../tests/data/peer/kubeadm-controller-manager.yaml");
const IMAGE: &str = "registry.test/coxswain:0.1.0";

/// Other CIDRs, `extraArgs`, `extraEnvs`, `extraVolumes`, and a CA bundle that is not the signing certificate.
fn custom() -> String {
    let changed = KUBEADM
        .replace("10.244.0.0/16", "10.200.0.0/16,fd00:10:200::/56")
        .replace("10.96.0.0/12", "10.97.0.0/16")
        .replace("--root-ca-file=/etc/kubernetes/pki/ca.crt", "--root-ca-file=/etc/bundles/both.crt")
        .replace("*,bootstrapsigner,tokencleaner", "*,-ttl-after-finished-controller,bootstrapsigner")
        .replace(
            "    - --use-service-account-credentials=true\n",
            "    - --use-service-account-credentials=true\n    - --node-cidr-mask-size-ipv4=25\n    - --v\n    - \"4\"\n    \
             - --tracing-config-file=/etc/traces/config.yaml\n    - --feature-gates=ClusterTrustBundle=true\n    - --feature_gates=ComponentFlagz=false\n",
        )
        .replace(
            "    image: registry.k8s.io",
            "    env:\n    - name: HTTPS_PROXY\n      value: http://proxy.test:3128\n    - name: ANSWER\n      value: \"yes\"\n    \
             image: registry.k8s.io",
        )
        .replace(
            "    - mountPath: /etc/kubernetes/pki\n",
            "    - mountPath: /etc/traces\n      name: keys\n    - mountPath: /etc/bundles\n      name: bundles\n      \
             readOnly: true\n    - mountPath: /etc/kubernetes/pki\n",
        )
        .replace(
            "  volumes:\n",
            "  volumes:\n  - hostPath:\n      path: /opt/traces\n      type: Directory\n    name: keys\n  - hostPath:\n      \
             path: /opt/bundles\n      type: Directory\n    name: bundles\n",
        );
    for added in ["10.200", "10.97", "both.crt", "-ttl-after", "HTTPS_PROXY", "/etc/traces", "/opt/bundles"] {
        assert!(changed.contains(added), "{added}");
    }
    changed
}

fn parse(text: &str) -> Value {
    serde_yaml_ng::from_str(text).unwrap()
}

fn flags(args: &Value) -> Vec<(String, String)> {
    let words: Vec<String> =
        args.as_array().unwrap().iter().map(|arg| arg.as_str().unwrap().to_owned()).collect();
    let split = options::split(&words).unwrap();
    split.into_iter().map(|written| (written.flag.name(), written.value)).collect()
}

/// The flags of a manifest.
fn given(text: &str) -> Vec<(String, String)> {
    let mut command = parse(text)["spec"]["containers"][0]["command"].take();
    command.as_array_mut().unwrap().remove(0);
    flags(&command)
}

fn convert(text: &str) -> Converted {
    overlay(&Manifest::parse(text).unwrap(), "kube-controller-manager.yaml", Some(IMAGE)).unwrap()
}

/// The values of a patch by the ends of their paths, in order.
fn values(patch: &Converted) -> BTreeMap<String, Vec<Value>> {
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for operation in parse(&patch.text).as_array().unwrap() {
        let path = operation["path"].as_str().unwrap();
        let place = path.trim_end_matches("/-").rsplit('/').next().unwrap();
        if operation["op"] == "test" || path == "/metadata/annotations" {
            continue;
        }
        assert_eq!(path.ends_with("/-"), operation["op"] == "add", "{operation}");
        found.entry(place.to_owned()).or_default().push(operation["value"].clone());
    }
    found
}

#[test]
fn overlay_kubeadm_manifest_keeps_flags_of_the_cluster() {
    let converted = convert(KUBEADM);
    assert_eq!(converted.notes, Vec::<String>::new());
    let values = values(&converted);
    assert_eq!(values.keys().collect::<Vec<_>>(), ["args", "image"], "no variables and no volumes");
    assert_eq!(values["image"], [json!(IMAGE)]);
    let expected = [
        ("secure-port", "10257"),
        ("allocate-node-cidrs", "true"),
        ("cluster-cidr", "10.244.0.0/16"),
        ("cluster-name", "kubernetes"),
        ("cluster-signing-cert-file", "/etc/coxswain/keys/ca.crt"),
        ("cluster-signing-key-file", "/etc/coxswain/keys/ca.key"),
        ("controllers", "*,bootstrapsigner,tokencleaner"),
        ("leader-elect", "true"),
        ("root-ca-file", "/etc/coxswain/keys/ca.crt"),
        ("service-account-private-key-file", "/etc/coxswain/keys/sa.key"),
        ("service-cluster-ip-range", "10.96.0.0/12"),
        ("use-service-account-credentials", "true"),
    ];
    let mut args = flags(&values["args"][0]);
    args.sort();
    let mut expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    expected.sort();
    assert_eq!(args, expected);
    for line in [
        "#   kubectl -n kube-system create secret generic coxswain-keys --from-file=ca.crt=/etc/kubernetes/pki/ca.crt \
         --from-file=ca.key=/etc/kubernetes/pki/ca.key --from-file=sa.key=/etc/kubernetes/pki/sa.key\n",
        "#   --bind-address=127.0.0.1: the pod has its own address\n",
        "#   volume ca-certs at /etc/ssl/certs: no flag above uses a file in it\n",
    ] {
        assert!(converted.text.contains(line), "{line}: {}", converted.text);
    }
}

#[test]
fn overlay_flags_volumes_and_variables_of_the_cluster_are_taken_over() {
    let text = custom();
    let converted = convert(&text);
    let values = values(&converted);
    let args = flags(&values["args"][0]);
    // Each flag of the node is there with its value, or the text says why not, or its file is in the Secret.
    for (name, value) in given(&text) {
        let is_kept = args.contains(&(name.clone(), value.clone()));
        let is_left = converted.text.contains(&format!("#   --{name}={value}: "));
        let file = value.rsplit('/').next().unwrap();
        let is_secret = args.iter().any(|(n, v)| *n == name && v.starts_with("/etc/coxswain/keys/"))
            && converted.text.contains(&format!("/{file}"));
        assert!(is_kept || is_left || is_secret, "--{name}={value}");
    }
    for name in args.iter().map(|(name, _)| name).filter(|name| *name != "feature-gates") {
        assert_eq!(args.iter().filter(|(other, _)| other == name).count(), 1, "{name}: a list would grow");
    }
    assert!(args.contains(&("root-ca-file".to_owned(), "/etc/coxswain/keys/root-ca.crt".to_owned())));
    assert!(converted.text.contains("--from-file=root-ca.crt=/opt/bundles/both.crt"), "{}", converted.text);
    assert!(converted.notes.iter().any(|note| note.contains("root-ca.crt=/opt/bundles/both.crt")));

    // The Deployment has a volume `keys` of its own.
    let mount = json!({ "mountPath": "/etc/traces", "name": "node-keys", "readOnly": true });
    assert_eq!(values["volumeMounts"], [mount]);
    let volume = json!({ "hostPath": { "path": "/opt/traces", "type": "Directory" }, "name": "node-keys" });
    assert_eq!(values["volumes"], [volume]);
    let variables = [
        json!({ "name": "HTTPS_PROXY", "value": "http://proxy.test:3128" }),
        json!({ "name": "ANSWER", "value": "yes" }),
    ];
    assert_eq!(values["env"], variables);
}

#[test]
fn overlay_what_cannot_be_taken_over_is_named() {
    let text = custom()
        .replace("  hostNetwork: true\n", "  hostNetwork: true\n  hostAliases:\n  - ip: 10.0.0.1\n")
        .replace("    - --v\n", "    - --leader-migration-config=/nowhere/migration.yaml\n    - --v\n")
        .replace("  - hostPath:\n      path: /opt/traces\n      type: Directory\n    name: keys\n", "");
    let notes = convert(&text).notes;
    for expected in [
        "spec.hostAliases is ignored",
        "--leader-migration-config: no volume of the manifest contains /nowhere/migration.yaml",
        "volume keys: the manifest mounts this volume but does not define it",
    ] {
        assert!(notes.iter().any(|note| note == expected), "{expected}: {notes:?}");
    }
    // Both managers would be active.
    let other_lease = KUBEADM.replace(
        "--leader-elect=true",
        "--leader-elect-resource-namespace=other\n    - --leader-elect=false",
    );
    let converted = convert(&other_lease);
    let args = flags(&values(&converted)["args"][0]);
    assert!(args.contains(&("leader-elect-resource-namespace".to_owned(), "other".to_owned())), "{args:?}");
    assert!(args.contains(&("leader-elect".to_owned(), "true".to_owned())), "{args:?}");
    for expected in ["--leader-elect=false: ", "--leader-elect-resource-namespace=other: "] {
        assert!(
            converted.notes.iter().any(|note| note.starts_with(expected)),
            "{expected}: {:?}",
            converted.notes
        );
    }
    let without_ca = KUBEADM
        .lines()
        .filter(|line| !line.contains("--root-ca-file") && !line.contains("--cluster-signing-"))
        .fold(String::new(), |text, line| text + line + "\n");
    let converted = convert(&without_ca);
    assert!(converted.text.contains("--root-ca-file=/etc/coxswain/keys/ca.crt"), "{}", converted.text);
    assert!(converted.notes[0].contains("put the cluster's CA into the Secret"), "{:?}", converted.notes);
}

#[test]
fn overlay_authorities_of_single_signers_are_files_of_the_secret() {
    let text = KUBEADM
        .replace("--cluster-signing-cert-file", "--cluster-signing-kubelet-client-cert-file")
        .replace("--cluster-signing-key-file", "--cluster-signing-kubelet-client-key-file");
    let converted = convert(&text);
    let args = flags(&values(&converted)["args"][0]);
    let signing: Vec<_> = args.iter().filter(|(name, _)| name.starts_with("cluster-signing-")).collect();
    assert_eq!(signing.len(), 2, "the Deployment's own would contradict them: {signing:?}");
    for file in
        ["kubelet-client.crt=/etc/kubernetes/pki/ca.crt", "kubelet-client.key=/etc/kubernetes/pki/ca.key"]
    {
        assert!(converted.text.contains(&format!("--from-file={file}")), "{}", converted.text);
    }
    assert!(
        args.contains(&("root-ca-file".to_owned(), "/etc/coxswain/keys/root-ca.crt".to_owned())),
        "{args:?}"
    );
}

#[test]
fn static_pod_changes_program_image_and_user_and_nothing_else() {
    for text in [KUBEADM.to_owned(), custom()] {
        let converted = static_pod(&Manifest::parse(&text).unwrap(), IMAGE).unwrap();
        assert_eq!(converted.notes, Vec::<String>::new());
        assert_eq!(given(&converted.text), given(&text));
        let (mut after, before) = (parse(&converted.text), parse(&text));
        let context = after["spec"]["securityContext"].as_object_mut().unwrap();
        assert_eq!(context.remove("runAsUser"), Some(json!(0)), "the keys are root's");
        assert_eq!(context.remove("runAsGroup"), Some(json!(0)));
        let container = &mut after["spec"]["containers"][0];
        assert_eq!(container["image"], IMAGE);
        assert_eq!(container["command"][0], "coxswain");
        container["image"] = before["spec"]["containers"][0]["image"].clone();
        container["command"][0] = json!("kube-controller-manager");
        assert_eq!(after, before);
        // A kubelet reads YAML 1.1, where a bare yes is true.
        assert!(!converted.text.contains("value: yes"), "{}", converted.text);
    }
}

#[test]
fn static_pod_user_of_the_manifest_stays() {
    for (before, after) in [
        ("  securityContext:\n", "  securityContext:\n    runAsUser: 2001\n    runAsGroup: 2001\n"),
        ("    resources:\n", "    securityContext:\n      runAsUser: 2001\n    resources:\n"),
    ] {
        let text = KUBEADM.replace(before, after);
        let converted = static_pod(&Manifest::parse(&text).unwrap(), IMAGE).unwrap();
        assert!(!converted.text.contains("runAsUser: 0") && converted.text.contains("runAsUser: 2001"));
    }
    let text = KUBEADM.replace("  securityContext:\n    seccompProfile:\n      type: RuntimeDefault\n", "");
    let converted = static_pod(&Manifest::parse(&text).unwrap(), IMAGE).unwrap();
    assert_eq!(parse(&converted.text)["spec"]["securityContext"], json!({ "runAsUser": 0, "runAsGroup": 0 }));
}

#[test]
fn manifest_anything_but_a_kube_controller_manager_pod_is_refused() {
    for (before, after, expected) in [
        ("kind: Pod", "kind: Deployment", "expected a Pod"),
        ("    - kube-controller-manager\n", "    - sh\n", "found [\"sh\"]"),
        ("--cluster-name=", "--cluster-nam=", "unknown flag --cluster-nam; did you mean --cluster-name"),
        ("--allocate-node-cidrs=true", "--allocate-node-cidrs=perhaps", "invalid value \"perhaps\""),
        ("    - --allocate-node-cidrs=true\n", "    - 7\n", "expected a list of strings"),
        ("  containers:\n", "  containers: {}\n  other:\n", "spec.containers: expected a list"),
        ("kind: Pod", "kind: [", "parse: "),
        ("kind: Pod\n", "", "expected a Pod"),
        ("hostNetwork: true", "hostNetwork: yes", "\"yes\" is ambiguous"),
        ("priority: 2000001000", "priority: 0440", "\"0440\" is ambiguous"),
        ("  hostNetwork: true\n", "  <<: *x\n", "\"<<\" is ambiguous"),
    ] {
        let text = KUBEADM.replacen(before, after, 1);
        assert_ne!(text, KUBEADM);
        let error = Manifest::parse(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    // A static pod that was converted before, for an upgrade.
    let converted = static_pod(&Manifest::parse(KUBEADM).unwrap(), IMAGE).unwrap();
    let again =
        static_pod(&Manifest::parse(&converted.text).unwrap(), "registry.test/coxswain:0.2.0").unwrap();
    assert_eq!(again.text, converted.text.replace(":0.1.0", ":0.2.0"));
    // One container without a command starts what its image starts.
    let text = KUBEADM.replace("  - command:\n    - kube-controller-manager\n", "  - args:\n");
    let manifest = Manifest::parse(&text).unwrap();
    assert!(static_pod(&manifest, IMAGE).unwrap().text.contains("--cluster-cidr=10.244.0.0/16"));
}

#[test]
fn yaml_text_is_quoted_where_a_version_of_yaml_takes_it_for_something_else() {
    for text in [
        "yes", "No", "on", "~", "", "0123", "1e3", "1:30", "null", "-", "---", "a: b", "a #b", "*a", "&a",
        "{a", "[a", "a\nb", "ü", " a", "a:", "@a", "%a", "'",
    ] {
        let emitted = emit(&text.into());
        assert!(emitted.starts_with('"'), "{text:?}: {emitted}");
        assert_eq!(serde_yaml_ng::from_str::<String>(&emitted).unwrap(), text);
    }
    for text in ["--controllers=*,-a", "/etc/kubernetes", "10.200", "registry.test/coxswain:0.1.0"] {
        let emitted = emit(&text.into());
        assert_eq!(serde_yaml_ng::from_str::<String>(&emitted).unwrap(), text, "{emitted}");
    }
    let nested = json!({
        "a": [], "b": {}, "c": [[1, [2, "3"]], [{ "d": [{ "e": null, "f": [true] }] }], -4.5], "g": { "h": { "i": "j" } },
    });
    let value: serde_yaml_ng::Value = serde_yaml_ng::to_value(&nested).unwrap();
    assert_eq!(parse(&emit(&value)), nested, "{}", emit(&value));
}

#[test]
fn overlay_of_a_cluster_with_an_external_ca_needs_no_key_of_it() {
    let text = KUBEADM
        .replace("--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt", "--cluster-signing-cert-file=")
        .replace("--cluster-signing-key-file=/etc/kubernetes/pki/ca.key", "--cluster-signing-key-file=");
    let converted = convert(&text);
    assert!(!converted.text.contains("--from-file=ca.key"), "{}", converted.text);
    assert!(
        converted.text.contains("--from-file=root-ca.crt=/etc/kubernetes/pki/ca.crt"),
        "{}",
        converted.text
    );
    assert!(converted.notes.iter().all(|note| !note.contains("no volume")), "{:?}", converted.notes);
    let args = flags(&values(&converted)["args"][0]);
    assert!(args.iter().all(|(name, _)| !name.starts_with("cluster-signing-")), "{args:?}");
}

#[test]
fn overlay_notes_what_the_operator_has_to_see_to() {
    let text = custom()
        .replace("/opt/bundles", "/opt/b'undles; reboot")
        .replace("--leader-elect=true", "--leader-elect-resource-name=other");
    let converted = convert(&text);
    let secret = "--from-file=root-ca.crt='/opt/b'\\''undles; reboot/both.crt'";
    assert!(converted.text.contains(secret), "{}", converted.text);
    for expected in ["variable HTTPS_PROXY: NO_PROXY", "--leader-elect-resource-name=other: "] {
        assert!(
            converted.notes.iter().any(|note| note.starts_with(expected)),
            "{expected}: {:?}",
            converted.notes
        );
    }
}

#[test]
fn static_pod_unknown_fields_annotations_and_resources_stay() {
    let text = KUBEADM
        .replace("metadata:\n", "metadata:\n  annotations:\n    example.com/owner: \"yes\"\n  futureOfPods: {a: [1, {b: null}]}\n")
        .replace("  hostNetwork: true\n", "  hostNetwork: true\n  futureOfSpecs:\n  - x\n")
        .replace(
            "    resources:\n",
            "    futureOfContainers: 0.5\n    env:\n    - name: A\n      valueFrom:\n        fieldRef:\n          fieldPath: status.podIP\n    \
             securityContext:\n      readOnlyRootFilesystem: true\n      runAsUser: 0\n    resources:\n      limits:\n        memory: 1Gi\n",
        );
    assert_eq!(text.matches("futureOf").count(), 3);
    let converted = static_pod(&Manifest::parse(&text).unwrap(), IMAGE).unwrap();
    let (mut after, mut before) = (parse(&converted.text), parse(&text));
    for pod in [&mut after, &mut before] {
        let container = &mut pod["spec"]["containers"][0];
        (container["image"], container["command"][0]) = (json!(""), json!(""));
    }
    assert_eq!(after, before);
}

#[test]
fn static_pod_of_its_own_output_is_the_same() {
    for text in [KUBEADM.to_owned(), custom()] {
        let manifest = Manifest::parse(&text).unwrap();
        assert_eq!(manifest.image_of_coxswain(), None);
        let once = static_pod(&manifest, IMAGE).unwrap().text;
        let manifest = Manifest::parse(&once).unwrap();
        assert_eq!(manifest.image_of_coxswain(), Some(IMAGE));
        assert_eq!(static_pod(&manifest, IMAGE).unwrap().text, once);
    }
}

#[test]
fn static_pod_flags_and_probes_that_coxswain_does_not_support_are_refused() {
    for (before, after, expected) in [
        ("--cluster-name=kubernetes", "--no-such-flag=true", "unknown flag --no-such-flag"),
        (
            "--cluster-name=kubernetes",
            "--no-such-flag=true",
            "allowed are the flags of kube-controller-manager 1.36",
        ),
        ("--controllers=*,", "--controllers=*,deploymnet,", "--controllers: "),
        ("--cluster-cidr=10.244.0.0/16", "--cluster-cidr=10.244.0.0", "--cluster-cidr: "),
        (
            "--cluster-name=kubernetes",
            "--kube-api-content-type=application/yaml",
            "--kube-api-content-type: ",
        ),
        ("--leader-elect=true", "--leader-elect-lease-duration=1s", "--leader-elect-lease-duration: "),
        (
            "        path: /healthz\n",
            "        path: /ping\n",
            "spec.containers[].livenessProbe: path \"/ping\": expected /healthz, /livez",
        ),
        (
            "      httpGet:\n",
            "      exec:\n        command: [a]\n      was:\n",
            "spec.containers[].livenessProbe: exec: expected httpGet",
        ),
        (
            "    resources:\n",
            "    lifecycle:\n      preStop:\n        exec:\n          command: [sleep]\n    resources:\n",
            "spec.containers[].lifecycle.preStop: exec: ",
        ),
    ] {
        let text = KUBEADM.replacen(before, after, 1);
        assert_ne!(text, KUBEADM);
        let refused = Manifest::parse(&text).and_then(|manifest| static_pod(&manifest, IMAGE)).unwrap_err();
        assert!(refused.to_string().contains(expected), "{expected}: {refused}");
    }
    // Nobody has these files here, and the container may.
    let text = KUBEADM.replace(
        "--cluster-name=kubernetes",
        "--tracing-config-file=/nowhere/a\n    - --enable-leader-migration\n    - --leader-migration-config=/nowhere/b\n    - --authentication-kubeconfig=/nowhere/c\n    \
         - --allow-metric-labels-manifest=/nowhere/d\n    - --pv-recycler-pod-template-filepath-nfs=/nowhere/e\n    - --tls-cert-file=/nowhere/f\n    \
         - --tls-private-key-file=/nowhere/g",
    );
    assert_eq!(text.matches("/nowhere/").count(), 7);
    let judgment = judge(&Manifest::parse(&text).unwrap().flags);
    assert!(judgment.values.is_empty() && !judgment.files.is_empty(), "{judgment:?}");
}

#[test]
fn static_pod_lost_comments_are_noted() {
    let text = KUBEADM.replace("kind: Pod\n", "# ours\nkind: Pod\n");
    let converted = static_pod(&Manifest::parse(&text).unwrap(), IMAGE).unwrap();
    assert_eq!(converted.notes, ["comments of the manifest are not kept"]);
}

#[test]
fn image_of_coxswain_is_known_by_command_or_by_name() {
    for (command, image, expected) in [
        (Some("/usr/bin/coxswain"), "registry.test/c:1", true),
        (Some("kube-controller-manager"), "registry.test/coxswain:1", false),
        (None, "registry.test:5000/own/coxswain:0.1.0", true),
        (None, "registry.test/coxswain@sha256:00", true),
        (None, "registry.k8s.io/kube-controller-manager:v1.36.3", false),
    ] {
        let command = command.map_or(String::new(), |command| format!("    command: [{command}]\n"));
        let text = format!("kind: Pod\nspec:\n  containers:\n  - image: {image}\n{command}");
        let manifest = Manifest::parse(&text).unwrap();
        assert_eq!(manifest.image_of_coxswain(), expected.then_some(image), "{text}");
    }
}
