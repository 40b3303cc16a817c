//! Callers with client certificates of unusual forms: both managers authenticate the same user and groups, or refuse both.

use coxswain_machinery::tls::key_cases::KEY_CASES;
use coxswain_machinery::x509::fixtures::{element, name_part};

use crate::harness::{Answer, ControlPlane, Identity};

/// A path that members of `system:masters` may read.
const PAGE: &str = "/metrics";
/// Attributes of a subject.
const COMMON_NAME: u8 = 3;
const ORGANIZATION: u8 = 10;
/// The tag of a UTF8String.
const UTF8_STRING: u8 = 0x0c;

/// The identity that an answer to a request for [`PAGE`] shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// A member of `system:masters`.
    Master,
    /// The user `jane` without a group that may read the page.
    Jane,
    /// No identity: 401, or no answer.
    Refused,
}

fn outcome(answer: Option<&Answer>) -> Outcome {
    match answer {
        Some(Answer { status: 200, .. }) => Outcome::Master,
        Some(answer) if answer.status == 403 && answer.body.contains("User \\\"jane\\\"") => Outcome::Jane,
        Some(Answer { status: 401, .. }) | None => Outcome::Refused,
        Some(answer) => panic!("neither an identity nor a refusal: {answer:?}"),
    }
}

#[tokio::test]
async fn unusual_client_certificates_name_the_same_user_and_groups_to_both_managers() {
    let plane = ControlPlane::shared();
    let (ours, theirs) = (plane.running("coxswain"), plane.go_manager("callers-go", &[]));
    let key = KEY_CASES.iter().find(|case| case.name == "P-256").expect("a case").pem;
    let jane = || name_part(COMMON_NAME, UTF8_STRING, b"jane");
    let masters = |tag: u8| name_part(ORGANIZATION, tag, b"system:masters");
    let wide: Vec<u8> = b"jane".iter().flat_map(|byte| [0, *byte]).collect();
    let constructed = element(UTF8_STRING, b"system:masters");
    for (name, subject, version, expected) in [
        ("version 3", jane(), Some(2), Outcome::Jane),
        ("version 3 with the group", [jane(), masters(UTF8_STRING)].concat(), Some(2), Outcome::Master),
        ("version 1", jane(), None, Outcome::Jane),
        ("version 1 with the group", [jane(), masters(UTF8_STRING)].concat(), None, Outcome::Master),
        ("name in a BMPString", name_part(COMMON_NAME, 0x1e, &wide), Some(2), Outcome::Jane),
        ("name in a T61String", name_part(COMMON_NAME, 0x14, b"jane"), Some(2), Outcome::Jane),
        ("group of the context class", [jane(), masters(0x8c)].concat(), Some(2), Outcome::Refused),
        ("group of the application class", [jane(), masters(0x4c)].concat(), Some(2), Outcome::Refused),
        (
            "constructed group",
            [jane(), name_part(ORGANIZATION, 0x2c, &constructed)].concat(),
            Some(2),
            Outcome::Refused,
        ),
        ("constructed group of plain text", [jane(), masters(0x2c)].concat(), Some(2), Outcome::Refused),
        ("name of the context class", name_part(COMMON_NAME, 0x8c, b"jane"), Some(2), Outcome::Refused),
    ] {
        let identity = Identity::issue(plane, key, subject, version);
        let theirs = identity.get(plane, &theirs, PAGE, None).await;
        assert_eq!(outcome(theirs.as_ref()), expected, "{name}, kube-controller-manager: {theirs:?}");
        let ours = identity.get(plane, &ours, PAGE, None).await;
        assert_eq!(outcome(ours.as_ref()), expected, "{name}, Coxswain: {ours:?}");
    }
    theirs.stop();
}
