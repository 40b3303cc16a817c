//! The pure vocabulary that all controllers share: keys, plans, owners, selectors, conditions, the clock.
//!
//! Nothing here does I/O or awaits; everything can be tested with tables.

pub mod addresses;
pub mod backoff;
pub mod bucket;
pub mod clock;
pub mod conditions;
pub mod finalizers;
pub mod fitting;
pub mod hash;
pub mod indexes;
pub mod key;
pub mod live_reads;
pub mod metadata;
pub mod names;
pub mod owners;
pub mod plan;
pub mod pods;
pub mod quantity;
pub mod revisions;
pub mod scaled;
pub mod selector;
pub mod selects;
pub mod slices;
pub mod subsets;
pub mod template;
pub mod words;

pub use key::Key;
pub use plan::{Failure, Patch, Plan, Step, Write};
