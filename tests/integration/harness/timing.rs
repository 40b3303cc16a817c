//! How long tests take, and what of it they spend waiting for their turn and for control planes to start.
//!
//! With `COXSWAIN_TIMES=FILE` each test that uses the harness adds a line to that file when it ends (see
//! `scripts/integration.sh`); nothing is measured otherwise.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::thread;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use jiff::{SignedDuration, Timestamp};

/// Names the file.
const TIMES: &str = "COXSWAIN_TIMES";

thread_local! {
    /// The test of this thread. Each has a thread of its own, named after it, and ends with it.
    static TEST: RefCell<Option<Test>> = RefCell::new(Test::of_this_thread());
}

struct Test {
    name: String,
    began: Timestamp,
    waited: SignedDuration,
    planes: u32,
    starting: SignedDuration,
}

impl Test {
    fn of_this_thread() -> Option<Self> {
        std::env::var_os(TIMES)?;
        let name = thread::current().name().filter(|name| name.contains("::"))?.to_owned();
        let (waited, starting) = (SignedDuration::ZERO, SignedDuration::ZERO);
        Some(Self { name, began: SystemClock.now(), waited, planes: 0, starting })
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        let Some(file) = std::env::var_os(TIMES) else { return };
        let took = SystemClock.now().duration_since(self.began);
        let line = format!(
            "{:.1}\t{:.1}\t{}\t{:.1}\t{}\n",
            (took - self.waited).as_secs_f64(),
            self.waited.as_secs_f64(),
            self.planes,
            self.starting.as_secs_f64(),
            self.name,
        );
        // One write, so that lines of tests that end together stay apart. A time that is lost fails no test.
        if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(file) {
            drop(file.write_all(line.as_bytes()));
        }
    }
}

/// Lets the clock of this thread's test begin, if it has not yet.
pub(super) fn begin() {
    with(|_| {});
}

/// Counts the time until it is dropped as waiting for a turn.
pub(super) fn waits() -> impl Drop {
    Span { began: SystemClock.now(), count: |test, took| test.waited += took }
}

/// Counts the time until it is dropped as the start of a control plane.
pub(super) fn starts() -> impl Drop {
    let count = |test: &mut Test, took| {
        test.planes += 1;
        test.starting += took;
    };
    Span { began: SystemClock.now(), count }
}

struct Span {
    began: Timestamp,
    count: fn(&mut Test, SignedDuration),
}

impl Drop for Span {
    fn drop(&mut self) {
        let took = SystemClock.now().duration_since(self.began);
        with(|test| (self.count)(test, took));
    }
}

fn with(count: impl FnOnce(&mut Test)) {
    // A thread that is ending has no test any more.
    let _ = TEST.try_with(|test| {
        if let Some(test) = test.borrow_mut().as_mut() {
            count(test);
        }
    });
}
