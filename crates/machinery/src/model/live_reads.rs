//! The rows of the table of live reads.
//!
//! A live read is a request in place of a look into a cache. Each one costs the API server and the rate limit of its controller, so each
//! has a row: when the controller makes it, and how often at most while nothing changes. A read cannot be made without a row: plans name
//! it in [`Verify`](super::plan::Verify), observations make their reads by `LiveRead::of`.

use std::fmt;

/// One live read of a controller.
#[derive(Debug, PartialEq, Eq)]
pub struct LiveRead {
    /// The name of the controller.
    pub controller: &'static str,
    /// A name that no other read of the controller has; the label of its counter.
    pub name: &'static str,
    /// The verb and the resource.
    pub request: &'static str,
    /// The condition under which the controller makes it.
    pub when: &'static str,
    /// Maximum number for one object in an hour in which nothing changes and no request fails.
    pub idle_per_hour: u32,
}

/// A row for tests of machinery.
#[cfg(any(test, feature = "testing"))]
pub static TEST_READ: LiveRead = LiveRead {
    controller: "test-controller",
    name: "test",
    request: "GET pods",
    when: "A test asks.",
    idle_per_hour: 0,
};

impl fmt::Display for LiveRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.controller, self.name)
    }
}

/// Declares the live reads of controllers, each as a static of its name, and `ALL` of them in order.
#[macro_export]
macro_rules! live_reads {
    ($($controller:literal { $($NAME:ident = ($name:literal, $request:literal, $idle:literal, $when:literal);)* })*) => {
        $($(
            #[doc = $when]
            pub static $NAME: $crate::model::live_reads::LiveRead = $crate::model::live_reads::LiveRead {
                controller: $controller,
                name: $name,
                request: $request,
                when: $when,
                idle_per_hour: $idle,
            };
        )*)*

        /// All rows, by controller.
        pub static ALL: &[&$crate::model::live_reads::LiveRead] = &[$($(&$NAME,)*)*];
    };
}
