//! What revisions hold, how they are named, and which are kept.

use proptest::prelude::*;

use super::document::tree;
use super::*;
use crate::model::template::Template;
use crate::wire::Time;
use crate::wire::splice::{Edit, edit, put_bytes, put_varint_field};

/// What the API server stores of a template with one container, all else defaulted.
const WEB: &str = r#"{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"web:1",
    "resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",
    "imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,
    "dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler"}}"#;

/// The document of [`WEB`] as the original writes it.
const WEB_DOCUMENT: &str = concat!(
    r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":["#,
    r#"{"image":"web:1","imagePullPolicy":"IfNotPresent","name":"web","resources":{},"#,
    r#""terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"#,
    r#""dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","#,
    r#""securityContext":{},"terminationGracePeriodSeconds":30}}}}"#
);

fn encoded(template: &str) -> Vec<u8> {
    template_of(format!(r#"{{"spec":{{"template":{template}}}}}"#).as_bytes()).unwrap()
}

fn document(template: &str) -> TemplateDocument {
    TemplateDocument::of(&encoded(template), Numbers::Doubles).unwrap()
}

/// The spec of the document of a template with this spec.
#[track_caller]
fn check_spec(spec: &str, expected: &str) {
    let document = document(&format!(r#"{{"spec":{spec}}}"#));
    let expected =
        format!(r#"{{"spec":{{"template":{{"$patch":"replace","metadata":{{}},"spec":{expected}}}}}}}"#);
    assert_eq!(document.as_str(), expected);
}

fn revision(name: &str, number: i64, created: i64) -> Arc<ControllerRevision> {
    Arc::new(ControllerRevision {
        metadata: ObjectMeta {
            name: name.into(),
            creation_timestamp: Time::from_seconds(created),
            ..ObjectMeta::default()
        },
        revision: number,
        ..ControllerRevision::default()
    })
}

fn names(revisions: &[Arc<ControllerRevision>]) -> Vec<&str> {
    revisions.iter().map(|revision| revision.metadata.name.as_str()).collect()
}

/// The names are those that the original gives.
#[test]
fn a_document_and_its_names_are_the_originals() {
    let document = document(WEB);
    assert_eq!(document.as_str(), WEB_DOCUMENT);
    assert_eq!([0, 1].map(|collisions| document.hash(collisions)), ["656b6d6c54", "656b6d6c55"]);
    assert_eq!(cut_name("web", "656b6d6c54"), "web-656b6d6c54");
    assert_eq!(cut_name(&"a".repeat(253), "1"), format!("{}-1", "a".repeat(223)));
    assert_eq!(name_that_fits("web", "656b6d6c54"), "web-656b6d6c54");
    assert_eq!(name_that_fits(&"a".repeat(251), "1"), format!("{}-1", "a".repeat(251)));
    assert_eq!(name_that_fits(&"a".repeat(253), "1"), format!("{}-1", "a".repeat(251)));
    let dotted = format!("{}.aa", "a".repeat(250));
    assert_eq!(name_that_fits(&dotted, "1"), format!("{}-1", "a".repeat(250)));
}

#[test]
fn label_of_a_revision_with_a_long_name_keeps_the_hash() {
    let named = |length: usize| format!("{}-656b6d6c54", "a".repeat(length));
    for (length, kept) in [(3, 3), (52, 52), (53, 52), (223, 52)] {
        assert_eq!(label_value(&named(length)), named(kept), "{length}");
    }
    assert_eq!(label_value(&"a".repeat(100)), "a".repeat(63), "name without a hash");
}

/// As a server encodes it: with all scalars that the API holds by value, zero or not.
#[test]
fn what_is_zero_and_held_by_value_is_left_out() {
    let mut container = Vec::new();
    for (number, text) in [(1, "c"), (2, ""), (5, ""), (13, ""), (14, ""), (20, "")] {
        put_bytes(&mut container, number, text.as_bytes());
    }
    put_bytes(&mut container, 8, &[]);
    for number in [16, 17, 18] {
        put_varint_field(&mut container, number, 0);
    }
    let mut spec = Vec::new();
    put_bytes(&mut spec, 2, &container);
    for number in [3, 6, 8, 9, 10, 16, 17, 19, 24] {
        put_bytes(&mut spec, number, &[]);
    }
    for number in [11, 12, 13] {
        put_varint_field(&mut spec, number, 0);
    }
    // These are held by pointers.
    put_varint_field(&mut spec, 4, 0);
    put_varint_field(&mut spec, 21, 0);
    put_bytes(&mut spec, 29, &[]);
    put_bytes(&mut spec, 18, &[]);
    let mut metadata = Vec::new();
    put_bytes(&mut metadata, 8, &[]);
    let mut template = Vec::new();
    put_bytes(&mut template, 1, &metadata);
    put_bytes(&mut template, 2, &spec);
    // And this is newer than the table.
    put_bytes(&mut template, 3, b"new");
    let expected = concat!(
        r#"{"spec":{"template":{"$patch":"replace","metadata":{},"spec":{"affinity":{},"#,
        r#""automountServiceAccountToken":false,"containers":[{"name":"c","resources":{}}],"#,
        r#""runtimeClassName":"","terminationGracePeriodSeconds":0}}}}"#
    );
    assert_eq!(TemplateDocument::of(&template, Numbers::Exact).unwrap().as_str(), expected);
}

#[test]
fn some_members_are_always_there() {
    check_spec("{}", r#"{"containers":null}"#);
    check_spec(
        r#"{"containers":[{"ports":[{}],"livenessProbe":{"grpc":{}},"lifecycle":{"preStop":{"sleep":{}}}}]}"#,
        concat!(
            r#"{"containers":[{"lifecycle":{"preStop":{"sleep":{"seconds":0}}},"#,
            r#""livenessProbe":{"grpc":{"port":0,"service":null}},"name":"","ports":[{"containerPort":0}],"#,
            r#""resources":{}}]}"#
        ),
    );
    check_spec(
        r#"{"containers":[],"volumes":[{"projected":{}},{"rbd":{}},{"ephemeral":{"volumeClaimTemplate":{}}}]}"#,
        concat!(
            r#"{"containers":null,"volumes":[{"name":"","projected":{"sources":null}},"#,
            r#"{"name":"","rbd":{"image":"","monitors":null}},"#,
            r#"{"ephemeral":{"volumeClaimTemplate":{"metadata":{},"spec":{"resources":{}}}},"name":""}]}"#
        ),
    );
    check_spec(
        r#"{"initContainers":[{"env":[{"valueFrom":{"resourceFieldRef":{}}},{"valueFrom":{"configMapKeyRef":
            {"name":"c"}}}]}]}"#,
        concat!(
            r#"{"containers":null,"initContainers":[{"env":[{"name":"","valueFrom":{"resourceFieldRef":"#,
            r#"{"divisor":"0","resource":""}}},{"name":"","valueFrom":{"configMapKeyRef":{"key":"","name":"c"}}}],"#,
            r#""name":"","resources":{}}]}"#
        ),
    );
}

#[test]
fn strings_are_escaped_as_for_web_pages() {
    check_spec(
        r#"{"hostname":"\" \\ \b \f \n \r \t \u0000 \u001f / \u007f < > & \u2028 \u2029 é"}"#,
        concat!(
            r#"{"containers":null,"hostname":"\" \\ \b \f \n \r \t \u0000 \u001f / "#,
            "\u{7f}",
            r#" \u003c \u003e \u0026 \u2028 \u2029 é"}"#
        ),
    );
    let broken = edit(&encoded("{}"), &[Edit::SetBytes(&[2, 16], b"a\xff\xe2\x82b".to_vec())]).unwrap();
    let members = tree(&broken).unwrap();
    assert_eq!(members["spec"]["hostname"], "a\u{fffd}\u{fffd}\u{fffd}b");
}

#[test]
fn large_numbers_are_doubles_in_one_kind() {
    for (number, exact, double) in [
        (30, "30", "30"),
        (-1, "-1", "-1"),
        (9_007_199_254_740_993, "9007199254740993", "9007199254740992"),
        (i64::MAX, "9223372036854775807", "9223372036854776000"),
    ] {
        let template = edit(&encoded("{}"), &[Edit::SetVarint(&[2, 4], number as u64)]).unwrap();
        for (numbers, expected) in [(Numbers::Exact, exact), (Numbers::Doubles, double)] {
            let document = TemplateDocument::of(&template, numbers).unwrap();
            let expected = format!(r#""terminationGracePeriodSeconds":{expected}}}"#);
            assert!(document.as_str().contains(&expected), "{} for {expected}", document.as_str());
        }
    }
    let back = template_of(
        document(r#"{"spec":{"priority":7,"activeDeadlineSeconds":9223372036854775807}}"#).as_bytes(),
    );
    assert_eq!(tree(&back.unwrap()).unwrap()["spec"]["activeDeadlineSeconds"], i64::MAX);
}

#[test]
fn a_document_that_holds_no_template_is_refused() {
    for (held, error) in [
        ("nothing", None),
        ("{}", Some(NotATemplate::Absent)),
        (r#"{"spec":{"template":null}}"#, Some(NotATemplate::Absent)),
        (
            r#"{"spec":{"template":{"spec":{"containers":7}}}}"#,
            Some(NotATemplate::Mismatch("PodSpec.containers".to_owned())),
        ),
        (
            r#"{"spec":{"template":{"spec":{"containers":[{"name":[]}]}}}}"#,
            Some(NotATemplate::Mismatch("Container.name".to_owned())),
        ),
    ] {
        let found = template_of(held.as_bytes());
        match error {
            Some(error) => assert_eq!(found, Err(error), "{held}"),
            None => assert!(matches!(found, Err(NotATemplate::NotJson(_))), "{held}"),
        }
    }
}

#[test]
fn a_member_of_tomorrow_is_passed_over_on_the_way_back() {
    let template = template_of(br#"{"spec":{"template":{"$patch":"replace","new":1,"spec":{"newer":{}}}}}"#);
    assert!(Template::new(&template.unwrap()).unwrap().is_same_as(&[0x12, 0]).unwrap());
}

/// What differs only by what the server fills in means the same; the oldest managers wrote a creation time of null.
#[test]
fn documents_mean_the_same_without_what_the_server_fills_in() {
    let web = document(WEB);
    let bare = r#"{"metadata":{"labels":{"app":"web"},"creationTimestamp":null},"spec":{"containers":[
        {"name":"web","image":"web:1"}]}}"#;
    let with = |from: &str, to: &str| {
        assert!(bare.contains(from), "{from}");
        bare.replace(from, to)
    };
    for (held, same) in [
        (bare.to_owned(), true),
        (WEB.to_owned(), true),
        (with("null", "null,\"tomorrow\":1"), true),
        (with("\"web:1\"", "\"web:1\",\"imagePullPolicy\":\"Always\""), false),
        (with("\"web:1\"", "\"web:2\""), false),
        (with("]}", "],\"securityContext\":{\"runAsUser\":0}}"), false),
        (with("]}", "],\"affinity\":{}}"), false),
        (with("]}", "],\"hostNetwork\":false}"), true),
        (with("]}", "],\"dnsPolicy\":\"Default\"}"), false),
    ] {
        let held = format!(r#"{{"spec":{{"template":{held}}}}}"#);
        assert_eq!(web.means_the_same_as(held.as_bytes()), same, "{held}");
    }
    assert!(!web.means_the_same_as(b"{}"));
}

#[test]
fn each_default_is_one() {
    for (spec, bare) in [
        (r#""volumes":[{"name":"v","emptyDir":{}}]"#, r#""volumes":[{"name":"v"}]"#),
        (
            r#""volumes":[{"name":"v","secret":{"secretName":"s","defaultMode":420}}]"#,
            r#""volumes":[{"name":"v","secret":{"secretName":"s"}}]"#,
        ),
        (
            r#""volumes":[{"name":"v","hostPath":{"path":"/","type":""}}]"#,
            r#""volumes":[{"name":"v","hostPath":{"path":"/"}}]"#,
        ),
        (
            r#""volumes":[{"name":"v","image":{"reference":"a:5000/b@sha256:0","pullPolicy":"IfNotPresent"}}]"#,
            r#""volumes":[{"name":"v","image":{"reference":"a:5000/b@sha256:0"}}]"#,
        ),
        (
            r#""volumes":[{"name":"v","image":{"reference":"a:5000/b","pullPolicy":"Always"}}]"#,
            r#""volumes":[{"name":"v","image":{"reference":"a:5000/b"}}]"#,
        ),
        (
            r#""initContainers":[{"name":"c","image":"b:latest","imagePullPolicy":"Always"}]"#,
            r#""initContainers":[{"name":"c","image":"b:latest"}]"#,
        ),
        (
            r#""initContainers":[{"name":"c","startupProbe":{"grpc":{"port":1,"service":""},"periodSeconds":10}}]"#,
            r#""initContainers":[{"name":"c","startupProbe":{"grpc":{"port":1}}}]"#,
        ),
        (
            r#""initContainers":[{"name":"c","resources":{"limits":{"cpu":"1m","memory":"1Ki"}}}]"#,
            r#""initContainers":[{"name":"c","resources":{"limits":{"cpu":"100u","memory":"1Ki"}}}]"#,
        ),
    ] {
        let of = |spec: &str| document(&format!(r#"{{"spec":{{{spec}}}}}"#));
        assert!(of(spec).means_the_same_as(of(bare).as_bytes()), "{spec}");
        assert!(of(bare).means_the_same_as(of(spec).as_bytes()), "{bare}");
        assert_ne!(of(bare), of(spec));
    }
}

#[test]
fn revisions_are_in_order_of_number_then_age_then_name() {
    let mut revisions = [revision("d", 2, 1), revision("c", 1, 9), revision("b", 1, 9), revision("a", 1, 10)];
    sort(&mut revisions);
    assert_eq!(names(&revisions), ["b", "c", "a", "d"]);
    assert_eq!(next_number(&revisions), 3);
    assert_eq!(next_number([]), 1);
}

#[test]
fn history_is_cut_from_its_old_end() {
    let old: Vec<_> = (1..=5).map(|number| revision(&format!("r{number}"), number, 1)).collect();
    let used = |names: &'static [&str]| {
        move |revision: &ControllerRevision| names.contains(&revision.metadata.name.as_str())
    };
    let nobody: &[&str] = &[];
    for (limit, counted, in_use, expected) in [
        (Some(3), Counted::Unused, nobody, vec!["r1", "r2"]),
        (Some(3), Counted::All, nobody, vec!["r1", "r2"]),
        (Some(3), Counted::Unused, &["r1", "r4"], vec![]),
        (Some(3), Counted::All, &["r1", "r4"], vec!["r2", "r3"]),
        (Some(0), Counted::Unused, &["r1", "r4"], vec!["r2", "r3", "r5"]),
        (Some(0), Counted::All, &["r1", "r2", "r3", "r4", "r5"], vec![]),
        (Some(-1), Counted::Unused, nobody, vec![]),
        (None, Counted::Unused, nobody, vec![]),
    ] {
        let surplus = surplus(&old, limit, counted, used(in_use));
        let names: Vec<_> = surplus.iter().map(|revision| revision.metadata.name.as_str()).collect();
        assert_eq!(names, expected, "{limit:?} {counted:?} {in_use:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = TemplateDocument::of(&bytes, Numbers::Doubles);
        let _ = template_of(&bytes);
    }

    /// The way to a document and back loses nothing that the document has.
    #[test]
    fn a_template_comes_back(labels in prop::collection::btree_map("[a-z]{1,8}", ".{0,8}", 0..4), grace in any::<i32>(), host in any::<bool>()) {
        let template = json!({"metadata": {"labels": labels}, "spec": {
            "terminationGracePeriodSeconds": grace, "hostNetwork": host, "affinity": {},
        }});
        let first = document(&template.to_string());
        let back = template_of(first.as_bytes()).unwrap();
        prop_assert_eq!(&TemplateDocument::of(&back, Numbers::Doubles).unwrap(), &first);
        prop_assert!(first.means_the_same_as(first.as_bytes()));
    }
}
