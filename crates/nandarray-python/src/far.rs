//! Objects far away: media whose bytes are fetched by a function of Python.
//!
//! The function is called by threads of the medium, with the GIL for as long as Python code runs; its own requests
//! release it. Readers wait for bytes without the GIL, and ask now and then whether a signal came. An exception of the
//! function is that of the command that needed the bytes.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use nandarray::remote::{self, CacheFiles, Failed, Fetch, FetchError, RemoteMedia, Stay};
use nandarray::{Error, Result};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::errors::detached;

/// An exception of Python with its text, which is made where it is raised, so that printing it takes no GIL.
#[derive(Debug)]
struct Raised {
    error: PyErr,
    text: String,
}

impl Raised {
    fn of(py: Python<'_>, error: PyErr) -> FetchError {
        let text = error.value(py).to_string();
        Arc::new(Self { error, text })
    }
}

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {}

/// Returns the exception that a fetch function raised, if that is the source of an error.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> Option<PyErr> {
    let Error::Media { source, .. } = error else { return None };
    let failed: &Failed = source.get_ref()?.downcast_ref()?;
    let raised: &Raised = failed.get().downcast_ref()?;
    Some(raised.error.clone_ref(py))
}

/// A fetch function of Python, and one that tells why bytes cannot be kept.
#[derive(Debug)]
struct Functions {
    fetch: Py<PyAny>,
    warn: Py<PyAny>,
}

/// The functions of an object, until it is dropped.
#[derive(Debug)]
struct PyFetch(Option<Functions>);

impl PyFetch {
    fn functions(&self) -> &Functions {
        self.0.as_ref().expect("they are there until the drop")
    }
}

impl Drop for PyFetch {
    /// Lets go of the functions with the GIL where a thread of the medium is the last to have them, which holds no lock
    /// then: without the GIL the references, and with them the lock of the cache's entry, would last until the next
    /// call of this module. A thread of Python has the GIL, or takes it soon.
    fn drop(&mut self) {
        if std::thread::current().name() == Some(remote::THREAD_NAME) {
            let functions = self.0.take();
            let _ = Python::try_attach(|_| drop(functions));
        }
    }
}

fn no_python() -> FetchError {
    Arc::new(io::Error::other("Python has ended"))
}

impl Fetch for PyFetch {
    fn fetch(
        &self,
        from: u64,
        to: u64,
        put: &mut (dyn FnMut(u64, &[u8]) + Send),
    ) -> std::result::Result<(), FetchError> {
        let done = Python::try_attach(|py| {
            let buffer =
                self.functions().fetch.call1(py, (from, to)).and_then(|found| PyBuffer::<u8>::get(found.bind(py)));
            let buffer = buffer.map_err(|error| Raised::of(py, error))?;
            if !buffer.is_c_contiguous() {
                return Err(Arc::new(io::Error::other("the bytes are not contiguous")) as FetchError);
            }
            let bytes: &[u8] = match buffer.len_bytes() {
                0 => &[],
                // SAFETY: the buffer is held until the end of this call, and a fetch function gives its bytes away.
                len => unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), len) },
            };
            py.detach(|| put(from, bytes));
            Ok(())
        });
        done.unwrap_or_else(|| Err(no_python()))
    }

    fn interrupted(&self) -> std::result::Result<(), FetchError> {
        Python::try_attach(|py| py.check_signals().map_err(|error| Raised::of(py, error)))
            .unwrap_or_else(|| Err(no_python()))
    }

    fn without_room(&self, why: &io::Error) {
        let text = why.to_string();
        let warn = &self.functions().warn;
        Python::try_attach(|py| {
            if let Err(error) = warn.call1(py, (text,)) {
                error.write_unraisable(py, Some(warn.bind(py)));
            }
        });
    }
}

/// An object far away, of which stores are opened.
#[pyclass(module = "nandarray._nandarray", name = "Far", frozen)]
pub(crate) struct PyFar {
    pub(crate) media: Arc<RemoteMedia>,
    #[pyo3(get)]
    pub(crate) url: String,
}

#[pymethods]
impl PyFar {
    /// Takes an object of `bytes` bytes. `fetch(first, end)` returns a buffer with these bytes. `kept` has descriptors
    /// of the files in which they are kept, of bytes and of marks; whether they may be evicted while they are open; and
    /// whether no other process has them open. Without it they are kept in memory. `warn(text)` is called once if there
    /// is no room in the files. `trusting` is whether bytes from before the machine's last start are used.
    #[new]
    #[pyo3(signature = (url, bytes, fetch, warn, *, kept=None, trusting=true))]
    fn new(
        py: Python<'_>,
        url: String,
        bytes: u64,
        fetch: Py<PyAny>,
        warn: Py<PyAny>,
        kept: Option<(RawFd, RawFd, bool, bool)>,
        trusting: bool,
    ) -> PyResult<Self> {
        let kept = kept.map(files).transpose()?;
        let fetch = Box::new(PyFetch(Some(Functions { fetch, warn })));
        let made = detached(py, move || RemoteMedia::new(fetch, bytes, kept, trusting));
        let media = made.map_err(|e| crate::errors::to_py(py, &e, None))?;
        Ok(Self { media: Arc::new(media), url })
    }

    /// Takes bytes from the beginning of the object, which were fetched before.
    fn give(&self, py: Python<'_>, bytes: PyBuffer<u8>) -> PyResult<()> {
        let bytes = bytes.to_vec(py)?;
        py.detach(|| self.media.give(&bytes));
        Ok(())
    }

    /// Announces that these ranges will be read, as (first byte, end).
    fn prefetch(&self, py: Python<'_>, ranges: Vec<(u64, u64)>) {
        use nandarray::Media;

        py.detach(|| self.media.prefetch(&ranges));
    }
}

fn files((data, marks, turning, alone): (RawFd, RawFd, bool, bool)) -> io::Result<CacheFiles> {
    let own = |fd: RawFd| -> io::Result<File> {
        // SAFETY: the caller has the descriptor open for the length of the call.
        unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().map(File::from)
    };
    let stay = if turning { Stay::TurningOver } else { Stay::Kept };
    Ok(CacheFiles { data: own(data)?, marks: own(marks)?, stay, alone })
}

/// Evicts bytes of an object of `size` bytes from its files, which are those of `Far`'s `kept`; returns how many.
#[pyfunction]
pub(crate) fn far_evict(
    py: Python<'_>,
    files: (RawFd, RawFd, bool, bool),
    size: u64,
    bytes: u64,
    seed: u64,
) -> PyResult<u64> {
    let kept = self::files(files)?;
    let done: Result<io::Result<u64>> = detached(py, move || remote::evict(kept, size, bytes, seed));
    Ok(done.map_err(|e| crate::errors::to_py(py, &e, None))??)
}

/// Waits for the threads that fetch, and lets no others begin.
#[pyfunction]
pub(crate) fn far_end(py: Python<'_>) {
    py.detach(remote::end_fetches);
}

/// Forgets the threads of the process from which this one was forked.
#[pyfunction]
pub(crate) fn far_forked() {
    remote::forget_fetches();
}

/// Adds objects far away to the module.
pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyFar>()?;
    m.add_function(wrap_pyfunction!(far_evict, m)?)?;
    m.add_function(wrap_pyfunction!(far_end, m)?)?;
    m.add_function(wrap_pyfunction!(far_forked, m)?)
}
