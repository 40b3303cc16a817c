//! Types of volumes that once were part of Kubernetes and are CSI drivers' today (KEP-625): which they are, and what their old
//! names mean. All seven are migrated on every node. See "CSI volume migration" in the Kubernetes documentation.

use coxswain_machinery::api::volumes::{InlineSource, PersistentVolumeSource};

/// A type of volumes that a CSI driver has taken over.
#[derive(Debug, PartialEq, Eq)]
pub struct InTree {
    /// The name of the plugin that it was: of provisioners in classes, and in annotations.
    pub plugin: &'static str,
    /// The name of the CSI driver that it is.
    pub driver: &'static str,
}

macro_rules! in_tree {
    ($($name:ident = $plugin:literal is $driver:literal;)*) => {
        $(pub(super) static $name: InTree = InTree { plugin: $plugin, driver: $driver };)*

        /// All of them.
        pub static ALL: [&InTree; 7] = [$(&$name),*];
    };
}

in_tree! {
    AWS = "kubernetes.io/aws-ebs" is "ebs.csi.aws.com";
    AZURE_DISK = "kubernetes.io/azure-disk" is "disk.csi.azure.com";
    AZURE_FILE = "kubernetes.io/azure-file" is "file.csi.azure.com";
    CINDER = "kubernetes.io/cinder" is "cinder.csi.openstack.org";
    GCE = "kubernetes.io/gce-pd" is "pd.csi.storage.gke.io";
    PORTWORX = "kubernetes.io/portworx-volume" is "pxd.portworx.com";
    VSPHERE = "kubernetes.io/vsphere-volume" is "csi.vsphere.vmware.com";
}

/// The type that had a plugin of this name.
pub fn of_plugin(name: &str) -> Option<&'static InTree> {
    ALL.into_iter().find(|each| each.plugin == name)
}

/// Which of the types a source is; the sources of PersistentVolumes and of pods' volumes have the same names.
macro_rules! held {
    ($source:ident) => {{
        let held = [
            ($source.aws_elastic_block_store.is_some(), &AWS),
            ($source.azure_disk.is_some(), &AZURE_DISK),
            ($source.azure_file.is_some(), &AZURE_FILE),
            ($source.cinder.is_some(), &CINDER),
            ($source.gce_persistent_disk.is_some(), &GCE),
            ($source.portworx_volume.is_some(), &PORTWORX),
            ($source.vsphere_volume.is_some(), &VSPHERE),
        ];
        held.into_iter().find_map(|(is_there, of)| is_there.then_some(of))
    }};
}

/// The type of a PersistentVolume with this source; `None` if it is none of these.
pub fn of_volume(source: &PersistentVolumeSource) -> Option<&'static InTree> {
    held!(source)
}

/// The type of a pod's volume with this source; `None` if it is none of these.
pub fn of_inline(source: &InlineSource) -> Option<&'static InTree> {
    held!(source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coxswain_machinery::api::volumes::{
        AwsElasticBlockStore, AzureDisk, AzureFilePersistent, Cinder, CsiPersistent, GcePersistentDisk,
        PortworxVolume, VsphereVolume,
    };

    #[test]
    fn seven_types_are_migrated_and_no_others() {
        type Source = PersistentVolumeSource;
        let none = Source::default;
        let table = [
            (
                Source { aws_elastic_block_store: Some(Box::new(AwsElasticBlockStore::default())), ..none() },
                "kubernetes.io/aws-ebs",
                "ebs.csi.aws.com",
            ),
            (
                Source { gce_persistent_disk: Some(Box::new(GcePersistentDisk::default())), ..none() },
                "kubernetes.io/gce-pd",
                "pd.csi.storage.gke.io",
            ),
            (
                Source { azure_disk: Some(Box::new(AzureDisk::default())), ..none() },
                "kubernetes.io/azure-disk",
                "disk.csi.azure.com",
            ),
            (
                Source { azure_file: Some(Box::new(AzureFilePersistent::default())), ..none() },
                "kubernetes.io/azure-file",
                "file.csi.azure.com",
            ),
            (
                Source { cinder: Some(Box::new(Cinder::default())), ..none() },
                "kubernetes.io/cinder",
                "cinder.csi.openstack.org",
            ),
            (
                Source { vsphere_volume: Some(Box::new(VsphereVolume::default())), ..none() },
                "kubernetes.io/vsphere-volume",
                "csi.vsphere.vmware.com",
            ),
            (
                Source { portworx_volume: Some(Box::new(PortworxVolume::default())), ..none() },
                "kubernetes.io/portworx-volume",
                "pxd.portworx.com",
            ),
        ];
        assert_eq!(table.len(), ALL.len());
        for (source, plugin, driver) in table {
            let found = of_volume(&source).unwrap();
            assert_eq!((found.plugin, found.driver), (plugin, driver));
            assert_eq!(of_plugin(plugin), Some(found));
        }
        assert_eq!(of_volume(&none()), None);
        assert_eq!(of_volume(&Source { csi: Some(Box::new(CsiPersistent::default())), ..none() }), None);
        assert_eq!(of_plugin("kubernetes.io/host-path"), None);
    }
}
