//! The messages that a pod template is made of, as of Kubernetes 1.36: which field numbers they have, and which of their
//! fields are maps or messages. Numbers are facts of the public API; nothing else of it is here.
//!
//! What a template's canonical form rests on, see [`super`]. Never used to decode or encode an object.
#![expect(non_upper_case_globals, reason = "each table bears its message's name, which upstream gave it")]

/// What is known of a message.
#[derive(Debug)]
pub struct Shape {
    /// Upstream's name of it, without the package.
    pub name: &'static str,
    /// The highest field number of the message. What has a higher one is newer than this table.
    pub last: u32,
    /// Fields that are maps with string keys.
    pub maps: &'static [u32],
    /// Fields that are messages, single or repeated.
    pub messages: &'static [(u32, &'static Shape)],
}

impl Shape {
    /// The shape of the messages in field `number`; `None` if it holds none.
    pub(super) fn message(&self, number: u32) -> Option<&'static Shape> {
        let at = self.messages.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.messages[at].1)
    }
}

/// `Name LAST maps [NUMBER, ...] { NUMBER => Message, ... };`, innermost messages first.
macro_rules! shapes {
    ($($name:ident $last:literal $(maps [$($map:literal),*])? $({ $($number:literal => $message:ident),* $(,)? })?;)*) => {
        $(static $name: Shape = Shape {
            name: stringify!($name),
            last: $last,
            maps: &[$($($map),*)?],
            messages: &[$($(($number, &$message)),*)?],
        };)*

        /// All messages in this table.
        pub static ALL: &[&Shape] = &[$(&$name),*];
    };
}

/// `PodTemplateSpec`.
pub static POD_TEMPLATE: &Shape = &PodTemplateSpec;

shapes! {
    Time 2;
    OwnerReference 7;
    FieldsV1 1;
    ManagedFieldsEntry 8 { 4 => Time, 7 => FieldsV1 };
    ObjectMeta 17 maps [11, 12] { 8 => Time, 9 => Time, 13 => OwnerReference, 17 => ManagedFieldsEntry };
    HostPathVolumeSource 2;
    Quantity 1;
    EmptyDirVolumeSource 2 { 2 => Quantity };
    GCEPersistentDiskVolumeSource 4;
    AWSElasticBlockStoreVolumeSource 4;
    GitRepoVolumeSource 3;
    KeyToPath 3;
    SecretVolumeSource 4 { 2 => KeyToPath };
    NFSVolumeSource 3;
    LocalObjectReference 1;
    ISCSIVolumeSource 12 { 10 => LocalObjectReference };
    GlusterfsVolumeSource 3;
    PersistentVolumeClaimVolumeSource 2;
    RBDVolumeSource 8 { 7 => LocalObjectReference };
    FlexVolumeSource 5 maps [5] { 3 => LocalObjectReference };
    CinderVolumeSource 4 { 4 => LocalObjectReference };
    CephFSVolumeSource 6 { 5 => LocalObjectReference };
    FlockerVolumeSource 2;
    ObjectFieldSelector 2;
    ResourceFieldSelector 3 { 3 => Quantity };
    DownwardAPIVolumeFile 4 { 2 => ObjectFieldSelector, 3 => ResourceFieldSelector };
    DownwardAPIVolumeSource 2 { 1 => DownwardAPIVolumeFile };
    FCVolumeSource 5;
    AzureFileVolumeSource 3;
    ConfigMapVolumeSource 4 { 1 => LocalObjectReference, 2 => KeyToPath };
    VsphereVirtualDiskVolumeSource 4;
    QuobyteVolumeSource 6;
    AzureDiskVolumeSource 6;
    PhotonPersistentDiskVolumeSource 2;
    PortworxVolumeSource 3;
    ScaleIOVolumeSource 10 { 3 => LocalObjectReference };
    SecretProjection 4 { 1 => LocalObjectReference, 2 => KeyToPath };
    DownwardAPIProjection 1 { 1 => DownwardAPIVolumeFile };
    ConfigMapProjection 4 { 1 => LocalObjectReference, 2 => KeyToPath };
    ServiceAccountTokenProjection 3;
    LabelSelectorRequirement 3;
    LabelSelector 2 maps [1] { 2 => LabelSelectorRequirement };
    ClusterTrustBundleProjection 5 { 3 => LabelSelector };
    PodCertificateProjection 7 maps [7];
    VolumeProjection 6 {
        1 => SecretProjection, 2 => DownwardAPIProjection, 3 => ConfigMapProjection,
        4 => ServiceAccountTokenProjection, 5 => ClusterTrustBundleProjection, 6 => PodCertificateProjection,
    };
    ProjectedVolumeSource 2 { 1 => VolumeProjection };
    StorageOSVolumeSource 5 { 5 => LocalObjectReference };
    CSIVolumeSource 5 maps [4] { 5 => LocalObjectReference };
    VolumeResourceRequirements 2 maps [1, 2];
    TypedLocalObjectReference 3;
    TypedObjectReference 4;
    PersistentVolumeClaimSpec 9 {
        2 => VolumeResourceRequirements, 4 => LabelSelector, 7 => TypedLocalObjectReference,
        8 => TypedObjectReference,
    };
    PersistentVolumeClaimTemplate 2 { 1 => ObjectMeta, 2 => PersistentVolumeClaimSpec };
    EphemeralVolumeSource 1 { 1 => PersistentVolumeClaimTemplate };
    ImageVolumeSource 2;
    VolumeSource 30 {
        1 => HostPathVolumeSource, 2 => EmptyDirVolumeSource, 3 => GCEPersistentDiskVolumeSource,
        4 => AWSElasticBlockStoreVolumeSource, 5 => GitRepoVolumeSource, 6 => SecretVolumeSource,
        7 => NFSVolumeSource, 8 => ISCSIVolumeSource, 9 => GlusterfsVolumeSource,
        10 => PersistentVolumeClaimVolumeSource, 11 => RBDVolumeSource, 12 => FlexVolumeSource,
        13 => CinderVolumeSource, 14 => CephFSVolumeSource, 15 => FlockerVolumeSource,
        16 => DownwardAPIVolumeSource, 17 => FCVolumeSource, 18 => AzureFileVolumeSource,
        19 => ConfigMapVolumeSource, 20 => VsphereVirtualDiskVolumeSource, 21 => QuobyteVolumeSource,
        22 => AzureDiskVolumeSource, 23 => PhotonPersistentDiskVolumeSource, 24 => PortworxVolumeSource,
        25 => ScaleIOVolumeSource, 26 => ProjectedVolumeSource, 27 => StorageOSVolumeSource,
        28 => CSIVolumeSource, 29 => EphemeralVolumeSource, 30 => ImageVolumeSource,
    };
    Volume 2 { 2 => VolumeSource };
    ContainerPort 5;
    ConfigMapKeySelector 3 { 1 => LocalObjectReference };
    SecretKeySelector 3 { 1 => LocalObjectReference };
    FileKeySelector 4;
    EnvVarSource 5 {
        1 => ObjectFieldSelector, 2 => ResourceFieldSelector, 3 => ConfigMapKeySelector,
        4 => SecretKeySelector, 5 => FileKeySelector,
    };
    EnvVar 3 { 3 => EnvVarSource };
    ResourceClaim 2;
    ResourceRequirements 3 maps [1, 2] { 3 => ResourceClaim };
    VolumeMount 7;
    ExecAction 1;
    IntOrString 3;
    HTTPHeader 2;
    HTTPGetAction 5 { 2 => IntOrString, 5 => HTTPHeader };
    TCPSocketAction 2 { 1 => IntOrString };
    GRPCAction 2;
    ProbeHandler 4 { 1 => ExecAction, 2 => HTTPGetAction, 3 => TCPSocketAction, 4 => GRPCAction };
    Probe 7 { 1 => ProbeHandler };
    SleepAction 1;
    LifecycleHandler 4 { 1 => ExecAction, 2 => HTTPGetAction, 3 => TCPSocketAction, 4 => SleepAction };
    Lifecycle 3 { 1 => LifecycleHandler, 2 => LifecycleHandler };
    Capabilities 2;
    SELinuxOptions 4;
    WindowsSecurityContextOptions 4;
    SeccompProfile 2;
    AppArmorProfile 2;
    SecurityContext 12 {
        1 => Capabilities, 3 => SELinuxOptions, 10 => WindowsSecurityContextOptions, 11 => SeccompProfile,
        12 => AppArmorProfile,
    };
    ConfigMapEnvSource 2 { 1 => LocalObjectReference };
    SecretEnvSource 2 { 1 => LocalObjectReference };
    EnvFromSource 3 { 2 => ConfigMapEnvSource, 3 => SecretEnvSource };
    VolumeDevice 2;
    ContainerResizePolicy 2;
    ContainerRestartRuleOnExitCodes 2;
    ContainerRestartRule 2 { 2 => ContainerRestartRuleOnExitCodes };
    Container 25 {
        6 => ContainerPort, 7 => EnvVar, 8 => ResourceRequirements, 9 => VolumeMount, 10 => Probe,
        11 => Probe, 12 => Lifecycle, 15 => SecurityContext, 19 => EnvFromSource, 21 => VolumeDevice,
        22 => Probe, 23 => ContainerResizePolicy, 25 => ContainerRestartRule,
    };
    Sysctl 2;
    PodSecurityContext 13 {
        1 => SELinuxOptions, 7 => Sysctl, 8 => WindowsSecurityContextOptions, 10 => SeccompProfile,
        11 => AppArmorProfile,
    };
    NodeSelectorRequirement 3;
    NodeSelectorTerm 2 { 1 => NodeSelectorRequirement, 2 => NodeSelectorRequirement };
    NodeSelector 1 { 1 => NodeSelectorTerm };
    PreferredSchedulingTerm 2 { 2 => NodeSelectorTerm };
    NodeAffinity 2 { 1 => NodeSelector, 2 => PreferredSchedulingTerm };
    PodAffinityTerm 6 { 1 => LabelSelector, 4 => LabelSelector };
    WeightedPodAffinityTerm 2 { 2 => PodAffinityTerm };
    PodAffinity 2 { 1 => PodAffinityTerm, 2 => WeightedPodAffinityTerm };
    PodAntiAffinity 2 { 1 => PodAffinityTerm, 2 => WeightedPodAffinityTerm };
    Affinity 3 { 1 => NodeAffinity, 2 => PodAffinity, 3 => PodAntiAffinity };
    Toleration 5;
    HostAlias 2;
    PodDNSConfigOption 2;
    PodDNSConfig 3 { 3 => PodDNSConfigOption };
    PodReadinessGate 1;
    TopologySpreadConstraint 8 { 4 => LabelSelector };
    EphemeralContainerCommon 25 {
        6 => ContainerPort, 7 => EnvVar, 8 => ResourceRequirements, 9 => VolumeMount, 10 => Probe,
        11 => Probe, 12 => Lifecycle, 15 => SecurityContext, 19 => EnvFromSource, 21 => VolumeDevice,
        22 => Probe, 23 => ContainerResizePolicy, 25 => ContainerRestartRule,
    };
    EphemeralContainer 2 { 1 => EphemeralContainerCommon };
    PodOS 1;
    PodSchedulingGate 1;
    PodResourceClaim 4;
    PodSchedulingGroup 1;
    PodSpec 43 maps [7, 32] {
        1 => Volume, 2 => Container, 14 => PodSecurityContext, 15 => LocalObjectReference, 18 => Affinity,
        20 => Container, 22 => Toleration, 23 => HostAlias, 26 => PodDNSConfig, 28 => PodReadinessGate,
        33 => TopologySpreadConstraint, 34 => EphemeralContainer, 36 => PodOS, 38 => PodSchedulingGate,
        39 => PodResourceClaim, 40 => ResourceRequirements, 43 => PodSchedulingGroup,
    };
    PodTemplateSpec 2 { 1 => ObjectMeta, 2 => PodSpec };
}
