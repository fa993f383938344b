//! The programs that are loaded, and a cache of the programs that were loaded last.
//!
//! A program that is loaded again soon, with the same bytes, is taken from the cache with its translations. The
//! processor that executes the instructions of a program is chosen here; the modules above know cores only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use nandarray_cores::{Core, CoreTimer, Form, LoadError, Profiler, Program};
use nandarray_jit::Translations;

use crate::error::{Error, Result};

/// Whether this machine can execute programs in [`Form::Translated`] faster than interpreted: it has a translator.
pub fn translates() -> bool {
    nandarray_jit::has_translator()
}

/// The handle of a loaded program in its [`crate::Runtime`].
pub type ProgramId = u32;

/// Number of programs in the cache, unloaded ones among them.
const RECENT: usize = 8;

/// A program and its translations so far, shared by all runs of the program.
#[derive(Debug)]
pub(crate) struct LoadedProgram {
    elf: Vec<u8>,
    metadata: Option<Vec<u8>>,
    pub(crate) program: Program,
    translations: Translations,
}

impl LoadedProgram {
    fn new(elf: &[u8], metadata: Option<&[u8]>, program: Program) -> Self {
        let translations =
            Translations::with_extensions(program.bits(), program.extensions(), nandarray_jit::Settings::default());
        Self { elf: elf.to_vec(), metadata: metadata.map(<[u8]>::to_vec), program, translations }
    }

    /// Returns a function that makes the cores for one run of the program. With a profiler or a timer the cores
    /// interpret, unless the form is native: it has no instructions to count.
    pub(crate) fn cores<'r>(
        &'r self,
        form: Form,
        profiler: Option<&'r Profiler>,
        timer: Option<&'r CoreTimer>,
    ) -> impl Fn(&'r Program) -> std::result::Result<Core<'r>, LoadError> + Sync {
        // Made once a run, not once a core: the cores of a run share one budget for translating.
        let run = self.translations.run();
        move |program| match (form, timer, profiler) {
            (Form::Native(entries), ..) => Core::native(program, entries),
            (_, Some(timer), _) => timer.core(program),
            (_, None, Some(profiler)) => profiler.core(program),
            (Form::Interpreted, None, None) => Core::interpreter(program),
            (Form::Translated, None, None) => Core::new(program, run.processor()),
        }
    }
}

/// The table of loaded programs, by handle.
#[derive(Debug, Default)]
pub(crate) struct ProgramTable {
    next: ProgramId,
    loaded: BTreeMap<ProgramId, Arc<LoadedProgram>>,
    /// The programs that were loaded last, unloaded ones among them; the latest is first.
    recent: VecDeque<Arc<LoadedProgram>>,
}

impl ProgramTable {
    pub(crate) fn load(&mut self, elf: &[u8], metadata: Option<&[u8]>) -> Result<ProgramId> {
        let parse = || Program::from_elf(elf, metadata).map_err(|e| Error::Program(Box::new(e)));
        self.load_by(elf, metadata, parse)
    }

    /// Loads a program that `parse` makes from its bytes; it is not called if the program is in the cache.
    pub(crate) fn load_by<E>(
        &mut self,
        elf: &[u8],
        metadata: Option<&[u8]>,
        parse: impl FnOnce() -> std::result::Result<Program, E>,
    ) -> std::result::Result<ProgramId, E> {
        let known = self.recent.iter().position(|r| r.elf == elf && r.metadata.as_deref() == metadata);
        let ready = match known.and_then(|at| self.recent.remove(at)) {
            Some(ready) => ready,
            None => Arc::new(LoadedProgram::new(elf, metadata, parse()?)),
        };
        self.recent.push_front(ready.clone());
        self.recent.truncate(RECENT);
        self.next += 1;
        self.loaded.insert(self.next, ready);
        Ok(self.next)
    }

    pub(crate) fn unload(&mut self, id: ProgramId) -> Result<()> {
        self.loaded.remove(&id).map(drop).ok_or_else(|| unknown(id))
    }

    pub(crate) fn get(&self, id: ProgramId) -> Result<Arc<LoadedProgram>> {
        self.loaded.get(&id).cloned().ok_or_else(|| unknown(id))
    }
}

fn unknown(id: ProgramId) -> Error {
    Error::Engine(nandarray::Error::NotFound { name: format!("program {id}") })
}
