//! The room's tables and properties.
