//! Sizes of bounded memories: caches in which new entries replace the least recently used ones, and tables that are swept above a size.
//!
//! Such a memory grows with the names that it has seen until it reaches its size, which takes up to thousands of names. A test that measures
//! growth sets a smaller size for all memories, so that they are full after a few names.

#[cfg(any(test, feature = "testing"))]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(any(test, feature = "testing"))]
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Sets the maximum size, at least 1, of all bounded memories of the process.
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
