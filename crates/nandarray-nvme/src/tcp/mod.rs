//! The TCP transport, over TCP sockets and unix sockets: PDUs, connections, a server, an initiator.
//!
//! A connection is a queue, served by a thread of its own that reads, executes and answers in batches; long
//! commands go to workers. `pdu` has the bytes, `connection` the states of one connection, `endpoint` a stream over
//! either kind of socket, `listener` the sockets that listen and who may connect by them, `server` threads, limits
//! and keep alive timeouts, `workers` threads for long commands (`long_command`), `turns` the order in which these
//! get one, `held` the memory that these
//! hold, `secure` TLS over a TCP socket, `greeting` its beginning at a server, `outgoing` what is sent, `logins`
//! counts and slows down logins that fail, `initiator` has the host's side, for tests and clients.

mod connection;
mod connection_state;
mod endpoint;
mod greeting;
mod held;
mod initiator;
mod listener;
mod logins;
mod long_command;
mod outgoing;
mod pdu;
mod run_fetch;
mod run_output;
mod secure;
mod server;
mod turns;
mod workers;

pub use endpoint::{Endpoint, Peer};
pub use initiator::{ConnectError, ConnectionEnder, HostQueue, Initiator, InitiatorOptions};
pub use listener::SocketAccess;
pub use long_command::arrived;
pub use pdu::{Digests, FatalError, FatalStatus, PduHeader, PduKind};
pub use secure::TlsFailure;
pub use server::{Server, ServerOptions, ServerStatus};
pub use workers::WorkerCounts;
