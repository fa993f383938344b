//! Errors of loading a program and of running it.

use nandarray_hart::{MemoryError, ProgramError, Trap};

/// The reason why a program cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is not an ELF that a hart can run.
    #[error(transparent)]
    Elf(#[from] ProgramError),
    /// The section with the metadata is missing or wrong.
    #[error("the program's metadata: {0}")]
    Metadata(String),
    /// A function that a program of this kind must define is missing.
    #[error("the program does not define {0}")]
    Entry(&'static str),
    /// The program does not fit its memory.
    #[error("the program needs {needed} bytes without a stack; its memory_bytes are {memory}")]
    TooLarge {
        /// Number of bytes up to the end of the program's last segment.
        needed: u64,
        /// The `memory_bytes` of the program's metadata.
        memory: u64,
    },
    /// A described core cannot run the program.
    #[error("the program {needs}; the core {core} has {has}")]
    Core {
        /// The core's name.
        core: String,
        /// The property or need of the program, as the end of a sentence about it.
        needs: String,
        /// The key of the core's description, and its value.
        has: String,
    },
    /// The program's memory could not be laid out.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// A place in a program's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The program counter.
    pub pc: u64,
    /// The function's name and the distance from its beginning, in bytes.
    pub symbol: String,
}

fn at(site: Option<&Site>) -> String {
    site.map_or_else(String::new, |site| format!(", at pc {:#x} in {}", site.pc, site.symbol))
}

fn of(task: Option<&(u64, Site)>) -> String {
    task.map_or_else(String::new, |(task, _)| format!("task {task}: "))
}

fn from(site: Option<&Site>) -> String {
    site.map_or_else(String::new, |site| format!(", called at pc {:#x} in {}", site.pc, site.symbol))
}

/// The reason why a run failed. The outputs of a failed run are dropped.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program executed an instruction that trapped.
    #[error("task {task}: {trap} in {symbol}{}", from(caller.as_ref()))]
    Trap {
        /// Number of the task.
        task: u64,
        /// The trap, with its program counter.
        trap: Trap,
        /// The function's name and the distance from its beginning, in bytes.
        symbol: String,
        /// The place of the call, if the program jumped out of its code; otherwise `None`.
        caller: Option<Site>,
    },
    /// The program returned an error of its own.
    #[error("task {task}: the program's {entry} returned {code}")]
    Status {
        /// Number of the task.
        task: u64,
        /// Name of the entry point.
        entry: &'static str,
        /// The return value.
        code: i64,
        /// Numbers that the program noted beside it in its argument block; zeros if it noted none.
        noted: [i64; 2],
    },
    /// A call executed more instructions than its limit.
    #[error("task {task}: more than {limit} instructions, at pc {pc:#x} in {symbol}")]
    Limit {
        /// Number of the task.
        task: u64,
        /// Most instructions that the call may execute.
        limit: u64,
        /// The program counter where the call was ended.
        pc: u64,
        /// The function's name and the distance from its beginning, in bytes.
        symbol: String,
    },
    /// A run executed more instructions than its limit, over all of its tasks.
    #[error("more than {limit} instructions, which is the limit of the whole run")]
    RunLimit {
        /// Most instructions that the run may execute.
        limit: u64,
    },
    /// The caller cancelled the run.
    #[error("{}cancelled{}", of(.0.as_ref()), at(.0.as_ref().map(|(_, site)| site)))]
    Cancelled(
        /// The task that was executing, with its place in the code; `None` if none was.
        Option<(u64, Site)>,
    ),
    /// The program reported more bytes than the room of an output, or an output's bound is larger than a window.
    #[error("task {task}: output {output} of {used} bytes; its bound leaves room for {room}")]
    Overflow {
        /// Number of the task.
        task: u64,
        /// Number of the output.
        output: usize,
        /// Bytes that the program wrote, at least.
        used: u64,
        /// Room for the output, in bytes.
        room: u64,
    },
    /// The length of an output is not a multiple of its element's.
    #[error("task {task}: output {output} of {used} bytes is not whole elements of {item}")]
    Ragged {
        /// Number of the task.
        task: u64,
        /// Number of the output.
        output: usize,
        /// Bytes that the program wrote.
        used: u64,
        /// Bytes of an element.
        item: u64,
    },
    /// A stream ended in the middle of a read.
    #[error(
        "task {task}: input stream {stream} ended with {left} bytes left, fewer than the program reads at once{}",
        at(site.as_ref())
    )]
    Torn {
        /// Number of the task.
        task: u64,
        /// Number of the input stream.
        stream: u8,
        /// Number of bytes left in the stream.
        left: u8,
        /// The place of the read; `None` for functions of this process.
        site: Option<Site>,
    },
    /// A stream program wrote more than its output's bound has room for.
    #[error("task {task}: output stream {output} is full: its bound leaves room for {room} bytes{}", at(Some(site)))]
    Full {
        /// Number of the task.
        task: u64,
        /// Number of the output.
        output: usize,
        /// Room for the output, in bytes.
        room: u64,
        /// The place of the write.
        site: Site,
    },
    /// A program whose inputs have paces of their own took what it did not see, or neither took nor wrote anything.
    #[error("task {task}: {what}")]
    Taken {
        /// Number of the task.
        task: u64,
        /// The fault, with its numbers.
        what: String,
    },
    /// A program waits for input that never comes.
    #[error("task {task}: waits for bytes of input {input} that never come{}", at(site.as_ref()))]
    Starved {
        /// Number of the task.
        task: u64,
        /// Number of the input.
        input: usize,
        /// The place where the program waits; `None` if it has not begun.
        site: Option<Site>,
    },
    /// The inputs do not fit the program, or a task does not fit its windows.
    #[error("{0}")]
    Inputs(String),
    /// The memory of a core could not be laid out.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A stage has to wait for a reader of its output, which in turn needs more input before it can go on. The limit
    /// protects memory: with several workers a run that needs nearly as much may pass or fail, and `queued` differs.
    #[error("{queued} bytes are queued between programs, and output {output} has to wait longer; at most {most}")]
    QueueLimit {
        /// Name of the output.
        output: String,
        /// Bytes queued between stages.
        queued: u64,
        /// Most bytes that may be queued.
        most: u64,
    },
    /// A worker ended by a fault of the implementation, with this message.
    #[error("a worker died: {0}")]
    Worker(String),
    /// The bytes of an input could not be fetched, or those of an output not delivered.
    #[error("{0}")]
    Transfer(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl RunError {
    /// Returns the numbers that the program noted beside the error that it returned; `None` for other failures.
    pub fn noted(&self) -> Option<[i64; 2]> {
        if let Self::Status { noted, .. } = self { Some(*noted) } else { None }
    }

    /// Returns the program counter at the failure; `None` if it is not known.
    pub fn pc(&self) -> Option<u64> {
        match self {
            Self::Trap { trap, .. } => Some(trap.pc),
            Self::Limit { pc, .. } => Some(*pc),
            Self::Full { site, .. } => Some(site.pc),
            Self::Torn { site, .. } | Self::Starved { site, .. } => site.as_ref().map(|site| site.pc),
            Self::Cancelled(at) => at.as_ref().map(|(_, site)| site.pc),
            _ => None,
        }
    }

    /// Returns the program counter of the call by which the program left its code; `None` if it did not.
    pub fn caller(&self) -> Option<u64> {
        match self {
            Self::Trap { caller, .. } => caller.as_ref().map(|site| site.pc),
            _ => None,
        }
    }

    /// Returns the number of the task that failed; `None` if the error belongs to no task.
    pub fn task(&self) -> Option<u64> {
        match self {
            Self::Trap { task, .. }
            | Self::Status { task, .. }
            | Self::Limit { task, .. }
            | Self::Overflow { task, .. }
            | Self::Ragged { task, .. }
            | Self::Torn { task, .. }
            | Self::Starved { task, .. }
            | Self::Taken { task, .. }
            | Self::Full { task, .. } => Some(*task),
            Self::Cancelled(at) => at.as_ref().map(|(task, _)| *task),
            Self::RunLimit { .. } | Self::Inputs(_) | Self::Memory(_) => None,
            Self::QueueLimit { .. } | Self::Worker(_) | Self::Transfer(_) => None,
        }
    }
}
