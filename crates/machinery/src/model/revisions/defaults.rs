//! What the API server fills into a pod template, taken out again: two templates mean the same when they are equal without it.
//!
//! The document of an older revision may lack what the server fills in by now; the owner's own template never does. To take
//! the defaults out of both is the same as to fill them into both, and needs no order.

use serde_json::{Map, Value as Json, json};

use crate::model::quantity::Quantity;
use crate::model::template::shapes::{self, Holds, Shape};

/// A member with this value in a message of this name says what holds without it. In order of the messages' names.
const DEFAULTS: &[(&str, &str, Default)] = &[
    ("AzureDiskVolumeSource", "cachingMode", Default::Text("ReadWrite")),
    ("AzureDiskVolumeSource", "fsType", Default::Text("ext4")),
    ("AzureDiskVolumeSource", "kind", Default::Text("Shared")),
    ("AzureDiskVolumeSource", "readOnly", Default::False),
    ("ConfigMapVolumeSource", "defaultMode", Default::Number(0o644)),
    ("Container", "terminationMessagePath", Default::Text("/dev/termination-log")),
    ("Container", "terminationMessagePolicy", Default::Text("File")),
    ("ContainerPort", "protocol", Default::Text("TCP")),
    ("DownwardAPIVolumeSource", "defaultMode", Default::Number(0o644)),
    ("EphemeralContainerCommon", "terminationMessagePath", Default::Text("/dev/termination-log")),
    ("EphemeralContainerCommon", "terminationMessagePolicy", Default::Text("File")),
    ("FileKeySelector", "optional", Default::False),
    ("GRPCAction", "service", Default::Text("")),
    ("HTTPGetAction", "path", Default::Text("/")),
    ("HTTPGetAction", "scheme", Default::Text("HTTP")),
    ("HostPathVolumeSource", "type", Default::Text("")),
    ("ISCSIVolumeSource", "iscsiInterface", Default::Text("default")),
    ("ObjectFieldSelector", "apiVersion", Default::Text("v1")),
    ("PersistentVolumeClaimSpec", "volumeMode", Default::Text("Filesystem")),
    ("PodSpec", "dnsPolicy", Default::Text("ClusterFirst")),
    ("PodSpec", "restartPolicy", Default::Text("Always")),
    ("PodSpec", "schedulerName", Default::Text("default-scheduler")),
    ("PodSpec", "securityContext", Default::Nothing),
    ("PodSpec", "terminationGracePeriodSeconds", Default::Number(30)),
    ("Probe", "failureThreshold", Default::Number(3)),
    ("Probe", "periodSeconds", Default::Number(10)),
    ("Probe", "successThreshold", Default::Number(1)),
    ("Probe", "timeoutSeconds", Default::Number(1)),
    ("ProjectedVolumeSource", "defaultMode", Default::Number(0o644)),
    ("RBDVolumeSource", "keyring", Default::Text("/etc/ceph/keyring")),
    ("RBDVolumeSource", "pool", Default::Text("rbd")),
    ("RBDVolumeSource", "user", Default::Text("admin")),
    ("ScaleIOVolumeSource", "fsType", Default::Text("xfs")),
    ("ScaleIOVolumeSource", "storageMode", Default::Text("ThinProvisioned")),
    ("SecretVolumeSource", "defaultMode", Default::Number(0o644)),
    ("ServiceAccountTokenProjection", "expirationSeconds", Default::Number(3600)),
    ("Volume", "emptyDir", Default::Nothing),
];

#[derive(Clone, Copy)]
enum Default {
    Text(&'static str),
    Number(i64),
    False,
    /// `{}`
    Nothing,
}

impl Default {
    fn is(self, value: &Json) -> bool {
        match self {
            Self::Text(text) => value.as_str() == Some(text),
            Self::Number(number) => value.as_i64() == Some(number),
            Self::False => *value == Json::Bool(false),
            Self::Nothing => value.as_object().is_some_and(Map::is_empty),
        }
    }
}

/// Takes out of the members of a template what is null or says what holds without it, and rounds amounts of resources as the
/// server does.
pub(super) fn strip(template: &mut Map<String, Json>) {
    strip_members(template, shapes::POD_TEMPLATE);
}

fn strip_members(members: &mut Map<String, Json>, shape: &Shape) {
    for field in shape.fields {
        match field.holds {
            Holds::Flattened(inner) => strip_members(members, inner),
            Holds::Message(inner) => {
                if let Some(Json::Object(object)) = members.get_mut(field.name) {
                    strip_members(object, inner);
                }
            }
            Holds::Messages(inner) => {
                if let Some(Json::Array(items)) = members.get_mut(field.name) {
                    items
                        .iter_mut()
                        .filter_map(Json::as_object_mut)
                        .for_each(|item| strip_members(item, inner));
                }
            }
            Holds::Amounts => {
                if let Some(Json::Object(amounts)) = members.get_mut(field.name) {
                    amounts.values_mut().for_each(round);
                }
            }
            _ => {}
        }
    }
    let pulled = pull_policy(members, shape);
    members.retain(|name, value| {
        let is_default = DEFAULTS
            .iter()
            .any(|(message, field, default)| *message == shape.name && *field == name && default.is(value));
        !value.is_null() && !is_default && Some(name.as_str()) != pulled
    });
}

/// The member that says how an image is pulled, if it says what would be done without it.
fn pull_policy(members: &Map<String, Json>, shape: &Shape) -> Option<&'static str> {
    let (image, policy) = match shape.name {
        "Container" | "EphemeralContainerCommon" => ("image", "imagePullPolicy"),
        "ImageVolumeSource" => ("reference", "pullPolicy"),
        _ => return None,
    };
    let image = members.get(image).and_then(Json::as_str).unwrap_or_default();
    let default = if is_latest(image) { "Always" } else { "IfNotPresent" };
    (members.get(policy).and_then(Json::as_str) == Some(default)).then_some(policy)
}

/// Whether an image has the tag `latest`, or neither tag nor digest.
fn is_latest(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    // A colon before the last slash is that of a registry's port.
    let tag = name.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    match (tag, digest) {
        (Some(tag), _) => tag == "latest",
        (None, digest) => digest.is_none(),
    }
}

/// Rounds up to a thousandth.
fn round(amount: &mut Json) {
    let Some(quantity) = amount.as_str().and_then(|text| text.parse::<Quantity>().ok()) else { return };
    let rounded = format!("{}m", quantity.thousandths()).parse::<Quantity>().unwrap_or(quantity);
    if quantity.is_positive() && !rounded.equals(quantity) {
        *amount = json!(rounded.to_string());
    }
}
