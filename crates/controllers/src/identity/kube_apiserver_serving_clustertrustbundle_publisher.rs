//! kube-apiserver-serving-clustertrustbundle-publisher-controller: publishes the authorities by which clients verify the API server
//! as one ClusterTrustBundle of the signer `kubernetes.io/kube-apiserver-serving` (KEP-3257).
//!
//! The bundle's name is made of its content, so whoever publishes the same finds the same. One key, the bundle's: every change of
//! a bundle of the signer queues it. Ours is there before others of the signer go. Bundles of other signers are never looked at.

use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;

use super::sync_codes::SyncCodes;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::certificates::{ClusterTrustBundle, ClusterTrustBundleSpec};
use coxswain_machinery::api::kinds::{CLUSTER_TRUST_BUNDLES, CLUSTER_TRUST_BUNDLES_ALPHA};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::text::raw_bytes;
use coxswain_machinery::wire::{Message as _, Str, path};

/// Who signs with what is published.
const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
/// Restricts the watch to its bundles.
const SELECTOR: &str = "spec.signerName=kubernetes.io/kube-apiserver-serving";
/// What the API demands of the names of its bundles.
const PREFIX: &str = "kubernetes.io:kube-apiserver-serving:";
/// So many bytes of the digest are in the name.
const NAMED: usize = 12;
/// The metrics, by the original's names.
const METRICS: [&str; 2] =
    ["clustertrustbundle_publisher_sync_total", "clustertrustbundle_publisher_sync_duration_seconds"];

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    aliases: &[],
    description: "Publishes the CA certificates of the API server as a ClusterTrustBundle.",
    gates: &["ClusterTrustBundle"],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("kube-apiserver-serving-clustertrustbundle-publisher"),
    event_source: None,
    writes: &[
        Grant {
            group: "certificates.k8s.io",
            resource: "clustertrustbundles",
            verbs: &["create", "delete", "update"],
        },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let kind = build.first_served(&[&CLUSTER_TRUST_BUNDLES, &CLUSTER_TRUST_BUNDLES_ALPHA])?;
    let bundle = build.root_ca.clone().filter(|bundle| !bundle.is_empty()).ok_or_else(|| {
        BuildError::Skipped(
            "no CA certificates to publish: set --root-ca-file, or a CA in the kubeconfig".to_owned(),
        )
    })?;
    let metrics = SyncCodes::register(build.metrics, METRICS, "ClusterTrustBundles")
        .map_err(|error| BuildError::Invalid(error.to_string()))?;
    let bundles = build.watch_selected::<ClusterTrustBundle>(kind, SELECTOR);
    let name = name(&bundle);
    let ours = Key::new("", name.clone());
    let room = Publisher { kind, name, bundle, bundles: bundles.lister() };
    let key = ours.clone();
    let all: KeyMap = Arc::new(move |_, add| add(key.clone()));
    Ok(Built {
        loops: vec![Loop {
            queue: "ca_cert_publisher_cluster_trust_bundles",
            kind: Some(kind),
            settings: LoopSettings { seeds: vec![ours], ..LoopSettings::default() },
            wake_ups: vec![bundles.wakes(all)],
            reconcile: Arc::new(RoomAdapter::new(room).counted_by(metrics)),
        }],
    })
}

/// The name of a bundle with this content.
fn name(bundle: &str) -> Str {
    let digest = ring::digest::digest(&ring::digest::SHA256, &raw_bytes(bundle));
    let mut name = PREFIX.to_owned();
    for byte in digest.as_ref().iter().take(NAMED) {
        let _ = write!(name, "{byte:02x}");
    }
    name.into()
}

/// The room: what it publishes and what it reads.
struct Publisher {
    kind: &'static Kind,
    name: Str,
    bundle: Str,
    bundles: Lister<ClusterTrustBundle>,
}

/// What is to be published, and what is.
#[derive(Debug)]
struct View {
    kind: &'static Kind,
    name: Str,
    bundle: Str,
    /// Ours, if it is there.
    published: Option<Arc<ClusterTrustBundle>>,
    /// Others of the signer.
    others: Vec<Arc<ClusterTrustBundle>>,
}

impl Room for Publisher {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        if key.name != self.name {
            return Ok(Observation::Nothing);
        }
        let of_signer = self.bundles.list().into_iter().filter(|bundle| bundle.spec.signer_name == SIGNER);
        let (ours, others): (Vec<_>, Vec<_>) =
            of_signer.partition(|bundle| bundle.metadata.name == self.name);
        Ok(Observation::View(View {
            kind: self.kind,
            name: self.name.clone(),
            bundle: self.bundle.clone(),
            published: ours.into_iter().next(),
            others,
        }))
    }

    fn plan(view: &View, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let verb = match &view.published {
            None => Some(Verb::Create(created(view).into())),
            Some(published) if published.spec.trust_bundle == view.bundle => None,
            Some(published) => {
                let path = path!(ClusterTrustBundle, spec.trustBundle);
                let content = Edit::set_text(path, &view.bundle);
                match edit(&published.raw, &[content]) {
                    Ok(object) => Some(Verb::Update(object.into())),
                    Err(error) => return Plan { retry: Some(error.to_string()), ..plan },
                }
            }
        };
        let key = Key::new("", view.name.clone());
        plan.steps.extend(verb.map(|verb| Step::Write(Write::new(view.kind, key, verb))));
        let others: Vec<Write> = view.others.iter().map(|other| deleted(view, other)).collect();
        if !others.is_empty() {
            plan.steps.push(Step::Each(others));
        }
        plan
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        let published = match &view.published {
            None => "does not exist and is created",
            Some(published) if published.spec.trust_bundle == view.bundle => {
                "has the CA certificates of the API server"
            }
            Some(_) => "has other content and is updated",
        };
        let mut reasons = vec![format!("The bundle {} {published}.", view.name)];
        if !view.others.is_empty() {
            reasons.push(format!("Other bundles of the signer are deleted ({}).", view.others.len()));
        }
        reasons
    }
}

fn created(view: &View) -> Vec<u8> {
    ClusterTrustBundle {
        metadata: ObjectMeta { name: view.name.clone(), ..ObjectMeta::default() },
        spec: ClusterTrustBundleSpec { signer_name: SIGNER.into(), trust_bundle: view.bundle.clone() },
        ..ClusterTrustBundle::default()
    }
    .to_bytes()
}

fn deleted(view: &View, other: &ClusterTrustBundle) -> Write {
    let delete = Verb::delete(other.metadata.uid.clone());
    let tolerate = Tolerate { absent: true, ..Tolerate::default() };
    Write { tolerate, ..Write::new(view.kind, Key::of(&other.metadata), delete) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coxswain_machinery::framework::rig::Rig;
    use coxswain_machinery::framework::{ApiResource, ApiResources};
    use coxswain_machinery::options::Config;

    const BUNDLE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    fn bundle(name: &str, content: &str) -> Arc<ClusterTrustBundle> {
        let mut bundle = ClusterTrustBundle::default();
        bundle.metadata.name = name.into();
        bundle.metadata.uid = format!("uid-of-{name}").as_str().into();
        bundle.metadata.resource_version = "7".into();
        bundle.spec.signer_name = SIGNER.into();
        bundle.spec.trust_bundle = content.into();
        bundle.raw = bytes::Bytes::from(bundle.to_bytes()).into();
        Arc::new(bundle)
    }

    fn view(published: Option<&str>, others: &[&str]) -> View {
        let name = name(BUNDLE);
        View {
            kind: &CLUSTER_TRUST_BUNDLES,
            published: published.map(|content| bundle(&name, content)),
            name,
            bundle: BUNDLE.into(),
            others: others.iter().map(|other| bundle(other, "other")).collect(),
        }
    }

    /// What is planned, in words.
    fn planned(view: &View) -> Vec<String> {
        let plan = Publisher::plan(view, Timestamp::UNIX_EPOCH);
        assert_eq!((&plan.retry, plan.requeue_after), (&None, None));
        let step = |step: &Step| step.writes().map(|write| write.to_string().replace(PREFIX, "")).collect();
        plan.steps
            .iter()
            .map(|each| {
                let all: Vec<String> = step(each);
                all.join(", ")
            })
            .collect()
    }

    #[test]
    fn the_name_is_made_of_the_exact_content() {
        // printf 'a\n' | sha256sum
        assert_eq!(name("a\n"), "kubernetes.io:kube-apiserver-serving:87428fc522803d31065e7bce");
        assert_ne!(name("a"), name("a\n"));
    }

    #[test]
    fn ours_is_there_before_others_go() {
        let ours = "clustertrustbundles.certificates.k8s.io ".to_owned() + &name(BUNDLE)[PREFIX.len()..];
        let gone = "delete clustertrustbundles.certificates.k8s.io";
        for (view, expected) in [
            (view(None, &[]), vec![format!("create {ours}")]),
            (view(Some(BUNDLE), &[]), vec![]),
            (view(Some("edited"), &[]), vec![format!("update {ours}")]),
            (view(None, &["a", "b"]), vec![format!("create {ours}"), format!("{gone} a, {gone} b")]),
            (view(Some(BUNDLE), &["a"]), vec![format!("{gone} a")]),
            (view(Some("edited"), &["a"]), vec![format!("update {ours}"), format!("{gone} a")]),
        ] {
            assert_eq!(planned(&view), expected);
        }
    }

    #[test]
    fn what_is_written_is_the_bundle_of_the_signer() {
        let plan = Publisher::plan(&view(None, &["a"]), Timestamp::UNIX_EPOCH);
        let writes: Vec<&Write> = plan.writes().collect();
        let Verb::Create(object) = &writes[0].verb else { panic!("{plan:?}") };
        let object = ClusterTrustBundle::decode(object).unwrap();
        assert_eq!((object.spec.signer_name.as_str(), object.spec.trust_bundle.as_str()), (SIGNER, BUNDLE));
        assert_eq!(object.metadata.name, name(BUNDLE));
        assert_eq!(writes[1].verb, Verb::delete("uid-of-a".into()));
        assert_eq!(writes[1].tolerate, Tolerate { absent: true, ..Tolerate::default() });

        let plan = Publisher::plan(&view(Some("edited"), &[]), Timestamp::UNIX_EPOCH);
        let Some(Verb::Update(object)) = plan.writes().next().map(|write| &write.verb) else {
            panic!("{plan:?}")
        };
        let object = ClusterTrustBundle::decode(object).unwrap();
        assert_eq!(
            (object.spec.trust_bundle.as_str(), object.metadata.resource_version.as_str()),
            (BUNDLE, "7")
        );
    }

    #[test]
    fn the_version_that_is_served_is_published() {
        let served = |versions: &[&str]| {
            let resource = |version: &&str| ApiResource {
                group: "certificates.k8s.io".into(),
                version: (*version).into(),
                resource: "clustertrustbundles".into(),
                ..ApiResource::default()
            };
            let all = versions.iter().map(resource).collect();
            let rig = Rig::new(Config::default()).with_resources(ApiResources::of(all, Vec::new()));
            rig.build(build).map(|built| {
                let loop_ = &built.loops[0];
                // The key is the bundle's name, made of what is published when the manager starts.
                assert_eq!(loop_.settings.seeds, [Key::new("", name("a CA"))]);
                loop_.kind.map(Kind::api_version)
            })
        };
        assert_eq!(served(&["v1beta1", "v1alpha1"]).unwrap().unwrap(), "certificates.k8s.io/v1beta1");
        assert_eq!(served(&["v1alpha1"]).unwrap().unwrap(), "certificates.k8s.io/v1alpha1");
        assert!(matches!(served(&["v1"]), Err(BuildError::Skipped(_))));
    }

    #[test]
    fn it_says_what_it_publishes() {
        let name = name(BUNDLE);
        for (view, expected) in [
            (view(None, &[]), vec![format!("The bundle {name} does not exist and is created.")]),
            (
                view(Some(BUNDLE), &[]),
                vec![format!("The bundle {name} has the CA certificates of the API server.")],
            ),
            (
                view(Some("edited"), &["a"]),
                vec![
                    format!("The bundle {name} has other content and is updated."),
                    "Other bundles of the signer are deleted (1).".to_owned(),
                ],
            ),
        ] {
            assert_eq!(Publisher::reasons(&view, Timestamp::UNIX_EPOCH), expected);
        }
    }
}
