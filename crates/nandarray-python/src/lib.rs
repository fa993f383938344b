//! The Python binding: Python's arguments become typed commands, and errors become exceptions.
//!
//! The interface is `python/nandarray/_nandarray.pyi`. Ergonomics are Python's business, except for the rules of index
//! expressions (`index`), which every read uses. Every command releases the GIL. NumPy arrays are borrowed, not copied:
//! the engine gets address, shape and byte strides. If another thread changes or reads an array while a command moves
//! its bytes, the values are unspecified, as in NumPy itself.
//!
//! | file | one idea |
//! | --- | --- |
//! | `buffers` | NumPy arrays as addresses and strides |
//! | `bare` | bare-metal tests |
//! | `clock` | the modelled clock of a store |
//! | `device` | descriptions of devices, as texts |
//! | `errors` | engine errors as the exceptions of `nandarray.errors` |
//! | `fetch` | warps that fetch from several modelled devices |
//! | `flight` | commands in flight on a modelled device |
//! | `get` | small reads by one call |
//! | `handle` | the device that all handles of a store share |
//! | `index` | NumPy's index expressions |
//! | `nvme` | NVMe controllers: entries in and out |
//! | `nvme_commands` | NVMe commands of Python as entries and pages |
//! | `nvme_tenants` | tenants of a node for a door that is not NVMe's |
//! | `offload` | programs beside the data |
//! | `options` | options of opening a store |
//! | `queues` | queue pairs in shared memory: servers and clients |
//! | `replay` | workloads on described devices |
//! | `report` | findings of checks and openings, as dictionaries |
//! | `session` | many kernels at once |
//! | `space` | an array: reads and writes |
//! | `store` | a store: arrays by name, programs |
//! | `transaction` | writes to several spaces, made as one |

mod bare;
mod buffers;
mod clock;
mod cores;
mod device;
mod errors;
mod far;
mod fetch;
mod flight;
mod get;
mod handle;
mod index;
mod nvme;
mod nvme_commands;
mod nvme_entries;
mod nvme_tcp;
mod nvme_tenants;
mod nvme_watch;
mod offload;
mod options;
mod queues;
mod replay;
mod report;
mod session;
mod space;
mod store;
mod transaction;

use pyo3::prelude::*;

/// The native engine.
#[pymodule]
fn _nandarray(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", nandarray::VERSION)?;
    m.add("NVME_MOVE_BYTES_MAX", nandarray::nvme::MOVE_BYTES_MAX)?;
    m.add("NVME_WRITE_ROWS_MAX", nandarray::nvme::WRITE_ROWS_MAX)?;
    m.add_class::<store::PyStore>()?;
    m.add_class::<space::PySpace>()?;
    far::add(m)?;
    m.add_class::<transaction::PyTransaction>()?;
    m.add_class::<nvme::PyNvme>()?;
    m.add_class::<nvme_tcp::PyNvmeServer>()?;
    m.add_class::<nvme_tcp::PyNvmeHost>()?;
    nvme_tenants::add_classes(m)?;
    m.add_class::<queues::PyQueueServer>()?;
    m.add_class::<queues::PyQueueClient>()?;
    m.add_class::<clock::PyClock>()?;
    m.add_class::<flight::PyFlight>()?;
    m.add_class::<offload::Watch>()?;
    m.add_class::<index::selection::PySelection>()?;
    m.add_class::<session::PyKernel>()?;
    m.add_class::<session::PySession>()?;
    m.add_class::<session::PySessionJob>()?;
    m.add_function(wrap_pyfunction!(errors::error_kinds, m)?)?;
    m.add_function(wrap_pyfunction!(store::check_name, m)?)?;
    m.add_function(wrap_pyfunction!(get::get, m)?)?;
    m.add_function(wrap_pyfunction!(get::get_sub_block, m)?)?;
    m.add_function(wrap_pyfunction!(index::selection::select, m)?)?;
    m.add_function(wrap_pyfunction!(nvme::nvme_statuses, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_tcp::dhchap_secret, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_tcp::dhchap_key, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_tcp::nvme_tls_key, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_tcp::nvme_tls_psks, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_tcp::nvme_rules_hosts, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_tcp::nvme_rules_keys, m)?)?;
    m.add_function(wrap_pyfunction!(queues::queue_path, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_commands::nvme_encode, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_commands::nvme_completion, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_commands::nvme_reply_entry, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_commands::nvme_output_entry, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_commands::nvme_request_entry, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_commands::nvme_space, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_commands::nvme_status_kind, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_entries::nvme_account, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_entries::nvme_activate_entry, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_entries::nvme_delete_box_entry, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_entries::nvme_execute_entry, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_entries::nvme_load_entry, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_entries::nvme_log_entry, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_entries::nvme_memory_entry, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_entries::nvme_store_box_entry, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_entries::nvme_unload_entry, m)?)?;
    m.add_function(wrap_pyfunction!(nvme_watch::nvme_event_kinds, m)?)?;
    device::add_functions(m)?;
    m.add_function(wrap_pyfunction!(replay::replay, m)?)?;
    m.add_function(wrap_pyfunction!(offload::program_disassemble, m)?)?;
    m.add_function(wrap_pyfunction!(offload::program_metadata, m)?)?;
    m.add_function(wrap_pyfunction!(cores::core_names, m)?)?;
    m.add_function(wrap_pyfunction!(cores::core_text, m)?)?;
    m.add_function(wrap_pyfunction!(cores::core_describe, m)?)?;
    m.add_function(wrap_pyfunction!(bare::program_run_bare, m)?)?;
    m.add_function(wrap_pyfunction!(session::accelerator_run, m)?)?;
    m.add_function(wrap_pyfunction!(fetch::fetch_run, m)?)?;
    m.add_function(wrap_pyfunction!(session::register_scheduler, m)?)?;
    m.add_function(wrap_pyfunction!(session::schedule_decisions, m)?)?;
    Ok(())
}
