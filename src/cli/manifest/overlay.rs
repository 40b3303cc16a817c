//! The patch of `deploy/kustomize/overlays/cluster`: the flags of the cluster's kube-controller-manager for the Deployment, with
//! the volumes and variables that these flags need.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use coxswain_machinery::options::{self, WrittenFlag};
use serde_json::json;
use serde_yaml_ng::Value;

use super::yaml::emit;
use super::{Converted, Manifest, ManifestError, NodePath, is_under, list, strings};
use crate::cli::output::clean;

/// The Deployment that the patch changes. Its arguments are replaced as a whole, because a list such as `--controllers` grows
/// when the flag is repeated.
const DEPLOYMENT: &str = include_str!("../../../deploy/kustomize/overlays/deployment/deployment.yaml");
/// Where the Deployment mounts the Secret with the cluster's keys.
const KEYS: &str = "/etc/coxswain/keys";
/// Volumes of the Deployment and of the overlays that extend it.
const VOLUMES: [&str; 3] = ["keys", "serving", "tmp"];
/// Flags that name files of the Secret, each with its key there and where kubeadm has the file.
const SECRET_FILES: [(&str, &str, &str); 4] = [
    ("service-account-private-key-file", "sa.key", "/etc/kubernetes/pki/sa.key"),
    ("cluster-signing-cert-file", "ca.crt", "/etc/kubernetes/pki/ca.crt"),
    ("cluster-signing-key-file", "ca.key", "/etc/kubernetes/pki/ca.key"),
    ("root-ca-file", "root-ca.crt", "/etc/kubernetes/pki/ca.crt"),
];
/// Flags of one signer: they name files of the Secret, too.
const SIGNER_FILES: &str = "cluster-signing-";
/// Flags that the Deployment does not take from the node, and why.
const OWN: [(&str, &str); 14] = [
    ("kubeconfig", "the pod has a service account"),
    ("authentication-kubeconfig", "the pod has a service account"),
    ("authorization-kubeconfig", "the pod has a service account"),
    ("master", "the pod has a service account"),
    ("client-ca-file", "read from the ConfigMap extension-apiserver-authentication"),
    ("requestheader-client-ca-file", "read from the ConfigMap extension-apiserver-authentication"),
    ("bind-address", "the pod has its own address"),
    ("secure-port", "the Service, the probes and the NetworkPolicy expect 10257"),
    ("cert-dir", "overlays/monitored has a serving certificate"),
    ("tls-cert-file", "overlays/monitored has a serving certificate"),
    ("tls-private-key-file", "overlays/monitored has a serving certificate"),
    ("tls-sni-cert-key", "overlays/monitored has a serving certificate"),
    ("leader-elect", "three replicas require leader election"),
    (
        "use-service-account-credentials",
        "the Deployment's ClusterRole requires one ServiceAccount per controller",
    ),
];
/// A flag whose paths are of URLs.
const URL_PATHS: &str = "authorization-always-allow-paths";
/// Fields of a pod's spec that the Deployment has its own of, or that this module reads.
const KNOWN_OF_POD: [&str; 8] = [
    "containers",
    "dnsPolicy",
    "hostNetwork",
    "priority",
    "priorityClassName",
    "restartPolicy",
    "securityContext",
    "volumes",
];
/// The same of a container.
const KNOWN_OF_CONTAINER: [&str; 15] = [
    "args",
    "command",
    "env",
    "image",
    "imagePullPolicy",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resources",
    "securityContext",
    "startupProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeMounts",
];

/// The patch for a manifest, which is in the file `name`. Without an image the Deployment's stays.
///
/// # Errors
/// A field of the manifest has another type than the API gives it.
pub(in crate::cli) fn overlay(
    manifest: &Manifest,
    name: &str,
    image: Option<&str>,
) -> Result<Converted, ManifestError> {
    let mut overlay = Overlay { manifest, secret: BTreeMap::new(), left: Vec::new(), notes: Vec::new() };
    let (args, kept) = overlay.args()?;
    let path = format!("{CONTAINER}/args");
    let mut patch = vec![
        // A file that was made for another version of the Deployment is refused.
        json!({ "op": "test", "path": path, "value": deployment_args()? }),
        json!({ "op": "replace", "path": path, "value": args }),
        // overlays/cluster requires it, so an empty file is refused, and removes it.
        json!({ "op": "add", "path": "/metadata/annotations", "value": { APPLIED: "true" } }),
    ];
    let add = |path: &str, value: &Value| json!({ "op": "add", "path": format!("{path}/-"), "value": value });
    for variable in overlay.variables()? {
        patch.push(add(&format!("{CONTAINER}/env"), &variable));
    }
    let (volumes, mounts) = overlay.mounts(&kept)?;
    patch.extend(mounts.iter().map(|mount| add(&format!("{CONTAINER}/volumeMounts"), mount)));
    patch.extend(volumes.iter().map(|volume| add(&format!("{TEMPLATE}/volumes"), volume)));
    if let Some(image) = image {
        patch.push(json!({ "op": "replace", "path": format!("{CONTAINER}/image"), "value": image }));
    }
    overlay.unknown_fields();
    let secret = overlay.secret_command();
    let is_kubeadms = |key: &str, path: &str| SECRET_FILES.iter().any(|(_, k, p)| (*k, *p) == (key, path));
    if overlay.secret.iter().any(|(key, path)| key != "root-ca.crt" && !is_kubeadms(key, path))
        || overlay.secret.contains_key("root-ca.crt")
    {
        overlay
            .notes
            .push(format!("the keys are not in kubeadm's directories; create the Secret with: {secret}"));
    }
    let mut text = format!(
        "# Generated by `coxswain flags-from` from {}. overlays/cluster/kustomization.yaml applies this file to the Deployment.\n#\n\
         # These arguments require this Secret:\n#   {}\n#\n# Left out of this file, and notes:\n",
        clean(name),
        clean(&secret)
    );
    for line in overlay.left.iter().chain(&overlay.notes) {
        let _ = writeln!(text, "#   {}", clean(line));
    }
    text.push_str(&emit(&serde_yaml_ng::to_value(&patch)?));
    Ok(Converted { text, notes: overlay.notes })
}

/// The arguments of the Deployment, without the cluster's.
fn deployment_args() -> Result<Vec<String>, ManifestError> {
    let deployment: Value = serde_yaml_ng::from_str(DEPLOYMENT)?;
    let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    strings(args, "spec.template.spec.containers[].args")
}

/// Annotation by which `overlays/cluster` sees that the patch was applied.
const APPLIED: &str = "coxswain.dev/flags-from";
const TEMPLATE: &str = "/spec/template/spec";
const CONTAINER: &str = "/spec/template/spec/containers/0";

struct Overlay<'a> {
    manifest: &'a Manifest,
    /// Files of the node by their keys in the Secret.
    secret: BTreeMap<String, String>,
    /// Flags that the Deployment has its own of, with the reason.
    left: Vec<String>,
    notes: Vec<String>,
}

impl Overlay<'_> {
    /// The Deployment's arguments with those of the manifest, and the flags that are kept as they are.
    fn args(&mut self) -> Result<(Vec<String>, Vec<WrittenFlag>), ManifestError> {
        let manifest = self.manifest;
        let (mut taken, mut kept) = (Vec::new(), Vec::new());
        for written in &manifest.flags {
            let name = written.flag.name();
            self.note_election(&name, &written.value);
            if let Some((_, why)) = OWN.iter().find(|(own, _)| *own == name) {
                self.left.push(format!("--{name}={}: {why}", written.value));
            } else if name_in_secret(&name).is_some() {
                if written.value.is_empty() {
                    self.left.push(format!("--{name}=: the value is empty"));
                } else {
                    let key = self.key(&name, &written.value)?;
                    taken.push((name, format!("{KEYS}/{key}")));
                }
            } else {
                taken.push((name, written.value.clone()));
                kept.push(written.clone());
            }
        }
        let own = options::split(&deployment_args()?)?;
        let stays = |written: &&WrittenFlag| {
            let name = written.flag.name();
            // Without the file on the node there is none in the Secret.
            name_in_secret(&name).is_none() && taken.iter().all(|(taken, _)| *taken != name)
        };
        let own = own.iter().filter(stays).map(|written| (written.flag.name(), written.value.clone()));
        let mut args: Vec<String> =
            own.chain(taken.clone()).map(|(name, value)| format!("--{name}={value}")).collect();
        if taken.iter().all(|(name, _)| name != "root-ca-file") {
            // The pod has no kubeconfig whose CA could be published instead.
            args.push(format!("--root-ca-file={KEYS}/ca.crt"));
            if !self.secret.contains_key("ca.crt") {
                self.notes.push(
                    "--root-ca-file is not given: put the cluster's CA into the Secret as ca.crt".to_owned(),
                );
            }
        }
        Ok((args, kept))
    }

    /// Notes what is needed for the managers to compete for one Lease.
    fn note_election(&mut self, name: &str, value: &str) {
        match (name, value) {
            ("leader-elect", "false") => self.notes.push(
                "--leader-elect=false: kube-controller-manager does not compete for the Lease; stop it before you apply the \
                 Deployment, or both are active"
                    .to_owned(),
            ),
            ("leader-elect-resource-name", lease) if lease != "kube-controller-manager" => self.notes.push(format!(
                "--{name}={lease}: pass the same flag to the client, and add this Lease to the Role coxswain-admin-discovery"
            )),
            ("leader-elect-resource-namespace", namespace) if namespace != "kube-system" => self.notes.push(format!(
                "--{name}={namespace}: bind a Role for Leases in this namespace to the ServiceAccount kube-system/coxswain"
            )),
            _ => {}
        }
    }

    /// The key of a flag's file in the Secret. A CA bundle that is the signing certificate has one key with it.
    fn key(&mut self, name: &str, path: &str) -> Result<String, ManifestError> {
        let path = self.path_on_node(path)?;
        let signing =
            self.manifest.flags.iter().rfind(|written| {
                written.flag.name() == "cluster-signing-cert-file" && !written.value.is_empty()
            });
        let key = if name == "root-ca-file"
            && let Some(signing) = signing
            && self.path_on_node(&signing.value)? == path
        {
            "ca.crt".to_owned()
        } else {
            name_in_secret(name).unwrap_or_default()
        };
        if path.contains("$(") {
            self.notes.push(format!(
                "--{name}={path}: replace the variable in the command that creates the Secret"
            ));
        }
        self.secret.insert(key.clone(), path);
        Ok(key)
    }

    /// Where a file of the container is on the node, by the volume that is mounted there.
    fn path_on_node(&mut self, path: &str) -> Result<String, ManifestError> {
        let why = match self.manifest.path_on_node(path)? {
            NodePath::Host(path) => return Ok(path),
            NodePath::NoVolume => "no volume of the manifest contains this file",
            NodePath::OtherVolume => "this file is not on a hostPath volume",
        };
        self.notes.push(format!("{path}: {why}"));
        Ok(path.to_owned())
    }

    /// Variables of the container, but for those that the Deployment sets.
    fn variables(&mut self) -> Result<Vec<Value>, ManifestError> {
        let mut taken = Vec::new();
        for variable in list(&self.manifest.container()["env"], "spec.containers[].env")? {
            let name = variable["name"].as_str().unwrap_or_default();
            if name == "POD_IP" {
                self.left.push("variable POD_IP: the Deployment sets it".to_owned());
            } else {
                let upper = name.to_ascii_uppercase();
                if upper.ends_with("_PROXY") && upper != "NO_PROXY" {
                    self.notes.push(format!(
                        "variable {name}: NO_PROXY must contain the Service CIDR, because the pods call the API server through its Service"
                    ));
                }
                taken.push(variable.clone());
            }
        }
        Ok(taken)
    }

    /// Volumes and mounts that hold a file of a flag that is kept.
    fn mounts(&mut self, kept: &[WrittenFlag]) -> Result<(Vec<Value>, Vec<Value>), ManifestError> {
        let manifest = self.manifest;
        let (mut volumes, mut mounts): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
        let all = list(&manifest.container()["volumeMounts"], "spec.containers[].volumeMounts")?;
        let paths: Vec<(String, &str)> = kept
            .iter()
            .filter(|written| written.flag.name() != URL_PATHS)
            .flat_map(|written| paths(&written.value).map(|path| (written.flag.name(), path)))
            .collect();
        for mount in all {
            let (name, at) =
                (mount["name"].as_str().unwrap_or_default(), mount["mountPath"].as_str().unwrap_or_default());
            if !paths.iter().any(|(_, path)| is_under(path, at)) {
                if !self.secret_is_from(at) {
                    self.left.push(format!("volume {name} at {at}: no flag above uses a file in it"));
                }
                continue;
            }
            let Some(volume) = manifest.volume(mount)? else {
                self.notes
                    .push(format!("volume {name}: the manifest mounts this volume but does not define it"));
                continue;
            };
            let (mut mount, mut volume) = (mount.clone(), volume.clone());
            let name = if VOLUMES.contains(&name) { format!("node-{name}") } else { name.to_owned() };
            (mount["name"], volume["name"]) = (Value::from(name.clone()), Value::from(name.clone()));
            mount["readOnly"] = Value::from(true);
            mounts.push(mount);
            if volumes.iter().all(|each| each["name"] != volume["name"]) {
                self.notes.push(format!("volume {name}: user 65532 must be able to read {at} on each node"));
                volumes.push(volume);
            }
        }
        let held = |path: &str| {
            all.iter().any(|mount| mount["mountPath"].as_str().is_some_and(|at| is_under(path, at)))
        };
        for (flag, path) in paths.iter().filter(|(_, path)| !held(path)) {
            self.notes.push(format!("--{flag}: no volume of the manifest contains {path}"));
        }
        Ok((volumes, mounts))
    }

    /// Whether a mount holds files of the Secret, so that nothing is left out with it.
    fn secret_is_from(&self, at: &str) -> bool {
        let written =
            self.manifest.flags.iter().filter(|written| name_in_secret(&written.flag.name()).is_some());
        written.into_iter().any(|written| is_under(&written.value, at))
    }

    /// Notes what the patch does not take over of the rest of the pod.
    fn unknown_fields(&mut self) {
        let manifest = self.manifest;
        let fields = |value: &Value, known: &[&str]| -> Vec<String> {
            let names = value.as_mapping().into_iter().flat_map(|fields| fields.keys());
            let names = names.filter_map(|name| name.as_str().map(str::to_owned));
            names.filter(|name| !known.contains(&name.as_str())).collect()
        };
        for field in fields(&manifest.pod["spec"], &KNOWN_OF_POD) {
            self.notes.push(format!("spec.{field} is ignored"));
        }
        for field in fields(manifest.container(), &KNOWN_OF_CONTAINER) {
            self.notes.push(format!("spec.containers[{}].{field} is ignored", manifest.container));
        }
        let containers = manifest.pod["spec"]["containers"].as_sequence().map_or(0, Vec::len);
        for other in (0..containers).filter(|other| *other != manifest.container) {
            let name = manifest.pod["spec"]["containers"][other]["name"].as_str().unwrap_or_default();
            self.notes.push(format!("container {name} is ignored"));
        }
    }

    /// The command that creates the Secret.
    fn secret_command(&self) -> String {
        let mut command = "kubectl -n kube-system create secret generic coxswain-keys".to_owned();
        for (key, path) in &self.secret {
            let _ = write!(command, " --from-file={key}={}", quoted(path));
        }
        command
    }
}

/// The key that the file of a flag has in the Secret, if it has one there.
fn name_in_secret(flag: &str) -> Option<String> {
    let standard =
        SECRET_FILES.iter().find(|(name, _, _)| *name == flag).map(|(_, key, _)| (*key).to_owned());
    let of_signer = || {
        let name = flag.strip_prefix(SIGNER_FILES)?.strip_suffix("-file")?;
        // `kubelet-client-cert` and `kubelet-client-key` become `kubelet-client.crt` and `kubelet-client.key`.
        let (signer, kind) = name.rsplit_once('-')?;
        Some(format!("{signer}.{}", if kind == "cert" { "crt" } else { kind }))
    };
    standard.or_else(of_signer)
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(&byte);
    if word.bytes().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// The paths in a value, which may be a list of them: `CERT,KEY:NAME`.
fn paths(value: &str) -> impl Iterator<Item = &str> {
    value.split([',', ':', '=']).filter(|part| part.starts_with('/'))
}
