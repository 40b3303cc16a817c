//! Environment variables of an encoded pod whose values are fields of the pod itself.

use crate::api::pod::PodSpec;
use crate::wire::splice::{get, put_bytes};
use crate::wire::{Message as _, Reader, Str, Value, WireError, field, message, path};

message! {
    schema SCHEMA;

    /// A container, as far as its environment is concerned.
    struct Container = "k8s.io.api.core.v1.Container" {
        7 => env: Vec<EnvVar>,
    }

    struct EnvVar = "k8s.io.api.core.v1.EnvVar" {
        1 => name: Str,
        3 => value_from: EnvVarSource,
    }

    struct EnvVarSource = "k8s.io.api.core.v1.EnvVarSource" {
        1 => field_ref: ObjectFieldSelector,
    }

    struct ObjectFieldSelector = "k8s.io.api.core.v1.ObjectFieldSelector" {
        2 => field_path: Str,
    }
}

/// The encoded spec of a pod whose containers and init containers have a variable of this name: its value is a field of the
/// pod. A container that has a variable of this name keeps it.
///
/// # Errors
/// The spec is malformed.
pub fn with_field_variable(spec: &[u8], name: &str, field_path: &str) -> Result<Vec<u8>, WireError> {
    const CONTAINERS: u32 = field!(PodSpec, containers);
    const INIT_CONTAINERS: u32 = field!(PodSpec, initContainers);
    let field_ref = ObjectFieldSelector { field_path: field_path.into() };
    let variable = EnvVar { name: name.into(), value_from: EnvVarSource { field_ref } }.to_bytes();
    let mut out = Vec::with_capacity(spec.len() + 2 * variable.len());
    let mut fields = Reader::new(spec);
    while let Some((number, value, raw)) = fields.next_raw()? {
        if (number == CONTAINERS || number == INIT_CONTAINERS) && !has_variable(value.bytes()?, name)? {
            let mut container = value.bytes()?.to_vec();
            put_bytes(&mut container, field!(Container, env), &variable);
            put_bytes(&mut out, number, &container);
        } else {
            out.extend_from_slice(raw);
        }
    }
    Ok(out)
}

fn has_variable(container: &[u8], name: &str) -> Result<bool, WireError> {
    let mut fields = Reader::new(container);
    while let Some((number, value)) = fields.next_field()? {
        if number == field!(Container, env) {
            let held = get(value.bytes()?, path!(EnvVar, name))?.map(Value::text).transpose()?;
            if held.as_deref() == Some(name) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    message! {
        schema TEST_SCHEMA;

        struct Spec = "k8s.io.api.core.v1.PodSpec" {
            2 => containers: Vec<Container>,
            3 => restart_policy: Str,
            20 => init_containers: Vec<Container>,
        }
    }

    fn container(variables: &[&str]) -> Container {
        let variable = |name: &&str| EnvVar { name: (*name).into(), ..EnvVar::default() };
        Container { env: variables.iter().map(variable).collect() }
    }

    #[test]
    fn each_container_that_lacks_the_variable_gets_it_last() {
        assert_eq!(TEST_SCHEMA.len(), 1);
        let spec = Spec {
            containers: vec![container(&["A"]), container(&["INDEX", "B"]), container(&[])],
            restart_policy: "Never".into(),
            init_containers: vec![container(&[])],
        };
        let spliced = with_field_variable(&spec.to_bytes(), "INDEX", "metadata.name").unwrap();
        let spliced = Spec::decode(&Bytes::from(spliced)).unwrap();
        let names = |containers: &[Container]| -> Vec<String> {
            let name = |each: &EnvVar| format!("{}={}", each.name, each.value_from.field_ref.field_path);
            containers.iter().map(|held| held.env.iter().map(name).collect::<Vec<_>>().join(" ")).collect()
        };
        assert_eq!(
            names(&spliced.containers),
            ["A= INDEX=metadata.name", "INDEX= B=", "INDEX=metadata.name"]
        );
        assert_eq!(names(&spliced.init_containers), ["INDEX=metadata.name"]);
        assert_eq!(spliced.restart_policy, "Never");
    }
}
