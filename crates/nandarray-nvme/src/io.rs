//! Commands of I/O queues: each is looked up in its namespace's command set, and passed on to those who execute it.
//!
//! A command that failed is counted, and added to the error log.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nandarray::nvme::{COPY_BYTES_MAX, CopyRange, NSID_ALL};
use nandarray::waits;
use nandarray_nvme_spec::{
    CommandSet, CompletionEntry, FABRICS_OPCODE, NSID_ND, NSID_PROGRAMS, NdCommand, NdOpcode, NvmeCommand, Opcode,
    ReservationOpcode, Status, SubmissionEntry,
};
use nandarray_runtime::Runtime;

use zerocopy::FromBytes;

use crate::association::Association;
use crate::budget::OutputMemory;
use crate::commands::{CommandEffect, IoCommand};
use crate::events::EventKind;
use crate::limits::TRANSFER_BYTES_MAX;
use crate::logs::{self, FailedCommand};
use crate::payload::Payload;
use crate::programs::Surroundings;
use crate::running::{RunCommand, RunLimits, RunningExecution};
use crate::subsystem::{self, NN};

/// The thread that executes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandPlace {
    /// The command is short: the thread that received it executes it.
    Here,
    /// The command may take long, but its time is limited by its bytes.
    Worker,
    /// The command runs programs, which may take very long: no other kind of command waits behind it.
    ProgramWorker,
}

impl Association {
    /// Executes a command of I/O queue `qid`.
    pub fn io(&self, qid: u16, entry: &SubmissionEntry, payload: Payload<'_>) -> CompletionEntry {
        self.seen.store(true, Ordering::Relaxed);
        let done = self.io_now(qid, entry, payload);
        self.ended(qid, entry, done)
    }

    /// Returns where a transport lets a command be executed, so that others of its queue and of other hosts go on.
    pub(crate) fn place_of(entry: &SubmissionEntry) -> CommandPlace {
        match (entry.nsid.get(), entry.opcode) {
            (NSID_PROGRAMS, _) => CommandPlace::ProgramWorker,
            (NSID_ND, NdOpcode::ARRAY_REQUEST) => match NdCommand::decode(entry) {
                Ok(NdCommand::ArrayRequest(part)) if part.programs => CommandPlace::ProgramWorker,
                _ => CommandPlace::Worker,
            },
            // A preemption may wait for commands of other hosts, and all of them for the medium.
            (nsid, opcode)
                if subsystem::command_set(nsid) == CommandSet::NVM
                    && opcode != ReservationOpcode::Report as u8
                    && ReservationOpcode::of(opcode).is_some() =>
            {
                CommandPlace::Worker
            }
            (_, Opcode::COPY) => CommandPlace::Worker,
            _ => CommandPlace::Here,
        }
    }

    /// Returns where a command with this data is executed, as [`Self::place_of`] says; but for a copy of no more than a
    /// write may transfer, which takes no longer than one: on a machine whose processors are busy, the way to another
    /// thread would take many times as long.
    pub(crate) fn place(&self, entry: &SubmissionEntry, data: Option<&[u8]>) -> CommandPlace {
        let is_short = || self.copied_bytes(entry, data.unwrap_or_default()) <= TRANSFER_BYTES_MAX as u64;
        match Self::place_of(entry) {
            CommandPlace::Worker if entry.opcode == Opcode::COPY && is_short() => CommandPlace::Here,
            place => place,
        }
    }

    /// Returns the command that an entry of an I/O queue means; `None` if the subsystem has no such command.
    pub(crate) fn io_command(&self, entry: &SubmissionEntry) -> Option<IoCommand> {
        IoCommand::of(subsystem::command_set(entry.nsid.get()), entry.opcode, self.has(CommandSet::ND))
    }

    fn io_now(&self, qid: u16, entry: &SubmissionEntry, mut payload: Payload<'_>) -> Result<(u32, u32), Status> {
        if !self.is_ready() {
            // Without DNR: a host whose association has ended sends the command again once it is back.
            return Err(Status::ABORTED);
        }
        if entry.opcode == FABRICS_OPCODE {
            return Err(Status::SEQUENCE_ERROR);
        }
        if entry.is_fused() {
            return Err(Status::INVALID_FIELD);
        }
        let nsid = entry.nsid.get();
        let csi = subsystem::command_set(nsid);
        if csi != CommandSet::NVM {
            self.csi(nsid)?;
        } else if nsid > NN && nsid != NSID_ALL && entry.opcode & NdOpcode::VENDOR == 0 {
            // Blocks of a namespace beyond those that identify lists; a flush may name all.
            return Err(Status::INVALID_NAMESPACE);
        }
        let command = self.io_command(entry).ok_or(Status::INVALID_OPCODE)?;
        if command.effect_of(entry) == CommandEffect::Store && self.subsystem().read_only() {
            return Err(Status::WRITE_PROTECTED);
        }
        if command.is_of_registrants() {
            return self.reserve(entry, payload);
        }
        // Before reservations are looked at: one that is made from now on waits for this command, or excludes it.
        let _executing = self.executing.begin();
        self.check_reserved(command, entry)?;
        let of_run = RunCommand { qid, cid: entry.cid.get() };
        match csi {
            CommandSet::MEMORY => self.tenant().memory.execute(entry, payload).map(|()| (0, 0)),
            CommandSet::PROGRAMS => {
                let (runtime, running) = (self.subsystem().runtime()?, self.begin_execution(of_run, true)?);
                let at = self.surroundings(&runtime, &running);
                let execute = || self.tenant().programs.execute(&at, entry, &payload);
                let done = waits::stopped_by(running.is_stopped(), execute);
                self.end_execution(&running);
                done
            }
            CommandSet::ND => match NdCommand::decode(entry)? {
                NdCommand::ArrayRequest(part) => {
                    let (runtime, running) =
                        (self.subsystem().runtime()?, self.begin_execution(of_run, part.programs)?);
                    // A modelled device has one clock for all hosts, which must not wait for one of them.
                    if part.fetches
                        && self.subsystem().options().executor.is_none()
                        && let Some(run) = self.fetched.of(part.tag)
                    {
                        running.outputs().hand_to(run);
                    }
                    let at = self.surroundings(&runtime, &running);
                    let execute = || self.requests.request(&at, part, &payload);
                    let done = waits::stopped_by(running.is_stopped(), execute);
                    self.end_execution(&running);
                    done
                }
                NdCommand::ArrayReply(part) => self.requests.reply(part, &mut payload),
                // A transport lets it wait (`Association::fetch_output`).
                // The transport, which holds commands, executes it.
                NdCommand::RunOutput { .. } => Err(Status::INVALID_FIELD),
                command => self.boxes.execute(self.controller(), command, payload),
            },
            _ => self.block(entry, payload),
        }
    }

    /// Adds an execution to those that end with the association.
    fn begin_execution(&self, command: RunCommand, runs_programs: bool) -> Result<RunningExecution<'_>, Status> {
        let (instructions_max, time_max) =
            self.tenant().rule(|rules| (rules.instructions, Duration::from_secs(rules.seconds.into())));
        let outputs = Arc::new(OutputMemory::new(&self.tenant().budget, &self.tenant().spool));
        let limits = RunLimits { instructions_max, time_max, outputs };
        let running = self.running.begin(&self.subsystem().last_run, command, runs_programs, limits);
        // The association may have ended since it was looked at, and have stopped only those that were there.
        if self.is_ready() { Ok(running) } else { Err(Status::ABORTED) }
    }

    /// Tells the end of an execution that has run programs.
    fn end_execution(&self, running: &RunningExecution<'_>) {
        let (kind, why) = match (running.failure(), running.stopped()) {
            _ if !running.has_begun() => return,
            (None, _) => (EventKind::RunEnd, None),
            (Some(_), Some(why)) => (EventKind::RunKilled, Some(why)),
            (Some(why), None) => (EventKind::RunFailed, Some(why)),
        };
        self.subsystem().events.add(kind, || {
            let (programs, time, instructions, cpu) = running.costs();
            let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let mut fields = vec![
                ("host", self.host().hostnqn.as_str().into()),
                ("controller", u64::from(self.cntlid()).into()),
                ("run", running.number().into()),
                ("programs", programs.as_str().into()),
                ("duration_ns", nanoseconds(time).into()),
                ("cpu_ns", nanoseconds(cpu).into()),
                ("instructions", instructions.into()),
            ];
            fields.extend(why.map(|why| ("why", why.as_str().into())));
            fields
        });
    }

    fn surroundings<'a>(&'a self, runtime: &'a Runtime, running: &'a RunningExecution<'a>) -> Surroundings<'a> {
        Surroundings {
            runtime,
            running,
            host: &self.host().hostnqn,
            events: &self.subsystem().events,
            unlocked: &self.unlocked,
            reserved: self.subsystem().reservations.seen_by(runtime.device(), self.reservation_host()),
            executor: self.subsystem().options().executor.as_deref(),
            controller: self.controller(),
            boxes: &self.boxes,
            memory: &self.tenant().memory,
            accounts: &self.accounts,
            writable: !self.subsystem().read_only(),
            programs: self.has(CommandSet::PROGRAMS),
            tenant: self.tenant(),
        }
    }

    /// Returns the bytes that a copy holds in memory.
    fn copied_bytes(&self, entry: &SubmissionEntry, bytes: &[u8]) -> u64 {
        if entry.opcode != Opcode::COPY {
            return 0;
        }
        let (ranges, _) = <[CopyRange]>::ref_from_prefix_with_elems(bytes, bytes.len() / size_of::<CopyRange>())
            .expect("ranges have no alignment");
        let blocks: u64 = ranges.iter().map(|range| u64::from(range.nlb_z.get()) + 1).sum();
        let lba = self.controller().identify_namespace(entry.nsid.get()).map_or(0, |ns| 1u64 << ns.lbaf[0].lbads);
        (blocks * lba).min(COPY_BYTES_MAX)
    }

    fn block(&self, entry: &SubmissionEntry, payload: Payload<'_>) -> Result<(u32, u32), Status> {
        let moved = match &payload {
            Payload::None => 0,
            Payload::ToController(bytes) => bytes.len() as u64,
            Payload::ToHost(bytes) => bytes.len() as u64,
        };
        let given = if let Payload::ToController(bytes) = &payload { *bytes } else { &[] };
        let _copied = self.tenant().budget.reserve(self.copied_bytes(entry, given))?;
        let done = self.controller().submit(entry, payload.into_buffer());
        if !done.status().ok() {
            return Err(done.status());
        }
        match entry.opcode {
            Opcode::READ => self.subsystem().health.read(moved),
            Opcode::WRITE => self.subsystem().health.wrote(moved),
            _ => {}
        }
        Ok((done.dw0.get(), done.dw1.get()))
    }

    /// Returns whether a completed command may have changed the store, so that [`Subsystem::settle`] has to be called
    /// before its completion is sent.
    pub fn has_written(&self, entry: &SubmissionEntry) -> bool {
        match self.io_command(entry).map(|command| command.effect_of(entry)) {
            None | Some(CommandEffect::Nothing | CommandEffect::Registrants | CommandEffect::Subsystem) => false,
            Some(CommandEffect::Store | CommandEffect::StoreByAction | CommandEffect::Outputs) => true,
        }
    }

    pub(crate) fn ended(&self, qid: u16, entry: &SubmissionEntry, done: Result<(u32, u32), Status>) -> CompletionEntry {
        if let Err(status) = done {
            self.log_failure(qid, entry, status);
        }
        CompletionEntry::new(entry.cid.get(), done)
    }

    /// Counts a command that failed, and adds it to the error log; not one of the discovery service, whose hosts are
    /// strangers.
    pub(crate) fn log_failure(&self, qid: u16, entry: &SubmissionEntry, status: Status) {
        if !self.is_discovery() {
            let number = self.subsystem().health.failed();
            self.tenant().errors.add(number, self.failure(qid, entry, status));
        }
    }

    /// Returns the entry of the error log for a command that failed.
    fn failure(&self, qid: u16, entry: &SubmissionEntry, status: Status) -> FailedCommand {
        let nsid = entry.nsid.get();
        let command = if qid > 0 { self.io_command(entry) } else { None };
        let has_blocks = command.is_some_and(IoCommand::names_blocks);
        let location = logs::parameter(qid, command, status);
        let about_blocks = status == Status::LBA_OUT_OF_RANGE || status.sct() == 2;
        let lba = match NvmeCommand::first_block(entry) {
            _ if !has_blocks || !about_blocks => 0,
            // The first block that is outside: those before it are none of its error.
            first if status == Status::LBA_OUT_OF_RANGE => {
                self.controller().namespace_blocks(nsid).map_or(first, |blocks| blocks.max(first))
            }
            first => first,
        };
        FailedCommand { qid, cid: entry.cid.get(), nsid, status, lba, location }
    }
}
