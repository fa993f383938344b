//! The data that all jobs of one stage share, and reads of the stage's external inputs.
//!
//! Reads add to the progress of the run; nothing here decides what is read, or when.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nandarray_cores::{Bounds, Core, RunError, abi};

use crate::io::InputSource;
use crate::progress::Progress;
use crate::share::Share;
use crate::stage::{Origin, Stage};

/// Data that all jobs of one stage share.
#[derive(Clone)]
pub(crate) struct StageContext<'s, 'p> {
    pub(crate) number: usize,
    pub(crate) stage: &'s Stage<'s, 'p>,
    /// For each output of the stage its readers, as (stage, input).
    pub(crate) readers: Arc<Vec<Vec<(usize, usize)>>>,
    pub(crate) source: &'s dyn InputSource,
    pub(crate) progress: &'s Progress,
    pub(crate) share: Share<'s>,
}

impl<'p> StageContext<'_, 'p> {
    pub(crate) fn bounds(&self) -> Bounds<'_> {
        Bounds { instructions: self.stage.instructions, stop: &self.progress.stop }
    }

    pub(crate) fn core(&self) -> Result<Core<'p>, RunError> {
        let core = (self.stage.core)(self.stage.program).map_err(|e| RunError::Inputs(e.to_string()))?;
        self.progress.memory_bytes.fetch_add(core.memory_bytes(), Ordering::Relaxed);
        Ok(core)
    }

    /// Whether the program gets an input in the form in which an array packs integers.
    pub(crate) fn is_packed(&self, input: usize) -> bool {
        self.stage.program.metadata().inputs[input].packed.is_some()
    }

    /// Reads a task's part of a packed input, and adds the bytes of its stored form to the progress.
    pub(crate) fn read_packed(&self, input: usize, from: u64, bytes: u64, into: &mut Vec<u8>) -> Result<(), RunError> {
        let Origin::External(external) = self.stage.inputs[input] else {
            unreachable!("packed inputs are arrays, as was checked");
        };
        self.source.read_packed(external, from, bytes, into).map_err(RunError::Transfer)?;
        let (found, most) = (into.len() as u64, abi::WINDOW_BYTES);
        if found > most {
            let name = &self.stage.program.metadata().inputs[input].name;
            return Err(RunError::Inputs(format!("packed input {name}: a task of {found} bytes; at most {most}")));
        }
        self.progress.bytes_in.fetch_add(found, Ordering::Relaxed);
        Ok(())
    }

    /// Fills `into` with bytes of an external input from byte `from` on, and adds their number to the progress.
    pub(crate) fn read(&self, input: usize, from: u64, into: &mut [u8]) -> Result<(), RunError> {
        let Origin::External(external) = self.stage.inputs[input] else {
            unreachable!("what other stages give is in memory");
        };
        self.source.read(external, from, into).map_err(RunError::Transfer)?;
        self.progress.bytes_in.fetch_add(into.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}
