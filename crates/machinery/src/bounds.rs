//! Sizes of memories in which new entries replace the least recently used ones.
//!
//! Such a memory grows until it is full, which takes thousands of names. A test that measures growth sets a smaller size, so that all
//! are full soon.

#[cfg(any(test, feature = "testing"))]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(any(test, feature = "testing"))]
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Sets the maximum size of all such memories of the process, at least 1.
#[cfg(any(test, feature = "testing"))]
pub fn limit_memories(most: usize) {
    MOST.store(most.max(1), Ordering::Relaxed);
}

/// Returns the number of entries that a memory of this size keeps: `size`, unless a test has set a smaller maximum.
pub fn memory_size(size: usize) -> usize {
    #[cfg(any(test, feature = "testing"))]
    let size = size.min(MOST.load(Ordering::Relaxed));
    size
}
