//! A kernel that was submitted to a session: its sections, progress and result. The owner of a board does its steps.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nandarray::Device;
use nandarray_cores::kernel::KernelCore;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::session::board::{KernelEnd, ScreenJob};
use crate::session::kernels::KernelRequest;
use crate::session::mapping::MappedSections;

/// The outputs of a kernel that is done: for each section its bytes if they are to be collected, else `None`.
pub type Collected = Vec<Option<Vec<u8>>>;

/// A kernel that was submitted to a session, with its progress and result.
#[derive(Debug)]
pub struct SessionJob {
    /// Number of the kernel in the session.
    pub number: u64,
    request: KernelRequest,
    stop: AtomicBool,
    sections: Mutex<Option<Arc<MappedSections>>>,
    /// Number of screens that have ended.
    done: AtomicU64,
    failure: Mutex<Option<Error>>,
    end: Mutex<Option<Result<Collected>>>,
    ended: AtomicBool,
}

impl SessionJob {
    /// Makes the job of a submission to which a board gave `number`. The owner of the board does the steps of the job.
    pub fn new(number: u64, request: KernelRequest) -> Self {
        Self {
            number,
            request,
            stop: AtomicBool::new(false),
            sections: Mutex::new(None),
            done: AtomicU64::new(0),
            failure: Mutex::new(None),
            end: Mutex::new(None),
            ended: AtomicBool::new(false),
        }
    }

    /// Returns the request that was submitted.
    pub fn request(&self) -> &KernelRequest {
        &self.request
    }

    /// Prepares the sections of the kernel: reads them from the store, or allocates them.
    ///
    /// # Errors
    /// [`Error`]: a read failed, or memory is short.
    pub fn map(&self, device: &Device) -> Result<()> {
        *self.sections.lock() = Some(Arc::new(MappedSections::map(device, &self.request)?));
        Ok(())
    }

    /// Runs one screen of the kernel on a core.
    ///
    /// # Errors
    /// [`Error::Kernel`]: the screen failed; other errors are those of a read from the store.
    pub fn screen(&self, device: &Device, core: &mut KernelCore, screen: ScreenJob) -> Result<()> {
        let sections = self.sections.lock().clone().expect("a mapped kernel");
        let done = sections.run(device, &self.request, core, screen, &self.stop);
        self.done.fetch_add(1, Ordering::Relaxed);
        done
    }

    /// Copies the bytes that a screen may change, so that [`SessionJob::restore`] can put them back.
    pub fn save(&self, screen: ScreenJob) -> SavedRows {
        let sections = self.sections.lock().clone().expect("a mapped kernel");
        SavedRows(sections.save(&self.request, screen))
    }

    /// Undoes a screen: puts back the bytes that [`SessionJob::save`] copied before the screen ran.
    pub fn restore(&self, saved: SavedRows) {
        self.done.fetch_sub(1, Ordering::Relaxed);
        self.sections.lock().clone().expect("a mapped kernel").restore(saved.0);
    }

    /// Writes the outputs of the kernel to the store, and keeps those that are to be collected.
    ///
    /// # Errors
    /// [`Error`]: a write failed; nothing was written then.
    pub fn drain(&self, device: &Device) -> Result<()> {
        let sections = self.sections.lock().take().expect("a mapped kernel");
        let sections = Arc::into_inner(sections).expect("no screen runs any more");
        let given = sections.drain(device, &self.request)?;
        *self.end.lock() = Some(Ok(given));
        Ok(())
    }

    /// Notes that a step of the kernel failed, and stops the other screens of the kernel.
    pub fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.stop();
    }

    /// Stops the screens of the kernel.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Sets the result of the kernel, when the board has reported the kernel's end.
    pub fn finish(&self, end: KernelEnd) {
        let number = self.number;
        self.sections.lock().take();
        let mut slot = self.end.lock();
        let failure = self.failure.lock().take();
        match (end, failure) {
            (KernelEnd::Done, _) => assert!(slot.is_some(), "the outputs of kernel {number} are there"),
            (KernelEnd::Failed, Some(error)) => *slot = Some(Err(error)),
            (KernelEnd::Failed, None) => panic!("kernel {number} failed without an error"),
            (KernelEnd::Cancelled, _) => *slot = Some(Err(Error::Cancelled)),
            (KernelEnd::Dependency(on), _) => {
                let name = self.request.kernel.program().table.name.clone();
                *slot = Some(Err(Error::Dependency { kernel: name, on }));
            }
        }
        drop(slot);
        self.ended.store(true, Ordering::Release);
    }

    /// Whether the kernel has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns the number of screens that have ended.
    pub fn screens_done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the number of microblocks of the kernel.
    pub fn microblocks(&self) -> usize {
        self.request.kernel.program().table.microblocks.len()
    }

    /// Takes the result of the kernel; `None` if the kernel has not ended, or the result was taken before.
    pub fn take(&self) -> Option<Result<Collected>> {
        self.end.lock().take()
    }
}

/// Copies of the bytes that a screen may change, from before the screen ran.
#[derive(Debug)]
pub struct SavedRows(Vec<(usize, Range<u64>, Vec<u8>)>);
