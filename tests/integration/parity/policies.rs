//! When the API server goes by the policies with which scenarios have it refuse what controllers write.

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::play::{LIMIT, message, poll};
use super::scenario::resource;

/// Waits until the API server goes by every policy and every binding that was stored before. It takes them up together, about
/// once a second. So a policy of our own, which is stored after them, is in force no sooner than they are.
pub(super) async fn are_in_force(client: Client, namespace: &str) -> Result<(), String> {
    let name = format!("{namespace}-in-force");
    let condition = format!("request.namespace == '{namespace}' && object.metadata.name == '{name}'");
    let policy = json!({
        "spec": {
            "matchConstraints": { "resourceRules": [
                { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] },
            ] },
            "matchConditions": [{ "name": "here", "expression": condition }],
            "validations": [{ "expression": "false", "message": "it is in force" }],
        },
    });
    let binding = json!({ "spec": { "policyName": name, "validationActions": ["Deny"] } });
    let stored = [("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)];
    for (kind, object) in &stored {
        apply(&client, kind, &name, object).await?;
    }
    let config_maps: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &resource("ConfigMap")?);
    let trial = DynamicObject::new(&name, &resource("ConfigMap")?);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let refused = poll(async || match config_maps.create(&dry_run, &trial).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(error)) if error.message.contains("it is in force") => Ok(Some(())),
        Err(error) => Err(message(error)),
    });
    refused.await?.ok_or_else(|| format!("policies are not in force within {LIMIT:?}"))?;
    for (kind, _) in stored.iter().rev() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind)?);
        api.delete(&name, &DeleteParams::background()).await.map_err(message)?;
    }
    Ok(())
}

async fn apply(client: &Client, kind: &str, name: &str, object: &Value) -> Result<(), String> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind)?);
    let mut object = object.clone();
    object["apiVersion"] = "admissionregistration.k8s.io/v1".into();
    object["kind"] = kind.into();
    object["metadata"] = json!({ "name": name });
    let params = PatchParams::apply("parity").force();
    api.patch(name, &params, &Patch::Apply(&object)).await.map(drop).map_err(message)
}
