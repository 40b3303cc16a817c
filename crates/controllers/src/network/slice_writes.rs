//! In which order the slices of one object are written. Pure.
//!
//! An address that goes from one slice to another must never be in neither. So a slice that loses it is rewritten, or deleted,
//! after those that take it over, and only if they did: such writes are a chain. All others have nothing to do with each
//! other: one that is refused, for its family or for an address in it, is in nobody's way.

use std::borrow::Cow;
use std::collections::BTreeMap;

use coxswain_machinery::model::plan::{Chain, Verb};
use coxswain_machinery::model::slices::HeldSlice;
use coxswain_machinery::model::{Step, Write};
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::{Str, WireError};

/// The writes of one object's slices.
#[derive(Default)]
pub(super) struct SliceWrites<'a>(Vec<SliceWrite<'a>>);

struct SliceWrite<'a> {
    write: Write,
    /// The slice as it is, if it is there.
    held: Option<&'a HeldSlice>,
    /// The addresses that it will have.
    addresses: Vec<Str>,
}

impl<'a> SliceWrites<'a> {
    /// A write of a slice, which is there or not, and will have these addresses.
    pub(super) fn push(
        &mut self,
        write: Write,
        held: Option<&'a HeldSlice>,
        addresses: impl Iterator<Item = Str>,
    ) {
        self.0.push(SliceWrite { write, held, addresses: addresses.collect() });
    }

    /// The step that performs them: creates first, deletes last.
    ///
    /// # Errors
    /// The kept bytes of a slice are malformed.
    pub(super) fn into_step(mut self) -> Result<Option<Step>, WireError> {
        self.0.sort_by_key(|each| match each.write.verb {
            Verb::Create(_) => 0,
            Verb::Delete { .. } => 2,
            _ => 1,
        });
        let (firsts, count) = (self.firsts()?, self.0.len());
        let mut chains: BTreeMap<usize, Chain> = BTreeMap::new();
        for (each, first) in self.0.into_iter().zip(firsts) {
            chains.entry(first).or_default().push(each.write);
        }
        let chains: Vec<Chain> = chains.into_values().collect();
        Ok(match chains.len() {
            0 => None,
            independent if independent == count => Some(Step::Each(chains.into_iter().flatten().collect())),
            _ => Some(Step::Chains { chains, slow_start: false }),
        })
    }

    /// For each write the first one of its chain.
    fn firsts(&self) -> Result<Vec<usize>, WireError> {
        let mut firsts: Vec<usize> = (0..self.0.len()).collect();
        if firsts.len() < 2 {
            return Ok(firsts);
        }
        let changes = self.0.iter().map(SliceWrite::change).collect::<Result<Vec<_>, _>>()?;
        let mut takers: HashMap<&str, Vec<usize>> = HashMap::default();
        for (at, change) in changes.iter().enumerate() {
            for address in &change.added {
                takers.entry(address).or_default().push(at);
            }
        }
        for (at, change) in changes.iter().enumerate() {
            for taker in change.removed.iter().filter_map(|address| takers.get(&**address)).flatten() {
                let (one, other) = (firsts[at], firsts[*taker]);
                if one != other {
                    let (from, to) = (one.max(other), one.min(other));
                    firsts.iter_mut().filter(|first| **first == from).for_each(|first| *first = to);
                }
            }
        }
        Ok(firsts)
    }
}

/// Which addresses a write brings into its slice, and which it takes out.
struct Change<'a> {
    added: HashSet<Cow<'a, str>>,
    removed: HashSet<Cow<'a, str>>,
}

impl SliceWrite<'_> {
    fn change(&self) -> Result<Change<'_>, WireError> {
        let mut added: HashSet<Cow<'_, str>> =
            self.addresses.iter().map(|address| Cow::Borrowed(address.as_str())).collect();
        let mut removed = HashSet::default();
        for seen in self.held.into_iter().flat_map(HeldSlice::seen) {
            removed.extend(seen?.addresses);
        }
        let both: Vec<Cow<'_, str>> = added.intersection(&removed).cloned().collect();
        for address in both {
            added.remove(&address);
            removed.remove(&address);
        }
        Ok(Change { added, removed })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use coxswain_machinery::api::discovery::{ENDPOINTS, Endpoint, EndpointSlice};
    use coxswain_machinery::api::kinds::ENDPOINT_SLICES;
    use coxswain_machinery::api::meta::ObjectMeta;
    use coxswain_machinery::informer::downcast;
    use coxswain_machinery::model::Key;
    use coxswain_machinery::model::slices::HeldSlice;
    use coxswain_machinery::wire::Message;
    use coxswain_machinery::wire::splice::put_bytes;

    fn slice(name: &str, addresses: &[&str]) -> HeldSlice {
        let metadata = ObjectMeta { name: name.into(), ..ObjectMeta::default() };
        let mut bytes = EndpointSlice { metadata, ..EndpointSlice::default() }.to_bytes();
        for address in addresses {
            let endpoint = Endpoint { addresses: vec![(*address).into()], ..Endpoint::default() };
            put_bytes(&mut bytes, ENDPOINTS, &endpoint.to_bytes());
        }
        let object = (ENDPOINT_SLICES.decode)(&bytes.into()).unwrap();
        let slice: Arc<EndpointSlice> = downcast(object).unwrap();
        HeldSlice::read(slice).unwrap()
    }

    /// The chains of these writes: of slices by name, with what they hold and what they will; nothing before is a create,
    /// nothing after a delete.
    fn chains(slices: &[(&str, &[&str], &[&str])]) -> Vec<Vec<String>> {
        let held: Vec<Option<HeldSlice>> = slices
            .iter()
            .map(|(name, before, _)| (!before.is_empty()).then(|| slice(name, before)))
            .collect();
        let mut writes = SliceWrites::default();
        for ((name, _, after), held) in slices.iter().zip(&held) {
            let verb = match (held, after.is_empty()) {
                (None, _) => Verb::Create(bytes::Bytes::new()),
                (_, true) => Verb::delete("uid".into()),
                _ => Verb::Update(bytes::Bytes::new()),
            };
            let write = Write::new(&ENDPOINT_SLICES, Key::new("default", *name), verb);
            writes.push(write, held.as_ref(), after.iter().map(|address| (*address).into()));
        }
        let name = |write: &Write| write.key.name.to_string();
        match writes.into_step().unwrap() {
            None => Vec::new(),
            Some(Step::Each(writes)) => writes.iter().map(|write| vec![name(write)]).collect(),
            Some(Step::Chains { chains, slow_start: false }) => {
                chains.iter().map(|chain| chain.iter().map(name).collect()).collect()
            }
            Some(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_those_wait_for_each_other_between_which_an_address_goes() {
        let none: Vec<Vec<String>> = Vec::new();
        assert_eq!(chains(&[]), none);
        // Deletes are last, creates first; nobody waits.
        assert_eq!(
            chains(&[("gone", &["a"], &[]), ("other", &["b", "c"], &["b"]), ("new", &[], &["d"])]),
            [["new"], ["other"], ["gone"]]
        );
        // One goes from a slice that is deleted, one from one that is rewritten, to the new slice.
        assert_eq!(
            chains(&[
                ("gone", &["a"], &[]),
                ("fewer", &["b", "c"], &["b"]),
                ("alone", &["d", "e"], &["d"]),
                ("new", &[], &["a", "c", "f"]),
            ]),
            [vec!["new", "fewer", "gone"], vec!["alone"]]
        );
        // What stays where it is goes nowhere, though another slice gets it too.
        assert_eq!(chains(&[("same", &["a"], &["a", "b"]), ("new", &[], &["a"])]), [["new"], ["same"]]);
        // One leads to the next.
        assert_eq!(
            chains(&[
                ("one", &["a", "z"], &["b", "z"]),
                ("two", &["b", "z"], &["c", "z"]),
                ("three", &["c", "z"], &["z", "y"]),
            ]),
            [["one", "two", "three"]]
        );
    }
}
