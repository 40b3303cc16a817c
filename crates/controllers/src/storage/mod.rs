//! Storage: what makes claims and binds them to volumes, what has volumes attached to nodes and grow, and what keeps claims, volumes
//! and their classes as long as they are used.

pub mod claims;
pub mod ephemeral_volume;
pub mod handles;
pub mod metrics;
pub mod migration;
pub mod names;
pub mod persistentvolume_attach_detach;
pub mod persistentvolume_binder;
pub mod persistentvolume_expander;
pub mod persistentvolume_protection;
pub mod persistentvolumeclaim_protection;
pub mod selinux_warning;
pub mod volumeattributesclass_protection;
