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
        format!(
            "a YAML or JSON file with kind {}, apiVersion {}/{}",
            self.kind,
            self.group,
            self.versions.join(" or ")
        )
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

    /// Returns the first document of the text, as Kubernetes reads it, and its version. A type that is to be strict denies unknown fields, and
    /// has the fields `apiVersion` and `kind`.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn decode<T: DeserializeOwned>(&self, text: &str) -> Result<(T, &'static str), Vec<String>> {
        let unreadable = |error: serde_yaml_ng::Error| vec![error.to_string()];
        let meta: TypeMeta = first(text).map_err(unreadable)?;
        let version = meta.api_version.strip_prefix(self.group).and_then(|rest| rest.strip_prefix('/'));
        let known = self.versions.iter().find(|known| version == Some(**known));
        let mut problems = Vec::new();
        if meta.kind != self.kind {
            problems.push(format!("unexpected kind {:?}; expected {}", meta.kind, self.kind));
        }
        if known.is_none() {
            problems.push(format!("unknown apiVersion {:?}", meta.api_version));
        }
        match known {
            Some(version) if problems.is_empty() => Ok((first(text).map_err(unreadable)?, version)),
            _ => Err(problems),
        }
    }
}

/// Reads the first document of a text.
fn first<T: DeserializeOwned>(text: &str) -> Result<T, serde_yaml_ng::Error> {
    match serde_yaml_ng::Deserializer::from_str(text).next() {
        Some(document) => T::deserialize(document),
        None => serde_yaml_ng::from_str(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACING: Document =
        Document { group: "apiserver.config.k8s.io", kind: "TracingConfiguration", versions: &["v1"] };

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct Sampled {
        #[serde(default)]
        rate: u32,
    }

    #[test]
    fn first_of_several_documents_counts() {
        let one = |rate: u32| {
            format!("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nrate: {rate}\n")
        };
        for text in [one(1), format!("{}---\n{}", one(1), one(2)), format!("---\n{}---\nkind: [", one(1))] {
            assert_eq!(TRACING.decode::<Sampled>(&text), Ok((Sampled { rate: 1 }, "v1")), "{text}");
        }
        for text in ["", "---\n", "kind: ["] {
            assert!(TRACING.decode::<Sampled>(text).is_err(), "{text:?}");
        }
    }
}
