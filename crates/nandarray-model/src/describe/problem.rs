//! Problems of a description, all reported at once, each with its key, its value and the allowed values.

use std::fmt;

/// One problem of a description.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Line of the text, from 1; `None` for a value that came from elsewhere, such as a command line.
    pub line: Option<u32>,
    /// The key with its section, such as `nand.t_read`; empty if the problem concerns the whole text.
    pub key: String,
    /// The value as written; empty if there is none.
    pub value: String,
    /// Description of the problem, to be read after key and value.
    pub what: String,
    /// Allowed values, or a remedy.
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        match (self.key.is_empty(), self.value.is_empty()) {
            (true, _) => {}
            (false, true) => write!(f, "{}: ", self.key)?,
            (false, false) => write!(f, "{} = {} ", self.key, self.value)?,
        }
        write!(f, "{}", self.what)?;
        if !self.allowed.is_empty() {
            write!(f, "; {}", self.allowed)?;
        }
        Ok(())
    }
}

/// The error of an invalid description, with all of its problems.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    /// Name of the preset or the file; empty if it is not known.
    pub subject: String,
    /// All problems, in the order of the text; at least one.
    pub problems: Vec<Problem>,
}

impl Invalid {
    /// Makes an error with one problem, which concerns one value.
    pub fn one(subject: &str, key: &str, value: &str, what: &str) -> Self {
        let [key, value, what] = [key, value, what].map(str::to_owned);
        let problem = Problem { line: None, key, value, what, allowed: String::new() };
        Self { subject: subject.to_owned(), problems: vec![problem] }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problems[..] {
            [one] => write!(f, "device {:?}: {one}", self.subject),
            all => {
                write!(f, "device {:?} has {} problems:", self.subject, all.len())?;
                all.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}
