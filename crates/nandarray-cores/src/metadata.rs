//! The metadata of a program: JSON in a section of its ELF.
//!
//! It is checked as far as running the program needs. A `dtype` is NumPy's and stays text: only the bytes of a record
//! matter, which follow from the names of numbers and must be given for anything else (`record_bytes`).

use serde::Deserialize;

use crate::abi;
use crate::error::LoadError;

/// The interface by which a program gets its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramKind {
    /// Windows that hold a whole task.
    Block,
    /// The stream instructions.
    Stream,
}

/// The rule that says where one record of an input ends and the next begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Records {
    /// Records of one size.
    #[default]
    Fixed,
    /// Lines, each with its newline.
    Lines,
    /// A little-endian u32 whose lower 31 bits are the number of bytes that follow.
    Prefixed,
}

/// The way in which the integers of a packed input are stored: that of an array's compression with this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackedInput {
    /// A width and a reference for all values of a frame.
    BitPack,
    /// A width for each value.
    VarWidth,
}

/// The entry point that writes an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputPhase {
    /// Written by every task.
    #[default]
    Task,
    /// Written by `nd_end`, once a run.
    End,
}

/// The formula for the most bytes of an output: the sum of the three terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bound {
    /// Bytes for each record of the task's part of the first input.
    pub per_record: u64,
    /// Bytes for each byte of the task's inputs, except those that every task gets as a whole.
    pub per_input_byte: f64,
    /// Bytes that do not depend on the inputs.
    pub fixed: u64,
}

impl Bound {
    /// Returns the most bytes of the output in a task of this many records and input bytes.
    pub fn room(&self, records: u64, input_bytes: u64) -> u64 {
        let by_byte = (self.per_input_byte * input_bytes as f64).ceil() as u64;
        self.per_record.saturating_mul(records).saturating_add(by_byte).saturating_add(self.fixed)
    }
}

/// An input, as a program's metadata describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct InputPort {
    /// Name of the input.
    pub name: String,
    /// Size of a record, in bytes. Inputs are cut into tasks between records; the last record may be shorter.
    pub record_bytes: u64,
    /// Size of an element, in bytes; 1 if the dtype is not the name of a number.
    pub item_bytes: u64,
    /// Whether every task gets the whole input, instead of a part.
    pub whole: bool,
    /// The rule that says where its records end.
    pub records: Records,
    /// The form in which the program gets it, if it is that in which an array packs integers.
    pub packed: Option<PackedInput>,
}

/// An output, as a program's metadata describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputPort {
    /// Name of the output.
    pub name: String,
    /// Size of a record, in bytes.
    pub record_bytes: u64,
    /// Size of an element, in bytes; 1 if the dtype is not the name of a number.
    pub item_bytes: u64,
    /// The entry point that writes the output.
    pub phase: OutputPhase,
    /// The most bytes that the output may have.
    pub bound: Bound,
}

/// A scalar, as a program's metadata describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalarPort {
    /// Name of the scalar.
    pub name: String,
}

/// A program's metadata.
#[derive(Clone, Debug, PartialEq)]
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
}

#[derive(Deserialize)]
struct Raw {
    abi: u64,
    #[serde(default = "program")]
    name: String,
    kind: ProgramKind,
    inputs: Vec<RawPort>,
    #[serde(default)]
    outputs: Vec<RawPort>,
    #[serde(default)]
    scalars: Vec<RawScalar>,
    #[serde(default)]
    state_bytes: u64,
    #[serde(default)]
    scratchpad_bytes: u64,
    #[serde(default = "mebibyte")]
    memory_bytes: u64,
}

#[derive(Deserialize)]
struct RawPort {
    #[serde(default)]
    name: String,
    dtype: serde_json::Value,
    record_bytes: Option<u64>,
    #[serde(default)]
    whole: bool,
    #[serde(default)]
    records: Records,
    packed: Option<PackedInput>,
    #[serde(default)]
    phase: OutputPhase,
    bound: Option<Bound>,
}

#[derive(Deserialize)]
struct RawScalar {
    #[serde(default)]
    name: String,
}

fn program() -> String {
    "program".into()
}

fn mebibyte() -> u64 {
    1 << 20
}

/// Returns the size of an element of a dtype such as `float32`, `<i8`, `u2` or `S16`, in bytes; `None` for other
/// dtypes.
fn item_bytes(dtype: &serde_json::Value) -> Option<u64> {
    let name = dtype.as_str()?;
    let bits = |prefix: &str| name.strip_prefix(prefix)?.parse::<u64>().ok().filter(|b| b % 8 == 0).map(|b| b / 8);
    if name == "bool" {
        return Some(1);
    }
    if let Some(bytes) = ["float", "uint", "int", "complex"].iter().find_map(|p| bits(p)) {
        return Some(bytes);
    }
    let short = name.trim_start_matches(['<', '|', '=']);
    let (kind, size) = short.split_at_checked(1)?;
    if "biufcSV".contains(kind) { size.parse().ok().filter(|b| *b > 0) } else { None }
}

impl RawPort {
    fn record(&self, what: &str, number: usize) -> Result<u64, LoadError> {
        let found =
            self.record_bytes.or_else(|| item_bytes(&self.dtype)).filter(|b| (1..=abi::WINDOW_BYTES).contains(b));
        found.ok_or_else(|| {
            LoadError::Metadata(format!("{what} {number}: say record_bytes, from 1 to {}", abi::WINDOW_BYTES))
        })
    }

    fn item(&self) -> u64 {
        item_bytes(&self.dtype).unwrap_or(1)
    }

    fn named(&self, what: &str, number: usize) -> String {
        if self.name.is_empty() { format!("{what}{number}") } else { self.name.clone() }
    }
}

impl Metadata {
    /// Parses the text of the metadata section, which is JSON, perhaps with zero bytes at its end.
    ///
    /// # Errors
    /// [`LoadError::Metadata`]: the text is not valid metadata.
    pub fn parse(text: &[u8]) -> Result<Self, LoadError> {
        let end = text.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
        let raw: Raw = serde_json::from_slice(&text[..end]).map_err(|e| LoadError::Metadata(e.to_string()))?;
        let wrong = |text: String| Err(LoadError::Metadata(text));
        if raw.abi != abi::ABI {
            return wrong(format!("made for version {} of the interface; this is version {}", raw.abi, abi::ABI));
        }
        let (n, m) = (raw.inputs.len(), raw.outputs.len());
        if !(1..=abi::PORTS_MAX).contains(&n) || m > abi::PORTS_MAX || raw.scalars.len() > abi::SCALARS_MAX {
            return wrong(format!("{n} inputs, {m} outputs and {} scalars do not fit", raw.scalars.len()));
        }
        if raw.memory_bytes > abi::MEMORY_BYTES_MAX {
            return wrong(format!("memory of {} bytes; at most {}", raw.memory_bytes, abi::MEMORY_BYTES_MAX));
        }
        let scratchpad = states(raw.state_bytes).saturating_add(raw.scratchpad_bytes);
        if scratchpad > abi::SCRATCHPAD_BYTES_MAX {
            let most = abi::SCRATCHPAD_BYTES_MAX;
            return wrong(format!("a scratchpad of {scratchpad} bytes, with two states; at most {most}"));
        }
        let mut inputs = Vec::new();
        for (i, port) in raw.inputs.iter().enumerate() {
            let record_bytes = port.record("input", i)?;
            if port.records != Records::Fixed && (i > 0 || record_bytes != 1) {
                return wrong(format!("input {i}: records without a common size are those of input 0, of bytes"));
            }
            if port.whole && i == 0 {
                return wrong("input 0 cannot be whole: tasks are cut by it".into());
            }
            let elements = matches!(record_bytes, 1 | 2 | 4 | 8) && record_bytes == port.item();
            if port.packed.is_some() && (raw.kind == ProgramKind::Stream || port.whole || !elements) {
                return wrong(format!("input {i}: packed inputs are integers of a block program, and not whole"));
            }
            let (name, whole, records) = (port.named("input", i), port.whole, port.records);
            let (item_bytes, packed) = (port.item(), port.packed);
            inputs.push(InputPort { name, record_bytes, item_bytes, whole, records, packed });
        }
        let mut outputs = Vec::new();
        for (i, port) in raw.outputs.iter().enumerate() {
            let record_bytes = port.record("output", i)?;
            let default = match port.phase {
                OutputPhase::Task => Bound { per_record: record_bytes, ..Bound::default() },
                OutputPhase::End => Bound { fixed: record_bytes, ..Bound::default() },
            };
            let bound = port.bound.unwrap_or(default);
            if !bound.per_input_byte.is_finite() || bound.per_input_byte < 0.0 {
                return wrong(format!("output {i}: bound per_input_byte is {}", bound.per_input_byte));
            }
            let (name, item_bytes) = (port.named("output", i), port.item());
            outputs.push(OutputPort { name, record_bytes, item_bytes, phase: port.phase, bound });
        }
        Ok(Self {
            name: raw.name,
            kind: raw.kind,
            inputs,
            outputs,
            scalars: raw.scalars.into_iter().map(|s| ScalarPort { name: s.name }).collect(),
            state_bytes: raw.state_bytes,
            scratchpad_bytes: raw.scratchpad_bytes,
            memory_bytes: raw.memory_bytes,
        })
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
