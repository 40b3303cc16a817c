//! The files with Pods that empty volumes: YAML or JSON. Whether the API server takes such a Pod is not looked at.

use serde_json::Value;

/// The Pod in a file; `None` if no file is named.
///
/// # Errors
/// Why it cannot be used.
pub fn template(path: &str) -> Result<Option<Value>, String> {
    if path.is_empty() {
        return Ok(None);
    }
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("failed to read file path {path}: {error}"))?;
    parse(path, &text).map(Some)
}

fn parse(path: &str, text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Err(format!("file was empty: {path}"));
    }
    let undecodable = |why: &str| format!("failed decoding file: {path}: {why}");
    let pod: Value = serde_yaml_ng::from_str(text).map_err(|error| undecodable(&error.to_string()))?;
    if pod["apiVersion"] != "v1" || pod["kind"] != "Pod" {
        return Err(undecodable("not a v1 Pod"));
    }
    if !pod["metadata"].is_object() || !pod["spec"].is_object() {
        return Err(undecodable("no metadata or no spec"));
    }
    match pod["spec"]["volumes"].as_array() {
        Some(volumes) if volumes.first().is_some_and(Value::is_object) => Ok(pod),
        _ => Err(format!("pod specification ({path}): does not contain any volume(s)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_a_pod_with_a_volume_or_says_what_is_wrong() {
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {namespace: n}\nspec: {volumes: [{name: v}]}\n";
        assert_eq!(parse("f", pod).unwrap()["spec"]["volumes"][0]["name"], "v");
        let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{},"spec":{"volumes":[{"name":"v"}]}}"#;
        assert!(parse("f", json).is_ok());
        let table = [
            (String::new(), "file was empty: f"),
            ("{".to_owned(), "failed decoding file: f"),
            (pod.replace("Pod", "Node"), "not a v1 Pod"),
            (pod.replace("v1", "v2"), "not a v1 Pod"),
            (pod.replace("metadata: {namespace: n}", "other: 1"), "no metadata"),
            (pod.replace("[{name: v}]", "[]"), "pod specification (f): does not contain any volume(s)"),
        ];
        for (text, expected) in table {
            let problem = parse("f", &text).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
        assert_eq!(template(""), Ok(None));
        assert!(template("/nonexistent").unwrap_err().starts_with("failed to read file path /nonexistent: "));
    }
}
