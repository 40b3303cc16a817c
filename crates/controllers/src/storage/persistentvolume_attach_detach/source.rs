//! What is attached: a volume of a CSI driver, of a type that a driver has taken over, or a disk by iSCSI or Fibre Channel. Its
//! unique name, on how many nodes it may be, and the name of its VolumeAttachment. Decides nothing.

use bytes::Bytes;

use super::inline;
use crate::storage::names::{self, NamedVolume, Sort};
use crate::storage::{handles, migration};
use coxswain_machinery::api::storage::{CsiDriver, PersistentVolume};
use coxswain_machinery::api::volumes::InlineSource;
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;
use coxswain_machinery::wire::text::raw_bytes;

pub(super) const CSI: &str = "kubernetes.io/csi";
const DISKS: [&str; 2] = ["kubernetes.io/iscsi", "kubernetes.io/fc"];
const GCE: &str = "kubernetes.io/gce-pd";

/// A volume that can be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// Its unique name.
    pub(super) unique: Str,
    /// How messages call it: a PersistentVolume by its name.
    pub(super) name: Str,
    pub(super) means: Means,
    pub(super) reference: Reference,
    /// Whether it may be attached to several nodes.
    pub(super) is_shared: bool,
    /// Whether its type was migrated to CSI.
    pub(super) is_migrated: bool,
}

/// By whom it is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// By the attacher of a CSI driver, asked by a VolumeAttachment.
    Driver { driver: Str, handle: Str },
    /// By the node itself: nobody is asked.
    Node,
}

/// What a VolumeAttachment says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// It is a PersistentVolume.
    Volume,
    /// It is a pod's, described in full by this encoded spec.
    Inline(Bytes),
    /// Nothing but its unique name is known.
    Unknown,
}

impl Source {
    /// A PersistentVolume; `None` if nobody here can attach it.
    pub(super) fn of_volume(volume: &PersistentVolume) -> Option<Self> {
        let named = names::of_volume(volume).ok()??;
        let of = migration::of_volume(&volume.spec.persistent_volume_source);
        let modes = &volume.spec.access_modes;
        let is_shared = match of {
            // Of all modes only this one is left alone by the translation.
            Some(of) if of.plugin == GCE => {
                modes.iter().all(|mode| *mode == "ReadOnlyMany") && !modes.is_empty()
            }
            _ => {
                modes.is_empty()
                    || modes.iter().any(|mode| *mode == "ReadWriteMany" || *mode == "ReadOnlyMany")
            }
        };
        let means = means(&named)?;
        Some(Self {
            unique: named.unique.into(),
            name: volume.metadata.name.clone(),
            means,
            reference: Reference::Volume,
            is_shared,
            is_migrated: of.is_some(),
        })
    }

    /// A pod's own volume, of this name, of a pod in that namespace; `None` if nobody here can attach it.
    pub(super) fn of_inline(source: &InlineSource, volume: &str, namespace: &str) -> Option<Self> {
        let named = names::of_inline(source, volume, namespace).ok()??;
        let means = means(&named)?;
        let is_migrated = migration::of_inline(source).is_some();
        let (name, reference, is_shared) = if is_migrated {
            let handle = handles::of_inline(source, volume, namespace).ok()??;
            let described = inline::describe(source, &handle, namespace)?;
            (described.name, Reference::Inline(described.spec), described.is_shared)
        } else {
            (Str::from(volume), Reference::Unknown, true)
        };
        Some(Self { unique: named.unique.into(), name, means, reference, is_shared, is_migrated })
    }

    /// A volume of which nothing but its unique name is known; `None` if that names nothing that can be attached here.
    pub(super) fn of_name(unique: &Str) -> Option<Self> {
        let (vendor, rest) = unique.split_once('/')?;
        let (plugin, name) = rest.split_once('/')?;
        let plugin = format!("{vendor}/{plugin}");
        let means = if plugin == CSI {
            let (driver, handle) = name.split_once('^').filter(|(_, handle)| !handle.contains('^'))?;
            Means::Driver { driver: driver.into(), handle: handle.into() }
        } else if DISKS.contains(&plugin.as_str()) {
            Means::Node
        } else {
            return None;
        };
        Some(Self {
            unique: unique.clone(),
            name: unique.clone(),
            means,
            reference: Reference::Unknown,
            is_shared: true,
            is_migrated: false,
        })
    }

    /// Whether more than its unique name is known.
    pub(super) fn is_known(&self) -> bool {
        self.name != self.unique
    }

    /// Whether it has to be attached at all: a CSI driver may say that its volumes need not be.
    pub(super) fn is_attachable(&self, drivers: &Lister<CsiDriver>) -> bool {
        match &self.means {
            Means::Node => true,
            Means::Driver { driver, .. } => {
                let found = drivers.get(&Key::new("", driver.clone()));
                found.is_none_or(|found| found.spec.attach_required != Some(false))
            }
        }
    }

    /// The name of its VolumeAttachment on a node, if it needs one. External attachers and kubelets make the same one.
    pub(super) fn attachment(&self, node: &str) -> Option<Str> {
        let Means::Driver { driver, handle } = &self.means else { return None };
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        for part in [handle.as_str(), driver.as_str(), node] {
            context.update(&raw_bytes(part));
        }
        let digest = context.finish();
        let hex: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Some(format!("csi-{}", hex.concat()).into())
    }

    /// How metrics call whoever attaches it.
    pub(super) fn plugin(&self) -> String {
        match &self.means {
            Means::Driver { driver, .. } if self.is_known() => format!("{CSI}:{driver}"),
            Means::Driver { .. } => CSI.to_owned(),
            Means::Node => DISKS
                .into_iter()
                .find(|plugin| self.unique.starts_with(plugin))
                .unwrap_or_default()
                .to_owned(),
        }
    }
}

fn means(named: &NamedVolume) -> Option<Means> {
    match &named.sort {
        Sort::Csi(driver) => {
            let (_, handle) = named.unique.split_once('^')?;
            Some(Means::Driver { driver: driver.clone(), handle: handle.into() })
        }
        Sort::Disk => Some(Means::Node),
        Sort::Other => None,
    }
}
