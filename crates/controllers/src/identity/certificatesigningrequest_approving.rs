//! certificatesigningrequest-approving-controller: approves the requests by which kubelets join and renew what they log in with.
//!
//! Who may have such a certificate is up to RBAC: the API server is asked whether the requester may create the subresource
//! `selfnodeclient`, if the request is for the requester's own name, and then `nodeclient`. A request that is not allowed is asked
//! for again, at growing intervals for as long as it is there: a role that is bound later is found. Keys are requests. It denies
//! nothing, signs nothing, and leaves all other requests to people.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::requests::{PARSER, ParsedRequest};
use super::signers::Signer;
use crate::live_reads::CSR_ACCESS;
use coxswain_machinery::api::certificates::{CertificateSigningRequest, CertificateSigningRequestCondition};
use coxswain_machinery::api::kinds::CERTIFICATE_SIGNING_REQUESTS;
use coxswain_machinery::framework::{
    AccessQuestion, Build, BuildError, Built, DeclaredRead, DefaultState, Descriptor, Grant, Loop,
    LoopSettings, Observation, ObserveError, ParserInput, QueueConfig, Read, Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Message as _, path};

/// Requests that are looked at together.
const WORKERS: usize = 5;
/// The first backoff of a request.
const BACKOFF: Duration = Duration::from_millis(200);

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "certificatesigningrequest-approving-controller",
    aliases: &["csrapproving"],
    description: "Approves certificate requests of kubelets that are allowed to create them.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("certificate-controller"),
    event_source: None,
    writes: &[
        Grant {
            group: "certificates.k8s.io",
            resource: "certificatesigningrequests/approval",
            verbs: &["update"],
        },
        Grant { group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: &["create"] },
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let requests = build.watch::<CertificateSigningRequest>(&CERTIFICATE_SIGNING_REQUESTS);
    let room = Approver { requests: requests.lister() };
    Ok(Built {
        loops: vec![Loop {
            queue: "certificate",
            kind: Some(&CERTIFICATE_SIGNING_REQUESTS),
            settings: LoopSettings {
                workers: WORKERS,
                backoff: QueueConfig { base_delay: BACKOFF, ..QueueConfig::default() },
                ..LoopSettings::default()
            },
            wake_ups: vec![requests.wakes(wake::existing())],
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// The room: what it reads.
struct Approver {
    requests: Lister<CertificateSigningRequest>,
}

/// A request, and what is to be said of it.
#[derive(Debug)]
struct View {
    request: Arc<CertificateSigningRequest>,
    verdict: Verdict,
}

/// What is to be said of a request.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It has been decided, and this says it.
    Decided(&'static str),
    /// It can't be read.
    Unreadable(String),
    /// It is none of a kubelet's for a certificate to log in with, for this reason.
    Unrecognized(String),
    /// It is one, and the requester may make it.
    Allowed(Way),
    /// It is one, and the requester may not make it in any of these ways.
    Refused(Vec<Way>),
    /// The API server can't be asked.
    Unknown(String),
}

/// A way in which a requester may make a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Of one's own name.
    Own,
    /// Of any node's name.
    Any,
}

impl Way {
    /// The subresource that the requester must be allowed to create.
    fn subresource(self) -> &'static str {
        match self {
            Self::Own => "selfnodeclient",
            Self::Any => "nodeclient",
        }
    }

    /// What the approval says.
    fn message(self) -> &'static str {
        match self {
            Self::Own => "Auto approving self kubelet client certificate after SubjectAccessReview.",
            Self::Any => "Auto approving kubelet client certificate after SubjectAccessReview.",
        }
    }

    /// Whether the requester may make requests in this way.
    fn question(self, request: &CertificateSigningRequest) -> Arc<AccessQuestion> {
        let spec = &request.spec;
        let extra = spec.extra.iter().map(|(key, values)| (key.clone(), values.items.clone()));
        Arc::new(AccessQuestion {
            user: spec.username.clone(),
            uid: spec.uid.clone(),
            groups: spec.groups.clone(),
            extra: extra.collect(),
            verb: "create".into(),
            group: "certificates.k8s.io".into(),
            version: "*".into(),
            resource: "certificatesigningrequests".into(),
            subresource: self.subresource().into(),
            ..AccessQuestion::default()
        })
    }
}

/// The verdict on a request that need not be parsed.
fn decided(request: &CertificateSigningRequest) -> Option<Verdict> {
    if !request.status.certificate.is_empty() {
        return Some(Verdict::Decided("The request has a certificate"));
    }
    for condition in &request.status.conditions {
        match condition.r#type.as_str() {
            "Approved" => return Some(Verdict::Decided("The request is approved")),
            "Denied" => return Some(Verdict::Decided("The request is denied")),
            _ => {}
        }
    }
    // The approver does not read requests to other signers.
    let is_other = request.spec.signer_name != Signer::KubeletClient.name();
    is_other.then(|| Verdict::Unrecognized(format!("its signer is {}", request.spec.signer_name)))
}

/// In which ways a request may be made, or what is to be said without asking.
fn ways(request: &CertificateSigningRequest, parsed: &ParsedRequest) -> Result<&'static [Way], Verdict> {
    let asked = parsed.0.as_ref().map_err(|error| Verdict::Unreadable(error.to_string()))?;
    if let Some(why) = Signer::KubeletClient.refusal(asked, &request.spec.usages) {
        return Err(Verdict::Unrecognized(why));
    }
    let is_own = request.spec.username == asked.common_name();
    Ok(if is_own { &[Way::Own, Way::Any] } else { &[Way::Any] })
}

impl Room for Approver {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        let Some(request) = self.requests.get(key) else { return Ok(Observation::Nothing) };
        if let Some(verdict) = decided(&request) {
            return Ok(Observation::View(View { request, verdict }));
        }
        let input = ParserInput::of(&request.spec.request.0);
        let Some(parsed) = read.parsed::<ParsedRequest>(&PARSER, &input) else {
            return Ok(Observation::Needs(vec![DeclaredRead::parsed(&PARSER, input)]));
        };
        let ways = match ways(&request, &parsed) {
            Ok(ways) => ways,
            Err(verdict) => return Ok(Observation::View(View { request, verdict })),
        };
        for way in ways {
            let question = way.question(&request);
            let verdict = match read.access(&question) {
                None => return Ok(Observation::Needs(vec![CSR_ACCESS.of(Read::Access(question))])),
                Some(Ok(verdict)) if verdict.allowed => Verdict::Allowed(*way),
                Some(Ok(_)) => continue,
                Some(Err(error)) => Verdict::Unknown(error.to_string()),
            };
            return Ok(Observation::View(View { request, verdict }));
        }
        Ok(Observation::View(View { request, verdict: Verdict::Refused(ways.to_vec()) }))
    }

    fn plan(view: &View, _: Timestamp) -> Plan {
        let name = &view.request.metadata.name;
        let mut plan = Plan::default();
        match &view.verdict {
            Verdict::Decided(_) | Verdict::Unrecognized(_) => {}
            Verdict::Unreadable(why) => plan.retry = Some(format!("unable to parse csr {name:?}: {why}")),
            Verdict::Unknown(why) => plan.retry = Some(why.clone()),
            Verdict::Refused(_) => {
                plan.retry =
                    Some(format!("recognized csr {name:?} but subject access review was not approved"));
                plan.quiet = true;
            }
            Verdict::Allowed(way) => match approved(&view.request, *way) {
                Ok(write) => plan.steps.push(Step::Write(write)),
                Err(why) => plan.retry = Some(why),
            },
        }
        plan
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        let who = &view.request.spec.username;
        let may = |ways: &[Way]| {
            let mut text = String::new();
            for (at, way) in ways.iter().enumerate() {
                let or = if at == 0 { "" } else { " or " };
                let _ = write!(text, "{or}certificatesigningrequests/{}", way.subresource());
            }
            text
        };
        vec![match &view.verdict {
            Verdict::Decided(how) => format!("{how}; it needs no decision."),
            Verdict::Unreadable(why) => format!("The request cannot be parsed: {why}."),
            Verdict::Unrecognized(why) => {
                format!(
                    "The request is not for a kubelet client certificate: {why}. It needs manual approval."
                )
            }
            Verdict::Allowed(way) => {
                format!("{who} is allowed to create {}; the request is approved.", may(&[*way]))
            }
            Verdict::Refused(ways) => {
                format!("{who} is not allowed to create {}; the request is checked again later.", may(ways))
            }
            Verdict::Unknown(why) => format!("The access review for {who} failed: {why}."),
        }]
    }
}

/// The approval. The API server fills in the times of its condition.
fn approved(request: &CertificateSigningRequest, way: Way) -> Result<Write, String> {
    let condition = CertificateSigningRequestCondition {
        r#type: "Approved".into(),
        status: "True".into(),
        reason: "AutoApproved".into(),
        message: way.message().into(),
        ..CertificateSigningRequestCondition::default()
    };
    let push = Edit::Push(path!(CertificateSigningRequest, status.conditions), condition.to_bytes());
    let object = edit(&request.raw, &[push]).map_err(|error| error.to_string())?;
    let write =
        Write::new(&CERTIFICATE_SIGNING_REQUESTS, Key::of(&request.metadata), Verb::Update(object.into()));
    // It has changed or is gone: the cache will tell.
    let tolerate = Tolerate { absent: true, conflict: true, ..Tolerate::default() };
    Ok(Write { tolerate, ..write.on("approval") })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::requests::fixtures;
    use bytes::Bytes;
    use coxswain_machinery::api::certificates::ExtraValue;
    use coxswain_machinery::framework::rig::Rig;
    use coxswain_machinery::framework::{AccessVerdict, ApiError, Pass};
    use coxswain_machinery::options::Config;

    const NODE: &str = "system:node:n1";

    /// A kubelet's request, made by `username`.
    fn csr(username: &str) -> CertificateSigningRequest {
        let text = fixtures::request("O=system:nodes/CN=system:node:n1", &[]);
        let mut csr = CertificateSigningRequest::default();
        csr.metadata.name = "csr".into();
        csr.metadata.uid = "uid".into();
        csr.metadata.resource_version = "7".into();
        csr.spec.request = Bytes::from(text.into_bytes()).into();
        csr.spec.username = username.into();
        csr.spec.signer_name = Signer::KubeletClient.name().into();
        csr.spec.usages = vec!["digital signature".into(), "client auth".into()];
        csr
    }

    fn with_condition(kind: &str, status: &str) -> CertificateSigningRequest {
        let mut csr = csr(NODE);
        let condition = CertificateSigningRequestCondition {
            r#type: kind.into(),
            status: status.into(),
            ..CertificateSigningRequestCondition::default()
        };
        csr.status.conditions.push(condition);
        csr
    }

    /// What becomes of a request when the API server answers so, and which subresources it was asked for, in order.
    fn decided(
        csr: &CertificateSigningRequest,
        answer: &dyn Fn(&AccessQuestion) -> Result<bool, ApiError>,
    ) -> (Plan, Vec<String>) {
        let rig = Rig::new(Config::default());
        rig.add(&CERTIFICATE_SIGNING_REQUESTS, csr).unwrap();
        let built = rig.build(build).unwrap();
        let (mut reads, mut asked) = (Reads::default(), Vec::new());
        loop {
            let pass =
                built.loops[0].reconcile.plan(&Key::new("", "csr"), &[], &reads, Timestamp::UNIX_EPOCH);
            match pass.unwrap() {
                Pass::Plan(plan, _) => return (plan, asked),
                Pass::Nothing => panic!("it is there"),
                Pass::Needs(needs) => {
                    assert_eq!(needs.len(), 1, "one question at a time");
                    for need in needs {
                        let question = match Read::from(need) {
                            Read::Access(question) => question,
                            Read::Parsed(parser, input) => {
                                reads = reads.with_parsed(parser, input);
                                continue;
                            }
                            need => panic!("{need:?}"),
                        };
                        asked.push(question.subresource.to_string());
                        let found = answer(&question)
                            .map(|allowed| AccessVerdict { allowed, ..AccessVerdict::default() });
                        reads = reads.with_access(question, found);
                    }
                }
            }
        }
    }

    /// The message of the approval, if the plan is one.
    fn approval(plan: &Plan) -> Option<String> {
        let [Step::Write(write)] = plan.steps.as_slice() else { return None };
        assert_eq!(write.to_string(), "update certificatesigningrequests.certificates.k8s.io/approval csr");
        let Verb::Update(object) = &write.verb else { panic!("{:?}", write.verb) };
        let object = CertificateSigningRequest::decode(object).unwrap();
        assert_eq!(object.metadata.resource_version, "7");
        let condition = object.status.conditions.last().unwrap().clone();
        let expected = CertificateSigningRequestCondition {
            r#type: "Approved".into(),
            status: "True".into(),
            reason: "AutoApproved".into(),
            message: condition.message.clone(),
            ..CertificateSigningRequestCondition::default()
        };
        assert_eq!(condition, expected, "without times");
        Some(condition.message.to_string())
    }

    fn error() -> ApiError {
        ApiError::Malformed { request: "POST".to_owned(), what: "nonsense".to_owned() }
    }

    #[test]
    fn who_may_is_approved() {
        let (own, any) = (Way::Own.message(), Way::Any.message());
        for (username, allowed, asked, expected) in [
            (NODE, &["selfnodeclient"][..], &["selfnodeclient"][..], Some(own)),
            (NODE, &["selfnodeclient", "nodeclient"], &["selfnodeclient"], Some(own)),
            (NODE, &["nodeclient"], &["selfnodeclient", "nodeclient"], Some(any)),
            (NODE, &[], &["selfnodeclient", "nodeclient"], None),
            ("bootstrap", &["selfnodeclient"], &["nodeclient"], None),
            ("bootstrap", &["selfnodeclient", "nodeclient"], &["nodeclient"], Some(any)),
            ("System:node:n1", &["selfnodeclient"], &["nodeclient"], None),
        ] {
            let answer = |question: &AccessQuestion| Ok(allowed.contains(&question.subresource.as_str()));
            let (plan, questions) = decided(&csr(username), &answer);
            assert_eq!(questions, asked, "{username} {allowed:?}");
            assert_eq!(approval(&plan).as_deref(), expected, "{username} {allowed:?}");
            assert_eq!((plan.retry.is_some(), plan.quiet), (expected.is_none(), expected.is_none()));
        }
    }

    #[test]
    fn the_question_says_all_that_is_known_of_the_requester() {
        let mut csr = csr(NODE);
        csr.spec.uid = "someone".into();
        csr.spec.groups = vec!["a".into(), "b".into()];
        csr.spec.extra.insert("c", ExtraValue { items: vec!["d".into(), "e".into()] });
        let asked = Way::Any.question(&csr);
        let expected = AccessQuestion {
            user: NODE.into(),
            uid: "someone".into(),
            groups: vec!["a".into(), "b".into()],
            extra: vec![("c".into(), vec!["d".into(), "e".into()])],
            verb: "create".into(),
            group: "certificates.k8s.io".into(),
            version: "*".into(),
            resource: "certificatesigningrequests".into(),
            subresource: "nodeclient".into(),
            namespace: "".into(),
            name: "".into(),
        };
        assert_eq!(*asked, expected);
    }

    #[test]
    fn a_review_that_fails_ends_the_pass() {
        let (plan, asked) = decided(&csr(NODE), &|_| Err(error()));
        assert_eq!(asked, ["selfnodeclient"]);
        assert!(plan.is_empty() && plan.retry.is_some() && !plan.quiet, "{plan:?}");
    }

    #[test]
    fn what_is_decided_or_not_a_kubelets_is_left_alone() {
        let changed = |change: &dyn Fn(&mut CertificateSigningRequest)| {
            let mut csr = csr(NODE);
            change(&mut csr);
            csr
        };
        let asking = |subject: &str, names: &[&str]| {
            let text = fixtures::request(subject, names);
            changed(&|csr| csr.spec.request = Bytes::from(text.clone().into_bytes()).into())
        };
        let of_signer = |signer: &str| changed(&|csr| csr.spec.signer_name = signer.into());
        for (what, csr) in [
            ("approved", with_condition("Approved", "True")),
            ("approved, in another status", with_condition("Approved", "False")),
            ("denied", with_condition("Denied", "True")),
            ("denied, in another status", with_condition("Denied", "")),
            ("issued", changed(&|csr| csr.status.certificate = Bytes::from_static(b"PEM").into())),
            ("for serving", of_signer("kubernetes.io/kubelet-serving")),
            ("for anybody", of_signer("kubernetes.io/kube-apiserver-client")),
            ("of another signer", of_signer("example.com/signer")),
            ("without a usage", changed(&|csr| csr.spec.usages = vec!["client auth".into()])),
            ("with another usage", changed(&|csr| csr.spec.usages.push("server auth".into()))),
            ("of another name", asking("O=system:nodes/CN=n1", &[])),
            ("of another group", asking("O=system:masters/CN=system:node:n1", &[])),
            ("with a DNS name", asking("O=system:nodes/CN=system:node:n1", &["DNS:n1"])),
            ("with an address", asking("O=system:nodes/CN=system:node:n1", &["IP:10.0.0.1"])),
        ] {
            let (plan, asked) = decided(&csr, &|_| Ok(true));
            assert_eq!(asked, Vec::<String>::new(), "{what}");
            assert!(plan.is_empty() && plan.retry.is_none(), "{what}: {plan:?}");
        }
        let (plan, _) = decided(&with_condition("Failed", "True"), &|_| Ok(true));
        assert!(approval(&plan).is_some(), "a failure decides nothing");
    }

    #[test]
    fn approver_leaves_parsing_to_the_framework() {
        let rig = Rig::new(Config::default());
        rig.add(&CERTIFICATE_SIGNING_REQUESTS, &csr(NODE)).unwrap();
        let built = rig.build(build).unwrap();
        let first = built.loops[0].reconcile.plan(
            &Key::new("", "csr"),
            &[],
            &Reads::default(),
            Timestamp::UNIX_EPOCH,
        );
        let Ok(Pass::Needs(needs)) = first else { panic!("{first:?}") };
        assert!(
            matches!(&**needs.first().unwrap(), Read::Parsed(parser, _) if **parser == PARSER),
            "{needs:?}"
        );
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let mut csr = csr(NODE);
        csr.spec.request = Bytes::from_static(b"nonsense").into();
        let (plan, _) = decided(&csr, &|_| Ok(true));
        let expected = "unable to parse csr \"csr\": PEM block type must be CERTIFICATE REQUEST";
        assert_eq!((plan.retry.as_deref(), plan.quiet), (Some(expected), false));
        csr.spec.signer_name = "example.com/other".into();
        let (plan, _) = decided(&csr, &|_| Ok(true));
        assert!(plan.is_empty(), "requests to other signers are not read");
    }

    #[test]
    fn a_request_says_why_it_waits() {
        let reasons = |verdict| {
            let view = View { request: Arc::new(csr(NODE)), verdict };
            Approver::reasons(&view, Timestamp::UNIX_EPOCH).join(" ")
        };
        for (verdict, expected) in [
            (Verdict::Decided("The request is denied"), "The request is denied; it needs no decision."),
            (
                Verdict::Unrecognized("its signer is a/b".to_owned()),
                "The request is not for a kubelet client certificate: its signer is a/b. It needs manual approval.",
            ),
            (
                Verdict::Allowed(Way::Own),
                "system:node:n1 is allowed to create certificatesigningrequests/selfnodeclient; the request is \
                 approved.",
            ),
            (
                Verdict::Refused(vec![Way::Own, Way::Any]),
                "system:node:n1 is not allowed to create certificatesigningrequests/selfnodeclient or \
                 certificatesigningrequests/nodeclient; the request is checked again later.",
            ),
            (
                Verdict::Unknown("no answer".to_owned()),
                "The access review for system:node:n1 failed: no answer.",
            ),
        ] {
            assert_eq!(reasons(verdict), expected);
        }
    }

    proptest! {
        /// Nothing is approved that the API server did not allow, and nothing but a kubelet's request to log in.
        #[test]
        fn only_what_is_allowed_is_approved(
            username in "(system:node:n1|bootstrap)",
            signer in "kubernetes\\.io/(kubelet-serving|kube-apiserver-client|kube-apiserver-client-kubelet)",
            usages in prop::sample::subsequence(
                vec!["digital signature", "key encipherment", "client auth", "server auth"], 0..4),
            condition in prop::option::of("(Approved|Denied|Failed)"),
            own in any::<bool>(),
            any_node in any::<bool>(),
        ) {
            let mut csr = condition.as_deref().map_or_else(|| csr(NODE), |kind| with_condition(kind, "True"));
            csr.spec.username = username.as_str().into();
            csr.spec.signer_name = signer.as_str().into();
            csr.spec.usages = usages.iter().map(|usage| (*usage).into()).collect();
            let answer = |question: &AccessQuestion| Ok(
                own && question.subresource == "selfnodeclient" || any_node && question.subresource == "nodeclient");
            let (plan, _) = decided(&csr, &answer);
            let open = !matches!(condition.as_deref(), Some("Approved" | "Denied"));
            let of_kubelet = signer.ends_with("client-kubelet")
                && usages.contains(&"digital signature")
                && usages.contains(&"client auth")
                && !usages.contains(&"server auth");
            let allowed = any_node || own && username == NODE;
            prop_assert_eq!(approval(&plan).is_some(), open && of_kubelet && allowed);
        }
    }
}
