//! How ready endpoints are allotted to zones, so that each has about its part of them (KEP-2433).
//!
//! An account of each zone: what it needs, and what it has. Every endpoint is entered for some zone, then zones that have too
//! many give to those that have too few. It knows numbers and names of zones; which endpoints change hands is decided
//! elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::iter::successors;
use std::vec::IntoIter;

use super::super::topology::{Capacity, Need};
use coxswain_machinery::wire::Str;

/// An endpoint moves if one zone has at least this too much and the other lacks at least this: both are nearer to
/// their parts then, or as near.
const HALF: f64 = 0.5;
/// One of the two has at least this too much or too little.
const WHOLE: f64 = 1.0;

/// Why no hints can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The capacity is not known.
    Nodes,
    /// There are fewer endpoints than zones.
    TooFew {
        /// Ready endpoints.
        endpoints: usize,
        /// Zones.
        zones: usize,
    },
    /// No distribution keeps all zones from being overloaded.
    Overload {
        /// Ready endpoints.
        endpoints: usize,
        /// Zones.
        zones: usize,
    },
    /// There is an endpoint in no zone.
    NoZone,
}

impl fmt::Display for Refusal {
    /// As events show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes => f.write_str(
                "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes",
            ),
            Self::TooFew { endpoints, zones } => {
                write!(f, "Insufficient number of endpoints ({endpoints} endpoints, {zones} zones)")
            }
            Self::Overload { endpoints, zones } => write!(
                f,
                "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
                 ({endpoints} endpoints, {zones} zones)"
            ),
            Self::NoZone => f.write_str("One or more endpoints do not have a zone specified"),
        }
    }
}

/// The accounts of the zones.
#[derive(Clone, Debug)]
pub(super) struct Allotment {
    zones: BTreeMap<Str, Account>,
    /// How many endpoints are left when all zones have what they need.
    spare: usize,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    need: Need,
    /// Endpoints that are allotted to the zone.
    has: usize,
}

impl Allotment {
    /// For so many ready endpoints, none of them allotted yet.
    pub(super) fn new(capacity: &Capacity, endpoints: usize) -> Result<Self, Refusal> {
        let account = |(zone, need): (&Str, Need)| (zone.clone(), Account { need, has: 0 });
        let accounts: BTreeMap<Str, Account> = capacity.needs(endpoints).map(account).collect();
        let zones = accounts.len();
        if zones == 0 {
            return Err(Refusal::Nodes);
        }
        if zones > endpoints {
            return Err(Refusal::TooFew { endpoints, zones });
        }
        let needed: usize = accounts.values().map(|account| account.need.least).sum();
        let spare = endpoints.checked_sub(needed).ok_or(Refusal::Overload { endpoints, zones })?;
        Ok(Self { zones: accounts, spare })
    }

    /// Enters as many endpoints for each of these zones, if no zone comes to have more than it needs and all that is spare:
    /// that would leave too few for the others. Whether it did.
    pub(super) fn admit(&mut self, zones: &BTreeMap<Str, usize>) -> bool {
        let is_bearable = |(zone, more): (&Str, &usize)| {
            let most = |account: &Account| account.need.least + self.spare;
            self.zones.get(zone).is_some_and(|account| account.has + more <= most(account))
        };
        let all = zones.iter().all(is_bearable);
        if all {
            for (zone, more) in zones {
                self.enter(zone, *more);
            }
        }
        all
    }

    /// Enters endpoints for this zone. One without capacity has a part in nothing.
    pub(super) fn enter(&mut self, zone: &Str, endpoints: usize) {
        let nothing = Account { need: Need { part: 0.0, least: 0 }, has: 0 };
        self.zones.entry(zone.clone()).or_insert(nothing).has += endpoints;
    }

    /// What is to change hands: as much as can be given and is lacked, from and to those who have most of either first. To
    /// need more than one's part is to lack it, too.
    pub(super) fn transfers(&self) -> Transfers {
        let surplus =
            |account: &Account| account.has as f64 - account.need.part.max(account.need.least as f64);
        let offers = units(self.zones.iter().map(|(zone, account)| (zone, surplus(account))), HALF);
        let wants = units(self.zones.iter().map(|(zone, account)| (zone, -surplus(account))), HALF);
        let is_moved = |((offered, _), (wanted, _)): &(&(f64, _), &(f64, _))| offered.max(*wanted) >= WHOLE;
        let moves = offers.iter().zip(&wants).take_while(is_moved).count();
        // Whoever gets most of them gets the first.
        let gets = count(&wants[..moves]);
        let to = units(gets.iter().map(|(zone, number)| (zone, *number as f64)), WHOLE);
        Transfers {
            from: count(&offers[..moves]),
            to: to.into_iter().map(|(_, zone)| zone.clone()).collect::<Vec<_>>().into_iter(),
        }
    }
}

/// Splits amounts into units: each is taken down by one for as long as it is at least `least`, the largest first; of equals,
/// the one whose zone comes first.
fn units<'a>(amounts: impl Iterator<Item = (&'a Str, f64)>, least: f64) -> Vec<(f64, &'a Str)> {
    let down = |(zone, amount): (&'a Str, f64)| {
        let amounts =
            successors(Some(amount), |left| Some(left - 1.0)).take_while(move |left| *left >= least);
        amounts.map(move |left| (left, zone))
    };
    let mut units: Vec<(f64, &Str)> = amounts.flat_map(down).collect();
    units.sort_by(|a, b| b.0.total_cmp(&a.0));
    units
}

fn count(units: &[(f64, &Str)]) -> BTreeMap<Str, usize> {
    let mut counts = BTreeMap::new();
    for (_, zone) in units {
        *counts.entry((*zone).clone()).or_default() += 1;
    }
    counts
}

/// Endpoints that change hands.
#[derive(Clone, Debug)]
pub(super) struct Transfers {
    from: BTreeMap<Str, usize>,
    to: IntoIter<Str>,
}

impl Transfers {
    /// To which zone an endpoint of this one goes; `None` if it stays.
    pub(super) fn next(&mut self, from: &Str) -> Option<Str> {
        let left = self.from.get_mut(from).filter(|left| **left > 0)?;
        *left -= 1;
        self.to.next()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(at: usize) -> Str {
        ["a", "b", "c", "d", "e", "f"][at].into()
    }

    /// Of zones `a`, `b` and so on with these CPUs.
    fn capacity(cpus: &[u32]) -> Capacity {
        Capacity::of_zones(cpus.iter().enumerate().map(|(at, cpu)| (name(at), u64::from(*cpu))))
    }

    /// With so many endpoints of each zone entered; what changes hands, as `a>b`, if endpoints are asked in the order of
    /// their zones.
    fn moved(cpus: &[u32], has: &[usize]) -> Result<Vec<String>, Refusal> {
        let mut allotment = Allotment::new(&capacity(cpus), has.iter().sum())?;
        has.iter().enumerate().for_each(|(at, number)| allotment.enter(&name(at), *number));
        let mut transfers = allotment.transfers();
        let endpoints =
            has.iter().enumerate().flat_map(|(at, number)| std::iter::repeat_n(name(at), *number));
        Ok(endpoints.filter_map(|from| Some(format!("{from}>{}", transfers.next(&from)?))).collect())
    }

    #[test]
    fn who_has_most_gives_to_who_lacks_most() {
        for (cpus, has, expected) in [
            (&[1, 1, 1][..], &[2, 2, 2][..], &[][..]),
            (&[1, 1, 1], &[4, 1, 1], &["a>b", "a>c"]),
            (&[1, 1, 1], &[1, 4, 1], &["b>a", "b>c"]),
            // The one that lacks three gets two before the one that lacks one gets its.
            (&[1, 1, 1], &[9, 4, 2], &["a>c", "a>c", "a>b", "a>c"]),
            // Two give: what is left is as much for both.
            (&[1, 1, 1], &[6, 6, 0], &["a>c", "a>c", "b>c", "b>c"]),
            // 4, 1 and 1 of six.
            (&[4, 1, 1], &[2, 2, 2], &["b>a", "c>a"]),
            // 3.5 and 3.5: half an endpoint can't be given.
            (&[1, 1], &[4, 3], &[]),
            // 5.25 and 1.75, of which it needs two: who has three quarters too many gives one to who lacks one.
            (&[3, 1], &[6, 1], &["a>b"]),
            (&[3, 1], &[7, 0], &["a>b", "a>b"]),
            (&[3, 1], &[8, 0], &["a>b", "a>b"]),
            // 2.33 each: who has two thirds too many gives one to who lacks more than one.
            (&[1, 1, 1], &[3, 3, 1], &["a>c"]),
            (&[1, 1, 1], &[4, 4, 2], &["a>c"]),
            // 3.33 each: who lacks two thirds gets one from who has more than one too many.
            (&[1, 1, 1], &[5, 3, 2], &["a>c"]),
            // A zone without CPUs has a part in nothing.
            (&[1, 1], &[2, 2, 4], &["c>a", "c>b", "c>a", "c>b"]),
        ] {
            let moved = moved(cpus, has);
            let expected = expected.iter().map(ToString::to_string).collect();
            assert_eq!(moved, Ok(expected), "{cpus:?} {has:?}");
        }
    }

    #[test]
    fn what_can_not_be_allotted() {
        for (cpus, endpoints, refusal) in [
            (&[][..], 5, Refusal::Nodes),
            (&[1], 5, Refusal::Nodes),
            (&[1, 1, 1], 2, Refusal::TooFew { endpoints: 2, zones: 3 }),
            (&[1, 1, 1], 4, Refusal::Overload { endpoints: 4, zones: 3 }),
        ] {
            assert_eq!(Allotment::new(&capacity(cpus), endpoints).err(), Some(refusal), "{cpus:?}");
        }
    }

    #[test]
    fn a_slice_is_admitted_unless_a_zone_gets_what_others_need() {
        // Of ten each zone needs 4.2, which is five: nothing is spare. Of eleven five: one is spare.
        for (endpoints, admitted) in [(10, [true, true, false, false]), (11, [true, true, true, false])] {
            let mut allotment = Allotment::new(&capacity(&[1, 1]), endpoints).unwrap();
            let zones = |zone: &str, number: usize| BTreeMap::from([(zone.into(), number)]);
            let tries = [("a", 4), ("a", 1), ("a", 1), ("a", 1)];
            let admitted_now = tries.map(|(zone, number)| allotment.admit(&zones(zone, number)));
            assert_eq!(admitted_now, admitted, "{endpoints}");
            assert!(
                !allotment.admit(&BTreeMap::from([("b".into(), 1), ("z".into(), 1)])),
                "one nobody knows"
            );
            assert!(allotment.admit(&zones("b", 5)), "nothing was entered for it with that");
        }
    }

    proptest! {
        #[test]
        fn in_the_end_nobody_can_give_what_another_lacks(
            cpus in prop::collection::vec(1..20_u32, 2..6),
            has in prop::collection::vec(0..20_usize, 6),
        ) {
            let total = has.iter().sum();
            let Ok(mut allotment) = Allotment::new(&capacity(&cpus), total) else { return Ok(()) };
            has.iter().enumerate().for_each(|(at, number)| allotment.enter(&name(at), *number));
            let moved = moved(&cpus, &has).unwrap();
            let (mut givers, mut getters) = (Vec::new(), Vec::new());
            for each in &moved {
                let (from, to) = each.split_once('>').unwrap();
                givers.push(from);
                getters.push(to);
                allotment.zones.get_mut(from).unwrap().has -= 1;
                allotment.enter(&to.into(), 1);
            }
            prop_assert!(givers.iter().all(|giver| !getters.contains(giver)));
            prop_assert_eq!(allotment.zones.values().map(|account| account.has).sum::<usize>(), total);
            let left = allotment.transfers();
            prop_assert!(left.from.is_empty() && left.to.as_slice().is_empty(), "{:?}", left);
            let ought = |account: &Account| account.need.part.max(account.need.least as f64);
            // Rounded as where it is decided.
            let surplus = |account: &Account| account.has as f64 - ought(account);
            let most = |amount: &dyn Fn(&Account) -> f64| allotment.zones.values().map(amount).fold(0.0, f64::max);
            let (offered, wanted) = (most(&surplus), most(&|account| -surplus(account)));
            prop_assert!(offered.min(wanted) < 0.5 || offered.max(wanted) < 1.0, "{:?}", allotment);
        }
    }
}
