//! NVMe for hosts outside this process: subsystems, controllers with their admin commands, queues, fabrics.
//!
//! Entries, commands, pages and status codes are those of `nandarray-nvme-spec`; the command sets of namespaces and
//! views are executed in the engine ([`nandarray::nvme`]). This crate adds what lies between them and a transport: a
//! [`Subsystem`] per store, an [`Association`] per connected host (admin commands, features, log pages, events, boxes),
//! a [`QueuePair`] per queue (heads, phases, identifiers in flight), and Computational Programs on Subsystem Local
//! Memory, executed by the runtime. None of these opens a socket. [`tcp`] is a transport, with an initiator for tests
//! and clients. Formats are those of the NVMe base specification 2.0 and the TCP transport specification 1.0.
//!
//! | file | one idea |
//! | --- | --- |
//! | `limits` | sizes that target and initiator have in common |
//! | `commands` | which commands there are, and what each may change |
//! | `features`, `properties` | values that a host reads and sets |
//! | `queue` | one queue pair without a transport |
//! | `payload` | the data of a command as memory |
//! | `slm` | Subsystem Local Memory: command set 3 |
//! | `programs` | Computational Programs: the states of program slots, range sets, execution; command set 4 |
//! | `accounts` | accounts of a host's executions |
//! | `boxes` | stored boxes of N-D commands: command set 30h |
//! | `tenants`, `budget` | who hosts belong to, with arrays and limits; memory that hosts make grow |
//! | `door_tenants` | the same for a door that is not NVMe's |
//! | `running`, `cpu_time` | executions of one host, which end with it or are killed; processor time of their threads |
//! | `run_outputs` | outputs of runs that a host fetches while the programs run |
//! | `metrics`, `measures` | counts of commands by kind and tenant |
//! | `events` | events for the operator's log |
//! | `unlocked` | encrypted arrays whose keys one host has given |
//! | `requests`, `arrays`, `offload` | array requests: what they carry, what they do to arrays, programs |
//! | `identify`, `logs` | data of identify and of log pages |
//! | `auth` | in-band authentication of hosts |
//! | `tls`, `ports` | keys of TLS; addresses of a subsystem, and states of the paths by them |
//! | `registrants`, `reservations` | rules of one namespace's reservation; those of all, and who is excluded |
//! | `reserve` | commands on reservations of one host |
//! | `saved_registrants`, `notices` | registrants as an attribute; notifications of one host |
//! | `executing` | commands of one host that are being executed |
//! | `subsystem` | namespaces of all kinds, associations, limits |
//! | `association` | one controller as one host sees it: its state and events |
//! | `admin`, `io` | its commands of the admin queue, including fabrics commands; of I/O queues |
//! | `tcp` | the transport over TCP and unix sockets: PDUs, connections, server, initiator |

mod accounts;
mod admin;
mod arrays;
mod association;
pub mod auth;
mod boxes;
mod budget;
mod commands;
mod cpu_time;
mod door_tenants;
mod events;
mod executing;
mod features;
mod host_entries;
mod identify;
mod io;
mod limits;
mod logs;
mod measures;
mod metrics;
mod notices;
mod offload;
mod payload;
mod ports;
mod programs;
mod properties;
mod queue;
mod registrants;
mod requests;
mod reservations;
mod reserve;
mod run_outputs;
mod running;
mod saved_registrants;
mod slm;
mod subsystem;
#[allow(clippy::disallowed_methods, reason = "a transport gives up silent hosts: it has the machine's clock")]
pub mod tcp;
mod tenants;
pub mod tls;
mod unlocked;

#[cfg(test)]
mod tests;

pub use admin::AdminAnswer;
pub use association::{Association, HostIdentity};
pub use door_tenants::{DoorMemory, DoorTenant, DoorTenants};
pub use events::{EventKind, EventValue, ServerEvent};
pub use metrics::{BUCKET_FIRST_LOG2, BUCKETS, OperationCounts, OperationKind};
pub use nandarray_nvme_spec::{NSID_MEMORY, NSID_ND, NSID_PROGRAMS};
pub use payload::{Payload, TransferDirection};
pub use queue::QueuePair;
pub use running::RunStatus;
pub use subsystem::{KnownHosts, Subsystem, SubsystemOptions};
pub use tenants::{NodeLimits, NodeRules, TenantRules};
