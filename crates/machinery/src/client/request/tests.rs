//! Requests reach the object that the caller means, for any name.

use http::HeaderValue;
use percent_encoding::percent_decode_str;
use proptest::prelude::*;

use super::*;
use crate::api::kinds::{CLUSTER_ROLES, CONFIG_MAPS, PODS};
use crate::model::names::is_addressable;
use crate::wire::text::held_text;

fn sent(intent: RequestIntent, path: RequestPath<'_>, query: &Query<'_>) -> Result<ApiRequest, ApiError> {
    build(intent, &(path, query).into(), HeaderValue::from_static("*/*"), None).map(|(_, request)| request)
}

fn uri(path: RequestPath<'_>) -> String {
    sent(RequestIntent::Get, path, Query::NONE).unwrap().uri().to_string()
}

fn what(path: RequestPath<'_>) -> String {
    match sent(RequestIntent::Delete, path, Query::NONE) {
        Err(ApiError::Unaddressable { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

/// The segments of a request's path, decoded.
fn segments(request: &ApiRequest) -> Vec<String> {
    let decode = |segment: &str| percent_decode_str(segment).decode_utf8().unwrap().into_owned();
    request.uri().path().split('/').skip(1).map(decode).collect()
}

#[test]
fn paths_follow_the_api() {
    let metrics = RequestPath::group_version("custom.metrics.k8s.io", "v1beta2").in_namespace("ns");
    for (path, expected) in [
        (RequestPath::object(&PODS, "default", "web"), "/api/v1/namespaces/default/pods/web"),
        (RequestPath::collection(&PODS, ""), "/api/v1/pods"),
        (
            RequestPath::object(&CLUSTER_ROLES, "ignored", "team#1"),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/team%231",
        ),
        (
            RequestPath::object(&PODS, "default", "?watch=true&timeoutSeconds=31536000")
                .subresource(Some("status")),
            "/api/v1/namespaces/default/pods/%3Fwatch=true&timeoutSeconds=31536000/status",
        ),
        (RequestPath::group_version("", "v1"), "/api/v1"),
        (RequestPath::group_version("apps", "v1"), "/apis/apps/v1"),
        (
            metrics.series(&["pods", "*", "requests per second"]),
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/pods/%2A/requests%20per%20second",
        ),
        (RequestPath::openapi_document("/openapi/v3/apis/apps/v1"), "/openapi/v3/apis/apps/v1"),
        (RequestPath::HEALTHZ, "/healthz"),
    ] {
        assert_eq!(uri(path), expected);
    }
}

#[test]
fn name_of_any_bytes_is_sent_as_its_bytes() {
    for (name, expected) in
        [(&b"a\xff"[..], "a%FF"), (b"\xed\xa0\x80", "%ED%A0%80"), ("\u{10ffff}".as_bytes(), "%F4%8F%BF%BF")]
    {
        let held = held_text(name);
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        assert_eq!(uri(RequestPath::object(&CLUSTER_ROLES, "", &held)), format!("{roles}/{expected}"));
        let selector = FieldSelector::name(&held);
        let query = Query::default().with("fieldSelector", selector.as_str());
        let list = sent(RequestIntent::List, RequestPath::collection(&CLUSTER_ROLES, ""), &query).unwrap();
        let query = format!("fieldSelector=metadata.name%3D{expected}");
        assert_eq!(list.uri().query(), Some(query.as_str()));
    }
    assert_eq!(
        what(RequestPath::object(&CONFIG_MAPS, "ns", &held_text(b"\xff/"))),
        "invalid resource name \"\u{fffd}/\": [may not contain '/']"
    );
}

#[test]
fn segment_that_would_change_the_structure_is_refused() {
    for (name, expected) in [
        ("", "resource name may not be empty"),
        (".", "invalid resource name \".\": [may not be '.']"),
        ("..", "invalid resource name \"..\": [may not be '..']"),
        ("a/b", "invalid resource name \"a/b\": [may not contain '/']"),
        ("100%", "invalid resource name \"100%\": [may not contain '%']"),
        ("/%", "invalid resource name \"/%\": [may not contain '/' may not contain '%']"),
    ] {
        assert_eq!(what(RequestPath::object(&CONFIG_MAPS, "ns", name)), expected);
    }
    assert_eq!(uri(RequestPath::object(&CONFIG_MAPS, "ns", "...")), "/api/v1/namespaces/ns/configmaps/...");
    let namespace = what(RequestPath::object(&CONFIG_MAPS, "..", "a"));
    assert_eq!(namespace, "invalid namespace \"..\": [may not be '..']");
    assert_eq!(what(RequestPath::group_version("a/b", "v1")), "invalid group \"a/b\": [may not contain '/']");
    let series = RequestPath::group_version("external.metrics.k8s.io", "v1beta1").in_namespace("ns");
    assert_eq!(what(series.series(&["a/b"])), "invalid resource \"a/b\": [may not contain '/']");
    for document in ["/api/v1/namespaces/a/secrets/b", "/openapi/v3/../../api", "/openapi/v3", "/openapi/v3/"]
    {
        what(RequestPath::openapi_document(document));
    }
}

#[test]
fn error_of_an_illegal_name_names_the_object_and_is_final() {
    let error =
        sent(RequestIntent::Get, RequestPath::object(&CONFIG_MAPS, "mine", ".."), Query::NONE).unwrap_err();
    let what = "invalid resource name \"..\": [may not be '..']";
    assert_eq!(error.to_string(), format!("GET /api/v1/namespaces/mine/configmaps/..: {what}"));
    assert_eq!((error.message().as_str(), error.code()), (what, 0));
    assert!(error.is_unaddressable() && !error.is_ambiguous());
    assert!(!error.is_not_found() && !error.is_object_not_found());
}

#[test]
fn uri_that_is_too_long_is_refused() {
    // Shorter URIs leave room for the path of the server's address, which is added to them.
    for name in ["a".repeat(70_000), "a".repeat(62_000), "a/".repeat(500_000), "#".repeat(30_000)] {
        let path = RequestPath::object(&CONFIG_MAPS, "ns", &name);
        let error = sent(RequestIntent::Get, path, Query::NONE).unwrap_err();
        assert!(error.is_unaddressable());
        assert!(error.to_string().len() < 3000, "{}", error.to_string().len());
    }
}

#[test]
fn uri_of_a_read_has_its_group_and_its_path() {
    let path = RequestPath::group_version("metrics.k8s.io", "v1beta1").in_namespace("ns").resource("pods");
    let read = path.uri(&Query::default().with("labelSelector", "a=b,c")).unwrap();
    assert_eq!(read.as_str(), "/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods?labelSelector=a%3Db%2Cc");
    assert_eq!(read.path(), "/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods");
    assert_eq!(read.group(), "metrics.k8s.io");
    assert_eq!(RequestPath::object(&PODS, "ns", "a").uri(Query::NONE).unwrap().group(), "");
    let (label, request) =
        build(RequestIntent::Get, &Target::Uri(&read), HeaderValue::from_static("*/*"), None).unwrap();
    assert_eq!(
        (label.as_str(), request.uri().to_string().as_str()),
        (&*format!("GET {}", read.path()), read.as_str())
    );
    assert_eq!(RequestUri::openapi_index().as_str(), "/openapi/v3");
    // A user chooses the selector and the number of metrics, so a URI that no request can have is not built.
    let selector = "a".repeat(70_000);
    let error = path.uri(&Query::default().with("labelSelector", &selector)).unwrap_err();
    assert_eq!(error.to_string(), "the request URI has more than 61440 bytes");
}

#[test]
fn field_selector_escapes_its_value() {
    for (name, expected) in [
        ("web", "metadata.name=web"),
        ("a,b", r"metadata.name=a\,b"),
        ("a=b", r"metadata.name=a\=b"),
        (r"a\b", r"metadata.name=a\\b"),
        (r"\,=", r"metadata.name=\\\,\="),
    ] {
        assert_eq!(FieldSelector::name(name).as_str(), expected);
    }
    assert_eq!(FieldSelector::fixed("status.phase!=Failed").as_str(), "status.phase!=Failed");
}

#[test]
fn request_without_an_intent_is_the_most_bounded_one() {
    let request = ApiRequest::default();
    assert_eq!(RequestIntent::of(&request), RequestIntent::Get);
    assert!(!RequestIntent::of(&request).is_watch());
    assert_eq!(RequestIntent::of(&request).body_limit(), LONGEST_OBJECT);
}

const INTENTS: [RequestIntent; 10] = [
    RequestIntent::Get,
    RequestIntent::List,
    RequestIntent::Find,
    RequestIntent::Watch,
    RequestIntent::Document,
    RequestIntent::Create,
    RequestIntent::Update,
    RequestIntent::Patch,
    RequestIntent::Delete,
    RequestIntent::DeleteCollection,
];

/// Any text, and often such that means something in a URI.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[-a-z?#&=+ ;:@!$'()*,.\\\\\"<>{}|^`~\u{0}\n\u{7f}é]{0,12}", "[ -~]{0,12}"]
}

proptest! {
    #[test]
    fn any_name_arrives_as_it_is(
        namespace in text(), name in text(), value in text(), at in 0..INTENTS.len(), subresource: bool,
    ) {
        let intent = INTENTS[at];
        let subresource = subresource.then_some("status");
        let held = |text: &str| held_text(text.as_bytes()).into_owned();
        let [held_namespace, held_name, held_value] = [&namespace, &name, &value].map(|text| held(text));
        let path = RequestPath::object(&CONFIG_MAPS, &held_namespace, &held_name).subresource(subresource);
        let query = Query::default().with("fieldSelector", held_value).with("limit", "1");
        let is_legal = is_addressable(&name) && (namespace.is_empty() || is_addressable(&namespace));
        match sent(intent, path, &query) {
            Err(error) => prop_assert!(error.is_unaddressable() && !is_legal, "{error}"),
            Ok(request) => {
                prop_assert!(is_legal);
                let mut expected = vec!["api", "v1"];
                if !namespace.is_empty() {
                    expected.extend(["namespaces", namespace.as_str()]);
                }
                expected.extend(["configmaps", name.as_str()]);
                expected.extend(subresource);
                prop_assert_eq!(segments(&request), expected);
                let pairs = form_urlencoded::parse(request.uri().query().unwrap().as_bytes());
                let pairs: Vec<_> = pairs.into_owned().collect();
                let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
                prop_assert_eq!(pairs, [pair("fieldSelector", &value), pair("limit", "1")]);
                prop_assert_eq!(RequestIntent::of(&request), intent);
                prop_assert_eq!(request.method(), &intent.method());
                let Purpose { layout, .. } = request.extensions().get::<Purpose>().unwrap();
                let part = layout.name.unwrap().of(request.uri().path());
                prop_assert_eq!(percent_decode_str(part).decode_utf8().unwrap(), name);
            }
        }
    }
}
