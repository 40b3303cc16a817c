//! What a reflector does next: a pure function of its state and of what just happened.
//!
//! ```text
//!            ┌────────── expired, or stuck ──────────┐
//!            ▼                                       │
//! Idle ─► Asked(Stream) ─opened─► Receiving{initial} ─end of initial events─► Receiving ◄──opened── Asked(Watch)
//!            │ refused, or not ended by its mark                                │  ▲ ▲                  ▲
//!            ▼                                                                  │  │ └─ events         │
//!         Asked(List) ── page ─► Asked(List) … last page ──────────────────────┼──┼──────────────────►│
//!                                                                               └──┴─ ended, lost ────►┘
//! ```
//! Every failure but that of a stream leads through `Waiting` back to what failed. Servers that do not know streams answer them in all
//! sorts of ways, so a stream that fails is followed by a list at once, and a list that fails by the next stream; see
//! [`State::list_this_time`]. A watch that ends, cleanly or not, goes on from the last
//! resource version; only a version that the server has forgotten, or one that it cannot get past, makes a new list.
//!
//! Who waits because a request got no answer is called back when another reflector gets one. Not so after a watch that broke
//! once it was open: its request has shown that the server can be reached, and where watches always break, those that do
//! would call each other without end.
//!
//! No I/O, clock, randomness or objects here: the driver does as the effects say.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::backoff::Backoff;
use crate::wire::Str;

/// A watch that ends sooner than this, even in order, is not a watch worth reopening without a pause.
const SHORT_WATCH: Duration = Duration::from_secs(5);
/// After this many refusals at one resource version, with nothing received in between, the list is made anew.
const STUCK_LIMIT: u32 = 3;
/// A server that asks for more patience than this is asked again anyway.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(2);
/// Within this time those that waited for the server come back when it is there again. All at once, they and their like in
/// every other client of that server would be the first thing it has to bear; and nobody misses a tenth of a second.
const SPREAD: Duration = Duration::from_millis(100);

/// What the reflector knows between two inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    phase: Phase,
    /// Where a watch goes on; empty while there is no complete list.
    position: Str,
    /// Whether the initial state may be had as a stream.
    stream: bool,
    /// Whether a list was ever wanted anew: the server's cache may not answer then, it may be older than what we had.
    newest: bool,
    backoff: Backoff,
    /// Refusals within a watch since anything was received, or streams that were lost since there was a complete list.
    stuck: u32,
    /// What the last failure was.
    last_fault: Option<Cause>,
    /// Times that it was called back, since anything succeeded.
    called: u32,
    /// The time within which it comes back when it is called for the first time.
    spread: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Not begun.
    Idle,
    /// This will be asked after a pause.
    Waiting(Request),
    /// This was asked; no answer yet.
    Asked(Request),
    /// A watch is open since then; the initial events have not ended, or it has none.
    Receiving { initial: bool, since: Duration },
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A watch that begins with the present state.
    Stream,
    /// A watch from the state's position.
    Watch,
    /// A page of a list.
    List { newest: bool, page: Page },
}

/// Which part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The first page.
    First,
    /// The page at this token.
    Next(String),
    /// All of it at once: the tokens expired faster than they were used.
    Whole,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The reflector was started.
    Begin,
    /// The pause is over.
    Elapsed,
    /// While it waited for the server, another reflector has reached it.
    Called,
    /// A page of a list has come; `next` is the token of the following one, empty on the last.
    Page { version: Str, next: String },
    /// A watch was opened.
    Opened,
    /// An object was added, modified or deleted.
    Object { version: Str },
    /// A bookmark, which may mark the end of the initial events.
    Bookmark { version: Str, ends_initial: bool },
    /// The watch has ended in order.
    Ended,
    /// The request or the watch has failed.
    Failed(Fault),
}

/// A failure, as far as it matters for what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) cause: Cause,
    /// How long the server asked to wait.
    pub(super) retry_after: Option<Duration>,
}

/// Why something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The server no longer knows the resource version or the token (410).
    Expired,
    /// The server does not take the request as it is (400, 422 …).
    Rejected,
    /// The server is overloaded (429).
    Busy,
    /// The server answered with another error.
    Refused,
    /// No answer, or a connection that broke.
    Lost,
    /// Nothing came for too long.
    Silent,
    /// What came can't be read.
    Corrupt,
}

/// What to do with what was received, and then.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Effects {
    pub(super) on_store: SmallVec<[StoreEffect; 2]>,
    pub(super) next: Next,
}

/// What to do with what was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreEffect {
    /// Put it into the snapshot being collected.
    Collect,
    /// Change the store accordingly.
    Apply,
    /// Make the store hold the snapshot: the state at this version.
    Commit(Str),
    /// Everything up to this version has been received.
    Mark(Str),
    /// Forget the snapshot being collected.
    Discard,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Send this.
    Ask(Request),
    /// Pause, for this long or, to spread the load, up to twice as long.
    Wait(Duration),
    /// Pause likewise, but end it when another reflector reaches the server: at a random time within `spread` of that.
    Await { pause: Duration, spread: Duration },
    /// Read on in the open watch.
    Read,
}

type OnStore = SmallVec<[StoreEffect; 2]>;

impl State {
    /// A reflector that has not begun. `stream`: whether to ask for the initial state as a stream; `newest`: whether
    /// the store may hold something already, so that a list from the server's cache could take it back in time.
    pub(super) fn new(stream: bool, newest: bool, backoff: Backoff) -> Self {
        Self {
            phase: Phase::Idle,
            position: Str::EMPTY,
            stream,
            newest,
            backoff,
            stuck: 0,
            last_fault: None,
            called: 0,
            spread: SPREAD,
        }
    }

    /// The same, coming back within this time instead of a tenth of a second.
    pub(super) fn called_within(self, spread: Duration) -> Self {
        Self { spread, ..self }
    }

    /// From here on, lists are consistent reads: what was asked for before may come from an older cache.
    pub(super) fn require_newest(&mut self) {
        self.newest = true;
    }

    /// Where a watch goes on.
    pub(super) fn position(&self) -> &Str {
        &self.position
    }

    /// Whether what is received next belongs to a list, not to a running watch.
    pub(super) fn is_collecting(&self) -> bool {
        matches!(self.phase, Phase::Asked(Request::List { .. }) | Phase::Receiving { initial: true, .. })
    }

    /// What becomes of the state when `input` happens `at` this long after the beginning, and what to do about it.
    pub(super) fn step(mut self, input: Input, at: Duration) -> (Self, Effects) {
        if let Input::Failed(fault) = input
            && !self.is_listing_in_place_of_a_stream()
        {
            self.heed(fault.cause);
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let effects = match (phase, input) {
            (Phase::Idle, Input::Begin) => {
                let request = self.initial_request();
                self.ask(request, OnStore::new())
            }
            (Phase::Waiting(request), Input::Elapsed) => self.ask(request, OnStore::new()),
            (Phase::Waiting(request), Input::Called) => {
                self.called = self.called.saturating_add(1);
                self.ask(request, OnStore::new())
            }
            (Phase::Asked(Request::List { newest, .. }), Input::Page { version, next }) => {
                self.page(newest, version, next, at)
            }
            (Phase::Asked(Request::Stream), Input::Opened) => self.opened(true, at),
            (Phase::Asked(Request::Watch), Input::Opened) => self.opened(false, at),
            (Phase::Asked(request), Input::Failed(fault)) => self.refused(request, fault, at),
            (phase @ Phase::Receiving { .. }, Input::Object { version }) => self.object(phase, version),
            (phase @ Phase::Receiving { .. }, Input::Bookmark { version, ends_initial }) => {
                self.bookmark(phase, version, ends_initial)
            }
            (Phase::Receiving { initial, since }, Input::Ended) => self.ended(initial, since, at),
            (Phase::Receiving { initial, .. }, Input::Failed(fault)) => self.broken(initial, fault, at),
            // The driver is out of step with us, which no input from outside can bring about. Begin anew.
            (_, _) => {
                let pause = self.backoff.fail(at);
                self.list_anew(Some(pause), at)
            }
        };
        (self, effects)
    }

    /// Whether the request under way is a list in place of a stream that failed. Its fault continues that of the stream: otherwise a server
    /// that cuts streams and another one that refuses lists would be asked by turns without growing pauses.
    fn is_listing_in_place_of_a_stream(&self) -> bool {
        self.stream && matches!(self.phase, Phase::Asked(Request::List { page: Page::First, .. }))
    }

    /// What failed for another reason than this is no reason to wait: a server that answers again after it was away, and
    /// a version that has expired, as they do while it was, come once per outage, and to every informer.
    fn heed(&mut self, cause: Cause) {
        let last = self.last_fault.replace(cause);
        match cause {
            Cause::Expired if last != Some(Cause::Expired) => self.backoff.begin_anew(),
            cause if cause != Cause::Lost && last == Some(Cause::Lost) => self.backoff.progress(),
            _ => {}
        }
    }

    fn initial_request(&self) -> Request {
        if self.stream { Request::Stream } else { Request::List { newest: self.newest, page: Page::First } }
    }

    fn ask(&mut self, request: Request, on_store: OnStore) -> Effects {
        self.phase = Phase::Asked(request.clone());
        Effects { on_store, next: Next::Ask(request) }
    }

    fn wait(&mut self, pause: Duration, request: Request, on_store: OnStore) -> Effects {
        self.phase = Phase::Waiting(request);
        Effects { on_store, next: Next::Wait(pause) }
    }

    fn retry(&mut self, request: Request, fault: Fault, at: Duration, on_store: OnStore) -> Effects {
        let asked_for = fault.retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER);
        let pause = self.backoff.fail(at).max(asked_for);
        self.wait(pause, request, on_store)
    }

    /// Waits for a server that gave no answer. One that answers others and never this request would have it repeated
    /// whenever they succeed; so each call in vain makes the next one less urgent, until it is no more than the backoff.
    fn wait_for_server(&mut self, request: Request, at: Duration) -> Effects {
        let pause = self.backoff.fail(at);
        let spread = self.spread.saturating_mul(1 << self.called.min(16)).min(pause);
        self.phase = Phase::Waiting(request);
        Effects { on_store: OnStore::new(), next: Next::Await { pause, spread } }
    }

    fn read(&mut self, phase: Phase, on_store: OnStore) -> Effects {
        self.phase = phase;
        Effects { on_store, next: Next::Read }
    }

    fn opened(&mut self, initial: bool, at: Duration) -> Effects {
        self.backoff.well(at);
        self.called = 0;
        self.read(Phase::Receiving { initial, since: at }, OnStore::new())
    }

    /// The position is of no use any more: a new list, of the newest state.
    fn list_anew(&mut self, pause: Option<Duration>, at: Duration) -> Effects {
        self.position = Str::EMPTY;
        self.newest = true;
        self.stuck = 0;
        let request = self.initial_request();
        let pause = match pause {
            Some(pause) => Some(pause),
            None => self.backoff.lapse(at),
        };
        match pause {
            Some(pause) => self.wait(pause, request, smallvec![StoreEffect::Discard]),
            None => self.ask(request, smallvec![StoreEffect::Discard]),
        }
    }

    fn page(&mut self, newest: bool, version: Str, next: String, at: Duration) -> Effects {
        self.backoff.well(at);
        self.called = 0;
        if !next.is_empty() {
            let request = Request::List { newest, page: Page::Next(next) };
            return self.ask(request, smallvec![StoreEffect::Collect]);
        }
        self.synced(&version);
        self.ask(Request::Watch, smallvec![StoreEffect::Collect, StoreEffect::Commit(version)])
    }

    fn synced(&mut self, version: &Str) {
        self.position = version.clone();
        self.newest = true;
        self.stuck = 0;
    }

    fn progressed(&mut self) {
        self.stuck = 0;
        self.backoff.progress();
    }

    fn object(&mut self, phase: Phase, version: Str) -> Effects {
        if let Phase::Receiving { initial: true, .. } = phase {
            return self.read(phase, smallvec![StoreEffect::Collect]);
        }
        self.position = version;
        self.progressed();
        self.read(phase, smallvec![StoreEffect::Apply])
    }

    fn bookmark(&mut self, phase: Phase, version: Str, ends_initial: bool) -> Effects {
        match phase {
            Phase::Receiving { initial: true, since } if ends_initial => {
                self.synced(&version);
                let watching = Phase::Receiving { initial: false, since };
                self.read(watching, smallvec![StoreEffect::Commit(version)])
            }
            // Progress of the server's cache, of no meaning while the snapshot is incomplete.
            Phase::Receiving { initial: true, .. } => self.read(phase, OnStore::new()),
            _ => {
                self.position = version.clone();
                self.progressed();
                self.read(phase, smallvec![StoreEffect::Mark(version)])
            }
        }
    }

    fn refused(&mut self, request: Request, fault: Fault, at: Duration) -> Effects {
        match (request, fault.cause) {
            (Request::Stream, Cause::Rejected) => {
                self.stream = false;
                let request = self.initial_request();
                self.ask(request, OnStore::new())
            }
            (Request::Stream, Cause::Refused | Cause::Corrupt | Cause::Expired)
                if fault.retry_after.is_none() =>
            {
                self.list_this_time(OnStore::new())
            }
            (Request::Stream, Cause::Silent) => {
                self.stuck += 1;
                if self.stuck >= STUCK_LIMIT {
                    return self.list_this_time(OnStore::new());
                }
                self.wait_for_server(Request::Stream, at)
            }
            (Request::Watch, Cause::Expired) => self.list_anew(None, at),
            // A version that the server does not understand: it is not the server that we listed from.
            (Request::Watch, Cause::Rejected) => {
                let pause = self.backoff.fail(at);
                self.list_anew(Some(pause), at)
            }
            (Request::List { page: Page::Next(_), .. }, Cause::Expired | Cause::Rejected) => {
                let whole = Request::List { newest: true, page: Page::Whole };
                match self.backoff.lapse(at) {
                    None => self.ask(whole, smallvec![StoreEffect::Discard]),
                    Some(pause) => self.wait(pause, whole, smallvec![StoreEffect::Discard]),
                }
            }
            // It was asked for because a stream failed. The next try begins with a stream, as that failure may be over.
            (Request::List { page: Page::First, .. }, Cause::Lost) if self.stream => {
                self.wait_for_server(Request::Stream, at)
            }
            (Request::List { page: Page::First, .. }, _) if self.stream => {
                self.retry(Request::Stream, fault, at, OnStore::new())
            }
            (Request::List { .. }, Cause::Expired) => {
                let newest = Request::List { newest: true, page: Page::First };
                self.retry(newest, fault, at, smallvec![StoreEffect::Discard])
            }
            (request, Cause::Lost) => self.wait_for_server(request, at),
            (request, _) => self.retry(request, fault, at, OnStore::new()),
        }
    }

    fn ended(&mut self, initial: bool, since: Duration, at: Duration) -> Effects {
        let lost = Fault { cause: Cause::Lost, retry_after: None };
        if initial {
            return self.list_this_time(smallvec![StoreEffect::Discard]);
        }
        if at.saturating_sub(since) >= SHORT_WATCH {
            return self.ask(Request::Watch, OnStore::new());
        }
        self.resume(lost, at)
    }

    fn broken(&mut self, initial: bool, fault: Fault, at: Duration) -> Effects {
        match (initial, fault.cause) {
            (true, Cause::Rejected) => {
                self.stream = false;
                let request = self.initial_request();
                self.ask(request, smallvec![StoreEffect::Discard])
            }
            (true, Cause::Lost) => {
                self.stuck += 1;
                if self.stuck >= STUCK_LIMIT {
                    return self.list_this_time(smallvec![StoreEffect::Discard]);
                }
                self.retry(Request::Stream, fault, at, smallvec![StoreEffect::Discard])
            }
            (true, cause) if cause == Cause::Busy || fault.retry_after.is_some() => {
                self.retry(Request::Stream, fault, at, smallvec![StoreEffect::Discard])
            }
            (true, _) => self.list_this_time(smallvec![StoreEffect::Discard]),
            (false, Cause::Expired) => self.list_anew(None, at),
            (false, Cause::Rejected | Cause::Busy | Cause::Refused | Cause::Corrupt) => {
                self.stuck += 1;
                if self.stuck >= STUCK_LIMIT {
                    let pause = self.backoff.fail(at);
                    return self.list_anew(Some(pause), at);
                }
                self.resume(fault, at)
            }
            (false, Cause::Lost | Cause::Silent) => self.resume(fault, at),
        }
    }

    /// Lists without a pause in place of a stream that failed. A server that knows nothing of initial events refuses to stream them, never
    /// marks their end, or answers something else; all that is asked of it is a list. The stream itself was asked for after a pause, so such
    /// lists are never repeated without one.
    fn list_this_time(&mut self, on_store: OnStore) -> Effects {
        let list = Request::List { newest: self.newest, page: Page::First };
        self.ask(list, on_store)
    }

    /// Watches on from the position, the first time at once.
    fn resume(&mut self, fault: Fault, at: Duration) -> Effects {
        if fault.retry_after.is_some() {
            return self.retry(Request::Watch, fault, at, OnStore::new());
        }
        match self.backoff.lapse(at) {
            None => self.ask(Request::Watch, OnStore::new()),
            Some(pause) => self.wait(pause, Request::Watch, OnStore::new()),
        }
    }
}
