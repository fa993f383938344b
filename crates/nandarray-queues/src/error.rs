//! Why a server or a client cannot go on.

/// An error of queues in shared memory.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// A call of the system failed.
    #[error("{what}: {source}")]
    System {
        /// The attempt.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is no region of this version.
    #[error("{0} is no region of queues of this version")]
    NotARegion(String),
    /// Another server has this name.
    #[error("a server named '{0}' is running")]
    Taken(String),
    /// No server serves the region.
    #[error("the server of '{0}' is gone")]
    Gone(String),
    /// Every queue pair is claimed.
    #[error("all {0} queue pairs are claimed")]
    Full(u32),
    /// A parameter out of its range.
    #[error("{0}")]
    Invalid(String),
    /// A command ended with a status.
    #[error("command {opcode:#04x} of block {slba} ended with {name} ({status:#05x})")]
    Status {
        /// Its opcode.
        opcode: u8,
        /// Its first logical block.
        slba: u64,
        /// The status' 15 bits.
        status: u16,
        /// Its name.
        name: &'static str,
    },
    /// No completion came in time.
    #[error("no completion came within {0} ms")]
    TimedOut(u64),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] nandarray::Error),
}

/// Names a failed system call by what it was for.
pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> QueueError {
    let what = what.into();
    move |source| QueueError::System { what, source }
}
