//! Programs of array requests: several that feed each other, with boxes, views and tiles of arrays, and data of hosts.
//!
//! The standard's command set runs one program on ranges of memory ([`Programs`](crate::programs::Programs)). A request
//! brings its programs along, as ELF files in the data behind its text; they are loaded for this run alone. Outputs
//! that are collected for the host have a limit, as the instructions of a call and of the run have; a run ends with its
//! host. Programs never run in native form.

use nandarray::SpaceId;
use nandarray_cores::Form;
use nandarray_runtime::{
    Account, Boundary, Error, Execution, HOLD_BYTES, Halo, Input, Output, OutputValue, ProgramId, Runtime,
    StageRequest, Tiles, translates,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::arrays::{DataPiece, check_run, invalid};
use crate::programs::{INSTRUCTIONS_MAX, Surroundings, THREADS, reserve_run};
use crate::registrants::SpaceUse;
use crate::requests::Message;

/// Maximum number of programs, and of stages, of one request.
const STAGES_MAX: usize = 64;
/// Maximum size of the outputs that are collected for the host and that it does not fetch meanwhile, in bytes.
const COLLECT_BYTES_MAX: u64 = 64 << 20;

/// A run of programs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OffloadRequest {
    programs: Vec<ProgramGiven>,
    stages: Vec<StageGiven>,
    hold_bytes: u64,
}

/// A program: its ELF file, and its metadata as text, if they take the place of the file's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramGiven {
    elf: DataPiece,
    metadata: Option<String>,
}

/// A stage of a run ([`StageRequest`]); `program` is a number of the request's list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StageGiven {
    program: usize,
    /// Left out, the node chooses.
    #[serde(default)]
    form: Option<FormGiven>,
    inputs: Vec<InputGiven>,
    scalars: Vec<u64>,
    outputs: Vec<OutputGiven>,
    task_bytes: u64,
    instructions: Option<u64>,
}

/// A form of a program that a host may name, and that a reply tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum FormGiven {
    Interpreted,
    Translated,
}

impl FormGiven {
    /// Chooses the fastest form that a node may execute: translated, which interprets until translating pays, where
    /// this machine has a translator. Native code of a host is none.
    fn chosen() -> Self {
        if translates() { Self::Translated } else { Self::Interpreted }
    }

    fn form(self) -> Form {
        match self {
            Self::Interpreted => Form::Interpreted,
            Self::Translated => Form::Translated,
        }
    }
}

/// A box of an array or of its view, with tiles as [`Tiles`] has them: first, size, extent axes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BoxGiven {
    array: SpaceId,
    start: Vec<u64>,
    step: Vec<u64>,
    count: Vec<u64>,
    view: Option<Vec<u64>>,
    tiles: Option<(Vec<u64>, Vec<u64>, Vec<usize>)>,
    /// Halo of an input's tiles; left out for none.
    #[serde(default)]
    halo: Option<Box<HaloGiven>>,
}

/// A halo of tiles, as [`Halo`] has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HaloGiven {
    depth: Vec<u64>,
    #[serde(deserialize_with = "boundaries")]
    boundary: Vec<Boundary>,
}

/// Reads boundaries: pairs of a word and the bytes of a constant.
fn boundaries<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Boundary>, D::Error> {
    let given = Vec::<(String, Vec<u8>)>::deserialize(from)?;
    let one = |(word, constant): (String, Vec<u8>)| {
        Boundary::named(&word, &constant).ok_or_else(|| D::Error::custom(format!("no boundary is called {word:?}")))
    };
    given.into_iter().map(one).collect()
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum InputGiven {
    Box(BoxGiven),
    Bytes(DataPiece),
    /// An output of an earlier stage: numbers of the stage and of the output.
    Output(usize, usize),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OutputGiven {
    Box(BoxGiven),
    /// The output is given back in the reply.
    Collect,
    /// Only later stages read the output.
    Between,
}

/// The costs of a stage, or of a run, in a reply.
#[derive(Debug, Serialize)]
struct AccountGiven {
    tasks: u64,
    bytes_in: u64,
    bytes_out: u64,
    instructions: u64,
}

impl From<Account> for AccountGiven {
    fn from(account: Account) -> Self {
        let Account { tasks, bytes_in, bytes_out, instructions, .. } = account;
        Self { tasks, bytes_in, bytes_out, instructions }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum ValueGiven {
    Bytes(DataPiece),
    Elements(u64),
}

#[derive(Debug, Serialize)]
struct StageAnswer {
    #[serde(flatten)]
    account: AccountGiven,
    /// The form that ran.
    form: FormGiven,
    outputs: Vec<Option<ValueGiven>>,
    state: DataPiece,
}

#[derive(Debug, Serialize)]
struct RunDone {
    #[serde(flatten)]
    account: AccountGiven,
    stages: Vec<StageAnswer>,
}

impl OffloadRequest {
    /// Whether an output goes to the store.
    pub(crate) fn writes(&self) -> bool {
        let mut outputs = self.stages.iter().flat_map(|stage| &stage.outputs);
        outputs.any(|output| matches!(output, OutputGiven::Box(_)))
    }

    /// Returns the numbers of the arrays that the run reads or writes.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (SpaceId, SpaceUse)> {
        self.stages.iter().flat_map(|stage| {
            let read = stage.inputs.iter().filter_map(|input| match input {
                InputGiven::Box(b) => Some((b.array, SpaceUse::Read)),
                InputGiven::Bytes(_) | InputGiven::Output(..) => None,
            });
            let written = stage.outputs.iter().filter_map(|output| match output {
                OutputGiven::Box(b) => Some((b.array, SpaceUse::Write)),
                OutputGiven::Collect | OutputGiven::Between => None,
            });
            read.chain(written)
        })
    }
}

impl BoxGiven {
    fn tiles(&self) -> Option<Tiles<'_>> {
        let halo = self.halo.as_ref().map(|halo| Halo { depth: &halo.depth, boundary: &halo.boundary });
        self.tiles.as_ref().map(|(first, size, told)| Tiles { first, size, extent_axes: told, halo })
    }
}

/// Programs that are loaded for one run, and unloaded with this value.
struct RunPrograms<'a> {
    runtime: &'a Runtime,
    programs: Vec<ProgramId>,
}

impl Drop for RunPrograms<'_> {
    fn drop(&mut self) {
        for program in &self.programs {
            // A store that was closed meanwhile has none.
            drop(self.runtime.unload(*program));
        }
    }
}

/// Loads the programs of a request, which are unloaded with the value.
fn load<'r>(at: &Surroundings<'r>, request: &OffloadRequest, data: &[u8]) -> Result<RunPrograms<'r>, Error> {
    let mut loaded = RunPrograms { runtime: at.runtime, programs: Vec::new() };
    for program in &request.programs {
        let metadata = program.metadata.as_ref().map(String::as_bytes);
        loaded.programs.push(at.runtime.load(program.elf.of(data)?, metadata)?);
    }
    Ok(loaded)
}

/// Runs the programs of a request; returns its reply, a message with the outputs.
pub(crate) fn execute(at: &Surroundings<'_>, request: &OffloadRequest, data: &[u8]) -> Result<Vec<u8>, Error> {
    let (programs, stages) = (request.programs.len(), request.stages.len());
    if programs.max(stages) > STAGES_MAX {
        return Err(invalid(format!("{programs} programs and {stages} stages: a run must have at most {STAGES_MAX}")));
    }
    check_run(at, request.uses())?;
    let loaded = load(at, request, data)?;
    // The cores: what they read from the request and collect for the reply is reserved with these.
    let _held = reserve_run(at, &loaded.programs, 0)?;
    let inputs: Vec<Vec<Input<'_>>> = (request.stages.iter())
        .map(|stage| stage.inputs.iter().map(|input| input_of(input, data)).collect::<Result<_, _>>())
        .collect::<Result<_, Error>>()?;
    let outputs: Vec<Vec<Option<Output<'_>>>> =
        request.stages.iter().map(|stage| stage.outputs.iter().map(output_of).collect()).collect();
    let forms: Vec<FormGiven> =
        request.stages.iter().map(|stage| stage.form.unwrap_or_else(FormGiven::chosen)).collect();
    let stages: Vec<StageRequest<'_>> = (request.stages.iter().zip(&forms).zip(&inputs).zip(&outputs))
        .map(|(((stage, form), inputs), outputs)| {
            let program = loaded.programs.get(stage.program).copied();
            Ok(StageRequest {
                program: program.ok_or_else(|| invalid(format!("program {} of {programs}", stage.program)))?,
                form: form.form(),
                inputs,
                scalars: &stage.scalars,
                outputs,
                task_bytes: stage.task_bytes,
                instructions: Some(stage.instructions.unwrap_or(INSTRUCTIONS_MAX).min(INSTRUCTIONS_MAX)),
                cores: &[],
            })
        })
        .collect::<Result<_, Error>>()?;
    let names = stages.iter().filter_map(|stage| at.runtime.program_name(stage.program));
    at.begin_programs(names.collect::<Vec<_>>().join(" | "));
    assert_eq!(loaded.programs.len(), programs, "programs that are unloaded with this run");
    let threads = at.runtime.threads(THREADS);
    let mut done = at.runtime.execute(&Execution {
        stages: &stages,
        executor: at.executor.unwrap_or(&threads),
        hold_bytes: request.hold_bytes.min(HOLD_BYTES),
        collect_bytes: COLLECT_BYTES_MAX,
        locks_at_end: true,
        progress: at.running.progress(),
    })?;
    assert_eq!(done.stages.len(), request.stages.len(), "stages that ran");
    // Outputs that the host fetches are empty here, but for their last bytes.
    let left = at.running.outputs().unfetched();
    let (mut found, mut number) = (Vec::new(), 0);
    let mut value = |value: OutputValue| {
        number += 1;
        match (value, &left) {
            (OutputValue::Elements(count), _) => ValueGiven::Elements(count),
            (OutputValue::Bytes(bytes), None) => ValueGiven::Bytes(DataPiece::put(&mut found, &bytes)),
            (OutputValue::Bytes(_), Some(left)) => {
                let of = left.iter().filter(|piece| piece.output + 1 == number);
                ValueGiven::Bytes(DataPiece::put_all(&mut found, of.map(|piece| &piece.bytes[..])))
            }
        }
    };
    let outputs: Vec<Vec<Option<ValueGiven>>> = (done.stages.iter_mut())
        .map(|stage| std::mem::take(&mut stage.outputs).into_iter().map(|one| one.map(&mut value)).collect())
        .collect();
    let parts: Vec<StageAnswer> = (done.stages.into_iter().zip(forms).zip(outputs))
        .map(|((stage, form), outputs)| {
            let state = DataPiece::put(&mut found, &stage.state);
            StageAnswer { account: stage.account.into(), form, outputs, state }
        })
        .collect();
    Ok(Message::join(&RunDone { account: done.account.into(), stages: parts }, &found))
}

fn input_of<'a>(input: &'a InputGiven, data: &'a [u8]) -> Result<Input<'a>, Error> {
    Ok(match input {
        InputGiven::Bytes(piece) => Input::Bytes(piece.of(data)?),
        &InputGiven::Output(stage, output) => Input::Output { stage, output },
        InputGiven::Box(b) => Input::Box {
            space: b.array,
            start: &b.start,
            step: &b.step,
            count: &b.count,
            view: b.view.as_deref(),
            tiles: b.tiles(),
        },
    })
}

fn output_of(output: &OutputGiven) -> Option<Output<'_>> {
    match output {
        OutputGiven::Between => None,
        OutputGiven::Collect => Some(Output::Collect),
        OutputGiven::Box(b) => Some(Output::Box {
            space: b.array,
            start: &b.start,
            count: &b.count,
            view: b.view.as_deref(),
            tiles: b.tiles(),
        }),
    }
}
