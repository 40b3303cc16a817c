//! Certificates that are read, and those that are not.

use super::fixtures::{Draft, element, extension, name_part};
use super::{Certificate, Malformed};

const KEY: &[u8] = &[0x30, 0];

fn issue(draft: &Draft) -> Vec<u8> {
    draft.sign(&name_part(3, 0x0c, b"ca"), |_| vec![1; 8])
}

#[test]
fn subject_value_any_tag_only_universal_primitive_strings_are_texts() {
    const STRINGS: [u8; 6] = [0x0c, 0x12, 0x13, 0x14, 0x16, 0x1e];
    for attribute in [3, 10, 100] {
        for tag in 0..=u8::MAX {
            let subject = [name_part(3, 0x0c, b"jane"), name_part(attribute, tag, b"12")].concat();
            let der = issue(&Draft::new(KEY.to_vec(), subject));
            let read = Certificate::read(&der);
            assert_eq!(read.is_ok(), STRINGS.contains(&tag), "tag {tag:#04x} of 2.5.4.{attribute}: {read:?}");
        }
    }
}

#[test]
fn common_name_and_organizations_of_all_string_types_are_read() {
    let subject = [
        name_part(3, 0x0c, b"first"),
        name_part(10, 0x1e, b"\0d\0e\0v"),
        name_part(10, 0x14, b"caf\xe9"),
        name_part(3, 0x1e, b"\0j\0o\0e\0\0"),
    ];
    let der = issue(&Draft::new(KEY.to_vec(), subject.concat()));
    let cert = Certificate::read(&der).unwrap();
    assert_eq!(cert.subject.common_name(), "joe");
    assert_eq!(cert.subject.organizations().collect::<Vec<_>>(), ["dev", "café"]);
}

#[test]
fn name_with_characters_that_its_type_has_not_is_refused() {
    for (tag, value) in [(0x0c, &b"\xff"[..]), (0x13, b"a@b"), (0x16, b"\xe9"), (0x1e, b"\0"), (0x12, b"a")] {
        let draft = Draft::new(KEY.to_vec(), name_part(3, tag, value));
        let der = issue(&draft);
        assert_eq!(Certificate::read(&der).unwrap_err(), Malformed("subject"), "{tag:#04x} {value:?}");
    }
}

#[test]
fn version_1_has_no_extensions_and_version_2_is_refused() {
    let mut draft = Draft { version: None, ..Draft::new(KEY.to_vec(), name_part(3, 0x0c, b"jane")) };
    assert!(Certificate::read(&issue(&draft)).unwrap().is_version_1);
    draft.extensions = extension(19, true, &[0x30, 0]);
    assert!(Certificate::read(&issue(&draft)).is_err());
    draft.version = Some(2);
    assert!(!Certificate::read(&issue(&draft)).unwrap().is_version_1);
    for version in [0, 1, 3] {
        draft.version = Some(version);
        assert_eq!(Certificate::read(&issue(&draft)).unwrap_err(), Malformed("version"));
    }
}

#[test]
fn critical_extension_that_go_does_not_handle_is_noted() {
    let read = |extensions: Vec<u8>| {
        let draft = Draft { extensions, ..Draft::new(KEY.to_vec(), name_part(3, 0x0c, b"jane")) };
        let der = issue(&draft);
        Certificate::read(&der).map(|cert| cert.extensions.has_unknown)
    };
    let names = |tag: u8| element(0x30, &element(tag, b"n1"));
    let constraints = |tag: u8| element(0x30, &element(0xa0, &element(0x30, &element(tag, b"n1"))));
    for (number, value, expected) in [
        (99, vec![0x30, 0], true),
        (17, names(0x82), false),
        // Constructed, and another kind of name.
        (17, names(0xa2), true),
        (17, names(0x88), true),
        (30, constraints(0x82), false),
        (30, constraints(0xa4), true),
        (37, element(0x30, &[6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2]), false),
        (15, vec![3, 2, 5, 0xa0], false),
    ] {
        assert_eq!(read(extension(number, true, &value)), Ok(expected), "2.5.29.{number} {value:?}");
        // Constraints count in any case.
        let is_constraint = expected && number == 30;
        assert_eq!(read(extension(number, false, &value)), Ok(is_constraint), "2.5.29.{number} {value:?}");
    }
    let twice = [extension(15, true, &[3, 2, 5, 0xa0]), extension(15, true, &[3, 2, 5, 0xa0])].concat();
    assert!(read(twice).is_err());
}

#[test]
fn times_of_both_types_are_read() {
    let mut draft = Draft::new(KEY.to_vec(), name_part(3, 0x0c, b"jane"));
    draft.not_before = "19700101000001Z";
    draft.not_after = "20380119031408Z";
    let der = issue(&draft);
    let cert = Certificate::read(&der).unwrap();
    assert_eq!((cert.not_before, cert.not_after), (1, 1 << 31));
    for bad in
        ["20380119031408", "20380119031408+0000", "20381319031408Z", "2038011903140Z", "2038 119031408Z"]
    {
        draft.not_after = bad;
        assert_eq!(Certificate::read(&issue(&draft)).unwrap_err(), Malformed("validity"), "{bad}");
    }
}
