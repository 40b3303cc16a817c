//! What is read from flags and files.

use http::HeaderMap;
use proptest::prelude::*;

use crate::serve::answers::{RequestHints, percent_decode};

#[test]
fn paths_are_decoded_once() {
    let cases = [
        ("/healthz", Some("/healthz")),
        ("/hea%6Cthz", Some("/healthz")),
        ("/a%2fb", Some("/a/b")),
        ("/a%252fb", Some("/a%2fb")),
        ("/%c3%a9+", Some("/é+")),
        ("/%", None),
        ("/%2", None),
        ("/%zz", None),
        ("/%+1", None),
        ("/%ff", None),
    ];
    for (path, decoded) in cases {
        assert_eq!(percent_decode(path).as_deref(), decoded, "{path}");
    }
}

proptest! {
    #[test]
    fn decoding_never_panics_and_undoes_encoding(text in ".*", junk in "[%0-9a-gA-G]*") {
        let encoded = text.bytes().fold(String::new(), |encoded, byte| format!("{encoded}%{byte:02x}"));
        prop_assert_eq!(percent_decode(&encoded), Some(text));
        percent_decode(&junk);
    }
}

#[test]
fn hints_follow_the_agent_unless_the_query_says_otherwise() {
    let pretty = |agent: &'static str, query: Option<&str>| {
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", agent.parse().unwrap());
        format!("{:?}", RequestHints::of(&headers, query)).contains("true")
    };
    assert!(pretty("curl/8.1", None));
    assert!(pretty("Mozilla/5.0 (X11)", Some("a=b")));
    assert!(!pretty("Go-http-client/2.0", None));
    assert!(pretty("Go-http-client/2.0", Some("pretty=1")));
    assert!(!pretty("curl/8.1", Some("pretty=false")));
}
