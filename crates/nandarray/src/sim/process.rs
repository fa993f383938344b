//! Which process this is: threads stay in the one that started them when another is forked from it.
//!
//! The only look at the surroundings in the engine, and one that decides no content: who works, not what comes out.

/// The process that something was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home(u32);

impl Home {
    /// This process.
    pub fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this is still that process, and not one forked from it.
    pub fn is_here(self) -> bool {
        self == Self::here()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_home() {
        assert!(Home::here().is_here());
        assert!(!Home(0).is_here());
    }
}
