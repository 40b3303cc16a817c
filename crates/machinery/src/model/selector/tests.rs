//! Texts and label selectors, the labels that they match, and their errors.

use super::*;
use crate::api::meta::LabelSelectorRequirement;

#[test]
fn a_text_is_compiled_and_written_again() {
    for (text, again) in [
        ("", ""),
        ("app=web", "app=web"),
        (" app == web , tier in (a, b) ,!old,x notin (c)", "app=web,tier in (a,b),!old,x notin (c)"),
        ("app!=web", "app notin (web)"),
        ("example.com/a.b_c-d", "example.com/a.b_c-d"),
        ("inner=notin", "inner=notin"),
        ("empty=,rest", "empty=,rest"),
        ("size > 3,size<05,a in ( )", "size>3,size<5,a="),
        (" \t", ""),
        ("a=\0b\0,\0c,d\0", "a=b,c,d"),
        ("\0a", ""),
    ] {
        assert_eq!(Selector::parse(text).map(|held| held.to_string()).as_deref(), Ok(again), "{text}");
    }
    for text in [
        "=web",
        "app=web,",
        "app in (a",
        "app web",
        "app>x",
        "a in (b c)",
        "a=b c",
        "/a",
        "a=-b",
        "a>-1",
        "a>+1",
        "!a=b",
        "a===b",
        "a in b",
        ",",
        "!",
        "app=web)",
        "(",
        "a,,b",
    ] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_not_in_a_list_matches_where_the_label_is_absent() {
    let labels: Labels = [("app", "web")].into_iter().collect();
    for (text, matches) in [
        ("app", true),
        ("!app", false),
        ("app!=db", true),
        ("tier!=a", true),
        ("tier", false),
        ("app in (web,db)", true),
    ] {
        assert_eq!(Selector::parse(text).unwrap().matches(&labels), matches, "{text}");
    }
}

#[test]
fn keys_and_values_that_no_label_has_are_errors() {
    let compiled = |operator: &str, key: &str, values: &[&str]| {
        let values = values.iter().map(|value| Str::from(*value)).collect();
        let requirement = LabelSelectorRequirement { key: key.into(), operator: operator.into(), values };
        let selector =
            LabelSelector { match_expressions: vec![requirement].into(), ..LabelSelector::default() };
        Selector::compile(&selector).map(|selector| selector.to_string()).map_err(|error| error.to_string())
    };
    assert_eq!(compiled("NotIn", "app", &["web"]), Ok("app notin (web)".to_owned()));
    let error = |text: &str| Err(format!("invalid label selector: {text}"));
    assert_eq!(compiled("NotIn", "app", &["-web"]), error("invalid label value \"-web\""));
    assert_eq!(compiled("Exists", "-app", &[]), error("invalid label key \"-app\""));
    let labels =
        LabelSelector { match_labels: [("app", "a b")].into_iter().collect(), ..LabelSelector::default() };
    assert!(Selector::compile(&labels).is_err());
}

#[test]
fn a_long_selector_matches_what_all_of_its_requirements_match() {
    let parts = [
        "app",
        "app=web",
        "app in (web,db)",
        "app in (db,web,x)",
        "!old",
        "!older",
        "tier!=a",
        "tier notin (a,b)",
        "tier!=c",
        "size>3",
        "size<9",
    ];
    for text in [
        "app=web,size=5",
        "app=web,size=5,tier=d",
        "app=web,size=5,tier=d,a=b,c=d,e=f,g=h",
        "app=web,size=5,tier=b",
        "app=web,size=5,tier=c,a=b,c=d,e=f,g=h",
        "app=db,size=5",
        "app=web,size=2",
        "app=web",
        "size=5",
        "app=web,size=5,old=",
        "app=web,size=5,older=1,a=b,c=d,e=f,g=h",
        "",
    ] {
        let labels: Labels = text.split(',').filter_map(|pair| pair.split_once('=')).collect();
        let each = |part: &&str| Selector::parse(part).unwrap().matches(&labels);
        let long = Selector::parse(&parts.join(",")).unwrap();
        assert!(long.matcher.is_some());
        assert_eq!(long.matches(&labels), parts.iter().all(each), "{text}");
        // A label that is both needed and refused is nowhere.
        let none = Selector::parse(&format!("{},!app", parts.join(","))).unwrap();
        assert!(!none.matches(&labels), "{text}");
    }
}
