//! The description table of a kernel: data sections, microblocks, and the parts of sections that a screen maps.
//!
//! The table is JSON. It is checked as far as a run relies on it: no screen of a microblock maps rows that another
//! screen writes. `docs/reference/kernel-table.md` specifies the format.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

use crate::abi;
use crate::element::ElementType;
use crate::error::LoadError;

/// The part of a section that each screen maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum MappedPart {
    /// A part by its name: `"all"`, or `"rows"` for the screen's share of rows.
    Word(PartWord),
    /// The screen's share of rows, with some rows before and after it.
    Halo {
        /// Number of rows before the share, and after it.
        rows: [u64; 2],
    },
}

/// A part of a section by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartWord {
    /// The whole section.
    All,
    /// The screen's share of rows.
    Rows,
}

/// The rule that gives the number of screens of a microblock.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum ScreenRule {
    /// A fixed number of screens; a serial microblock has 1.
    Count(u64),
    /// The number that the scheduler wants, at most the number of rows of the section of this name.
    RowsOf(String),
}

/// A data section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSection {
    /// Name of the section.
    pub name: String,
    /// Size of an element, in bytes.
    pub item_bytes: u64,
    /// Type of an element; `None` if the table does not say.
    pub element: Option<ElementType>,
    /// The use that the kernel makes of the section.
    pub role: SectionRole,
}

/// The use that a kernel makes of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionRole {
    /// The section is only read.
    Input,
    /// The section begins as zeros, and is a result of the kernel.
    Output,
    /// The section begins as a copy of an array, and replaces that array at the end.
    Update,
    /// The section begins as zeros, and is dropped at the end.
    Temporary,
}

/// A microblock: a part of the kernel that runs after the ones before it, cut into screens that run at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Microblock {
    /// Name of its function, without the prefix `nd_kernel_`.
    pub entry: String,
    /// The rule that gives its number of screens.
    pub screens: ScreenRule,
    /// Part of each section that a screen reads, by the section's number.
    pub reads: BTreeMap<usize, MappedPart>,
    /// Part of each section that a screen writes, and may read too, by the section's number.
    pub writes: BTreeMap<usize, MappedPart>,
}

/// A kernel's description table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTable {
    /// Name of the kernel.
    pub name: String,
    /// Data sections: first the inputs, then the outputs.
    pub sections: Vec<DataSection>,
    /// Number of inputs among the sections.
    pub inputs: usize,
    /// Number of scalars that the kernel takes.
    pub scalars: usize,
    /// Microblocks in the order in which they run.
    pub microblocks: Vec<Microblock>,
    /// Size of the scratchpad, in bytes.
    pub scratchpad_bytes: u64,
    /// Size of the program memory, in bytes.
    pub memory_bytes: u64,
}

#[derive(Deserialize)]
struct WrittenTable {
    abi: u64,
    name: String,
    kind: String,
    inputs: Vec<WrittenSection>,
    #[serde(default)]
    outputs: Vec<WrittenSection>,
    #[serde(default)]
    scalars: Vec<serde_json::Value>,
    microblocks: Vec<WrittenMicroblock>,
    #[serde(default)]
    scratchpad_bytes: u64,
    #[serde(default = "mebibyte")]
    memory_bytes: u64,
}

#[derive(Deserialize)]
struct WrittenSection {
    name: String,
    item_bytes: u64,
    #[serde(default)]
    dtype: serde_json::Value,
    #[serde(default)]
    update: bool,
    #[serde(default)]
    temporary: bool,
}

#[derive(Deserialize)]
struct WrittenMicroblock {
    entry: String,
    screens: ScreenRule,
    #[serde(default)]
    reads: BTreeMap<String, MappedPart>,
    #[serde(default)]
    writes: BTreeMap<String, MappedPart>,
}

fn mebibyte() -> u64 {
    1 << 20
}

/// Returns the rows of a section of `rows` rows that belong to one of `screens` screens.
pub fn share(rows: u64, screen: u64, screens: u64) -> Range<u64> {
    let at = |screen: u64| (u128::from(rows) * u128::from(screen) / u128::from(screens.max(1))) as u64;
    at(screen)..at(screen + 1)
}

impl MappedPart {
    /// Returns the rows that a screen maps of a section of `rows` rows.
    pub fn rows(self, rows: u64, screen: u64, screens: u64) -> Range<u64> {
        let own = share(rows, screen, screens);
        match self {
            Self::Word(PartWord::All) => 0..rows,
            Self::Word(PartWord::Rows) => own,
            Self::Halo { .. } if own.is_empty() => own,
            Self::Halo { rows: [before, behind] } => {
                own.start.saturating_sub(before)..own.end.saturating_add(behind).min(rows)
            }
        }
    }

    fn hull(self, other: Option<Self>) -> Self {
        let width = |part: Self| match part {
            Self::Word(PartWord::All) => None,
            Self::Word(PartWord::Rows) => Some([0, 0]),
            Self::Halo { rows } => Some(rows),
        };
        match (width(self), other.map_or(Some([0, 0]), width)) {
            (Some(a), Some(b)) => Self::Halo { rows: [a[0].max(b[0]), a[1].max(b[1])] },
            _ => Self::Word(PartWord::All),
        }
    }
}

impl Microblock {
    /// Returns the part of a section that a screen maps, for reading and writing together; `None` if it maps nothing of
    /// it.
    pub fn mapped(&self, section: usize) -> Option<MappedPart> {
        match (self.reads.get(&section), self.writes.get(&section)) {
            (None, None) => None,
            (Some(one), other) => Some(one.hull(other.copied())),
            (None, Some(one)) => Some(*one),
        }
    }

    /// Returns the number of screens if the scheduler wants `wanted`; `rows` returns the number of rows of a section.
    pub fn screens(&self, table: &KernelTable, wanted: u64, rows: impl Fn(usize) -> u64) -> u64 {
        match &self.screens {
            ScreenRule::Count(count) => *count,
            ScreenRule::RowsOf(name) => {
                let section = table.sections.iter().position(|s| s.name == *name).expect("checked on loading");
                wanted.clamp(1, rows(section).max(1))
            }
        }
    }
}

impl KernelTable {
    /// Reads and checks a description table in JSON.
    ///
    /// # Errors
    /// [`LoadError::Metadata`]: names the key that is wrong, with the reason.
    pub fn parse(text: &[u8]) -> Result<Self, LoadError> {
        let wrong = |text: String| LoadError::Metadata(text);
        let written: WrittenTable = serde_json::from_slice(text).map_err(|e| wrong(e.to_string()))?;
        if written.abi != abi::ABI || written.kind != "kernel" {
            return Err(wrong(format!("abi {} and kind {:?}; a kernel has 1 and kernel", written.abi, written.kind)));
        }
        let inputs = written.inputs.len();
        if inputs > abi::PORTS_MAX || written.outputs.len() > abi::PORTS_MAX {
            return Err(wrong(format!("{inputs} inputs and {} outputs do not fit", written.outputs.len())));
        }
        let role = |number: usize, s: &WrittenSection| match (number < inputs, s.update, s.temporary) {
            (true, false, false) => Ok(SectionRole::Input),
            (false, true, false) => Ok(SectionRole::Update),
            (false, false, true) => Ok(SectionRole::Temporary),
            (false, false, false) => Ok(SectionRole::Output),
            _ => Err(wrong(format!("section {}: an input is neither updated nor temporary", s.name))),
        };
        let mut sections = Vec::new();
        for (number, s) in written.inputs.iter().chain(&written.outputs).enumerate() {
            if !(1..=abi::WINDOW_BYTES).contains(&s.item_bytes) {
                let most = abi::WINDOW_BYTES;
                return Err(wrong(format!(
                    "section {}: item_bytes must be from 1 to {most}, not {}",
                    s.name, s.item_bytes
                )));
            }
            if sections.iter().any(|earlier: &DataSection| earlier.name == s.name) {
                return Err(wrong(format!("{:?} names two of the kernel's sections", s.name)));
            }
            let element = ElementType::parse(&s.dtype);
            if element.as_ref().map_or(!s.dtype.is_null(), |element| element.bytes() != s.item_bytes) {
                let (name, dtype, bytes) = (&s.name, &s.dtype, s.item_bytes);
                return Err(wrong(format!("section {name}: dtype must be a type of {bytes} bytes, not {dtype}")));
            }
            let (name, item_bytes, role) = (s.name.clone(), s.item_bytes, role(number, s)?);
            sections.push(DataSection { name, item_bytes, element, role });
        }
        let mut table = Self {
            name: written.name,
            sections,
            inputs,
            scalars: written.scalars.len(),
            microblocks: Vec::new(),
            scratchpad_bytes: written.scratchpad_bytes.max(abi::SCRATCHPAD_BYTES),
            memory_bytes: written.memory_bytes,
        };
        if table.scalars > abi::SCALARS_MAX || table.memory_bytes > abi::MEMORY_BYTES_MAX {
            return Err(wrong(format!("{} scalars and {} bytes do not fit", table.scalars, table.memory_bytes)));
        }
        if table.scratchpad_bytes > abi::SCRATCHPAD_BYTES_MAX {
            let most = abi::SCRATCHPAD_BYTES_MAX;
            return Err(wrong(format!("scratchpad_bytes must be at most {most}, not {}", table.scratchpad_bytes)));
        }
        for microblock in written.microblocks {
            let made = table.microblock(microblock)?;
            table.microblocks.push(made);
        }
        if table.microblocks.is_empty() {
            return Err(wrong("a kernel needs one microblock at least".to_owned()));
        }
        Ok(table)
    }

    fn section(&self, microblock: &str, name: &str) -> Result<usize, LoadError> {
        let found = self.sections.iter().position(|s| s.name == name);
        found.ok_or_else(|| LoadError::Metadata(format!("microblock {microblock}: there is no section {name:?}")))
    }

    fn microblock(&self, written: WrittenMicroblock) -> Result<Microblock, LoadError> {
        let WrittenMicroblock { entry, screens, reads, writes } = written;
        let wrong = |what: String| LoadError::Metadata(format!("microblock {entry}: {what}"));
        match &screens {
            ScreenRule::Count(0) => return Err(wrong("0 screens".to_owned())),
            ScreenRule::Count(_) => {}
            ScreenRule::RowsOf(name) => drop(self.section(&entry, name)?),
        }
        let parts = |named: BTreeMap<String, MappedPart>| -> Result<BTreeMap<usize, MappedPart>, LoadError> {
            named.into_iter().map(|(name, part)| Ok((self.section(&entry, &name)?, part))).collect()
        };
        let (reads, writes) = (parts(reads)?, parts(writes)?);
        for (section, part) in &writes {
            let DataSection { name, role, .. } = &self.sections[*section];
            if *role == SectionRole::Input {
                return Err(wrong(format!("it writes {name}, which is an input")));
            }
            let mapped = reads.get(section).map_or(*part, |read| part.hull(Some(*read)));
            let alone = matches!(mapped, MappedPart::Word(PartWord::Rows) | MappedPart::Halo { rows: [0, 0] });
            if screens != ScreenRule::Count(1) && !alone {
                return Err(wrong(format!("its screens would meet in {name}: one writes rows that another maps")));
            }
        }
        Ok(Microblock { entry, screens, reads, writes })
    }
}
