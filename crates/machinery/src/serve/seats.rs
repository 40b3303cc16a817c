//! Who has a place among the connections, and who makes room when there is none.
//!
//! A newcomer always gets in as long as somebody holds a place for whom it matters less: strangers before callers who are
//! known, idle connections before busy ones, those of an address that holds many before those of one that holds few, and
//! among equals the one that has been quiet for longest. So a probe, which is new and quick, is the last that a crowd of
//! idle connections can push out. Everybody is a stranger until a request of theirs was authenticated.
//!
//! A user has a share of the places, from however many addresses the connections are.
//!
//! Here is only the table. Connections tell it how they are ([`Seat`]), and end when it says so ([`Seat::cut`]).

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::options::Limits;
use crate::random::HashMap;

/// The order in which connections go when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    IdleStranger,
    BusyStranger,
    Idle,
    Busy,
}

struct Held {
    address: IpAddr,
    /// The user of the last request that was authenticated.
    user: Option<Arc<str>>,
    in_flight: usize,
    /// When something last happened: a count of happenings, not a time.
    active: u64,
    cut: CancellationToken,
}

impl Held {
    fn known(&self) -> bool {
        self.user.is_some()
    }

    fn rank(&self) -> Rank {
        match (self.known(), self.in_flight > 0) {
            (false, false) => Rank::IdleStranger,
            (false, true) => Rank::BusyStranger,
            (true, false) => Rank::Idle,
            (true, true) => Rank::Busy,
        }
    }
}

/// How many connections there are, of an address or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    all: usize,
    strangers: usize,
}

impl Count {
    fn add(&mut self, known: bool) {
        self.all += 1;
        self.strangers += usize::from(!known);
    }

    fn remove(&mut self, known: bool) {
        self.all -= 1;
        self.strangers -= usize::from(!known);
    }
}

#[derive(Default)]
struct Table {
    held: HashMap<u64, Held>,
    addresses: HashMap<IpAddr, Count>,
    users: HashMap<Arc<str>, usize>,
    total: Count,
    happenings: u64,
}

impl Table {
    fn count(&self, address: IpAddr) -> Count {
        self.addresses.get(&address).copied().unwrap_or_default()
    }

    fn of_user(&self, user: &str) -> usize {
        self.users.get(user).copied().unwrap_or_default()
    }

    fn forget_user(&mut self, user: &str) {
        if let Some(count) = self.users.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(user);
            }
        }
    }

    /// How many connections the user of this one has.
    fn share(&self, held: &Held) -> usize {
        held.user.as_deref().map_or(0, |user| self.of_user(user))
    }

    /// How many connections the holder of this one has: its address or its user, whichever has more.
    fn weight(&self, held: &Held) -> usize {
        self.count(held.address).all.max(self.share(held))
    }

    fn enter(&mut self, address: IpAddr, cut: CancellationToken) -> u64 {
        self.happenings += 1;
        let id = self.happenings;
        self.held.insert(id, Held { address, user: None, in_flight: 0, active: id, cut });
        self.total.add(false);
        self.addresses.entry(address).or_default().add(false);
        id
    }

    fn leave(&mut self, id: u64) -> Option<Held> {
        let held = self.held.remove(&id)?;
        self.total.remove(held.known());
        if let Some(user) = &held.user {
            self.forget_user(user);
        }
        if let Some(count) = self.addresses.get_mut(&held.address) {
            count.remove(held.known());
            if *count == Count::default() {
                self.addresses.remove(&held.address);
            }
        }
        Some(held)
    }

    /// Something happened on a connection, which may have made room for another meanwhile.
    fn happened(&mut self, id: u64, change: impl FnOnce(&mut Held)) {
        self.happenings += 1;
        let now = self.happenings;
        let Some(held) = self.held.get_mut(&id) else { return };
        held.active = now;
        change(held);
    }

    /// A request of `user` was authenticated on a connection. Returns the connection that makes room if the user has `most`
    /// already: one that carries no request, the quietest first. Without one the connection stays what it was.
    fn identify(&mut self, id: u64, user: &Arc<str>, most: usize) -> Result<Option<u64>, NoRoom> {
        self.happened(id, |_| {});
        let Some(held) = self.held.get(&id).filter(|held| held.user.as_ref() != Some(user)) else {
            return Ok(None);
        };
        let address = held.address;
        let goes = if self.of_user(user) < most {
            None
        } else {
            let own = self.held.iter().filter(|(_, held)| held.user.as_ref() == Some(user));
            let idle = own.filter(|(_, held)| held.in_flight == 0).min_by_key(|(_, held)| held.active);
            Some(idle.map(|(id, _)| *id).ok_or(NoRoom)?)
        };
        if let Some(before) = self.held.get_mut(&id).and_then(|held| held.user.replace(Arc::clone(user))) {
            self.forget_user(&before);
        } else {
            self.total.remove(false);
            self.total.add(true);
            let count = self.addresses.entry(address).or_default();
            count.remove(false);
            count.add(true);
        }
        *self.users.entry(Arc::clone(user)).or_default() += 1;
        Ok(goes)
    }

    /// The connection that matters least, of those that may go.
    fn least(&self, may_go: impl Fn(&Held) -> bool) -> Option<u64> {
        let may_go = self.held.iter().filter(|(_, held)| may_go(held));
        let order =
            |held: &Held| (held.rank(), Reverse(self.weight(held)), Reverse(self.share(held)), held.active);
        may_go.min_by_key(|(_, held)| order(held)).map(|(id, _)| *id)
    }

    /// Who must go before a stranger from this address can come. `Ok(None)`: nobody. `Err`: nobody would.
    fn in_the_way(&self, address: IpAddr, limits: &SeatLimits) -> Result<Option<u64>, NoRoom> {
        let own = self.count(address);
        let from_here = |held: &Held| held.address == address;
        let goes = if own.strangers >= limits.strangers_of_address {
            self.least(|held| from_here(held) && !held.known())
        } else if self.total.strangers >= limits.strangers {
            self.least(|held| !held.known())
        } else if own.all >= limits.of_address {
            // What somebody waits for is cut off only of a user who has many, so that few users never fill an address.
            let many = (limits.of_user / HEAVY).max(1);
            self.least(|held| from_here(held) && (held.rank() < Rank::Busy || self.share(held) > many))
        } else if self.total.all >= limits.all {
            // What somebody waits for is cut off only for the sake of who has less.
            self.least(|held| held.rank() < Rank::Busy || self.weight(held) > own.all)
        } else {
            return Ok(None);
        };
        goes.map(Some).ok_or(NoRoom)
    }
}

/// A user with more than one connection, and more than this part of the share of a user, has many.
const HEAVY: usize = 8;

/// Nobody makes room: whoever is there matters as much as who would come.
struct NoRoom;

/// How many places there are.
#[derive(Clone, Copy, Debug)]
struct SeatLimits {
    all: usize,
    of_address: usize,
    of_user: usize,
    strangers: usize,
    strangers_of_address: usize,
}

/// The places of a port.
pub(super) struct Seats {
    limits: SeatLimits,
    table: Mutex<Table>,
}

impl Seats {
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let limits = SeatLimits {
            all: limits.connections,
            of_address: limits.connections_of_address,
            of_user: limits.connections_of_user,
            strangers: limits.strangers,
            strangers_of_address: limits.strangers_of_address,
        };
        Arc::new(Self { limits, table: Mutex::default() })
    }

    /// A place for a connection from this peer; others are told to go if that is what it takes.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Seat> {
        let address = network(peer);
        let mut table = self.table.lock();
        while let Some(id) = table.in_the_way(address, &self.limits).ok()? {
            if let Some(held) = table.leave(id) {
                held.cut.cancel();
            }
        }
        let cut = CancellationToken::new();
        let id = table.enter(address, cut.clone());
        Some(Seat { seats: Arc::clone(self), id, cut })
    }
}

/// What counts as one address: of IPv6 the network, for who has one address there has them all.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() & (u128::MAX << 64);
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// A connection's place. It is free when this is dropped.
pub(super) struct Seat {
    seats: Arc<Seats>,
    id: u64,
    cut: CancellationToken,
}

impl Seat {
    /// Cancelled when the connection has to make room.
    pub(super) fn cut(&self) -> CancellationToken {
        self.cut.clone()
    }

    /// A request of this user was authenticated on it. A user who has too many connections loses an idle one; `false` if
    /// all of them carry requests, so that this one is to be refused.
    #[must_use]
    pub(super) fn identify(&self, user: &str) -> bool {
        let mut table = self.seats.table.lock();
        if table.held.get(&self.id).and_then(|held| held.user.as_deref()) == Some(user) {
            table.happened(self.id, |_| {});
            return true;
        }
        let Ok(goes) = table.identify(self.id, &user.into(), self.seats.limits.of_user) else { return false };
        if let Some(held) = goes.and_then(|id| table.leave(id)) {
            held.cut.cancel();
        }
        true
    }

    /// A request has begun.
    pub(super) fn begun(&self) {
        self.seats.table.lock().happened(self.id, |held| held.in_flight += 1);
    }

    /// A request has ended, with the last byte of its answer.
    pub(super) fn ended(&self) {
        self.seats.table.lock().happened(self.id, |held| held.in_flight = held.in_flight.saturating_sub(1));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.table.lock().leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        connections: 6,
        connections_of_address: 4,
        connections_of_user: 3,
        strangers: 3,
        strangers_of_address: 2,
        ..Limits::DEFAULT
    };

    fn peer(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn known(seats: &Arc<Seats>, n: u8) -> Seat {
        let seat = seats.take(peer(n)).unwrap();
        assert!(seat.identify(&format!("user-{n}")));
        seat
    }

    fn gone(seats: &[&Seat]) -> Vec<bool> {
        seats.iter().map(|seat| seat.cut.is_cancelled()).collect()
    }

    #[test]
    fn a_stranger_makes_room_for_the_next_of_its_address_the_quietest_first() {
        let seats = Seats::new(&LIMITS);
        let (first, second) = (seats.take(peer(1)).unwrap(), seats.take(peer(1)).unwrap());
        let other = seats.take(peer(2)).unwrap();
        first.begun();
        first.ended();
        let third = seats.take(peer(1)).unwrap();
        assert_eq!(gone(&[&first, &second, &third, &other]), [false, true, false, false]);
        // What it carries counts for more than what happened last.
        first.begun();
        third.begun();
        third.ended();
        let fourth = seats.take(peer(1)).unwrap();
        assert_eq!(gone(&[&first, &third, &fourth, &other]), [false, true, false, false]);
    }

    #[test]
    fn of_many_strangers_those_of_the_heaviest_address_go_first() {
        let seats = Seats::new(&LIMITS);
        let lone = seats.take(peer(1)).unwrap();
        let crowd = [seats.take(peer(2)).unwrap(), seats.take(peer(2)).unwrap()];
        let _probe = seats.take(peer(3)).unwrap();
        assert_eq!(gone(&[&lone, &crowd[0], &crowd[1]]), [false, true, false]);
    }

    #[test]
    fn who_is_known_goes_after_strangers_and_who_is_busy_last() {
        let seats = Seats::new(&LIMITS);
        let busy = [known(&seats, 1), known(&seats, 1), known(&seats, 1)];
        busy.iter().for_each(Seat::begun);
        let idle = known(&seats, 2);
        let strangers = [seats.take(peer(3)).unwrap(), seats.take(peer(4)).unwrap()];
        strangers[0].begun();
        let _newcomers: Vec<_> = (5..9)
            .map(|n| {
                let newcomer = seats.take(peer(n)).unwrap();
                assert!(newcomer.identify(&format!("user-{n}")));
                newcomer.begun();
                newcomer
            })
            .collect();
        assert_eq!(gone(&[&strangers[0], &strangers[1], &idle]), [true, true, true]);
        // The fourth found nobody but the busy ones, of whom one address had more than the rest.
        assert_eq!(gone(&[&busy[0], &busy[1], &busy[2]]), [true, false, false]);
    }

    #[test]
    fn nobody_is_cut_off_for_the_sake_of_who_has_as_much() {
        let seats = Seats::new(&Limits { connections: 3, ..LIMITS });
        let busy: Vec<_> = (1..4).map(|n| known(&seats, n)).collect();
        busy.iter().for_each(Seat::begun);
        assert!(seats.take(peer(1)).is_none());
        assert!(seats.take(peer(9)).is_some(), "who has nothing gets in");
        let seats = Seats::new(&LIMITS);
        let of_user = |user: &str| {
            let seat = seats.take(peer(1)).unwrap();
            assert!(seat.identify(user));
            seat
        };
        let busy = ["a", "b", "c", "d"].map(of_user);
        busy.iter().for_each(Seat::begun);
        assert!(seats.take(peer(1)).is_none(), "its share is used up");
        assert!(seats.take(peer(2)).is_some());
        busy[2].ended();
        assert!(seats.take(peer(1)).is_some());
        assert_eq!(gone(&busy.iter().collect::<Vec<_>>()), [false, false, true, false]);
    }

    #[test]
    fn a_user_at_many_addresses_has_one_share() {
        let seats = Seats::new(&Limits { connections_of_user: 2, ..LIMITS });
        let other = known(&seats, 9);
        let own: Vec<_> = (1..4).map(|n| seats.take(peer(n)).unwrap()).collect();
        assert!(own[0].identify("jane") && own[1].identify("jane") && own[1].identify("jane"));
        own[0].begun();
        assert_eq!(gone(&[&own[0], &own[1], &own[2]]), [false, false, false]);
        assert!(own[2].identify("jane"));
        assert_eq!(gone(&[&own[0], &own[1], &own[2], &other]), [false, true, false, false], "the idle one");
        // No request of the user is cut off for the next, which is refused.
        own[2].begun();
        let last = seats.take(peer(4)).unwrap();
        last.begun();
        assert!(!last.identify("jane"));
        assert!(last.identify("joe"), "the connection is as good as another for another user");
        assert_eq!(gone(&[&own[0], &own[2], &last, &other]), [false, false, false, false]);
        drop(last);
        // A front proxy's connection counts for its latest user.
        let proxy = seats.take(peer(5)).unwrap();
        for user in ["a", "b", "c"] {
            assert!(proxy.identify(user));
        }
        let users: Vec<_> = seats.table.lock().users.iter().map(|(user, n)| (user.to_string(), *n)).collect();
        assert!(users.contains(&("c".to_owned(), 1)) && users.len() == 3, "{users:?}");
    }

    /// As behind one NAT: probes come from the same address.
    #[test]
    fn few_users_that_are_busy_never_fill_an_address() {
        for files in [300, 1024, 4096, 65_536] {
            let limits = Limits::for_open_files(files, 1);
            let seats = Seats::new(&limits);
            let mut busy = Vec::new();
            for user in ["a", "b", "c"] {
                for _ in 0..limits.connections_of_address {
                    let Some(seat) = seats.take(peer(1)) else { continue };
                    seat.begun();
                    if seat.identify(user) {
                        busy.push(seat);
                    }
                }
            }
            let probe = seats.take(peer(1));
            assert!(probe.is_some(), "{files}");
            let held = busy.iter().filter(|seat| !seat.cut.is_cancelled()).count();
            assert!(held >= limits.connections_of_address / 2, "{files}: only as many as needed are cut off");
        }
    }

    #[test]
    fn networks_of_ipv6_count_as_one_and_ipv4_by_any_name() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    proptest! {
        /// Whatever happens, no limit is passed, and what is dropped leaves nothing behind.
        #[test]
        fn no_limit_is_passed(steps in prop::collection::vec((0_u8..5, 0_u8..4, any::<u8>()), 0..120)) {
            let seats = Seats::new(&LIMITS);
            let mut here: Vec<Seat> = Vec::new();
            for (step, n, of) in steps {
                let at = if here.is_empty() { 0 } else { usize::from(of) % here.len() };
                match step {
                    0 | 1 => here.extend(seats.take(peer(n))),
                    2 if !here.is_empty() => drop(here.swap_remove(at)),
                    3 => {
                        let _has_a_share = here.get(at).map(|seat| seat.identify(&n.to_string()));
                    }
                    _ => here.get(at).into_iter().for_each(Seat::begun),
                }
                let table = seats.table.lock();
                let held = here.iter().filter(|seat| !seat.cut.is_cancelled()).count();
                prop_assert_eq!(table.total.all, held);
                prop_assert!(held <= LIMITS.connections);
                let strangers = table.held.values().filter(|held| !held.known()).count();
                prop_assert_eq!(table.total.strangers, strangers);
                prop_assert!(strangers <= LIMITS.strangers);
                for (user, count) in &table.users {
                    prop_assert!(*count <= LIMITS.connections_of_user);
                    let own = table.held.values().filter(|held| held.user.as_ref() == Some(user));
                    prop_assert_eq!(own.count(), *count);
                }
                for count in table.addresses.values() {
                    prop_assert!(count.all <= LIMITS.connections_of_address);
                    prop_assert!(count.strangers <= LIMITS.strangers_of_address);
                }
            }
            here.clear();
            let table = seats.table.lock();
            prop_assert!(table.held.is_empty() && table.addresses.is_empty() && table.users.is_empty());
            prop_assert_eq!(table.total, Count::default());
        }
    }
}
