//! `certificates.k8s.io`, trimmed. CertificateSigningRequests and ClusterTrustBundles are rewritten, so their bytes are kept
//! in `raw`; of PodCertificateRequests only metadata is read.

use super::kind::{ApiVersion, kinds, objects};
use super::meta::{ObjectMeta, PartialObjectMetadata};
use crate::wire::{Contents, Map, Str, Time, message};

const V1: ApiVersion = ApiVersion { group: "certificates.k8s.io", version: "v1" };
const V1_BETA: ApiVersion = ApiVersion { group: "certificates.k8s.io", version: "v1beta1" };
const V1_ALPHA: ApiVersion = ApiVersion { group: "certificates.k8s.io", version: "v1alpha1" };

kinds! {
    /// CertificateSigningRequests.
    CERTIFICATE_SIGNING_REQUESTS =
        V1.cluster_wide::<CertificateSigningRequest>("CertificateSigningRequest", "certificatesigningrequests");
    /// ClusterTrustBundles, where the beta is served.
    CLUSTER_TRUST_BUNDLES = V1_BETA.cluster_wide::<ClusterTrustBundle>("ClusterTrustBundle", "clustertrustbundles");
    /// ClusterTrustBundles, where only the alpha is served. The fields are the same.
    CLUSTER_TRUST_BUNDLES_ALPHA =
        V1_ALPHA.cluster_wide::<ClusterTrustBundle>("ClusterTrustBundle", "clustertrustbundles");
    /// PodCertificateRequests, which are deleted by age.
    POD_CERTIFICATE_REQUESTS =
        V1_BETA.namespaced::<PartialObjectMetadata>("PodCertificateRequest", "podcertificaterequests").metadata_only();
}

objects! {
    CertificateSigningRequest + raw;
    ClusterTrustBundle + raw;
}

message! {
    schema SCHEMA;

    /// A request for a certificate.
    pub struct CertificateSigningRequest + raw = "k8s.io.api.certificates.v1.CertificateSigningRequest" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// What is asked for, and by whom.
        2 => spec: CertificateSigningRequestSpec,
        /// What became of it.
        3 => status: CertificateSigningRequestStatus,
    }

    /// What is asked for, and by whom.
    pub struct CertificateSigningRequestSpec = "k8s.io.api.certificates.v1.CertificateSigningRequestSpec" {
        /// The PKCS#10 request in PEM.
        1 => request: Contents,
        /// Name of the user who asks.
        2 => username: Str,
        /// UID of the user.
        3 => uid: Str,
        /// Groups of the user.
        4 => groups: Vec<Str> [interned],
        /// What the certificate is to be used for.
        5 => usages: Vec<Str> [interned],
        /// What else is known of the user.
        6 => extra: Map<ExtraValue>,
        /// Who is to sign.
        7 => signer_name: Str [interned],
        /// For how long it should be valid.
        8 => expiration_seconds: Option<i32>,
    }

    /// Something that is known of a user.
    pub struct ExtraValue = "k8s.io.api.certificates.v1.ExtraValue" {
        /// Its values.
        1 => items: Vec<Str>,
    }

    /// What became of a request.
    pub struct CertificateSigningRequestStatus = "k8s.io.api.certificates.v1.CertificateSigningRequestStatus" {
        /// Conditions.
        1 => conditions: Vec<CertificateSigningRequestCondition>,
        /// The certificate in PEM.
        2 => certificate: Contents,
    }

    /// A condition of a request. Its fields have other numbers than those of other kinds.
    pub struct CertificateSigningRequestCondition = "k8s.io.api.certificates.v1.CertificateSigningRequestCondition" {
        /// `Approved`, `Denied` or `Failed`.
        1 => r#type: Str [interned],
        /// For machines.
        2 => reason: Str [interned],
        /// For people.
        3 => message: Str,
        /// When it was written last.
        4 => last_update_time: Option<Time>,
        /// When `status` changed last.
        5 => last_transition_time: Option<Time>,
        /// `True`, `False` or `Unknown`.
        6 => status: Str [interned],
    }

    /// Certificates that may be trusted.
    pub struct ClusterTrustBundle + raw = "k8s.io.api.certificates.v1beta1.ClusterTrustBundle" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Which.
        2 => spec: ClusterTrustBundleSpec,
    }

    /// Which certificates may be trusted.
    pub struct ClusterTrustBundleSpec = "k8s.io.api.certificates.v1beta1.ClusterTrustBundleSpec" {
        /// Who signs with them.
        1 => signer_name: Str [interned],
        /// The certificates in PEM.
        2 => trust_bundle: Str,
    }
}
