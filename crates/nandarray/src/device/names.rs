//! Names of arrays: the one rule, for every door through which an array gets a name.
//!
//! A name is parts between single slashes. A part is not empty, not `.` or `..`, and has no control character, no line
//! or paragraph separator, and none of the marks that change the direction of text: names are shown on terminals,
//! and become names of files where arrays are exported. [`check_name`] is the store's rule for every name.
//! [`check_chosen_name`] is the rule for names of users and hosts: the Python package keeps two kinds of names for
//! itself, as parts that it hides ([`GROUP_MARKER`], [`UNFINISHED_PREFIX`]).
//!
//! The rule is for new names. A name that an earlier version allowed stays as it is: the array can be opened, renamed,
//! deleted and exported.

use crate::error::{Error, Result};

/// Longest name of a space, in bytes.
const NAME_BYTES_MAX: usize = 4096;

/// Last part of the name of the hidden array that keeps a group of the Python package.
pub const GROUP_MARKER: &str = ".group";
/// Beginning of the first part of the names of arrays that an import has not finished; 12 hexadecimal digits follow.
/// An array with such a name is removed when the Python package opens the store for writing.
pub const UNFINISHED_PREFIX: &str = "__importing__";
const UNFINISHED_DIGITS: usize = 12;

/// Checks a new name of an array.
///
/// # Errors
/// [`Error::Invalid`]
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let bytes = name.len();
        return Err(Error::invalid(format!("a name must have 1 to {NAME_BYTES_MAX} bytes; this one has {bytes}")));
    }
    let wrong = |why: &str| Err(Error::invalid(format!("{name:?} is not a name: {why}")));
    match name.split('/').find(|part| matches!(*part, "" | "." | "..")) {
        Some("") => return wrong("it has an empty part between slashes"),
        Some(part) => return wrong(&format!("{part:?} cannot be a part of one")),
        None => {}
    }
    match name.chars().find(|&c| is_unprintable(c)) {
        Some(c) => wrong(&format!("the character U+{:04X} cannot be in one", u32::from(c))),
        None => Ok(()),
    }
}

/// Checks a new name that a user or a host has chosen.
///
/// # Errors
/// [`Error::Invalid`]
pub fn check_chosen_name(name: &str) -> Result<()> {
    check_name(name)?;
    if name.split('/').any(|part| part == GROUP_MARKER) {
        return Err(Error::invalid(format!("{name:?} is not a name: {GROUP_MARKER:?} cannot be a part of one")));
    }
    if is_unfinished(name) {
        let first = name.split('/').next().unwrap_or(name);
        return Err(Error::invalid(format!("{name:?} is not a name: {first:?} is reserved for imports under way")));
    }
    Ok(())
}

/// Whether a name is that of an array which an import has not finished.
pub fn is_unfinished(name: &str) -> bool {
    let first = name.split('/').next().unwrap_or(name);
    let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    first.strip_prefix(UNFINISHED_PREFIX).is_some_and(|rest| rest.len() == UNFINISHED_DIGITS && rest.bytes().all(digit))
}

/// Whether a terminal would obey the character; `python/nandarray/present/plain.py`, which escapes what is shown, has
/// the same list.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_no_way_and_has_no_control_character() {
        for name in ["a", "a/b", "a b/ü", "...", "a/..b", ".hidden", "-", "a\u{200d}b"] {
            assert!(check_name(name).is_ok() && check_chosen_name(name).is_ok(), "{name:?}");
        }
        let wrong =
            ["", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\0", "a\nb", "\u{1b}[31m", "\u{9b}2J"];
        let obeyed = ["a\u{7f}", "a\u{202e}b", "a\u{2028}b", "\u{2066}a", "\u{61c}", "a\u{200e}", "\u{200f}b"];
        for name in wrong.into_iter().chain(obeyed).chain([&*"x".repeat(4097)]) {
            assert!(check_name(name).is_err() && check_chosen_name(name).is_err(), "{name:?}");
        }
        for name in [".group", "a/.group", "a/.group/b", "__importing__0123456789ab", "__importing__0123456789ab/x"] {
            assert!(check_name(name).is_ok() && check_chosen_name(name).is_err(), "{name:?}");
        }
        for name in
            ["__importing__", "__importing__0123456789a", "__importing__0123456789AB", "a/__importing__0123456789ab"]
        {
            assert!(check_chosen_name(name).is_ok(), "{name:?}");
        }
    }
}
