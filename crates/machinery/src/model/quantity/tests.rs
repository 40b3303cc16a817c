//! What amounts are written like, which was observed of the original, and properties of their arithmetic.

use proptest::prelude::*;

use super::{Quantity, QuantityFormat, UNIT};

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn amounts_are_written_in_canonical_form() {
    for (read, written) in [
        ("0", "0"),
        ("-0", "0"),
        ("0Gi", "0"),
        // A text without digits.
        ("Gi", "0"),
        ("-m", "0"),
        (".", "0"),
        ("+", "0"),
        ("e3", "0"),
        ("E-9", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("-1", "-1"),
        ("1.", "1"),
        (".5", "500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.1", "100m"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("1500000k", "1500M"),
        ("100E", "100E"),
        ("1000E", "1000E"),
        ("999999999E", "999999999E"),
        ("5n", "5n"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        ("1Ki", "1Ki"),
        ("1023", "1023"),
        ("0.5Ki", "512"),
        ("1024Mi", "1Gi"),
        ("1025Ki", "1025Ki"),
        ("1.5Gi", "1536Mi"),
        ("4.019582305385217664784Ei", "4634262879415783816256264971n"),
        ("-2048Ki", "-2Mi"),
        ("1.1Mi", "1153433600m"),
        ("1Ei", "1Ei"),
        ("7Ei", "7Ei"),
        ("8191Pi", "8191Pi"),
        ("1024Ei", "9223372036854775807"),
        ("-8Ei", "-9223372036854775807"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1e-3", "1e-3"),
        ("1.25e3", "1250"),
        ("12e17", "1200e15"),
        ("3e6", "3e6"),
        ("1e25", "10e24"),
        ("123456789012345678", "123456789012345678"),
    ] {
        assert_eq!(quantity(read).to_string(), written, "{read}");
    }
}

#[test]
fn other_texts_are_no_amounts() {
    for text in [
        "", "1 ", " 1", "1.2.3", "1Zi", "1KI", "1K", "0x1", "1e", "e", "1e1.5", "--1", "-+", "1ee3", "..",
        "Pi", "-Ei", "e-10", "one",
    ] {
        let error = text.parse::<Quantity>().expect_err(text);
        assert_eq!(error.to_string(), format!("{text:?} is not a quantity"));
    }
}

#[test]
fn a_sum_is_written_like_its_first_part() {
    for (parts, sum) in [
        (&["1Gi", "1G"][..], "2073741824"),
        (&["1Gi", "1e9"], "2073741824"),
        (&["1e9", "1G"], "2e9"),
        (&["500m", "500m"], "1"),
        (&["1023Mi", "1Mi"], "1Gi"),
        (&["8E", "8E"], "16E"),
        (&["1m", "1Gi"], "1073741824001m"),
        (&["0", "1Gi", "1Gi"], "2Gi"),
        (&["1G", "5Mi"], "1005242880"),
    ] {
        let total = parts.iter().fold(Quantity::ZERO, |total, part| total.plus(quantity(part)));
        assert_eq!(total.to_string(), sum, "{parts:?}");
    }
}

#[test]
fn a_difference_is_written_like_its_first_part_that_is_not_zero() {
    for (from, less, rest) in
        [("3Gi", "1G", "2221225472"), ("0Mi", "1G", "-1G"), ("0", "2048", "-2048"), ("0", "2Ki", "-2Ki")]
    {
        assert_eq!(quantity(from).minus(quantity(less)).to_string(), rest, "{from} {less}");
    }
}

#[test]
fn the_largest_stays_the_largest() {
    for text in ["1e30", "999999999999999999999999999999999999999999999", "1e2147483647", "9e99"] {
        let largest = quantity(text);
        assert_eq!(largest.billionths, i128::MAX, "{text}");
        assert!(largest.plus(largest).equals(largest));
        assert!(largest.rounded_up().equals(largest));
        assert!(!largest.to_string().is_empty());
    }
    assert_eq!(quantity("1e-2147483648").to_string(), "1e-9");
    assert!(Quantity::count(i128::MIN).minus(Quantity::count(1)).to_string().starts_with('-'));
}

#[test]
fn amounts_are_rounded_to_whole_units_away_from_zero() {
    for (amount, rounded) in [("1500m", "2"), ("-1500m", "-2"), ("2", "2"), ("0", "0"), ("1.1Mi", "1153434")]
    {
        assert_eq!(quantity(amount).rounded_up().to_string(), rounded);
    }
}

#[test]
fn thousandths_are_rounded_up() {
    for (text, thousandths) in [
        ("64", 64_000),
        ("3920m", 3920),
        ("0.5", 500),
        ("1500u", 2),
        ("100n", 1),
        ("2k", 2_000_000),
        ("1Ki", 1_024_000),
        ("1e3", 1_000_000),
        ("0", 0),
        ("-1500m", 0),
        ("1e27", u64::MAX),
    ] {
        assert_eq!(quantity(text).thousandths(), thousandths, "{text}");
    }
}

#[test]
fn the_larger_and_the_smaller_of_two() {
    let (small, large) = (quantity("900m"), quantity("1"));
    assert_eq!((small.or_more(large), large.or_more(small)), (large, large));
    assert_eq!((small.or_less(large), large.or_less(small)), (small, small));
    assert!(large.exceeds(small) && !small.exceeds(large) && !large.exceeds(quantity("1e0")));
    assert!(quantity("1024").equals(quantity("1Ki")) && quantity("1024") != quantity("1Ki"));
    assert!(
        large.minus(small).equals(quantity("100m"))
            && small.is_positive()
            && !small.minus(large).is_positive()
    );
}

fn amounts() -> impl Strategy<Value = Quantity> {
    let format = prop_oneof![
        Just(QuantityFormat::Binary),
        Just(QuantityFormat::Decimal),
        Just(QuantityFormat::Exponent)
    ];
    let billionths = prop_oneof![
        any::<i128>(),
        any::<i64>().prop_map(i128::from),
        any::<i32>().prop_map(|units| i128::from(units) * UNIT),
        (any::<i16>(), 0_u32..60).prop_map(|(number, power)| (i128::from(number) * UNIT) << power),
    ];
    (billionths, format).prop_map(|(billionths, format)| Quantity { billionths, format })
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_the_same_amount(amount in amounts()) {
        // Amounts with binary suffixes end at 64 bits.
        prop_assume!(amount.format != QuantityFormat::Binary || (amount.billionths / UNIT).abs() < i64::MAX.into());
        let read = quantity(&amount.to_string());
        prop_assert!(read.equals(amount), "{amount} {read}");
        // And it is in canonical form already, unless it took no suffix where a decimal one would have done.
        if amount.format != QuantityFormat::Binary {
            prop_assert_eq!(read.to_string(), amount.to_string());
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[-+]?[0-9]{0,50}[.]?[0-9]{0,50}([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{0,11}|.{0,4})") {
        if let Ok(amount) = text.parse::<Quantity>() {
            prop_assert!(amount.rounded_up().plus(amount).minus(amount).to_string().len() < 60);
        }
    }

    #[test]
    fn any_text_at_all_is_survived(text in ".{0,20}") {
        let _ = text.parse::<Quantity>();
    }

    #[test]
    fn sums_do_not_hang_on_the_order(parts in proptest::collection::vec(any::<i64>(), 0..20)) {
        let sum = |parts: &mut dyn Iterator<Item = &i64>| {
            parts.fold(Quantity::ZERO, |sum, part| sum.plus(Quantity::count(*part)))
        };
        let (forwards, backwards) = (sum(&mut parts.iter()), sum(&mut parts.iter().rev()));
        prop_assert!(forwards.equals(backwards));
        let exact: i128 = parts.iter().map(|part| i128::from(*part)).sum();
        prop_assert!(forwards.equals(Quantity::count(exact)));
    }

    #[test]
    fn rounding_up_adds_less_than_a_unit(amount in any::<i64>()) {
        let amount = Quantity { billionths: amount.into(), format: QuantityFormat::Decimal };
        let added = amount.rounded_up().billionths - amount.billionths;
        prop_assert!(added.abs() < UNIT && added * amount.billionths >= 0);
        prop_assert_eq!(amount.rounded_up().billionths % UNIT, 0);
    }
}

#[test]
fn thousandths_are_rounded_away_from_zero_and_read_back() {
    let milli = |text: &str| text.parse::<Quantity>().unwrap().milli();
    for (text, thousandths) in
        [("1", 1000), ("1500u", 2), ("-1500u", -2), ("0", 0), ("1Ki", 1_024_000), ("-3", -3000)]
    {
        assert_eq!(milli(text), thousandths, "{text}");
    }
    assert_eq!((milli("9E"), milli("10000E"), milli("-1e30")), (i64::MAX, i64::MAX, i64::MIN));
    let written = |thousandths, format| Quantity::from_milli(thousandths, format).to_string();
    assert_eq!(written(1500, QuantityFormat::Decimal), "1500m");
    assert_eq!(written(1_024_000, QuantityFormat::Binary), "1Ki");
    assert_eq!(written(1_024_500, QuantityFormat::Binary), "1024500m");
    assert!(("250m".parse::<Quantity>().unwrap().to_f64() - 0.25).abs() < f64::EPSILON);
}
