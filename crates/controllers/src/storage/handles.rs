//! What a volume of a type that was migrated is to its CSI driver: the volume handle (KEP-625). A handle that differs by a byte is
//! another volume.

use coxswain_machinery::api::storage::PersistentVolume;
use coxswain_machinery::api::volumes::{AwsElasticBlockStore, AzureDisk, GcePersistentDisk, InlineSource};
use coxswain_machinery::wire::Str;

/// Where a volume's data is cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HandleError(pub(super) String);

/// Labels of a volume that say its zones, the one that counts first.
const ZONES: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
/// Between zones in such a label.
const ZONE_SEPARATOR: &str = "__";
const UNSPECIFIED: &str = "UNSPECIFIED";
/// The annotation of a volume that says in which group of resources its share is.
const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";

/// The handle of a PersistentVolume, if it is of such a type.
///
/// # Errors
/// Its source says too little, or something that makes no sense.
pub fn of_volume(volume: &PersistentVolume) -> Result<Option<String>, HandleError> {
    let source = &volume.spec.persistent_volume_source;
    if let Some(disk) = &source.aws_elastic_block_store {
        return aws(disk).map(Some);
    }
    if let Some(disk) = &source.gce_persistent_disk {
        return gce(disk, volume).map(Some);
    }
    if let Some(disk) = &source.azure_disk {
        return azure_disk(disk).map(Some);
    }
    if let Some(share) = &source.azure_file {
        let meta = &volume.metadata;
        let group = meta.annotations.get(RESOURCE_GROUP).map_or("", Str::as_str);
        let claims = volume.spec.claim_ref.as_ref().map(|claim| &claim.namespace);
        let namespace = share.secret_namespace.as_ref().or(claims).filter(|namespace| !namespace.is_empty());
        let Some(namespace) = namespace else {
            return Err(HandleError(format!("volume {} has no namespace for its Secret", meta.name)));
        };
        return Ok(Some(share_handle(group, &share.secret_name, &share.share_name, &meta.name, namespace)));
    }
    let plain = source.cinder.as_ref().map(|disk| &disk.volume_id);
    let plain = plain.or_else(|| source.vsphere_volume.as_ref().map(|disk| &disk.volume_path));
    let plain = plain.or_else(|| source.portworx_volume.as_ref().map(|volume| &volume.volume_id));
    Ok(plain.map(Str::to_string))
}

/// The handle of a pod's volume, if it is of such a type: of the volume of that name, of a pod in that namespace.
///
/// # Errors
/// Its source says too little, or something that makes no sense.
pub fn of_inline(
    source: &InlineSource,
    volume: &str,
    namespace: &str,
) -> Result<Option<String>, HandleError> {
    if let Some(disk) = &source.aws_elastic_block_store {
        return aws(disk).map(Some);
    }
    if let Some(disk) = &source.gce_persistent_disk {
        return Ok(Some(zonal(UNSPECIFIED, disk)));
    }
    if let Some(disk) = &source.azure_disk {
        return azure_disk(disk).map(Some);
    }
    if let Some(share) = &source.azure_file {
        return Ok(Some(share_handle("", &share.secret_name, &share.share_name, volume, namespace)));
    }
    let plain = source.cinder.as_ref().map(|disk| &disk.volume_id);
    let plain = plain.or_else(|| source.vsphere_volume.as_ref().map(|disk| &disk.volume_path));
    let plain = plain.or_else(|| source.portworx_volume.as_ref().map(|volume| &volume.volume_id));
    Ok(plain.map(Str::to_string))
}

/// An ID, or a URL (`aws://ZONE/vol-…`) with one.
fn aws(disk: &AwsElasticBlockStore) -> Result<String, HandleError> {
    let id = disk.volume_id.as_str();
    let Some(rest) = id.strip_prefix("aws://") else { return Ok(id.to_owned()) };
    let path = rest.split_once('/').map_or("", |(_zone, path)| path).trim_matches('/');
    if path.starts_with("vol-") && !path.contains('/') {
        Ok(path.to_owned())
    } else {
        Err(HandleError(format!("volume ID {id:?} is invalid")))
    }
}

fn gce(disk: &GcePersistentDisk, volume: &PersistentVolume) -> Result<String, HandleError> {
    let label = |name: &&str| volume.metadata.labels.get(name).filter(|zones| !zones.is_empty());
    let zones = ZONES.iter().find_map(label).map_or("", Str::as_str);
    let all: Vec<&str> = zones.split(ZONE_SEPARATOR).filter(|zone| !zone.is_empty()).collect();
    match all[..] {
        [] => Ok(zonal(UNSPECIFIED, disk)),
        [zone] => Ok(zonal(zone, disk)),
        [first, ref others @ ..] => {
            // Linear: each zone is compared with the region of the first.
            let of_first =
                region(first).filter(|found| others.iter().all(|zone| region(zone) == Some(*found)));
            let Some(region) = of_first else {
                return Err(HandleError(format!("zones {zones:?} are in different regions")));
            };
            Ok(format!("projects/{UNSPECIFIED}/regions/{region}/disks/{}", disk.pd_name))
        }
    }
}

fn zonal(zone: &str, disk: &GcePersistentDisk) -> String {
    format!("projects/{UNSPECIFIED}/zones/{zone}/disks/{}", disk.pd_name)
}

/// `europe-west1` of `europe-west1-b`.
fn region(zone: &str) -> Option<&str> {
    let (region, _) = zone.rsplit_once('-')?;
    (region.split('-').count() == 2).then_some(region)
}

fn azure_disk(disk: &AzureDisk) -> Result<String, HandleError> {
    match &disk.kind {
        Some(kind) if !kind.eq_ignore_ascii_case("Managed") => {
            Err(HandleError(format!("Azure disk of kind {kind:?} is not managed")))
        }
        _ => Ok(disk.disk_uri.to_string()),
    }
}

fn share_handle(group: &str, secret: &str, share: &str, name: &str, namespace: &str) -> String {
    let account = secret
        .split_once("azure-storage-account-")
        .and_then(|(_, rest)| rest.rsplit_once("-secret"))
        .map_or(secret, |(account, _)| account);
    format!("{group}#{account}#{share}#{name}#{namespace}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use coxswain_machinery::api::core::ObjectReference;
    use coxswain_machinery::api::volumes::{
        AzureFile, AzureFilePersistent, Cinder, CsiPersistent, PersistentVolumeSource, PortworxVolume,
        VsphereVolume,
    };

    fn handle(source: PersistentVolumeSource, change: impl Fn(&mut PersistentVolume)) -> Option<String> {
        let mut volume = PersistentVolume::default();
        volume.metadata.name = "pv".into();
        volume.spec.persistent_volume_source = source;
        change(&mut volume);
        of_volume(&volume).ok().map(|handle| handle.unwrap_or_else(|| "none".to_owned()))
    }

    fn ebs(id: &str) -> PersistentVolumeSource {
        let disk = AwsElasticBlockStore { volume_id: id.into(), ..AwsElasticBlockStore::default() };
        PersistentVolumeSource { aws_elastic_block_store: Some(Box::new(disk)), ..Default::default() }
    }

    #[test]
    fn disks_of_amazon_are_ids_or_urls_with_one() {
        for (id, expected) in [
            ("vol-1", Some("vol-1")),
            ("anything/at all", Some("anything/at all")),
            ("aws://us-east-1a/vol-1", Some("vol-1")),
            ("aws:///vol-1", Some("vol-1")),
            ("aws://us-east-1a//vol-1/", Some("vol-1")),
            ("aws://us-east-1a/snap-1", None),
            ("aws://us-east-1a/vol-1/x", None),
            ("aws://vol-1", None),
            ("aws://", None),
        ] {
            assert_eq!(handle(ebs(id), |_| {}).as_deref(), expected, "{id}");
        }
    }

    #[test]
    fn disks_of_google_are_in_a_zone_or_a_region() {
        let disk = || {
            let disk = GcePersistentDisk { pd_name: "pd".into(), ..GcePersistentDisk::default() };
            PersistentVolumeSource { gce_persistent_disk: Some(Box::new(disk)), ..Default::default() }
        };
        let labeled = |beta: &str, zones: &str| {
            let set =
                [(ZONES[0], beta), (ZONES[1], zones)].into_iter().filter(|(_, zones)| !zones.is_empty());
            let labels: Vec<(&str, &str)> = set.collect();
            handle(disk(), |volume| volume.metadata.labels = labels.iter().copied().collect())
        };
        let zonal = |zone: &str| Some(format!("projects/UNSPECIFIED/zones/{zone}/disks/pd"));
        assert_eq!(labeled("", ""), zonal("UNSPECIFIED"));
        assert_eq!(labeled("", "us-central1-a"), zonal("us-central1-a"));
        assert_eq!(
            labeled("us-central1-b", "us-central1-a"),
            zonal("us-central1-b"),
            "the older label counts"
        );
        let regional = Some("projects/UNSPECIFIED/regions/us-central1/disks/pd".to_owned());
        assert_eq!(labeled("", "us-central1-a__us-central1-c"), regional);
        for wrong in ["us-central1-a__us-east1-a", "us-a__us-b", "a-b-c-d__a-b-c-e"] {
            assert_eq!(labeled("", wrong), None, "{wrong}");
        }
    }

    #[test]
    fn disks_of_microsoft_are_managed_ones() {
        let disk = |kind: Option<&str>| {
            let kind = kind.map(Str::from);
            let disk = AzureDisk { disk_uri: "/subscriptions/d".into(), kind, ..AzureDisk::default() };
            PersistentVolumeSource { azure_disk: Some(Box::new(disk)), ..Default::default() }
        };
        for kind in [None, Some("Managed"), Some("managed")] {
            assert_eq!(handle(disk(kind), |_| {}).as_deref(), Some("/subscriptions/d"));
        }
        assert_eq!(handle(disk(Some("Shared")), |_| {}), None);
    }

    #[test]
    fn shares_of_microsoft_name_their_secret() {
        let share = |secret: &str, namespace: Option<&str>| {
            let share = AzureFilePersistent {
                secret_name: secret.into(),
                share_name: "share".into(),
                secret_namespace: namespace.map(Str::from),
                ..AzureFilePersistent::default()
            };
            PersistentVolumeSource { azure_file: Some(Box::new(share)), ..Default::default() }
        };
        let full = "azure-storage-account-acc-secret";
        assert_eq!(handle(share(full, Some("ns")), |_| {}).as_deref(), Some("#acc#share#pv#ns"));
        assert_eq!(handle(share("plain", Some("ns")), |_| {}).as_deref(), Some("#plain#share#pv#ns"));
        let claimed = |volume: &mut PersistentVolume| {
            let namespace = "claims".into();
            volume.spec.claim_ref = Some(Box::new(ObjectReference { namespace, ..Default::default() }));
            volume.metadata.annotations = [(RESOURCE_GROUP, "group")].into_iter().collect();
        };
        assert_eq!(handle(share(full, None), claimed).as_deref(), Some("group#acc#share#pv#claims"));
        assert_eq!(handle(share(full, None), |_| {}), None, "its Secret is nowhere");
    }

    #[test]
    fn other_types_are_what_they_say() {
        type Source = PersistentVolumeSource;
        let cinder = Cinder { volume_id: "c".into(), ..Cinder::default() };
        assert_eq!(
            handle(Source { cinder: Some(Box::new(cinder)), ..Source::default() }, |_| {}).unwrap(),
            "c"
        );
        let vsphere_volume = Some(Box::new(VsphereVolume { volume_path: "v".into(), ..Default::default() }));
        assert_eq!(handle(Source { vsphere_volume, ..Source::default() }, |_| {}).unwrap(), "v");
        let portworx_volume = Some(Box::new(PortworxVolume { volume_id: "p".into(), ..Default::default() }));
        assert_eq!(handle(Source { portworx_volume, ..Source::default() }, |_| {}).unwrap(), "p");
        let csi = Some(Box::new(CsiPersistent::default()));
        assert_eq!(handle(Source { csi, ..Source::default() }, |_| {}).unwrap(), "none", "it is CSI already");
    }

    #[test]
    fn volumes_of_pods_know_no_zone_and_are_named_by_the_pod() {
        let of = |source: &InlineSource| of_inline(source, "vol", "ns").unwrap();
        let disk = GcePersistentDisk { pd_name: "pd".into(), ..GcePersistentDisk::default() };
        let gce = InlineSource { gce_persistent_disk: Some(Box::new(disk)), ..InlineSource::default() };
        assert_eq!(of(&gce).unwrap(), "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd");
        let share = AzureFile { secret_name: "s".into(), share_name: "share".into(), ..AzureFile::default() };
        let azure = InlineSource { azure_file: Some(Box::new(share)), ..InlineSource::default() };
        assert_eq!(of(&azure).unwrap(), "#s#share#vol#ns");
        assert_eq!(of(&InlineSource::default()), None);
        let disk = AwsElasticBlockStore { volume_id: "aws://".into(), ..AwsElasticBlockStore::default() };
        let wrong = InlineSource { aws_elastic_block_store: Some(Box::new(disk)), ..InlineSource::default() };
        assert!(of_inline(&wrong, "vol", "ns").is_err());
    }
}
