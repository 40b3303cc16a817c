//! The static pod: the manifest with another program and image. Flags, mounts and everything else stay.

use serde_yaml_ng::{Mapping, Value};

use super::yaml::emit;
use super::{Converted, Manifest, ManifestError};

/// The manifest with Coxswain in the place of kube-controller-manager, by this image.
///
/// kube-controller-manager's image runs as root, and Coxswain's as the user 65532, who cannot read the keys in `/etc/kubernetes`.
/// So the pod runs as root unless it names a user.
///
/// # Errors
/// The security context is no mapping.
pub(in crate::cli) fn static_pod(manifest: &Manifest, image: &str) -> Result<Converted, ManifestError> {
    let mut pod = manifest.pod.clone();
    let mut notes = Vec::new();
    let container = &mut pod["spec"]["containers"][manifest.container];
    container["image"] = Value::from(image);
    if !container["command"].is_null() {
        container["command"][0] = Value::from("coxswain");
    }
    let names_user = !container["securityContext"]["runAsUser"].is_null();
    let context = &mut pod["spec"]["securityContext"];
    if context.is_null() {
        *context = Value::Mapping(Mapping::new());
    }
    let Value::Mapping(context) = context else {
        return Err(ManifestError::Field("spec.securityContext", "a mapping"));
    };
    if !names_user && !context.contains_key("runAsUser") {
        context.insert("runAsUser".into(), 0.into());
        context.entry("runAsGroup".into()).or_insert_with(|| 0.into());
        if context.get("runAsNonRoot").is_some_and(|value| value.as_bool() == Some(true)) {
            notes.push(
                "spec.securityContext.runAsNonRoot is true and no runAsUser is given: set the user that owns the keys"
                    .to_owned(),
            );
        }
    }
    Ok(Converted { text: emit(&pod), notes })
}
