//! Which types fit where, and what type parameters become by it: "Type checking" of the specification.

use crate::types::Type;

/// Types within types, parameters followed: what nests deeper is taken to fit.
const MAX_DEPTH: usize = 300;
/// How much may be compared in the check of one expression.
const MAX_STEPS: usize = 2_000_000;

/// What type parameters stand for.
#[derive(Debug, Default)]
pub(crate) struct Substitution {
    bound: Vec<Option<Type>>,
    /// What was bound, and what it was bound to before; a call that does not fit is undone.
    undo: Vec<(usize, Option<Type>)>,
    depth: usize,
    steps: usize,
}

impl Substitution {
    /// A parameter that nothing is known of.
    pub(crate) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Parameter(self.bound.len() - 1)
    }

    /// Types of a declaration, with fresh parameters for its own.
    pub(crate) fn instantiate(&mut self, count: usize) -> impl Fn(&Type) -> Type + Copy + use<> {
        let first = self.bound.len();
        self.bound.resize(first + count, None);
        move |of| shifted(of, first)
    }

    /// Whether more was compared than an expression is worth.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps > MAX_STEPS
    }

    /// How much was compared.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Whether values of these types fit where those are wanted. What parameters became by it stays, if they do.
    pub(crate) fn all_fit(&mut self, given: &[Type], wanted: &[Type]) -> bool {
        self.undo.clear();
        let fit = given.len() == wanted.len()
            && given.iter().zip(wanted).all(|(given, wanted)| self.fits_within(given, wanted));
        if !fit {
            while let Some((parameter, before)) = self.undo.pop() {
                if let Some(bound) = self.bound.get_mut(parameter) {
                    *bound = before;
                }
            }
        }
        fit
    }

    pub(crate) fn fits(&mut self, given: &Type, wanted: &Type) -> bool {
        self.all_fit(std::slice::from_ref(given), std::slice::from_ref(wanted))
    }

    /// The type that a literal of elements has after one more element.
    pub(crate) fn joined(&mut self, before: Option<Type>, next: Type) -> Type {
        match before {
            None => next,
            Some(before) if self.fits(&before, &next) => more_general(&before, &next).clone(),
            Some(_) => Type::Dyn,
        }
    }

    /// The type with what is known of its parameters, as far as anything is.
    pub(crate) fn resolved(&mut self, of: &Type) -> Type {
        self.substituted(of, false)
    }

    /// The type with what is known of its parameters; dyn for those of which nothing is.
    pub(crate) fn concrete(&mut self, of: &Type) -> Type {
        self.substituted(of, true)
    }

    fn substituted(&mut self, of: &Type, concrete: bool) -> Type {
        if let Type::Parameter(parameter) = of {
            return match self.binding(*parameter) {
                Some(bound) => self.deeper(Type::Dyn, |it| it.substituted(&bound, concrete)),
                None if concrete => Type::Dyn,
                None => of.clone(),
            };
        }
        self.deeper(Type::Dyn, |it| of.with_parts(&mut |part| it.substituted(part, concrete)))
    }

    fn binding(&self, parameter: usize) -> Option<Type> {
        self.bound.get(parameter).cloned().flatten()
    }

    fn bind(&mut self, parameter: usize, to: Type) {
        if let Some(bound) = self.bound.get_mut(parameter) {
            let before = bound.replace(to);
            self.undo.push((parameter, before));
        }
    }

    /// Goes one level down, unless it went too far.
    fn deeper<T>(&mut self, otherwise: T, go: impl FnOnce(&mut Self) -> T) -> T {
        self.steps += 1;
        if self.depth >= MAX_DEPTH || self.is_exhausted() {
            self.steps = MAX_STEPS + 1;
            return otherwise;
        }
        self.depth += 1;
        let found = go(self);
        self.depth -= 1;
        found
    }

    fn fits_within(&mut self, given: &Type, wanted: &Type) -> bool {
        self.deeper(true, |it| it.fits_here(given, wanted))
    }

    fn fits_here(&mut self, given: &Type, wanted: &Type) -> bool {
        if let Type::Parameter(parameter) = wanted {
            match self.agree(given, *parameter) {
                Agreement::Yes => return true,
                Agreement::No => return false,
                // It would stand within itself; the other way round it may not.
                Agreement::Circular => {}
            }
        }
        if let Type::Parameter(parameter) = given {
            return matches!(self.agree(wanted, *parameter), Agreement::Yes);
        }
        if given.is_dyn_or_error() || wanted.is_dyn_or_error() {
            return true;
        }
        match (given, wanted) {
            (Type::Null, other) | (other, Type::Null) => takes_null(other),
            (Type::List(given), Type::List(wanted)) => self.fits_within(given, wanted),
            (Type::Map(given), Type::Map(wanted)) => {
                self.fits_within(&given.0, &wanted.0) && self.fits_within(&given.1, &wanted.1)
            }
            (Type::Opaque(given), Type::Opaque(wanted)) => {
                let same = given.0 == wanted.0 && given.1.len() == wanted.1.len();
                same && given.1.iter().zip(&wanted.1).all(|(given, wanted)| self.fits_within(given, wanted))
            }
            (Type::Type(_), Type::Type(_)) => true,
            _ => given.unwrapped() == wanted.unwrapped(),
        }
    }

    /// Whether a parameter can stand for a type. If nothing was known of it, it stands for the type from here on; else for
    /// the more general of the two.
    fn agree(&mut self, of: &Type, parameter: usize) -> Agreement {
        if *of == Type::Parameter(parameter) {
            return Agreement::Yes;
        }
        match self.binding(parameter) {
            Some(bound) if bound == *of => Agreement::Yes,
            Some(bound) => {
                if !self.fits_within(of, &bound) {
                    return Agreement::No;
                }
                let general = more_general(of, &bound);
                if !self.stands_within(parameter, general) {
                    let general = general.clone();
                    self.bind(parameter, general);
                }
                Agreement::Yes
            }
            None if self.stands_within(parameter, of) => Agreement::Circular,
            None => {
                self.bind(parameter, of.clone());
                Agreement::Yes
            }
        }
    }

    fn stands_within(&mut self, parameter: usize, of: &Type) -> bool {
        self.deeper(true, |it| match of {
            Type::Parameter(other) if *other == parameter => true,
            Type::Parameter(other) => match it.binding(*other) {
                Some(bound) => it.stands_within(parameter, &bound),
                None => false,
            },
            other => other.any_part(&mut |part| it.stands_within(parameter, part)),
        })
    }
}

enum Agreement {
    Yes,
    No,
    Circular,
}

fn shifted(of: &Type, by: usize) -> Type {
    match of {
        Type::Parameter(parameter) => Type::Parameter(parameter + by),
        other => other.with_parts(&mut |part| shifted(part, by)),
    }
}

fn takes_null(of: &Type) -> bool {
    matches!(of, Type::Null | Type::Object(_) | Type::Opaque(_) | Type::Timestamp | Type::Duration)
}

/// Of two types of which one fits where the other is wanted, the one that says less.
fn more_general<'a>(one: &'a Type, other: &'a Type) -> &'a Type {
    if says_less(one, other) { one } else { other }
}

/// Whether the first says no more than the second.
fn says_less(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Parameter(_), _) | (Type::Type(_), Type::Type(_)) => true,
        (_, Type::Dyn | Type::Parameter(_)) => false,
        (Type::List(one), Type::List(other)) => says_less(one, other),
        (Type::Map(one), Type::Map(other)) => says_less(&one.0, &other.0) && says_less(&one.1, &other.1),
        (Type::Opaque(one), Type::Opaque(other)) => {
            let same = one.0 == other.0 && one.1.len() == other.1.len();
            same && one.1.iter().zip(&other.1).all(|(one, other)| says_less(one, other))
        }
        // A wrapper may be null, too.
        _ => one == other || one.unwrapped() == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_what_is_given() {
        let mut types = Substitution::default();
        let (a, b) = (types.fresh(), types.fresh());
        assert!(types.fits(&Type::map(Type::String, Type::Int), &Type::map(a.clone(), b.clone())));
        assert_eq!((types.concrete(&a), types.concrete(&b)), (Type::String, Type::Int));
        assert!(!types.fits(&Type::Int, &a));
        assert!(types.fits(&Type::Dyn, &a));
        assert_eq!(types.concrete(&a), Type::Dyn, "the more general of the two stays");
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let mut types = Substitution::default();
        let a = types.fresh();
        assert!(!types.all_fit(&[Type::Int, Type::String], &[a.clone(), Type::Int]));
        assert_eq!(types.resolved(&a), a);
        assert!(!types.fits(&Type::list(a.clone()), &a), "a list of itself");
    }

    #[test]
    fn null_fits_where_the_specification_says() {
        let mut types = Substitution::default();
        for of in [Type::Timestamp, Type::Duration, Type::optional(Type::Int), Type::Dyn, Type::Null] {
            assert!(types.fits(&Type::Null, &of), "{of}");
        }
        for of in [Type::Int, Type::list(Type::Int), Type::map(Type::Int, Type::Int), Type::of(Type::Int)] {
            assert!(!types.fits(&Type::Null, &of) && !types.fits(&of, &Type::Null), "{of}");
        }
    }

    #[test]
    fn types_that_grow_by_each_other_come_to_an_end() {
        let mut types = Substitution::default();
        let mut last = types.fresh();
        for _ in 0..10_000 {
            let next = types.fresh();
            let _ = types.fits(&Type::map(last.clone(), last), &next);
            last = next;
        }
        let _ = types.concrete(&last);
        assert!(types.is_exhausted());
    }
}
