//! What one flag is: a row of the table from which parsing, `--help`, defaults, start-up warnings and the tests
//! against the original's flags all follow. The rows themselves are in `flags.rs`.

use super::flags::Flags;
use super::value::{Repetition, ValueError};

/// What follows from a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagEffect {
    /// It does what it says.
    Built,
    /// What it asks for is left out on purpose, and this is why: `--help` says so, and start-up when it is not at its default.
    LeftOut(&'static str),
    /// It is for controllers that only a cloud controller manager runs. The original takes it, and nothing follows from it there.
    /// Differs: no.
    Cloud,
    /// It does what it says, and there is nothing here for which that would make a difference.
    Moot,
    /// It has had no effect in the original either for several releases; it is accepted so that old command lines
    /// keep working.
    None,
}

/// One command-line flag.
#[derive(Debug)]
pub struct Flag {
    /// The field of [`Flags`] that holds it, which is its name with underscores.
    pub(super) field: &'static str,
    /// The heading under which `--help` lists it.
    pub section: &'static str,
    /// The type of its value, as the original's `--help` names it.
    pub kind: &'static str,
    /// What it does.
    pub help: &'static str,
    /// What follows from it.
    pub effect: FlagEffect,
    /// Why not to use it, if so. Deprecated flags are not listed by `--help`, as in the original.
    pub deprecated: Option<&'static str>,
    /// The value it takes when it is given without one. Such a flag never takes the next argument as its value.
    pub implied: Option<&'static str>,
    pub(super) set: fn(&mut Flags, &str, Repetition) -> Result<(), ValueError>,
    pub(super) show: fn(&Flags) -> String,
}

impl Flag {
    /// Its name, without leading dashes: `leader-elect-lease-duration`.
    pub fn name(&self) -> String {
        self.field.replace('_', "-")
    }

    /// Its one-letter form, if it has one.
    pub fn shorthand(&self) -> Option<char> {
        match self.field {
            "v" => Some('v'),
            "help" => Some('h'),
            _ => None,
        }
    }

    /// Its value in `flags`, as it could be written on the command line.
    pub fn show(&self, flags: &Flags) -> String {
        (self.show)(flags)
    }

    /// Its default value, as it could be written on the command line.
    pub fn default(&self) -> String {
        (self.show)(&Flags::default())
    }
}

/// Makes the struct of all flags, its defaults and the table from one row per flag:
/// `field: Type = default, FlagEffect, "help";`, in sections.
macro_rules! flags {
    ($(
        [$section:literal]
        $( $field:ident : $ty:ty = $default:expr, $effect:ident $(($reason:literal))? $(deprecated($why:literal))?, $help:literal; )+
    )+) => {
        /// The value of every flag; one field each, named as the flag with underscores for dashes.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Flags {
            $($(
                #[doc = $help]
                pub $field: $ty,
            )+)+
        }

        impl Default for Flags {
            fn default() -> Self {
                Self { $($( $field: ($default).into(), )+)+ }
            }
        }

        /// Every flag, in the order of `--help`.
        pub static TABLE: &[$crate::options::Flag] = &[
            $($(
                $crate::options::Flag {
                    field: stringify!($field),
                    section: $section,
                    kind: <$ty as $crate::options::value::FlagValue>::TYPE,
                    help: $help,
                    effect: $crate::options::FlagEffect::$effect $(($reason))?,
                    deprecated: flags!(@deprecated $($why)?),
                    implied: <$ty as $crate::options::value::FlagValue>::IMPLIED,
                    set: |flags, text, repetition| {
                        $crate::options::value::FlagValue::set(&mut flags.$field, text, repetition)
                    },
                    show: |flags| $crate::options::value::FlagValue::show(&flags.$field),
                },
            )+)+
        ];
    };
    (@deprecated) => { None };
    (@deprecated $why:literal) => { Some($why) };
}

pub(super) use flags;
