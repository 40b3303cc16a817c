//! Tables of the state machine, backoff, calls of those that wait, and the reassembly of frames.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::FutureExt;
use proptest::prelude::*;

use super::backoff::Backoff;
use super::cause_of;
use super::frames::{Frames, MAX_FRAME};
use super::machine::{Cause, Effects, Fault, Input, Next, Page, Request, State, StoreEffect};
use super::reachability::Reachability;
use crate::client::ApiError;

const FIRST_WAIT: Duration = Duration::from_millis(800);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn failed(cause: Cause) -> Input {
    Input::Failed(Fault { cause, retry_after: None })
}

fn page(version: &str, next: &str) -> Input {
    Input::Page { version: version.into(), next: next.to_owned() }
}

fn object(version: &str) -> Input {
    Input::Object { version: version.into() }
}

fn bookmark(version: &str, ends_initial: bool) -> Input {
    Input::Bookmark { version: version.into(), ends_initial }
}

fn list(newest: bool, page: Page) -> Next {
    Next::Ask(Request::List { newest, page })
}

fn commit(version: &str) -> StoreEffect {
    StoreEffect::Commit(version.into())
}

/// A wait for a server that gave no answer, by one that has not been called since anything succeeded.
fn away(pause: Duration) -> Next {
    Next::Await { pause, spread: ms(100) }
}

/// Steps through a table of (input, at milliseconds, effects expected) and returns the state at its end.
fn walk(mut state: State, table: &[(Input, u64, &[StoreEffect], Next)]) -> State {
    for (row, (input, at, on_store, next)) in table.iter().enumerate() {
        let (after, effects) = state.step(input.clone(), ms(*at));
        let expected = Effects { on_store: on_store.iter().cloned().collect(), next: next.clone() };
        assert_eq!(effects, expected, "row {row}: {input:?}");
        state = after;
    }
    state
}

const WATCH: Next = Next::Ask(Request::Watch);
const STREAM: Next = Next::Ask(Request::Stream);

/// A reflector that is watching from version 10 since the time 0.
fn watching() -> State {
    walk(
        State::new(true, false, Backoff::default()),
        &[
            (Input::Begin, 0, &[], STREAM),
            (Input::Opened, 0, &[], Next::Read),
            (bookmark("10", true), 0, &[commit("10")], Next::Read),
        ],
    )
}

#[test]
fn a_stream_is_collected_and_committed_at_its_mark() {
    let state = walk(
        State::new(true, false, Backoff::default()),
        &[
            (Input::Begin, 0, &[], STREAM),
            (Input::Opened, 5, &[], Next::Read),
            (object("3"), 6, &[StoreEffect::Collect], Next::Read),
            (bookmark("9", false), 7, &[], Next::Read),
            (object("7"), 8, &[StoreEffect::Collect], Next::Read),
            (bookmark("10", true), 9, &[commit("10")], Next::Read),
            (object("11"), 10, &[StoreEffect::Apply], Next::Read),
            (bookmark("20", false), 11, &[StoreEffect::Mark("20".into())], Next::Read),
        ],
    );
    assert_eq!(state.position(), "20");
    assert!(!state.is_collecting());
}

#[test]
fn the_position_stays_empty_while_initial_events_come() {
    let state = walk(
        State::new(true, false, Backoff::default()),
        &[
            (Input::Begin, 0, &[], STREAM),
            (Input::Opened, 0, &[], Next::Read),
            (object("3"), 0, &[StoreEffect::Collect], Next::Read),
        ],
    );
    assert_eq!(state.position(), "");
    assert!(state.is_collecting());
}

#[test]
fn a_server_without_streams_is_asked_for_pages_for_good() {
    let state = walk(
        State::new(true, false, Backoff::default()),
        &[
            (Input::Begin, 0, &[], STREAM),
            (failed(Cause::Rejected), 0, &[], list(false, Page::First)),
            (page("8", "t1"), 0, &[StoreEffect::Collect], list(false, Page::Next("t1".into()))),
            (page("8", ""), 0, &[StoreEffect::Collect, commit("8")], WATCH),
            (Input::Opened, 0, &[], Next::Read),
            (object("9"), 0, &[StoreEffect::Apply], Next::Read),
            (failed(Cause::Expired), 10_000, &[StoreEffect::Discard], list(true, Page::First)),
        ],
    );
    assert_eq!(state.position(), "");
}

#[test]
fn a_refusal_within_the_stream_leads_to_pages_too() {
    walk(
        State::new(true, false, Backoff::default()),
        &[
            (Input::Begin, 0, &[], STREAM),
            (Input::Opened, 0, &[], Next::Read),
            (failed(Cause::Rejected), 0, &[StoreEffect::Discard], list(false, Page::First)),
        ],
    );
}

#[test]
fn initial_events_that_never_end_are_given_up_for_a_list() {
    walk(
        State::new(true, false, Backoff::default()),
        &[
            (Input::Begin, 0, &[], STREAM),
            (Input::Opened, 0, &[], Next::Read),
            (object("1"), 0, &[StoreEffect::Collect], Next::Read),
            (failed(Cause::Silent), 60_000, &[StoreEffect::Discard], list(false, Page::First)),
        ],
    );
}

#[test]
fn a_stream_that_breaks_before_its_mark_begins_anew() {
    walk(
        State::new(true, false, Backoff::default()),
        &[
            (Input::Begin, 0, &[], STREAM),
            (Input::Opened, 0, &[], Next::Read),
            (object("1"), 0, &[StoreEffect::Collect], Next::Read),
            (failed(Cause::Lost), 0, &[StoreEffect::Discard], Next::Wait(FIRST_WAIT)),
            (Input::Elapsed, 900, &[], STREAM),
            (Input::Opened, 900, &[], Next::Read),
            (failed(Cause::Lost), 900, &[StoreEffect::Discard], Next::Wait(FIRST_WAIT * 2)),
            (Input::Elapsed, 3000, &[], STREAM),
            (Input::Opened, 3000, &[], Next::Read),
            // It may never do otherwise.
            (failed(Cause::Lost), 3000, &[StoreEffect::Discard], list(false, Page::First)),
        ],
    );
}

#[test]
fn a_stream_that_fails_is_followed_by_a_list_and_that_by_the_next_stream() {
    let wait = || Next::Wait(FIRST_WAIT);
    for cause in [Cause::Refused, Cause::Corrupt, Cause::Expired] {
        walk(
            State::new(true, false, Backoff::default()),
            &[
                (Input::Begin, 0, &[], STREAM),
                (failed(cause), 0, &[], list(false, Page::First)),
                (failed(Cause::Refused), 0, &[], wait()),
                (Input::Elapsed, 900, &[], STREAM),
                (Input::Opened, 900, &[], Next::Read),
                (object("3"), 900, &[StoreEffect::Collect], Next::Read),
                (failed(cause), 900, &[StoreEffect::Discard], list(false, Page::First)),
                (page("8", ""), 900, &[StoreEffect::Collect, commit("8")], WATCH),
            ],
        );
    }
    for events in [&[][..], &[object("3")]] {
        let mut state = walk(
            State::new(true, true, Backoff::default()),
            &[(Input::Begin, 0, &[], STREAM), (Input::Opened, 0, &[], Next::Read)],
        );
        for event in events {
            state = state.step(event.clone(), ms(0)).0;
        }
        walk(
            state,
            &[
                (Input::Ended, 0, &[StoreEffect::Discard], list(true, Page::First)),
                (failed(Cause::Lost), 0, &[], away(FIRST_WAIT)),
                (Input::Called, 900, &[], STREAM),
            ],
        );
    }
}

#[test]
fn a_stream_is_asked_for_again_if_the_server_is_busy_or_away() {
    let busy = Fault { cause: Cause::Refused, retry_after: Some(Duration::from_secs(7)) };
    let start = || walk(State::new(true, false, Backoff::default()), &[(Input::Begin, 0, &[], STREAM)]);
    let open = || walk(start(), &[(Input::Opened, 0, &[], Next::Read)]);
    for (state, on_store) in [(start(), &[][..]), (open(), &[StoreEffect::Discard])] {
        walk(
            state.clone(),
            &[(failed(Cause::Busy), 0, on_store, Next::Wait(FIRST_WAIT)), (Input::Elapsed, 900, &[], STREAM)],
        );
        let pause = Next::Wait(Duration::from_secs(7));
        walk(state, &[(Input::Failed(busy), 0, on_store, pause), (Input::Elapsed, 9000, &[], STREAM)]);
    }
    walk(
        start(),
        &[
            (failed(Cause::Lost), 0, &[], away(FIRST_WAIT)),
            (Input::Elapsed, 1000, &[], STREAM),
            (failed(Cause::Silent), 91_000, &[], away(FIRST_WAIT)),
            (Input::Elapsed, 93_000, &[], STREAM),
            (failed(Cause::Silent), 183_000, &[], away(FIRST_WAIT * 2)),
            (Input::Elapsed, 190_000, &[], STREAM),
            // It answers nobody who asks for a stream.
            (failed(Cause::Silent), 280_000, &[], list(false, Page::First)),
        ],
    );
}

#[test]
fn pauses_grow_while_streams_and_the_lists_in_their_place_fail_by_turns() {
    for stream in [Cause::Lost, Cause::Expired] {
        for in_its_place in [Cause::Busy, Cause::Refused] {
            let mut state = State::new(true, false, Backoff::default());
            (state, _) = state.step(Input::Begin, Duration::ZERO);
            let (mut now, mut longest) = (Duration::ZERO, Duration::ZERO);
            for _ in 0..10 {
                let mut effects;
                (state, effects) = state.step(failed(stream), now);
                if effects.next == list(false, Page::First) || effects.next == list(true, Page::First) {
                    (state, effects) = state.step(failed(in_its_place), now);
                }
                let (Next::Wait(pause) | Next::Await { pause, .. }) = effects.next else {
                    panic!("{stream:?}, {in_its_place:?}: {effects:?}");
                };
                assert!(pause >= longest, "{stream:?}, {in_its_place:?}: {pause:?} after {longest:?}");
                (now, longest) = (now + pause, pause);
                (state, _) = state.step(Input::Elapsed, now);
            }
            assert!(longest >= Duration::from_secs(25), "{stream:?}, {in_its_place:?}: {longest:?}");
        }
    }
}

#[test]
fn a_page_that_fails_is_asked_again_and_an_expired_token_asks_for_all() {
    walk(
        State::new(false, false, Backoff::default()),
        &[
            (Input::Begin, 0, &[], list(false, Page::First)),
            (page("8", "t1"), 0, &[StoreEffect::Collect], list(false, Page::Next("t1".into()))),
            (failed(Cause::Lost), 0, &[], away(FIRST_WAIT)),
            (Input::Elapsed, 900, &[], list(false, Page::Next("t1".into()))),
            (failed(Cause::Expired), 900, &[StoreEffect::Discard], list(true, Page::Whole)),
            (page("12", ""), 3000, &[StoreEffect::Collect, commit("12")], WATCH),
        ],
    );
}

#[test]
fn a_clean_end_goes_on_from_the_last_version_and_never_lists() {
    let state = walk(
        watching(),
        &[
            (object("11"), 1, &[StoreEffect::Apply], Next::Read),
            (Input::Ended, 300_000, &[], WATCH),
            (Input::Opened, 300_000, &[], Next::Read),
            (Input::Ended, 700_000, &[], WATCH),
        ],
    );
    assert_eq!(state.position(), "11");
}

#[test]
fn watches_that_end_at_once_back_off() {
    walk(
        watching(),
        &[
            (Input::Ended, 100, &[], WATCH),
            (Input::Opened, 100, &[], Next::Read),
            (Input::Ended, 101, &[], Next::Wait(FIRST_WAIT)),
            (Input::Elapsed, 1000, &[], WATCH),
            (Input::Opened, 1000, &[], Next::Read),
            (Input::Ended, 1001, &[], Next::Wait(FIRST_WAIT * 2)),
            (Input::Elapsed, 3000, &[], WATCH),
            (Input::Opened, 3000, &[], Next::Read),
            // What brought something new is no repetition.
            (object("11"), 3000, &[StoreEffect::Apply], Next::Read),
            (Input::Ended, 3001, &[], Next::Wait(FIRST_WAIT)),
        ],
    );
}

#[test]
fn an_expired_version_lists_the_newest_state_either_way() {
    for at_opening in [true, false] {
        let mut state = watching();
        if at_opening {
            state = walk(state, &[(Input::Ended, 300_000, &[], WATCH)]);
        }
        let state = walk(
            state,
            &[
                (failed(Cause::Expired), 300_000, &[StoreEffect::Discard], STREAM),
                (Input::Opened, 300_000, &[], Next::Read),
                (bookmark("50", true), 300_000, &[commit("50")], Next::Read),
                // A second one soon after is no accident.
                (failed(Cause::Expired), 300_001, &[StoreEffect::Discard], Next::Wait(FIRST_WAIT)),
            ],
        );
        assert_eq!(state.position(), "");
    }
}

#[test]
fn a_server_that_is_back_is_not_waited_for_as_one_that_is_away() {
    let state = walk(
        watching(),
        &[
            (failed(Cause::Lost), 1000, &[], WATCH),
            (failed(Cause::Lost), 1000, &[], away(FIRST_WAIT)),
            (Input::Elapsed, 2000, &[], WATCH),
            (failed(Cause::Lost), 2000, &[], away(FIRST_WAIT * 2)),
            (Input::Elapsed, 4000, &[], WATCH),
            // It does not know its roles yet.
            (failed(Cause::Refused), 4000, &[], Next::Wait(FIRST_WAIT)),
            (Input::Elapsed, 5000, &[], WATCH),
            (failed(Cause::Refused), 5000, &[], Next::Wait(FIRST_WAIT * 2)),
            (Input::Elapsed, 7000, &[], WATCH),
            (failed(Cause::Expired), 7000, &[StoreEffect::Discard], STREAM),
            // That it expires again has nothing to do with the outage.
            (Input::Opened, 7000, &[], Next::Read),
            (bookmark("50", true), 7000, &[commit("50")], Next::Read),
            (failed(Cause::Expired), 7001, &[StoreEffect::Discard], Next::Wait(FIRST_WAIT)),
        ],
    );
    assert_eq!(state.position(), "");
}

#[test]
fn a_call_ends_the_wait_and_the_backoff_goes_on_if_it_was_in_vain() {
    let urgent = |pause, spread| Next::Await { pause: FIRST_WAIT * pause, spread: ms(spread) };
    walk(
        watching(),
        &[
            (failed(Cause::Lost), 1000, &[], WATCH),
            (failed(Cause::Lost), 1000, &[], urgent(1, 100)),
            (Input::Called, 1050, &[], WATCH),
            (failed(Cause::Lost), 1050, &[], urgent(2, 200)),
            (Input::Called, 1100, &[], WATCH),
            (failed(Cause::Lost), 1100, &[], urgent(4, 400)),
            (Input::Elapsed, 5000, &[], WATCH),
            (failed(Cause::Lost), 5000, &[], urgent(8, 400)),
            (Input::Called, 5100, &[], WATCH),
            (Input::Opened, 5100, &[], Next::Read),
            (object("11"), 5100, &[StoreEffect::Apply], Next::Read),
            // It was there, and what broke is this watch: nobody else's success says that it would last now.
            (failed(Cause::Lost), 5101, &[], Next::Wait(FIRST_WAIT)),
            (Input::Elapsed, 6000, &[], WATCH),
            (failed(Cause::Lost), 6000, &[], urgent(2, 100)),
        ],
    );
}

#[test]
fn many_watches_of_metadata_come_back_within_seconds_and_not_within_a_moment() {
    let state = watching().called_within(Duration::from_secs(2));
    let mut state = walk(state, &[(failed(Cause::Lost), 1000, &[], WATCH)]);
    let mut at = 1000;
    for (factor, spread) in [(1, 800), (2, 1600), (4, 2000), (8, 2000)] {
        let (after, effects) = state.step(failed(Cause::Lost), ms(at));
        assert_eq!(effects.next, Next::Await { pause: FIRST_WAIT * factor, spread: ms(spread) });
        at += 800 * u64::from(factor);
        state = after.step(Input::Elapsed, ms(at)).0;
    }
}

#[test]
fn calls_in_vain_end_up_no_more_urgent_than_the_backoff() {
    let mut state = walk(watching(), &[(failed(Cause::Lost), 1000, &[], WATCH)]);
    for _ in 0..20 {
        state = state.step(failed(Cause::Lost), ms(1000)).0.step(Input::Called, ms(1000)).0;
    }
    let longest = Duration::from_secs(30);
    walk(state, &[(failed(Cause::Lost), 1000, &[], Next::Await { pause: longest, spread: longest })]);
}

#[test]
fn a_return_is_counted_once_per_loss_and_not_missed_by_requests_under_way() {
    let reachability = Reachability::default();
    let is_called = |outages| reachability.back_since(outages).now_or_never().is_some();
    let first = reachability.outages();
    reachability.reached();
    assert!(!is_called(first), "it was never away");
    reachability.lost(first);
    assert!(!is_called(first));
    reachability.reached();
    assert!(is_called(first), "also whoever begins to wait only now");
    let second = reachability.outages();
    reachability.reached();
    assert!(!is_called(second), "it has come back once");
    reachability.lost(first);
    reachability.reached();
    assert!(!is_called(second), "the news was of the outage before");
    reachability.lost(second);
    reachability.reached();
    assert!(is_called(second));
}

#[test]
fn a_busy_server_is_given_the_time_it_asks_for() {
    let busy = |seconds| {
        Input::Failed(Fault { cause: Cause::Refused, retry_after: Some(Duration::from_secs(seconds)) })
    };
    walk(
        watching(),
        &[
            (Input::Ended, 300_000, &[], WATCH),
            (busy(7), 300_000, &[], Next::Wait(Duration::from_secs(7))),
            (Input::Elapsed, 310_000, &[], WATCH),
            (busy(86_400), 310_000, &[], Next::Wait(Duration::from_mins(2))),
            (Input::Elapsed, 430_000, &[], WATCH),
            (Input::Opened, 430_000, &[], Next::Read),
            (busy(9), 430_000, &[], Next::Wait(Duration::from_secs(9))),
        ],
    );
}

#[test]
fn an_event_that_cannot_be_got_past_makes_a_new_list() {
    walk(
        watching(),
        &[
            (failed(Cause::Corrupt), 10_000, &[], WATCH),
            (Input::Opened, 10_000, &[], Next::Read),
            (failed(Cause::Corrupt), 10_000, &[], Next::Wait(FIRST_WAIT)),
            (Input::Elapsed, 11_000, &[], WATCH),
            (Input::Opened, 11_000, &[], Next::Read),
            (failed(Cause::Corrupt), 11_000, &[StoreEffect::Discard], Next::Wait(FIRST_WAIT * 2)),
            (Input::Elapsed, 13_000, &[], STREAM),
        ],
    );
}

#[test]
fn an_outage_however_long_does_not_list() {
    let mut state = walk(watching(), &[(failed(Cause::Lost), 10_000, &[], WATCH)]);
    for at in 0..50 {
        let (after, effects) = state.step(failed(Cause::Lost), ms(10_000 + at * 60_000));
        assert!(matches!(effects.next, Next::Await { pause, .. } if pause <= Duration::from_secs(30)));
        let (after, effects) = after.step(Input::Elapsed, ms(10_000 + at * 60_000 + 50_000));
        assert_eq!(effects.next, WATCH);
        state = after;
    }
    assert_eq!(state.position(), "10");
}

#[test]
fn a_store_that_holds_something_is_not_taken_back_in_time() {
    walk(State::new(false, true, Backoff::default()), &[(Input::Begin, 0, &[], list(true, Page::First))]);
}

#[test]
fn backoff_doubles_to_a_limit_and_forgives_after_two_minutes() {
    let mut backoff = Backoff::default();
    let waits: Vec<_> = (0..8).map(|_| backoff.fail(ms(0)).as_millis()).collect();
    assert_eq!(waits, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    backoff.well(ms(1000));
    assert_eq!(backoff.fail(ms(60_000)), Duration::from_secs(30));
    backoff.well(ms(61_000));
    assert_eq!(backoff.fail(ms(181_000)), FIRST_WAIT);
}

fn arbitrary_input() -> impl Strategy<Value = Input> {
    let cause = prop::sample::select(vec![
        Cause::Expired,
        Cause::Rejected,
        Cause::Busy,
        Cause::Refused,
        Cause::Lost,
        Cause::Silent,
        Cause::Corrupt,
    ]);
    prop_oneof![
        Just(Input::Begin),
        Just(Input::Elapsed),
        Just(Input::Called),
        Just(Input::Opened),
        Just(Input::Ended),
        ("[0-9]", "t?").prop_map(|(version, next)| page(&version, &next)),
        "[0-9]".prop_map(|version| object(&version)),
        ("[0-9]", any::<bool>()).prop_map(|(version, ends)| bookmark(&version, ends)),
        cause.prop_map(failed),
    ]
}

proptest! {
    /// Whatever happens, in whatever order: a watch is only asked for from a version that was committed or passed,
    /// the position is never ahead of what was handed to the store, and a snapshot is never mixed of two lists.
    #[test]
    fn no_input_leads_astray(stream: bool, inputs in prop::collection::vec((arbitrary_input(), 0_u64..200_000), 0..60)) {
        let (mut state, mut at) = (State::new(stream, false, Backoff::default()), 0);
        let mut told = String::new();
        let mut collecting_list = false;
        for (input, later) in inputs {
            at += later;
            let version = match &input {
                Input::Object { version } | Input::Bookmark { version, .. } | Input::Page { version, .. } => version.to_string(),
                _ => String::new(),
            };
            let (after, effects) = state.step(input, ms(at));
            for effect in &effects.on_store {
                match effect {
                    StoreEffect::Apply => told.clone_from(&version),
                    StoreEffect::Commit(at) | StoreEffect::Mark(at) => told = at.to_string(),
                    StoreEffect::Collect => collecting_list = true,
                    StoreEffect::Discard => collecting_list = false,
                }
                if matches!(effect, StoreEffect::Commit(_)) {
                    collecting_list = false;
                }
            }
            if let Next::Ask(Request::Watch) = effects.next {
                prop_assert!(!after.position().is_empty());
            }
            if !after.position().is_empty() {
                prop_assert_eq!(after.position().as_str(), told.as_str());
            }
            if let Next::Ask(Request::Stream | Request::List { page: Page::First | Page::Whole, .. }) = effects.next {
                prop_assert!(!collecting_list, "a new list begins with the remains of an old one");
            }
            state = after;
        }
    }

    /// However frames are cut into chunks, the same frames come out.
    #[test]
    fn frames_survive_any_cutting(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        cuts in prop::collection::vec(1_usize..200, 1..50),
    ) {
        let mut stream = BytesMut::new();
        for frame in &frames {
            stream.put_u32(frame.len() as u32);
            stream.extend_from_slice(frame);
        }
        let (mut stream, mut reader, mut got) = (stream.freeze(), Frames::default(), Vec::new());
        for cut in cuts.iter().cycle() {
            if stream.is_empty() {
                break;
            }
            reader.push(stream.split_to((*cut).min(stream.len())));
            while let Some(frame) = reader.next().unwrap() {
                got.push(frame.to_vec());
            }
        }
        prop_assert!(reader.is_at_boundary());
        prop_assert_eq!(got, frames);
    }
}

#[test]
fn a_frame_within_a_chunk_is_not_copied() {
    let chunk = Bytes::from_static(b"\0\0\0\x02ab\0\0\0\x01c\0\0");
    let mut frames = Frames::default();
    frames.push(chunk.clone());
    let first = frames.next().unwrap().unwrap();
    assert!(chunk.as_ptr_range().contains(&first.as_ptr()));
    assert_eq!(frames.next().unwrap().unwrap().as_ref(), b"c");
    assert_eq!(frames.next().unwrap(), None);
    assert!(!frames.is_at_boundary(), "two bytes of a length are waiting");
}

#[test]
fn an_unbelievable_length_is_an_error_before_anything_is_reserved() {
    let mut frames = Frames::default();
    frames.push(Bytes::copy_from_slice(&u32::try_from(MAX_FRAME + 1).unwrap().to_be_bytes()));
    assert!(frames.next().is_err());
}

/// Neither can be had by asking in the same way again: the next list is paged from the newest state, or comes whole.
#[test]
fn list_that_is_too_long_or_goes_on_at_a_name_that_is_too_long_is_asked_for_in_another_way() {
    let request = || "GET /api/v1/pods".to_owned();
    for error in [
        ApiError::TooLong { request: request(), limit: 1 },
        ApiError::Unaddressable { request: request(), what: "it is too long".to_owned() },
    ] {
        assert_eq!(cause_of(&error), Cause::Expired);
    }
}
