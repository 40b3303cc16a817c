//! Storage: what makes claims, and what keeps claims, volumes and their classes as long as they are used.

pub mod claims;
pub mod ephemeral_volume;
pub mod persistentvolume_protection;
pub mod persistentvolumeclaim_protection;
pub mod volumeattributesclass_protection;
