//! Users of an object that a live read has found and the cache lacks. The cache may never show the end of these users, so the live
//! read is repeated, at growing intervals while nothing changes.

use std::time::Duration;

use parking_lot::Mutex;

use super::room::{Memory, ReconcileEnd};
use super::worker::Outcome;
use crate::api::meta::ObjectMeta;
use crate::model::Key;
use crate::model::clock::Stopwatch;
use crate::random::HashMap;
use crate::wire::Uid;

/// A plan's note: the UID of the object if a live read has found users of it that the cache lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnheardNote(Option<Uid>);

impl UnheardNote {
    /// Returns the note about an object.
    pub fn of(object: &ObjectMeta, has_unheard_users: bool) -> Self {
        Self(has_unheard_users.then(|| object.uid.clone()))
    }
}

/// Holds, by object key, the time of the first live read that found users missing from the cache. The entry is removed with the users or the
/// object.
#[derive(Debug)]
pub struct UnheardUsers {
    clock: Stopwatch,
    since: Mutex<HashMap<Key, (Uid, Duration)>>,
}

impl Default for UnheardUsers {
    fn default() -> Self {
        Self { clock: Stopwatch::start(), since: Mutex::default() }
    }
}

impl UnheardUsers {
    /// Returns how long live reads have found users of an object that the cache lacks; zero before the first such read.
    pub fn lasts(&self, object: &ObjectMeta) -> Duration {
        let since = self.since.lock();
        let entry = since.get(&Key::of(object)).filter(|(uid, _)| *uid == object.uid);
        entry.map_or(Duration::ZERO, |(_, at)| self.clock.elapsed().saturating_sub(*at))
    }
}

impl Memory<UnheardNote> for UnheardUsers {
    fn commit(&self, key: &Key, UnheardNote(object): UnheardNote) {
        let mut since = self.since.lock();
        match object {
            Some(uid) if since.get(key).is_some_and(|(known, _)| *known == uid) => {}
            Some(uid) => drop(since.insert(key.clone(), (uid, self.clock.elapsed()))),
            None => drop(since.remove(key)),
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        if matches!(ended.outcome, Outcome::Absent) {
            self.since.lock().remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unheard_users_last_from_the_first_read_until_they_or_their_object_end() {
        let memory = UnheardUsers::default();
        let object = |uid: &str| ObjectMeta {
            name: "a".into(),
            namespace: "ns".into(),
            uid: uid.into(),
            ..ObjectMeta::default()
        };
        let (first, second) = (object("first"), object("second"));
        let key = Key::of(&first);
        let finds = |object: &ObjectMeta, some| memory.commit(&key, UnheardNote::of(object, some));
        let pass = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        pass(50).await;
        assert_eq!(memory.lasts(&first), Duration::ZERO);
        finds(&first, true);
        pass(7).await;
        finds(&first, true);
        pass(3).await;
        assert_eq!((memory.lasts(&first).as_secs(), memory.lasts(&second).as_secs()), (10, 0));
        finds(&second, true);
        pass(1).await;
        assert_eq!((memory.lasts(&first).as_secs(), memory.lasts(&second).as_secs()), (0, 1));
        finds(&second, false);
        assert!(memory.since.lock().is_empty());
        finds(&first, true);
        let end = ReconcileEnd { outcome: &Outcome::Absent, actions: &[], took: Duration::ZERO };
        memory.ended(&key, end);
        assert!(memory.since.lock().is_empty(), "churn leaves nothing");
    }
}
