//! Kinds that are known at run time alone: what discovery finds, custom resources included.
//!
//! A [`Kind`] is a static row, by which informers, client and plans name a resource. Rows made here are kept for as long
//! as the process lives, one for each resource that was ever asked for: a few hundred bytes, bounded by what
//! administrators define. Only metadata is read of their objects, without labels and annotations.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use parking_lot::Mutex;

use super::kind::{AnyObject, Kind};
use super::meta::PartialObjectMetadata;
use crate::random::{HashMap, HashSeed};
use crate::wire::{Keep, Message, WireError};

/// Group, version, kind, resource, and whether it is namespaced.
type Coordinates = (&'static str, &'static str, &'static str, &'static str, bool);

static ROWS: LazyLock<Mutex<HashMap<Coordinates, &'static Kind>>> =
    LazyLock::new(|| Mutex::new(HashMap::with_hasher(HashSeed::of_process())));

/// The row of a resource, of which metadata is to be read alone; the same one whenever it is asked for.
pub fn kind(group: &str, version: &str, kind: &str, resource: &str, namespaced: bool) -> &'static Kind {
    let mut rows = ROWS.lock();
    if let Some(row) = rows.get(&(group, version, kind, resource, namespaced)) {
        return row;
    }
    let row: &'static Kind = Box::leak(Box::new(Kind {
        group: keep(group),
        version: keep(version),
        kind: keep(kind),
        resource: keep(resource),
        namespaced,
        metadata_only: true,
        decode: decode_metadata,
    }));
    rows.insert((row.group, row.version, row.kind, row.resource, namespaced), row);
    row
}

fn keep(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// Who reads the metadata of whatever there is reads names, owners and finalizers. Annotations above all can be large: many
/// hold the whole object once more.
fn decode_metadata(bytes: &Bytes) -> Result<AnyObject, WireError> {
    Ok(Arc::new(PartialObjectMetadata::decode_with(bytes, Keep::BARE)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_has_one_row() {
        let row = kind("dynamic.test", "v1", "Foo", "foos", true);
        assert!(std::ptr::eq(row, kind(&String::from("dynamic.test"), "v1", "Foo", "foos", true)));
        assert_eq!(
            (row.api_version().as_str(), row.resource, row.namespaced),
            ("dynamic.test/v1", "foos", true)
        );
        // A definition that is deleted and made anew may change the scope.
        let other = kind("dynamic.test", "v1", "Foo", "foos", false);
        assert!(!std::ptr::eq(row, other) && !other.namespaced);
        assert_ne!(row, kind("dynamic.test", "v2", "Foo", "foos", true));
    }
}
