//! Why a program could not be loaded or run.

use nandarray_cores::kernel::ScreenError;
use nandarray_cores::{LoadError, RunError};

/// A stage of a pipeline that failed, with its error.
#[derive(Debug, thiserror::Error)]
#[error("{program}: {error}")]
pub struct StageError {
    /// The stage's number.
    pub stage: usize,
    /// Its program's name.
    pub program: String,
    /// Its error.
    #[source]
    pub error: RunError,
}

/// The other kernel of a dependency, in words.
fn depended(on: Option<u64>) -> String {
    on.map_or_else(|| "a name that no kernel has".to_owned(), |kernel| format!("kernel {kernel}, which is not done"))
}

/// Any error of the runtime.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the engine, or an invalid request.
    #[error(transparent)]
    Engine(#[from] nandarray::Error),
    /// The file is no program that can run beside the data.
    #[error(transparent)]
    Program(Box<LoadError>),
    /// A program beside the data failed; its outputs are dropped.
    #[error(transparent)]
    Execution(Box<StageError>),
    /// A kernel of a session failed; its outputs are dropped.
    #[error("kernel {kernel}: {error}")]
    Kernel {
        /// Its name.
        kernel: String,
        /// Its error.
        error: Box<ScreenError>,
    },
    /// Kernels of a session would wait for each other.
    #[error("these kernels would wait for each other: {}", names.join(" -> "))]
    Circle {
        /// Their names, the first again at the end.
        names: Vec<String>,
    },
    /// A kernel depends on one that is not done.
    #[error("kernel {kernel} depends on {}", depended(*on))]
    Dependency {
        /// Its name.
        kernel: String,
        /// The number of the other one; none if there is no kernel with the name.
        on: Option<u64>,
    },
    /// A kernel was cancelled.
    #[error("the kernel was cancelled")]
    Cancelled,
    /// A worker of a session panicked.
    #[error("a worker of the session failed: {0}")]
    Worker(String),
}

/// The stable strings of [`Error::kind`] beside the engine's ([`nandarray::KINDS`]). Append only.
pub const KINDS: [&str; 4] = ["program", "execution", "circle", "dependency"];

impl Error {
    /// The stable name of this kind of error, for doors.
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

    /// The operating system's error number behind this error, if one is.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Engine(error) => error.os_error(),
            _ => None,
        }
    }

    /// An error of the caller's, in words.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Engine(nandarray::Error::invalid(what))
    }
}

/// The result of every fallible part of the runtime.
pub type Result<T> = std::result::Result<T, Error>;

/// A stage's error as the runtime's, with the program's name if there are several.
pub(crate) fn of_stage(failed: StageError, stages: usize) -> Error {
    let StageError { stage, program, error } = failed;
    match error {
        // The store's own errors come out as they went in.
        RunError::Transfer(inner) => match inner.downcast::<nandarray::Error>() {
            Ok(own) => Error::Engine(*own),
            Err(inner) => Error::Execution(Box::new(StageError { stage, program, error: RunError::Transfer(inner) })),
        },
        RunError::Inputs(what) if stages == 1 => Error::invalid(what),
        RunError::Inputs(what) => Error::invalid(format!("{program}: {what}")),
        error => Error::Execution(Box::new(StageError { stage, program, error })),
    }
}
