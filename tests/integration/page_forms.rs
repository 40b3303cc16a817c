//! The pages about flags and status of both managers, in the forms that a caller accepts.

use coxswain_machinery::x509::fixtures::name_part;
use serde_json::Value;

use crate::harness::{Answer, ControlPlane, Identity, key_case};

/// The attributes of a subject.
const COMMON_NAME: u8 = 3;
const ORGANIZATION: u8 = 10;
/// The tag of a UTF8String.
const TEXT: u8 = 0x0c;

#[tokio::test]
async fn pages_about_flags_and_status_have_the_forms_of_the_go_manager() {
    let plane = ControlPlane::shared();
    let (ours, theirs) = (plane.running("coxswain"), plane.go_manager("pages-go", &[]));
    let subject = [name_part(COMMON_NAME, TEXT, b"jane"), name_part(ORGANIZATION, TEXT, b"system:masters")];
    let identity = Identity::issue(plane, key_case("P-256"), subject.concat(), Some(2));
    for kind in ["Flagz", "Statusz"] {
        let path = format!("/{}", kind.to_lowercase());
        let structured = |form: &str, version: &str| format!("{form};v={version};g=config.k8s.io;as={kind}");
        for accept in [
            None,
            Some("*/*".to_owned()),
            Some("text/plain".to_owned()),
            Some("application/json".to_owned()),
            Some("image/png".to_owned()),
            Some(structured("application/json", "v1beta1")),
            Some(structured("application/json", "v1alpha1")),
            Some(structured("application/json", "v7")),
            Some(structured("application/yaml", "v1beta1")),
        ] {
            let ours = identity.get(plane, &ours, &path, accept.as_deref()).await.expect("an answer");
            let theirs = identity.get(plane, &theirs, &path, accept.as_deref()).await.expect("an answer");
            let head = |answer: &Answer| (answer.status, answer.content_type.clone());
            assert_eq!(head(&ours), head(&theirs), "{path} {accept:?}: {ours:?}, {theirs:?}");
            // The object itself, without the values that are a program's own.
            let shape = |text: &str| {
                let object: Value = serde_yaml_ng::from_str(text).ok()?;
                let fields: Vec<String> = object.as_object()?.keys().cloned().collect();
                Some((object["kind"].clone(), object["apiVersion"].clone(), fields))
            };
            if ours.status == 200 && accept.is_some_and(|accept| accept.contains("as=")) {
                assert_eq!(shape(&ours.body), shape(&theirs.body), "{path}");
                assert!(shape(&ours.body).is_some(), "{path}: {}", ours.body);
            }
        }
    }
    theirs.stop();
}
