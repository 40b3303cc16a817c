//! The table of [`super`]: every message that a pod template is made of, the innermost first.
//!
//! `NUMBER name: KIND`, and behind it how JSON has the field where it is not simply left out when empty: `pointer`, `always`,
//! `nullable` (see [`Presence`]). A kind is a scalar, its plural a list of them, `{Message}` a message, `[Message]` a list of
//! messages, and `(Message)` one whose members JSON has in its parent.
#![expect(non_upper_case_globals, reason = "each row bears its message's name, which upstream gave it")]

use super::{FieldShape, Holds, Presence, Shape};

macro_rules! shapes {
    ($($name:ident { $($number:literal $field:ident: $holds:tt $($presence:ident)?),* $(,)? })*) => {
        $(static $name: Shape = Shape {
            name: stringify!($name),
            fields: &[$(FieldShape {
                number: $number,
                name: stringify!($field),
                holds: shapes!(@holds $holds),
                presence: shapes!(@presence $($presence)?),
            }),*],
        };)*

        /// All messages in this table.
        pub static ALL: &[&Shape] = &[$(&$name),*];
    };
    (@holds text) => { Holds::Text };
    (@holds texts) => { Holds::Texts };
    (@holds int) => { Holds::Int };
    (@holds ints) => { Holds::Ints };
    (@holds bool) => { Holds::Bool };
    (@holds labels) => { Holds::Labels };
    (@holds amounts) => { Holds::Amounts };
    (@holds quantity) => { Holds::Quantity };
    (@holds time) => { Holds::Time };
    (@holds int_or_string) => { Holds::IntOrString };
    (@holds json) => { Holds::Json };
    (@holds {$message:ident}) => { Holds::Message(&$message) };
    (@holds [$message:ident]) => { Holds::Messages(&$message) };
    (@holds ($message:ident)) => { Holds::Flattened(&$message) };
    (@presence) => { Presence::NotEmpty };
    (@presence pointer) => { Presence::Pointer };
    (@presence always) => { Presence::Always };
    (@presence nullable) => { Presence::Nullable };
}

/// `PodTemplateSpec`.
pub static POD_TEMPLATE: &Shape = &PodTemplateSpec;

shapes! {
    OwnerReference {
        1 kind: text always, 3 name: text always, 4 uid: text always, 5 apiVersion: text always,
        6 controller: bool pointer, 7 blockOwnerDeletion: bool pointer,
    }
    ManagedFieldsEntry {
        1 manager: text, 2 operation: text, 3 apiVersion: text, 4 time: time, 6 fieldsType: text,
        7 fieldsV1: json, 8 subresource: text,
    }
    ObjectMeta {
        1 name: text, 2 generateName: text, 3 namespace: text, 4 selfLink: text, 5 uid: text,
        6 resourceVersion: text, 7 generation: int, 8 creationTimestamp: time, 9 deletionTimestamp: time,
        10 deletionGracePeriodSeconds: int pointer, 11 labels: labels, 12 annotations: labels,
        13 ownerReferences: [OwnerReference], 14 finalizers: texts, 17 managedFields: [ManagedFieldsEntry],
    }
    HostPathVolumeSource { 1 path: text always, 2 type: text pointer }
    EmptyDirVolumeSource { 1 medium: text, 2 sizeLimit: quantity pointer }
    GCEPersistentDiskVolumeSource {
        1 pdName: text always, 2 fsType: text, 3 partition: int, 4 readOnly: bool,
    }
    AWSElasticBlockStoreVolumeSource {
        1 volumeID: text always, 2 fsType: text, 3 partition: int, 4 readOnly: bool,
    }
    GitRepoVolumeSource { 1 repository: text always, 2 revision: text, 3 directory: text }
    KeyToPath { 1 key: text always, 2 path: text always, 3 mode: int pointer }
    SecretVolumeSource {
        1 secretName: text, 2 items: [KeyToPath], 3 defaultMode: int pointer, 4 optional: bool pointer,
    }
    NFSVolumeSource { 1 server: text always, 2 path: text always, 3 readOnly: bool }
    LocalObjectReference { 1 name: text }
    ISCSIVolumeSource {
        1 targetPortal: text always, 2 iqn: text always, 3 lun: int always, 4 iscsiInterface: text,
        5 fsType: text, 6 readOnly: bool, 7 portals: texts, 8 chapAuthDiscovery: bool,
        10 secretRef: {LocalObjectReference}, 11 chapAuthSession: bool, 12 initiatorName: text pointer,
    }
    GlusterfsVolumeSource { 1 endpoints: text always, 2 path: text always, 3 readOnly: bool }
    PersistentVolumeClaimVolumeSource { 1 claimName: text always, 2 readOnly: bool }
    RBDVolumeSource {
        1 monitors: texts always, 2 image: text always, 3 fsType: text, 4 pool: text, 5 user: text,
        6 keyring: text, 7 secretRef: {LocalObjectReference}, 8 readOnly: bool,
    }
    FlexVolumeSource {
        1 driver: text always, 2 fsType: text, 3 secretRef: {LocalObjectReference}, 4 readOnly: bool,
        5 options: labels,
    }
    CinderVolumeSource {
        1 volumeID: text always, 2 fsType: text, 3 readOnly: bool, 4 secretRef: {LocalObjectReference},
    }
    CephFSVolumeSource {
        1 monitors: texts always, 2 path: text, 3 user: text, 4 secretFile: text,
        5 secretRef: {LocalObjectReference}, 6 readOnly: bool,
    }
    FlockerVolumeSource { 1 datasetName: text, 2 datasetUUID: text }
    ObjectFieldSelector { 1 apiVersion: text, 2 fieldPath: text always }
    ResourceFieldSelector { 1 containerName: text, 2 resource: text always, 3 divisor: quantity always }
    DownwardAPIVolumeFile {
        1 path: text always, 2 fieldRef: {ObjectFieldSelector}, 3 resourceFieldRef: {ResourceFieldSelector},
        4 mode: int pointer,
    }
    DownwardAPIVolumeSource { 1 items: [DownwardAPIVolumeFile], 2 defaultMode: int pointer }
    FCVolumeSource {
        1 targetWWNs: texts, 2 lun: int pointer, 3 fsType: text, 4 readOnly: bool, 5 wwids: texts,
    }
    AzureFileVolumeSource { 1 secretName: text always, 2 shareName: text always, 3 readOnly: bool }
    ConfigMapVolumeSource {
        1 localObjectReference: (LocalObjectReference), 2 items: [KeyToPath], 3 defaultMode: int pointer,
        4 optional: bool pointer,
    }
    VsphereVirtualDiskVolumeSource {
        1 volumePath: text always, 2 fsType: text, 3 storagePolicyName: text, 4 storagePolicyID: text,
    }
    QuobyteVolumeSource {
        1 registry: text always, 2 volume: text always, 3 readOnly: bool, 4 user: text, 5 group: text,
        6 tenant: text,
    }
    AzureDiskVolumeSource {
        1 diskName: text always, 2 diskURI: text always, 3 cachingMode: text pointer, 4 fsType: text pointer,
        5 readOnly: bool pointer, 6 kind: text pointer,
    }
    PhotonPersistentDiskVolumeSource { 1 pdID: text always, 2 fsType: text }
    PortworxVolumeSource { 1 volumeID: text always, 2 fsType: text, 3 readOnly: bool }
    ScaleIOVolumeSource {
        1 gateway: text always, 2 system: text always, 3 secretRef: {LocalObjectReference} nullable,
        4 sslEnabled: bool, 5 protectionDomain: text, 6 storagePool: text, 7 storageMode: text,
        8 volumeName: text, 9 fsType: text, 10 readOnly: bool,
    }
    SecretProjection {
        1 localObjectReference: (LocalObjectReference), 2 items: [KeyToPath], 4 optional: bool pointer,
    }
    DownwardAPIProjection { 1 items: [DownwardAPIVolumeFile] }
    ConfigMapProjection {
        1 localObjectReference: (LocalObjectReference), 2 items: [KeyToPath], 4 optional: bool pointer,
    }
    ServiceAccountTokenProjection { 1 audience: text, 2 expirationSeconds: int pointer, 3 path: text always }
    LabelSelectorRequirement { 1 key: text always, 2 operator: text always, 3 values: texts }
    LabelSelector { 1 matchLabels: labels, 2 matchExpressions: [LabelSelectorRequirement] }
    ClusterTrustBundleProjection {
        1 name: text pointer, 2 signerName: text pointer, 3 labelSelector: {LabelSelector},
        4 path: text always, 5 optional: bool pointer,
    }
    PodCertificateProjection {
        1 signerName: text, 2 keyType: text, 3 maxExpirationSeconds: int pointer,
        4 credentialBundlePath: text, 5 keyPath: text, 6 certificateChainPath: text,
        7 userAnnotations: labels,
    }
    VolumeProjection {
        1 secret: {SecretProjection}, 2 downwardAPI: {DownwardAPIProjection},
        3 configMap: {ConfigMapProjection}, 4 serviceAccountToken: {ServiceAccountTokenProjection},
        5 clusterTrustBundle: {ClusterTrustBundleProjection}, 6 podCertificate: {PodCertificateProjection},
    }
    ProjectedVolumeSource { 1 sources: [VolumeProjection] always, 2 defaultMode: int pointer }
    StorageOSVolumeSource {
        1 volumeName: text, 2 volumeNamespace: text, 3 fsType: text, 4 readOnly: bool,
        5 secretRef: {LocalObjectReference},
    }
    CSIVolumeSource {
        1 driver: text always, 2 readOnly: bool pointer, 3 fsType: text pointer, 4 volumeAttributes: labels,
        5 nodePublishSecretRef: {LocalObjectReference},
    }
    VolumeResourceRequirements { 1 limits: amounts, 2 requests: amounts }
    TypedLocalObjectReference { 1 apiGroup: text nullable, 2 kind: text always, 3 name: text always }
    TypedObjectReference {
        1 apiGroup: text nullable, 2 kind: text always, 3 name: text always, 4 namespace: text pointer,
    }
    PersistentVolumeClaimSpec {
        1 accessModes: texts, 2 resources: {VolumeResourceRequirements} always, 3 volumeName: text,
        4 selector: {LabelSelector}, 5 storageClassName: text pointer, 6 volumeMode: text pointer,
        7 dataSource: {TypedLocalObjectReference}, 8 dataSourceRef: {TypedObjectReference},
        9 volumeAttributesClassName: text pointer,
    }
    PersistentVolumeClaimTemplate {
        1 metadata: {ObjectMeta} always, 2 spec: {PersistentVolumeClaimSpec} always,
    }
    EphemeralVolumeSource { 1 volumeClaimTemplate: {PersistentVolumeClaimTemplate} }
    ImageVolumeSource { 1 reference: text, 2 pullPolicy: text }
    VolumeSource {
        1 hostPath: {HostPathVolumeSource}, 2 emptyDir: {EmptyDirVolumeSource},
        3 gcePersistentDisk: {GCEPersistentDiskVolumeSource},
        4 awsElasticBlockStore: {AWSElasticBlockStoreVolumeSource}, 5 gitRepo: {GitRepoVolumeSource},
        6 secret: {SecretVolumeSource}, 7 nfs: {NFSVolumeSource}, 8 iscsi: {ISCSIVolumeSource},
        9 glusterfs: {GlusterfsVolumeSource}, 10 persistentVolumeClaim: {PersistentVolumeClaimVolumeSource},
        11 rbd: {RBDVolumeSource}, 12 flexVolume: {FlexVolumeSource}, 13 cinder: {CinderVolumeSource},
        14 cephfs: {CephFSVolumeSource}, 15 flocker: {FlockerVolumeSource},
        16 downwardAPI: {DownwardAPIVolumeSource}, 17 fc: {FCVolumeSource},
        18 azureFile: {AzureFileVolumeSource}, 19 configMap: {ConfigMapVolumeSource},
        20 vsphereVolume: {VsphereVirtualDiskVolumeSource}, 21 quobyte: {QuobyteVolumeSource},
        22 azureDisk: {AzureDiskVolumeSource}, 23 photonPersistentDisk: {PhotonPersistentDiskVolumeSource},
        24 portworxVolume: {PortworxVolumeSource}, 25 scaleIO: {ScaleIOVolumeSource},
        26 projected: {ProjectedVolumeSource}, 27 storageos: {StorageOSVolumeSource},
        28 csi: {CSIVolumeSource}, 29 ephemeral: {EphemeralVolumeSource}, 30 image: {ImageVolumeSource},
    }
    Volume { 1 name: text always, 2 volumeSource: (VolumeSource) }
    ContainerPort {
        1 name: text, 2 hostPort: int, 3 containerPort: int always, 4 protocol: text, 5 hostIP: text,
    }
    ConfigMapKeySelector {
        1 localObjectReference: (LocalObjectReference), 2 key: text always, 3 optional: bool pointer,
    }
    SecretKeySelector {
        1 localObjectReference: (LocalObjectReference), 2 key: text always, 3 optional: bool pointer,
    }
    FileKeySelector {
        1 volumeName: text always, 2 path: text always, 3 key: text always, 4 optional: bool pointer,
    }
    EnvVarSource {
        1 fieldRef: {ObjectFieldSelector}, 2 resourceFieldRef: {ResourceFieldSelector},
        3 configMapKeyRef: {ConfigMapKeySelector}, 4 secretKeyRef: {SecretKeySelector},
        5 fileKeyRef: {FileKeySelector},
    }
    EnvVar { 1 name: text always, 2 value: text, 3 valueFrom: {EnvVarSource} }
    ResourceClaim { 1 name: text always, 2 request: text }
    ResourceRequirements { 1 limits: amounts, 2 requests: amounts, 3 claims: [ResourceClaim] }
    VolumeMount {
        1 name: text always, 2 readOnly: bool, 3 mountPath: text always, 4 subPath: text,
        5 mountPropagation: text pointer, 6 subPathExpr: text, 7 recursiveReadOnly: text pointer,
    }
    ExecAction { 1 command: texts }
    HTTPHeader { 1 name: text always, 2 value: text always }
    HTTPGetAction {
        1 path: text, 2 port: int_or_string always, 3 host: text, 4 scheme: text, 5 httpHeaders: [HTTPHeader],
    }
    TCPSocketAction { 1 port: int_or_string always, 2 host: text }
    GRPCAction { 1 port: int always, 2 service: text nullable }
    ProbeHandler {
        1 exec: {ExecAction}, 2 httpGet: {HTTPGetAction}, 3 tcpSocket: {TCPSocketAction},
        4 grpc: {GRPCAction},
    }
    Probe {
        1 handler: (ProbeHandler), 2 initialDelaySeconds: int, 3 timeoutSeconds: int, 4 periodSeconds: int,
        5 successThreshold: int, 6 failureThreshold: int, 7 terminationGracePeriodSeconds: int pointer,
    }
    SleepAction { 1 seconds: int always }
    LifecycleHandler {
        1 exec: {ExecAction}, 2 httpGet: {HTTPGetAction}, 3 tcpSocket: {TCPSocketAction},
        4 sleep: {SleepAction},
    }
    Lifecycle { 1 postStart: {LifecycleHandler}, 2 preStop: {LifecycleHandler}, 3 stopSignal: text pointer }
    Capabilities { 1 add: texts, 2 drop: texts }
    SELinuxOptions { 1 user: text, 2 role: text, 3 type: text, 4 level: text }
    WindowsSecurityContextOptions {
        1 gmsaCredentialSpecName: text pointer, 2 gmsaCredentialSpec: text pointer,
        3 runAsUserName: text pointer, 4 hostProcess: bool pointer,
    }
    SeccompProfile { 1 type: text always, 2 localhostProfile: text pointer }
    AppArmorProfile { 1 type: text always, 2 localhostProfile: text pointer }
    SecurityContext {
        1 capabilities: {Capabilities}, 2 privileged: bool pointer, 3 seLinuxOptions: {SELinuxOptions},
        4 runAsUser: int pointer, 5 runAsNonRoot: bool pointer, 6 readOnlyRootFilesystem: bool pointer,
        7 allowPrivilegeEscalation: bool pointer, 8 runAsGroup: int pointer, 9 procMount: text pointer,
        10 windowsOptions: {WindowsSecurityContextOptions}, 11 seccompProfile: {SeccompProfile},
        12 appArmorProfile: {AppArmorProfile},
    }
    ConfigMapEnvSource { 1 localObjectReference: (LocalObjectReference), 2 optional: bool pointer }
    SecretEnvSource { 1 localObjectReference: (LocalObjectReference), 2 optional: bool pointer }
    EnvFromSource { 1 prefix: text, 2 configMapRef: {ConfigMapEnvSource}, 3 secretRef: {SecretEnvSource} }
    VolumeDevice { 1 name: text always, 2 devicePath: text always }
    ContainerResizePolicy { 1 resourceName: text always, 2 restartPolicy: text always }
    ContainerRestartRuleOnExitCodes { 1 operator: text always, 2 values: ints }
    ContainerRestartRule { 1 action: text always, 2 exitCodes: {ContainerRestartRuleOnExitCodes} }
    Container {
        1 name: text always, 2 image: text, 3 command: texts, 4 args: texts, 5 workingDir: text,
        6 ports: [ContainerPort], 7 env: [EnvVar], 8 resources: {ResourceRequirements} always,
        9 volumeMounts: [VolumeMount], 10 livenessProbe: {Probe}, 11 readinessProbe: {Probe},
        12 lifecycle: {Lifecycle}, 13 terminationMessagePath: text, 14 imagePullPolicy: text,
        15 securityContext: {SecurityContext}, 16 stdin: bool, 17 stdinOnce: bool, 18 tty: bool,
        19 envFrom: [EnvFromSource], 20 terminationMessagePolicy: text, 21 volumeDevices: [VolumeDevice],
        22 startupProbe: {Probe}, 23 resizePolicy: [ContainerResizePolicy], 24 restartPolicy: text pointer,
        25 restartPolicyRules: [ContainerRestartRule],
    }
    Sysctl { 1 name: text always, 2 value: text always }
    PodSecurityContext {
        1 seLinuxOptions: {SELinuxOptions}, 2 runAsUser: int pointer, 3 runAsNonRoot: bool pointer,
        4 supplementalGroups: ints, 5 fsGroup: int pointer, 6 runAsGroup: int pointer, 7 sysctls: [Sysctl],
        8 windowsOptions: {WindowsSecurityContextOptions}, 9 fsGroupChangePolicy: text pointer,
        10 seccompProfile: {SeccompProfile}, 11 appArmorProfile: {AppArmorProfile},
        12 supplementalGroupsPolicy: text pointer, 13 seLinuxChangePolicy: text pointer,
    }
    NodeSelectorRequirement { 1 key: text always, 2 operator: text always, 3 values: texts }
    NodeSelectorTerm {
        1 matchExpressions: [NodeSelectorRequirement], 2 matchFields: [NodeSelectorRequirement],
    }
    NodeSelector { 1 nodeSelectorTerms: [NodeSelectorTerm] always }
    PreferredSchedulingTerm { 1 weight: int always, 2 preference: {NodeSelectorTerm} always }
    NodeAffinity {
        1 requiredDuringSchedulingIgnoredDuringExecution: {NodeSelector},
        2 preferredDuringSchedulingIgnoredDuringExecution: [PreferredSchedulingTerm],
    }
    PodAffinityTerm {
        1 labelSelector: {LabelSelector}, 2 namespaces: texts, 3 topologyKey: text always,
        4 namespaceSelector: {LabelSelector}, 5 matchLabelKeys: texts, 6 mismatchLabelKeys: texts,
    }
    WeightedPodAffinityTerm { 1 weight: int always, 2 podAffinityTerm: {PodAffinityTerm} always }
    PodAffinity {
        1 requiredDuringSchedulingIgnoredDuringExecution: [PodAffinityTerm],
        2 preferredDuringSchedulingIgnoredDuringExecution: [WeightedPodAffinityTerm],
    }
    PodAntiAffinity {
        1 requiredDuringSchedulingIgnoredDuringExecution: [PodAffinityTerm],
        2 preferredDuringSchedulingIgnoredDuringExecution: [WeightedPodAffinityTerm],
    }
    Affinity {
        1 nodeAffinity: {NodeAffinity}, 2 podAffinity: {PodAffinity}, 3 podAntiAffinity: {PodAntiAffinity},
    }
    Toleration {
        1 key: text, 2 operator: text, 3 value: text, 4 effect: text, 5 tolerationSeconds: int pointer,
    }
    HostAlias { 1 ip: text always, 2 hostnames: texts }
    PodDNSConfigOption { 1 name: text, 2 value: text pointer }
    PodDNSConfig { 1 nameservers: texts, 2 searches: texts, 3 options: [PodDNSConfigOption] }
    PodReadinessGate { 1 conditionType: text always }
    TopologySpreadConstraint {
        1 maxSkew: int always, 2 topologyKey: text always, 3 whenUnsatisfiable: text always,
        4 labelSelector: {LabelSelector}, 5 minDomains: int pointer, 6 nodeAffinityPolicy: text pointer,
        7 nodeTaintsPolicy: text pointer, 8 matchLabelKeys: texts,
    }
    EphemeralContainerCommon {
        1 name: text always, 2 image: text, 3 command: texts, 4 args: texts, 5 workingDir: text,
        6 ports: [ContainerPort], 7 env: [EnvVar], 8 resources: {ResourceRequirements} always,
        9 volumeMounts: [VolumeMount], 10 livenessProbe: {Probe}, 11 readinessProbe: {Probe},
        12 lifecycle: {Lifecycle}, 13 terminationMessagePath: text, 14 imagePullPolicy: text,
        15 securityContext: {SecurityContext}, 16 stdin: bool, 17 stdinOnce: bool, 18 tty: bool,
        19 envFrom: [EnvFromSource], 20 terminationMessagePolicy: text, 21 volumeDevices: [VolumeDevice],
        22 startupProbe: {Probe}, 23 resizePolicy: [ContainerResizePolicy], 24 restartPolicy: text pointer,
        25 restartPolicyRules: [ContainerRestartRule],
    }
    EphemeralContainer {
        1 ephemeralContainerCommon: (EphemeralContainerCommon), 2 targetContainerName: text,
    }
    PodOS { 1 name: text always }
    PodSchedulingGate { 1 name: text always }
    PodResourceClaim {
        1 name: text always, 3 resourceClaimName: text pointer, 4 resourceClaimTemplateName: text pointer,
    }
    PodSchedulingGroup { 1 podGroupName: text pointer }
    PodSpec {
        1 volumes: [Volume], 2 containers: [Container] always, 3 restartPolicy: text,
        4 terminationGracePeriodSeconds: int pointer, 5 activeDeadlineSeconds: int pointer, 6 dnsPolicy: text,
        7 nodeSelector: labels, 8 serviceAccountName: text, 9 serviceAccount: text, 10 nodeName: text,
        11 hostNetwork: bool, 12 hostPID: bool, 13 hostIPC: bool, 14 securityContext: {PodSecurityContext},
        15 imagePullSecrets: [LocalObjectReference], 16 hostname: text, 17 subdomain: text,
        18 affinity: {Affinity}, 19 schedulerName: text, 20 initContainers: [Container],
        21 automountServiceAccountToken: bool pointer, 22 tolerations: [Toleration],
        23 hostAliases: [HostAlias], 24 priorityClassName: text, 25 priority: int pointer,
        26 dnsConfig: {PodDNSConfig}, 27 shareProcessNamespace: bool pointer,
        28 readinessGates: [PodReadinessGate], 29 runtimeClassName: text pointer,
        30 enableServiceLinks: bool pointer, 31 preemptionPolicy: text pointer, 32 overhead: amounts,
        33 topologySpreadConstraints: [TopologySpreadConstraint],
        34 ephemeralContainers: [EphemeralContainer], 35 setHostnameAsFQDN: bool pointer, 36 os: {PodOS},
        37 hostUsers: bool pointer, 38 schedulingGates: [PodSchedulingGate],
        39 resourceClaims: [PodResourceClaim], 40 resources: {ResourceRequirements},
        41 hostnameOverride: text pointer, 43 schedulingGroup: {PodSchedulingGroup},
    }
    PodTemplateSpec { 1 metadata: {ObjectMeta} always, 2 spec: {PodSpec} always }
}
