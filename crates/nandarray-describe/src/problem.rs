//! Problems of a description, all reported at once, each with its key, its value and the allowed values.

use std::fmt;

/// Numbers of a text's lines by places in it, from one pass over the text.
pub struct LineNumbers(Vec<usize>);

impl LineNumbers {
    /// Reads the places of all line ends.
    pub fn new(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    /// Returns the number, from 1, of the line that byte `at` is in, or of the last line behind the end.
    pub fn of(&self, at: usize) -> u32 {
        self.0.partition_point(|&newline| newline < at) as u32 + 1
    }
}

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
    /// Noun for what is described, such as `device`.
    pub noun: &'static str,
    /// Name of the preset or the file; empty if it is not known.
    pub subject: String,
    /// All problems, in the order of the text; at least one.
    pub problems: Vec<Problem>,
}

impl Invalid {
    /// Makes an error with one problem, which concerns one value.
    pub fn one(noun: &'static str, subject: &str, key: &str, value: &str, what: &str) -> Self {
        let [key, value, what] = [key, value, what].map(str::to_owned);
        let problem = Problem { line: None, key, value, what, allowed: String::new() };
        Self { noun, subject: subject.to_owned(), problems: vec![problem] }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problems[..] {
            [one] => write!(f, "{} {:?}: {one}", self.noun, self.subject),
            all => {
                write!(f, "{} {:?} has {} problems:", self.noun, self.subject, all.len())?;
                all.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_from_one() {
        for text in ["", "a", "\n", "a\n\nbc\n", "\n\n\nd"] {
            let lines = LineNumbers::new(text);
            for at in 0..text.len() + 3 {
                let before = text.bytes().take(at).filter(|byte| *byte == b'\n').count();
                assert_eq!(lines.of(at), before as u32 + 1, "byte {at} of {text:?}");
            }
        }
    }
}
