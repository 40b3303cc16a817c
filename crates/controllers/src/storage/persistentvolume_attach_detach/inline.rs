//! A pod's own volume of a type that was migrated, as its CSI driver is told of it: a PersistentVolumeSpec that only its
//! VolumeAttachment has. Pure.

use bytes::Bytes;

use crate::storage::migration;
use coxswain_machinery::api::storage::PersistentVolumeSpec;
use coxswain_machinery::api::volumes::{
    CsiPersistent, InlineSource, PersistentVolumeSource, SecretReference,
};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Message as _, Str, path};

/// Such a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    /// How messages call it.
    pub(super) name: Str,
    /// The encoded spec.
    pub(super) spec: Bytes,
    /// Whether it may be attached to several nodes.
    pub(super) is_shared: bool,
}

/// What differs between types.
#[derive(Default)]
struct Details<'a> {
    name: String,
    mode: &'static str,
    is_read_only: bool,
    fs_type: &'a str,
    attributes: Vec<(&'static str, String)>,
    secret: Option<SecretReference>,
}

const ONE: &str = "ReadWriteOnce";
const MANY: &str = "ReadWriteMany";
const READERS: &str = "ReadOnlyMany";

/// The volume with this handle, of a pod in that namespace; `None` if its type was not migrated, or its spec cannot be made.
pub(super) fn describe(source: &InlineSource, handle: &str, namespace: &str) -> Option<Described> {
    let driver = migration::of_inline(source)?.driver;
    let details = details(source, driver, handle, namespace)?;
    let plain = PersistentVolumeSpec {
        persistent_volume_source: PersistentVolumeSource {
            csi: Some(Box::new(CsiPersistent { driver: driver.into(), volume_handle: handle.into() })),
            ..PersistentVolumeSource::default()
        },
        access_modes: vec![details.mode.into()],
        volume_mode: Some("Filesystem".into()),
        ..PersistentVolumeSpec::default()
    };
    let mut edits = Vec::new();
    if details.is_read_only {
        edits.push(Edit::SetVarint(path!(PersistentVolumeSpec, persistentVolumeSource.csi.readOnly), 1));
    }
    if !details.fs_type.is_empty() {
        let at = path!(PersistentVolumeSpec, persistentVolumeSource.csi.fsType);
        edits.push(Edit::set_text(at, details.fs_type));
    }
    for (name, value) in details.attributes {
        let at = path!(PersistentVolumeSpec, persistentVolumeSource.csi.volumeAttributes);
        edits.push(Edit::MapSet(at, name.to_owned(), value));
    }
    if let Some(secret) = details.secret {
        let at = path!(PersistentVolumeSpec, persistentVolumeSource.csi.nodeStageSecretRef);
        edits.push(Edit::SetBytes(at, secret.to_bytes()));
    }
    let spec = edit(&plain.to_bytes(), &edits).ok()?;
    Some(Described { name: details.name.into(), spec: spec.into(), is_shared: details.mode != ONE })
}

fn details<'a>(source: &'a InlineSource, driver: &str, handle: &str, namespace: &str) -> Option<Details<'a>> {
    let mode = |is_read_only| if is_read_only { READERS } else { ONE };
    let plain = |name: &str| format!("{driver}-{name}");
    if let Some(disk) = &source.aws_elastic_block_store {
        return Some(Details {
            name: plain(handle),
            mode: ONE,
            is_read_only: disk.read_only,
            fs_type: &disk.fs_type,
            attributes: vec![("partition", disk.partition.to_string())],
            secret: None,
        });
    }
    if let Some(disk) = &source.gce_persistent_disk {
        let partition = if disk.partition == 0 { String::new() } else { disk.partition.to_string() };
        return Some(Details {
            name: plain(&disk.pd_name),
            mode: mode(disk.read_only),
            is_read_only: disk.read_only,
            fs_type: &disk.fs_type,
            attributes: vec![("partition", partition)],
            secret: None,
        });
    }
    if let Some(disk) = &source.azure_disk {
        let text = |value: &Option<Str>| value.as_ref().filter(|value| !value.is_empty()).map(Str::to_string);
        let caching = text(&disk.caching_mode).map(|value| ("cachingmode", value));
        let of_type = text(&disk.fs_type).map(|value| ("fstype", value));
        return Some(Details {
            name: disk.disk_uri.to_string(),
            mode: ONE,
            is_read_only: disk.read_only == Some(true),
            fs_type: disk.fs_type.as_deref().unwrap_or_default(),
            attributes: [("kind", "Managed".to_owned())].into_iter().chain(caching).chain(of_type).collect(),
            secret: None,
        });
    }
    if let Some(share) = &source.azure_file {
        return Some(Details {
            name: handle.to_owned(),
            mode: MANY,
            is_read_only: share.read_only,
            fs_type: "",
            attributes: vec![("sharename", share.share_name.to_string())],
            secret: Some(SecretReference { name: share.secret_name.clone(), namespace: namespace.into() }),
        });
    }
    if let Some(disk) = &source.cinder {
        let name = plain(&disk.volume_id);
        return Some(Details {
            name,
            mode: ONE,
            is_read_only: disk.read_only,
            fs_type: &disk.fs_type,
            ..Details::default()
        });
    }
    if let Some(disk) = &source.vsphere_volume {
        // The original crashes here where a policy is named.
        // Differs: vsphere-policies.
        let policy = Some(&disk.storage_policy_name).filter(|policy| !policy.is_empty());
        return Some(Details {
            name: plain(&disk.volume_path),
            mode: ONE,
            fs_type: &disk.fs_type,
            attributes: policy.map(|policy| ("storagepolicyname", policy.to_string())).into_iter().collect(),
            ..Details::default()
        });
    }
    let volume = source.portworx_volume.as_ref()?;
    Some(Details {
        name: plain(&volume.volume_id),
        mode: mode(volume.read_only),
        fs_type: &volume.fs_type,
        ..Details::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use coxswain_machinery::api::volumes::{
        AwsElasticBlockStore, AzureDisk, AzureFile, Cinder, GcePersistentDisk, PortworxVolume, VsphereVolume,
    };
    use coxswain_machinery::wire::splice::get;
    use coxswain_machinery::wire::{Reader, Value};

    /// Name, mode, whether it is read only, file system, attributes, and the Secret.
    fn told(source: &InlineSource) -> (String, String, bool, String, Vec<(String, String)>, String) {
        let handle = crate::storage::handles::of_inline(source, "vol", "ns").unwrap().unwrap();
        let Described { name, spec, is_shared } = describe(source, &handle, "ns").unwrap();
        let decoded = PersistentVolumeSpec::decode(&spec).unwrap();
        let mode = decoded.access_modes[0].to_string();
        assert_eq!(decoded.volume_mode.as_deref(), Some("Filesystem"));
        assert_eq!(is_shared, mode != ONE);
        let csi = decoded.persistent_volume_source.csi.unwrap();
        assert_eq!(csi.volume_handle, handle);
        assert_eq!(csi.driver, migration::of_inline(source).unwrap().driver);
        let at = |path| get(&spec, path).unwrap();
        let read_only = at(path!(PersistentVolumeSpec, persistentVolumeSource.csi.readOnly));
        let fs_type = at(path!(PersistentVolumeSpec, persistentVolumeSource.csi.fsType));
        let text = |value: Option<Value<'_>>| {
            value.map_or_else(String::new, |value| value.text().unwrap().into_owned())
        };
        let secret = at(path!(PersistentVolumeSpec, persistentVolumeSource.csi.nodeStageSecretRef));
        let secret =
            secret.map(|value| SecretReference::decode(&Bytes::copy_from_slice(value.bytes().unwrap())));
        let secret = secret.map(|secret| secret.unwrap());
        let secret = secret.map(|secret| format!("{}/{}", secret.namespace, secret.name)).unwrap_or_default();
        (name.to_string(), mode, read_only.is_some(), text(fs_type), attributes(&spec), secret)
    }

    fn attributes(spec: &[u8]) -> Vec<(String, String)> {
        let csi = get(spec, path!(PersistentVolumeSpec, persistentVolumeSource.csi)).unwrap().unwrap();
        let number = path!(CsiPersistent, volumeAttributes)[0];
        let mut fields = Reader::new(csi.bytes().unwrap());
        let mut found = Vec::new();
        while let Some((field, value)) = fields.next_field().unwrap() {
            if field != number {
                continue;
            }
            let mut entry = Reader::new(value.bytes().unwrap());
            let (mut key, mut content) = (String::new(), String::new());
            while let Some((number, value)) = entry.next_field().unwrap() {
                *(if number == 1 { &mut key } else { &mut content }) = value.text().unwrap().into_owned();
            }
            found.push((key, content));
        }
        found
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_type_is_told_to_its_driver() {
        let none = InlineSource::default;
        let aws =
            AwsElasticBlockStore { volume_id: "vol-1".into(), fs_type: "ext4".into(), ..Default::default() };
        let gce =
            GcePersistentDisk { pd_name: "pd".into(), partition: 2, read_only: true, ..Default::default() };
        let azure = AzureDisk {
            disk_uri: "/d".into(),
            kind: Some("Managed".into()),
            caching_mode: Some("None".into()),
            fs_type: Some("xfs".into()),
            read_only: Some(true),
            ..Default::default()
        };
        let share = AzureFile { secret_name: "s".into(), share_name: "share".into(), read_only: false };
        let cinder = Cinder { volume_id: "c".into(), fs_type: "ext4".into(), read_only: true };
        let vsphere = VsphereVolume {
            volume_path: "[ds] v".into(),
            storage_policy_name: "gold".into(),
            ..Default::default()
        };
        let portworx = PortworxVolume { volume_id: "p".into(), read_only: true, ..Default::default() };
        let table = [
            (
                InlineSource { aws_elastic_block_store: Some(Box::new(aws)), ..none() },
                ("ebs.csi.aws.com-vol-1", ONE, false, "ext4", pairs(&[("partition", "0")]), ""),
            ),
            (
                InlineSource { gce_persistent_disk: Some(Box::new(gce)), ..none() },
                ("pd.csi.storage.gke.io-pd", READERS, true, "", pairs(&[("partition", "2")]), ""),
            ),
            (
                InlineSource { azure_disk: Some(Box::new(azure)), ..none() },
                (
                    "/d",
                    ONE,
                    true,
                    "xfs",
                    pairs(&[("kind", "Managed"), ("cachingmode", "None"), ("fstype", "xfs")]),
                    "",
                ),
            ),
            (
                InlineSource { azure_file: Some(Box::new(share)), ..none() },
                ("#s#share#vol#ns", MANY, false, "", pairs(&[("sharename", "share")]), "ns/s"),
            ),
            (
                InlineSource { cinder: Some(Box::new(cinder)), ..none() },
                ("cinder.csi.openstack.org-c", ONE, true, "ext4", pairs(&[]), ""),
            ),
            (
                InlineSource { vsphere_volume: Some(Box::new(vsphere)), ..none() },
                (
                    "csi.vsphere.vmware.com-[ds] v",
                    ONE,
                    false,
                    "",
                    pairs(&[("storagepolicyname", "gold")]),
                    "",
                ),
            ),
            (
                InlineSource { portworx_volume: Some(Box::new(portworx)), ..none() },
                ("pxd.portworx.com-p", READERS, false, "", pairs(&[]), ""),
            ),
        ];
        for (source, (name, mode, is_read_only, fs_type, mut attributes, secret)) in table {
            let mut found = told(&source);
            found.4.sort();
            attributes.sort();
            let expected = (
                name.to_owned(),
                mode.to_owned(),
                is_read_only,
                fs_type.to_owned(),
                attributes,
                secret.to_owned(),
            );
            assert_eq!(found, expected);
        }
        assert_eq!(describe(&none(), "h", "ns"), None);
    }

    #[test]
    fn a_whole_disk_of_google_has_an_empty_partition() {
        let disk = GcePersistentDisk { pd_name: "pd".into(), ..Default::default() };
        let source = InlineSource { gce_persistent_disk: Some(Box::new(disk)), ..InlineSource::default() };
        assert_eq!(told(&source).4, pairs(&[("partition", "")]));
    }
}
