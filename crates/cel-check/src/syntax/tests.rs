//! Trees, and what is no expression.

use super::{Id, Is, Tree};
use crate::report::{IssueKind, Limit};

/// The tree with all brackets, each node with its place.
fn written(tree: &Tree, id: Id) -> String {
    let node = tree.node(id);
    let parts: Vec<_> = tree.children(id).into_iter().map(|child| written(tree, child)).collect();
    let (at, parts) = (node.at, parts.join(" "));
    match &node.is {
        Is::Constant(_) => format!("{at}"),
        Is::Name(name) => format!("{name}@{at}"),
        Is::Select { field, test, .. } => format!("({parts} .{field}{}@{at})", if *test { "?" } else { "" }),
        Is::Call { function, .. } => format!("({function}@{at} {parts})"),
        Is::List(_) => format!("[@{at} {parts}]"),
        Is::Map(_) => format!("{{@{at} {parts}}}"),
        Is::Message { name, .. } => format!("({name}{{}}@{at} {parts})"),
        Is::Loop(of) => format!("(loop@{at} {} {parts})", of.variable),
    }
}

#[test]
fn operators_bind_as_the_grammar_says_and_know_their_places() {
    for (expression, tree) in [
        ("a + b * c - d", "(_-_@10 (_+_@2 a@0 (_*_@6 b@4 c@8)) d@12)"),
        ("a || b && c == d", "(_||_@2 a@0 (_&&_@7 b@5 (_==_@12 c@10 d@15)))"),
        ("a in b == c", "(_==_@7 (@in@2 a@0 b@5) c@10)"),
        ("a ? b : c ? d : e", "(_?_:_@2 a@0 b@4 (_?_:_@10 c@8 d@12 e@16))"),
        ("!a.b", "(!_@0 (a@1 .b@2))"),
        ("!!a", "a@2"),
        ("---a", "(-_@0 a@3)"),
        ("-1 - -1", "(_-_@3 0 5)"),
        ("--1", "2"),
        ("(a).b(c, d)[e]", "(_[_]@11 (b@5 c@6 d@9) e@12)"),
        ("a.?b[?c]", "(_[?_]@4 (_?._@1 a@0 3) c@6)"),
        ("[a, ?b,]", "[@0 a@1 b@5]"),
        ("{a: b, ?c: d}", "{@0 a@1 b@4 c@8 d@11}"),
        ("a.B{c: d}", "(a.B{}@3 d@7)"),
        ("has(a.b.c)", "((a@4 .b@5) .c?@3)"),
        ("'é' + a // b", "(_+_@4 0 a@6)"),
        ("r'\\' + \"\"\"a\n\"\"\"", "(_+_@5 0 7)"),
    ] {
        let parsed = Tree::parse(expression).unwrap_or_else(|found| panic!("{expression}: {found:?}"));
        let tree = if tree.contains("(b@5 c@6") {
            // A method's target is the first of its parts.
            tree.replace("(b@5 c@6", "(b@5 a@1 c@6")
        } else {
            tree.to_owned()
        };
        assert_eq!(written(&parsed, parsed.root), tree, "{expression}");
    }
}

#[test]
fn all_that_a_macro_adds_is_at_its_bracket() {
    let tree = Tree::parse("a.all(x, x)").expect("an expression");
    let written = written(&tree, tree.root);
    let expected = "(loop@5 x a@0 5 (@not_strictly_false@5 @result@5) (_&&_@5 @result@5 x@9) @result@5)";
    assert_eq!(written, expected);
}

#[test]
fn what_is_no_expression_is_refused_where_it_is_not() {
    for (expression, at, message) in [
        ("", 0, "mismatched input '<EOF>'"),
        ("1 +", 3, "mismatched input '<EOF>'"),
        ("a b", 2, "expecting <EOF>"),
        ("a.in", 2, "expecting IDENTIFIER"),
        ("'abc", 0, "token recognition error"),
        ("'a\nb'", 0, "token recognition error"),
        ("'\\z'", 1, "invalid escape"),
        ("a @ b", 2, "token recognition error at: '@'"),
        ("if", 0, "reserved identifier: if"),
        ("has(a)", 4, "invalid argument to has() macro"),
        ("a.all(b.c, d)", 7, "argument must be a simple name"),
        ("a.map(1, d)", 6, "argument is not an identifier"),
        ("a.all(b, b, c)", 9, "duplicate variable name: b"),
        ("99999999999999999999", 0, "invalid int literal"),
        ("!-a", 1, "mismatched input '-'"),
    ] {
        let found = Tree::parse(expression).expect_err(expression);
        assert_eq!((found.kind, found.at), (IssueKind::Syntax, at), "{expression}: {}", found.message);
        assert!(found.message.contains(message), "{expression}: {}", found.message);
    }
}

#[test]
fn depth_and_length_have_a_limit() {
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let chain = |length| format!("a{}", ".a".repeat(length));
    let sum = |length| format!("1{}", "+1".repeat(length));
    let choice = |length| format!("{}a", "a ? a : ".repeat(length));
    for (within, beyond) in [
        (nested(250), nested(252)),
        (chain(250), chain(251)),
        (sum(250), sum(251)),
        (choice(249), choice(250)),
    ] {
        assert!(Tree::parse(&within).is_ok(), "{within}");
        let found = Tree::parse(&beyond).expect_err(&beyond);
        assert_eq!(found.kind, IssueKind::Limit(Limit::Depth));
    }
    assert!(Tree::parse(&vec!["a"; 5000].join(" && ")).is_ok(), "logical operators are taken at once");
    let long = "a".repeat(100_001);
    let found = Tree::parse(&long).expect_err("too long");
    assert_eq!(found.kind, IssueKind::Limit(Limit::Length));
    assert_eq!(found.message, "expression code point size exceeds limit: size: 100001, limit 100000");
}
