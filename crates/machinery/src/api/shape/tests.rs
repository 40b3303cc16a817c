//! What pods of one template have in common, as it is read of encoded pods.

use proptest::prelude::*;

use super::*;
use crate::api::kinds::PODS;
use crate::api::pod::Pod;
use crate::wire::path;
use crate::wire::splice::{Edit, edit};

/// As an informer caches it.
fn cached(pod: &ShapedPod) -> Shape {
    cached_bytes(pod.to_bytes())
}

fn cached_bytes(pod: Vec<u8>) -> Shape {
    let object = (PODS.decode)(&pod.into()).unwrap();
    crate::informer::downcast::<Pod>(object).unwrap().shape.clone()
}

fn named(name: &str) -> LocalObjectReference {
    LocalObjectReference { name: name.into() }
}

fn amounts(pairs: &[(&str, &str)]) -> ShapedResources {
    ShapedResources { requests: pairs.iter().copied().collect() }
}

fn container(name: &str, port: &str, policy: &str, cpu: &str) -> ShapedContainer {
    ShapedContainer {
        name: name.into(),
        ports: vec![
            ShapedPort { name: port.into(), container_port: 80, protocol: "TCP".into() },
            ShapedPort { container_port: 81, ..ShapedPort::default() },
        ],
        resources: amounts(&[("cpu", cpu)]),
        restart_policy: policy.into(),
        ..ShapedContainer::default()
    }
}

/// A pod with these volumes, by name and encoded source.
fn with_volumes(volumes: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut spec = Vec::new();
    for (name, source) in volumes {
        let mut volume = Vec::new();
        splice::put_bytes(&mut volume, VOLUME_NAME, name.as_bytes());
        splice::put_bytes(&mut volume, VOLUME_SOURCE, source);
        splice::put_bytes(&mut spec, field!(ShapedSpec, volumes), &volume);
    }
    let mut pod = Vec::new();
    splice::put_bytes(&mut pod, field!(ShapedPod, spec), &spec);
    pod
}

/// Go merges both; no API server writes such a volume.
#[test]
fn volume_whose_source_occurs_twice_is_refused() {
    let cinder = vec![0x6a, 0];
    let once = with_volumes(&[("a", cinder.clone()), ("b", cinder.clone())]);
    assert!(decode(&once.into()).is_ok());
    let mut volume = Vec::new();
    for _ in 0..2 {
        splice::put_bytes(&mut volume, VOLUME_SOURCE, &cinder);
    }
    let (mut spec, mut pod) = (Vec::new(), Vec::new());
    splice::put_bytes(&mut spec, field!(ShapedSpec, volumes), &volume);
    splice::put_bytes(&mut pod, field!(ShapedPod, spec), &spec);
    assert!(decode(&pod.into()).is_err());
}

#[test]
fn containers_and_sidecars_have_ports_and_requests() {
    let spec = ShapedSpec {
        containers: vec![container("web", "http", "", "1"), container("log", "", "", "2")],
        init_containers: vec![container("proxy", "admin", "Always", "3"), container("setup", "x", "", "4")],
        resources: amounts(&[("memory", "1Gi")]),
        overhead: [("cpu", "10m")].into_iter().collect(),
        ..ShapedSpec::default()
    };
    let shape = cached(&ShapedPod { spec });
    let port = |name: &str| NamedPort { name: name.into(), number: 80, protocol: "TCP".into() };
    assert_eq!(shape.named_ports, [port("http"), port("admin")]);
    assert_eq!(
        (&*shape.sidecars, &*shape.init_containers),
        (&[Str::from("proxy")][..], &[Str::from("setup")][..])
    );
    let requests = |container: &str, cpu, starts_only| ContainerRequests {
        container: container.into(),
        starts_only,
        amounts: [("cpu", cpu)].into_iter().collect(),
    };
    let expected = [
        requests("web", "1", false),
        requests("log", "2", false),
        requests("proxy", "3", false),
        requests("setup", "4", true),
    ];
    assert_eq!(shape.requests, expected);
    assert_eq!(shape.pod_requests, [("memory", "1Gi")].into_iter().collect());
    assert_eq!(shape.overhead, [("cpu", "10m")].into_iter().collect());
}

#[test]
fn secrets_are_found_wherever_a_pod_names_them() {
    let env = |name| ShapedEnv {
        value_from: ShapedEnvSource {
            secret_key_ref: ShapedSecretKey { local_object_reference: named(name) },
        },
    };
    let env_from =
        |name| ShapedEnvFrom { secret_ref: ShapedSecretEnv { local_object_reference: named(name) } };
    let spec = ShapedSpec {
        image_pull_secrets: vec![named("pull"), named("")],
        containers: vec![ShapedContainer { env: vec![env("env"), env("")], ..ShapedContainer::default() }],
        init_containers: vec![ShapedContainer {
            env_from: vec![env_from("env-from")],
            ..ShapedContainer::default()
        }],
        ephemeral_containers: vec![ShapedEphemeral {
            ephemeral_container_common: ShapedEphemeralCommon {
                env: vec![env("debug"), env("env")],
                ..ShapedEphemeralCommon::default()
            },
        }],
        ..ShapedSpec::default()
    };
    assert_eq!(*cached(&ShapedPod { spec }).secrets, ["debug", "env", "env-from", "pull"].map(Str::from));

    let sources = [
        SecretSource { secret: SecretVolume { secret_name: "s".into() }, ..SecretSource::default() },
        SecretSource { iscsi: IscsiSecret { secret_ref: named("i") }, ..SecretSource::default() },
        SecretSource { rbd: RbdSecret { secret_ref: named("r") }, ..SecretSource::default() },
        SecretSource { flex_volume: FlexSecret { secret_ref: named("f") }, ..SecretSource::default() },
        SecretSource { cinder: CinderSecret { secret_ref: named("ci") }, ..SecretSource::default() },
        SecretSource { cephfs: CephFsSecret { secret_ref: named("ce") }, ..SecretSource::default() },
        SecretSource { azure_file: AzureFileSecret { secret_name: "a".into() }, ..SecretSource::default() },
        SecretSource { scale_io: ScaleIoSecret { secret_ref: named("sc") }, ..SecretSource::default() },
        SecretSource { storageos: StorageOsSecret { secret_ref: named("st") }, ..SecretSource::default() },
        SecretSource { csi: CsiSecret { node_publish_secret_ref: named("cs") }, ..SecretSource::default() },
        SecretSource {
            projected: ProjectedSecrets {
                sources: vec![
                    ProjectedSecret::default(),
                    ProjectedSecret { secret: SecretProjection { local_object_reference: named("p") } },
                ],
            },
            ..SecretSource::default()
        },
    ];
    let volumes = sources.map(|source| ("v", source.to_bytes()));
    let secrets = cached_bytes(with_volumes(&volumes)).secrets.clone();
    assert_eq!(secrets, ["a", "ce", "ci", "cs", "f", "i", "p", "r", "s", "sc", "st"].map(Str::from));
}

#[test]
fn a_volume_with_a_random_name_makes_no_other_shape() {
    let token = || SecretSource::default().to_bytes();
    let disk = |name: &str| {
        let disk = crate::api::volumes::AwsElasticBlockStore { volume_id: name.into(), ..Default::default() };
        InlineSource { aws_elastic_block_store: Some(Box::new(disk)), ..InlineSource::default() }.to_bytes()
    };
    let pod = |random: &str, id: &str| cached_bytes(with_volumes(&[(random, token()), ("data", disk(id))]));
    let one = pod("kube-api-access-abcde", "vol-1");
    assert!(one.is_same(&pod("kube-api-access-vwxyz", "vol-1")));
    assert!(!one.is_same(&pod("kube-api-access-abcde", "vol-2")));
    let [volume] = one.inline_volumes.as_slice() else { panic!("one volume") };
    assert_eq!(volume.name, "data");
    assert_eq!(volume.source().unwrap().aws_elastic_block_store.unwrap().volume_id, "vol-1");
}

#[test]
fn what_is_remembered_is_bounded() {
    let pod = |name: &str| ShapedPod {
        spec: ShapedSpec {
            scheduling_group: ShapedGroup { pod_group_name: name.into() },
            ..ShapedSpec::default()
        },
    };
    for name in 0..2 * REMEMBERED {
        assert_eq!(cached(&pod(&name.to_string())).pod_group, name.to_string());
    }
    let huge = "x".repeat(MEMORABLE);
    assert_eq!(cached(&pod(&huge)).pod_group, huge);
    let memory = MEMORY.lock();
    assert!(memory.known.len() <= REMEMBERED);
    assert!(memory.known.iter().all(|(read, _)| read.len() <= MEMORABLE));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_an_error_or_a_shape(bytes: Vec<u8>, spec: Vec<u8>, volume: Vec<u8>) {
        let _ = (PODS.decode)(&bytes.into());
        let within = edit(&[], &[Edit::SetBytes(path!(ShapedPod, spec), spec)]).unwrap();
        let _ = (PODS.decode)(&within.into());
        let _ = (PODS.decode)(&with_volumes(&[("v", volume)]).into());
    }

    /// What is remembered is what would be worked out.
    #[test]
    fn the_same_bytes_have_the_same_shape(
        names in prop::collection::vec("[a-c]{0,2}", 0..4),
        seconds: Option<i64>,
    ) {
        let containers = names.iter().map(|name| container(name, name, if name.len() > 1 { "Always" } else { "" }, "1"));
        let toleration = ShapedToleration { toleration_seconds: seconds, ..ShapedToleration::default() };
        let spec = ShapedSpec {
            init_containers: containers.collect(),
            tolerations: vec![toleration],
            ..ShapedSpec::default()
        };
        let pod = ShapedPod { spec };
        let worked_out = Shape::from(pod.clone().shape());
        prop_assert!(cached(&pod).is_same(&worked_out));
        prop_assert_eq!(cached(&pod).tolerations[0].seconds, seconds);
    }
}
