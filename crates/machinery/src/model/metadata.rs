//! Edits that bring the labels and annotations of an encoded object to what they should be.

use crate::api::meta::PartialObjectMetadata;
use crate::wire::splice::Edit;
use crate::wire::{Labels, Path, path};

/// Where every object has its labels.
pub const LABELS: Path = path!(PartialObjectMetadata, metadata.labels);
/// Where every object has its annotations.
pub const ANNOTATIONS: Path = path!(PartialObjectMetadata, metadata.annotations);

/// Makes these labels of those.
pub fn label_edits(held: &Labels, wanted: &Labels) -> Vec<Edit> {
    map_edits(LABELS, held, wanted)
}

/// Makes these annotations of those.
pub fn annotation_edits(held: &Labels, wanted: &Labels) -> Vec<Edit> {
    map_edits(ANNOTATIONS, held, wanted)
}

/// Gives an annotation this value, or takes it away.
pub fn annotation_edit(name: &str, value: Option<String>) -> Edit {
    match value {
        Some(value) => Edit::MapSet(ANNOTATIONS, name.to_owned(), value),
        None => Edit::MapRemove(ANNOTATIONS, name.to_owned()),
    }
}

fn map_edits(path: Path, held: &Labels, wanted: &Labels) -> Vec<Edit> {
    let dropped = held.iter().filter(|(key, _)| !wanted.contains_key(key));
    let set = wanted.iter().filter(|(key, value)| held.get(key) != Some(value));
    dropped
        .map(|(key, _)| Edit::MapRemove(path, key.to_string()))
        .chain(set.map(|(key, value)| Edit::MapSet(path, key.to_string(), value.to_string())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::meta::ObjectMeta;
    use crate::wire::Message;
    use crate::wire::splice::edit;

    #[test]
    fn maps_become_what_they_should_be() {
        let maps: [&[(&str, &str)]; 4] = [&[], &[("a", "1")], &[("a", "2"), ("b", "")], &[("c", "3")]];
        let maps = maps.map(|pairs| pairs.iter().copied().collect::<Labels>());
        for held in &maps {
            for wanted in &maps {
                let metadata =
                    ObjectMeta { labels: held.clone(), annotations: wanted.clone(), ..ObjectMeta::default() };
                let object = PartialObjectMetadata { metadata };
                let mut edits = label_edits(held, wanted);
                assert_eq!(edits.is_empty(), held == wanted);
                edits.extend(annotation_edits(wanted, held));
                edits.push(annotation_edit("d", Some("4".to_owned())));
                edits.push(annotation_edit("c", None));
                let edited = edit(&object.to_bytes(), &edits).unwrap();
                let metadata = PartialObjectMetadata::decode(&edited.into()).unwrap().metadata;
                assert_eq!(metadata.labels, *wanted);
                assert_eq!(metadata.annotations, held.with("d", "4").without("c"));
            }
        }
    }
}
