//! Queue pairs in shared memory: other processes, and accelerators, read and write arrays of a store by NVMe entries.
//!
//! A [`QueueServer`] lays out a region (`layout`, `region`) in a file under `/dev/shm` and serves its queue pairs with
//! threads of its own; a [`QueueClient`] maps the region, claims a pair and transfers bytes. The C++ client is a header
//! (`python/nandarray/gpu/include/nandarray`). The server does not trust the region: it reads each word of an entry
//! only once, and keeps its own copy of the layout. Arrays appear as namespaces, with their elements in C order.
//!
//! | file | one idea |
//! | --- | --- |
//! | `error` | why a server or client cannot go on |
//! | `entries` | the entries and status codes of NVMe that this crate uses |
//! | `layout` | the region, byte for byte |
//! | `region` | the file, its mapping and its locks |
//! | `guard` | a mapping whose file another process truncates |
//! | `prepared` | an array as a namespace, resolved once |
//! | `ring` | the server's side of one queue pair |
//! | `atomic` | the machine's atomics, which a test replaces |
//! | `sleep` | sleeping without losing a doorbell |
//! | `futex` | the system's calls of sleeping |
//! | `server` | threads, each with its queues |
//! | `wait` | a client's wait: its deadline, and whether the server is gone |
//! | `client` | one claimed queue pair, and the gathering of records by it |
//!
//! Not in this crate: NVMe over TCP, and the queues of the modelled clock.

mod atomic;
mod client;
mod entries;
mod error;
mod futex;
mod guard;
mod layout;
mod prepared;
mod region;
mod ring;
mod server;
mod sleep;
mod wait;

pub use client::{NamespaceInfo, QueueClient};
pub use error::QueueError;
pub use layout::{NAMESPACE_NAME_BYTES_MAX, RegionGeometry};
pub use region::region_path;
pub use server::{QueueServer, ServeOptions, ServerCounts};
