//! Errors: the reasons why a program or kernel could not be loaded or run.

use nandarray_cores::kernel::ScreenError;
use nandarray_cores::{LoadError, RunError};

/// A stage of a pipeline that failed, with its error.
#[derive(Debug, thiserror::Error)]
#[error("{program}: {error}")]
pub struct StageError {
    /// Number of the failed stage in its pipeline, from 0.
    pub stage: usize,
    /// Name of the stage's program.
    pub program: String,
    /// The error with which the stage failed.
    #[source]
    pub error: RunError,
}

/// Describes in words the kernel that another kernel depends on.
fn depended(on: Option<u64>) -> String {
    on.map_or_else(|| "a name that no kernel has".to_owned(), |kernel| format!("kernel {kernel}, which is not done"))
}

/// Any error of the runtime.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the storage engine, or an invalid request to the runtime.
    #[error(transparent)]
    Engine(#[from] nandarray::Error),
    /// The file cannot be loaded as a program or a kernel.
    #[error(transparent)]
    Program(Box<LoadError>),
    /// A program beside the data failed; its outputs are dropped.
    #[error(transparent)]
    Execution(Box<StageError>),
    /// A kernel of a session failed; its outputs are dropped.
    #[error("kernel {kernel}: {error}")]
    Kernel {
        /// Name of the failed kernel.
        kernel: String,
        /// The error of the screen that failed.
        error: Box<ScreenError>,
    },
    /// A submission was refused: kernels of the session would wait for each other in a circle.
    #[error("these kernels would wait for each other: {}", names.join(" -> "))]
    Circle {
        /// Names of the kernels, each of which waits for the next; the first is repeated at the end.
        names: Vec<String>,
    },
    /// A kernel was not run, since a kernel that it depends on did not end as done.
    #[error("kernel {kernel} depends on {}", depended(*on))]
    Dependency {
        /// Name of the kernel that was not run.
        kernel: String,
        /// Number of the kernel that it depends on. `None` for a dependency by name whose kernel ended earlier without
        /// being done, or was never submitted.
        on: Option<u64>,
    },
    /// The caller cancelled the kernel.
    #[error("the kernel was cancelled")]
    Cancelled,
    /// A worker thread of a session panicked, with this message.
    #[error("a worker of the session failed: {0}")]
    Worker(String),
}

/// The strings that [`Error::kind`] returns in addition to the engine's ([`nandarray::KINDS`]). They are stable:
/// entries are only appended.
pub const KINDS: [&str; 4] = ["program", "execution", "circle", "dependency"];

impl Error {
    /// Returns the stable name of this kind of error, for the command line and for Python.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Engine(error) => error.kind(),
            Self::Program(_) => "program",
            Self::Execution(_) | Self::Kernel { .. } | Self::Worker(_) => "execution",
            Self::Circle { .. } => "circle",
            Self::Dependency { .. } => "dependency",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the operating system's error number that caused this error; `None` if no system call failed.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Engine(error) => error.os_error(),
            _ => None,
        }
    }

    /// Makes an error that says in words why a request of the caller is invalid.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Engine(nandarray::Error::invalid(what))
    }
}

/// A result with the runtime's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Converts a stage's error to the runtime's; the message names the program if the run has several stages.
pub(crate) fn of_stage(failed: StageError, stages: usize) -> Error {
    let StageError { stage, program, error } = failed;
    match error {
        // An error of the store is returned unchanged.
        RunError::Transfer(inner) => match inner.downcast::<nandarray::Error>() {
            Ok(own) => Error::Engine(*own),
            Err(inner) => Error::Execution(Box::new(StageError { stage, program, error: RunError::Transfer(inner) })),
        },
        RunError::Inputs(what) if stages == 1 => Error::invalid(what),
        RunError::Inputs(what) => Error::invalid(format!("{program}: {what}")),
        error => Error::Execution(Box::new(StageError { stage, program, error })),
    }
}
