//! The static pod: the manifest with another program and image. Flags, mounts and everything else stay.

use std::ffi::OsString;

use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::options::{self, Invocation, OptionError, OptionErrors, OptionWarning, WrittenFlag};
use serde_yaml_ng::{Mapping, Value};

use super::yaml::emit;
use super::{COXSWAIN, Converted, Manifest, ManifestError};

/// Fields of a container with a handler that a kubelet runs, each with the name of its probe or hook.
const HANDLERS: [(&str, &str); 5] = [
    ("livenessProbe", ""),
    ("readinessProbe", ""),
    ("startupProbe", ""),
    ("lifecycle", "postStart"),
    ("lifecycle", "preStop"),
];
/// The paths of health checks. A path below one of them is a single check.
const HEALTH: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// The manifest with Coxswain in the place of kube-controller-manager, by this image. A manifest that was converted before and has this
/// image is returned as it is.
///
/// kube-controller-manager's image runs as root, and Coxswain's as the user 65532, who cannot read the keys in `/etc/kubernetes`.
/// So the pod runs as root unless it names a user.
///
/// # Errors
/// Coxswain does not start with the value of a flag; a probe or a hook fails in Coxswain's image; or the security context is no mapping.
pub(in crate::cli) fn static_pod(manifest: &Manifest, image: &str) -> Result<Converted, ManifestError> {
    let Judgment { values, warnings, .. } = judge(&manifest.flags);
    if !values.is_empty() {
        return Err(ManifestError::Values(OptionErrors(values)));
    }
    let mut pod = manifest.pod.clone();
    let mut notes: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let container = &mut pod["spec"]["containers"][manifest.container];
    check_handlers(container)?;
    container["image"] = Value::from(image);
    if !container["command"].is_null() {
        container["command"][0] = Value::from(COXSWAIN);
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
    if manifest.has_comments {
        notes.push("comments of the manifest are not kept".to_owned());
    }
    Ok(Converted { text: emit(&pod), notes })
}

/// Errors and warnings that Coxswain reports for flags at its start.
#[derive(Debug, Default)]
pub(in crate::cli) struct Judgment {
    /// Wrong values.
    pub(in crate::cli) values: Vec<OptionError>,
    /// Files that cannot be used. A container may have them elsewhere than this machine.
    pub(in crate::cli) files: Vec<OptionError>,
    /// Flags without effect and the like; none if anything is wrong.
    pub(in crate::cli) warnings: Vec<OptionWarning>,
}

/// Judges flags as Coxswain does at its start.
pub(in crate::cli) fn judge(flags: &[WrittenFlag]) -> Judgment {
    let word = |written: &WrittenFlag| OsString::from(format!("--{}={}", written.flag.name(), written.value));
    let mut judgment = Judgment::default();
    match options::parse(flags.iter().map(word), REGISTRY) {
        Ok(Invocation::Run(startup)) => judgment.warnings = startup.warnings,
        Ok(Invocation::Print(_)) => {}
        Err(OptionErrors(errors)) => {
            for error in errors {
                match &error {
                    // The container may have its files elsewhere than this machine.
                    OptionError::Unreadable { .. } => judgment.files.push(error),
                    // The variables of this process are not those of the container.
                    OptionError::Variable { .. } => {}
                    _ => judgment.values.push(error),
                }
            }
        }
    }
    judgment
}

/// Refuses probes and hooks that fail in Coxswain's image: the kubelet would restart the container again and again.
fn check_handlers(container: &Value) -> Result<(), ManifestError> {
    for (field, hook) in HANDLERS {
        let (handler, field) = match hook {
            "" => (&container[field], field.to_owned()),
            hook => (&container[field][hook], format!("{field}.{hook}")),
        };
        let field = format!("spec.containers[].{field}");
        if !handler["exec"].is_null() {
            let allowed = "httpGet, because Coxswain's image contains no other program than coxswain";
            return Err(ManifestError::Handler { field, found: "exec".to_owned(), allowed });
        }
        let path = handler["httpGet"]["path"].as_str().unwrap_or("/healthz");
        let path = path.split('?').next().unwrap_or_default();
        let is_health = |health: &&str| {
            path.strip_prefix(*health).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if hook.is_empty() && !HEALTH.iter().any(is_health) {
            let allowed = "/healthz, /livez, /readyz or a path below one of them";
            return Err(ManifestError::Handler { field, found: format!("path {path:?}"), allowed });
        }
    }
    Ok(())
}
