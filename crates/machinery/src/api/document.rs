//! Configuration documents of Kubernetes components: YAML or JSON that names its kind and its version. Knows none of them.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A kind of document, in the versions in which it is read.
#[derive(Clone, Copy, Debug)]
pub struct Document {
    /// Its API group.
    pub group: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its versions, the newest first.
    pub versions: &'static [&'static str],
}

#[derive(Deserialize)]
struct TypeMeta {
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(default)]
    kind: String,
}

impl Document {
    /// What a file must be to hold one, for messages.
    pub fn expected(&self) -> String {
        format!("a file with kind {}, apiVersion {}/{}", self.kind, self.group, self.versions.join(" or "))
    }

    /// What `parse` makes of the file at `path`.
    ///
    /// # Errors
    /// All that is wrong, with the file's name.
    pub fn read<T>(path: &str, parse: impl FnOnce(&str) -> Result<T, Vec<String>>) -> Result<T, Vec<String>> {
        let text = std::fs::read_to_string(path).map_err(|error| vec![error.to_string()]);
        text.and_then(|text| parse(&text))
            .map_err(|problems| problems.iter().map(|problem| format!("{path:?}: {problem}")).collect())
    }

    /// The document, and its version. A type that is to be strict denies unknown fields, and has the fields `apiVersion` and
    /// `kind`.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn decode<T: DeserializeOwned>(&self, text: &str) -> Result<(T, &'static str), Vec<String>> {
        let unreadable = |error: serde_yaml_ng::Error| vec![error.to_string()];
        let meta: TypeMeta = serde_yaml_ng::from_str(text).map_err(unreadable)?;
        let version = meta.api_version.strip_prefix(self.group).and_then(|rest| rest.strip_prefix('/'));
        let known = self.versions.iter().find(|known| version == Some(**known));
        let mut problems = Vec::new();
        if meta.kind != self.kind {
            problems.push(format!("kind {:?} is not {}", meta.kind, self.kind));
        }
        if known.is_none() {
            problems.push(format!("there is no apiVersion {:?}", meta.api_version));
        }
        match known {
            Some(version) if problems.is_empty() => {
                Ok((serde_yaml_ng::from_str(text).map_err(unreadable)?, version))
            }
            _ => Err(problems),
        }
    }
}
