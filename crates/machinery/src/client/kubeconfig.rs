//! Reading of kubeconfig files, with data in base64 as Go takes it.

use std::io::IsTerminal as _;
use std::path::Path;

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use kube::config::{
    Cluster, Context, ExecInteractiveMode, Kubeconfig, KubeconfigError, NamedCluster, NamedContext,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_yaml_ng::Value;

/// Go's decoder does not look at the bits that the last character has beyond the last byte.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&ALPHABET, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Decodes a field `…-data` of a kubeconfig as Go does: ends of lines are skipped. `None` if it is no base64.
pub(super) fn decode_data(text: &str) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    LENIENT.decode(text).ok()
}

/// Reads a kubeconfig file. An empty field is as if it were absent, as in Go. Fields `…-data` are in strict base64 afterwards; one that
/// holds no data is absent as well, so that the file next to it counts.
///
/// # Errors
/// As of [`Kubeconfig::read_from`].
pub fn read_kubeconfig(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let mut kubeconfig = match Kubeconfig::read_from(path) {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => read_incomplete(path).ok_or(error)?,
    };
    // kube takes the name of a file as relative to the kubeconfig, so an empty one became its directory.
    let directory = path.parent();
    let is_file = |file: &String| !file.is_empty() && Some(Path::new(file)) != directory;
    let is_set = |secret: &SecretString| !secret.expose_secret().is_empty();
    kubeconfig.current_context = kubeconfig.current_context.take().filter(|name| !name.is_empty());
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.tls_server_name = cluster.tls_server_name.take().filter(|name| !name.is_empty());
        cluster.certificate_authority = cluster.certificate_authority.take().filter(is_file);
        cluster.certificate_authority_data = cluster.certificate_authority_data.take().and_then(strict);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        user.client_certificate = user.client_certificate.take().filter(is_file);
        user.client_key = user.client_key.take().filter(is_file);
        user.token_file = user.token_file.take().filter(is_file);
        user.token = user.token.take().filter(is_set);
        user.username = user.username.take().filter(|name| !name.is_empty());
        // A user without a password has an empty one.
        user.password = user.password.take().filter(|password| user.username.is_some() || is_set(password));
        user.client_certificate_data = user.client_certificate_data.take().and_then(strict);
        let key = user.client_key_data.take();
        let key = key.and_then(|key| strict(key.expose_secret().to_owned()));
        user.client_key_data = key.map(SecretString::from);
        if let Some(exec) = &mut user.exec {
            let mode = exec.interactive_mode.take();
            exec.interactive_mode = interactive_mode(mode, std::io::stdin().is_terminal());
        }
    }
    Ok(kubeconfig)
}

/// Returns the mode of a plugin that may ask its user. Without a terminal a plugin gets no standard input, as in kube-controller-manager, unless
/// it requires one.
fn interactive_mode(mode: Option<ExecInteractiveMode>, has_terminal: bool) -> Option<ExecInteractiveMode> {
    match mode {
        None | Some(ExecInteractiveMode::IfAvailable) if !has_terminal => Some(ExecInteractiveMode::Never),
        mode => mode,
    }
}

/// Reads a kubeconfig that has an entry without a name, or a context without a cluster. Such an entry harms nobody as long as it is not
/// used: Go reads an empty name. kube refuses the whole file.
fn read_incomplete(path: &Path) -> Option<Kubeconfig> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut document: Value = serde_yaml_ng::from_str(&text).ok()?;
    let fill = |entry: &mut Value, field: &str| {
        if let Some(fields) = entry.as_mapping_mut()
            && fields.get(field).is_none_or(Value::is_null)
        {
            fields.insert(field.into(), "".into());
        }
    };
    for list in ["clusters", "contexts", "users"] {
        for entry in document.get_mut(list).and_then(Value::as_sequence_mut).into_iter().flatten() {
            fill(entry, "name");
            if let Some(context) = entry.get_mut("context") {
                fill(context, "cluster");
            }
        }
    }
    let mut kubeconfig: Kubeconfig = serde_yaml_ng::from_value(document).ok()?;
    let directory = path.parent()?;
    let resolve = |file: &mut String| {
        if !file.is_empty() {
            *file = directory.join(&*file).to_string_lossy().into_owned();
        }
    };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.certificate_authority.iter_mut().for_each(resolve);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        let files = [&mut user.client_certificate, &mut user.client_key, &mut user.token_file];
        files.into_iter().flatten().for_each(resolve);
        // Without a slash it is searched in the path.
        let command = user.exec.as_mut().and_then(|exec| exec.command.as_mut());
        command.filter(|command| command.contains('/')).into_iter().for_each(resolve);
    }
    Some(kubeconfig)
}

/// Gives a kubeconfig without a current context one with this server and no credentials: `--master` takes its place.
pub(super) fn add_context(kubeconfig: &mut Kubeconfig, server: &str) {
    const NAME: &str = "--master";
    if kubeconfig.current_context.is_some() {
        return;
    }
    let cluster = Cluster { server: Some(server.to_owned()), ..Cluster::default() };
    let context = Context { cluster: NAME.to_owned(), ..Context::default() };
    kubeconfig.clusters.push(NamedCluster {
        name: NAME.to_owned(),
        cluster: Some(cluster),
        ..NamedCluster::default()
    });
    kubeconfig.contexts.push(NamedContext {
        name: NAME.to_owned(),
        context: Some(context),
        ..NamedContext::default()
    });
    kubeconfig.current_context = Some(NAME.to_owned());
}

/// The same data in strict base64; what is no base64 stays, for the error of whoever needs it.
fn strict(text: String) -> Option<String> {
    match decode_data(&text) {
        Some(data) if data.is_empty() => None,
        Some(data) => Some(STANDARD.encode(data)),
        None => Some(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from `encoding/json` of Go 1.26, which decodes a string into bytes.
    #[test]
    fn data_is_decoded_as_by_go() {
        for (text, expected) in [
            ("aGVsbG8=", Some("hello")),
            ("aGVs\nbG8=", Some("hello")),
            ("aGVs\r\nbG8=\n", Some("hello")),
            ("\naGVsbG8=", Some("hello")),
            ("aGVsbG8\n=", Some("hello")),
            ("aGVsbA=\n=\n", Some("hell")),
            ("aGVsbG9=", Some("hello")),
            ("aGVsbB==", Some("hell")),
            ("aG==", Some("h")),
            ("", Some("")),
            ("\n", Some("")),
            ("aGVsbG8", None),
            ("aGVsbG8==", None),
            ("aGVsbG8=\nx", None),
            ("aGVs bG8=", None),
            ("aGVs\tbG8=", None),
            ("aGVs_G8=", None),
            ("aGVs-G8=", None),
            ("aGVsbG8=aGVsbG8=", None),
            ("=", None),
            ("a", None),
            ("aG=", None),
            ("aGVsbG8\u{a0}=", None),
        ] {
            assert_eq!(decode_data(text).as_deref(), expected.map(str::as_bytes), "{text:?}");
        }
    }

    #[test]
    fn plugin_gets_no_standard_input_without_a_terminal_unless_it_requires_one() {
        use ExecInteractiveMode::{Always, IfAvailable, Never};
        for (mode, has_terminal, expected) in [
            (None, true, None),
            (None, false, Some(Never)),
            (Some(IfAvailable), true, Some(IfAvailable)),
            (Some(IfAvailable), false, Some(Never)),
            (Some(Never), true, Some(Never)),
            (Some(Always), false, Some(Always)),
        ] {
            assert_eq!(interactive_mode(mode.clone(), has_terminal), expected, "{mode:?} {has_terminal}");
        }
    }
}
