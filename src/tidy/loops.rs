//! Rejects linear searches inside loops, and `for` loops inside `for` loops over another list, because users choose the length of both lists
//! and the cost is the product of the lengths.
//!
//! The law parses sources without types. It treats names with a declared set type as sets, and fields of the loop item as parts of the
//! item. It does not see a search in a function that a loop calls, or a search on a variable that the loop body binds. A justified search has a
//! comment `Linear:` with the reason at most 8 lines above.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Expr, Pat, Signature, Type};

use super::{CONTROLLERS, MACHINERY, complain, sources};

/// Machinery modules that run for each object. The law also covers all controllers.
const LOOKED_THROUGH: &[&str] = &["api", "events", "executor", "framework", "informer", "model", "queue"];

/// Methods that search linearly.
const SEARCHES: &[&str] = &["all", "any", "contains", "find", "find_map", "position", "rposition"];

/// Types in which a lookup takes no time in proportion to their size.
const SETS: &[&str] = &[
    "Among", "BTreeMap", "BTreeSet", "HashMap", "HashSet", "IndexMap", "IndexSet", "IpNet", "Ordinals",
    "Range", "Statuses",
];

/// Methods that call their closure once at most.
const ONCE: &[&str] = &[
    "and_then",
    "is_none_or",
    "is_ok_and",
    "is_some_and",
    "map_err",
    "map_or",
    "map_or_else",
    "or_else",
    "then",
    "unwrap_or_else",
];

/// Maximum distance in lines from a `Linear:` comment to its search.
const ABOVE: usize = 8;

const MARK: &str = "// Linear: ";

fn names_in(pattern: &Pat) -> BTreeSet<String> {
    struct Names(BTreeSet<String>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
            self.0.insert(pattern.ident.to_string());
            visit::visit_pat_ident(self, pattern);
        }
    }
    let mut names = Names(BTreeSet::new());
    names.visit_pat(pattern);
    names.0
}

/// Whether the outermost type, behind references, is one of `SETS`.
fn is_set(of: &Type) -> bool {
    match of {
        Type::Reference(reference) => is_set(&reference.elem),
        Type::Tuple(tuple) => tuple.elems.iter().any(is_set),
        Type::Path(path) => {
            path.path.segments.last().is_some_and(|segment| SETS.iter().any(|set| segment.ident == set))
        }
        _ => false,
    }
}

/// The fields of a room's structs, by what they are declared as.
#[derive(Default)]
struct Fields {
    sets: BTreeSet<String>,
    others: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Fields {
    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = &field.ident {
            let names = if is_set(&field.ty) { &mut self.sets } else { &mut self.others };
            names.insert(name.to_string());
        }
    }
}

/// The variable, or the constant, at the beginning of a chain of calls and fields.
fn root(of: &Expr) -> Option<String> {
    match of {
        Expr::MethodCall(call) => root(&call.receiver),
        Expr::Field(field) => root(&field.base),
        Expr::Reference(reference) => root(&reference.expr),
        Expr::Paren(paren) => root(&paren.expr),
        Expr::Unary(unary) => root(&unary.expr),
        Expr::Try(tried) => root(&tried.expr),
        Expr::Index(index) => root(&index.expr),
        Expr::Call(call) => call.args.first().and_then(root),
        Expr::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

/// Whether an expression is made as long as it stands in the source, or is no list at all.
fn is_short(made: &Expr) -> bool {
    match made {
        Expr::Array(_) | Expr::Lit(_) | Expr::Range(_) => true,
        Expr::MethodCall(call) => is_short(&call.receiver),
        Expr::Reference(reference) => is_short(&reference.expr),
        Expr::Paren(paren) => is_short(&paren.expr),
        Expr::Field(field) => is_short(&field.base),
        Expr::Path(_) => {
            root(made).is_some_and(|name| name.chars().all(|c| c == '_' || c.is_ascii_uppercase()))
        }
        _ => false,
    }
}

/// Looks through a file for searches in loops.
struct Searches<'a> {
    fields: &'a Fields,
    /// The names that each loop around this place binds, the outermost first.
    loops: Vec<BTreeSet<String>>,
    /// The number of `for` loops around this place.
    fors: usize,
    /// Variables of the function that are sets, or short.
    quick: BTreeSet<String>,
    /// Closures outside loops that search, and where.
    closures: BTreeMap<String, Vec<usize>>,
    /// The lines of the searches.
    found: Vec<usize>,
}

impl Searches<'_> {
    fn within(&mut self, names: BTreeSet<String>, look: impl FnOnce(&mut Self)) {
        self.loops.push(names);
        look(self);
        self.loops.pop();
    }

    fn function(&mut self, signature: &Signature, look: impl FnOnce(&mut Self)) {
        let outer =
            (take(&mut self.loops), take(&mut self.fors), take(&mut self.quick), take(&mut self.closures));
        for input in &signature.inputs {
            if let syn::FnArg::Typed(typed) = input
                && is_set(&typed.ty)
            {
                self.quick.extend(names_in(&typed.pat));
            }
        }
        look(self);
        (self.loops, self.fors, self.quick, self.closures) = outer;
    }

    fn bind(&mut self, pattern: &Pat) {
        if let Some(innermost) = self.loops.last_mut() {
            innermost.extend(names_in(pattern));
        }
    }

    fn is_of_item(&self, name: &String) -> bool {
        self.loops.iter().any(|names| names.contains(name))
    }

    /// Whether an expression mentions what a loop binds, or is short. A loop over a set is as long as over a list.
    fn is_short_or_of_item(&self, list: &Expr) -> bool {
        struct Mentioned(BTreeSet<String>);
        impl<'ast> Visit<'ast> for Mentioned {
            fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
                self.0.extend(path.path.get_ident().map(ToString::to_string));
            }
        }
        let mut mentioned = Mentioned(BTreeSet::new());
        mentioned.visit_expr(list);
        is_short(list) || mentioned.0.iter().any(|name| self.is_of_item(name))
    }

    /// Whether the list belongs to the loop's item, is a set, or is short.
    fn is_quick(&self, list: &Expr) -> bool {
        let is_set = |name: &String| self.fields.sets.contains(name) && !self.fields.others.contains(name);
        let is_declared = match list {
            Expr::Field(field) => match &field.member {
                syn::Member::Named(name) => is_set(&name.to_string()),
                syn::Member::Unnamed(_) => false,
            },
            _ => false,
        };
        is_declared
            || is_short(list)
            || root(list).is_some_and(|name| self.is_of_item(&name) || self.quick.contains(&name))
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        let text = match &attribute.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            _ => String::new(),
        };
        attribute.path().is_ident("test") || (is_cfg && text.contains("test"))
    })
}

impl<'ast> Visit<'ast> for Searches<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.function(&item.sig, |searches| visit::visit_item_fn(searches, item));
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, |searches| visit::visit_impl_item_fn(searches, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let made = local.init.as_ref().map(|init| &*init.expr);
        let is_set = match &local.pat {
            Pat::Type(typed) => is_set(&typed.ty),
            _ => made.is_some_and(|made| {
                let text = match made {
                    Expr::Call(call) => quote::quote!(#call).to_string(),
                    Expr::MethodCall(call) => call
                        .turbofish
                        .as_ref()
                        .map(|types| quote::quote!(#types).to_string())
                        .unwrap_or_default(),
                    _ => String::new(),
                };
                SETS.iter().any(|set| text.contains(set))
            }),
        };
        if is_set || made.is_some_and(is_short) {
            self.quick.extend(names_in(&local.pat));
        }
        self.bind(&local.pat);
        match (made, &local.pat) {
            // It is called once or in a loop: its callers tell.
            (Some(Expr::Closure(closure)), Pat::Ident(name)) if self.loops.is_empty() => {
                let before = take(&mut self.found);
                // A closure without arguments may be called for each of something too.
                self.within(BTreeSet::new(), |searches| searches.visit_expr_closure(closure));
                let searches = std::mem::replace(&mut self.found, before);
                self.closures.insert(name.ident.to_string(), searches);
            }
            _ => visit::visit_local(self, local),
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(path) = &*call.func
            && self.loops.is_empty()
            && path.path.get_ident().is_some_and(|name| self.closures.contains_key(&name.to_string()))
        {
            call.args.iter().for_each(|argument| self.visit_expr(argument));
        } else {
            visit::visit_expr_call(self, call);
        }
    }

    /// A closure that is called in a loop, or handed on.
    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let name = path.path.get_ident().map(ToString::to_string);
        if let Some(searches) = name.and_then(|name| self.closures.remove(&name)) {
            self.found.extend(searches);
        }
    }

    fn visit_expr_let(&mut self, condition: &'ast syn::ExprLet) {
        self.bind(&condition.pat);
        visit::visit_expr_let(self, condition);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.bind(&arm.pat);
        visit::visit_arm(self, arm);
    }

    fn visit_expr_for_loop(&mut self, each: &'ast syn::ExprForLoop) {
        if self.fors > 0 && !self.is_short_or_of_item(&each.expr) {
            self.found.push(each.for_token.span.start().line);
        }
        self.visit_expr(&each.expr);
        self.fors += 1;
        self.within(names_in(&each.pat), |searches| searches.visit_block(&each.body));
        self.fors -= 1;
    }

    fn visit_expr_while(&mut self, repeated: &'ast syn::ExprWhile) {
        self.within(BTreeSet::new(), |searches| visit::visit_expr_while(searches, repeated));
    }

    fn visit_expr_loop(&mut self, repeated: &'ast syn::ExprLoop) {
        self.within(BTreeSet::new(), |searches| visit::visit_expr_loop(searches, repeated));
    }

    /// A closure with arguments is called for each of something.
    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        if closure.inputs.is_empty() {
            return visit::visit_expr_closure(self, closure);
        }
        let names = closure.inputs.iter().flat_map(names_in).collect();
        self.within(names, |searches| searches.visit_expr(&closure.body));
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let is_search = SEARCHES.iter().any(|search| call.method == search);
        // Methods of the same names that are no searches take something else.
        let is_search = is_search
            && match call.args.first() {
                Some(Expr::Lit(_)) | None => false,
                Some(Expr::Closure(_)) => true,
                Some(_) if call.method == "contains" => call.args.len() == 1,
                Some(_) => matches!(&*call.receiver, Expr::MethodCall(_)),
            };
        if !self.loops.is_empty() && is_search && !self.is_quick(&call.receiver) {
            self.found.push(call.method.span().start().line);
        }
        self.visit_expr(&call.receiver);
        for argument in &call.args {
            match argument {
                Expr::Closure(closure) if ONCE.iter().any(|method| call.method == method) => {
                    closure.inputs.iter().for_each(|input| self.bind(input));
                    self.visit_expr(&closure.body);
                }
                argument => self.visit_expr(argument),
            }
        }
    }
}

/// Returns the complaints about a file: searches without a comment, and comments without a search.
fn complaints(path: &str, text: &str, fields: &Fields) -> Vec<String> {
    let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut searches = Searches {
        fields,
        loops: Vec::new(),
        fors: 0,
        quick: BTreeSet::new(),
        closures: BTreeMap::new(),
        found: Vec::new(),
    };
    searches.visit_file(&file);
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_start()));
    let marks: Vec<usize> =
        lines.filter(|(_, line)| line.starts_with(MARK)).map(|(number, _)| number).collect();
    let is_of = |mark: &usize, line: &usize| (*mark..=*mark + ABOVE).contains(line);
    let unsaid = searches.found.iter().filter(|line| !marks.iter().any(|mark| is_of(mark, line)));
    let unsaid = unsaid.map(|line| {
        format!("{path}:{line}: a linear search or a loop in a loop; use a set, or say why not: `{MARK}…`")
    });
    let idle = marks.iter().filter(|mark| !searches.found.iter().any(|line| is_of(mark, line)));
    let idle = idle.map(|mark| format!("{path}:{mark}: no linear search in a loop is below"));
    unsaid.chain(idle).collect()
}

/// The folder of the room, or of what else, that a file belongs to.
fn room(path: &str) -> PathBuf {
    let folder = Path::new(path).parent().unwrap_or(Path::new("")).to_owned();
    if folder.ends_with("plan") { folder.parent().map(Path::to_owned).unwrap_or(folder) } else { folder }
}

#[test]
fn no_list_is_searched_in_a_loop() {
    let machinery = LOOKED_THROUGH.iter().map(|folder| format!("{MACHINERY}/{folder}"));
    let folders = machinery.chain([CONTROLLERS.to_owned()]);
    let is_test =
        |path: &str| path.contains("/tests/") || path.ends_with("tests.rs") || path.contains("fixtures");
    let files: Vec<(String, String)> = folders
        .flat_map(|folder| sources(&folder))
        .map(|(path, text)| (path.display().to_string(), text))
        .filter(|(path, _)| !is_test(path))
        .collect();
    let mut fields: BTreeMap<PathBuf, Fields> = BTreeMap::new();
    for (path, text) in &files {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        fields.entry(room(path)).or_default().visit_file(&file);
    }
    let complaints = files.iter().flat_map(|(path, text)| complaints(path, text, &fields[&room(path)]));
    complain(&complaints.collect::<Vec<_>>());
}

#[test]
fn a_search_in_a_loop_is_found() {
    let of = |body: &str| {
        complaints(
            "a.rs",
            &format!("fn f(ours: &[Pod], theirs: &[Pod], set: &BTreeSet<Str>) {{\n{body}\n}}"),
            &Fields::default(),
        )
        .len()
    };
    assert_eq!(of("for pod in ours { theirs.iter().any(|other| other == pod); }"), 1);
    assert_eq!(of("ours.iter().filter(|pod| theirs.contains(pod));"), 1);
    let closure = "let is_theirs = |pod: &Pod| theirs.iter().any(|other| other == pod);";
    assert_eq!(of(&format!("{closure} for pod in ours {{ is_theirs(pod); }}")), 1, "called in a loop");
    assert_eq!(of(&format!("{closure} ours.iter().filter(is_theirs);")), 1, "handed on");
    assert_eq!(of(&format!("{closure} is_theirs(ours.first());")), 0, "called once");
    assert_eq!(of("for pod in ours { self.held.contains(&pod.uid); }"), 1, "a field of an unknown type");
    assert_eq!(of("theirs.iter().any(|other| other.is_ready());"), 0, "no loop is around it");
    let closure = "let has_any = || theirs.iter().any(|other| other.is_ready());";
    assert_eq!(of(&format!("{closure} for pod in ours {{ has_any(); }}")), 1, "a closure without arguments");
    assert_eq!(of("for pod in ours { for other in theirs {} }"), 1, "a loop in a loop");
    assert_eq!(of("for pod in ours { for other in set {} }"), 1, "a set in a loop");
    assert_eq!(
        of("for pod in ours { for claim in &pod.claims {} for at in 0..3 {} }"),
        0,
        "parts of the item"
    );
    assert_eq!(
        of("for pod in ours { pod.claims.iter().any(|claim| claim.is_lost()); }"),
        0,
        "a part of the item"
    );
    assert_eq!(
        of("for pod in ours { set.contains(&pod.uid); ALL.contains(&pod.phase); text.contains(':'); }"),
        0,
        "sets, constants, texts"
    );
    assert_eq!(
        of("// Linear: there are three.\nfor pod in ours { theirs.contains(pod); }"),
        0,
        "it is said why"
    );
    assert_eq!(
        of("// Linear: there are three.\nfor pod in ours {}"),
        1,
        "nothing is there of which to say it"
    );
}
