//! Errors of a server or a client of queue pairs.

/// An error of queues in shared memory.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that was attempted.
        what: String,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// The file with this name is not a region of queues of this version.
    #[error("{0} is no region of queues of this version")]
    NotARegion(String),
    /// The path of a region has something that no server of this user left there; it stays.
    #[error("{path} is no region of an ended server of this user and stays as it is ({why}): give another name")]
    NotOurs {
        /// Path of the region.
        path: String,
        /// The reason: the kind of thing at the path.
        why: String,
    },
    /// Another server with this name is running.
    #[error("a server named '{0}' is running")]
    Taken(String),
    /// The server of the region with this name has ended.
    #[error("the server of '{0}' is gone")]
    Gone(String),
    /// This process was forked from the one that claimed the queue pair of the server with this name.
    #[error("this process was forked from the one that is connected to '{0}'; open it here")]
    Forked(String),
    /// Every queue pair is claimed by a client; this is the number of pairs.
    #[error("all {0} queue pairs are claimed")]
    Full(u32),
    /// A parameter is out of its range; the text says which.
    #[error("{0}")]
    Invalid(String),
    /// A command was completed with an error status.
    #[error("command {opcode:#04x} of block {slba} ended with {name} ({status:#05x})")]
    Status {
        /// Opcode of the command.
        opcode: u8,
        /// First logical block of the command.
        slba: u64,
        /// The 15 bits of the command's NVMe status.
        status: u16,
        /// Name of the status.
        name: &'static str,
    },
    /// No completion arrived before the deadline, in milliseconds.
    #[error("no completion came within {0} ms")]
    TimedOut(u64),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] nandarray::Error),
}

/// Returns a function that wraps the error of a system call, with a description of what was attempted.
pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> QueueError {
    let what = what.into();
    move |source| QueueError::System { what, source }
}
