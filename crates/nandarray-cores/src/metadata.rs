//! The metadata of a program: JSON in a section of its ELF.
//!
//! It is checked as far as running the program needs: a drive, which loads the ELF alone, knows as much of the program
//! as Python, types of elements (`element`) and defaults of scalars included.

use serde::Serialize;
use serde_json::Value;

use crate::abi;
use crate::element::ElementType;
use crate::error::LoadError;
use crate::json::Object;

/// The interface by which a program gets its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramKind {
    /// Windows that hold a whole task.
    Block,
    /// The stream instructions.
    Stream,
}

impl ProgramKind {
    /// Returns the name of the function that is called for each task.
    pub(crate) fn task_entry(self) -> &'static str {
        match self {
            Self::Block => "nd_block",
            Self::Stream => "nd_stream",
        }
    }
}

/// The rule that says where one record of an input ends and the next begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Records {
    /// Records of one size.
    #[default]
    Fixed,
    /// Lines, each with its newline.
    Lines,
    /// Each record begins with a little-endian u32, whose lower 31 bits are the number of bytes that follow.
    Prefixed,
}

/// The way in which the integers of a packed input are stored: that of an array's compression with this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PackedInput {
    /// A width and a reference for all values of a frame.
    BitPack,
    /// A width for each value.
    VarWidth,
}

/// The entry point that writes an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputPhase {
    /// Written by every task.
    #[default]
    Task,
    /// Written by `nd_end`, once per run.
    End,
    /// Written by every task, and behind all of them by `nd_end`.
    Both,
}

impl OutputPhase {
    /// Whether tasks write the output.
    pub fn is_of_tasks(self) -> bool {
        self != Self::End
    }

    /// Whether `nd_end` writes the output.
    pub fn is_of_end(self) -> bool {
        self != Self::Task
    }
}

/// The tasks that a program's inputs may be cut into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tasks {
    /// Any number: results do not depend on where the inputs are cut.
    #[default]
    Any,
    /// One, which has all of the inputs, unless the caller gives a task's size.
    One,
    /// One, which has all of the inputs: a caller's size of a task is refused.
    Whole,
    /// Any number, one after the other on one core: each finds the state as the task before it left it.
    Ordered,
}

impl Tasks {
    /// Whether one task has all of the inputs, unless a caller gives a task's size.
    pub fn is_one(self) -> bool {
        matches!(self, Self::One | Self::Whole)
    }
}

/// The formula for the most bytes of an output: the sum of the three terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Bound {
    /// Bytes for each record of the task's part of the first input.
    pub per_record: u64,
    /// Bytes for each byte of the task's inputs, except those that every task gets as a whole.
    #[serde(serialize_with = "whole_if_possible")]
    pub per_input_byte: f64,
    /// Bytes that do not depend on the inputs.
    pub fixed: u64,
}

/// Writes a number without a fraction as an integer.
fn whole_if_possible<S: serde::Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
    let whole = *number as u64;
    if whole as f64 == *number { to.serialize_u64(whole) } else { to.serialize_f64(*number) }
}

impl Bound {
    /// Returns the most bytes of the output in a task of this many records and input bytes.
    pub fn room(&self, records: u64, input_bytes: u64) -> u64 {
        let by_byte = (self.per_input_byte * input_bytes as f64).ceil() as u64;
        self.per_record.saturating_mul(records).saturating_add(by_byte).saturating_add(self.fixed)
    }
}

/// An input, as a program's metadata describes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InputPort {
    /// Name of the input.
    pub name: String,
    /// Size of a record, in bytes. Inputs are cut into tasks between records; the last record may be shorter.
    pub record_bytes: u64,
    /// Type of an element.
    #[serde(skip)]
    pub element: ElementType,
    /// Whether every task gets the whole input, instead of a part.
    pub whole: bool,
    /// The rule that says where its records end.
    pub records: Records,
    /// The packed form in which the program gets the input; `None` if it gets plain elements.
    pub packed: Option<PackedInput>,
    /// Number of records from its position on that the program may look at before it takes any, if the input has a
    /// length and a pace of its own; 0 if it is cut together with the other inputs.
    pub ahead: u64,
}

/// An output, as a program's metadata describes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutputPort {
    /// Name of the output.
    pub name: String,
    /// Size of a record, in bytes.
    pub record_bytes: u64,
    /// Type of an element.
    #[serde(skip)]
    pub element: ElementType,
    /// The entry point that writes the output.
    pub phase: OutputPhase,
    /// Whether a task always writes as many bytes as its bound allows; a filter does not.
    pub exact: bool,
    /// The most bytes that the output may have.
    pub bound: Bound,
}

/// A scalar, as a program's metadata describes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScalarPort {
    /// Name of the scalar.
    pub name: String,
    /// Bits of the value that the scalar has if it is not given; `None` if it must be given.
    #[serde(skip)]
    pub default_bits: Option<u64>,
}

/// A program's metadata.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metadata {
    /// Name of the program.
    pub name: String,
    /// The interface by which the program gets its inputs.
    pub kind: ProgramKind,
    /// Inputs of the program: at least one.
    pub inputs: Vec<InputPort>,
    /// Outputs of the program.
    pub outputs: Vec<OutputPort>,
    /// Scalars that the program takes.
    pub scalars: Vec<ScalarPort>,
    /// Size of the state, which a program keeps from task to task, in bytes.
    pub state_bytes: u64,
    /// Size of the scratchpad without the states, in bytes.
    pub scratchpad_bytes: u64,
    /// Size of the program memory, in bytes.
    pub memory_bytes: u64,
    /// The tasks that the inputs may be cut into.
    pub tasks: Tasks,
}

/// Size of a task that stands for all of the inputs: a run that does not fit one task is refused.
pub const ALL_BYTES: u64 = u64::MAX;
/// Size of a task of a program that may be cut anywhere, if the caller gives none, in bytes.
const TASK_BYTES: u64 = 1 << 20;

const KINDS: [(&str, ProgramKind); 2] = [("block", ProgramKind::Block), ("stream", ProgramKind::Stream)];
const RECORDS: [(&str, Records); 3] =
    [("fixed", Records::Fixed), ("lines", Records::Lines), ("prefixed", Records::Prefixed)];
const PACKED: [(&str, PackedInput); 2] = [("bitpack", PackedInput::BitPack), ("varwidth", PackedInput::VarWidth)];
const TASKS: [(&str, Tasks); 4] =
    [("any", Tasks::Any), ("one", Tasks::One), ("whole", Tasks::Whole), ("ordered", Tasks::Ordered)];
const PHASES: [(&str, OutputPhase); 3] =
    [("task", OutputPhase::Task), ("end", OutputPhase::End), ("both", OutputPhase::Both)];

/// Keys of the metadata, of an input, an output and a scalar, and of an output's bound.
const KEYS: [&str; 12] = [
    "abi",
    "errors",
    "inputs",
    "kind",
    "memory_bytes",
    "name",
    "outputs",
    "scalars",
    "scratchpad_bytes",
    "state_bytes",
    "summary",
    "tasks",
];
const INPUT_KEYS: [&str; 7] = ["ahead", "dtype", "name", "packed", "record_bytes", "records", "whole"];
const OUTPUT_KEYS: [&str; 6] = ["bound", "dtype", "exact", "name", "phase", "record_bytes"];
const SCALAR_KEYS: [&str; 3] = ["default", "dtype", "name"];
const BOUND_KEYS: [&str; 3] = ["fixed", "per_input_byte", "per_record"];

/// Reads the dtype of an input, an output or a scalar.
fn element(written: &Object<'_>) -> Result<ElementType, LoadError> {
    let Some(dtype) = written.member("dtype") else {
        return wrong(format!("{} must be written {{\"name\": ..., \"dtype\": ...}}, not {}", written.what, written));
    };
    let read = ElementType::parse(dtype);
    read.ok_or_else(|| {
        let kinds = "the name of a type with a size, its array-protocol text, or a list of fields of such types";
        LoadError::Metadata(format!("{}: dtype must be {kinds}, not {dtype}", written.what))
    })
}

fn wrong<T>(text: String) -> Result<T, LoadError> {
    Err(LoadError::Metadata(text))
}

/// Returns the name of an input or output, the size of a record in bytes, and the type of an element.
fn port(written: &Object<'_>, number: usize, what: &str) -> Result<(String, u64, ElementType), LoadError> {
    let element = element(written)?;
    let item = element.bytes();
    let record = written.size("record_bytes", item, abi::WINDOW_BYTES)?;
    if !(1..=abi::WINDOW_BYTES).contains(&record) {
        return wrong(format!("{}: say record_bytes, from 1 to {}", written.what, abi::WINDOW_BYTES));
    }
    if record % item != 0 {
        let what = &written.what;
        return wrong(format!("{what}: a record of {record} bytes does not hold whole elements of {item} bytes"));
    }
    Ok((written.text("name", &format!("{what}{number}"))?, record, element))
}

fn input(written: &Value, number: usize, kind: ProgramKind) -> Result<InputPort, LoadError> {
    let written = Object::new(written, format!("input {number}"))?;
    let what = &written.what;
    let (name, record_bytes, element) = port(&written, number, "input")?;
    written.known(&INPUT_KEYS)?;
    let whole = written.flag("whole", false)?;
    if whole && number == 0 {
        return wrong(format!("{what}: whole must be false for input 0, not true"));
    }
    let records = written.word("records", &RECORDS)?.unwrap_or_default();
    if records != Records::Fixed && (whole || number > 0 || record_bytes != 1) {
        return wrong(format!("{what}: records without a common size must be input 0's, of bytes"));
    }
    let packed = written.word("packed", &PACKED)?;
    if packed.is_some() {
        let elements = matches!(record_bytes, 1 | 2 | 4 | 8) && record_bytes == element.bytes();
        if !elements || !element.is_integer() {
            let found = format!("{record_bytes} bytes of {element}");
            return wrong(format!("{what}: a record of a packed input must be one integer, not {found}"));
        }
        if whole || records != Records::Fixed {
            return wrong(format!("{what}: whole must be false and records \"fixed\" for a packed input"));
        }
        if kind == ProgramKind::Stream {
            return wrong(format!("{what}: kind must be block for packed inputs, not stream"));
        }
    }
    let ahead = written.count("ahead", abi::WINDOW_BYTES / record_bytes)?;
    if ahead > 0 && (whole || records != Records::Fixed || packed.is_some() || kind == ProgramKind::Stream) {
        return wrong(format!(
            "{what}: ahead is for inputs of block programs that are not whole and not packed, of records of one size"
        ));
    }
    Ok(InputPort { name, record_bytes, element, whole, records, packed, ahead })
}

fn output(written: &Value, number: usize) -> Result<OutputPort, LoadError> {
    let written = Object::new(written, format!("output {number}"))?;
    let what = &written.what;
    let (name, record_bytes, element) = port(&written, number, "output")?;
    written.known(&OUTPUT_KEYS)?;
    let phase = written.word("phase", &PHASES)?.unwrap_or_default();
    let bound = match (written.member("bound"), phase) {
        (Some(bound), _) => {
            let bound = Object::new(bound, format!("{what}, bound"))?;
            bound.known(&BOUND_KEYS)?;
            Bound {
                per_record: bound.size("per_record", 0, u64::MAX)?,
                per_input_byte: bound.factor("per_input_byte")?,
                fixed: bound.size("fixed", 0, u64::MAX)?,
            }
        }
        (None, OutputPhase::Task) => Bound { per_record: record_bytes, ..Bound::default() },
        (None, OutputPhase::Both) => Bound { per_record: record_bytes, per_input_byte: 0.0, fixed: record_bytes },
        (None, OutputPhase::End) => Bound { fixed: record_bytes, ..Bound::default() },
    };
    if phase == OutputPhase::End && (bound.per_record > 0 || bound.per_input_byte > 0.0) {
        return wrong(format!("{what} is written in phase 'end', so only a fixed bound makes sense"));
    }
    let exact = written.flag("exact", phase != OutputPhase::Both)?;
    Ok(OutputPort { name, record_bytes, element, phase, exact, bound })
}

fn scalar(written: &Value, number: usize) -> Result<ScalarPort, LoadError> {
    let written = Object::new(written, format!("scalar {number}"))?;
    written.known(&SCALAR_KEYS)?;
    let (element, what) = (element(&written)?, &written.what);
    if element.scalar_bits(&Value::from(0)).is_none() {
        return wrong(format!("{what}: dtype must be a number of at most 64 bits, not {element}"));
    }
    let default_bits = match written.member("default") {
        None => None,
        Some(default) if !default.is_number() && !default.is_boolean() => {
            return wrong(format!("{what}: default must be a number, not {default}"));
        }
        Some(default) => match element.scalar_bits(default) {
            None => return wrong(format!("{what}: default must be a number that {element} has, not {default}")),
            bits => bits,
        },
    };
    Ok(ScalarPort { name: written.text("name", &format!("scalar{number}"))?, default_bits })
}

/// Checks the texts for the statuses that a program returns: keys are negative numbers.
fn check_errors(written: &Object<'_>) -> Result<(), LoadError> {
    let negative = |status: &str| {
        let digits = status.strip_prefix('-').unwrap_or_default();
        !digits.is_empty() && !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit())
    };
    let good = written.member("errors").is_none_or(|errors| {
        errors.as_object().is_some_and(|texts| texts.iter().all(|(status, text)| negative(status) && text.is_string()))
    });
    if good { Ok(()) } else { wrong("errors is no object of negative statuses, each with a text".into()) }
}

impl Metadata {
    /// Parses the text of the metadata section, which is JSON, perhaps with zero bytes at its end.
    ///
    /// # Errors
    /// [`LoadError::Metadata`]: the text is not valid metadata.
    pub fn parse(text: &[u8]) -> Result<Self, LoadError> {
        let end = text.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
        let written: Value =
            serde_json::from_slice(&text[..end]).map_err(|e| LoadError::Metadata(format!("it is no JSON: {e}")))?;
        let written = Object::new(&written, "the metadata".into())?;
        let version = written.member("abi").unwrap_or(&Value::Null);
        if version.as_u64() != Some(abi::ABI) {
            return wrong(format!("made for version {version} of the interface; this is version {}", abi::ABI));
        }
        written.known(&KEYS)?;
        let Some(kind) = written.word("kind", &KINDS)? else {
            return wrong("kind must be given: block or stream".into());
        };
        let inputs = written.list("inputs", abi::PORTS_MAX)?;
        if inputs.is_empty() {
            return wrong("the program must have at least one input".into());
        }
        let inputs = inputs.iter().enumerate().map(|(i, one)| input(one, i, kind)).collect::<Result<Vec<_>, _>>()?;
        let outputs = written.list("outputs", abi::PORTS_MAX)?.iter().enumerate();
        let outputs = outputs.map(|(i, one)| output(one, i)).collect::<Result<Vec<_>, _>>()?;
        let scalars = written.list("scalars", abi::SCALARS_MAX)?.iter().enumerate();
        let scalars = scalars.map(|(i, one)| scalar(one, i)).collect::<Result<Vec<_>, _>>()?;
        check_errors(&written)?;
        written.text("summary", "")?;
        let metadata = Self {
            name: written.text("name", "program")?,
            kind,
            inputs,
            outputs,
            scalars,
            state_bytes: written.size("state_bytes", 0, abi::SCRATCHPAD_BYTES_MAX)?,
            scratchpad_bytes: written.size("scratchpad_bytes", 0, abi::SCRATCHPAD_BYTES_MAX)?,
            memory_bytes: written.size("memory_bytes", 1 << 20, abi::MEMORY_BYTES_MAX)?,
            tasks: written.word("tasks", &TASKS)?.unwrap_or_default(),
        };
        metadata.check_names()?;
        if metadata.tasks.is_one() && metadata.inputs[0].records != Records::Fixed {
            let word = if metadata.tasks == Tasks::One { "one" } else { "whole" };
            return wrong(format!("tasks is \"{word}\": records of input 0 must be \"fixed\""));
        }
        if metadata.tasks == Tasks::Ordered && metadata.state_bytes == 0 {
            return wrong("tasks is \"ordered\": state_bytes must be more than 0".into());
        }
        metadata.check_paces()?;
        let scratchpad = states(metadata.state_bytes).saturating_add(metadata.scratchpad_bytes);
        if scratchpad > abi::SCRATCHPAD_BYTES_MAX {
            let most = abi::SCRATCHPAD_BYTES_MAX;
            return wrong(format!("a scratchpad of {scratchpad} bytes, with two states; at most {most}"));
        }
        Ok(metadata)
    }

    /// Checks that all inputs that are not whole have paces of their own, or none has; with paces tasks are in order.
    fn check_paces(&self) -> Result<(), LoadError> {
        let mut cut = self.inputs.iter().filter(|input| !input.whole);
        let Some(paced) = self.inputs.iter().find(|input| input.ahead > 0) else { return Ok(()) };
        if let Some(other) = cut.find(|input| input.ahead == 0) {
            let (paced, other) = (&paced.name, &other.name);
            return wrong(format!("input {paced} says ahead: input {other} must say it, too, or be whole"));
        }
        if self.tasks != Tasks::Ordered {
            return wrong(format!("input {} says ahead: tasks must be \"ordered\"", paced.name));
        }
        Ok(())
    }

    /// Whether inputs have lengths and paces of their own: each task begins in each input where the task before it
    /// stopped taking.
    pub fn is_paced(&self) -> bool {
        self.inputs[0].ahead > 0
    }

    /// Checks that no two inputs, outputs and scalars have one name.
    fn check_names(&self) -> Result<(), LoadError> {
        let ports = self.inputs.iter().map(|i| &i.name).chain(self.outputs.iter().map(|o| &o.name));
        let mut names = std::collections::BTreeSet::new();
        for name in ports.chain(self.scalars.iter().map(|s| &s.name)) {
            if !names.insert(name) {
                return wrong(format!("{name:?} names two of the program's inputs, outputs and scalars"));
            }
        }
        Ok(())
    }

    /// Checks that a program defines the entry points that its metadata needs; `defines` tells whether it defines one.
    ///
    /// # Errors
    /// [`LoadError::Entry`]: it lacks one. [`LoadError::Metadata`]: it has an entry point for states of 0 bytes.
    pub fn check_entries(&self, defines: impl Fn(&str) -> bool) -> Result<(), LoadError> {
        let task = self.kind.task_entry();
        if !defines(task) {
            return Err(LoadError::Entry(task));
        }
        if self.outputs.iter().any(|o| o.phase.is_of_end()) && !defines("nd_end") {
            return Err(LoadError::Entry("nd_end"));
        }
        if self.state_bytes == 0 && defines("nd_merge") {
            return wrong("the program defines nd_merge, and its state has 0 bytes".into());
        }
        if self.tasks == Tasks::Ordered && defines("nd_merge") {
            return wrong(
                "the program defines nd_merge, and its tasks are \"ordered\": one state, merged with none".into(),
            );
        }
        Ok(())
    }

    /// Returns what the metadata say as JSON with all defaults filled in, without dtypes and defaults of scalars, which
    /// stay as they are written.
    pub fn filled(&self) -> String {
        serde_json::to_string(self).expect("metadata are plain values")
    }

    /// Returns the size of a task for a caller who gives none, in bytes of the first input: [`ALL_BYTES`] for a program
    /// of one task.
    pub fn task_bytes(&self) -> u64 {
        match self.tasks {
            Tasks::Any | Tasks::Ordered => TASK_BYTES,
            Tasks::One | Tasks::Whole => ALL_BYTES,
        }
    }

    /// Returns the most bytes of an input or an output of one task: those of a window, or more where one task has the
    /// whole streams of a program.
    pub fn most_bytes(&self) -> u64 {
        match (self.kind, self.tasks) {
            (ProgramKind::Stream, Tasks::One | Tasks::Whole) => abi::STREAM_BYTES_MAX,
            _ => abi::WINDOW_BYTES,
        }
    }

    /// Returns the scratchpad that a core needs, in bytes: two states, and what the program requests.
    pub fn scratchpad(&self) -> u64 {
        (states(self.state_bytes) + self.scratchpad_bytes).max(abi::SCRATCHPAD_BYTES)
    }
}

/// Returns the size of the two states that a scratchpad begins with, in bytes, aligned to 16.
pub(crate) fn states(state_bytes: u64) -> u64 {
    state_bytes.div_ceil(16).saturating_mul(32)
}
