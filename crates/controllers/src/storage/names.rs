//! The unique names of volumes, `PLUGIN/NAME`. Kubelets make the same ones, to the byte, and compare.

use super::handles::{self, HandleError};
use super::migration;
use coxswain_machinery::api::storage::PersistentVolume;
use coxswain_machinery::api::volumes::{FibreChannel, HostPath, InlineSource, Iscsi, Nfs};
use coxswain_machinery::wire::Str;

const CSI: &str = "kubernetes.io/csi";

/// A volume of a source that the original has a plugin for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedVolume {
    /// Its unique name.
    pub unique: String,
    /// What sort of volume it is.
    pub sort: Sort,
}

/// What sort of volume it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A volume of this CSI driver, which may be of a type that was migrated.
    Csi(Str),
    /// A disk by iSCSI or Fibre Channel.
    Disk,
    /// Any other.
    Other,
}

/// A PersistentVolume by its unique name; `None` if there is no plugin for its source.
///
/// # Errors
/// It has no name.
pub fn of_volume(volume: &PersistentVolume) -> Result<Option<NamedVolume>, HandleError> {
    let source = &volume.spec.persistent_volume_source;
    if let Some(csi) = &source.csi {
        return Ok(Some(of_driver(&csi.driver, &csi.volume_handle)));
    }
    if let (Some(of), Some(handle)) = (migration::of_volume(source), handles::of_volume(volume)?) {
        return Ok(Some(of_driver(of.driver, &handle)));
    }
    if let Some(flex) = &source.flex_volume {
        return Ok(Some(other(&flex.driver, &volume.metadata.name)));
    }
    plain(source.host_path.as_deref(), source.nfs.as_deref(), source.iscsi.as_deref(), source.fc.as_deref())
}

/// A pod's volume by its unique name: the volume of that name, of a pod in that namespace. `None` if there is no plugin for its source.
///
/// # Errors
/// It has no name, as a volume that a CSI driver makes for a pod alone.
pub fn of_inline(
    source: &InlineSource,
    volume: &str,
    namespace: &str,
) -> Result<Option<NamedVolume>, HandleError> {
    if let Some(csi) = &source.csi {
        return Err(HandleError(format!("volume {volume} of {} has no unique name", csi.driver)));
    }
    let of = migration::of_inline(source);
    if let (Some(of), Some(handle)) = (of, handles::of_inline(source, volume, namespace)?) {
        return Ok(Some(of_driver(of.driver, &handle)));
    }
    if let Some(flex) = &source.flex_volume {
        return Ok(Some(other(&flex.driver, volume)));
    }
    plain(source.host_path.as_deref(), source.nfs.as_deref(), source.iscsi.as_deref(), source.fc.as_deref())
}

/// What is named alike in volumes of pods and of the cluster.
fn plain(
    host_path: Option<&HostPath>,
    nfs: Option<&Nfs>,
    iscsi: Option<&Iscsi>,
    fc: Option<&FibreChannel>,
) -> Result<Option<NamedVolume>, HandleError> {
    if let Some(HostPath { path }) = host_path {
        return Ok(Some(other("kubernetes.io/host-path", path)));
    }
    if let Some(Nfs { server, path }) = nfs {
        return Ok(Some(other("kubernetes.io/nfs", &format!("{server}/{path}"))));
    }
    if let Some(Iscsi { target_portal, iqn, lun }) = iscsi {
        let unique = format!("kubernetes.io/iscsi/{target_portal}:{iqn}:{lun}");
        return Ok(Some(NamedVolume { unique, sort: Sort::Disk }));
    }
    if let Some(fc) = fc {
        let unique = format!("kubernetes.io/fc/{}", fibre_channel(fc)?);
        return Ok(Some(NamedVolume { unique, sort: Sort::Disk }));
    }
    Ok(None)
}

fn fibre_channel(fc: &FibreChannel) -> Result<String, HandleError> {
    let list = |names: &[Str]| format!("[{}]", names.iter().map(Str::as_str).collect::<Vec<_>>().join(" "));
    match fc.lun {
        Some(lun) if !fc.target_wwns.is_empty() => Ok(format!("{}:{lun}", list(&fc.target_wwns))),
        _ if !fc.wwids.is_empty() => Ok(list(&fc.wwids)),
        _ => Err(HandleError("Fibre Channel volume has neither targetWWNs with a lun nor wwids".to_owned())),
    }
}

fn of_driver(driver: &str, handle: &str) -> NamedVolume {
    NamedVolume { unique: format!("{CSI}/{driver}^{handle}"), sort: Sort::Csi(driver.into()) }
}

fn other(plugin: &str, name: &str) -> NamedVolume {
    NamedVolume { unique: format!("{plugin}/{name}"), sort: Sort::Other }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coxswain_machinery::api::volumes::{
        AwsElasticBlockStore, CsiInline, CsiPersistent, FlexVolume, PersistentVolumeSource,
    };

    type Source = PersistentVolumeSource;

    fn named(source: Source) -> Option<NamedVolume> {
        let mut volume = PersistentVolume::default();
        volume.metadata.name = "pv".into();
        volume.spec.persistent_volume_source = source;
        of_volume(&volume).unwrap()
    }

    fn is(source: Source, unique: &str, sort: Sort) {
        assert_eq!(named(source), Some(NamedVolume { unique: unique.to_owned(), sort }));
    }

    fn fc(wwns: &[&str], lun: Option<i32>, wwids: &[&str]) -> FibreChannel {
        let all = |names: &[&str]| names.iter().map(|name| Str::from(*name)).collect();
        FibreChannel { target_wwns: all(wwns), lun, wwids: all(wwids) }
    }

    #[test]
    fn volumes_have_the_names_that_kubelets_make() {
        let csi = Some(Box::new(CsiPersistent { driver: "d".into(), volume_handle: "h^i".into() }));
        is(Source { csi, ..Source::default() }, "kubernetes.io/csi/d^h^i", Sort::Csi("d".into()));
        let disk = AwsElasticBlockStore { volume_id: "vol-1".into(), ..AwsElasticBlockStore::default() };
        is(
            Source { aws_elastic_block_store: Some(Box::new(disk)), ..Source::default() },
            "kubernetes.io/csi/ebs.csi.aws.com^vol-1",
            Sort::Csi("ebs.csi.aws.com".into()),
        );
        let host_path = Some(Box::new(HostPath { path: "/tmp/x".into() }));
        is(Source { host_path, ..Source::default() }, "kubernetes.io/host-path//tmp/x", Sort::Other);
        let nfs = Some(Box::new(Nfs { server: "s".into(), path: "/p".into() }));
        is(Source { nfs, ..Source::default() }, "kubernetes.io/nfs/s//p", Sort::Other);
        let iscsi =
            Some(Box::new(Iscsi { target_portal: "1.2.3.4:3260".into(), iqn: "iqn.a:b".into(), lun: 3 }));
        is(Source { iscsi, ..Source::default() }, "kubernetes.io/iscsi/1.2.3.4:3260:iqn.a:b:3", Sort::Disk);
        let flex_volume = Some(Box::new(FlexVolume { driver: "vendor/d".into() }));
        is(Source { flex_volume, ..Source::default() }, "vendor/d/pv", Sort::Other);
        assert_eq!(named(Source::default()), None);
    }

    #[test]
    fn fibre_channel_is_named_by_targets_or_by_itself() {
        let of = |fc| Source { fc: Some(Box::new(fc)), ..Source::default() };
        is(of(fc(&["a", "b"], Some(0), &["c"])), "kubernetes.io/fc/[a b]:0", Sort::Disk);
        is(of(fc(&["a"], None, &["c", "d"])), "kubernetes.io/fc/[c d]", Sort::Disk);
        let mut volume = PersistentVolume::default();
        for nameless in [fc(&["a"], None, &[]), fc(&[], Some(1), &[])] {
            volume.spec.persistent_volume_source = of(nameless);
            assert!(of_volume(&volume).is_err());
        }
    }

    #[test]
    fn volumes_of_pods_are_named_alike_but_for_drivers_own() {
        let iscsi = Some(Box::new(Iscsi { target_portal: "p".into(), iqn: "i".into(), lun: 0 }));
        let source = InlineSource { iscsi, ..InlineSource::default() };
        assert_eq!(of_inline(&source, "vol", "ns").unwrap().unwrap().unique, "kubernetes.io/iscsi/p:i:0");
        let flex_volume = Some(Box::new(FlexVolume { driver: "vendor/d".into() }));
        let source = InlineSource { flex_volume, ..InlineSource::default() };
        assert_eq!(of_inline(&source, "vol", "ns").unwrap().unwrap().unique, "vendor/d/vol");
        let disk = AwsElasticBlockStore { volume_id: "vol-1".into(), ..AwsElasticBlockStore::default() };
        let source =
            InlineSource { aws_elastic_block_store: Some(Box::new(disk)), ..InlineSource::default() };
        let unique = of_inline(&source, "vol", "ns").unwrap().unwrap().unique;
        assert_eq!(unique, "kubernetes.io/csi/ebs.csi.aws.com^vol-1");
        let csi = Some(Box::new(CsiInline::default()));
        assert!(of_inline(&InlineSource { csi, ..InlineSource::default() }, "vol", "ns").is_err());
    }
}
