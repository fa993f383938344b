//! Computational Programs, modelled on command set 4: program slots with their states, memory range sets, execution.
//!
//! A program is a RISC-V ELF of the program ABI (docs/reference/program-abi.md), which the host loads in consecutive
//! parts. An execution takes a list of ranges: one for each input of the program, then a range of Subsystem Local
//! Memory for each output. Inputs may be in Subsystem Local Memory or in block namespaces, or be stored boxes of views;
//! the latter two are streamed. Outputs become visible together, when the program has ended without an error. Slots and
//! range sets belong to a tenant: no other tenant sees them, and they outlive a controller's reset.

use std::collections::BTreeMap;
use std::sync::Arc;

use nandarray::nvme::{ArrayAccess, Controller, ResolvedBox};
use nandarray_cores::{Form, Metadata, OutputPhase, Program};
use nandarray_nvme_spec::{
    Activation, ExecuteProgram, ExecutionAccount, LOAD_TAG, MemoryRange, NSID_MEMORY, NSID_ND, PROGRAM_TYPE_RISCV,
    ProgramCommand, ProgramLoad, ProgramSlotEntry, RangeSetAction, RangeSetEntry, SlotOccupancy, Status,
    SubmissionEntry,
};
use nandarray_runtime::{
    Error, Execution, Executor, HOLD_BYTES, Input, Output, OutputValue, ProgramId, Runtime, StageRequest,
};
use parking_lot::Mutex;
use zerocopy::{FromBytes, IntoBytes};

use crate::accounts::{ExecutionAccounts, ExecutionFailure};
use crate::boxes::StoredBoxes;
use crate::budget::{Budget, ReservedMemory};
use crate::events::{EventKind, EventLog};
use crate::payload::Payload;
use crate::registrants::SpaceUse;
use crate::reservations::HostReservations;
use crate::running::RunningExecution;
use crate::slm::LocalMemory;
use crate::tenants::Tenant;
use crate::unlocked::UnlockedArrays;

/// Number of program slots; index 0 is reserved.
pub(crate) const SLOTS: u16 = 64;
/// Maximum number of programs that are active at once.
pub(crate) const ACTIVE_MAX: u16 = 32;
/// Maximum number of range sets; identifier 0 is reserved.
pub(crate) const RANGE_SETS: u16 = 64;
/// Maximum number of ranges of a set, or of one execution.
pub(crate) const RANGES: u8 = 32;
/// Maximum size of a program, in bytes.
const PROGRAM_BYTES_MAX: u32 = 16 << 20;
/// Maximum size of all loaded programs together, in bytes.
pub(crate) const PROGRAMS_BYTES_MAX: usize = 128 << 20;
/// Maximum number of instructions of one call of a program, so that an execution ends before the host's timeout.
pub(crate) const INSTRUCTIONS_MAX: u64 = 20_000_000_000;
/// Maximum size of the inputs of a program of one task and of its outputs' room together, in bytes: they are in memory
/// at once. Twice the Subsystem Local Memory that a subsystem has by default.
const ONE_TASK_BYTES_MAX: u64 = 128 << 20;
/// Number of threads of an execution.
pub(crate) const THREADS: usize = 2;

/// A program whose parts have all arrived, parsed.
#[derive(Debug)]
struct WholeProgram {
    id: u64,
    elf: Vec<u8>,
    program: Program,
    _held: ReservedMemory,
}

/// State of a program slot.
#[derive(Debug, Default)]
enum Slot {
    /// No program is loaded.
    #[default]
    Empty,
    /// The parts up to byte `bytes.len()` have arrived, of `size` bytes.
    Loading { id: u64, size: u32, bytes: Vec<u8>, held: ReservedMemory },
    /// All parts have arrived, and the bytes are a valid program.
    Loaded(Arc<WholeProgram>),
    /// The program is loaded in the runtime under `handle`; `running` executions use it.
    Active { whole: Arc<WholeProgram>, handle: ProgramId, running: u32 },
}

impl Slot {
    fn bytes(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Loading { size, .. } => *size as usize,
            Self::Loaded(whole) | Self::Active { whole, .. } => whole.elf.len(),
        }
    }
}

#[derive(Debug)]
struct RangeSet {
    ranges: Vec<MemoryRange>,
    running: u32,
}

#[derive(Debug, Default)]
struct ProgramState {
    slots: BTreeMap<u16, Slot>,
    sets: BTreeMap<u16, RangeSet>,
}

/// Program slots and range sets of a tenant.
#[derive(Debug)]
pub(crate) struct Programs {
    state: Mutex<ProgramState>,
    budget: Arc<Budget>,
}

/// The parts of the subsystem and of the association that an execution uses.
pub(crate) struct Surroundings<'a> {
    pub(crate) runtime: &'a Runtime,
    /// The execution, which is stopped when its host is gone, or by the operator.
    pub(crate) running: &'a RunningExecution<'a>,
    /// Name of the host.
    pub(crate) host: &'a str,
    /// Events for the operator's log.
    pub(crate) events: &'a EventLog,
    /// Encrypted arrays whose keys the host has given.
    pub(crate) unlocked: &'a UnlockedArrays,
    /// Reservations that may exclude the host from arrays.
    pub(crate) reserved: HostReservations<'a>,
    /// The executor that runs programs; `None` for threads of this host.
    pub(crate) executor: Option<&'a dyn Executor>,
    pub(crate) controller: &'a Controller,
    pub(crate) boxes: &'a StoredBoxes,
    pub(crate) memory: &'a LocalMemory,
    /// Accounts of the host's executions and loads, for the vendor's log page.
    pub(crate) accounts: &'a ExecutionAccounts,
    /// Whether outputs may lie in the store.
    pub(crate) writable: bool,
    /// Whether the host may run programs.
    pub(crate) programs: bool,
    /// The tenant of the host, with its arrays and its budget.
    pub(crate) tenant: &'a Tenant,
}

impl Surroundings<'_> {
    /// Names the programs of the execution, which begins now.
    pub(crate) fn begin_programs(&self, programs: String) {
        self.events.add(EventKind::RunBegin, || {
            let (run, programs) = (self.running.number(), programs.as_str());
            vec![("host", self.host.into()), ("run", run.into()), ("programs", programs.into())]
        });
        self.running.name(programs);
    }
}

/// One input or output of an execution: a range of local memory (first byte and length), or elements of an array.
enum Operand {
    Memory(u64, u64),
    Space(ResolvedBox),
}

impl Operand {
    /// Returns the bytes of local memory that the operand has.
    fn memory_bytes(&self) -> u64 {
        match self {
            Self::Memory(_, bytes) => *bytes,
            Self::Space(_) => 0,
        }
    }
}

/// Reserves the memory of a run of programs: that of the cores of each, and `bytes` more for data.
///
/// # Errors
/// Busy: the tenant's budget, or the node's, has no room.
pub(crate) fn reserve_run(at: &Surroundings<'_>, programs: &[ProgramId], bytes: u64) -> Result<ReservedMemory, Error> {
    let mut wanted = bytes;
    for &program in programs {
        wanted = wanted.saturating_add(at.runtime.core_bytes(program)?.saturating_mul(THREADS as u64));
    }
    let (used, limit) = (at.tenant.budget.used(), at.tenant.budget.limit());
    at.tenant.budget.reserve(wanted).map_err(|_| {
        let why =
            format!("a run of {wanted} bytes of memory; {used} of {limit} bytes of tenant {:?}", at.tenant.name());
        nandarray::Error::Busy(format!("{why} are in use, or the node has none left")).into()
    })
}

/// Checks the index of a slot.
fn check_index(pind: u16) -> Result<(), Status> {
    if pind == 0 || pind > SLOTS { Err(Status::PROGRAM_INDEX) } else { Ok(()) }
}

impl Programs {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { state: Mutex::default(), budget }
    }

    /// Executes the admin command Load Program: takes a part of a program, or unloads it; at most `slots_max` slots may
    /// be in use.
    pub(crate) fn load(
        &self,
        accounts: &ExecutionAccounts,
        slots_max: u32,
        pind: u16,
        load: ProgramLoad,
        payload: &Payload<'_>,
    ) -> Result<(), Status> {
        check_index(pind)?;
        let mut state = self.state.lock();
        let all: usize = state.slots.values().map(Slot::bytes).sum();
        assert!(all <= PROGRAMS_BYTES_MAX, "{all} bytes of programs");
        let in_use = state.slots.iter().filter(|(other, slot)| **other != pind && slot.bytes() > 0).count();
        let slot = state.slots.entry(pind).or_default();
        let ProgramLoad::Part { ptype, size, id, bytes: numb, offset: loff } = load else { return unload(slot) };
        if ptype != PROGRAM_TYPE_RISCV {
            return Err(Status::PROGRAM_TYPE);
        }
        if size == 0 || size > PROGRAM_BYTES_MAX {
            return Err(Status::PROGRAM_TOO_BIG);
        }
        let part = payload.source()?;
        if part.len() as u64 != u64::from(numb) || u64::from(loff) + u64::from(numb) > u64::from(size) {
            return Err(Status::INVALID_FIELD);
        }
        if loff == 0 && matches!(slot, Slot::Empty | Slot::Loading { .. }) {
            if all - slot.bytes() + size as usize > PROGRAMS_BYTES_MAX || in_use >= slots_max as usize {
                return Err(Status::PROGRAM_BYTES_MAX);
            }
            *slot = Slot::Empty;
            let held = self.budget.reserve(size.into())?;
            *slot = Slot::Loading { id, size, bytes: Vec::new(), held };
        }
        match slot {
            Slot::Empty => Err(Status::SEQUENCE_ERROR),
            Slot::Loaded(_) | Slot::Active { .. } => Err(Status::PROGRAM_IN_USE),
            Slot::Loading { id: known, size: whole, bytes, .. } => {
                if *known != id || *whole != size || bytes.len() != loff as usize {
                    return Err(Status::INVALID_FIELD);
                }
                bytes.extend_from_slice(part);
                assert!(bytes.len() <= size as usize, "{} bytes of a program of {size}", bytes.len());
                if bytes.len() < size as usize {
                    return Ok(());
                }
                let Slot::Loading { bytes: elf, held, .. } = std::mem::take(slot) else { unreachable!("loading") };
                match Program::from_elf(&elf, None) {
                    Ok(program) => {
                        *slot = Slot::Loaded(Arc::new(WholeProgram { id, elf, program, _held: held }));
                        Ok(())
                    }
                    Err(error) => {
                        accounts.add(LOAD_TAG, &ExecutionAccount::Failed { why: error.to_string() });
                        Err(Status::PROGRAM_DATA)
                    }
                }
            }
        }
    }

    /// Executes the admin command Program Activation Management.
    pub(crate) fn activate(&self, runtime: &Runtime, pind: u16, action: Activation) -> Result<(), Status> {
        check_index(pind)?;
        let mut state = self.state.lock();
        let active = state.slots.values().filter(|slot| matches!(slot, Slot::Active { .. })).count();
        assert!(active <= usize::from(ACTIVE_MAX), "{active} active programs");
        let slot = state.slots.entry(pind).or_default();
        match (action, &mut *slot) {
            (Activation::Deactivate, Slot::Active { running: 1.., .. }) => Err(Status::PROGRAM_IN_USE),
            (Activation::Deactivate, Slot::Active { whole, handle, .. }) => {
                // If the runtime does not have the program any more, nothing has to be unloaded.
                drop(runtime.unload(*handle));
                *slot = Slot::Loaded(whole.clone());
                Ok(())
            }
            (Activation::Deactivate, Slot::Loaded(_)) => Err(Status::NOT_ACTIVATED),
            (Activation::Activate, Slot::Active { .. }) => Ok(()),
            (Activation::Activate, Slot::Loaded(_)) if active >= usize::from(ACTIVE_MAX) => Err(Status::ACTIVATED_MAX),
            (Activation::Activate, Slot::Loaded(whole)) => {
                let handle = runtime.load_program(&whole.elf, &whole.program).map_err(|_| Status::PROGRAM_DATA)?;
                *slot = Slot::Active { whole: whole.clone(), handle, running: 0 };
                Ok(())
            }
            (Activation::Deactivate | Activation::Activate, Slot::Empty | Slot::Loading { .. }) => {
                Err(Status::NO_PROGRAM)
            }
            (Activation::Reserved(_), _) => Err(Status::INVALID_FIELD),
        }
    }

    /// Executes the admin command Memory Range Set Management; returns the set's identifier.
    pub(crate) fn range_set(
        &self,
        memory: &LocalMemory,
        action: RangeSetAction,
        payload: &Payload<'_>,
    ) -> Result<u16, Status> {
        let mut state = self.state.lock();
        match action {
            RangeSetAction::Create { ranges: count } => {
                let ranges = ranges_of(payload.source()?, count)?.0;
                for (i, range) in ranges.iter().enumerate() {
                    check(memory, range)?;
                    if ranges[..i].iter().any(|other| overlap(other, range)) {
                        return Err(Status::RANGES_OVERLAP);
                    }
                }
                let free = (1..=RANGE_SETS).find(|id| !state.sets.contains_key(id)).ok_or(Status::RANGE_SETS_MAX)?;
                state.sets.insert(free, RangeSet { ranges, running: 0 });
                assert!(state.sets.len() <= usize::from(RANGE_SETS), "{} range sets", state.sets.len());
                Ok(free)
            }
            RangeSetAction::Delete { rsid } => match state.sets.get(&rsid) {
                None => Err(Status::RANGE_SET_ID),
                Some(set) if set.running > 0 => Err(Status::RANGE_SET_IN_USE),
                Some(_) => {
                    state.sets.remove(&rsid);
                    Ok(rsid)
                }
            },
            RangeSetAction::Reserved(_) => Err(Status::INVALID_FIELD),
        }
    }

    /// Executes a program; returns the sum of its outputs' lengths as dwords 0 and 1 of the completion. Its account is
    /// kept under the command's tag, also if it fails.
    pub(crate) fn execute(
        &self,
        at: &Surroundings<'_>,
        entry: &SubmissionEntry,
        payload: &Payload<'_>,
    ) -> Result<(u32, u32), Status> {
        let ProgramCommand::Execute(command) = ProgramCommand::decode(entry)?;
        match self.execute_now(at, &command, payload) {
            Ok((outputs, instructions)) => {
                let total: u64 = outputs.iter().sum();
                at.accounts.add(command.tag, &ExecutionAccount::Done { outputs, instructions });
                Ok((total as u32, (total >> 32) as u32))
            }
            Err(ExecutionFailure { status, why }) => {
                let why = at.running.fail(why);
                at.accounts.add(command.tag, &ExecutionAccount::Failed { why });
                Err(status)
            }
        }
    }

    /// Executes a program; returns the lengths of its outputs, and the number of instructions.
    fn execute_now(
        &self,
        at: &Surroundings<'_>,
        command: &ExecuteProgram,
        payload: &Payload<'_>,
    ) -> Result<(Vec<u64>, u64), ExecutionFailure> {
        let ExecuteProgram { pind, rsid, ranges: count, parameters, .. } = *command;
        check_index(pind)
            .map_err(|status| ExecutionFailure::new(status, format!("slot {pind}: must be 1 to {SLOTS}")))?;
        let data = match payload {
            Payload::None => &[][..],
            payload => payload.source()?,
        };
        if count > u32::from(RANGES) {
            let why = format!("{count} ranges: a command must have at most {RANGES}");
            return Err(ExecutionFailure::new(Status::RANGES_MAX, why));
        }
        if count > 0 && rsid != 0 {
            let why = format!("{count} ranges beside range set {rsid}: a command must have one of both");
            return Err(ExecutionFailure::new(Status::INVALID_FIELD, why));
        }
        let (inline, scalars) = ranges_of(data, count as u8).map_err(|status| {
            let why = format!("{} bytes of data: {count} ranges must have 32 each", data.len());
            ExecutionFailure::new(status, why)
        })?;
        let scalars = scalars_of(parameters, scalars).map_err(|status| {
            let why = format!("{} bytes of scalars: each must have 8", scalars.len());
            ExecutionFailure::new(status, why)
        })?;
        let (handle, whole, ranges) = self.begin(pind, rsid, inline).map_err(|status| {
            let why = format!("slot {pind}, range set {rsid}: {}", status.name());
            ExecutionFailure::new(status, why)
        })?;
        let done = self.run(at, handle, whole.program.metadata(), &ranges, &scalars);
        self.end(pind, rsid);
        done
    }

    /// Marks the program and its range set as in use by one more execution; returns the program's handle, the program
    /// and its ranges.
    fn begin(
        &self,
        pind: u16,
        rsid: u16,
        inline: Vec<MemoryRange>,
    ) -> Result<(ProgramId, Arc<WholeProgram>, Vec<MemoryRange>), Status> {
        let mut state = self.state.lock();
        let ranges = match state.sets.get(&rsid) {
            _ if rsid == 0 => inline,
            Some(set) => set.ranges.clone(),
            None => return Err(Status::RANGE_SET_ID),
        };
        let found = match state.slots.get_mut(&pind) {
            None | Some(Slot::Empty | Slot::Loading { .. }) => return Err(Status::NO_PROGRAM),
            Some(Slot::Loaded(_)) => return Err(Status::NOT_ACTIVATED),
            Some(Slot::Active { whole, handle, running }) => {
                *running += 1;
                (*handle, whole.clone())
            }
        };
        if let Some(set) = state.sets.get_mut(&rsid) {
            set.running += 1;
        }
        Ok((found.0, found.1, ranges))
    }

    fn end(&self, pind: u16, rsid: u16) {
        let mut state = self.state.lock();
        match state.slots.get_mut(&pind) {
            Some(Slot::Active { running, .. }) => {
                assert!(*running > 0, "slot {pind} ended an execution that had not begun");
                *running -= 1;
            }
            other => unreachable!("slot {pind} ended an execution as {other:?}"),
        }
        if let Some(set) = state.sets.get_mut(&rsid) {
            assert!(set.running > 0, "range set {rsid} ended an execution that had not begun");
            set.running -= 1;
        }
    }

    fn run(
        &self,
        at: &Surroundings<'_>,
        program: ProgramId,
        ports: &Metadata,
        ranges: &[MemoryRange],
        scalars: &ScalarsGiven,
    ) -> Result<(Vec<u64>, u64), ExecutionFailure> {
        let (inputs, outputs) = (ports.inputs.len(), ports.outputs.len());
        let wanted = inputs + outputs;
        if ranges.len() != wanted {
            let why = format!("{} ranges; the program has {inputs} inputs, {outputs} outputs", ranges.len());
            return Err(ExecutionFailure::new(Status::INVALID_FIELD, why));
        }
        let operands: Vec<Operand> =
            ranges.iter().enumerate().map(|(i, range)| described(at, i, range)).collect::<Result<_, _>>()?;
        let (from, to) = operands.split_at(inputs);
        fits_one_task(ports, from)?;
        check_uses(at, from, to)?;
        let room = |operands: &[Operand]| operands.iter().map(Operand::memory_bytes).fold(0, u64::saturating_add);
        let _held = reserve_run(at, &[program], room(from)).map_err(failure_of)?;
        let copies: Vec<Vec<u8>> = from
            .iter()
            .map(|operand| match operand {
                Operand::Memory(first, len) => at.memory.read(*first, *len),
                Operand::Space(_) => Ok(Vec::new()),
            })
            .collect::<Result<_, _>>()?;
        let steps: Vec<Vec<u64>> = from.iter().map(steps_of).collect();
        let given: Vec<Input<'_>> = from.iter().zip(&copies).zip(&steps).map(input).collect();
        let places: Vec<Option<Output<'_>>> = to.iter().map(|operand| Some(output(operand))).collect();
        let scalars = match scalars {
            ScalarsGiven::Data(numbers) => &numbers[..],
            // The entry always has two: those that the program does not take have no meaning.
            ScalarsGiven::Entry(numbers) => &numbers[..ports.scalars.len().min(numbers.len())],
        };
        let stage = StageRequest {
            program,
            form: Form::Translated,
            inputs: &given,
            scalars,
            outputs: &places,
            task_bytes: ports.task_bytes(),
            instructions: Some(INSTRUCTIONS_MAX),
            cores: &[],
        };
        let stages = [stage];
        let threads = at.runtime.threads(THREADS);
        let executor = at.executor.unwrap_or(&threads);
        let execution = Execution {
            stages: &stages,
            executor,
            hold_bytes: HOLD_BYTES,
            collect_bytes: u64::MAX,
            locks_at_end: true,
            progress: at.running.progress(),
        };
        at.begin_programs(ports.name.clone());
        at.running.outputs().limit_to(to.iter().map(Operand::memory_bytes));
        let done = at.runtime.execute(&execution).map_err(|error| match at.running.outputs().exceeded() {
            Some((bytes, room)) => output_too_large(bytes, room),
            None => failure_of(error),
        })?;
        let lengths = deliver(at, to, &done.stages[0].outputs)?;
        Ok((lengths, done.account.instructions))
    }

    /// Returns log page 82h, with an entry for each program slot.
    pub(crate) fn list(&self) -> Vec<u8> {
        let state = self.state.lock();
        let entry = |pind: u16| match state.slots.get(&pind) {
            None | Some(Slot::Empty) => ProgramSlotEntry::new(SlotOccupancy::Empty, false, 0),
            Some(Slot::Loading { id, .. }) => ProgramSlotEntry::new(SlotOccupancy::Loading, false, *id),
            Some(Slot::Loaded(whole)) => ProgramSlotEntry::new(SlotOccupancy::Loaded, false, whole.id),
            Some(Slot::Active { whole, .. }) => ProgramSlotEntry::new(SlotOccupancy::Loaded, true, whole.id),
        };
        (1..=SLOTS).map(entry).collect::<Vec<_>>().as_bytes().to_vec()
    }

    /// Returns log page 84h, with an entry for each range set.
    pub(crate) fn range_sets(&self) -> Vec<u8> {
        let state = self.state.lock();
        let entry = |(&rsid, set): (&u16, &RangeSet)| {
            assert!(set.ranges.len() <= usize::from(RANGES), "{} ranges of set {rsid}", set.ranges.len());
            RangeSetEntry::new(rsid, set.ranges.len() as u8, set.running > 0)
        };
        state.sets.iter().map(entry).collect::<Vec<_>>().as_bytes().to_vec()
    }
}

/// Checks that the host may read the inputs and write the outputs of an execution.
fn check_uses(at: &Surroundings<'_>, from: &[Operand], to: &[Operand]) -> Result<(), ExecutionFailure> {
    for (i, operand) in to.iter().enumerate() {
        let Operand::Space(of) = operand else { continue };
        if !at.writable {
            let why = format!("output {i} lies in the store, which is exported for reading only");
            return Err(ExecutionFailure::new(Status::WRITE_PROTECTED, why));
        }
        let name = at.runtime.device().by_id(of.space).map_err(Status::from)?.peek().record.name.clone();
        if !at.tenant.writes(&name) {
            let why = format!("output {i} lies in array {name:?}, which this host may only read");
            return Err(ExecutionFailure::new(Status::WRITE_PROTECTED, why));
        }
    }
    for (i, operand) in from.iter().chain(to).enumerate() {
        let what = if i < from.len() { SpaceUse::Read } else { SpaceUse::Write };
        if let Operand::Space(found) = operand {
            let why = |status: Status| ExecutionFailure::new(status, format!("range {i}: {}", status.name()));
            at.reserved.check(found.space, what).map_err(why)?;
        }
    }
    Ok(())
}

/// Returns the failure of an execution that ended with an error.
fn failure_of(error: Error) -> ExecutionFailure {
    let why = error.to_string();
    let status = match error {
        Error::Engine(error) => Status::from(error),
        Error::Program(_) => Status::PROGRAM_DATA,
        Error::Execution(_) => Status::PROGRAM_FAILED,
        // Errors of sessions, which an execution cannot have.
        _ => Status::INTERNAL_ERROR,
    };
    ExecutionFailure::new(status, why)
}

/// Empties a slot, unless its program is active.
fn unload(slot: &mut Slot) -> Result<(), Status> {
    match slot {
        Slot::Empty => Err(Status::NO_PROGRAM),
        Slot::Active { .. } => Err(Status::PROGRAM_IN_USE),
        Slot::Loading { .. } | Slot::Loaded(_) => {
            *slot = Slot::Empty;
            Ok(())
        }
    }
}

/// Splits the ranges at the beginning of a command's data from the rest of the data; `count` is the number of ranges.
fn ranges_of(data: &[u8], count: u8) -> Result<(Vec<MemoryRange>, &[u8]), Status> {
    if count > RANGES {
        return Err(Status::RANGES_MAX);
    }
    let bytes = usize::from(count) * size_of::<MemoryRange>();
    let (list, rest) = data.split_at_checked(bytes).ok_or(Status::DATA_LENGTH_INVALID)?;
    let ranges = <[MemoryRange]>::ref_from_bytes(list).expect("ranges have no alignment");
    Ok((ranges.to_vec(), rest))
}

/// The scalars that a host gives; those at the end that it leaves out have their defaults, or are missing.
enum ScalarsGiven {
    /// The numbers in the command's data.
    Data(Vec<u64>),
    /// The two parameters in the command's entry; none if both are zero.
    Entry(Vec<u64>),
}

/// Returns the scalars in a command's data, 8 bytes each; without data, those in the command's entry.
fn scalars_of(both: [u64; 2], data: &[u8]) -> Result<ScalarsGiven, Status> {
    if data.is_empty() {
        return Ok(ScalarsGiven::Entry(if both == [0, 0] { Vec::new() } else { both.to_vec() }));
    }
    if !data.len().is_multiple_of(8) {
        return Err(Status::DATA_LENGTH_INVALID);
    }
    let number = |at: &[u8]| u64::from_le_bytes(at.try_into().expect("eight bytes"));
    Ok(ScalarsGiven::Data(data.chunks_exact(8).map(number).collect()))
}

fn check(memory: &LocalMemory, range: &MemoryRange) -> Result<(), Status> {
    let (sb, len) = (range.sb.get(), u64::from(range.len.get()));
    match range.nsid.get() {
        NSID_MEMORY if sb.checked_add(len).is_none_or(|end| end > memory.len()) => Err(Status::MEMORY_RANGE),
        0 | u32::MAX => Err(Status::MEMORY_NAMESPACE),
        _ => Ok(()),
    }
}

fn overlap(one: &MemoryRange, other: &MemoryRange) -> bool {
    let end = |range: &MemoryRange| range.sb.get().saturating_add(u64::from(range.len.get()));
    let memory = one.nsid == other.nsid && one.nsid.get() != NSID_ND;
    let empty = one.len.get() == 0 || other.len.get() == 0;
    memory && !empty && one.sb.get() < end(other) && other.sb.get() < end(one)
}

fn operand(at: &Surroundings<'_>, range: &MemoryRange) -> Result<Operand, Status> {
    check(at.memory, range)?;
    let (sb, len) = (range.sb.get(), u64::from(range.len.get()));
    match range.nsid.get() {
        NSID_MEMORY => Ok(Operand::Memory(sb, len)),
        NSID_ND => {
            let handle = u32::try_from(sb).map_err(|_| Status::INVALID_BOX)?;
            let found = at.boxes.resolve(at.controller, handle)?;
            if len != 0 && len != found.bytes { Err(Status::MEMORY_RANGE) } else { Ok(Operand::Space(found)) }
        }
        // Arrays of such names are no namespaces.
        nsid if nsid >= NSID_MEMORY => Err(Status::MEMORY_NAMESPACE),
        nsid => match at.controller.resolve_bytes(nsid, sb, len) {
            Err(status) if status == Status::INVALID_NAMESPACE => Err(Status::MEMORY_NAMESPACE),
            done => done.map(Operand::Space),
        },
    }
}

/// As [`operand`], with the range's number and numbers in the reason of a failure.
fn described(at: &Surroundings<'_>, number: usize, range: &MemoryRange) -> Result<Operand, ExecutionFailure> {
    operand(at, range).map_err(|status| {
        let (sb, len, nsid) = (range.sb.get(), range.len.get(), range.nsid.get());
        let why = format!("range {number}, {len} bytes from {sb} of namespace {nsid}: {}", status.name());
        ExecutionFailure::new(status, why)
    })
}

fn steps_of(operand: &Operand) -> Vec<u64> {
    match operand {
        Operand::Memory(..) => Vec::new(),
        Operand::Space(of) => vec![1; of.start.len()],
    }
}

fn input<'a>(((operand, copy), step): ((&'a Operand, &'a Vec<u8>), &'a Vec<u64>)) -> Input<'a> {
    match operand {
        Operand::Memory(..) => Input::Bytes(copy),
        Operand::Space(of) => {
            let view = of.view.as_deref();
            Input::Box { space: of.space, start: &of.start, step, count: &of.count, view, tiles: None }
        }
    }
}

fn output(operand: &Operand) -> Output<'_> {
    match operand {
        Operand::Memory(..) => Output::Collect,
        Operand::Space(of) => {
            let view = of.view.as_deref();
            Output::Box { space: of.space, start: &of.start, count: &of.count, view, tiles: None }
        }
    }
}

/// Checks that a program of one task needs no more memory than [`ONE_TASK_BYTES_MAX`].
fn fits_one_task(ports: &Metadata, from: &[Operand]) -> Result<(), ExecutionFailure> {
    if !ports.tasks.is_one() {
        return Ok(());
    }
    let sizes = || {
        from.iter().map(|operand| match operand {
            Operand::Memory(_, len) => *len,
            Operand::Space(of) => of.bytes,
        })
    };
    let inputs = sizes().fold(0, u64::saturating_add);
    let cut = sizes().zip(&ports.inputs).filter(|(_, port)| !port.whole).map(|(bytes, _)| bytes);
    let cut = cut.fold(0, u64::saturating_add);
    let records = sizes().next().unwrap_or(0).div_ceil(ports.inputs[0].record_bytes);
    let rooms = ports.outputs.iter().map(|port| match port.phase {
        OutputPhase::Task | OutputPhase::Both => port.bound.room(records, cut),
        OutputPhase::End => port.bound.room(0, 0),
    });
    let rooms = rooms.fold(0, u64::saturating_add);
    if inputs.saturating_add(rooms) > ONE_TASK_BYTES_MAX {
        let why = format!(
            "inputs of {inputs} bytes and a room of {rooms} for outputs: a program of one task must have at most \
             {ONE_TASK_BYTES_MAX} together"
        );
        return Err(ExecutionFailure::new(Status::MEMORY_RANGE, why));
    }
    Ok(())
}

fn output_too_large(bytes: u64, room: u64) -> ExecutionFailure {
    ExecutionFailure::new(Status::MEMORY_RANGE, format!("an output of {bytes} bytes; its range has {room}"))
}

/// Writes the outputs to their ranges, all or none; returns their lengths in bytes (in elements for arrays).
fn deliver(
    at: &Surroundings<'_>,
    to: &[Operand],
    outputs: &[Option<OutputValue>],
) -> Result<Vec<u64>, ExecutionFailure> {
    let (mut parts, mut lengths) = (Vec::new(), Vec::new());
    for (operand, value) in to.iter().zip(outputs) {
        match (operand, value) {
            (Operand::Memory(first, room), Some(OutputValue::Bytes(bytes))) => {
                if bytes.len() as u64 > *room {
                    return Err(output_too_large(bytes.len() as u64, *room));
                }
                parts.push((*first, &bytes[..]));
                lengths.push(bytes.len() as u64);
            }
            (_, Some(OutputValue::Elements(count))) => lengths.push(*count),
            (_, value) => unreachable!("an output of an execution is {value:?}"),
        }
    }
    at.memory.write_all(&parts)?;
    assert_eq!(lengths.len(), to.len(), "outputs of an execution");
    Ok(lengths)
}
